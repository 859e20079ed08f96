"""`rollbook run` at a terminal: keys, signals, size and job control reach the command; its output is never cut."""

from __future__ import annotations

import concurrent.futures
import fcntl
import functools
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import IO

import pytest

from rollbook.collect import command
from rollbook.journal.state import is_unfinished
from rollbook.records.record import Record
from tests.support.commands import MAIN, ROLLBOOK
from tests.support.records import is_whole, was_read
from tests.support.waits import until, until_sampled

RUN = [*ROLLBOOK, "run", "--results-dir", "out", "--skip-timeseries", "--no-report"]
SERIES = [*ROLLBOOK, "run", "--results-dir", "out", "--timeseries-interval", "0.2", "--no-report"]
CTRL_C, CTRL_Z, CTRL_BACKSLASH = b"\x03", b"\x1a", b"\x1c"
DEAF = ["--ssh-option", "HostName=127.0.0.1", "--ssh-option", "Port=9"]
SILENT = ["--ssh-option", "ProxyCommand=sleep 60"]  # a host that never answers
PATIENCE = 90  # the machine may be busy


class Terminal:
    """A program that leads a session with its own terminal; the test types and reads."""

    def __init__(self, directory: Path, argv: list[str]) -> None:
        self.text = b""
        self._at = 0
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.execvp(argv[0], argv)
        self.resize(33, 101)

    def resize(self, rows: int, columns: int) -> None:
        """Resize the terminal, as a window does."""
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        """Type keys."""
        os.write(self.fd, keys)

    def until(self, words: bytes, seconds: float = PATIENCE) -> bytes:
        """Read until the text appears after that of the previous call; returns all text so far."""
        deadline = time.monotonic() + seconds
        while self.text.find(words, self._at) < 0:
            assert time.monotonic() < deadline, self.text.decode("utf-8", "replace")
            assert self._read(), self.text.decode("utf-8", "replace")
        self._at = self.text.find(words, self._at) + len(words)
        return self.text

    def end(self) -> int:
        """Read to the end; returns the exit code as a shell reports it."""
        deadline = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < deadline, self.text.decode("utf-8", "replace")
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _read(self) -> bool:
        ready, _, _ = select.select([self.fd], [], [], 1.0)
        if not ready:
            return True
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            return False
        self.text += data
        return bool(data)


def only_record(directory: Path) -> Record:
    """The one record below a directory."""
    [path] = (directory / "out").glob("*/*")
    return Record.open(path)


def trapping(name: str) -> list[str]:
    """A command that prints a line when it gets a signal, and exits with 5."""
    return ["sh", "-c", f"trap 'echo heard; exit 5' {name}; echo ready; while :; do sleep 0.1; done"]


@pytest.mark.parametrize(("name", "key"), [("INT", CTRL_C), ("QUIT", CTRL_BACKSLASH), ("TERM", None), ("USR1", None)])
def test_signals_reach_the_command(tmp_path: Path, name: str, key: bytes | None) -> None:
    """Typed or sent; the command ends in its own way, then the record is finished."""
    terminal = Terminal(tmp_path, [*RUN, "--", *trapping(name)])
    terminal.until(b"ready")
    if key is not None:
        terminal.type(key)
    else:
        os.kill(terminal.pid, signal.Signals[f"SIG{name}"])
    assert terminal.end() == 5
    assert terminal.text.count(b"heard") == 1
    assert was_read(only_record(tmp_path).hosts.end[0])


def test_ctrl_c_is_delivered_once_without_a_terminal_on_stdin(tmp_path: Path) -> None:
    """The kernel has already sent it to the command; mpirun would abort at a second one."""
    code = "import signal,time; heard = []; signal.signal(signal.SIGINT, lambda *_: heard.append(print('heard'))); "
    code += "print('ready', flush=True); [time.sleep(0.1) for _ in range(600) if not heard]; time.sleep(1)"
    line = " ".join(["exec", *(f"'{word}'" for word in RUN), "--", sys.executable, "-c", f'"{code}"', "</dev/null"])
    terminal = Terminal(tmp_path, ["sh", "-c", line])
    terminal.until(b"ready")
    terminal.type(CTRL_C)
    assert terminal.end() == 0
    assert terminal.text.count(b"heard") == 1


