"""Sampling by the agent and the stand-in: failures affect one source, marks read all sources, no process remains."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import resource
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollbook import agent
from rollbook.agent import loop, reading
from rollbook.agent.children import FEW_FILES, is_stuck
from rollbook.agent.fact_children import Walk
from rollbook.agent.loop import Agent
from rollbook.agent.reading import Tree
from rollbook.agent.sample_children import Loop
from rollbook.agent.source import Source
from rollbook.agent.wire import GATHER, QUEUE_LIMIT, SHORTAGES, Out, binary, slurp
from rollbook.hosts import Host
from rollbook.journal.clocks import STEP
from rollbook.journal.history import series_of
from rollbook.journal.survey import survey
from rollbook.protocol.frames import Decoder, Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.readings import read_frame, split_pages
from rollbook.protocol.samples import Unpacker
from rollbook.protocol.visit import Visit
from rollbook.records.hosts import HostResult
from rollbook.sources import base, catalogue
from rollbook.testing.journals import Script, body_of
from tests.support.agents import EARLY, PYTHON, HandAgent
from tests.support.waits import SECONDS, until

SHELLS = ["dash", "bash", "busybox"]
SOURCES = Plan((catalogue.source("loadavg"),) * 4)  # as many as any test here samples
IN_THE_KERNEL = (
    "import ctypes; libc = ctypes.CDLL(None); libc.vfork() or libc.sleep(60)"  # blocked until its child ends
)
Pages = dict[str, tuple[str, str]]


@pytest.fixture
def hand() -> Iterator[HandAgent]:
    """An agent under this Python, binary carrier."""
    with HandAgent() as running:
        yield running


@pytest.fixture
def out(tmp_path: Path) -> Iterator[int]:
    """The descriptor of a file to which an agent in this process writes."""
    with (tmp_path / "out").open("wb", buffering=0) as file:
        yield file.fileno()


@pytest.fixture
def local_agent(out: int, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent in this process that writes to a file; its event loop does not run."""
    monkeypatch.setattr(os, "nice", lambda _: 0)
    return Agent(Out(out, binary), b"", [])


def samples(hand: HandAgent) -> list[dict[int, Pages]]:
    """Decode the samples so far: status and text of each page, by source."""
    unpacker, found, before, lost = Unpacker(SOURCES), [], dict[int, Pages](), list[int]()
    unpacker.on_lost = lambda source, _: lost.append(source)
    for frame in hand.frames:
        if frame.kind == "S":
            beat = {}
            for sample in unpacker.beat(frame.payload, 0, 0):
                if sample.body is not None:
                    before[sample.source] = {p: (s, d.decode()) for p, s, d in split_pages(sample.body)}
                beat[sample.source] = before[sample.source]
            found.append(beat)
    assert not lost
    return found


def processes_of(session: int) -> list[str]:
    """The processes of a session, without zombies."""
    result = subprocess.run(
        ["ps", "-s", str(session), "-o", "stat=,args="], capture_output=True, text=True, check=False
    )
    return [line[:80] for line in result.stdout.splitlines() if not line.startswith("Z")]


@pytest.mark.parametrize("fate", ["exec sleep 1000", "exit 3"])
def test_a_kept_program_that_hangs_or_dies_is_restarted(hand: HandAgent, tmp_path: Path, fate: str) -> None:
    """Its last output is not repeated forever: a status replaces it until the new process writes."""
    program = tmp_path / "wedged"
    program.write_text(f"#!/bin/sh\necho process $$\n{fate}\n")
    program.chmod(0o755)
    hand.order("source 0 1 4096 200", f"loop {program}", "sample 100000000")
    outputs: list[str] = []
    while len(set(outputs)) < 2:
        hand.kind("S")
        assert sum(frame.kind == "S" for frame in hand.frames) < 300
        pages = [page for sample in samples(hand) for page in sample.get(0, {}).values()]
        outputs = [text for status, text in pages if status == "ok" and text]
    between = [status for status, text in pages[pages.index(("ok", outputs[0])) :] if not text]
    assert ("timed-out" if "sleep" in fate else "failed") in between
    assert outputs.count(outputs[0]) < 10
    hand.order("stop")
    hand.kind("E")
    pids = [int(output.split()[1]) for output in set(outputs)]
    until(lambda: not any(map(processes_of, pids)))


