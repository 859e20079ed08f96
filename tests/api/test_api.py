"""The Python interface: the examples of its page run, and errors in a block still leave a record."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import rollbook
from rollbook.api.recording import Recording
from rollbook.cli import cli
from rollbook.collect.recorder import Recorder
from rollbook.errors import RecordError, RollbookError, UsageError
from rollbook.transports.routing import Options
from tests.support.commands import ROLLBOOK
from tests.support.records import was_read

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_examples_run(tmp_path: Path) -> None:
    """All examples run unchanged in one process, each in its own namespace."""
    assert len(EXAMPLES) >= 6
    code = "import gc, sys\nfor example in sys.argv[1:]:\n    exec(example, {'__name__': '__main__'})\n    gc.collect()"
    argv = [sys.executable, "-W", "error::ResourceWarning", "-c", code, *EXAMPLES]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    assert sorted(path.name for path in (tmp_path / "exported").iterdir()) == ["findings.csv", "rates.csv"]


def test_an_exception_in_the_block(tmp_path: Path) -> None:
    """The exception reaches the caller, and the record is complete."""
    with (
        pytest.raises(ZeroDivisionError),
        rollbook.record(results_dir=tmp_path, interval=0, report=False) as recording,
    ):
        raise ZeroDivisionError
    assert was_read(recording.record.hosts.end[0])


@pytest.mark.parametrize("interval", [0.05, -1.0, float("nan"), 1e9])
def test_invalid_intervals(tmp_path: Path, interval: float) -> None:
    """They are rejected before anything is written."""
    with pytest.raises(UsageError, match="the interval must be"):
        rollbook.record(results_dir=tmp_path / "out", interval=interval)
    assert not (tmp_path / "out").exists()


def test_unwritable_results_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the reason."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match=f"cannot write to {tmp_path}: Permission denied"):
        rollbook.record(results_dir=tmp_path)


@pytest.mark.parametrize("kind", ["a/b", "../x", "", ".", "a b"])
def test_invalid_types(tmp_path: Path, kind: str) -> None:
    """The type is part of file and directory names, so others are rejected before anything is written."""
    with pytest.raises(UsageError, match="is not a type of record"):
        rollbook.record(results_dir=tmp_path / "out", type=kind)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rollbook.run([]), "a list of strings"),
        (lambda: rollbook.run("ls -l"), "a list of strings"),
        (lambda: rollbook.run(["echo", 3]), "a list of strings or paths: .* not int"),  # type: ignore[list-item]
        (lambda: rollbook.run(["echo", "a\0b"]), "a NUL character"),
        (lambda: rollbook.snapshot(timeout=float("nan")), "--timeout must be a positive number"),
        (lambda: rollbook.snapshot(timeout=0), "--timeout must be a positive number"),
        (lambda: rollbook.snapshot(fanout=0), "the fan-out must be 1 to 4096"),
        (lambda: rollbook.snapshot(fanout=-1), "the fan-out must be 1 to 4096"),
        (lambda: rollbook.record(fanout=0), "the fan-out must be 1 to 4096"),
        (lambda: rollbook.run(["true"], fanout=4097), "the fan-out must be 1 to 4096"),
        (lambda: rollbook.snapshot(via="slurm", slurm_args="'"), "--slurm-args .*No closing quotation"),
        (lambda: rollbook.open_record("nowhere"), "nowhere does not exist"),
        (lambda: rollbook.recover("nowhere"), "no journal|no raw|nowhere"),
        (lambda: rollbook.record(sign="nowhere"), "cannot sign with nowhere"),
        (lambda: rollbook.record(results_dir="a\0b"), "results_dir .* cannot contain a NUL"),
        (lambda: rollbook.take_bundle(item_files=["a\0b"]), "item_files .* cannot contain a NUL"),
        (lambda: rollbook.take_bundle(start_timeout=0), "start_timeout must be at least 1 second, not 0"),
        (lambda: rollbook.take_bundle(kubectl_timeout=float("nan")), "kubectl_timeout must be at least 1 second"),
        (lambda: rollbook.list_records("a\0b"), "results_dir .* cannot contain a NUL"),
        (lambda: rollbook.list_records(".", limit=-1), "the limit must be a number of records"),
        (lambda: rollbook.record(intervall=1), "unknown option 'intervall'; did you mean interval?"),  # type: ignore[call-arg]
        (lambda: rollbook.snapshot(ssh_usr="x"), "unknown option 'ssh_usr'; did you mean ssh_user?"),  # type: ignore[call-arg]
        (lambda: rollbook.take_bundle(xyzzy=1), "unknown option 'xyzzy'$"),  # type: ignore[call-arg]
    ],
)
def test_invalid_arguments(
    call: Callable[[], object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All invalid arguments raise a `RollbookError`, and no record is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RollbookError, match=message):
        call()
    assert not list(tmp_path.glob("results/*/*"))


def test_timeouts_of_an_issue_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of `--start-timeout` and `--kubectl-timeout`."""
    used: dict[str, object] = {}

    async def collect(*arguments: object, **options: object) -> None:
        used.update(reach=arguments[3], cluster=options["cluster"])

    monkeypatch.setattr("rollbook.api.bundle.run_bundle", collect)
    rollbook.take_bundle(items="os", output=tmp_path, start_timeout=7, kubectl_timeout=8)
    assert (used["reach"].start_timeout, used["cluster"].kubectl_seconds) == (7, 8)  # type: ignore[attr-defined]


