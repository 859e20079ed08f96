"""The tutorial: its commands are run in order and print what the tutorial shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from rollbook.testing import Lab
from tests.support.transcripts import matches, normalised

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"(?:^ {4}.*\n|^\n(?= {4}))+", re.MULTILINE)
COMMAND = re.compile(r"\A((?:.*\\\n)*.*)\n((?:.*\n)*)\Z")


def examples(text: str) -> Iterator[tuple[str, str]]:
    """Every command in the indented blocks, after `$ ` and with its continuation lines, and the output shown for it."""
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", textwrap.dedent(block), flags=re.MULTILINE)[1:]:
            yield COMMAND.sub(r"\1", part), COMMAND.sub(r"\2", part)


def test_tutorial(lab: Lab, tmp_path: Path) -> None:
    """A new user sees what the tutorial shows, apart from numbers, times and what it leaves out with `…`."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path), "ROLLBOOK_SSH_CONFIG": str(lab.ssh_config)}
    wrong = []
    for command, output in examples(TUTORIAL.read_text()):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if not matches(output, done.stdout):
            wrong.append(f"$ {command}\n{normalised(done.stdout)}--- the tutorial has\n{normalised(output)}")
    assert not wrong, "\n".join(wrong)