@pytest.mark.parametrize(("exists", "few"), [(False, True), (True, False), (True, True)])
def test_a_kept_program_that_does_not_start(hand: HandAgent, tmp_path: Path, *, exists: bool, few: bool) -> None:
    """Without the program the source is absent; a program that cannot load its libraries has failed.

    If the limit of open files is low, the failure has that as its reason.
    """
    hand.kind("H")
    if few:
        resource.prlimit(hand.process.pid, resource.RLIMIT_NOFILE, (32, 32))
    program = tmp_path / "program"
    if exists:
        program.write_text("#!/bin/sh\necho cannot load >&2\nexit 127\n")
        program.chmod(0o755)
    hand.order(
        "source 0 1 4096 200", f"loop {program}", "source 1 1 4096 300", "read /proc/loadavg", "sample 100000000"
    )
    failures: set[str] = set()
    last: dict[int, Pages] = {}
    while not (failures if exists else last and 0 not in last):
        hand.kind("S")
        *_, last = found = samples(hand)
        failures = {reason for sample in found for status, reason in sample.get(0, {}).values() if status == "failed"}
    assert failures == ({FEW_FILES.decode() if few else ""} if exists else set())
    assert (bool(last.get(0)), 1 in last) == (exists, True)


@pytest.mark.parametrize(
    ("program", "leaving", "stuck"),
    [("import time; time.sleep(0.3)", SECONDS, 0), ("import time; time.sleep(60)", 0.5, 0), (IN_THE_KERNEL, 0.5, 1)],
)
def test_a_child_that_ends_slowly_is_not_stuck(
    local_agent: Agent, monkeypatch: pytest.MonkeyPatch, program: str, leaving: float, stuck: int
) -> None:
    """A killed child may take time to release a driver; only one that stays blocked in the kernel is stuck."""
    monkeypatch.setattr(loop, "LEAVING", leaving)
    argv = [sys.executable, "-c", f"print(flush=True); {program}"]
    child = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()  # while Python starts, it may be waiting for a disk
        child.stdout.close()
        local_agent.dying = [child.pid]
        until(lambda: not stuck or is_stuck(child.pid))
        local_agent.goodbye()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert b"stuck=%d\n" % stuck in local_agent.out.waiting


def test_kill_a_child_without_a_process_group_of_its_own() -> None:
    """The agent may have to kill a child between fork and setsid; a reaped child is not signalled."""
    with subprocess.Popen(["sleep", "60"]) as process:
        child = Loop.__new__(Loop)
        child.pid = process.pid
        child.kill(reaped=True)
        assert process.poll() is None, "a process id that may have been reused is not signalled"
        child.kill()
        assert process.wait(SECONDS) == -signal.SIGKILL


def test_excess_output_of_a_kept_program_drops_the_oldest_lines() -> None:
    """A program that writes more than its limit keeps its last complete lines."""
    kept = Loop.__new__(Loop)
    kept.err, kept.source = bytearray(), Source("0", "1", "10", "1000")
    kept.out = bytearray(b"1234\n5678\n90\n")
    kept.progress()
    assert kept.out == b"5678\n90\n"
    kept.out = bytearray(b"1" * 11)
    kept.progress()
    assert not kept.out


def test_a_file_that_blocks_affects_only_its_source(hand: HandAgent, tmp_path: Path) -> None:
    """Other sources are sampled on every beat, pings are answered, and the agent leaves no stuck child."""
    os.mkfifo(tmp_path / "blocks")
    (tmp_path / "answers").write_text("here\n")
    hand.order("source 0 1 4096 300", "read /proc/loadavg", "source 1 1 4096 300", f"read {tmp_path}/blocks")
    hand.order("source 2 1 4096 60000", f"read {tmp_path}/answers", "sample 100000000")
    hand.kind("S")
    hand.order("ping 1")
    hand.kind("P")
    while sum(frame.kind == "S" for frame in hand.frames) < 15:
        hand.kind("S")
    found = samples(hand)
    assert all(0 in sample for sample in found)
    assert found[0][1] == {f"{tmp_path}/blocks": ("timed-out", "")}
    answers = [sample[2] for sample in found if 2 in sample]
    assert answers[0] is found[0][2]
    assert answers == [{f"{tmp_path}/answers": ("ok", "here\n")}] * len(answers)
    assert len(answers) > 5
    walls = [frame.wall for frame in hand.frames if frame.kind == "S"]
    assert statistics.median(after - before for before, after in itertools.pairwise(walls)) < 180e6
    hand.order("stop")
    assert b"stuck=0" in hand.kind("E").payload
    hand.process.wait(SECONDS)


def test_sources_that_hang_at_the_end(hand: HandAgent, tmp_path: Path) -> None:
    """Sources that have not answered when sampling stops are timed out in the samples that waited for them."""
    os.mkfifo(tmp_path / "blocks")
    (tmp_path / "waits").write_text("here\n")
    hand.order("source 0 1 4096 300", "read /proc/loadavg", "source 1 1 4096 60000", f"read {tmp_path}/blocks")
    hand.order("source 2 1 4096 60000", f"read {tmp_path}/waits", "sample 100000000")
    children = Path(f"/proc/{hand.process.pid}/task/{hand.process.pid}/children")
    until(lambda: bool(children.read_text()))  # the reader of the first sample
    hand.order("stop")
    hand.kind("E")
    found = samples(hand)
    assert found[0].keys() == {0, 1, 2}
    assert found[0][1] == {f"{tmp_path}/blocks": ("timed-out", "")}
    assert found[0][2] == {f"{tmp_path}/waits": ("timed-out", "")}


