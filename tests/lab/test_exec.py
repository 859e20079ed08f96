"""`rollbook exec` over real sshd: each host's own output, every failure named, nothing left behind."""

from __future__ import annotations

import json
import signal
import subprocess

from rollbook.testing import Lab
from tests.support.commands import over_ssh
from tests.support.waits import until_no_processes


def test_output_and_failures(lab: Lab) -> None:
    """Equal output is folded; an unreachable host and one where the command fails are named; exit code 3."""
    script = 'case $(uname -n) in node03) echo other; exit 4;; esac; echo "$SSH_CONNECTION" | wc -w'
    argv = over_ssh(lab, "exec", [*lab.names, "nosuch.invalid"], "--", script)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "--- node[01-02,04-08] (7 hosts)\n4\n--- node03 (1 host)\nother\n"
    assert "exit status 4  node03" in done.stderr
    assert "unreachable  nosuch.invalid: the name does not resolve" in done.stderr
    assert "8 of 9 hosts complete, 1 unreachable; exit status 0 on 7" in done.stderr


def test_arguments_arrive_unchanged(lab: Lab) -> None:
    """Neither ssh nor the login shell expands or splits arguments."""
    words = ["a  b", "$HOME", "'\"", "*", "\\n", "tab\there", ""]
    argv = over_ssh(lab, "exec", lab.names[:2], "--json", "--", "printf", "%s|", *words)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert {host["stdout"] for host in json.loads(done.stdout)["hosts"]} == {"".join(f"{word}|" for word in words)}


def test_large_output(lab: Lab) -> None:
    """A few megabytes from each host arrive completely."""
    argv = over_ssh(lab, "exec", lab.names[:4], "--json", "--max-output", "8 MiB", "--", "seq 500000; seq 9 >&2")
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    expected = "".join(f"{number}\n" for number in range(1, 500_001))
    assert all(host["stdout"] == expected for host in json.loads(done.stdout)["hosts"])


def test_interrupted(lab: Lab) -> None:
    """Ctrl-C kills the command and its children on every host."""
    argv = over_ssh(lab, "exec", lab.names, "--live", "--", "sleep 4321 & echo up; sleep 4321")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in lab.hosts:
            assert process.stdout.readline().endswith(": up\n")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: the command was killed" in errors
    until_no_processes(lab.hosts)


def test_collector_is_killed(lab: Lab) -> None:
    """SIGKILL of the collector also ends the command on every host."""
    argv = over_ssh(lab, "exec", lab.names[:4], "--live", "--", "sleep 4321 & echo up; sleep 4321")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(4):
            process.stdout.readline()
        process.kill()
    until_no_processes(lab.hosts)


def test_agent_dies_during_a_command(lab: Lab) -> None:
    """The output so far is kept, the reason says that the agent is gone, and the command is not started again."""
    argv = over_ssh(lab, "exec", lab.names[:2], "--json", "--fallback", "ssh", "--", "echo up; kill -9 $PPID; sleep 9")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    for host in json.loads(done.stdout)["hosts"]:
        assert (host["status"], host["started"]) == ("failed", True)
        assert host["reason"].startswith("the agent is gone")
