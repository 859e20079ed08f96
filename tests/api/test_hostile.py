"""Records of other users: reading them writes nothing and never blocks, and finishing them writes only inside."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import rollbook
from rollbook.api import finish as api
from rollbook.api.finish import finish, open_record
from rollbook.errors import RecordError, UsageError
from rollbook.journal.entries import RUN, pack_entry
from rollbook.journal.reader import Reader
from rollbook.records.document import encode, read
from rollbook.records.layout import Manifest, RecordDirectory
from rollbook.records.yaml import read_yaml
from rollbook.testing.journals import record_this_machine
from tests.support.records import was_read
from tests.support.waits import SECONDS

NAMES = ("cpuinfo", "meminfo", "loadavg", "diskstats", "identity")


def journal_with(directory: Path, names: Sequence[str] = NAMES, **begin: object) -> Path:
    """A record directory with nothing but the journal of a short recording of this machine."""
    record_this_machine(directory / "raw", 3, 0.1, names, **{"type": "generic", "stamp": directory.name, **begin})
    return directory


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a short recording of this machine."""
    return journal_with(tmp_path_factory.mktemp("journal")) / "raw"


@pytest.fixture
def unfinished(journal: Path, tmp_path: Path) -> Path:
    """A record that was not finished."""
    record = tmp_path / "generic" / "20260101_000000"
    shutil.copytree(journal, record / "raw")
    return record