def test_the_limit_of_a_sample_is_for_all_files(hand: HandAgent, tmp_path: Path) -> None:
    """As for facts: what is beyond the limit is truncated between lines, and later files have no text."""
    for name in "abc":
        (tmp_path / name).write_text(f"{name * 29}\n" * 2)
    hand.order("source 0 1 100 60000", f"read {tmp_path}/*", "sample 100000000")
    while not (found := [sample[0] for sample in samples(hand) if sample]):
        hand.kind("S")
    line = "b" * 29 + "\n"
    assert found[0] == {
        f"{tmp_path}/a": ("ok", line.replace("b", "a") * 2),
        f"{tmp_path}/b": ("truncated", line),
        f"{tmp_path}/c": ("truncated", ""),
    }


def test_no_reader_child_without_files(hand: HandAgent, tmp_path: Path) -> None:
    """The agent starts a child for files that may block only when there are such files; new files are found."""
    children = Path(f"/proc/{hand.process.pid}/task/{hand.process.pid}/children")
    hand.order(
        "source 0 1 4096 300", "read /proc/loadavg", "source 1 1 4096 60000", f"read {tmp_path}/*", "sample 20000000"
    )
    for _ in range(5):
        hand.kind("S")
    until(lambda: not children.read_text())
    (tmp_path / "new").write_text("new\n")
    while 1 not in samples(hand)[-1]:
        hand.kind("S")
    assert samples(hand)[-1][1] == {f"{tmp_path}/new": ("ok", "new\n")}
    assert children.read_text()


def test_a_mark_reads_all_sources(hand: HandAgent) -> None:
    """Sources that are not sampled on every beat are sampled when a phase starts or ends."""
    hand.order("source 0 1 4096 300", "read /proc/loadavg", "source 1 10 4096 300", "read /proc/uptime")
    hand.order("sample 500000000")
    for _ in range(2):
        hand.kind("S")
    hand.order("mark here")
    while sum(1 in sample for sample in samples(hand)) < 2:
        hand.kind("S")
    read = [1 in sample for sample in samples(hand)]
    assert read[:2] == [True, False]
    assert read.index(True, 1) < 10, "before its regular beat"


def test_a_file_of_two_sources_is_read_and_sent_once(hand: HandAgent) -> None:
    """The second source has the text and time of the first; a source with another limit is read separately."""
    hand.order("source 0 1 4096 300", "read /proc/uptime", "source 1 1 4096 300", "read /proc/uptime")
    hand.order("source 2 1 8192 300", "read /proc/uptime", "sample 20000000")
    for _ in range(20):
        hand.kind("S")
    assert all(sample[0] == sample[1] for sample in samples(hand))
    assert samples(hand)[0][0] != samples(hand)[-1][0]
    unpacker = Unpacker(SOURCES)
    for frame in [frame for frame in hand.frames if frame.kind == "S"]:
        first, second, third = unpacker.beat(frame.payload, 0, 0)
        assert first.mono == second.mono < third.mono


@pytest.mark.parametrize(("seconds", "beats"), [(0.5, 10), (1, 10), (4, 2), (10, 1), (60, 1)])
def test_longest_time_between_samples(local_agent: Agent, seconds: float, beats: int) -> None:
    """At long intervals every beat reads all sources, so short runs have rates; the catalogue has the same values."""
    local_agent.obey("source\t0\t10\t4096\t300")
    local_agent.obey(f"sample\t{int(seconds * 1e9)}")
    assert local_agent.sources[0].every == catalogue.source("nfs").beats(seconds) == beats


def test_a_key_frame_on_request(hand: HandAgent) -> None:
    """It is sent immediately, contains all sources, and can be decoded without earlier frames."""
    hand.order("source 0 1 4096 300", "read /proc/uptime", "source 1 10 4096 300", "read /proc/loadavg")
    hand.order("sample 4000000000000000000")  # the next beat is far away
    found = []
    for order in ("mark first", "mark second", "mark third", "key"):
        hand.order(order)
        found.append([sample.source for sample in Unpacker(SOURCES).beat(hand.kind("S").payload, 0, 0)])
    first, *between, requested = found
    assert first == requested == [0, 1]
    assert [] in between  # the pid of the agent may make one of them a key frame


