"""YAML that people wrote, read back. Only descriptions of systems are YAML here; what Rollbook writes itself is JSON.

PyYAML does the reading, through msgspec and with plain types only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from rollbook.errors import UsageError

__all__ = ["read_yaml"]

LARGEST = 4 << 20


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a file holds."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    if len(data) > LARGEST:
        raise UsageError(f"{path} is larger than {LARGEST >> 20} MiB")
    try:
        return msgspec.yaml.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, IndexError, RecursionError) as error:
        raise UsageError(f"{path}: {error}") from error
