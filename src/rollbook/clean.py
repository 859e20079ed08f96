"""Makes text fit to print: safe, because hosts are untrusted, short, and in the plural where needed."""

from __future__ import annotations

__all__ = ["clean", "count_text", "shorten"]


def clean(text: object) -> str:
    """Replace control characters, invisible characters and direction overrides with `?`."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def shorten(text: str, longest: int) -> str:
    """The text, or its start and `…` if it has more than `longest` characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def count_text(number: int, noun: str) -> str:
    """A number with its noun: `1 host`, `3 hosts`."""
    return f"{number} {noun}{'s' * (number != 1)}"