@pytest.fixture(scope="module")
def finished_once(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same record, finished."""
    record = tmp_path_factory.mktemp("finished") / "generic" / "20260101_000000"
    shutil.copytree(journal, record / "raw")
    return finish(record, report=False).path


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    """A finished record that a test may damage."""
    return Path(shutil.copytree(finished_once, tmp_path / "generic" / "20260101_000000"))


def state_of(root: Path) -> dict[str, tuple[int, int]]:
    """Every path below a directory with its inode and time of change."""
    return {str(path): (path.lstat().st_ino, path.lstat().st_ctime_ns) for path in [root, *root.rglob("*")]}


@pytest.mark.parametrize(
    "begin",
    [
        {"type": "../../escaped"},
        {"type": "/tmp/escaped"},
        {"stamp": "../../../escaped"},
        {"type": "..", "stamp": "x/../../escaped"},
    ],
)
def test_journal_cannot_choose_file_names(tmp_path: Path, begin: dict[str, str]) -> None:
    """Files are named after the directory, whatever the journal contains."""
    record = journal_with(tmp_path / "results" / "generic" / "20260101_000000", ["loadavg"], **begin)
    before = state_of(tmp_path).keys()
    finish(record, report=False)
    assert {path for path in state_of(tmp_path) if path not in before and not path.startswith(str(record))} == set()
    assert (record / "generic_20260101_000000_metadata.json").is_file()


@pytest.mark.parametrize(
    "odd",
    [
        {"started_ns": None},
        {"started_ns": -(2**63)},
        {"started_ns": 2**63 - 1},
        {"interval_ns": None, "max_samples": None, "doubles_ns": None, "label": None, "push": None},
        {"interval_ns": -1, "max_samples": -1, "doubles_ns": [-1, None]},
        {"users": {"here": None}, "slots": {"here": None}},
    ],
    ids=str,
)
def test_journal_that_begins_with_odd_values(unfinished: Path, odd: dict[str, object]) -> None:
    """A record with values that no recorder writes is finished, with its facts."""
    [segment] = (unfinished / "raw").glob("*.seg")
    first = next(iter(Reader(unfinished / "raw")))
    assert first.event is not None
    begin = pack_entry(RUN, first.arrived_ns, b"J" + json.dumps(first.event | odd).encode())
    segment.write_bytes(begin + segment.read_bytes())
    assert finish(unfinished, report=False).hosts.start[0].facts["loadavg"]


EVENTS: list[dict[str, object]] = [
    {"event": "clock"},
    {"event": "clock", "offset_ns": 10**400, "bound_ns": 1, "round_trip_ns": 1},
    {"event": "clock", "offset_ns": 0, "bound_ns": 10**30, "round_trip_ns": []},
    {"event": "connected", "hello": [1]},
    {"event": "lost", "reason": {"a": ["\ud800"]}},
    {"event": "busy", "reason": "\ud800", "boot_ns": 10**30},
    {"event": "command", "state": "ended", "code": "\x1b"},
    {"event": "command", "state": {}, "code": 10**400},
    {"event": "phase", "name": "\ud800"},
    {"event": "begin", "hosts": 5, "sources": []},
    {"event": "begin", "hosts": ["\ud800"], "sources": [], "argv": 3},
]


def test_malformed_events_affect_only_themselves(unfinished: Path) -> None:
    """No recorder writes such events; a record with them is finished, and its samples are those without them."""
    [segment] = (unfinished / "raw").glob("*.seg")
    other = unfinished.with_name("20260101_000001")
    shutil.copytree(unfinished, other)
    odd = [
        pack_entry(host, at, b"J" + json.dumps(event).encode())
        for at in (1, 2**64 - 1)
        for host in (RUN, 0, 7)
        for event in EVENTS
    ]
    before = segment.read_bytes()
    segment.write_bytes(b"".join([*odd, pack_entry(RUN, 1, b"J" + b"[" * 200_000), before, *odd]))
    found, expected = (finish(path, report=False) for path in (unfinished, other))
    assert [host.samples for host in found.hosts.series] == [host.samples for host in expected.hosts.series]
    assert found.series_files().keys() == expected.series_files().keys()


def test_finishing_follows_no_symlink(unfinished: Path, tmp_path: Path) -> None:
    """A symlink instead of a directory is rejected by name; a symlink instead of a file is replaced."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("untouched")
    (unfinished / "series").symlink_to(outside)
    with pytest.raises(RecordError, match="series is a symlink"):
        finish(unfinished)
    (unfinished / "series").unlink()
    for name in ("hosts.json", ".hosts.json.part", "manifest.json", "findings.json"):
        (unfinished / name).symlink_to(outside / "file")
    (unfinished / "manifest.json").unlink()
    finish(unfinished, report=False)
    assert (outside / "file").read_text() == "untouched"
    assert [path.name for path in outside.iterdir()] == ["file"]


def test_reading_never_writes_to_the_record_of_another(unfinished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the owner of a record finishes it by opening it; others get an error, and nothing changes."""
    before = state_of(unfinished)
    monkeypatch.setattr(os, "geteuid", lambda: unfinished.stat().st_uid + 1)
    for verb in (rollbook.open_record, rollbook.check, lambda path: rollbook.query(path, "SELECT 1")):
        with pytest.raises(RecordError, match="not finished; only its owner"):
            verb(unfinished)
    assert state_of(unfinished) == before
    monkeypatch.undo()
    assert was_read(open_record(unfinished).hosts.start[0])
    finished = state_of(unfinished)
    monkeypatch.setattr(os, "geteuid", lambda: unfinished.stat().st_uid + 1)
    assert rollbook.query(unfinished, "SELECT count(*) AS n FROM hosts") == [{"n": 1}]
    rollbook.check(unfinished)
    rollbook.verify(unfinished)
    with pytest.raises(RecordError, match=r"belongs to uid .* write the page elsewhere"):
        rollbook.write_report(unfinished)
    assert state_of(unfinished) == finished


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(("plant", "what"), [(_fifo, "a FIFO"), (_endless, "a symlink")])
@pytest.mark.parametrize("name", ["hosts.json", "metadata", "series/loadavg.parquet"])
def test_special_files_are_rejected_by_name(
    finished: Path, plant: Callable[[Path], None], what: str, name: str
) -> None:
    """A FIFO would block forever, a symlink to /dev/zero would fill the memory."""
    path = next(finished.glob("*_metadata.json")) if name == "metadata" else finished / name
    path.unlink()
    plant(path)
    with pytest.raises(RecordError, match=f"{path.name} is {what}"):
        rollbook.query(finished, "SELECT * FROM loadavg")


def test_a_fifo_as_journal(unfinished: Path) -> None:
    """The segment is rejected by name."""
    segment = unfinished / "raw" / "000001.seg"
    segment.unlink()
    os.mkfifo(segment)
    with pytest.raises(RecordError, match=r"000001\.seg is a FIFO"):
        finish(unfinished)


def test_a_document_that_is_too_large_is_not_read(finished: Path) -> None:
    """Its size is checked first, so it needs no memory."""
    os.truncate(finished / "hosts.json", 1 << 40)
    with pytest.raises(RecordError, match=r"hosts\.json is larger than 1024 MiB"):
        open_record(finished)


def test_yaml_aliases_do_not_explode(tmp_path: Path) -> None:
    """Aliases work, nested ones that would grow to billions of values are refused, as is a list within itself."""
    path = tmp_path / "system.yaml"
    path.write_text("a: &x [1, 2]\nb: *x\n")
    assert read_yaml(path) == {"a": [1, 2], "b": [1, 2]}
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path.write_text("\n".join(lines))
    with pytest.raises(UsageError, match="aliases that expand"):
        read_yaml(path)
    path.write_text("a: &a [*a, *a]")
    with pytest.raises(UsageError, match="aliases that expand"):
        read_yaml(path)


def test_parallel_readers_of_an_unfinished_record(unfinished: Path) -> None:
    """Three processes that open the same record in parallel all read the same rows."""
    code = "import sys, rollbook; print(rollbook.query(sys.argv[1], 'SELECT count(*) AS n FROM loadavg'))"
    argv = [sys.executable, "-c", code, str(unfinished)]
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    results = [process.communicate(timeout=120) for process in started]
    [shown] = {out for out, _ in results}
    assert shown == f"{rollbook.query(unfinished, 'SELECT count(*) AS n FROM loadavg')}\n", results


def test_the_second_waits_and_does_not_finish_again(unfinished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one process finishes, another waits for its lock and then reads what was written."""
    waits, finished = threading.Event(), []

    def noticed_flock(descriptor: int, operation: int) -> None:
        waits.set()
        fcntl.flock(descriptor, operation)

    def noticed_finish(path: Path, **options: object) -> object:
        finished.append(path)
        return real(path, **options)  # type: ignore[arg-type]

    real = api._finish
    monkeypatch.setattr(api, "_finish", noticed_finish)
    with api._lock(unfinished):
        monkeypatch.setattr(api, "fcntl", SimpleNamespace(flock=noticed_flock, LOCK_EX=fcntl.LOCK_EX))
        other = threading.Thread(target=open_record, args=(unfinished,))
        other.start()
        assert waits.wait(SECONDS)
        assert finished == []
        real(unfinished, report=False)
    other.join(SECONDS)
    assert not other.is_alive()
    assert finished == []


@pytest.mark.parametrize(
    "replacement",
    [
        lambda file: file("diskstats.parquet").read_bytes()[:-20],
        lambda file: file("meminfo.parquet").read_bytes(),  # of another source
        lambda _: b"",
    ],
)
def test_a_damaged_table_affects_only_its_own_queries(
    finished: Path, replacement: Callable[[Callable[[str], Path]], bytes]
) -> None:
    """Other tables can still be queried, and the damaged one is named."""
    path = finished / "series" / "diskstats.parquet"
    path.write_bytes(replacement((finished / "series").joinpath))
    assert rollbook.query(finished, "SELECT count(*) >= 3 AS whole FROM loadavg") == [{"whole": True}]
    assert rollbook.query(finished, "SELECT status FROM hosts") == [{"status": "complete"}]
    with (
        pytest.raises(UsageError, match="the table diskstats is damaged"),
        pytest.warns(UserWarning, match="do not match the manifest: diskstats"),
    ):
        rollbook.query(finished, "SELECT * FROM diskstats")


def test_a_changed_table_is_reported(finished: Path) -> None:
    """A table whose hash is not that of the manifest is named when a query uses it, directly or through a view."""
    manifest = read(finished / "manifest.json", Manifest)
    manifest.files = [
        msgspec.structs.replace(entry, sha256="0" * 64) if entry.path == "series/loadavg.parquet" else entry
        for entry in manifest.files
    ]
    (finished / "manifest.json").write_bytes(encode(manifest))
    rollbook.query(finished, "SELECT count(*) AS n FROM meminfo")
    with pytest.warns(UserWarning, match="do not match the manifest: loadavg"):
        rollbook.query(finished, "SELECT count(*) AS n FROM loadavg_rates")


def test_records_are_private_unless_shared(tmp_path: Path) -> None:
    """Mode 0700 and 0600 whatever the umask; a shared record follows the umask."""
    before = os.umask(0)
    try:
        for share, directory_mode, file_mode in ((False, 0o700, 0o600), (True, 0o777, 0o644)):
            with rollbook.record(results_dir=tmp_path / str(share), interval=0, report=False, share=share) as recording:
                pass
            assert recording.path.stat().st_mode & 0o777 == directory_mode
            modes = {path.stat().st_mode & 0o777 for path in recording.path.rglob("*") if path.is_file()}
            assert modes == {file_mode}
    finally:
        os.umask(before)


def test_a_results_directory_with_one_record(unfinished: Path, tmp_path: Path) -> None:
    """It is accepted as that record; with two, the error names them."""
    assert finish(tmp_path, report=False).path == unfinished
    assert rollbook.query(tmp_path, "SELECT count(*) AS n FROM hosts") == [{"n": 1}]
    assert rollbook.verify(tmp_path).problems == []
    other = RecordDirectory(tmp_path / "generic" / "20260101_000001", "generic", "20260101_000001")
    shutil.copytree(unfinished, other.path)
    with pytest.raises(RecordError, match=r"is not a record; the newest below it: .*000001, .*000000"):
        open_record(tmp_path)
