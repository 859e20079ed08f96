"""Run a program of the site that lists hosts, with a timeout, without leaving processes behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from rollbook.clean import clean
from rollbook.errors import UsageError

__all__ = ["output_of"]


def output_of(argv: Sequence[str], seconds: float) -> str:
    """The program's standard output; raises `UsageError` if it fails or exceeds the timeout."""
    try:
        # In its own session, so that its children (group sources are shell commands) are killed with it.
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
            output, errors = program.communicate(timeout=seconds)
        except BaseException as error:
            os.killpg(program.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise UsageError(f"{argv[0]} did not answer within {seconds:g} s") from error
            raise
    if program.returncode != 0:
        lines = errors.strip().splitlines() or [f"exit status {program.returncode}"]
        raise UsageError(f"{argv[0]} failed: {clean(lines[-1][:200])}")
    return output