@pytest.mark.parametrize(
    ("pid", "pace", "keys"),
    [
        (60, 0.0, [0, 60, 120]),
        (7, 0.0, [0, 53, 113]),
        (59, 0.0, [0, 1, 61, 121]),
        (7, 0.002, [0, *range(3, 130, 5)]),
    ],
)
def test_key_frames(monkeypatch: pytest.MonkeyPatch, out: int, pid: int, pace: float, keys: list[int]) -> None:
    """The first sample and every 60th are key frames, on other beats on other hosts; more often if output is paced."""
    monkeypatch.setattr(os, "nice", lambda _: 0)
    local_agent = Agent(Out(out, binary, pace), b"", [])
    monkeypatch.setattr(os, "getpid", lambda: pid)
    local_agent.obey("source\t0\t1\t4096\t300")
    local_agent.obey("read\t/proc/loadavg")
    unpacker, found = Unpacker(SOURCES), []
    for beat in range(130):
        local_agent.take_sample()
        (frame,) = Decoder().feed(bytes(local_agent.out.waiting))
        local_agent.out.waiting.clear()
        unpacker.restart()  # decode it as if it were the first frame
        found += [beat] if list(unpacker.beat(frame.payload, 0, 0)) else []
    assert found == keys


def test_more_files_than_select_supports(tmp_path: Path) -> None:
    """The files are sampled, and facts can be read afterwards."""
    for number in range(1100):
        (tmp_path / str(number)).write_text("1\n")
    limited = ["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh", *PYTHON, "binary"]
    with HandAgent(limited) as hand:
        hand.order("source 0 1 262144 60000", f"read {tmp_path}/*", "sample 300000000")
        # A sample is empty while the files are still being read.
        hand.until(lambda frame: frame.kind == "S" and sum(map(bool, samples(hand))) > 1)
        found = [sample[0] for sample in samples(hand) if sample]
        assert [{status for status, _ in pages.values()} for pages in found] == [{"ok"}] * len(found)
        hand.order("go end")
        hand.kind("D")
        hand.order("stop")
        hand.kind("E")


def test_a_long_kernel_file() -> None:
    """The file is read beyond the first page that the kernel returns."""
    assert len(slurp("/proc/kallsyms", 20_000)) > 19_000


def test_clock_set_back(local_agent: Agent) -> None:
    """The next beat is scheduled again by the new time."""
    local_agent.interval, local_agent.next = 10**9, time.time_ns() + 3600 * 10**9
    assert local_agent.seconds_left() < 2
    assert local_agent.next < time.time_ns() + 2 * 10**9


