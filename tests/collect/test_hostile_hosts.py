"""Hostile hosts with `exec`, `bundle` and `watch`: each is disconnected with a reason, other hosts are read."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import string
import subprocess
import sys
from pathlib import Path

import pytest

from rollbook.collect import execute
from tests.support.commands import ROLLBOOK, Rollbook
from tests.support.hostile_host import ATTACK, STARTED, fake_ssh
from tests.support.waits import SECONDS, until

COMMANDS = {
    "exec": ["exec", "--max-output", "100 KiB"],
    "bundle": ["bundle", "--item", "os", "--no-once", "--node-limit", "1 MiB"],
    "watch": ["watch", "--once", "--interval", "0.1"],
}
LAST = {"exec": ["--", "echo", "alive"], "bundle": [], "watch": []}
TOO_MUCH = "disconnected: the host sends more than .*, its budget"
GARBAGE = "the host sends garbage"
# The reason for which each behaviour is disconnected; a dict where commands differ.
REASONS: dict[str, str | dict[str, str]] = {
    "frames": "frames per second",
    "bytes": TOO_MUCH,
    "output": TOO_MUCH,
    "garbage": GARBAGE,
    "line": GARBAGE,
    "declared": GARBAGE,
    "bombs": GARBAGE,
    "samples": {"watch": "inflated data per second", "": TOO_MUCH},
    "files": {"bundle": "it sent too many files at a time", "": "frames per second"},
    "logs": {"bundle": "it sent a frame with too much data", "": TOO_MUCH},
    "message": r"root# \?gnp.exe\?31m bye",
}
CONTROL = set(ATTACK) - set(string.printable) | {"\r"}
OWN_STYLES = r"\x1b\[\d*m"
MAX_MEMORY, MAX_WRITTEN = 400 << 20, 32 << 20  # bytes, for eleven hostile hosts at a time


@pytest.fixture(autouse=True)
def _ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a fake ssh into PATH that reaches this machine."""
    fake_ssh(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv(STARTED, str(tmp_path / "started"))
    (tmp_path / "started").mkdir()


def arguments(command: str, hosts: list[str], tmp_path: Path) -> list[str]:
    """A command on hosts, with a timeout that is long enough for a busy machine."""
    output = ["-o", str(tmp_path / "bundle")] if command == "bundle" else []
    reach = ["--via", "ssh", "--timeout", "600", "-w", ",".join(hosts)]
    return [*COMMANDS[command], *output, *reach, *LAST[command]]


@pytest.mark.parametrize("command", COMMANDS)
def test_hosts_that_never_stop_sending(
    rollbook: Rollbook, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory and disk usage are bounded, no control characters are printed, and every host has its reason."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = rollbook(*arguments(command, ["fine", *(f"evil-{name}" for name in REASONS)], tmp_path))
    assert done.code == 3, done.err
    lines = done.err.splitlines()
    for name, expected in REASONS.items():
        reason = expected if isinstance(expected, str) else expected.get(command, expected[""])
        named = [line for line in lines if re.search(rf"evil-\S*\b{name}\b", line)]
        assert any(re.search(reason, line) for line in named), (name, named, done.err)
    assert not set(re.sub(OWN_STYLES, "", done.out + done.err)) & CONTROL
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_MEMORY >> 10
    if command == "exec":
        assert "--- fine (1 host)\nalive\n" in done.out
    elif command == "watch":
        assert re.search(r"^fine +up ", done.out, re.MULTILINE)
    else:
        [summary] = tmp_path.rglob("summary.json")
        status = {node["node"]: node["status"] for node in json.loads(summary.read_text())["results"]}
        assert status.pop("fine") == "complete"
        assert "complete" not in status.values()
        written = [path for path in tmp_path.rglob("*") if path.is_file()]
        outside = {path for path in written if not path.is_relative_to(summary.parent)}
        assert {path.relative_to(tmp_path).parts[0] for path in outside} == {"ssh", "started"}
        assert sum(path.stat().st_size for path in written) < MAX_WRITTEN


@pytest.mark.parametrize(("command", "reason"), [("exec", "interrupted"), ("bundle", "interrupted"), ("watch", "")])
def test_ctrl_c_with_hosts_that_never_answer(command: str, reason: str, tmp_path: Path) -> None:
    """One Ctrl-C ends the command although hosts keep connections open without an answer, or send without limit."""
    started = tmp_path / "started"
    argv = [*ROLLBOOK, *arguments(command, ["evil-drip", "evil-unfinished", "evil-bytes"], tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: len(list(started.iterdir())) == 3 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    if reason:
        assert re.search(rf"evil-\S*drip.*: {reason}", errors)


def test_an_agent_that_does_not_end_after_its_command(
    rollbook: Rollbook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of the command is complete; the collector does not wait forever for the agent."""
    monkeypatch.setattr(execute, "LEAVING", 0.2)
    done = rollbook(*arguments("exec", ["evil-stays"], tmp_path))
    assert (done.code, done.out.splitlines()[0]) == (0, "--- evil-stays (1 host)"), done.err
    assert not (tmp_path / "started" / "gave up").exists()
