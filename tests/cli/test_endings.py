"""Endings of a run: signals while the record is written, a full disk, output without limit."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import rollbook
from rollbook.checks.verify import verify
from rollbook.records.record import Record
from tests.support.commands import MAIN
from tests.support.waits import SECONDS, until, until_sampled

OPTIONS = ["--results-dir", "out", "--no-report"]
FACTS = [*OPTIONS, "--skip-timeseries"]
# Finishing that announces itself and waits for a file, so that signals arrive in the middle of it.
SLOW = """
import os, sys, time, rollbook.api.finish as finish
from rollbook.cli import main
real = finish.finish
def slow(*arguments, **options):
    print("FINISHING", file=sys.stderr, flush=True)
    end = time.monotonic() + {seconds}
    while time.monotonic() < end and not os.path.exists("go"):
        time.sleep(0.01)
    return real(*arguments, **options)
finish.finish = slow
main()
"""


def start(directory: Path, seconds: float, command: list[str] | None) -> subprocess.Popen[str]:
    """`rollbook run`, or `record` without a command, with slow finishing."""
    verb = ["record", *OPTIONS, "--duration", "0.5"] if command is None else ["run", *FACTS, "--", *command]
    argv = [sys.executable, "-c", SLOW.format(seconds=seconds), *verb]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, cwd=directory, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def wait_for(process: subprocess.Popen[str], text: str) -> list[str]:
    """The lines on stderr up to the one that contains a text."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"{text} not in {lines}")


def only_record(directory: Path) -> Path:
    """The path of the one record below a directory."""
    [path] = (directory / "out").glob("*/*")
    return path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_one_signal_while_the_record_is_written(tmp_path: Path, number: signal.Signals) -> None:
    """The record is finished, the exit code is the command's, and there is no traceback."""
    process = start(tmp_path, 10 * SECONDS, ["sh", "-c", "exit 7"])
    before = wait_for(process, "FINISHING")
    assert "writing the record\n" in before
    process.send_signal(number)
    wait_for(process, "still writing the record; Ctrl-C again")
    (tmp_path / "go").touch()
    _, after = process.communicate(timeout=SECONDS)
    assert (process.returncode, "Traceback" in after) == (7, False), after
    path = only_record(tmp_path)
    assert Record.open(path).metadata["exit_code"] == 7
    assert verify(path).problems == []


@pytest.mark.parametrize(("command", "code"), [(["sh", "-c", "exit 7"], 7), (None, 130)])
def test_two_signals_leave_a_record_that_can_be_recovered(tmp_path: Path, command: list[str] | None, code: int) -> None:
    """The exit code is still the command's, and a message names the command that finishes the record."""
    process = start(tmp_path, 10 * SECONDS, command)
    wait_for(process, "FINISHING")
    process.send_signal(signal.SIGINT)
    wait_for(process, "still writing")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, after = process.communicate(timeout=SECONDS)
    assert time.monotonic() - began < SECONDS
    assert (process.returncode, "Traceback" in after, "ignored" in after) == (code, False, False), after
    path = only_record(tmp_path)
    assert f"rollbook recover {path}" in after
    assert rollbook.recover(path).metadata["exit_code"] == (None if command is None else code)


def test_a_signal_ends_repeats(tmp_path: Path) -> None:
    """The finished run is kept; the exit code shows that repeats are missing."""
    verb = ["run", *FACTS, "--repeat", "3", "--", "true"]
    argv, pipe = [sys.executable, "-c", SLOW.format(seconds=10 * SECONDS), *verb], subprocess.PIPE
    process = subprocess.Popen(argv, cwd=tmp_path, stderr=pipe, text=True, start_new_session=True)
    wait_for(process, "FINISHING")
    process.send_signal(signal.SIGTERM)
    wait_for(process, "still writing")
    (tmp_path / "go").touch()
    _, after = process.communicate(timeout=120)
    assert (process.returncode, "Traceback" in after) == (130, False), after
    assert "1 of 3 runs; stopped by Ctrl-C or a signal; rollbook compare " in after, "the run itself ended well"
    assert rollbook.open_record(only_record(tmp_path)).metadata["exit_code"] == 0


def test_signals_at_any_moment_after_the_command(tmp_path: Path) -> None:
    """From the end of the command to the end of the process, no signal changes the exit code."""
    process = start(tmp_path, 0.0, ["sh", "-c", "trap '' TERM; echo over >&2; exit 7"])
    wait_for(process, "over")
    over = threading.Event()

    def send() -> None:
        # The first is taken as a wish for a quick end; a second one while the record is written would abandon it.
        while not over.wait(0.002):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        _, after = process.communicate(timeout=SECONDS)
    finally:
        over.set()
        sender.join()
    assert process.returncode == 7, after
    assert "Traceback" not in after
    assert rollbook.open_record(only_record(tmp_path)).metadata["exit_code"] == 7


def test_output_is_capped_before_the_disk_is_full(tmp_path: Path) -> None:
    """The log ends with a mark, the terminal still gets everything, and the record is complete."""
    code = f"import rollbook.collect.command as command; command.RESERVE = 1 << 62; {MAIN}"
    argv = [sys.executable, "-c", code, "run", *FACTS, "--", "sh", "-c", "echo one; sleep 0.3; echo two"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n"), done.stderr
    path = only_record(tmp_path)
    assert (path / "stdout.log").read_text() == "\n[rollbook: log truncated here, the disk is nearly full]\n"
    assert verify(path).problems == []


def test_a_full_disk_is_the_reason_later_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is stored next to the journal, in a file whose space was reserved."""
    real, full = os.write, threading.Event()

    def write(fd: int, data: bytes) -> int:
        if full.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    with rollbook.record(results_dir=tmp_path, interval=0.1, report=False) as recording:
        assert (recording.path / "raw" / "failure").stat().st_size == 512
        until_sampled(tmp_path, hosts=1, samples=3)
        full.set()
        until(lambda: recording.recording_error)
        full.clear()
    assert "No space left on device" in recording.recording_error
    (recording.path / "manifest.json").unlink()
    record = rollbook.recover(recording.path)
    assert record.hosts.series[0].reason.startswith("recording ended early: No space left on device")
    assert "recording ended early: No space left on device" in record.metadata["notes"]


def test_secrets_of_the_command_line_are_masked(tmp_path: Path) -> None:
    """No file of the record contains them, not even the page and the journal; the command itself gets them."""
    command = ["sh", "-c", "test ${#2} = 10", "sh", "--password", "verysecret"]
    secrets = ["--ssh-option", "SetEnv=API_TOKEN=verysecret", "--ssh-option", "ProxyCommand=nc --token verysecret"]
    options = ["--results-dir", "out", "--interval", "0.2", *secrets]
    argv = [sys.executable, "-m", "rollbook", "run", *options, "--", *command]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    path = only_record(tmp_path)
    files = [file for file in path.rglob("*") if file.is_file()]
    assert {"report.html", "000001.seg"} <= {file.name for file in files}
    assert [file.name for file in files if b"verysecret" in file.read_bytes()] == []
    assert Record.open(path).metadata["executed_command"].endswith("--password '***'")
