"""Makes text from hosts, which is untrusted, safe to print."""

from __future__ import annotations

import unicodedata

__all__ = ["clean"]


def clean(text: object) -> str:
    """Replace control characters, invisible characters and direction overrides with `?`."""
    return "".join(
        c if c.isprintable() and unicodedata.category(c) not in ("Cf", "Cc", "Co", "Cs", "Cn") else "?"
        for c in str(text)
    )
