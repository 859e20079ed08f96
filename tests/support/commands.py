"""The command line under test, as a program and in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import rollbook
from rollbook.hosts import fold

if TYPE_CHECKING:
    from rollbook.testing import Lab

__all__ = ["MAIN", "ROLLBOOK", "SOURCE", "Ended", "Rollbook", "over_ssh"]

SOURCE = Path(rollbook.__file__).parents[1]
"""The directory of the package: programs on lab hosts import parts of it."""

MAIN = "from rollbook.cli import main; main()"
ROLLBOOK = [sys.executable, "-c", MAIN]


class Ended(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Rollbook = Callable[..., Ended]
"""Runs a command in this process: the fixture `rollbook`."""


def over_ssh(lab: Lab, command: str, hosts: Sequence[str], *more: str) -> list[str]:
    """A command line that reaches hosts of the lab over ssh."""
    return [*ROLLBOOK, command, "--ssh-config", str(lab.ssh_config), "--via", "ssh", "-w", fold(hosts), *more]
