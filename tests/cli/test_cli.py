"""The command line over scripted hosts: exit codes, documents, tables, and one clear message for what is wrong."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from rollbook import cli, recover
from rollbook.cli import live
from rollbook.cli.output import ProgressView, print_failures
from rollbook.errors import RecordError, Refused, UsageError
from rollbook.hosts import Host
from rollbook.records.cluster import ClusterInformation
from rollbook.records.document import Snapshot, encode, read
from rollbook.records.hosts import HostResult
from rollbook.records.layout import Manifest, RecordDirectory
from rollbook.records.record import Record
from rollbook.testing import FakeHost, linux
from tests.support.commands import ROLLBOOK, Rollbook
from tests.support.schemas import differs, validate

SOURCES = [word for name in ("identity", "os_release", "meminfo", "cpuinfo") for word in ("--source", name)]
FINE = FakeHost(pages=linux("fine"))


@pytest.mark.parametrize(
    ("hosts", "code"),
    [
        ({"a": FINE, "b": FINE}, 0),
        ({"a": FINE, "b": FakeHost(fails=Refused("no"))}, 3),
        ({"a": FakeHost(pages=linux("a"), dies_after=2)}, 3),
        ({"a": FakeHost(fails=Refused("no")), "b": FakeHost(silent=True)}, 4),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_exit_code(rollbook: Rollbook, hosts: dict[str, FakeHost], code: int, form: list[str]) -> None:
    """0 if all hosts are complete, 3 if some data is missing, 4 if no host returned data."""
    result = rollbook("snapshot", *SOURCES, "--timeout", "2" if code == 4 else "60", *form, hosts=hosts)
    assert result.code == code
    assert re.search(rf"^\d of {len(hosts)} hosts? complete", result.err, re.MULTILINE)


@pytest.mark.parametrize("command", [["hosts", "--check"], ["snapshot", *SOURCES]])
def test_interrupted(rollbook: Rollbook, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C prints the results so far and exits with 130."""

    def done(_: ProgressView, result: HostResult) -> None:
        if result.name == "a":
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ProgressView, "done", done)
    result = rollbook(*command, "--json", hosts={"a": FINE, "b": FakeHost(silent=True)})
    assert result.code == 130
    statuses = {host["name"]: (host["status"], host.get("reason", "")) for host in json.loads(result.out)["hosts"]}
    assert statuses == {"a": ("complete", ""), "b": ("failed", "interrupted")}