MISSING: list[Callable[[str], object]] = [
    rollbook.open_record,
    rollbook.check,
    rollbook.verify,
    rollbook.describe,
    rollbook.write_report,
    rollbook.diff,
    rollbook.find_record,
    lambda record: rollbook.diff(f"{record}:host"),
    lambda record: rollbook.query(record, "SELECT 1"),
    lambda record: rollbook.export(record, "out"),
    lambda record: rollbook.compare(record, record),
]
"""The functions that read a record."""


@pytest.mark.parametrize("record", ["nowhere", "./nowhere", "latest"])
@pytest.mark.parametrize("call", MISSING)
def test_missing_record(
    call: Callable[[str], object], record: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each function raises the same class."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecordError, match=r"nowhere does not exist|no records in results yet"):
        call(record)


@pytest.mark.parametrize("call", MISSING)
def test_impossible_paths(call: Callable[[str], object]) -> None:
    """A path with a NUL character is a bad value, and a number is the wrong type."""
    with pytest.raises(UsageError, match="cannot contain a NUL character"):
        call("a\0b")
    if getattr(call, "__name__", "") != "<lambda>":  # which make a text of it
        with pytest.raises(TypeError, match=r"must be .*a path or a string.*, not int"):
            call(3)  # type: ignore[arg-type]


def test_records_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions accept what the commands accept: a path, a name, the start of a time, or `latest`."""
    monkeypatch.chdir(tmp_path)
    with rollbook.record(interval=0, report=False, name="base") as recording:
        pass
    for text in ("base", recording.path.name[:8], f"record/{recording.path.name}", "latest"):
        assert rollbook.open_record(text).path.resolve() == recording.path
        assert rollbook.query(text, "SELECT 1 AS one") == [{"one": 1}]
        assert not rollbook.verify(text).problems
        assert rollbook.check(text, baseline=text).outcomes
        assert rollbook.export(text, tmp_path / "exported" / text, "csv", "hosts")
        assert rollbook.describe(text)
        assert not rollbook.diff(text, text).differs
        assert rollbook.diff(f"{text}:{recording.record.hosts.start[0].name}").hosts
        assert rollbook.write_report(text, "page.html") == Path("page.html")
    with pytest.raises(RecordError, match="base does not exist"):
        rollbook.open_record(Path("base"))
    with pytest.raises(UsageError, match="the name of the record is empty"):
        rollbook.open_record("")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rollbook.list_records(".", limit="x"), "limit must be an integer, not str"),  # type: ignore[arg-type]
        (lambda: rollbook.record(interval="1"), "interval must be a number, not str"),  # type: ignore[arg-type]
        (lambda: rollbook.record(share=1), "share must be True or False, not int"),  # type: ignore[arg-type]
        (lambda: rollbook.run(["true"], type=3), "type must be a string, not int"),  # type: ignore[arg-type]
        (lambda: rollbook.snapshot(3), "hosts must be a string or a list of strings"),  # type: ignore[arg-type]
        (lambda: rollbook.snapshot(timeout="1"), "timeout must be a number"),  # type: ignore[arg-type]
        (lambda: rollbook.snapshot(sources=[3]), "sources must be a string or a list"),  # type: ignore[list-item]
        (lambda: rollbook.snapshot(ssh_user=3), "ssh_user must be a string or None"),  # type: ignore[arg-type]
        (lambda: rollbook.execute("true", fanout=1.5), "fanout must be an integer"),  # type: ignore[arg-type]
        (lambda: rollbook.take_bundle(limits=3), "limits must be Limits or None"),  # type: ignore[arg-type]
        (lambda: rollbook.query("x", 3), "sql must be a string"),  # type: ignore[arg-type]
        (lambda: rollbook.mark(3), "name must be a string"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types(call: Callable[[], object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument of the wrong type is a `TypeError` that names it, before anything is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=message):
        call()
    assert not list(tmp_path.iterdir())


def test_bare_string_is_one_item(tmp_path: Path) -> None:
    """A bare string is one source, one table or one option of ssh, not a list of characters."""
    assert rollbook.snapshot(sources="meminfo").hosts[0].facts.keys() == {"meminfo"}
    assert (
        Options.of(ssh_options="Port=1")
        == Options.of(ssh_options=["Port=1"])
        == Options(given={"ssh_options": ("Port=1",)})
    )
    with rollbook.record(results_dir=tmp_path, interval=0, report=False) as recording:
        pass
    assert rollbook.export(recording.record, tmp_path / "out", "csv", "hosts") == [tmp_path / "out" / "hosts.csv"]


@pytest.mark.filterwarnings("error")
def test_inside_a_running_loop(tmp_path: Path) -> None:
    """`run` raises an error that suggests `asyncio.to_thread`, which works."""

    async def main() -> None:
        with pytest.raises(UsageError, match=r"await asyncio\.to_thread\(rollbook\.run, "):
            rollbook.run(["true"], results_dir=tmp_path / "none")
        ran = await asyncio.to_thread(rollbook.run, ["true"], results_dir=tmp_path, interval=0, report=False)
        assert ran.exit_code == 0

    asyncio.run(main())
    assert not (tmp_path / "none").exists()


def test_recording_that_did_not_start_leaves_no_files(tmp_path: Path) -> None:
    """A recording has no path before it is entered; one that cannot start leaves no files."""
    waiting = rollbook.record(results_dir=tmp_path)
    with pytest.raises(UsageError, match="when the `with` block is entered"):
        _ = waiting.path
    with pytest.raises(UsageError, match="no transport"), rollbook.record(results_dir=tmp_path, via="nope"):
        pass
    assert not list(tmp_path.glob("*/*"))


def test_internal_error_at_the_start_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error reaches the caller, and no files are left."""

    def fail(_: Recorder) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Recorder, "__aenter__", fail)
    with pytest.raises(ZeroDivisionError), rollbook.record(results_dir=tmp_path):
        pass
    assert not list(tmp_path.glob("*/*"))


