"""The connection to the supervisor of a lab, and the directory of the lab."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from rollbook.testing.lab.processes import started

__all__ = ["SupervisorClient"]

_PREFIX = "rollbook-lab-"


class SupervisorClient:
    """A directory for a lab, and a supervisor that outlives this process just long enough to remove all of it."""

    def __init__(self) -> None:
        _remove_stale()
        owner = f"{os.getpid()}-{started(os.getpid())}-"
        self.directory = Path(tempfile.mkdtemp(prefix=_PREFIX + owner))
        self._lock = threading.Lock()
        with (self.directory / "supervisor.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rollbook.testing.lab.supervisor", self.directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests: the supervisor tidies up after them
            )

    @property
    def pid(self) -> int:
        """The supervisor's process; its network namespace holds the switch ends of all links."""
        return self._process.pid

    def ask(self, do: str, **arguments: Any) -> Any:
        """Send a request to the supervisor; its error is raised here."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise OSError("the lab's supervisor is gone") from None
            answer = json.loads(self._process.stdout.readline() or b'{"error": "the lab\'s supervisor died"}')
        if "error" in answer:
            raise OSError(answer["error"])
        return answer["answer"]

    def close(self) -> None:
        """Let the supervisor take everything down, and wait until it has."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        log = (self.directory / "supervisor.log").open()
        self._process.stdin.close()
        code = self._process.wait(timeout=60)
        self._process.stdout.close()
        with log:
            if code:
                shutil.rmtree(self.directory, ignore_errors=True)
                raise OSError(f"the lab was not taken down: {log.read()}")


def _remove_stale() -> None:
    """Remove directories of labs whose owner and supervisor were both killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = re.fullmatch(rf"{_PREFIX}(\d+)-(\d+)-.*", path.name)
        if owner and started(int(owner[1])) != owner[2]:
            shutil.rmtree(path, ignore_errors=True)
