"""What the lab raises."""

from __future__ import annotations

from rollbook.errors import RollbookError

__all__ = ["LabCannot"]


class LabCannot(RollbookError):
    """This machine does not let the lab do what was asked. The message says what it would need."""