def test_a_second_ctrl_c_skips_the_end_snapshot(tmp_path: Path) -> None:
    """The rest of the record is complete, and the agent had time to report its overhead."""
    script = "n=0; trap 'n=$((n+1)); echo heard $n' INT; echo ready; while [ $n -lt 2 ]; do sleep 0.1; done; exit 6"
    terminal = Terminal(tmp_path, [*SERIES, "--", "sh", "-c", script])
    terminal.until(b"ready")
    until_sampled(tmp_path / "out", hosts=1, samples=3)
    for number in (b"1", b"2"):
        terminal.type(CTRL_C)
        terminal.until(b"heard " + number)
    assert terminal.end() == 6
    record = only_record(tmp_path)
    assert record.hosts.end == []
    assert any("the end facts were skipped" in note for note in record.metadata["notes"])
    series = record.hosts.series[0]
    assert is_whole(series)
    assert series.cost is not None


def test_ctrl_c_before_the_command_starts(tmp_path: Path) -> None:
    """Pending hosts are shown. No command ran: no record is left, and the exit code is 130."""
    terminal = Terminal(tmp_path, [*RUN, "--via", "ssh", "-w", "nowhere", *SILENT, "--", "touch", "ran"])
    terminal.until(b"0 of 1 host")
    terminal.until(b"waiting for nowhere")
    terminal.type(CTRL_C)
    assert terminal.end() == 130
    assert b"\ninterrupted: the command was not started, and nothing was recorded" in terminal.text
    assert b"Traceback" not in terminal.text
    assert not list(tmp_path.glob("out/*/*"))
    assert not (tmp_path / "ran").exists()


def test_size(tmp_path: Path) -> None:
    """The command's terminal has the size of ours, and the command is notified of changes."""
    code = "import os,signal,time; show=lambda *_: print('size', *os.get_terminal_size(1), flush=True); show(); "
    # Not signal.pause: a signal that arrives just before it would be shown only after the next one.
    code += "signal.signal(signal.SIGWINCH, show); print('ready', flush=True); [time.sleep(0.05) for _ in range(4000)]"
    terminal = Terminal(tmp_path, [*RUN, "--", sys.executable, "-c", code])
    terminal.until(b"size 101 33")
    terminal.until(b"ready")
    terminal.resize(44, 122)
    terminal.until(b"size 122 44")
    terminal.type(CTRL_C)
    terminal.end()


def test_size_without_a_terminal_to_read_from(tmp_path: Path) -> None:
    """A command in a pipe still has a terminal as wide as the one it writes to."""
    code = "import os; print('size', *os.get_terminal_size(1))"
    line = " ".join(["echo | exec", *(f"'{word}'" for word in RUN), "--", sys.executable, "-c", f'"{code}"'])
    terminal = Terminal(tmp_path, ["sh", "-c", line])
    terminal.until(b"size 101 33")
    assert terminal.end() == 0


def test_job_control(tmp_path: Path) -> None:
    """Ctrl-Z stops command and recorder, `fg` continues both; no host counts as lost meanwhile."""
    silence = 3.0
    main = f"from rollbook.collect import stream; stream.SILENCE = {silence}; {MAIN}"
    terminal = Terminal(tmp_path, ["bash", "--norc", "--noediting", "-i"])
    script = "while [ ! -e go ]; do sleep 0.1; done; sleep 1; exit 7"
    line = " ".join(
        [
            "PS1=; set -m;",
            *(f"'{main if word == MAIN else word}'" for word in SERIES),
            "--",
            "sh",
            "-c",
            f'"{script}"'.replace("$", "\\$"),
        ]
    )
    terminal.type(line.encode() + b"\n")
    until_sampled(tmp_path / "out", hosts=1, samples=3)
    terminal.type(CTRL_Z)
    terminal.until(b"Stopped")
    time.sleep(silence + 1)  # longer than an agent may be silent
    (tmp_path / "go").touch()
    terminal.type(b"fg\n")
    terminal.until(b"record    ")
    terminal.type(b"echo co''de $?\n")
    terminal.until(b"code 7")
    terminal.type(b"exit\n")
    terminal.end()
    series = only_record(tmp_path).hosts.series[0]
    assert len(series.boot_ids) == 1
    assert not [gap for gap in series.gaps if "lost" in gap.why], series.gaps


