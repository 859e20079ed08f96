"""The scripts of a checkout: a failed stage does not stop the others, and phrases to rewrite are found."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# A program that notes its arguments, and fails if they contain the word in FAILING.
STUB = """#!/bin/sh
echo "${0##*/} $*" >>log
case "$0 $*" in *"$FAILING"*) exit 1 ;; esac
"""
STAGES = ["scripts/checks", "quick.xml", "lab.xml", "alone.xml"]
CHECKS = ["check .", "format --check .", "lint-imports", "scripts/wording", "scripts/docs --check", "mypy"]
TOOLS = ".venv/bin/ruff .venv/bin/lint-imports .venv/bin/mypy"


def run_with_stubs(directory: Path, script: str, stubs: str, failing: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of a script in which all other programs of the checkout are stubs."""
    (directory / "bench").mkdir()
    for name in stubs.split():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STUB)
        path.chmod(0o755)
    shutil.copy(ROOT / script, directory / script)
    environ = {**os.environ, "FAILING": failing, "TEST_RESULTS": ""}
    return subprocess.run([directory / script], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("script", "stubs", "stages"),
    [
        ("scripts/test", "scripts/setup scripts/checks scripts/flaky .venv/bin/python", STAGES),
        ("scripts/checks", "scripts/wording .venv/bin/python " + TOOLS, CHECKS),
    ],
)
def test_a_failed_stage_does_not_stop_the_others(tmp_path: Path, script: str, stubs: str, stages: list[str]) -> None:
    """Whichever stage fails, all run, the end lists it, and the exit code is 1; without a failure it is 0."""
    for number, failing in enumerate([*stages, "none"]):
        directory = tmp_path / str(number)
        directory.mkdir()
        done = run_with_stubs(directory, script, stubs, failing)
        log = (directory / "log").read_text()
        for stage in stages:
            assert stage.removeprefix("scripts/") in log, (failing, stage)
        _, listed, failed = done.stderr.partition("== failed\n")
        assert (done.returncode, bool(listed)) == ((0, False) if failing == "none" else (1, True)), done.stderr
        assert not listed or failing in failed


@pytest.mark.parametrize("name", ["before", "after"])
def test_phrases_to_rewrite(name: str) -> None:
    """Each example of the style guide is found as it was, and not as it is now."""
    path = ROOT / "tests" / "data" / "wording" / f"{name}.md"
    done = subprocess.run([ROOT / "scripts" / "wording", path], capture_output=True, text=True, check=False)
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if line.startswith("tests/data")}
    lines = path.read_text().count("\n")
    assert (done.returncode, found) == ((1, set(range(1, lines + 1))) if name == "before" else (0, set()))


def test_ignored_signals_do_not_reach_the_programs_under_test() -> None:
    """Under nohup, and in the background of a script, signals are ignored, and every program inherits that."""
    node = "tests/agent/test_sampling.py::test_stand_in_leaves_no_processes[dash-1]"
    ignoring = f"trap '' HUP INT QUIT; exec {sys.executable} -m pytest -q -p no:cacheprovider '{node}'"
    done = subprocess.run(["sh", "-c", ignoring], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_layers_are_drawn_as_they_are_checked() -> None:
    """docs/design.md shows the layers of pyproject.toml; the agent imports none of those that they leave to it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [layer.split(" | ") for layer in contracts[0]["layers"]]
    section = (ROOT / "docs/design.md").read_text().partition("\n## Layers\n")[2].partition("\n| question")[0]
    assert [line.split() for line in section.splitlines() if line.startswith("    ")] == layers
    [beside, *below] = layers[next(at for at, layer in enumerate(layers) if "agent" in layer) :]
    allowed = {*beside, *itertools.chain(*below)} - {"agent"}
    assert {f"rollbook.{name}" for name in allowed} == set(contracts[1]["forbidden_modules"])
