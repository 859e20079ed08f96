"""Reads YAML that people and benchmarks wrote. Rollbook's own documents are JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml  # type: ignore[import-untyped]

from rollbook.errors import RecordError, UsageError
from rollbook.records.reading import read_target

__all__ = ["LARGEST", "decode_yaml", "read_yaml"]

LARGEST = 4 << 20
"""The most bytes of a document."""
MAX_NODES = 200_000
"""Values of a document with all aliases expanded; nested aliases grow exponentially ("billion laughs")."""


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the mapping in a file; raises `UsageError` for anything else, and for aliases that expand too far."""
    try:
        return msgspec.convert(decode_yaml(read_target(path, LARGEST)), dict[str, Any])
    except RecordError as error:
        raise UsageError(str(error)) from error
    except (ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}") from error


def decode_yaml(data: bytes) -> Any:
    """Decode a document; raises `ValueError` if that is not possible, and for aliases that expand too far."""
    try:
        root = yaml.compose(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if root is not None and _expanded(root, {}) > MAX_NODES:
            raise ValueError(f"it has aliases that expand to more than {MAX_NODES} values")
        return msgspec.yaml.decode(data)
    except (msgspec.MsgspecError, yaml.YAMLError, IndexError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _expanded(node: yaml.Node, counted: dict[int, int]) -> int:
    """The number of values with aliases expanded; a node that contains itself counts as too many."""
    if id(node) not in counted:
        counted[id(node)] = MAX_NODES + 1  # until its children are counted
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        counted[id(node)] = 1 + sum(_expanded(child, counted) for child in children)
    return counted[id(node)]
