"""The workflow of a DLIO run: which steps its flags turn on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Workflow"]


class Workflow(NamedTuple):
    """The steps of a run. DLIO trains unless it is told not to; the other steps are off by default."""

    generates: bool = False
    trains: bool = True
    checkpoints: bool = False

    @classmethod
    def of(cls, flags: Mapping[str, Any]) -> Workflow:
        """From the flags of the section `workflow`, which are booleans or texts of the command line."""
        names = {"generate_data": "generates", "train": "trains", "checkpoint": "checkpoints"}
        return cls(**{step: str(flags[name]).lower() == "true" for name, step in names.items() if name in flags})

    @property
    def command(self) -> str:
        """MLPerf Storage's name for it: `datagen` if it only generates data, else `run`."""
        return "datagen" if self.generates and not self.trains and not self.checkpoints else "run"
