"""Writes the part of YAML that a description needs, with the origin of each value as a comment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rollbook.mlperf.node import Entry

__all__ = ["yaml_text"]

RESERVED = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


def yaml_text(tree: Any, heading: str) -> str:
    """Format the tree in block style; strings are quoted as in JSON."""
    return "".join(f"# {line}\n" for line in heading.splitlines()) + "\n".join(_lines(tree, "")) + "\n"


def _lines(tree: Any, indent: str) -> Iterator[str]:
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from _member(f"{indent}{_key(name)}:", value, indent)
    else:
        for value in tree:
            first, *rest = list(_lines(value, f"{indent}  ")) if isinstance(value, dict | list) else [_scalar(value)]
            yield f"{indent}- {first.lstrip()}"
            yield from rest


def _member(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Entry):
        note = ": ".join(filter(None, (value.origin, value.note)))
        # Notes name mounts and firmware: what a host calls them must not end the comment.
        yield f"{head} {_scalar(value.value)}  # {''.join(c if c.isprintable() else '?' for c in note)}"
    elif isinstance(value, dict | list) and value:
        yield head
        yield from _lines(value, f"{indent}  ")
    else:
        yield f"{head} {_scalar(value)}"


def _key(name: Any) -> str:
    """Quote a key unless it is a plain identifier that YAML 1.1 does not read as a boolean or null."""
    text = str(name)
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", text) and text.lower() not in RESERVED
    return text if plain else json.dumps(text)


def _scalar(value: Any) -> str:
    """Format a scalar or flow collection as JSON, which is valid YAML; a date as text."""
    return json.dumps(value.value if isinstance(value, Entry) else value, default=str)
