"""Marks from inside a command that is being recorded."""

from __future__ import annotations

from rollbook.collect.marks import send_mark

__all__ = ["mark"]


def mark(name: str) -> None:
    """Start a phase of the run that this process belongs to; returns when every host has been told to take a sample.

    Raises `UsageError` outside a run and for a bad name, `RecordError` if the collector is gone or does not answer.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, not {type(name).__name__}")
    send_mark(name)
