"""Tools to test with, for Rollbook's own tests and for those of programs built on it.

A lab of real hosts, a transport to scripted ones, and the checks that every transport must pass.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollbook.testing.conformance import check_transport
    from rollbook.testing.fake import Fake
    from rollbook.testing.fakehost import FakeHost, pages_of
    from rollbook.testing.lab import Lab, LabCannot, LabHost
    from rollbook.testing.machines import linux
    from rollbook.testing.slurm import SlurmLab

__all__ = ["Fake", "FakeHost", "Lab", "LabCannot", "LabHost", "SlurmLab", "check_transport", "linux", "pages_of"]

_HOMES = {
    "Fake": "fake",
    "FakeHost": "fakehost",
    "Lab": "lab",
    "LabCannot": "lab",
    "LabHost": "lab",
    "SlurmLab": "slurm",
    "check_transport": "conformance",
    "linux": "machines",
    "pages_of": "fakehost",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that importing this package is fast."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
