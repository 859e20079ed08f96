"""Reads the TOML files of `rollbook check`."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from rollbook.errors import UsageError

__all__ = ["read_toml"]

T = TypeVar("T")


def read_toml(path: Path, kind: type[T]) -> T:
    """The content of a file as `kind`; raises `UsageError` with the reason."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {error}") from error
