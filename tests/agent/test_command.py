"""Commands of the user run by the agent: exact arguments, both streams, limits, and no processes left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollbook.agent.command import Command
from rollbook.protocol.command import command_order
from rollbook.protocol.frames import Frame
from rollbook.protocol.visit import parse_fields
from tests.support.agents import HandAgent
from tests.support.waits import is_alive, until

SEQUENCE = "".join(f"{number}\n" for number in range(1, 5001)).encode()


def run(*argv: str | bytes, seconds: float = 0.0, limit: int = 1 << 20) -> tuple[dict[str, str], bytes, bytes]:
    """Run a command and return the fields of its end frame, its stdout and its stderr."""
    with HandAgent() as hand:
        send(hand, *argv, seconds=seconds, limit=limit)
        end = parse_fields(hand.kind("X").payload)
        return end, stream(hand.frames, b"o"), stream(hand.frames, b"e")


def send(hand: HandAgent, *argv: str | bytes, seconds: float = 0.0, limit: int = 1 << 20) -> None:
    """Order the agent to run a command."""
    assert hand.process.stdin is not None
    arguments = tuple(os.fsdecode(argument) for argument in argv)
    hand.process.stdin.write(command_order(arguments, seconds, limit))


def stream(frames: list[Frame], name: bytes) -> bytes:
    """Join the output of one stream."""
    return b"".join(frame.payload[1:] for frame in frames if frame.kind == "O" and frame.payload[:1] == name)


def test_streams_and_status() -> None:
    """Output and exit status are those of the command; stdin is empty."""
    end, out, err = run("sh", "-c", "cat; printf out; printf err >&2; exit 3")
    assert (end["status"], end["dropped"], end["timed_out"]) == ("3", "0", "0")
    assert (out, err) == (b"out", b"err")


def test_arguments_are_exact() -> None:
    """No shell interprets them: spaces, tabs, newlines, backslashes, quotes, globs and invalid UTF-8 are kept."""
    arguments: list[str | bytes] = ["a b", "tab\tnewline\n", r"\t \\n \\", "'\"$HOME`*", "", "ä", b"\xff\xfe"]
    _, out, _ = run("printf", r"%s\0", *arguments)
    assert out.split(b"\0")[:-1] == [os.fsencode(argument) for argument in arguments]


@pytest.mark.parametrize(("program", "status"), [("/no/such", "127"), ("/etc/passwd", "126")])
def test_a_program_that_cannot_run(program: str, status: str) -> None:
    """The exit status is that of a shell, and stderr has the reason."""
    end, _, err = run(program)
    assert end["status"] == status
    assert err.startswith(f"cannot run {program}: ".encode())


def test_killed_by_a_signal() -> None:
    """The status is the negative number of the signal."""
    assert run("sh", "-c", "kill -TERM $$")[0]["status"] == "-15"


def test_output_beyond_the_limit() -> None:
    """The first bytes are kept, the rest is counted, and the command is not stopped."""
    end, out, _ = run("sh", "-c", "head -c 3000000 /dev/zero; exit 5", limit=1000)
    assert len(out) == 1000
    assert (end["status"], end["dropped"]) == ("5", "2999000")


def test_output_is_sent_while_the_command_runs() -> None:
    """A line is not held back until the command ends."""
    with HandAgent() as hand:
        send(hand, "sh", "-c", "echo first; sleep 600")
        assert hand.kind("O").payload == b"ofirst\n"


def test_small_writes_are_batched() -> None:
    """A thousand lines do not become a thousand frames."""
    with HandAgent() as hand:
        send(hand, "sh", "-c", "i=0; while [ $i -lt 1000 ]; do echo $i; i=$((i+1)); done")
        hand.kind("X")
        assert stream(hand.frames, b"o").count(b"\n") == 1000
        assert sum(frame.kind == "O" for frame in hand.frames) < 100


def test_a_command_that_closes_its_output() -> None:
    """The agent waits for the command's exit status."""
    assert run("sh", "-c", "exec >/dev/null 2>&1; sleep 0.6; exit 4")[0]["status"] == "4"


def test_a_process_that_outlives_the_command() -> None:
    """A background process does not delay the end of the command, and is killed then."""
    end, out, _ = run("sh", "-c", "sleep 600 & echo $!; exit 2")
    assert end["status"] == "2"
    until(lambda: not is_alive(int(out)))


def test_output_that_stays_open(tmp_path: Path) -> None:
    """The command ends although a process that left its group holds its output open."""
    left = tmp_path / "left"
    script = f"setsid sh -c 'echo $$; touch {left}; exec sleep 600' & until [ -e {left} ]; do sleep 0.05; done; exit 2"
    end, out, _ = run("sh", "-c", script)
    assert end["status"] == "2"
    assert is_alive(int(out))
    os.kill(int(out), signal.SIGKILL)


def test_timeout_kills_the_process_group() -> None:
    """At its timeout a command is killed with every process that it started."""
    with HandAgent() as hand:
        send(hand, "sh", "-c", "sleep 600 & echo $!; sleep 600", seconds=10.0)  # time to print the id
        end = parse_fields(hand.kind("X").payload)
        assert end["timed_out"] == "1"
        until(lambda: not is_alive(int(stream(hand.frames, b"o"))))


@pytest.mark.parametrize("how", ["closed", "SIGTERM", "SIGKILL"])
def test_commands_end_with_the_agent(how: str) -> None:
    """When the connection closes or the agent is killed, the command and its child processes are killed."""
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


def test_output_in_the_pipe_when_the_command_has_ended() -> None:
    """A busy agent may find that the command has ended before it has read all of its output: nothing is lost."""
    sent: list[tuple[bytes, bytes]] = []
    out = SimpleNamespace(frame=lambda kind, payload: sent.append((kind, payload)))
    agent: Any = SimpleNamespace(children=[], out=out, reader=None)
    command = Command(agent, "0", "1000000", "sh", "-c", "seq 5000; printf err >&2")
    os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
    command.check()
    assert b"".join(data[1:] for kind, data in sent if kind == b"O" and data[:1] == b"o") == SEQUENCE
    assert [data for kind, data in sent if kind == b"O" and data[:1] == b"e"] == [b"eerr"]
    assert sent[-1] == (b"X", b"status=0\ndropped=0\ntimed_out=0\n")
