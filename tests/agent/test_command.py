"""Commands of the user under the agent: exact arguments, both streams, limits, and nothing left behind."""

from __future__ import annotations

import os
import signal
import time

import pytest

from rollbook.protocol.command import CommandOrder
from rollbook.protocol.frames import Frame
from rollbook.protocol.visit import parse_fields
from tests.support.agents import HandAgent
from tests.support.waits import SECONDS, is_alive, until


def run(*argv: str | bytes, seconds: float = 0.0, limit: int = 1 << 20) -> tuple[dict[str, str], bytes, bytes]:
    """Run a command to its end: the fields of its end frame, stdout and stderr."""
    with HandAgent() as hand:
        send(hand, *argv, seconds=seconds, limit=limit)
        end = parse_fields(hand.kind("X").payload)
        return end, stream(hand.frames, b"o"), stream(hand.frames, b"e")


def send(hand: HandAgent, *argv: str | bytes, seconds: float = 0.0, limit: int = 1 << 20) -> None:
    """Send the order."""
    assert hand.process.stdin is not None
    words = tuple(os.fsdecode(word) for word in argv)
    hand.process.stdin.write(CommandOrder(words, seconds, limit).encode())


def stream(frames: list[Frame], name: bytes) -> bytes:
    """One stream of the output."""
    return b"".join(frame.payload[1:] for frame in frames if frame.kind == "O" and frame.payload[:1] == name)


def test_streams_and_status() -> None:
    """Output and exit status are those of the command; stdin is empty."""
    end, out, err = run("sh", "-c", "cat; printf out; printf err >&2; exit 3")
    assert (end["status"], end["dropped"], end["timed_out"]) == ("3", "0", "0")
    assert (out, err) == (b"out", b"err")


def test_arguments_are_exact() -> None:
    """No shell reads them: blanks, tabs, newlines, backslashes, quotes, globs and bytes that are not UTF-8 arrive."""
    words: list[str | bytes] = ["a b", "tab\tnewline\n", r"\t \\n \\", "'\"$HOME`*", "", "ä", b"\xff\xfe"]
    _, out, _ = run("printf", r"%s\0", *words)
    assert out.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


@pytest.mark.parametrize(("program", "status"), [("/no/such", "127"), ("/etc/passwd", "126")])
def test_a_program_that_cannot_run(program: str, status: str) -> None:
    """The shell's exit statuses, and the reason on stderr."""
    end, _, err = run(program)
    assert end["status"] == status
    assert err.startswith(f"cannot run {program}: ".encode())


def test_killed_by_a_signal() -> None:
    """The status is the negative number of the signal."""
    assert run("sh", "-c", "kill -TERM $$")[0]["status"] == "-15"


def test_output_beyond_the_limit() -> None:
    """The first bytes are kept, the rest is counted, and the command runs to its end."""
    end, out, _ = run("sh", "-c", "head -c 3000000 /dev/zero; exit 5", limit=1000)
    assert len(out) == 1000
    assert (end["status"], end["dropped"]) == ("5", "2999000")


def test_output_is_not_held_back() -> None:
    """A line arrives while the command runs."""
    with HandAgent() as hand:
        send(hand, "sh", "-c", "echo first; sleep 600")
        assert hand.kind("O").payload == b"ofirst\n"


def test_many_small_writes_are_gathered() -> None:
    """A thousand lines do not become a thousand frames."""
    with HandAgent() as hand:
        send(hand, "sh", "-c", "i=0; while [ $i -lt 1000 ]; do echo $i; i=$((i+1)); done")
        hand.kind("X")
        assert stream(hand.frames, b"o").count(b"\n") == 1000
        assert sum(frame.kind == "O" for frame in hand.frames) < 100


def test_closed_output_is_not_the_end() -> None:
    """A command that closes its output is waited for."""
    assert run("sh", "-c", "exec >/dev/null 2>&1; sleep 0.6; exit 4")[0]["status"] == "4"


def test_a_process_that_outlives_the_command() -> None:
    """It neither delays the end nor survives it."""
    began = time.monotonic()
    end, out, _ = run("sh", "-c", "sleep 600 & echo $!; exit 2")
    assert end["status"] == "2"
    assert time.monotonic() - began < SECONDS
    until(lambda: not is_alive(int(out)))


def test_timeout_kills_the_group() -> None:
    """After its time a command is killed with all that it started."""
    with HandAgent() as hand:
        send(hand, "sh", "-c", "sleep 600 & echo $!; sleep 600", seconds=0.5)
        end = parse_fields(hand.kind("X").payload)
        assert end["timed_out"] == "1"
        until(lambda: not is_alive(int(stream(hand.frames, b"o"))))


@pytest.mark.parametrize("how", ["closed", "SIGTERM", "SIGKILL"])
def test_nothing_outlives_the_agent(how: str) -> None:
    """When the connection closes or the agent is killed, the command and what it started are killed."""
    with HandAgent() as hand:
        send(hand, "sh", "-c", "sleep 600 & echo $$ $!; sleep 600")
        pids = [int(word) for word in hand.kind("O").payload[1:].split()]
        assert all(map(is_alive, pids))
        if how == "closed":
            assert hand.process.stdin is not None
            hand.process.stdin.close()
        else:
            hand.process.send_signal(getattr(signal, how))
        until(lambda: not any(map(is_alive, pids)))
