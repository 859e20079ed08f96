"""Programs of the site that know its hosts: run, bounded in time, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from rollbook.errors import UsageError

__all__ = ["output_of"]


def output_of(argv: Sequence[str], seconds: float) -> str:
    """What the program writes to standard output; raises `UsageError` if it fails or takes longer."""
    try:
        # Its own session, so that what it starts (group sources are shell commands) is killed with it.
        program = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise UsageError(f"cannot run {argv[0]}: {error.strerror}") from error
    with program:
        try:
            output, complaint = program.communicate(timeout=seconds)
        except BaseException as error:
            os.killpg(program.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise UsageError(f"{argv[0]} gave no answer within {seconds:g} s") from error
            raise
    if program.returncode != 0:
        said = complaint.strip().splitlines() or [f"exit status {program.returncode}"]
        raise UsageError(f"{argv[0]} failed: {''.join(c if c.isprintable() else '?' for c in said[-1][:200])}")
    return output
