"""Conventions of the command line: exit codes, suggestions, messages, encodings, widths, completion."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from rollbook import adapters, cli
from rollbook.api.outputs import EXPORT_FORMATS
from rollbook.api.settings import Settings
from rollbook.bundle.items import parse_size
from rollbook.bundle.request import Limits
from rollbook.cli import bundle, export, record, run
from rollbook.cli.bundle_items import LIMITS
from rollbook.cli.output import terminal_width, wrapped
from tests.support.commands import Rollbook

ROLLBOOK = [sys.executable, "-m", "rollbook"]


def start(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command; its output as text."""
    return subprocess.run(
        [*ROLLBOOK, *argv], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_run(program: str, code: int, tmp_path: Path) -> None:
    """127 if it was not found, 126 if it cannot be executed, as in shells; no record is left."""
    done = start("run", "--results-dir", str(tmp_path), "--", program)
    assert (done.returncode, done.stderr.startswith(f"rollbook: cannot run {program}")) == (code, True)
    assert list(tmp_path.rglob("*.json")) == []


def test_a_mark_outside_a_run_warns() -> None:
    """A script with `set -e` works whether it is recorded or not; a bad name is an error everywhere."""
    done = start("mark", "load", ROLLBOOK_SOCKET="", ROLLBOOK_MARKS="")
    assert (done.returncode, done.stderr) == (0, "rollbook: no phase was marked: this is not inside `rollbook run`\n")
    assert start("mark", "").returncode == 2


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["snapsht"], "no such command: snapsht; did you mean snapshot?"),
        (["xyzzy"], "no such command: xyzzy; rollbook --help lists all"),
        (["snapshot", "--jsonn"], "no such option: --jsonn; did you mean --json?; see rollbook snapshot --help"),
        (["run", "--interva", "1", "--", "true"], "no such option: --interva; did you mean --interval?"),
        (["check", "--expect", "/nope", "x"], "cannot use --expect /nope: no such file"),
        (["check", "--silence", "/nope", "x"], "cannot use --silence /nope: no such file"),
        (["check", "--description", "/nope", "x"], "cannot use --description /nope: no such file"),
        (["run", "--sign", "/tmp", "--", "true"], "cannot use --sign /tmp: it is a directory"),
        (["snapshot", "-o", "x.yaml"], "cannot write x.yaml: a snapshot is a .json file, or a record in a results"),
    ],
)
def test_mistakes(rollbook: Rollbook, argv: list[str], message: str) -> None:
    """Every mistake is one line in the same style, with the closest name where there is one."""
    ended = rollbook(*argv)
    assert ended.code == 2
    assert ended.err.startswith(f"rollbook: {message}")
    assert ended.err.count("\n") == 1


def test_an_encoding_without_the_characters() -> None:
    """Characters that the terminal cannot show are replaced, and nothing fails."""
    done = start("snapshot", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "1 ? " in done.stdout


def test_colours_into_a_pipe() -> None:
    """Lines into a pipe are never wrapped, coloured or not."""
    done = start("snapshot", FORCE_COLOR="1", COLUMNS="40")
    assert "\x1b[" in done.stdout
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize(("columns", "width"), [("", 80), ("0", 80), ("60", 60), ("x", 80)])
def test_a_terminal_without_a_size(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    """Some tools report no size: lines then have 80 columns, and the summary of a run does not fail."""
    monkeypatch.setenv("COLUMNS", columns)
    ours, theirs = os.openpty()
    with os.fdopen(ours), os.fdopen(theirs, "w") as terminal:
        assert terminal_width(terminal) == width
        assert len(wrapped("word " * 40, terminal, 2).splitlines()) > 2


def test_only_columns_with_values(rollbook: Rollbook) -> None:
    """A snapshot of one source shows its columns; what was not read is null, not zero."""
    assert rollbook("snapshot", "--source", "meminfo").out.split()[:3] == ["host", "status", "memory"]
    assert '"total_cores": null' in rollbook("snapshot", "--source", "meminfo", "--json").out


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("rollbook run --type f", "fio"),
        ("rollbook snapshot --via ss", "ssh"),
        ("rollbook snapshot --fallback sl", "slurm"),
        ("rollbook snapshot --source mem", "meminfo"),
        ("rollbook check --explain host-o", "host-outlier"),
        ("rollbook sn", "snapshot"),
    ],
)
def test_completion(rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch, line: str, value: str) -> None:
    """The shell completes commands and the values of options."""
    words = line.split()
    monkeypatch.setenv("_ROLLBOOK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert f"plain,{value}" in rollbook().out.splitlines()


@pytest.mark.parametrize(
    "command", ["export", "report", "compare", "query", "list", "diff", "describe", "verify", "config", "snapshot"]
)
def test_options_of_the_output(rollbook: Rollbook, command: str) -> None:
    """Commands that contact no hosts group their options too: file, format and JSON are under one heading."""
    before, _, after = rollbook(command, "--help").out.partition("\nOutput:\n")
    section, _, rest = after.partition("\n\n")
    flags = ("  -o, --output ", "  --format ", "  --json ")
    assert any(flag in section for flag in flags)
    assert not any(flag in before + rest for flag in flags)


def test_defaults_are_those_of_the_python_functions() -> None:
    """An option has the default of the keyword that it stands for."""
    settings, limits = Settings(), Limits()
    names = ("fanout", "host_budget", "results_dir", "max_samples", "report", "push")
    values = defaults(record.command)
    assert {name: values[name] for name in names} == {name: getattr(settings, name) for name in names}
    assert values["timeout"] == settings.options.timeout
    values = defaults(bundle.command)
    sizes = {field: parse_size(values[name]) for name, field in LIMITS.items() if name != "run_timeout"}
    assert Limits(**sizes, run_seconds=values["run_timeout"]) == limits


def defaults(command: click.Command) -> dict[str, Any]:
    """The default of each option."""
    return {param.name or "": param.default for param in command.params}


def test_help_lists_every_name() -> None:
    """The help of an option names every built-in adapter or export format."""
    helps = {param.name: getattr(param, "help", "") for param in (*run.command.params, *export.command.params)}
    assert ", ".join(adapters.NAMES) in helps["benchmark"]
    assert set(EXPORT_FORMATS) <= set(re.findall(r"\w+", helps["output_format"]))


def test_json_is_declared_once() -> None:
    """All commands that print a document share one `--json`; only recordings, whose stdout is the command's, differ."""
    source = Path(cli.__path__[0])
    declared = sorted(path.name for path in source.glob("*.py") if '"--json"' in path.read_text())
    assert declared == ["options.py", "recording.py"]