def test_missed_beats_are_counted(local_agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats are missed after whole intervals; after a late one, the next one is aligned again."""
    clock = 10**18 + 3
    monkeypatch.setattr(loop, "now", lambda: (0, clock))
    local_agent.obey("clock\t30000000")
    local_agent.obey("sample\t100000000")
    scheduled = []
    for delay in (0, 9, 11, 0, 250, 0):  # milliseconds
        scheduled.append((local_agent.next + 30_000_000 - 10**18) / 1e8)
        clock = local_agent.next + delay * 10**6
        local_agent.beat()
    assert scheduled == [1, 2, 3, 4, 5, 8]
    assert local_agent.missed == 2


def test_beats_missed_while_sources_are_read(local_agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats that pass while a sample is taken are counted as missed."""
    clock = 10**18

    def take() -> None:
        nonlocal clock
        clock += 3 * 10**8 + 1

    monkeypatch.setattr(loop, "now", lambda: (0, clock))
    monkeypatch.setattr(local_agent, "take_sample", take)
    local_agent.obey("sample\t100000000")
    clock = local_agent.next
    local_agent.beat()
    assert local_agent.missed == 3


@pytest.mark.parametrize(
    ("after", "offset", "beat"),
    [
        (100, -300, 6),
        (100, 300, 6),
        (999_900, 300, 6),
        (999_900, -300, 6),
        (500_000, 3 * 10**6, 9),
        (500_000, -5 * 10**6, 1),
    ],
)
def test_clock_corrections_neither_skip_nor_repeat_a_beat(
    local_agent: Agent, monkeypatch: pytest.MonkeyPatch, after: int, offset: int, beat: int
) -> None:
    """A small correction keeps the next beat; after a large one, the beat is scheduled again. Parameters in µs."""
    local_agent.interval, local_agent.next = 10**9, 6 * 10**9
    monkeypatch.setattr(loop, "now", lambda: (0, 5 * 10**9 + after * 1000))
    local_agent.obey(f"clock\t{offset * 1000}")
    assert local_agent.next + local_agent.offset == beat * 10**9


def test_unusable_addresses_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that cannot be resolved is not an error; without another one, there is no connection."""
    from rollbook.agent import agent as module

    monkeypatch.setattr(module, "CONNECT", 0.1)
    assert not module.connect(9, ["no:such:address"], b"token", b"0 - host", near=True)


def test_fork_failure(local_agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the sources that need a process fail; the agent continues."""

    def fork() -> int:
        raise OSError(errno.EAGAIN, "none left")

    monkeypatch.setattr(os, "fork", fork)
    for line in ("source 0 0 4096 300", "run sh -c x", "source 1 0 4096 300", "read /proc/uptime", "go now"):
        local_agent.obey(line.replace(" ", "\t"))
    local_agent.step()
    while local_agent.children:
        local_agent.children[0].end(timed_out=True)
    local_agent.step()
    assert not local_agent.phases
    assert local_agent.out.seq == 3  # both readings and the end of the phase
    local_agent.sources[1].every = 1
    local_agent.sources[1].asks = [["read", "/sys/devices/*"]]
    local_agent.take_sample()
    assert local_agent.reader
    local_agent.reader.end(timed_out=True)
    assert local_agent.out.seq == 4


@pytest.mark.parametrize("what", ["open", "scandir"])
def test_no_file_descriptor_is_available(
    local_agent: Agent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    """A file or directory that cannot be opened is failed with the reason, not absent, whether read once or sampled."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files/one").write_text("1\n")
    local_agent.obey("source\t0\t1\t4096\t300")
    local_agent.obey(f"read\t{tmp_path}/files/*")
    source = local_agent.sources[0]

    def fail(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, what, fail)
        bodies = [source.pages(Tree()), source.sample()]
    for body in bodies:
        assert {(status, data) for _, status, data in split_pages(body)} == {("failed", SHORTAGES[errno.EMFILE])}
        frame = Frame("R", 0, 1, 1, b"0 now - 1 \nok 2 /proc/loadavg\n1\n" + body)
        found = read_frame(frame, SOURCES)
        assert (found.status, found.note, found.starved) == ("failed", SHORTAGES[errno.EMFILE].decode(), True)
    assert {status for _, status, _ in split_pages(source.sample())} == {"ok"}, "the next sample opens it again"


def test_a_host_that_cannot_start_processes_is_partial() -> None:
    """A program that could not be started returned no data, unlike one that reported an error."""
    plan = Plan((catalogue.source("time_sync"),))
    for page, expected in ((b"failed 0 x\n", "complete"), (b"failed 27 x\nno process could be started", "partial")):
        visit = Visit(Host("a"), plan, hello={"kind": "python"})
        assert visit.keep(read_frame(Frame("R", 0, 1, 1, b"0 now - 1 \n" + page), plan))
        assert visit.result("now").status == expected


@pytest.mark.parametrize(("limit", "reason"), [(16, FEW_FILES), (1024, b""), (-1, b"")])
def test_a_program_that_fails_with_a_low_open_file_limit(
    local_agent: Agent, monkeypatch: pytest.MonkeyPatch, limit: int, reason: bytes
) -> None:
    """The page has that reason: a GPU whose program cannot load its libraries is not absent."""
    monkeypatch.setattr(os, "sysconf", lambda _: limit)
    sent: list[bytes] = []
    monkeypatch.setattr(local_agent, "reading", lambda _source, _phase, pages, *_: sent.append(pages))
    for line in ("source 0 0 4096 5000", "run false", "go now"):
        local_agent.obey(line.replace(" ", "\t"))
    local_agent.step()
    [child] = local_agent.children
    while not sent:
        for fd in select.select(list(child.fds), [], [], 60)[0]:
            child.readable(fd)
    assert [(status, data) for _, status, data in split_pages(sent[0])] == [("failed", reason)]


def test_files_of_a_source_with_a_program_may_block(local_agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child reads the files: the agent continues, and the output of the program is sent."""
    parent = os.getpid()

    def pages(*_: object) -> bytes:
        assert os.getpid() != parent
        time.sleep(60)
        return b""

    monkeypatch.setattr(Source, "pages", pages)
    for line in ("source 0 0 4096 300", "run echo here", "read /blocks", "go now"):
        local_agent.obey(line.replace(" ", "\t"))
    local_agent.step()
    walk, program = local_agent.children
    assert isinstance(walk, Walk)
    while program.fds:
        program.readable(next(iter(program.fds)))
    walk.end(timed_out=True)
    local_agent.step()
    reading, end = Decoder().feed(bytes(local_agent.out.waiting))
    head, _, body = zlib.decompress(reading.payload).partition(b"\n")
    assert head.startswith(b"0 now timed-out ")
    assert body == b"timed-out 0 /blocks\nok 5 echo here\nhere\n"
    assert end.kind == "D"
    os.waitpid(walk.pid, 0)


def test_files_of_a_source_precede_its_program_output(hand: HandAgent, tmp_path: Path) -> None:
    """Pages of files come first even if the program is ordered first; without matching files there is no page."""
    (tmp_path / "file").write_text("here\n")
    hand.order("source 0 0 4096 60000", "run echo there", f"read {tmp_path}/file")
    hand.order("source 1 0 4096 60000", "run echo there", f"read {tmp_path}/no*", "go now")
    hand.kind("D")
    pages = {source: split_pages(body.partition(b"\n")[2]) for source, body in hand.readings().items()}
    there = ("echo there", "ok", b"there\n")
    assert pages == {"0": [(f"{tmp_path}/file", "ok", b"here\n"), there], "1": [there]}


def test_a_parent_that_ignores_sigchld() -> None:
    """If the agent's parent ignores SIGCHLD, the agent can still wait for its own children."""
    with HandAgent(["env", "--ignore-signal=CHLD", *PYTHON, "binary"]) as hand:
        hand.order("source 0 0 4096 60000", "read /proc/loadavg", "run true", "go now")
        hand.kind("D")
        hand.order("stop")
        hand.kind("E")


def test_phases_do_not_wait_for_each_other(hand: HandAgent) -> None:
    """Two phases read the sources independently, and `then` returns immediately when no phase is in progress."""
    hand.order("source 0 0 4096 60000", "run no-such-program", "go one", "go two")
    hand.until(lambda frame: frame.kind == "D" and frame.payload == b"two")
    assert sum(frame.kind in "RZ" for frame in hand.frames) == 2
    hand.order("then", "then")
    hand.order("ping 1")
    hand.kind("P")


def test_a_full_queue_is_reported_once(local_agent: Agent) -> None:
    """Skipped samples do not add further frames to a full queue."""
    local_agent.interval, local_agent.next = 10**9, time.time_ns()
    local_agent.out.waiting = bytearray(QUEUE_LIMIT)
    for _ in range(5):
        local_agent.beat()
    assert local_agent.beats == 0
    assert local_agent.out.seq == 1


def test_children_are_not_timed_out_while_the_queue_is_full(
    local_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent does not read from children then, so their deadlines are postponed."""
    child = Loop.__new__(Loop)
    child.fds, child.deadline = {}, 1000.0
    local_agent.children = [child]
    local_agent.out.waiting, local_agent.out.due, local_agent.out.pace = bytearray(QUEUE_LIMIT), float("inf"), 1.0

    def nothing_ready(*_: object) -> tuple[list[int], list[int], list[int]]:
        time.sleep(0.1)
        return [], [], []

    monkeypatch.setattr("select.select", nothing_ready)
    local_agent.wait()
    assert child.deadline >= 1000.1


def test_a_small_reading_is_sent_at_once(hand: HandAgent) -> None:
    """It waits for others a moment, neither for the next result nor for the keep-alive frame after silence."""
    hand.order("source 0 0 4096 60000", "read /proc/loadavg", "source 1 0 4096 60000", "run sleep 60", "go now")
    hand.until(lambda frame: frame.kind in "RZ")
    assert [frame.kind for frame in hand.frames if frame.kind not in "RZ"] == ["H"]


def test_wake_up_for_what_is_gathered(local_agent: Agent) -> None:
    """The loop wakes up when a reading is to be sent; if the pipe is full, it waits for the pipe and does not spin."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    local_agent.out.fd = writer
    try:
        local_agent.out.frame(b"R", b"0 now ok 1 \n")
        assert 0 < local_agent.seconds_left() <= GATHER
        os.write(writer, bytes(1 << 20))  # as much as there is room for
        time.sleep(GATHER)
        local_agent.out.flush()
        assert local_agent.out.waiting
        assert local_agent.seconds_left() > 1
        assert time.monotonic() >= local_agent.out.due, "the loop watches for room in the pipe"
    finally:
        os.close(reader)
        os.close(writer)


def test_every_write_error_is_a_connection_error(local_agent: Agent) -> None:
    """Any write error means that the connection to the collector is lost."""
    local_agent.out.fd = os.open("/dev/full", os.O_WRONLY)
    local_agent.hello()
    try:
        with pytest.raises(ConnectionError):
            local_agent.out.flush()
    finally:
        os.close(local_agent.out.fd)


def stand_in(shell: str, tmp_path: Path, interval: float = 600) -> HandAgent:
    """Start the stand-in under this shell in its own session, and wait for its first sample of a file."""
    program = shutil.which(shell)
    assert program
    (tmp_path / "sh").symlink_to(program)
    path = f"PATH={tmp_path}:{os.environ['PATH']}"
    # A shell cannot trap a signal that is ignored when it starts, as SIGHUP is under nohup.
    hand = HandAgent(["setsid", "env", "--default-signal=HUP", path, "sh", "-c", agent.remote_command("none")])
    assert hand.process.stdin is not None
    hand.process.stdin.write(agent.stand_in())
    hand.order("source 0 10 4096 300", "read /proc/loadavg", f"sample {interval * 1e9:.0f}")
    hand.kind("R")
    return hand


@pytest.mark.parametrize("how", ["stop", "stdin", signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("shell", SHELLS)
def test_stand_in_leaves_no_processes(shell: str, how: str | signal.Signals, tmp_path: Path) -> None:
    """The stand-in, its sampler and the sampler's `sleep` end immediately, not only at the next sample."""
    with stand_in(shell, tmp_path) as hand:
        until(lambda: any("sleep" in line for line in processes_of(hand.process.pid)))
        assert hand.process.stdin is not None
        if how == "stop":
            hand.order("stop")
            hand.kind("E")
        elif how == "stdin":
            hand.process.stdin.close()
        elif isinstance(how, signal.Signals):
            hand.process.send_signal(how)
        hand.process.wait(SECONDS)
        until(lambda: not processes_of(hand.process.pid))


@pytest.mark.parametrize("shell", SHELLS)
def test_stand_in_samples_at_marks(shell: str, tmp_path: Path) -> None:
    """A mark causes a sample at any time, not only when the next beat is due."""
    with stand_in(shell, tmp_path) as hand:
        for _ in range(20):
            hand.order("mark here")
            assert hand.kind("R").payload.startswith(b"0 sample ")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("quick", ["$((number % 2)) = 0", "$number -gt 3"], ids=["every second", "the first three"])
def test_stand_in_tolerates_delays_between_clock_reads(shell: str, quick: str, tmp_path: Path) -> None:
    """A delay between reading two clocks does not look like a set clock, even if the first pairs were delayed."""
    real, calls = shutil.which("date"), tmp_path / "calls"
    pause = f"echo >>{calls}; number=$(wc -l <{calls}); [ {quick} ] || sleep 0.2"
    (tmp_path / "date").write_text(f"#!/bin/sh\n{pause}\nexec {real} +%s%N\n")
    (tmp_path / "date").chmod(0o755)
    with stand_in(shell, tmp_path) as hand:
        for _ in range(6):
            hand.order("ping x")
            hand.kind("P")
        differences = [frame.wall - frame.mono for frame in hand.frames]
    assert len(differences) > 6
    assert max(differences) - min(differences) < STEP
    assert len(calls.read_text()) >= 6


WHOLE_SECONDS = """#!/bin/sh
cd {directory} && echo >>calls
if [ $(wc -l <calls) -le 3 ]; then # the reference pair: delayed, and at the start of a second
    sleep 0.3
    read -r up _ </proc/uptime
    echo $((100 - 1${{up#*.}} % 100)) >ahead
fi
read -r up _ </proc/uptime
echo $((1700000000 + (${{up%.*}}${{up#*.}} + $(cat ahead)) / 100))
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_stand_in_tolerates_delays_without_nanoseconds(shell: str, tmp_path: Path) -> None:
    """A `date` with whole seconds does not look like a set clock, at any time within a second."""
    (tmp_path / "date").write_text(WHOLE_SECONDS.format(directory=tmp_path))
    (tmp_path / "date").chmod(0o755)
    with stand_in(shell, tmp_path) as hand:
        end = time.monotonic() + 1.2
        while time.monotonic() < end:
            hand.order("ping x")
            hand.kind("P")
        differences = {frame.wall - frame.mono for frame in hand.frames if frame.kind == "P"}
    assert len(differences) == 1


@pytest.mark.parametrize("shell", SHELLS)
def test_stand_in_detects_a_set_clock(shell: str, tmp_path: Path) -> None:
    """The step is detected even if each clock read is delayed."""
    ahead = tmp_path / "ahead"
    ahead.write_text("0")
    (tmp_path / "date").write_text(
        f"#!/bin/sh\nsleep 0.1\necho $(($({shutil.which('date')} +%s%N) + $(cat {ahead})))\n"
    )
    (tmp_path / "date").chmod(0o755)
    with stand_in(shell, tmp_path) as hand:
        for step in (0, 60 * 10**9):
            ahead.write_text(str(step))
            hand.order("ping x")
            hand.kind("P")
        first, second = (frame.wall - frame.mono for frame in hand.frames if frame.kind == "P")
    assert 40 * 10**9 < second - first < 80 * 10**9


@pytest.mark.parametrize("printed", ["1700000000", "1700000000%N", "1700000000N", "1700000000123456789"])
@pytest.mark.parametrize("shell", SHELLS)
def test_stand_in_works_without_nanoseconds(shell: str, printed: str, tmp_path: Path) -> None:
    """Seconds are not mistaken for nanoseconds, whatever the host's `date` prints for an unknown format."""
    (tmp_path / "date").write_text(f"#!/bin/sh\necho {printed}\n")
    (tmp_path / "date").chmod(0o755)
    with stand_in(shell, tmp_path) as hand:
        assert {frame.wall // 10**9 for frame in hand.frames} == {1_700_000_000}


@pytest.mark.parametrize(("shell", "requested", "seconds"), [("dash", 1.1, 2), ("bash", 0.2, 1), ("busybox", 0.2, 1)])
def test_stand_in_samples_in_whole_seconds(shell: str, requested: float, seconds: int, tmp_path: Path) -> None:
    """Intervals are rounded up, never down; samples are aligned with the clock, or late.

    A sample is in time if it starts within the first twentieth of its interval; at random phases, one in 20 would.
    Sampling continues until the samples in time exceed twice that share by 4. Random phases reach this within 60
    samples with a probability of 0.002, and a constant phase only if it lies in the twentieth; if one sample in two is
    in time, the test fails with a probability of 2e-8.
    """
    walls: list[int] = []
    in_time = 0
    with stand_in(shell, tmp_path, requested) as hand:
        while in_time < 4 + 2 * len(walls) / 20:
            assert len(walls) < 60, f"{in_time} of {len(walls)} samples were in time"
            walls.append(hand.kind("R").wall)
            in_time += walls[-1] % (seconds * 10**9) < seconds * 10**9 / 20
    beats = [(wall + EARLY) // (seconds * 10**9) for wall in walls]
    assert sorted(set(beats)) == beats


@pytest.mark.parametrize("shell", ["", *SHELLS])
def test_cgroup_of_a_slurm_job(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a Slurm job the agent's own cgroup is that of the job, not of the step."""
    for path, expected in (("/slice/job_7/step_0/user/task_0", "/slice/job_7"), ("/user/session-1", "/user/session-1")):
        root = tmp_path / expected.replace("/", "-") / "cgroup"
        (root / path[1:]).mkdir(parents=True)
        (root / "cgroup.procs").touch()
        (tmp_path / "own").write_text(f"0::{path}\n")
        if shell:
            text = (Path(agent.__file__).parent / "standin.sh").read_text()
            text = text[text.index("cgroups() {") : text.index("\n}\n", text.index("cgroups() {")) + 3]
            text = text.replace("/sys/fs/cgroup", str(root)).replace("/proc/self/cgroup", str(tmp_path / "own"))
            argv = ["busybox", "sh"] if shell == "busybox" else [shell]
            result = subprocess.run([*argv, "-c", text + "cgroups own"], capture_output=True, text=True, check=True)
            found = result.stdout.split()
        else:
            monkeypatch.setattr(reading, "slurp", lambda *_: (tmp_path / "own").read_text())
            monkeypatch.setattr(os.path, "normpath", _under(root))
            found = reading.cgroups(own=True)
            monkeypatch.undo()
        assert found == [f"{root}{expected}"]


@pytest.mark.parametrize(("seconds", "status"), [(1.0, "complete"), (0.2, "partial")])
def test_series_of_the_stand_in(seconds: float, status: str, tmp_path: Path) -> None:
    """If the stand-in cannot sample at the requested interval, the series is partial, only for that reason."""
    start = 17 * 10**17
    script = Script(tmp_path, ["a"], ["loadavg"], round(seconds * 1e9))
    script.connect(kind="sh")
    for wall in range(start, start + 5 * 10**9, 10**9):
        body = body_of({"/proc/loadavg": "1 1 1 1/1 1\n"})
        script.frame("R", b"0 sample - 1000 \n" + body, wall, wall - 10**18)
    script.close()
    found = survey(tmp_path)
    series = series_of(found, found.hosts[0], HostResult(name="a", status="complete"), ())
    assert (series.status, series.gaps, series.missed) == (status, [], 0)
    assert series.reason.startswith("a sample every 1 s: there is no Python" if status == "partial" else "")


def test_agent_and_catalogue_define_the_same_seldom() -> None:
    """Sources do not import the agent, so the longest time between two samples of a source is defined twice."""
    assert loop.SELDOM == base.SELDOM * 10**9
    for interval in (10**8, 3 * 10**8, 5 * 10**8, 10**9, 32 * 10**9):
        assert base.most_beats(interval / 1e9) == max(1, loop.SELDOM // interval)


def _under(root: Path) -> Callable[[str], str]:
    """`normpath` on a machine whose cgroups are below `root`."""
    real = os.path.normpath
    return lambda path: real(path.replace("/sys/fs/cgroup", str(root)))
