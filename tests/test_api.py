"""The Python interface: the examples of its page run, and what goes wrong in a block leaves a record all the same."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import rollbook
from rollbook.errors import RecordError, UsageError

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_examples_run(tmp_path: Path) -> None:
    """All of them, one after the other, as they stand."""
    assert len(EXAMPLES) >= 6
    for example in EXAMPLES:
        argv = [sys.executable, "-W", "error::ResourceWarning", "-c", example]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, example + done.stderr
        assert "Traceback" not in done.stderr
        assert "Warning" not in done.stderr
    assert sorted(path.name for path in (tmp_path / "exported").iterdir()) == ["findings.csv", "rates.csv"]


def test_an_exception_in_the_block(tmp_path: Path) -> None:
    """It goes on its way, and the record is there."""
    with pytest.raises(ZeroDivisionError), rollbook.record(results=tmp_path, interval=0.2, report=False) as recording:
        raise ZeroDivisionError
    assert recording.run.hosts.end[0].status == "complete"


@pytest.mark.parametrize("interval", [0.05, -1.0, float("nan"), 1e9])
def test_intervals(tmp_path: Path, interval: float) -> None:
    """Those that make no sense are refused before there is anything on the disk."""
    with pytest.raises(UsageError, match="the time between samples"):
        rollbook.record(results=tmp_path / "out", interval=interval)
    assert not (tmp_path / "out").exists()


def test_marks(tmp_path: Path) -> None:
    """From threads and from the loop; the time is that of the call. Outside of the block, and without a name, none."""

    async def main() -> rollbook.Run:
        async with rollbook.record(results=tmp_path, interval=0.2, report=False) as recording:
            before = time.time_ns()
            recording.mark("from the loop")
            after = time.time_ns()
            time.sleep(0.5)  # noqa: ASYNC251 - a harness may do so
            await asyncio.to_thread(recording.mark, "from a thread")
            with pytest.raises(UsageError, match="printable"):
                recording.mark("a\nb")
            await asyncio.sleep(0.5)
        marked = {phase.name: phase.start_ns for phase in recording.run.hosts.phases}
        assert list(marked) == ["from the loop", "from a thread"]
        assert before <= marked["from the loop"] <= after
        return recording.run

    asyncio.run(main())
    outside = rollbook.record(results=tmp_path, interval=0.2, report=False)
    with pytest.raises(UsageError, match="inside the `with` block"):
        outside.mark("too early")
    with outside:
        pass
    with pytest.raises(UsageError, match="inside the `with` block"):
        outside.mark("too late")


def test_a_mark_without_a_recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Outside of a run it is a mistake; a recorder that is gone is another matter, and no failure of the command."""
    monkeypatch.delenv("ROLLBOOK_SOCKET", raising=False)
    with pytest.raises(UsageError):
        rollbook.mark("x")
    monkeypatch.setenv("ROLLBOOK_SOCKET", str(tmp_path / "gone"))
    with pytest.raises(RecordError, match="does not answer"):
        rollbook.mark("x")
    argv = [sys.executable, "-c", "from rollbook.cli import main; main()", "mark"]
    done = subprocess.run([*argv, "x"], capture_output=True, text=True, check=False)
    assert (done.returncode, "does not answer" in done.stderr) == (0, True)
    done = subprocess.run([*argv, ""], capture_output=True, text=True, check=False)
    assert (done.returncode, "printable" in done.stderr) == (2, True)


def test_a_command_outside_of_the_main_thread(tmp_path: Path) -> None:
    """There are no signals to handle there, and nothing else is different."""
    got: list[int] = []

    def work() -> None:
        recording, code = rollbook.run(["sh", "-c", "exit 4"], results=tmp_path, interval=0.2, report=False)
        got.extend([code, recording.run.metadata["exit_code"]])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert got == [4, 4]


def test_forms_that_are_not_there(tmp_path: Path) -> None:
    """They are said with those that are."""
    with rollbook.record(results=tmp_path, interval=0.2, report=False) as recording:
        time.sleep(0.5)
    with pytest.raises(UsageError, match="no form is called 'xlsx'"):
        rollbook.export(recording.run, tmp_path / "out", "xlsx")
    with pytest.raises(UsageError, match="cannot be chosen for timeseries"):
        rollbook.export(recording.path, tmp_path / "out", "timeseries", ["rates"])
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write to"):
        rollbook.export(recording.path, tmp_path / "file", "csv")
    assert rollbook.export(recording.path, tmp_path / "out.json", "timeseries") == [tmp_path / "out.json"]
    assert rollbook.query(str(recording.path), "SELECT 1 AS one") == [{"one": 1}]
