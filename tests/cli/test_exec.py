"""`rollbook exec` on this machine: output, exit codes, Ctrl-C; other transports are in tests/lab."""

from __future__ import annotations

import asyncio
import functools
import json
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

import rollbook
from rollbook.cli.exec import LiveLines
from rollbook.errors import UsageError
from rollbook.hosts import Host
from tests.support.commands import ROLLBOOK, Rollbook
from tests.support.waits import SECONDS, is_alive, until, until_true

EXEC = [*ROLLBOOK, "exec", "--via", "local"]


@pytest.fixture
def run(rollbook: Rollbook) -> Rollbook:
    """`rollbook exec` on hosts that are all this machine."""
    return functools.partial(rollbook, "exec", "--via", "local")


def test_equal_output_is_folded(run: Rollbook) -> None:
    """One block per distinct output, with the nodeset of its hosts; stderr goes to stderr."""
    done = run("-w", "node[1-4]", "--", "echo out; echo err >&2")
    assert done.code == 0
    assert done.out == "--- node[1-4] (4 hosts)\nout\n"
    assert "--- node[1-4] (4 hosts, stderr)\nerr\n" in done.err
    assert "4 of 4 hosts complete; exit status 0 on 4" in done.err


def test_different_output_is_not_folded(run: Rollbook) -> None:
    """Hosts whose output differs have blocks of their own."""
    done = run("-w", "node[1-3]", "--", "echo $PPID")
    assert done.out.count("(1 host)") == 3


@pytest.mark.parametrize("live", [[], ["--live"]])
def test_output_into_a_pipe_is_unchanged(live: list[str], run: Rollbook) -> None:
    """Colours included; a terminal gets no control characters."""
    assert "\x1b[31mred\x1b[0m\n" in run(*live, "--", r"printf '\033[31mred\033[0m\n'").out


def test_exit_status_of_the_command(run: Rollbook) -> None:
    """A non-zero exit status is named on stderr, and the exit code is 1."""
    done = run("-w", "node[1-2]", "--", "sh", "-c", "exit 7")
    assert done.code == 1
    assert "exit status 7  node[1-2]" in done.err
    killed = run("--", "kill -KILL $$")
    assert killed.code == 1
    assert "killed by SIGKILL" in killed.err


def test_several_arguments_are_passed_exactly(run: Rollbook) -> None:
    """No shell reads them; a single one is a shell command."""
    assert run("--", "printf", "%s|", "a  b", "$HOME;", "*").out.splitlines()[1] == "a  b|$HOME;|*|"
    assert run("--", "printf '%s|' a b; echo").out.splitlines()[1] == "a|b|"


def test_a_program_that_does_not_exist(run: Rollbook) -> None:
    """The shell's exit status and the reason."""
    done = run("--", "no-such-program", "x")
    assert done.code == 1
    assert "cannot run no-such-program: No such file or directory" in done.err
    assert "exit status 127" in done.err


def test_live_lines_have_their_host(run: Rollbook) -> None:
    """Each line of both streams follows its host, even a last line without a newline."""
    done = run("--live", "-w", "node[1-2]", "--", "echo one; printf two; echo three >&2")
    assert sorted(done.out.splitlines()) == ["node1: one", "node1: two", "node2: one", "node2: two"]
    assert {"node1: three", "node2: three"} <= set(done.err.splitlines())


def test_many_live_lines_are_printed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that sends a million empty lines in a frame must not block the others with a million writes."""
    printed = list[str]()
    monkeypatch.setattr("click.echo", lambda text, **_: printed.append(text))
    lines = LiveLines()
    lines.add(Host("a"), False, b"1\n2\n3")
    lines.add(Host("a"), False, b"4")
    lines.end()
    assert printed == ["a: 1\na: 2\n", "a: 34\n"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_live_lines_are_not_held_back(number: signal.Signals) -> None:
    """A line is printed while the command runs; Ctrl-C or another signal then kills it."""
    argv = [*EXEC, "--live", "-w", "node1", "--", "echo $$; sleep 600"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name, _, pid = process.stdout.readline().partition(": ")
        assert name == "node1"
        process.send_signal(number)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "interrupted: the command was killed" in errors
    until(lambda: not is_alive(pid))


def test_a_signal_that_is_ignored() -> None:
    """Under nohup, the end of the terminal does not end the command."""
    argv = ["nohup", *EXEC, "--live", "-w", "node1", "--", "echo up; sleep 1; echo over"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "node1: up\n"
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (0, "node1: over\n")


def test_truncated_output_is_marked(run: Rollbook) -> None:
    """Output beyond the limit is dropped, and a message says so."""
    done = run("--max-output", "1 KiB", "--", "yes | head -c 5000")
    assert done.code == 0
    head, _, text = done.out.partition("\n")
    assert head.endswith("(1 host, truncated)")
    assert text == "y\n" * 512
    assert "3.88 KiB of output beyond --max-output dropped" in done.err


def test_a_command_that_takes_too_long(run: Rollbook) -> None:
    """It is killed after --command-timeout; what it printed is kept."""
    done = run("-w", "node1", "--command-timeout", "4", "--", "echo kept; sleep 600")
    assert done.code == 3
    assert "kept" in done.out
    assert "timed-out  node1: the command was killed after 4 s" in done.err


def test_stdin_is_not_consumed() -> None:
    """The command has an empty stdin, and the caller's stays unread."""
    shell = f"{shlex.join(EXEC)} -- cat 2>/dev/null; read line; echo rest $line"
    done = subprocess.run(["bash", "-c", shell], input="word\n", capture_output=True, text=True, check=True)
    assert done.stdout == "rest word\n"


