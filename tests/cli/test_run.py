"""`rollbook run` and `record` on this machine: the command is left alone, and the record is whole."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from rollbook import record as record_block
from rollbook import snapshot
from rollbook.api.settings import Settings
from rollbook.checks.verify import verify
from rollbook.cli.run import _verdict_code
from rollbook.journal.reader import Reader
from rollbook.records.document import encode
from rollbook.records.record import Record, SeriesHost
from rollbook.testing.lab.processes import living
from tests.support.commands import ROLLBOOK, Rollbook
from tests.support.records import is_whole, was_read
from tests.support.waits import until, until_sampled

FACTS = ["--results-dir", "out", "--skip-timeseries", "--no-report"]  # what most of a run takes is left out
SERIES = ["--results-dir", "out", "--timeseries-interval", "0.2", "--no-report"]
DEAF = ["-w", "nowhere", "--ssh-option", "HostName=127.0.0.1", "--ssh-option", "Port=9"]
MARK = f"{shlex.join(ROLLBOOK)} mark"
WAIT = "for n in $(seq 600); do [ -e go ] && break; sleep 0.1; done"
"""A command that ends when the file `go` exists, or after a minute."""


def run(directory: Path, *argv: str, options: list[str] = FACTS, **more: Any) -> subprocess.CompletedProcess[str]:
    """`rollbook run` in a directory of its own."""
    command = [*ROLLBOOK, "run", *options, "--", *argv]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, **more)


def started(directory: Path, *argv: str, options: list[str] = FACTS) -> subprocess.Popen[str]:
    """`rollbook run` in a directory of its own, while it runs."""
    command = [*ROLLBOOK, "run", *options, "--", *argv]
    return subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def only_record(directory: Path) -> Record:
    """The one record below a directory."""
    [path] = (directory / "out").glob("*/*")
    return Record.open(path)


def is_share_of_cost(record: Record, host: SeriesHost) -> bool:
    """Whether a host's share of CPU time is its agent's CPU time divided by a time between those of samples and run."""
    assert host.cost is not None
    assert host.cost.cpu_seconds
    assert host.cpu_share is not None
    assert host.first_ns is not None
    assert host.last_ns is not None
    hosts = record.hosts
    of_one_ns = host.cost.cpu_seconds * 1e9 / hosts.start[0].facts["cpuinfo"].logical_cpus
    longest, shortest = hosts.ended_ns - hosts.started_ns, host.last_ns - host.first_ns
    return bool(of_one_ns / longest <= host.cpu_share <= of_one_ns / shortest)


def test_a_complete_record(tmp_path: Path) -> None:
    """Output shown and logged, facts before and after, samples in between, metadata with the keys readers need."""
    script = f"echo to stdout; echo to stderr >&2; {MARK} second; {WAIT}"
    with started(tmp_path, "sh", "-c", script, options=SERIES) as running:
        until_sampled(tmp_path / "out", hosts=1, samples=7)
        (tmp_path / "go").touch()
        stdout, stderr = running.communicate()
    assert running.returncode == 0, stderr
    assert stdout == "to stdout\n"
    assert "to stderr\n" in stderr
    record = only_record(tmp_path)
    assert (record.path / "stdout.log").read_text() == "to stdout\n"
    assert (record.path / "stderr.log").read_text() == "to stderr\n"
    hosts = record.hosts
    assert [host.status for host in hosts.start + hosts.end] == ["complete"] * 2
    assert is_whole(hosts.series[0])
    assert hosts.start[0].collected_at <= hosts.end[0].collected_at
    assert hosts.end[0].facts["uptime"].uptime_seconds > hosts.start[0].facts["uptime"].uptime_seconds
    assert hosts.series[0].samples >= 7
    assert is_share_of_cost(record, hosts.series[0])
    assert hosts.series[0].cpu_share is not None
    assert hosts.series[0].cpu_share < 0.2
    assert [phase.name for phase in hosts.phases if phase.name in ("command", "second", "after")] == [
        "command",
        "second",
        "after",
    ]
    needed = {"benchmark_type", "run_datetime", "num_processes", "parameters", "system_info", "cluster_information",
              "cluster_snapshots", "executed_command", "command_output_files", "args", "runtime",
              "invocation_start_time", "invocation_end_time", "result_dir", "metrics"}  # fmt: skip
    assert needed <= record.metadata.keys()
    assert record.metadata["cluster_snapshots"]["start"] != record.metadata["cluster_snapshots"]["end"]
    assert record.metadata["cluster_snapshots"]["collection_method"] == "local"
    assert record.metadata["coverage"] == {"requested": 1, "by_status": {"complete": 1}}
    assert {"meminfo", "diskstats", "net_dev", "vmstat", "loadavg", "stat"} <= record.series_files().keys()
    assert encode(hosts) == (record.path / "hosts.json").read_bytes()


@pytest.mark.parametrize(
    ("script", "code", "options"), [("exit 0", 0, SERIES), ("exit 7", 7, FACTS), ("kill -TERM $$", 143, FACTS)]
)
def test_the_exit_code_is_the_commands(tmp_path: Path, script: str, code: int, options: list[str]) -> None:
    """Any exit status is passed on and recorded; the overhead of even the shortest series is known."""
    assert run(tmp_path, "sh", "-c", script, options=options).returncode == code
    record = only_record(tmp_path)
    assert record.metadata["metrics"]["exit_code"] == record.metadata["exit_code"] == code
    assert [is_share_of_cost(record, host) for host in record.hosts.series] == ([True] if options == SERIES else [])


def test_any_argument_and_file_name_of_a_command(tmp_path: Path) -> None:
    """Arguments that look like markup, file names that are not text, and hosts with slots."""
    script = 'touch "$ROLLBOOK_RECORD/$(printf "\\377")"; exit 7'
    argv = ["sh", "-c", script, "sh", "--output=d[/x]/o.json"]
    done = run(tmp_path, *argv, options=[*FACTS, "--type", "fio", "-w", "localhost:4"])
    assert done.returncode == 7
    assert "d[/x]/o.json is not there" in done.stderr
    record = only_record(tmp_path)
    assert [host.slots for host in record.hosts.start] == [4]
    assert verify(record.path).problems == []


def test_stdin_passes_through(tmp_path: Path) -> None:
    """The command reads the caller's stdin."""
    assert run(tmp_path, "tr", "a-z", "A-Z", input="hello").stdout == "HELLO"


