"""Secrets are masked on the host: cases as data, for the agent, the shell stand-in and command lines."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rollbook import agent
from rollbook.agent.redaction import is_secret, mask_kernel_arguments, mask_mounts, mask_variable
from rollbook.protocol.redaction import mask_command_line

DATA = Path(__file__).parents[1] / "data" / "redaction"


def cases(name: str) -> list[Any]:
    """The cases of one file."""
    return [pytest.param(case, id=case["about"]) for case in json.loads((DATA / f"{name}.json").read_text())]


@pytest.mark.parametrize("case", cases("variables"))
def test_environment_variables(case: dict[str, str]) -> None:
    """By name, by form and inside addresses and connection strings."""
    assert mask_variable(case["name"], case["value"]) == case["masked"]


@pytest.mark.parametrize("case", cases("kernel"))
def test_kernel_arguments(case: dict[str, str]) -> None:
    """Secrets are masked, everything else stays."""
    assert mask_kernel_arguments(case["text"]) == case["masked"]


@pytest.mark.parametrize("case", cases("mounts"))
def test_mounts(case: dict[str, str]) -> None:
    """Sources and options, in each of the kernel's formats."""
    assert mask_mounts(case["text"]) == case["masked"]


@pytest.mark.parametrize("case", cases("command_lines"))
def test_command_lines(case: dict[str, list[str]]) -> None:
    """The wrapped command."""
    assert mask_command_line(case["argv"]) == case["masked"]
    assert "canary" not in " ".join(case["masked"])


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox sh"])
@pytest.mark.parametrize("form", ["kernel", "mounts", "variables"])
def test_the_stand_in_leaks_no_more(form: str, shell: str) -> None:
    """It hides every secret of the cases; a text without secrets stays as it is."""
    script = (Path(agent.__file__).parent / "standin.sh").read_text()
    script = script[script.index("mask() {") : script.index("\n}\n", script.index("mask() {")) + 3]
    for case in json.loads((DATA / f"{form}.json").read_text()):
        text = case.get("text") or "{name}={value}".format(**case).replace("\n", "\\n") + "\n"
        if form == "variables" and is_secret(case["name"]):
            continue  # the caller hides it
        argv = [*shell.split(), "-c", f"LC_ALL=C; {script}\nmask {form}"]
        result = subprocess.run(argv, input=text, capture_output=True, text=True, check=True)
        assert "canary" not in result.stdout, case["about"]
        if "canary" not in text and "<hidden>" not in text:
            assert result.stdout == text
