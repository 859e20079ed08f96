"""Issue reports through a launcher, with and without connecting back, and from a node without Python."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rollbook.cli import cli

MPIRUN = Path(sys.executable).with_name("mpirun")


@pytest.mark.parametrize("back", ["127.0.0.1", "none"])
def test_through_a_launcher(tmp_path: Path, back: str) -> None:
    """Agents that cannot connect back get their orders as arguments and send items as lines of output."""
    if not MPIRUN.exists():
        pytest.skip("needs Open MPI in this environment")
    more = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    argv = [
        "bundle",
        "--via",
        "mpi",
        "--mpi-bin",
        str(MPIRUN),
        "--connect-back",
        back,
        "-w",
        socket.gethostname(),
        *more,
    ]
    done = CliRunner().invoke(cli, [*argv, "--item", "os", "--command", "seq 30000", "--no-once", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    [file] = tmp_path.glob("bundle/*/nodes/*/command-1/*")
    assert file.read_text() == "".join(f"{number}\n" for number in range(1, 30001))


def test_a_node_without_python(tmp_path: Path) -> None:
    """The shell stand-in sends the facts; items are not read, and the node has the reason."""
    argv = [
        "bundle",
        "--via",
        "local",
        "--python",
        "none",
        "-w",
        "n1",
        "--item",
        "os",
        "--no-once",
        "-o",
        str(tmp_path),
    ]
    done = CliRunner().invoke(cli, argv)
    assert done.exit_code == 3, done.output
    [path] = tmp_path.glob("bundle/*/summary.json")
    [node] = json.loads(path.read_bytes())["results"]
    assert node["status"] == "partial"
    assert "no Python 3.6" in node["reason"]
    assert node["items"][0]["status"] == "not-read"
    assert json.loads((path.parent / "hosts.json").read_bytes())["start"][0]["facts"]
