"""The key of the marks that replace secrets: kept while a bundle is incomplete, for equal marks when it is resumed.

With the key, marks can be compared with guesses. It is therefore neither part of the bundle nor next to it, but in the
state directory of the user, under the id of the bundle.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from pathlib import Path

from rollbook.errors import RecordError
from rollbook.files import write_file
from rollbook.records.reading import read_regular

__all__ = ["forget_key", "kept_key", "new_key"]

KEY, NAME = re.compile(rb"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")
LONGEST = 30 * 86400.0  # seconds after which a key is removed


def kept_key(bundle: str) -> str | None:
    """The key of an incomplete bundle, by the id in its request; None if there is none."""
    try:
        path = _directory() / bundle
        if NAME.fullmatch(bundle) and path.lstat().st_uid == os.geteuid() and KEY.fullmatch(read_regular(path)):
            return path.read_text()
    except (OSError, RecordError, RuntimeError):
        return None
    return None


def new_key(bundle: str) -> str:
    """A new key, kept if the user has a state directory that can be written; keys of long ago are removed."""
    key = secrets.token_hex(16)
    with contextlib.suppress(OSError, RecordError, RuntimeError):
        directory = _directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in directory.iterdir():
            if NAME.fullmatch(old.name) and time.time() - old.lstat().st_mtime > LONGEST:
                old.unlink()
        if NAME.fullmatch(bundle):
            write_file(directory / bundle, key.encode())
    return key


def forget_key(bundle: str) -> None:
    """Remove the key of a bundle that is complete."""
    with contextlib.suppress(OSError, RuntimeError):
        if NAME.fullmatch(bundle):
            (_directory() / bundle).unlink()


def _directory() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "rollbook" / "bundle-keys"
