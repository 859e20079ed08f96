"""Text of hosts made safe to show: everything that came from one is untrusted."""

from __future__ import annotations

import unicodedata

__all__ = ["clean"]


def clean(text: object) -> str:
    """Text that is safe in a terminal: controls, invisible marks and direction overrides are shown as `?`."""
    return "".join(
        c if c.isprintable() and unicodedata.category(c) not in ("Cf", "Cc", "Co", "Cs", "Cn") else "?"
        for c in str(text)
    )
