"""Secrets are masked on the host: cases from data files, for the agent, the shell stand-in and command lines."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rollbook import agent
from rollbook.agent.reading import Tree
from rollbook.agent.redaction import (
    MASKED_FILES,
    is_secret,
    mask_kernel_arguments,
    mask_mounts,
    mask_variable,
)
from rollbook.agent.source import Source
from rollbook.protocol.readings import split_pages
from rollbook.protocol.redaction import mask_command_line
from tests.support.agents import HandAgent

DATA = Path(__file__).parents[1] / "data" / "redaction"


def cases(name: str) -> list[Any]:
    """Load the cases of one data file."""
    return [pytest.param(case, id=case["about"]) for case in json.loads((DATA / f"{name}.json").read_text())]


@pytest.mark.parametrize("case", cases("variables"))
def test_environment_variables(case: dict[str, str]) -> None:
    """Secrets are found by name, by format, and inside URLs and connection strings."""
    assert mask_variable(case["name"], case["value"]) == case["masked"]


@pytest.mark.parametrize("case", cases("kernel"))
def test_kernel_arguments(case: dict[str, str]) -> None:
    """Secrets are masked, everything else is unchanged."""
    assert mask_kernel_arguments(case["text"]) == case["masked"]


@pytest.mark.parametrize("case", cases("mounts"))
def test_mounts(case: dict[str, str]) -> None:
    """Secrets in sources and options are masked, in each of the kernel's formats."""
    assert mask_mounts(case["text"]) == case["masked"]


@pytest.mark.parametrize("case", cases("command_lines"))
def test_command_lines(case: dict[str, list[str]]) -> None:
    """Secrets in the arguments of the recorded command are masked."""
    assert mask_command_line(case["argv"]) == case["masked"]
    assert "canary" not in " ".join(case["masked"])


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox sh"])
@pytest.mark.parametrize("form", ["kernel", "mounts", "variables"])
def test_stand_in_masks_the_same_secrets(form: str, shell: str) -> None:
    """It masks every secret of the cases; text without secrets is unchanged."""
    script = (Path(agent.__file__).parent / "standin.sh").read_text()
    script = script[script.index("mask() {") : script.index("\n}\n", script.index("mask() {")) + 3]
    for case in json.loads((DATA / f"{form}.json").read_text()):
        text = case.get("text") or "{name}={value}".format(**case).replace("\n", "\\n") + "\n"
        if form == "variables" and is_secret(case["name"]):
            continue  # the caller masks it
        argv = [*shell.split(), "-c", f"LC_ALL=C; {script}\nmask {form}"]
        result = subprocess.run(argv, input=text, capture_output=True, text=True, check=True)
        assert "canary" not in result.stdout, case["about"]
        if "canary" not in text and "<hidden>" not in text:
            assert result.stdout == text


def test_the_agent_masks_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is masked whether it is read once, sampled or truncated."""
    path = tmp_path / "mounts"
    path.write_text("//u:canary@h/x /m cifs rw,password=canary 0 0\nfiler:/data /data nfs4 rw 0 0\n")
    monkeypatch.setitem(MASKED_FILES, str(path), mask_mounts)
    for limit in ("4096", "60"):
        source = Source("0", "1", limit, "1000")
        source.asks = [["read", str(path)]]
        for body in (source.pages(Tree()), source.sample()):
            assert b"canary" not in body
            assert b"//***@h/x /m cifs rw,password=*** 0 0\n" in body


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox sh"])
@pytest.mark.parametrize("sed", [b"sed", b"no-such-sed"])
def test_stand_in_without_sed_sends_nothing(shell: str, sed: bytes, tmp_path: Path) -> None:
    """With sed, secrets are masked; without it, the sources fail."""
    kernel, mounts = tmp_path / "kernel", tmp_path / "mounts"
    kernel.write_text("ro rd.iscsi.password=canary\n")
    mounts.write_text("//u:canary@h/x /m cifs rw 0 0\n")
    script = agent.stand_in().replace(b"sed -E", sed + b" -E")
    script = script.replace(b"/proc/cmdline", bytes(kernel)).replace(b"/proc/mounts", bytes(mounts))
    with HandAgent([*shell.split(), "-c", agent.remote_command("none")]) as hand:
        assert hand.process.stdin is not None
        hand.process.stdin.write(script)
        hand.order("source 0 0 4096 2000", f"read {kernel}", "source 1 0 4096 2000", f"read {mounts}", "go now")
        hand.kind("D")
        pages = [split_pages(body.partition(b"\n")[2])[0] for body in hand.readings().values()]
    if sed == b"sed":
        assert [data for _, _, data in pages] == [b"ro rd.iscsi.password=***\n", b"//***@h/x /m cifs rw 0 0\n"]
    else:
        assert [(status, data) for _, status, data in pages] == [("failed", b"")] * 2