def test_a_terminal_stays_a_terminal(tmp_path: Path) -> None:
    """A command whose output is a terminal sees one, and the log has its text."""
    ours, theirs = pty.openpty()
    argv = [*ROLLBOOK, "run", *FACTS, "--", "sh", "-c", "test -t 1 && echo terminal"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        assert process.wait(60) == 0
    assert b"terminal" in os.read(ours, 1000)
    os.close(ours)
    assert (only_record(tmp_path).path / "stdout.log").read_text() == "terminal\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_command_first(tmp_path: Path, number: signal.Signals) -> None:
    """The command ends in its own way, then the record is finished."""
    script = "trap 'echo caught; exit 5' INT TERM; echo ready; while :; do sleep 0.1; done"
    argv = [*ROLLBOOK, "run", *FACTS, "--", "sh", "-c", script]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          start_new_session=True, text=True) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=90)
    assert (process.returncode, out) == (5, "caught\n"), err
    assert was_read(only_record(tmp_path).hosts.end[0])


def test_no_series_and_no_hosts(tmp_path: Path) -> None:
    """Without a series there are snapshots; without collection the arguments alone describe the cluster."""
    assert run(tmp_path, "true").returncode == 0
    record = only_record(tmp_path)
    assert not record.series_files()
    assert was_read(record.hosts.end[0])
    declared = ["--skip-cluster-collection", "--client-host-memory-in-gb", "64", "--num-client-hosts", "2"]
    other = tmp_path / "declared"
    other.mkdir()
    assert run(other, "true", options=["--results-dir", "out", "--no-report", *declared]).returncode == 0
    cluster = only_record(other).metadata["system_info"]
    assert (cluster["collection_method"], cluster["num_hosts"]) == ("args", 2)
    assert cluster["total_memory_bytes"] == 2 * 64 * 1024**3