def test_json(run: Rollbook) -> None:
    """Every host with status, exit status and both streams; bytes that are not UTF-8 are escaped."""
    done = run("--json", "-w", "node[1-2]", "--", r"printf 'a\377'; echo b >&2; exit 2")
    assert done.code == 1
    document = json.loads(done.out)
    assert document["schema"] == "rollbook.exec/1"
    for host in document["hosts"]:
        assert (host["status"], host["exit_status"]) == ("complete", 2)
        assert (host["stdout"], host["stderr"]) == ("a\\xff", "b\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--live", "--json", "--", "true"], "--live cannot be combined with --json"),
        (["--max-output", "many", "--", "true"], "is not a size"),
        (["--no-such-option", "true"], "put -- before the command"),
        (["--", " "], "the command is empty"),
        ([], "missing argument"),
    ],
)
def test_usage_errors(run: Rollbook, argv: list[str], message: str) -> None:
    """Exit code 2, before any host is contacted."""
    done = run(*argv)
    assert done.code == 2
    assert message in done.err


def test_hosts_without_python(run: Rollbook) -> None:
    """The stand-in does not run commands, and the reason names what is missing."""
    done = run("--python", "none", "-w", "node1", "--", "true")
    assert done.code == 4
    assert "failed  node1: commands need Python 3.6 or later on the host; set --python" in done.err


def test_a_reader_that_stops_early() -> None:
    """`rollbook exec --live … | head -1` ends the command."""
    argv = [*EXEC, "--live", "--", "echo $$; while sleep 0.1; do echo line; done"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = process.stdout.readline().partition(": ")[2].strip()
        process.stdout.close()
        process.wait(SECONDS)
    until(lambda: not is_alive(pid))


def test_a_command_that_is_not_utf_8(run: Rollbook) -> None:
    """It runs as it is, and the document has a replacement."""
    done = run("--json", "--", "echo '\udcff'")
    document = json.loads(done.out)
    assert (done.code, document["command"]) == (0, "echo '\ufffd'")
    assert document["hosts"][0]["stdout"] == "\\xff\n"


def test_live_output_that_cannot_be_written() -> None:
    """The command ends with the reason."""
    argv = [*EXEC, "--live", "--", "while sleep 0.1; do echo line; done"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "cannot write: No space left on device" in done.stderr
    assert "interrupted" not in done.stderr


def test_from_python() -> None:
    """`execute` takes a list or a shell command and returns typed results; a cancelled one kills the command."""
    done = rollbook.execute(["sh", "-c", "echo $1; exit 3", "sh", "a b"], "node[1-2]", via="local")
    assert [(host.name, host.exit_status, host.stdout) for host in done.hosts] == [
        ("node1", 3, "a b\n"),
        ("node2", 3, "a b\n"),
    ]
    assert done.exit_code == 1
    assert rollbook.execute("exit 0", via="local").exit_code == 0
    with pytest.raises(UsageError, match="NUL"):
        rollbook.execute(["a\0b"])
    with pytest.raises(UsageError, match="positive number"):
        rollbook.execute("true", command_timeout=0)


def test_a_cancelled_call_kills_the_command(tmp_path: Path) -> None:
    """No process of it is left."""
    file = tmp_path / "pid"

    async def main() -> None:
        work = asyncio.create_task(rollbook.execute_async(f"echo $$ >{file}; sleep 600", via="local"))
        await until_true(lambda: file.exists() and file.read_text().strip())
        work.cancel()
        await asyncio.wait([work])

    asyncio.run(main())
    until(lambda: not is_alive(file.read_text()))
