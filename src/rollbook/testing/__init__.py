"""Tools to test with, for Rollbook's own tests and for those of programs built on it: a lab of real hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollbook.testing.lab import Lab, LabCannot, LabHost

__all__ = ["Lab", "LabCannot", "LabHost"]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for."""
    if name in __all__:
        from rollbook.testing import lab  # noqa: PLC0415 - keeps the import of this package cheap

        return getattr(lab, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