@pytest.mark.parametrize("configured", [False, True])
def test_interval_of_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: bool) -> None:
    """Facts are read at start and end, and no samples, as with `interval=0` in Python; nothing is pushed."""
    monkeypatch.setenv("ROLLBOOK_PUSH", "http://localhost:1")
    if configured:
        monkeypatch.setenv("ROLLBOOK_INTERVAL", "0")
    chosen = [] if configured else ["--interval", "0"]
    done = run(tmp_path, "true", options=["--results-dir", "out", "--no-report", *chosen])
    assert done.returncode == 0, done.stderr
    hosts = only_record(tmp_path).hosts
    assert [len(hosts.start), len(hosts.end), len(hosts.series)] == [1, 1, 0]


BAD = [
    (SERIES, ["no-such-program"], "no such program"),
    (SERIES, ["/etc/passwd"], "is not executable"),
    (SERIES, ["/etc"], "cannot run /etc: it is a directory"),
    (SERIES, [""], "the command is empty"),
    (SERIES, ["--no-such-option"], "no such option"),
    ([*SERIES, "--type", "nosuch"], ["touch", "ran"], "no benchmark is called"),
    (["--results-dir", "/proc/nowhere"], ["touch", "ran"], "for results: No such file or directory"),
    (["--results-dir", "script/below"], ["touch", "ran"], "Not a directory"),
    (["--results-dir", "bad\udcff"], ["touch", "ran"], "not UTF-8"),
    (SERIES, ["./script"], "cannot run ./script: Exec format error"),
    (SERIES, ["./no-interpreter"], "cannot run ./no-interpreter"),
    *(
        ([*SERIES, "--timeseries-interval", word], ["touch", "ran"], "--timeseries-interval")
        for word in ("nan", "inf", "0.09", "-1", "86401", "soon")
    ),
    (
        [*SERIES, "--interval", "0.05"],
        ["touch", "ran"],
        "the interval must be 0.1 to 86400 seconds, or 0 for snapshots only, not 0.05",
    ),
    ([*SERIES, "--push", "http://localhost:1", "--interval", "0"], ["touch", "ran"], "there is nothing to push"),
    ([*SERIES, "--max-timeseries-samples", "-1"], ["touch", "ran"], "--max-timeseries-samples"),
    ([*SERIES, "--client-host-memory-in-gb", "nan"], ["touch", "ran"], "--client-host-memory-in-gb"),
    ([*SERIES, "--timeout", "nan"], ["touch", "ran"], "--timeout"),
    ([*SERIES, "--sign", "script"], ["touch", "ran"], "cannot sign with script"),
    ([*SERIES, "--python", "a b"], ["touch", "ran"], "not a plain program name or path"),
    ([*SERIES, "--cluster-collection-timeout", "nan"], ["touch", "ran"], "--cluster-collection-timeout"),
]


