"""The journal: truncation and damage affect only the entries at that place."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import RecordError
from rollbook.journal.entries import HEADER, MAGIC, RUN, pack_entry, segment_files
from rollbook.journal.reader import Follower, Reader
from rollbook.journal.state import is_recording
from rollbook.journal.writer import Journal
from rollbook.protocol.frames import Frame

BEGIN = {"hosts": ["a", "b"], "sources": [], "interval_ns": 10**9}
# Content that looks like entries: a host can send any bytes.
CONTENT = st.binary(max_size=40) | st.just(MAGIC) | st.just(pack_entry(7, 7, b"Jforged")) | st.just(MAGIC + bytes(20))
PAYLOADS = st.lists(st.tuples(st.integers(0, 9), CONTENT), min_size=1, max_size=8)


def read_segment(directory: Path, data: bytes) -> list[tuple[int, bytes]]:
    """Read the entries of a segment with these bytes."""
    directory.mkdir(exist_ok=True)
    (directory / "000001.seg").write_bytes(data)
    return [(one.host, one.payload) for one in Reader(directory)]


@pytest.fixture(scope="module")
def shared_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all examples of a test share."""
    return tmp_path_factory.mktemp("journal")


@settings(deadline=None)
@given(PAYLOADS)
def test_truncated_at_every_byte(shared_directory: Path, payloads: list[tuple[int, bytes]]) -> None:
    """If a journal is truncated anywhere in its last entry, exactly the complete entries are read."""
    entries = [pack_entry(host, 5, b"F" + content) for host, content in payloads]
    whole = [(host, b"F" + content) for host, content in payloads]
    data = b"".join(entries)
    start = len(data) - len(entries[-1])
    for end in range(start, len(data)):
        assert read_segment(shared_directory, data[:end]) == whole[:-1]
    assert read_segment(shared_directory, data) == whole


@settings(max_examples=300, deadline=None)
@given(PAYLOADS, st.data())
def test_damage_at_any_place(shared_directory: Path, payloads: list[tuple[int, bytes]], data: st.DataObject) -> None:
    """Changed bytes lose only the entries that contain them; no entry is invented or changed."""
    entries = [pack_entry(host, 5, b"F" + content) for host, content in payloads]
    text = bytearray(b"".join(entries))
    first = data.draw(st.integers(0, len(text) - 1))
    last = min(len(text), first + data.draw(st.integers(1, 12)))
    text[first:last] = data.draw(st.binary(min_size=last - first, max_size=last - first))
    found = read_segment(shared_directory, bytes(text))
    at = 0
    untouched = []
    for (host, content), one in zip(payloads, entries, strict=True):
        if at + len(one) <= first or at >= last:
            untouched.append((host, b"F" + content))
        at += len(one)
    assert set(untouched) <= set(found)
    # The content of a damaged entry is searched as well: a valid entry inside it is accepted.
    written = {(7, b"Jforged"), *((host, b"F" + content) for host, content in payloads)}
    assert set(found) <= written


def test_damage_is_counted_and_does_not_grow_memory(tmp_path: Path) -> None:
    """A header with a huge length and megabytes of zeros are skipped and counted."""
    good = pack_entry(1, 5, b"Fgood")
    (tmp_path / "000001.seg").write_bytes(good + HEADER.pack(MAGIC, 0xFFFFFFF0, 0, 1, 1) + bytes(5 << 20) + good)
    reader = Reader(tmp_path)
    assert [one.payload for one in reader] == [b"Fgood", b"Fgood"]
    assert reader.damaged == 1
    assert reader.skipped == HEADER.size + (5 << 20)


def test_frames_events_and_segments(tmp_path: Path) -> None:
    """Frames and events are read as written, over several segments; each segment starts with the begin event."""
    frames = [Frame("S", number, 10 + number, 20 + number, bytes(1000)) for number in range(300)]
    with Journal(tmp_path, BEGIN, segment_bytes=100_000) as journal:
        for frame in frames:
            journal.frame(1, 99, frame)
            journal.flush()
        journal.event({"event": "clock", "offset_ns": 5}, host=0)
        journal.event({"event": "end"})
    assert len(segment_files(tmp_path)) == 4
    entries = list(Reader(tmp_path))
    assert [one.frame for one in entries if one.frame] == frames
    firsts = {one.segment: one for one in reversed(entries)}
    assert [(one.event or {}).get("event") for one in firsts.values()] == ["begin"] * 4
    events = [(one.host, one.event or {}) for one in entries[-2:]]
    assert all(isinstance(event.pop("boot_ns"), int) for _, event in events)
    assert events == [(0, {"event": "clock", "offset_ns": 5}), (RUN, {"event": "end"})]


