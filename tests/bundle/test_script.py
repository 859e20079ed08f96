"""The collector script run by hand: after an interruption it can be run again."""

from __future__ import annotations

import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from rollbook.bundle.items import Item
from rollbook.bundle.script import collector_script
from rollbook.bundle.summary import Window
from tests.support.waits import SECONDS, until

SHELLS = ["dash", "bash", "busybox sh"]


def write_script(tmp_path: Path) -> None:
    """Write a script that waits for a file named `go`."""
    wait = f"while ! [ -e {tmp_path}/go ]; do sleep 0.1; done; echo done"
    item = Item(id="slow", title="", commands=(("sh", "-c", wait),), seconds=60)
    (tmp_path / "script").write_bytes(collector_script([item], Window(), seconds=120, size=1 << 20))


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(tmp_path: Path, shell: str, number: signal.Signals) -> None:
    """After a signal to its process group, as from a terminal, no files remain and the script can be run again."""
    write_script(tmp_path)
    argv, part = [*shell.split(), "script", "a.tar.gz"], tmp_path / "a.tar.gz.part"
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True) as process:
        until(part.exists)
        os.killpg(process.pid, number)
        process.communicate(timeout=SECONDS)
    assert process.returncode
    assert [path.name for path in tmp_path.iterdir()] == ["script"]
    (tmp_path / "go").touch()
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "wrote a.tar.gz\n", "")
    assert not part.exists()
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        assert len(archive.getnames()) == 2


def test_partial_archive_of_another_run(tmp_path: Path) -> None:
    """Another run may be writing the file: the script refuses to replace it."""
    write_script(tmp_path)
    (tmp_path / "a.tar.gz.part").write_text("x")
    argv = ["sh", "script", "a.tar.gz"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (2, "a.tar.gz.part exists; it is not replaced\n")
    assert (tmp_path / "a.tar.gz.part").read_text() == "x"