@pytest.mark.parametrize(("options", "argv", "words"), BAD)
def test_usage_errors_come_before_anything_runs(
    tmp_path: Path,
    rollbook: Rollbook,
    monkeypatch: pytest.MonkeyPatch,
    *,
    options: list[str],
    argv: list[str],
    words: str,
) -> None:
    """Invalid programs, types, directories and numbers are refused, and no files are left."""
    for name, text in (("script", "echo no first line\n"), ("no-interpreter", "#!/nowhere\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    ended = rollbook("run", *options, "--", *argv)
    cannot_run = {"no-such-program": 127, "/etc/passwd": 126, "/etc": 126, "./script": 126, "./no-interpreter": 126}
    assert ended.code == cannot_run.get(argv[0], 2), ended.err
    assert words in ended.err
    assert "via auto" not in ended.err or argv[0] in ("./script", "./no-interpreter")  # only the kernel knows those
    assert not (tmp_path / "ran").exists()
    assert not list(tmp_path.glob("out/*/*"))


def test_any_path_and_argument(tmp_path: Path) -> None:
    """Results directories with blanks, quotes, punctuation and non-Latin letters; arguments that are not UTF-8."""
    place = 'ein Ört\'chen/日本 "x"[/b]:100:'
    (tmp_path / "hosts\udcff").write_text("localhost\n")
    options = ["--results-dir", place, "--timeseries-interval", "0.2", "--hostfile", "hosts\udcff"]
    done = run(tmp_path, "sh", "-c", "sleep 0.5", "a\udcffb", options=options)
    assert done.returncode == 0, done.stderr
    [path] = (tmp_path / place / "generic").iterdir()
    record = Record.open(path)
    assert record.metadata["notes"] == []
    near = path.relative_to(tmp_path)
    assert f"record    {near}\npage      {near / 'report.html'}\n" in done.stderr
    assert record.metadata["args"]["hostfile"] == ["hosts\ufffd"]
    assert (path / "report.html").exists()
    assert record.metadata["result_dir"] == str(path)
    assert record.metadata["args"]["results_dir"] == place
    assert record.metadata["args"]["timeseries_interval"] == 0.2
    argv = [*ROLLBOOK, "query", str(path), "SELECT count(*) > 1 AS some FROM samples", "--format", "csv"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split() == ["some", "True"]


def test_nested_and_parallel_runs(tmp_path: Path) -> None:
    """Each has its own record and its own marks, even if several start in the same second."""
    inner = shlex.join([*ROLLBOOK, "run", *FACTS, "--"])
    done = run(tmp_path, "sh", "-c", f'{MARK} outer; {inner} sh -c "{MARK} inner" & {inner} true & wait')
    assert done.returncode == 0, done.stderr
    records = [Record.open(path) for path in sorted((tmp_path / "out" / "generic").iterdir())]
    assert len(records) == 3
    names = [{phase.name for phase in record.hosts.phases} for record in records]
    assert ["outer" in found for found in names] == [True, False, False]
    assert sorted("inner" in found for found in names) == [False, False, True]


def agents_of(collector: int) -> list[int]:
    """The agents that a collector has started on this machine."""
    return [one.pid for one in living() if one.parent == collector and " -I " in one.cmdline]


def is_sampled_again(raw: Path) -> bool:
    """Whether a journal has a sample of its host from a second connection."""
    connections = 0
    for entry in Reader(raw):
        connections += entry.event is not None and entry.event["event"] == "connected"
        if connections == 2 and entry.frame is not None and entry.frame.kind == "S":
            return True
    return False


@pytest.mark.parametrize(
    ("options", "comes_back", "reason"),
    [(SERIES, True, "without samples: connection lost"), (FACTS, False, "at the end: ")],
)
def test_a_host_that_fails_in_mid_run_is_not_complete(
    tmp_path: Path, options: list[str], comes_back: bool, reason: str
) -> None:
    """It is partial in messages and, with --strict, in the exit code, even if it did not come back."""
    with started(tmp_path, "sh", "-c", f"touch begun; {WAIT}", options=[*options, "--strict"]) as running:
        until((tmp_path / "begun").exists)
        if comes_back:
            until_sampled(tmp_path / "out", hosts=1, samples=3)
        [agent] = agents_of(running.pid)
        os.kill(agent, signal.SIGKILL)
        if comes_back:
            [raw] = tmp_path.glob("out/*/*/raw")
            until(lambda: is_sampled_again(raw))
        (tmp_path / "go").touch()
        _, stderr = running.communicate()
    assert running.returncode == 3, stderr
    assert "0 of 1 host complete, 1 partial" in stderr
    assert reason in stderr


def test_strict_does_not_change_a_good_run(tmp_path: Path) -> None:
    """Nor a command that failed itself."""
    options = [*FACTS, "--strict"]
    done = run(tmp_path, "true", options=options)
    assert done.returncode == 0
    assert done.stderr.count("1 of 1 host complete") == 1
    some = [*options, *DEAF, "-w", "localhost"]
    assert run(tmp_path, "sh", "-c", "exit 7", options=some).returncode == 7
    assert run(tmp_path, "true", options=some).returncode == 3


def test_strict_after_checks_that_failed() -> None:
    """A run without a verdict is not successful."""
    record: Any = SimpleNamespace(metadata={})
    assert _verdict_code(record) == 3


def test_strict_does_not_start_the_command_without_hosts(tmp_path: Path) -> None:
    """The reason is printed and no record is left; without --strict the command runs anyway."""
    options = [*FACTS, "--via", "ssh", *DEAF]
    done = run(tmp_path, "touch", "ran", options=[*options, "--strict"])
    assert done.returncode == 4, done.stderr
    assert "nowhere: " in done.stderr
    assert "the command was not started: no host could be reached" in done.stderr
    assert not (tmp_path / "ran").exists()
    assert not list(tmp_path.glob("out/*/*"))
    assert run(tmp_path, "touch", "ran", options=options).returncode == 0
    assert (tmp_path / "ran").exists()


def test_a_parent_that_ignores_ended_children(tmp_path: Path) -> None:
    """The exit status of the command is not lost with it."""
    argv = shlex.join([*ROLLBOOK, "run", *FACTS, "--", "sh", "-c", "exit 7"])
    done = subprocess.run(["bash", "-c", f"trap '' CHLD; exec {argv}"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 7


def test_quiet_prints_a_failed_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rollbook: Rollbook) -> None:
    """One line with the exit status and the path of the record; nothing after a success."""
    monkeypatch.chdir(tmp_path)
    assert rollbook("run", "-q", *FACTS, "--", "true").err == ""
    done = rollbook("run", "-q", *FACTS, "--name", "bad", "--", "sh", "-c", "exit 5")
    [path] = [one for one in Path("out/generic").iterdir() if Record.open(one).metadata["exit_code"]]
    assert done.code == 5
    [line] = done.err.splitlines()
    assert line.startswith("FAILED    exit status 5 after ")
    assert line.endswith(f"; record {path}")


def test_missing_hosts_are_named_before_the_command_runs(tmp_path: Path) -> None:
    """A user must not learn about them only after hours of benchmark."""
    hosts = [*DEAF, "-w", "localhost"]
    told = run(tmp_path, "sh", "-c", "echo started >&2", options=[*FACTS, *hosts]).stderr
    assert told.index("nowhere: ") < told.index("1 of 2 hosts complete") < told.index("started")
    argv = [*ROLLBOOK, "record", *SERIES, *hosts, "--timeseries-interval", "1", "--duration", "1.5"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("1 of 2 hosts complete")) == (3, 2), done.stderr
    assert "1 listed above); see rollbook check" in done.stderr, "the finding host-missing is the line of the host"


def test_a_key_that_is_gone_at_the_end(tmp_path: Path) -> None:
    """The record is finished, and only its signature is reported as missing."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    options = [*FACTS, "--strict", "--sign", "key"]
    done = run(tmp_path, "rm", "key", "key.pub", options=options)
    assert done.returncode == 2
    assert "the record is not signed: cannot sign with key" in done.stderr
    assert "1 of 1 host complete" in done.stderr
    assert "recover" not in done.stderr
    assert verify(only_record(tmp_path).path).problems == []


def test_per_host_timeouts(tmp_path: Path, rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch) -> None:
    """--cluster-collection-timeout takes precedence over --timeout."""
    found: list[float] = []

    def end(settings: Settings, *_: object, **__: object) -> NoReturn:
        found.append(settings.options.timeout)
        sys.exit(9)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rollbook.cli.run.run_command", end)
    for options in (
        [],
        ["--timeout", "300"],
        ["--cluster-collection-timeout", "90"],
        ["--timeout", "300", "--cluster-collection-timeout", "90"],
    ):
        assert rollbook("run", *options, "--", "true").code == 9
    assert found == [60, 300, 90, 90]


def test_a_temporary_directory_with_a_long_name(tmp_path: Path) -> None:
    """Marks still work."""
    place = tmp_path / ("x" * 100)
    place.mkdir()
    done = run(tmp_path, "sh", "-c", f"{MARK} second", env={**os.environ, "TMPDIR": str(place)})
    assert done.returncode == 0, done.stderr
    assert "second" in [phase.name for phase in only_record(tmp_path).hosts.phases]


def test_a_full_disk_below_stderr(tmp_path: Path) -> None:
    """The command runs and keeps its exit status."""
    argv = [*ROLLBOOK, "run", *FACTS, "--repeat", "2", "--", "sh", "-c", "touch ran; exit 7"]
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(argv, cwd=tmp_path, stderr=full, check=False).returncode == 7
    assert (tmp_path / "ran").exists()
    assert only_record(tmp_path).metadata["exit_code"] == 7


def test_a_working_directory_that_was_removed(tmp_path: Path) -> None:
    """The error says so, and no record is left."""
    results, gone = tmp_path / "out", tmp_path / "gone"
    gone.mkdir()
    remove = f'rmdir {gone}; exec "$@"'
    argv = ["sh", "-c", remove, "sh", *ROLLBOOK, "run", "--results-dir", str(results), "--", "true"]
    done = subprocess.run(argv, cwd=gone, capture_output=True, text=True, check=False)
    assert (done.returncode, "the working directory" in done.stderr) == (2, True), done.stderr
    assert not list(results.glob("*/*"))


def test_record_for_a_while(tmp_path: Path) -> None:
    """A series without a command."""
    argv = [*ROLLBOOK, "record", *SERIES, "--timeseries-interval", "0.5", "--duration", "4"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    series = only_record(tmp_path).hosts.series[0]
    assert done.returncode == (0 if series.status == "complete" else 3), done.stderr
    assert (is_whole(series), series.samples >= 3) == (True, True)


def test_record_prints_only_the_error_if_it_cannot_start(rollbook: Rollbook) -> None:
    """The message about Ctrl-C is not printed."""
    ended = rollbook("record", "--results-dir", "/proc/nowhere")
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert "cannot use /proc/nowhere" in ended.err


def test_ctrl_c_until_the_record_is_abandoned(tmp_path: Path) -> None:
    """The second Ctrl-C ends the command with its own exit status, and no later one changes it."""
    code = "import time; from rollbook.api import finish; from rollbook.cli import main\n"
    code += "finish.finish = lambda *_, **__: time.sleep(60); main()"
    argv = [sys.executable, "-c", code, "record", *SERIES, "--duration", "0.5"]
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        while "writing the record" not in process.stderr.readline():
            pass
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        messages = process.stderr.read()
    assert process.returncode == 130, messages
    assert "to finish it: rollbook recover" in messages


def test_record_stopped_before_all_hosts_are_ready(tmp_path: Path) -> None:
    """The data so far becomes a record, and the host without data is in it."""
    argv = [*ROLLBOOK, "record", *SERIES, "--via", "ssh", "-w", "nowhere", "--ssh-option", "ProxyCommand=sleep 60"]
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.glob("out/record/*/raw/*.seg")):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 4, err
    assert "Traceback" not in err
    assert only_record(tmp_path).hosts.start[0].status == "failed"


def test_the_python_interface(tmp_path: Path) -> None:
    """`with rollbook.record(...)`: the same record, with its phases."""
    with record_block(results_dir=tmp_path / "out", interval=0.2, report=False) as recording:
        recording.mark("mine")
    assert "mine" in [phase.name for phase in recording.record.hosts.phases]
    assert json.loads(next(recording.path.glob("*_metadata.json")).read_bytes())["benchmark_type"] == "record"
    assert snapshot().coverage.complete


@pytest.mark.needs("fio")
def test_a_real_fio_run(tmp_path: Path) -> None:
    """Its results are in the metadata, and what it wrote is in the series."""
    job = ["fio", "--name=w", "--rw=write", "--bs=1m", "--size=64m", "--fsync=8", "--output-format=json", "--loops=4"]
    done = run(tmp_path, *job, options=[*SERIES, "--type", "fio"])
    assert done.returncode == 0, done.stderr
    record = only_record(tmp_path)
    assert record.metadata["benchmark_type"] == "fio"
    assert "fsync" in json.dumps(record.metadata["parameters"])
    [job] = record.metadata["metrics"]["jobs"]
    assert (job["job"], job["error"]) == ("w", 0)
    assert job["write_bandwidth_bytes_per_second"] > 0
    assert job["write_iops"] > 0
    assert job["write_clat_p99_ns"] > 0
    assert not record.metadata["notes"]
    command = [one for one in record.metadata["phase_statistics"] if one["phase"] == "command"]
    assert {"disk_write", "cpu_busy"} <= {one["metric"] for one in command}


def test_a_killed_collector_loses_at_most_what_was_not_flushed(tmp_path: Path) -> None:
    """After kill -9, `recover` restores every flushed beat, and no agent is left."""
    argv = [*ROLLBOOK, "record", *SERIES]
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        until_sampled(tmp_path / "out", hosts=1, samples=8)
        process.kill()
    [path] = (tmp_path / "out" / "record").iterdir()
    done = subprocess.run([*ROLLBOOK, "recover", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = Record.open(path)
    assert record.hosts.series[0].samples >= 8
    assert record.hosts.series[0].status == "partial"
    assert was_read(record.hosts.start[0])