@pytest.mark.parametrize("command", [["hosts", "--check"], ["snapshot", *SOURCES]])
def test_interrupted_twice(rollbook: Rollbook, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C stops waiting, and only the interruption is reported."""

    async def patient(*_: object, **__: object) -> None:
        for pause in (0.1, 0.1):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(pause)
        await asyncio.sleep(600)

    monkeypatch.setattr(live, "gather", patient)
    result = rollbook(*command, hosts={"a": FINE})
    assert (result.code, result.out) == (130, "")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["hosts", "-w", "node[1-"], "\n  node[1-\n"),
        (["hosts", "-w", "node[1-200000]"], "100,000"),
        (["hosts", "-w", "-oProxyCommand=id"], "\n  ^"),
        (["hosts", "-w", "a\x1b[2Jb"], "a?[2Jb"),
        (["hosts", "-w", "a", "-x", "a"], "all hosts were excluded"),
        (["hosts", "-w", "a,b", "-x", "c"], "-x c excludes none of the hosts"),
        (["hosts", "--hostfile", "/nonexistent"], "/nonexistent"),
        (["hosts", "--frobnicate"], "no such option: --frobnicate"),
        (["hosts", "--via", "pigeon"], "no transport is called 'pigeon'"),
        (["hosts", "--fold", "--json"], "--fold cannot be combined"),
        (
            ["record", "--max-timeseries-samples", "1", "--results-dir", "/nonexistent"],
            "max_samples must be at least 2",
        ),
        (["hosts", "--fanout", "0"], "--fanout"),
        (["hosts", "--timeout", "soon"], "--timeout"),
        (["hosts", "--timeout", "nan"], "--timeout"),
        (["hosts", "--timeout", "5s"], "'5s' is not a number"),
        (["export", "/", "-o", "-"], "export cannot write to stdout"),
        (["describe", "/", "-o", "-"], "'-' is not a file; use ./- or /dev/stdout"),
        (["compare", "/", "/", "-o", "-"], "'-' is not a file; use ./- or /dev/stdout"),
        (["hosts", "--timeout", "inf"], "--timeout"),
        (["check", "--minimum-memory", "nan"], "--minimum-memory"),
        (["watch", "--interval", "1e300"], "--interval"),
        (["watch", "--interval", "nan"], "--interval"),
        (["watch", "--speed", "inf"], "--speed"),
        (["snapshot", "--via", "slurm", "--slurm-args", "'"], '--slurm-args "\'": No closing quotation'),
        (["snapshot", "--mpi-args", '"'], "--mpi-args '\"': No closing quotation"),
        (["check", "/", "-w", "n1"], "name hosts or a record, not both"),
        (["check", "/", "-x", "n1"], "name hosts or a record, not both"),
        (["check", "/", "--timeout", "60"], "--timeout would have no effect: a record is read"),
        (["check", "/", "--ssh-username", "u", "--via", "ssh"], "--via, --ssh-user would have no effect"),
        (["watch", "/", "--fanout", "2"], "--fanout would have no effect"),
        (["watch", "/", "--interval", "3"], "--interval would have no effect: a record has its own interval"),
        (["watch", "/", "--once", "--speed", "4"], "--speed would have no effect: --once does not play the record"),
        (["watch", "--once", "--speed", "4"], "--speed would have no effect: only a record"),
        (["diff", "/x\x1b[2J:a", "/"], "/x?[2J does not exist"),
        (["check", "/etc/passwd"], "expected a record directory or a snapshot file"),
        (["frobnicate"], "no such command: frobnicate"),
        (["snapshot", "--source", "nosuch"], "no source is called 'nosuch'"),
        (["snapshot", "-o", "/proc/nowhere/x.json"], "cannot write to /proc/nowhere"),
        (["snapshot", "-o", "/dev/null/results"], "cannot write to /dev/null/results: Not a directory"),
        (["snapshot", "--ssh-config", "/nonexistent"], "/nonexistent"),
    ],
)
def test_bad_input(rollbook: Rollbook, argv: list[str], message: str) -> None:
    """Exit code 2 and one message on stderr that names the problem; nothing on stdout."""
    result = rollbook(*argv)
    assert result.code == 2
    assert message in result.err
    assert result.out == ""
    assert "\x1b" not in result.err


def test_hosts_are_looked_up_only_if_needed(
    rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A broken node list does not affect commands that read a record or list rules."""
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-")
    path = tmp_path / "s.json"
    path.write_bytes(encode(Snapshot.of("2026-08-01T00:00:00Z", [])))
    for argv in (["check", "--list"], ["snapshot", "--list-sources"], ["check", str(path)]):
        assert rollbook(*argv).code == 0, argv
    assert rollbook("hosts").code == 2


READERS = [["query", "{}", "SELECT 1"], ["report", "{}"], ["export", "{}", "-o", "/nonexistent"], ["watch", "{}"]]
READERS += [["verify", "{}"], ["recover", "{}"]]


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_paths_that_are_not_records(rollbook: Rollbook, tmp_path: Path, command: list[str]) -> None:
    """The message names what is there instead, and where the records are."""
    document, other, results = tmp_path / "s.json", tmp_path / "other.json", tmp_path / "results"
    snapshot = Snapshot.of("2026-08-01T00:00:00Z", [])
    document.write_bytes(encode(snapshot))
    other.write_text("{}")
    leaves = [
        RecordDirectory.create(results, "snapshot", dt.datetime(2026, 8, day, tzinfo=dt.UTC)).path
        for day in (1, 2, 3, 4)
    ]
    for leaf in leaves:
        RecordDirectory(leaf, "snapshot", leaf.name).write_snapshot([], dt.datetime(2026, 8, 1, tzinfo=dt.UTC))
    for path, message in (
        (tmp_path / "nope", "nope does not exist"),
        (document, "s.json is a snapshot document, which only check, diff and describe read"),
        (other, "other.json is a file; a record is a directory"),
        (results, f"results is not a record; the newest below it: {', '.join(map(str, leaves[:0:-1]))}\n"),
    ):
        result = rollbook(*(word.format(path) for word in command))
        assert (result.code, result.out) == (2, "")
        assert message in result.err


def test_record_without_its_journal(rollbook: Rollbook, tmp_path: Path) -> None:
    """The command and the Python function report the same reason."""
    began = dt.datetime(2026, 8, 1, tzinfo=dt.UTC)
    leaf = RecordDirectory.create(tmp_path, "snapshot", began)
    leaf.write_snapshot([], began)
    assert "has no journal to recover from" in rollbook("recover", str(leaf.path)).err
    with pytest.raises(RecordError, match="has no journal to recover from"):
        recover(leaf.path)


def test_a_file_where_records_should_be(tmp_path: Path) -> None:
    """The reason names the file, at once."""
    (tmp_path / "snapshot").write_text("")
    with pytest.raises(UsageError, match=r"cannot create .*/snapshot: File exists"):
        RecordDirectory.create(tmp_path, "snapshot", dt.datetime(2026, 8, 1, tzinfo=dt.UTC))


def test_paths_are_not_markup(rollbook: Rollbook, tmp_path: Path) -> None:
    """Paths in messages can be copied, whatever characters they contain."""
    for number, name in enumerate(("job[b]", "a[/x]", "j:100:k")):
        place = tmp_path / name
        began = dt.datetime(2026, 8, 1 + number, tzinfo=dt.UTC)
        leaf = RecordDirectory.create(place, "snapshot", began)
        leaf.write_snapshot([], began)
        result = rollbook("report", str(leaf.path), "-o", str(place / "page.html"))
        assert result.code == 0
        assert f"written to {place / 'page.html'} (" in result.err


@pytest.mark.parametrize("output", ["/etc/passwd/x.yaml", "{tmp}/missing/x.yaml"])
def test_output_that_cannot_be_written(rollbook: Rollbook, tmp_path: Path, output: str) -> None:
    """Exit code 2 and a message that says so."""
    path = tmp_path / "s.json"
    path.write_bytes(encode(Snapshot.of("2026-08-01T00:00:00Z", [])))
    result = rollbook("describe", str(path), "-o", output.format(tmp=tmp_path))
    assert result.code == 2
    assert "cannot write" in result.err


def test_internal_errors_are_not_findings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """They print a traceback and have their own exit code."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli.cli, "main", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["hosts", "--json"], ["hosts"], ["snapshot", "--list-sources"]])
def test_a_full_disk_below_stdout(argv: list[str]) -> None:
    """Incomplete output is reported, with an exit code that has no other meaning."""
    line = [*ROLLBOOK, *argv]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "rollbook: cannot write: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("argv", "code"), [(["hosts", "--check"], 0), (["snapshot", "--source", "nosuch"], 2)])
def test_closed_standard_streams(argv: list[str], code: int, closed: str) -> None:
    """Messages are lost; everything else works."""
    line = [*ROLLBOOK, *argv]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *line], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) == (code == 0 and ">&-" not in closed.replace("2>&-", ""))


def test_progress_is_drawn_while_hosts_come_and_go() -> None:
    """Another thread draws: the hosts must not change while it iterates over them."""
    view, failed, stop = ProgressView([]), list[RuntimeError](), threading.Event()

    def draw() -> None:
        while not stop.is_set():
            try:
                view._view()
            except RuntimeError as error:
                failed.append(error)
                return

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for _ in range(60):
            for number in range(300):
                view.begun(Host(f"n{number}"))
            for number in range(300):
                view.done(HostResult(name=f"n{number}", status="complete"))
    finally:
        sys.setswitchinterval(before)
        stop.set()
        thread.join()
    assert failed == []


def test_a_directory_is_not_an_output_file(rollbook: Rollbook, tmp_path: Path) -> None:
    """Reported before any host is contacted."""
    (tmp_path / "x.json").mkdir()
    result = rollbook("snapshot", "-o", str(tmp_path / "x.json"), hosts={"a": FINE})
    assert (result.code, result.out) == (2, "")
    assert "it is a directory" in result.err


def test_json_is_one_document_with_its_schema(rollbook: Rollbook) -> None:
    """Every form of `--json` is one document, valid against the schema that it names."""
    hosts = {"a": FakeHost(pages=linux("a")), "b": FakeHost(fails=Refused("no")), "c": FakeHost(python=None)}
    for argv, schema in [
        (["hosts"], "rollbook.hosts/1"),
        (["hosts", "--check"], "rollbook.host-check/1"),
        (["snapshot"], "rollbook.snapshot/1"),
    ]:
        document = json.loads(rollbook(*argv, "--json", hosts=hosts).out)
        assert document["schema"] == schema
        validate(document)


@pytest.mark.parametrize("command", [["hosts", "--check"], ["snapshot", *SOURCES], ["check"]])
def test_failures_are_printed_next_to_a_document(rollbook: Rollbook, command: list[str]) -> None:
    """With the document on stdout, failures and the host count are still on stderr."""
    result = rollbook(*command, "--json", hosts={"a": FINE, "b": FakeHost(fails=Refused("key rejected"))})
    json.loads(result.out)
    assert "refused  b: key rejected\n" in result.err
    assert re.search(r"^[01] of 2 hosts complete", result.err, re.MULTILINE)


@pytest.mark.parametrize(("python", "told"), [([], False), (["--python", "none"], False), (["--python", "/no"], True)])
def test_a_python_that_does_not_run(rollbook: Rollbook, python: list[str], *, told: bool) -> None:
    """If `--python` did not run and the shell stand-in was used, a message says so."""
    hosts = {"a1": FINE, "b1": FakeHost(pages=linux("b"), python=None), "b2": FakeHost(pages=linux("b"), python=None)}
    result = rollbook("snapshot", *SOURCES, *python, hosts=hosts)
    assert ("b[1-2]: /no did not run; the shell stand-in was used\n" in result.err) == told


def test_schemas_reject_changed_documents(rollbook: Rollbook) -> None:
    """A changed document does not match its schema."""
    document = json.loads(rollbook("snapshot", *SOURCES, "--json", hosts={"a": FINE}).out)
    document["hosts"][0]["facts"]["meminfo"]["kib"]["MemTotal"] = "much"
    with pytest.raises(AssertionError, match=re.escape("$.hosts[0].facts.meminfo.kib.MemTotal: 'much' is no integer")):
        validate(document)
    assert differs({}, {"required": ["x"]}, {}) == "$: lacks x"


def test_written_file_reads_back(rollbook: Rollbook, tmp_path: Path) -> None:
    """`-o file.json`: reading and writing again gives the same bytes; stdout still has the table."""
    path = tmp_path / "cluster.json"
    result = rollbook("snapshot", "-o", str(path), hosts={"a": FakeHost(pages=linux("a"))})
    assert result.code == 0
    assert f"written to {path}\n" in result.err
    assert "a " in result.out
    validate(json.loads(path.read_bytes()))
    assert encode(read(path, Snapshot)) == path.read_bytes()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_written_record_reads_back(rollbook: Rollbook, tmp_path: Path) -> None:
    """`-o directory`: every file of the record reads back to the same bytes, the manifest lists them all."""
    results = tmp_path / ("deep [red] " + "x" * 100)
    hosts = {"a": FakeHost(pages=linux("a")), "b": FakeHost(fails=Refused("no"))}
    result = rollbook("snapshot", "-o", str(results), hosts=hosts)
    (leaf,) = (results / "snapshot").iterdir()
    assert result.code == 3
    assert f"record in {leaf}\n" in result.err  # on one line, to be copied
    run = Record.open(leaf)
    assert [host.status for host in run.hosts.start] == ["complete", "refused"]
    assert encode(run.hosts) == (leaf / "hosts.json").read_bytes()
    (cluster,) = leaf.glob("*_cluster_info.json")
    assert encode(msgspec.json.decode(cluster.read_bytes(), type=ClusterInformation)) == cluster.read_bytes()
    manifest = read(leaf / "manifest.json", Manifest)
    assert encode(manifest) == (leaf / "manifest.json").read_bytes()
    there = {str(path.relative_to(leaf)) for path in leaf.rglob("*") if path.is_file()}
    assert {entry.path for entry in manifest.files} == there - {"manifest.json"}
    for name in ("hosts.json", "manifest.json"):
        validate(json.loads((leaf / name).read_bytes()))


def test_table_of_four(rollbook: Rollbook) -> None:
    """A row for each host, with its own values; hosts without data have a row too."""
    hosts = {f"node{n}": FakeHost(pages=linux(f"node{n}", memory_kib=n << 20, cpus=n)) for n in (1, 2, 3)}
    result = rollbook("snapshot", *SOURCES, hosts=hosts | {"node4": FakeHost(fails=Refused("key rejected"))})
    rows = [line.split() for line in result.out.splitlines()]
    assert [row[0] for row in rows] == ["host", "node1", "node2", "node3", "node4"]
    assert all(f"{n} GiB" in " ".join(rows[n]) for n in (1, 2, 3))
    assert rows[4] == ["node4", "refused"]
    assert "refused  node4: key rejected" in result.err


def test_table_of_four_hundred(rollbook: Rollbook) -> None:
    """Equal hosts share a row, and every host is in one."""
    hosts = {f"node{n:03}": FakeHost(pages=linux("x", memory_kib=(64 if n == 7 else 128) << 20)) for n in range(1, 400)}
    result = rollbook("snapshot", *SOURCES, hosts=hosts | {"node400": FakeHost(fails=Refused("no"))})
    rows = result.out.splitlines()
    assert len(rows) == 4
    assert [row.split()[0] for row in rows[1:]] == ["node[001-006,008-399]", "node007", "node400"]
    assert "64 GiB" in rows[2]
    assert "399 of 400 hosts complete, 1 refused" in result.err


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colours(
    rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], *, coloured: bool
) -> None:
    """None in a pipe unless forced; none at all with NO_COLOR."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    result = rollbook("snapshot", *SOURCES, hosts={"a": FINE})
    assert ("\x1b[32m" in result.out) == coloured


def test_text_of_hosts_cannot_harm_the_terminal(rollbook: Rollbook) -> None:
    """Escapes, bells and bidirectional control characters are printed as `?`, in tables and in reasons."""
    evil = "6.1\x1b[2J\x1b]0;t\x07\u202e\u200f\u2066\x9b[red]"
    pages = linux("a", kernel=evil)
    hosts = {"a": FakeHost(pages=pages), "b": FakeHost(fails=Refused(evil))}
    for argv in (["snapshot", *SOURCES], ["hosts", "--check"]):
        result = rollbook(*argv, hosts=hosts)
        text = result.out + result.err
        assert not set("\x1b\x07\u202e\u200f\u2066\x9b") & set(text)
        assert "6.1?[2J?]0;t???" in text
        assert "[red]" in text


def test_names_of_hosts_cannot_harm_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Host names in a record may contain any text."""
    print_failures([HostResult(name="a\x1b[2J", status="failed", reason="gone\x07")])
    assert capsys.readouterr().err == "failed  a?[2J: gone?\n"


def test_a_reader_that_is_gone(tmp_path: Path) -> None:
    """`rollbook … | head` ends quietly."""
    argv = [*ROLLBOOK, "hosts", "-w", "node[1-90000]"]
    with (tmp_path / "err").open("w+") as err:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=err)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
        err.seek(0)
        assert err.read() == ""


def test_rules_as_json(rollbook: Rollbook) -> None:
    """`--list --json` is a document; options that would have no effect are refused."""
    result = rollbook("check", "--list", "--json")
    document = json.loads(result.out)
    validate(document)
    assert document["schema"] == "rollbook.rules/1"
    assert {"id", "severity", "manual"} == document["rules"][0].keys()
    assert json.loads(rollbook("check", "--explain", "mtu-mismatch", "--json").out)["rules"][0]["id"] == "mtu-mismatch"
    for argv in (["--list", "--fail-on", "warn"], ["--list", "-w", "a"], ["--explain", "mtu-mismatch", "--list"]):
        assert rollbook("check", *argv).code == 2


def test_options_of_mlperf_storage_need_its_benchmark(rollbook: Rollbook, tmp_path: Path) -> None:
    """With other records they would have no effect and are refused."""
    path = tmp_path / "s.json"
    path.write_bytes(encode(Snapshot.of("2026-08-01T00:00:00Z", [])))
    result = rollbook("check", str(path), "--minimum-memory", "4")
    assert (result.code, "--minimum-memory would have no effect" in result.err) == (2, True)


@pytest.mark.parametrize("argv", [["check", "{}"], ["describe", "{}"], ["check", "--baseline", "{}"], ["diff", "{}"]])
def test_missing_paths_have_one_message(rollbook: Rollbook, tmp_path: Path, argv: list[str]) -> None:
    """All commands use the same message."""
    path = str(tmp_path / "missing")
    result = rollbook(*(word.format(path) for word in argv))
    assert (result.code, result.err) == (2, f"rollbook: {path} does not exist\n")


def test_python_m_rollbook() -> None:
    """`python -m rollbook` runs the command line."""
    done = subprocess.run([sys.executable, "-m", "rollbook", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("rollbook ")