def test_a_recording_is_entered_once(tmp_path: Path) -> None:
    """It cannot be entered again, inside of its block or after it; the record is complete."""

    async def again(recording: Recording) -> None:
        async with recording:
            pass

    with rollbook.record(results_dir=tmp_path, interval=0, report=False) as recording:
        with pytest.raises(UsageError, match="entered once"), recording:
            pass
        with pytest.raises(UsageError, match="entered once"):
            asyncio.run(again(recording))
    with pytest.raises(UsageError, match="entered once"), recording:
        pass
    assert list(tmp_path.glob("*/*")) == [recording.path]
    assert was_read(recording.record.hosts.end[0])


def test_paths_and_bytes_in_a_command(tmp_path: Path) -> None:
    """They are accepted as arguments and recorded as text."""
    argv: list[str | bytes | Path] = [Path("/bin/sh"), "-c", 'test "$0" = here', b"here"]
    recording = rollbook.run(argv, results_dir=tmp_path, interval=0, report=False)
    assert (recording.exit_code, recording.argv) == (0, ["/bin/sh", "-c", 'test "$0" = here', "here"])


def test_a_journal_that_fails_as_the_command_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is that of the command, and the record is finished."""
    end = Recorder.end

    async def fail(self: Recorder, *, facts: bool, seconds: float | None = None) -> None:
        await end(self, facts=False, seconds=seconds)
        if facts:
            raise RecordError("the disk is gone")

    monkeypatch.setattr(Recorder, "end", fail)
    recording = rollbook.run(["sh", "-c", "exit 4"], results_dir=tmp_path, interval=0, report=False)
    assert (recording.exit_code, recording.recording_error, recording.finish_error) == (4, "the disk is gone", "")
    assert recording.record.metadata["exit_code"] == 4


def test_marks(tmp_path: Path) -> None:
    """Threads and the loop can set marks, with the time of the call; invalid names and calls outside the block fail."""

    async def main() -> rollbook.Record:
        async with rollbook.record(results_dir=tmp_path, interval=0, report=False) as recording:
            before = time.time_ns()
            recording.mark("from the loop")
            after = time.time_ns()
            time.sleep(0.2)  # noqa: ASYNC251 - a harness may do so
            await asyncio.to_thread(recording.mark, "from a thread")
            with pytest.raises(UsageError, match="printable"):
                recording.mark("a\nb")
        marked = {phase.name: phase.start_ns for phase in recording.record.hosts.phases}
        assert list(marked) == ["from the loop", "from a thread"]
        assert before <= marked["from the loop"] <= after
        with pytest.raises(UsageError, match="inside the `with` block"):
            recording.mark("too late")
        return recording.record

    asyncio.run(main())
    outside = rollbook.record(results_dir=tmp_path, interval=0, report=False)
    with pytest.raises(UsageError, match="inside the `with` block"):
        outside.mark("too early")
    with outside:
        pass
    with pytest.raises(UsageError, match="inside the `with` block"):
        outside.mark("too late")


def test_mark_without_a_recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Outside of a run it is a usage error; if the recorder is gone, the command warns and exits with status 0."""
    monkeypatch.delenv("ROLLBOOK_SOCKET", raising=False)
    with pytest.raises(UsageError):
        rollbook.mark("x")
    monkeypatch.setenv("ROLLBOOK_SOCKET", str(tmp_path / "gone"))
    with pytest.raises(RecordError, match="does not answer"):
        rollbook.mark("x")
    argv = [*ROLLBOOK, "mark"]
    done = subprocess.run([*argv, "x"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        0,
        "rollbook: the collector does not answer: No such file or directory\n",
    )
    done = subprocess.run([*argv, ""], capture_output=True, text=True, check=False)
    assert (done.returncode, "printable" in done.stderr) == (2, True)


def test_command_outside_of_the_main_thread(tmp_path: Path) -> None:
    """Signals cannot be handled there; the exit code is recorded as usual."""
    exit_codes: list[int | None] = []

    def work() -> None:
        recording = rollbook.run(["sh", "-c", "exit 4"], results_dir=tmp_path, interval=0, report=False)
        exit_codes.extend([recording.exit_code, recording.record.metadata["exit_code"]])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert exit_codes == [4, 4]


def test_invalid_exports(tmp_path: Path) -> None:
    """Unknown formats, tables for a format without tables, and unwritable paths are errors; valid exports work."""
    with rollbook.record(results_dir=tmp_path, interval=0.2, report=False) as recording:
        time.sleep(0.5)
    with pytest.raises(UsageError, match="unknown format 'xlsx'"):
        rollbook.export(recording.record, tmp_path / "out", "xlsx")
    with pytest.raises(UsageError, match="cannot be selected for timeseries"):
        rollbook.export(recording.path, tmp_path / "out", "timeseries", ["rates"])
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write to"):
        rollbook.export(recording.path, tmp_path / "file", "csv")
    assert rollbook.export(recording.path, tmp_path / "out.json", "timeseries") == [tmp_path / "out.json"]
    assert rollbook.query(str(recording.path), "SELECT 1 AS one") == [{"one": 1}]
    assert rollbook.open_record(str(recording.path)).path == recording.path


def test_query_errors_equal_those_of_the_command(tmp_path: Path) -> None:
    """Rows that JSON cannot represent raise the same error in Python and on the command line."""
    with rollbook.record(results_dir=tmp_path, interval=0, report=False) as recording:
        pass
    for sql, message in (
        ("SELECT now()", "a time with a zone"),
        ("SELECT 1 AS a, 2 AS a", "two columns are called a"),
        ("SELECT host::INT FROM hosts", "Could not convert"),
    ):
        with pytest.raises(UsageError, match=message):
            rollbook.query(recording.record, sql)
        ran = CliRunner().invoke(cli, ["query", str(recording.path), sql, "--format", "json"])
        assert isinstance(ran.exception, UsageError)
        assert message in str(ran.exception)