def test_second_recording_into_the_same_directory(tmp_path: Path) -> None:
    """It adds segments and overwrites nothing."""
    for number in range(2):
        with Journal(tmp_path, BEGIN) as journal:
            journal.frame(0, number, Frame("B", number, 0, 0, b""))
    assert [one.arrived_ns for one in Reader(tmp_path) if one.frame] == [0, 1]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """While a journal is written, no other writer can open it, and readers can detect that."""
    assert not is_recording(tmp_path)
    with Journal(tmp_path, BEGIN):
        assert is_recording(tmp_path)
        with pytest.raises(RecordError, match="another process"):
            Journal(tmp_path, BEGIN)
    assert not is_recording(tmp_path)


def test_a_journal_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the first write fails, the lock and the file descriptors are released."""

    def fail(_fd: int, _data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = list(Path("/proc/self/fd").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(RecordError, match="No space left"):
            Journal(tmp_path, BEGIN)
    assert not is_recording(tmp_path)
    assert list(Path("/proc/self/fd").iterdir()) == before


def test_write_during_sync(tmp_path: Path) -> None:
    """Frames that are written while another thread syncs are neither lost nor repeated, and keep their order."""
    with Journal(tmp_path, BEGIN, segment_bytes=20_000) as journal:
        done = threading.Event()

        def sync() -> None:
            while not done.is_set():
                journal.sync()

        thread = threading.Thread(target=sync)
        thread.start()
        for number in range(5000):
            journal.frame(0, number, Frame("S", number, 0, 0, b"x"))
        done.set()
        thread.join()
    assert [one.arrived_ns for one in Reader(tmp_path) if one.frame] == list(range(5000))


FULL = """
import resource, sys
from pathlib import Path
from rollbook.protocol.frames import Frame
from rollbook.errors import RecordError
from rollbook.journal.writer import Journal
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
journal = Journal(Path(sys.argv[1]), {"hosts": ["a"]})
for number in range(100):
    journal.frame(0, number, Frame("S", number, 0, 0, bytes(1000)))
    try:
        journal.flush()
    except RecordError as error:
        print(error)
        break
try:
    journal.frame(0, 1, Frame("S", 1, 0, 0, b""))
except RecordError as error:
    print(error)
journal.close()
"""


def test_disk_full(tmp_path: Path) -> None:
    """A full disk is reported by this call and every later one, and entries written before are valid."""
    result = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    first, again = result.stdout.splitlines()
    assert first == again
    assert "recording ends here" in first
    written = [one.arrived_ns for one in Reader(tmp_path) if one.frame]
    assert written == list(range(47))


def test_next_segment_cannot_be_created(tmp_path: Path) -> None:
    """The journal ends, and closing it closes no descriptor that was reused meanwhile."""
    journal = Journal(tmp_path / "raw", BEGIN, segment_bytes=1)
    (tmp_path / "raw" / "000002.seg").mkdir()
    with pytest.raises(RecordError, match="recording ends here"):
        journal.flush()
    reader, writer = os.pipe()  # reuses the descriptor of the first segment
    journal.close()
    os.close(reader)
    os.close(writer)
    assert not is_recording(tmp_path / "raw")


def test_follow_a_journal_while_it_is_written(tmp_path: Path) -> None:
    """Each entry is returned once, in order, when it is complete; new segments are read as well."""
    follower = Follower(tmp_path)
    assert list(follower) == []
    found: list[bytes] = []
    with Journal(tmp_path, BEGIN, segment_bytes=300) as journal:
        for number in range(40):
            journal.frame(0, 5, Frame("S", number, 1, 2, bytes(10)))
            if number % 3 == 0:
                journal.flush()
            found += [entry.payload for entry in follower if entry.frame]
        assert len(found) == 40
    assert len(segment_files(tmp_path)) > 3
    last, whole = segment_files(tmp_path)[-1], pack_entry(0, 5, b"Fcut")
    for piece in (whole[:10], whole[10:-1], whole[-1:]):
        assert found == [entry.payload for entry in Reader(tmp_path) if entry.frame]
        with last.open("ab") as file:
            file.write(piece)
        found += [entry.payload for entry in follower]
    assert found[-1] == b"Fcut"