def test_an_interactive_shell_has_job_control(tmp_path: Path) -> None:
    """It has the terminal itself: it prints no warning, and its jobs can be moved and interrupted."""
    terminal = Terminal(tmp_path, [*RUN, "--", "bash", "--norc", "--noediting"])
    terminal.until(b"bash-")
    terminal.type(b"sleep 300 &\n")
    terminal.until(b"[1]")
    terminal.type(b"fg; echo interrup''ted\n")
    terminal.until(b"sleep 300\r\n")
    until(lambda: Path(f"/proc/{os.tcgetpgrp(terminal.fd)}/comm").read_text() == "sleep\n")
    terminal.type(CTRL_C)
    terminal.until(b"bash-")
    terminal.type(b"kill -0 %1 || exit 9\n")
    assert terminal.end() == 9
    assert b"job control" not in terminal.text
    record = only_record(tmp_path)
    assert was_read(record.hosts.end[0])
    assert (record.path / "stdout.log").read_bytes() == command.NOT_LOGGED


@pytest.mark.parametrize(
    ("argv", "interactive"),
    [
        (["bash"], True),
        (["/bin/sh", "-l"], True),
        (["bash", "--rcfile", "x", "-i"], True),
        (["bash", "script"], False),
        (["bash", "-lc", "make"], False),
        (["python3"], False),
    ],
)
def test_shells_that_read_commands_from_the_terminal(argv: list[str], *, interactive: bool) -> None:
    """Those without a script and without -c."""
    assert command._is_interactive_shell(argv) == interactive


def test_a_terminal_that_is_closed(tmp_path: Path) -> None:
    """The command gets SIGPIPE, and the record is finished without a reader."""
    terminal = Terminal(tmp_path, [*RUN, "--", *trapping("HUP")])
    terminal.until(b"ready")
    os.close(terminal.fd)
    _, status = os.waitpid(terminal.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 5
    assert was_read(only_record(tmp_path).hosts.end[0])


def test_keys_reach_the_command(tmp_path: Path) -> None:
    """Prompts and echo are the same as without Rollbook."""
    terminal = Terminal(tmp_path, [*RUN, "--", "bash", "-c", "read -p name: x; read -s -p word: y; echo =$x=$y="])
    terminal.until(b"name:")
    terminal.type(b"ann\n")
    terminal.until(b"word:")
    terminal.type(b"secret\n")
    terminal.until(b"=ann=secret=")
    assert terminal.end() == 0
    assert re.findall(rb"secret", terminal.text) == [b"secret"]


def filled(pipe: IO[bytes], size: int) -> bool:
    """Whether there are at least this many bytes to read."""
    return bool(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0] >= size)


def test_stdout_and_stderr_stay_in_order(tmp_path: Path) -> None:
    """On one terminal the two streams share a channel, and the log of stdout has both."""
    script = "for i in 1 2 3 4 5 6 7 8 9; do echo out$i; echo err$i >&2; done"
    terminal = Terminal(tmp_path, [*RUN, "--", "sh", "-c", script])
    assert terminal.end() == 0
    expected = [word for number in range(1, 10) for word in (f"out{number}", f"err{number}")]
    assert re.findall(r"(?:out|err)\d", terminal.text.decode()) == expected
    record = only_record(tmp_path)
    assert (record.path / "stdout.log").read_text().split() == expected
    assert (record.path / "stderr.log").read_text() == ""


