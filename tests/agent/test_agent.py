"""The agent by itself: size, oldest Python, hanging sources, termination, sampling times, and the shell stand-in."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook import agent
from rollbook.protocol.plan import Plan
from rollbook.protocol.readings import read_frame, split_pages
from rollbook.protocol.samples import Unpacker
from rollbook.sources import catalogue
from tests.support.agents import EARLY, PYTHON, HandAgent
from tests.support.mounts import lasting_mounts
from tests.support.waits import SECONDS, is_running, until

SOURCE = agent.text()
SHELLS = ["dash", "bash", "busybox sh"]
ALLOWED = "_operator _signal binascii errno fcntl os select socket struct sys time zlib".split()  # noqa: SIM905
PYTHONS = [f"python3.{minor}" for minor in range(6, 16)]


@pytest.fixture
def hand() -> Iterator[HandAgent]:
    """An agent under this Python, binary carrier."""
    with HandAgent() as running:
        yield running


def test_packed_size() -> None:
    """The agent fits into any command line; with its byte code, into half of Linux's maximum argument length."""
    assert len(agent.payload(compiled=False)) < 24 * 1024
    assert len(agent.payload()) < 64 * 1024


def test_sent_text_matches_the_modules() -> None:
    """Joining the modules removes only comments, docstrings and the imports of one another."""

    class Sent(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.AST:
            docstring = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            return ast.Pass() if docstring else node

        def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
            return ast.Pass() if (node.module or "").startswith("rollbook") else node

    modules = [(Path(agent.__file__).parent / f"{name}.py").read_text() for name in agent.MODULES]
    expected = ast.Module([Sent().visit(node) for text in modules for node in ast.parse(text).body], [])
    assert ast.dump(ast.parse(SOURCE)) == ast.dump(expected)


@pytest.mark.parametrize("compiled", [False, True])
def test_text_and_byte_code_behave_the_same(compiled: bool) -> None:
    """A Python with the matching magic number runs the byte code; any other runs the text."""
    other = agent.payload().replace(importlib.util.MAGIC_NUMBER.hex(), "00000000")
    with HandAgent([*PYTHON[:-1], agent.payload() if compiled else other, "binary"]) as hand:
        hand.order("source 0 1 4096 60000", "read /proc/loadavg", "go now")
        hand.kind("D")
        assert b"ok" in hand.readings()["0"]


def test_standard_library_only() -> None:
    """The agent imports only a few cheap modules of the standard library, and nothing else of Rollbook."""

    class AtRuntime(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
            return node.orelse if ast.unparse(node.test) == "TYPE_CHECKING" else node

    imported = {
        name
        for node in ast.walk(AtRuntime().visit(ast.parse(SOURCE)))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= set(ALLOWED)


def test_python_3_6_is_enough(tmp_path: Path) -> None:
    """The agent uses only syntax and modules of Python 3.6."""
    path = tmp_path / "agent.py"
    path.write_text(SOURCE)
    result = subprocess.run(
        [Path(sys.executable).with_name("vermin"), "--no-tips", "--violations", "-t=3.6-", path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout


def test_every_installed_python_runs_the_agent() -> None:
    """The agent works under every Python interpreter that is installed."""
    installed = [
        name for name in PYTHONS if shutil.which(name) and not subprocess.run([name, "-c", ""], check=False).returncode
    ]
    for python in {*installed, sys.executable}:
        with HandAgent([python, *PYTHON[1:], "binary"]) as hand:
            hand.order("source 0 1 4096 60000", "read /proc/loadavg", "go now")
            hand.kind("D")
            assert b"ok" in hand.readings()["0"], python


def test_hello_and_goodbye(hand: HandAgent) -> None:
    """The first frame describes the agent, the last one its resource usage."""
    hello = hand.kind("H")
    assert hello.seq == 0
    assert f"hostname={os.uname().nodename}\n".encode() in hello.payload
    hand.order("stop")
    cost = dict(line.split("=") for line in hand.kind("E").payload.decode().split())
    assert 0 < float(cost["cpu"]) < 1
    assert 1000 < int(cost["peak_kib"]) < 40_000
    assert hand.process.wait(SECONDS) == 0


def test_pings_are_answered_while_sources_are_read(hand: HandAgent) -> None:
    """The answer has the current time and does not wait for a slow source."""
    hand.order("source 0 0 4096 600000", "run sleep 600", "go now")
    before = time.time_ns()
    hand.order("ping 1")
    assert before < hand.kind("P").wall < time.time_ns()
    assert not hand.readings()


def test_a_program_that_ignores_sigterm_is_killed(hand: HandAgent, tmp_path: Path) -> None:
    """At its timeout it is killed with its children; other sources are read."""
    stubborn = tmp_path / "stubborn"
    stubborn.write_text("#!/bin/sh\ntrap '' TERM HUP INT\nsleep 1000 &\necho started\nwait\nsleep 1000\n")
    stubborn.chmod(0o755)
    hand.order("source 0 0 4096 700", f"run {stubborn}", "source 1 0 4096 60000", "read /proc/version", "go now")
    hand.kind("D")
    readings = hand.readings()
    assert readings["0"].startswith(b"0 now timed-out")
    assert b"Linux version" in readings["1"]
    until(lambda: not is_running(str(stubborn)))


def test_endless_output_is_truncated(hand: HandAgent) -> None:
    """The output of a program that never stops writing is truncated at the limit."""
    hand.order("source 0 0 1000 60000", "run yes", "go now")
    hand.kind("D")
    assert b"truncated 1000 yes\n" in hand.readings()["0"]


@pytest.mark.parametrize("shell", ["", *SHELLS])
def test_files_beyond_the_limit_are_reported(shell: str, tmp_path: Path) -> None:
    """If a source of many small files reaches its limit, the remaining files are marked truncated, not absent."""
    for name in "abc":
        (tmp_path / name).write_text("x" * 89 + "\n")
    with HandAgent.under(shell) as hand:
        hand.order("source 0 0 100 60000", f"read {tmp_path}/*", "go now")
        hand.kind("D")
        assert hand.readings()["0"].endswith(b"truncated 0 %s/c\n" % bytes(tmp_path))


@pytest.mark.parametrize("shell", ["", *SHELLS])
def test_file_names_do_not_count_towards_the_limit(shell: str, tmp_path: Path) -> None:
    """A source's limit applies to the content of its files, not to their names."""
    for name in "abcdefgh":
        (tmp_path / name).write_text("1234567\n")
    with HandAgent.under(shell) as hand:
        hand.order("source 0 0 100 60000", f"read {tmp_path}/*", "go now")
        hand.kind("D")
        pages = split_pages(hand.readings()["0"].partition(b"\n")[2])
    assert [(status, data) for _, status, data in pages] == [("ok", b"1234567\n")] * 8


@pytest.mark.parametrize("shell", ["", *SHELLS])
def test_files_are_truncated_between_lines(shell: str, tmp_path: Path) -> None:
    """A long file loses complete lines, whether read once or sampled: half a number would be a wrong number."""
    (tmp_path / "long").write_text("1234567\n" * 20)
    with HandAgent.under(shell) as hand:
        hand.order("source 0 1 100 60000", f"read {tmp_path}/long", "go now")
        hand.kind("D")
        assert hand.readings()["0"].endswith(b"truncated 96 %s/long\n" % bytes(tmp_path) + b"1234567\n" * 12)
        if not shell:
            hand.order("sample 100000000")
            entry = hand.kind("S").payload
            # Id, flags and start are one byte each, the duration up to three, the length one.
            size = next(n for n in range(len(entry) - 5, 0, -1) if entry[-n - 1] == n)
            text = zlib.decompressobj(-15).decompress(entry[-size:] + b"\0\0\xff\xff")
            assert text.endswith(b"truncated 96 %s/long\n" % bytes(tmp_path) + b"1234567\n" * 12)


def test_a_missing_program_is_absent(hand: HandAgent) -> None:
    """The page of a program that is not installed is absent, not failed."""
    hand.order("source 0 0 1000 60000", "run no-such-program -x", "go now")
    hand.kind("D")
    assert hand.readings()["0"].endswith(b"absent 0 no-such-program -x\n")


def test_a_directory_instead_of_a_file_fails(hand: HandAgent, tmp_path: Path) -> None:
    """The source of a path that cannot be read fails, and the next source is still read."""
    hand.order("source 0 0 1000 60000", f"read {tmp_path}", "source 1 0 4096 60000", "read /proc/version", "go now")
    hand.kind("D")
    assert b"failed" in hand.readings()["0"]
    assert b"Linux version" in hand.readings()["1"]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("files", [5, 8, 15])
def test_too_low_open_file_limit_is_reported(shell: str, files: int) -> None:
    """The remote command prints the reason to stderr, and not the text of the agent."""
    argv = [*shell.split(), "-c", f"ulimit -n {files}; {agent.remote_command()}"]
    result = subprocess.run(argv, capture_output=True, text=True, check=False, input="")
    assert result.returncode
    assert result.stderr.endswith(f"ulimit -n is {files}, at least 16 are needed\n")
    assert len(result.stderr) < 100


@pytest.mark.parametrize("shell", ["", "dash"])
def test_an_open_file_limit_of_16_is_enough(shell: str) -> None:
    """All sources are read and, by the agent, sampled: it does not keep every file open."""
    names = "loadavg meminfo stat vmstat diskstats net_dev pressure cgroup_stat nfs net_snmp softnet softirqs".split()  # noqa: SIM905
    plan = Plan.of([catalogue.source(name) for name in names])
    argv = [*shell.split(), "-c", agent.remote_command("none")] if shell else [*PYTHON, "binary"]
    with HandAgent(["sh", "-c", 'ulimit -n 16; exec "$@"', "sh", *argv]) as hand:
        assert hand.process.stdin is not None
        hand.process.stdin.write((agent.stand_in() if shell else b"") + plan.orders() + b"go\tnow\n")
        hand.kind("D")
        readings = [read_frame(frame, plan) for frame in hand.frames if frame.kind in "RZ"]
        statuses = {reading.source.name: reading.status for reading in readings if reading.status != "absent"}
        assert set(statuses.values()) == {"ok"}
        if shell:
            return
        hand.order("sample 100000000")
        hand.kind("S")
        hand.kind("S")
        unpacker = Unpacker(plan)
        frames = [frame.payload for frame in hand.frames if frame.kind == "S"]
        samples = [sample for payload in frames for sample in unpacker.beat(payload, 0, 0)]
    assert {plan.sources[sample.source].name for sample in samples} == statuses.keys()
    assert {status for sample in samples for _, status, _ in split_pages(sample.body or b"")} == {"ok"}


def test_secrets_do_not_leave_the_host() -> None:
    """The agent and the stand-in send only variables of the allow-list, with secrets masked."""
    environment = {
        "PATH": os.environ["PATH"],
        "NCCL_DEBUG": "INFO",
        "NCCL_API_TOKEN": "canary-1",
        "STORAGE_URL": "s3://user:canary-2@bucket/path",
        "STORAGE_URLS": "a://u:can@ary-5@one/x@y,b://u:canary-6@two",
        "STORAGE_BACKSLASH": "a\\b\nc",
        "STORAGE_JWT": "eyJhcanary-3",
        "OTHER": "canary-4",
    }
    pages = []
    for argv in ([*PYTHON, "binary"], ["dash", "-c", agent.remote_command("none")]):
        wrapped = ["env", "-i", *(f"{name}={value}" for name, value in environment.items()), *argv]
        with HandAgent(wrapped) as hand:
            if argv[0] == "dash":
                assert hand.process.stdin is not None
                hand.process.stdin.write(agent.stand_in())
            hand.kind("H")
            hand.order("source 0 0 4096 60000", "env NCCL_ STORAGE_", "go now")
            hand.kind("D")
            pages.append(hand.readings()["0"].partition(b"environment\n")[2])
    expected = (
        b"NCCL_API_TOKEN=***\nNCCL_DEBUG=INFO\nSTORAGE_BACKSLASH=a\\\\b\\nc\nSTORAGE_JWT=***\n"
        b"STORAGE_URL=s3://***@bucket/path\nSTORAGE_URLS=a://***@one/x@y,b://***@two\n"
    )
    assert pages == [expected, expected]


@pytest.mark.parametrize("how", ["stdin", signal.SIGTERM, signal.SIGHUP, "stdout"])
def test_agent_ends_with_its_connection_or_on_a_signal(hand: HandAgent, how: str | signal.Signals) -> None:
    """The agent ends when stdin or stdout is closed or a signal arrives; its children end with it."""
    endless = f"sleep 610.{os.getpid():07}"
    hand.kind("H")
    hand.order("source 0 1 4096 60000", f"run {endless}", "go now", "sample 100000000")
    hand.kind("S")
    assert hand.process.stdin is not None
    assert hand.process.stdout is not None
    if how == "stdin":
        hand.process.stdin.close()
    elif how == "stdout":
        hand.process.stdout.close()
    elif isinstance(how, signal.Signals):
        hand.process.send_signal(how)
    hand.process.wait(SECONDS)
    until(lambda: not is_running(endless))


def test_samples_are_aligned_with_the_clock(hand: HandAgent) -> None:
    """Samples are taken at multiples of the interval on the collector's clock, at most one each; misses are counted.

    A busy machine delays samples but never takes one early, and many still start within 5 ms after their beat; at
    random phases, one in 20 would. Sampling continues until the samples in time exceed twice that share by 7. Random
    phases reach this within 200 samples with a probability of 5e-5; if one sample in four is in time, the test fails
    with a probability of 2e-5.
    """
    hand.order("source 0 1 4096 60000", "read /proc/uptime", "clock 30000000", "sample 100000000")
    samples = in_time = 0
    while samples < 10 or in_time < 7 + 2 * samples / 20:
        samples += 1
        in_time += (hand.kind("S").wall + 30_000_000) % 100_000_000 < 5_000_000
        assert samples < 200, f"{in_time} of {samples} samples were in time"
    hand.order("stop")
    cost = dict(line.split("=") for line in hand.kind("E").payload.decode().split())
    walls = [frame.wall + 30_000_000 for frame in hand.frames if frame.kind == "S"]
    beats = [wall // 100_000_000 for wall in walls]
    assert sorted(set(beats)) == beats
    assert beats[-1] - beats[0] + 1 - len(beats) <= int(cost["missed"])


def test_interval_doubles(hand: HandAgent) -> None:
    """The interval doubles at each given time; times in the past apply immediately, as after a reconnect.

    On a busy machine samples may be missing or late, but no interval has two samples.
    """
    hand.kind("H")
    change = (time.time_ns() // 800_000_000 + 5) * 800_000_000  # late enough for samples before it, even after a pause
    hand.order("source 0 1 4096 60000", "read /proc/uptime", f"sample 100000000 1000 {change}")
    while sum(frame.wall >= change + 400_000_000 for frame in hand.frames if frame.kind == "S") < 2:
        hand.kind("S")
    walls = [frame.wall for frame in hand.frames if frame.kind == "S"]
    before = [wall // 200_000_000 for wall in walls if wall < change]
    after = [wall // 400_000_000 for wall in walls if wall >= change]
    assert sorted(set(before)) == before, "the first time had passed"
    assert sorted(set(after)) == after
    assert before
    assert len(after) >= 2


@pytest.mark.parametrize("shell", SHELLS[:1])
def test_interval_of_the_stand_in_doubles(shell: str) -> None:
    """The interval is rounded up to whole seconds.

    On a busy machine samples may be missing or late, but no interval has two, and sometimes two intervals in a row have
    one each.
    """
    with HandAgent.under(shell) as hand:
        change = (time.time_ns() // 4_000_000_000 + 1) * 4_000_000_000
        hand.order("source 0 1 4096 60000", "read /proc/uptime", f"sample 500000000 1000 {change}")

        def beats_after() -> list[int]:
            walls = [frame.wall for frame in hand.frames if frame.kind in "RZ" and frame.wall >= change]
            return [(wall + EARLY) // 2_000_000_000 for wall in walls]

        def has_consecutive(beats: list[int]) -> bool:
            return len(beats) >= 3 and any(after == before + 1 for before, after in itertools.pairwise(beats))

        hand.until(lambda _: has_consecutive(beats_after()))
        beats = beats_after()
    assert sorted(set(beats)) == beats


def test_a_slow_reader_never_blocks_the_agent(hand: HandAgent) -> None:
    """If its output is not read, the agent skips samples and reports the gap; its memory stays bounded."""

    def has_gap() -> bool:
        hand.order("ping 1")
        hand.kind("P")  # everything before it has been read
        return any(frame.kind == "G" for frame in hand.frames)

    hand.order("source 0 1 262144 60000", "read /dev/urandom", "sample 100000000")
    hand.kind("S")
    until(has_gap, pause=1.0)  # ten samples of 256 KiB are due in each pause, and nothing is read
    hand.order("stop")
    end = hand.kind("E")
    cost = dict(line.split("=") for line in end.payload.decode().split())
    assert int(cost["peak_kib"]) < 60_000


@pytest.mark.parametrize("shell", SHELLS)
def test_stand_in_reads_the_same_facts(shell: str) -> None:
    """The agent and the stand-in under each shell return the same statuses and facts."""
    constant = ["identity", "os_release", "version", "cpuinfo", "cmdline", "sysctl", "block", "limits",
              "clocksource", "thp", "cgroups", "mounts", "cgroup_limits", "cpu_topology"]  # fmt: skip
    plan = Plan.of([catalogue.source(name) for name in constant])
    facts = []
    for other in ("", shell):
        with HandAgent.under(other) as hand:
            assert hand.process.stdin is not None
            hand.process.stdin.write(plan.orders() + b"go\tnow\n")
            hand.kind("D")
            readings = [read_frame(frame, plan) for frame in hand.frames if frame.kind in "RZ"]
            facts.append({r.source.name: (r.status, r.parse() if r.pages() else None) for r in readings})
            status, mounts = facts[-1]["mounts"]
            assert isinstance(mounts, list)
            facts[-1]["mounts"] = status, lasting_mounts(mounts)
    assert facts[0].keys() == set(constant)
    assert facts[1] == facts[0]


@pytest.mark.parametrize("shell", ["", *SHELLS])
def test_a_program_runs_for_each_matching_path(shell: str, tmp_path: Path) -> None:
    """The program runs once for each matching path, with the name of that path; without a match it does not run."""
    for name in ("d1", "d2", "other"):
        (tmp_path / name).mkdir()
    with HandAgent.under(shell) as hand:
        each = (f"each {tmp_path}/d* echo of-{{}} {{}}", f"each {tmp_path}/none* echo {{}}")
        hand.order("source 0 0 4096 60000", *each, "go now")
        hand.kind("D")
        pages = split_pages(hand.readings()["0"].partition(b"\n")[2])
    assert sorted(pages) == [("echo of-d1 d1", "ok", b"of-d1 d1\n"), ("echo of-d2 d2", "ok", b"of-d2 d2\n")]


@pytest.mark.parametrize("shell", ["", *SHELLS])
@pytest.mark.parametrize(
    ("script", "status", "kept"),
    [
        ("seq 10; exit 3", "ok", b"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"),
        ("printf 1234567890123456789012345678901x; exit 100", "ok", b"1234567890123456789012345678901x"),
        ("printf '1\\n3456789012345678901234567890123'", "truncated", b"1\n"),
        ("printf '1\\n3456789012345678901234567890\\n23\\n'", "truncated", b"1\n3456789012345678901234567890\n"),
        ("printf 123456789012345678901234567890123", "truncated", b""),
        ("seq 100000000", "truncated", b"".join(b"%d\n" % number for number in range(1, 14))),
    ],
)
def test_program_output_is_truncated_between_lines(
    shell: str, script: str, status: str, kept: bytes, tmp_path: Path
) -> None:
    """Output beyond the limit is truncated to complete lines, as for files; the exit status does not matter."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with HandAgent.under(shell) as hand:
        hand.order("source 0 0 32 60000", f"run {program}", "go now")
        hand.kind("D")
        pages = split_pages(hand.readings()["0"].partition(b"\n")[2])
    assert pages == [(str(program), status, kept)]


def test_a_program_is_kept_running_and_sampled(hand: HandAgent, tmp_path: Path) -> None:
    """A sample has its output since the previous one; the program ends with the agent, and may be missing."""
    program = tmp_path / "ticker"
    program.write_text("#!/bin/sh\nn=0\nwhile :; do n=$((n + 1)); echo tick $n every $1; sleep 0.05; done\n")
    program.chmod(0o755)
    hand.order("source 0 1 4096 60000", f"loop {program} {{ms}}", "source 1 1 4096 60000", "loop no-such-program")
    hand.order("sample 100000000")
    decompressor = zlib.decompressobj(-15)
    texts: list[bytes] = []
    ticks: list[str] = []
    alone = False
    end = time.monotonic() + SECONDS
    while len(texts) < 4 or len(ticks) < 5 or not alone:
        assert time.monotonic() < end, (texts, alone)
        payload = hand.kind("S").payload
        if not payload:
            continue
        values: list[int] = []
        at = 0
        while len(values) < 5:
            value = shift = 0
            while True:
                value |= (payload[at] & 127) << shift
                shift, at = shift + 7, at + 1
                if payload[at - 1] < 128:
                    break
            values.append(value)
        assert values[0] == 0
        alone = at + values[4] == len(payload)  # once it is known to be absent, the other program has no entry
        if values[4]:
            text = decompressor.decompress(payload[at : at + values[4]] + b"\0\0\xff\xff")
            if text not in texts[-1:]:  # a key frame repeats the latest output if the program was slower
                texts.append(text)
                ticks += [line for line in text.decode().splitlines() if line.startswith("tick")]
    assert ticks == [f"tick {number} every 100" for number in range(1, len(ticks) + 1)]
    hand.order("stop")
    hand.kind("E")
    until(lambda: not is_running(str(program)))
