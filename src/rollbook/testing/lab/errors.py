"""Errors of the lab."""

from __future__ import annotations

from rollbook.errors import RollbookError

__all__ = ["LabCannot"]


class LabCannot(RollbookError):
    """This machine cannot do what was requested; the message names what is missing."""
