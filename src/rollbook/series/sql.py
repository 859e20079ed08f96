"""Names and texts as SQL has them; whatever a host calls its things, it stays a name or a text."""

from __future__ import annotations

__all__ = ["quoted", "text"]


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def text(value: object) -> str:
    """A text in SQL."""
    return "'" + str(value).replace("'", "''") + "'"