def test_a_slow_reader_loses_nothing(tmp_path: Path) -> None:
    """Output that waits in a pipe when the command ends is shown in full."""
    argv = [*RUN, "--", "sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        full = fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ)
        until(functools.partial(filled, process.stdout, full))
        time.sleep(2 * command.QUIET)  # long enough for output that stays away to be given up
        data = process.stdout.read()
    assert process.returncode == 0
    assert len(data) == 300_000
    assert (only_record(tmp_path).path / "stdout.log").stat().st_size == 300_000


def test_an_output_that_does_not_block_loses_nothing() -> None:
    """Another process may have made our output non-blocking: we still wait until a full pipe is read."""
    theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    with os.fdopen(theirs, "rb") as reader, concurrent.futures.ThreadPoolExecutor(1) as threads:
        written = threads.submit(command._show, ours, b"x" * 300_000)
        written.add_done_callback(lambda _: os.close(ours))
        time.sleep(0.2)  # until the pipe is full
        assert len(reader.read()) == 300_000
        assert written.result()


def test_a_reader_that_goes_away_ends_the_command(tmp_path: Path) -> None:
    """The command gets the same signal as without Rollbook; the record is finished with that exit status."""
    with subprocess.Popen([*RUN, "--", "yes"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(4) == b"y\ny\n"
        process.stdout.close()
        _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGPIPE, told
    run = only_record(tmp_path)
    assert run.metadata["exit_code"] == 128 + signal.SIGPIPE
    assert was_read(run.hosts.end[0])


CLOSED = {
    "success": ([*RUN[len(ROLLBOOK) :], "--", "true"], 0),
    "failure": ([*RUN[len(ROLLBOOK) :], "--", "sh", "-c", "exit 7"], 7),
    "repeats": ([*RUN[len(ROLLBOOK) :], "--repeat", "2", "--", "sh", "-c", "exit 7"], 7),
    "no host": (["snapshot", "--source", "uptime", "--via", "ssh", "-w", "nowhere", *DEAF], 4),
    "usage": (["snapshot", "--no-such-option"], 2),
}


@pytest.mark.parametrize("name", CLOSED)
def test_messages_that_nobody_reads(tmp_path: Path, name: str) -> None:
    """A closed stderr changes neither the exit code nor the record."""
    arguments, code = CLOSED[name]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*ROLLBOOK, *arguments], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=writer, check=False
        )
    finally:
        os.close(writer)
    assert done.returncode == code
    if arguments[0] == "run":
        records = list((tmp_path / "out").glob("*/*"))
        assert records
        assert not any(map(is_unfinished, records))


@pytest.mark.parametrize("buffered", [True, False])
def test_output_that_nobody_reads(tmp_path: Path, buffered: bool) -> None:
    """A reader that stops early is not an error, however short the output is."""
    reader, writer = os.pipe()
    os.close(reader)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    argv = [*ROLLBOOK, "snapshot", "--via", "local", "--source", "uptime"]
    try:
        done = subprocess.run(
            argv,
            cwd=tmp_path,
            env=environ if buffered else {**environ, "PYTHONUNBUFFERED": "1"},
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, "Broken pipe" in done.stderr) == (0, False)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_stops_early_does_not_change_the_exit_code(form: list[str]) -> None:
    """`rollbook … | grep -q` loses output, but neither the verdict nor what the command still has to do."""
    reader, writer = os.pipe()
    os.close(reader)
    argv = [*ROLLBOOK, "exec", "--via", "local", *form, "--", "echo out; exit 3"]
    try:
        done = subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    assert done.returncode == 1
    assert "exit status 3" in done.stderr


def test_a_child_left_behind_is_not_waited_for(tmp_path: Path) -> None:
    """It keeps our pipe open; the record is finished anyway."""
    began = time.monotonic()
    argv = [*RUN, "--", "sh", "-c", "sleep 300 & echo $!"]
    done = subprocess.run(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    os.kill(int(done.stdout), signal.SIGKILL)
    assert time.monotonic() - began < 200
    assert was_read(only_record(tmp_path).hosts.end[0])
