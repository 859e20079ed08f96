"""Stores equal strings once: hosts of a cluster return mostly the same text, and a thousand must fit in memory."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

__all__ = ["intern_strings"]

PLAIN = frozenset((int, float, bool, type(None)))


def intern_strings(fact: Any) -> Any:
    """Replace every string in a fact by its interned copy; may change the fact in place."""
    if type(fact) is str:
        return sys.intern(fact)
    if isinstance(fact, msgspec.Struct):
        for name in fact.__struct_fields__:
            value = getattr(fact, name)
            if type(value) not in PLAIN:
                msgspec.structs.force_setattr(fact, name, intern_strings(value))
    elif isinstance(fact, list):
        fact[:] = [value if type(value) in PLAIN else intern_strings(value) for value in fact]
    elif isinstance(fact, dict):
        return {
            intern_strings(k): value if type(value) in PLAIN else intern_strings(value) for k, value in fact.items()
        }
    return fact
