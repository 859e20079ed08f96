"""An issue of a run, by the names MLPerf Storage's code uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rollbook.mlpstorage.config import PARAM_VALIDATION

__all__ = ["Issue"]


@dataclasses.dataclass
class Issue:
    """One issue, and what it makes of the run."""

    validation: PARAM_VALIDATION
    message: str
    parameter: str | None = None
    expected: Any = None
    actual: Any = None
    severity: str = "error"

    def __post_init__(self) -> None:
        # The tool's own enum has the same values, but its members are other objects and would count as CLOSED.
        self.validation = PARAM_VALIDATION(getattr(self.validation, "value", self.validation))

    def __str__(self) -> str:
        text = f"[{self.validation.name}] {self.message}"
        if self.parameter:
            text += f" (Parameter: {self.parameter}"
            if self.expected is not None and self.actual is not None:
                text += f", Expected: {self.expected}, Actual: {self.actual}"
            text += ")"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, the validation as text."""
        return {**vars(self), "validation": self.validation.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Issue:
        """Return the issue from its dictionary; `validation` and `message` are required."""
        known = {field.name for field in dataclasses.fields(cls)} - {"validation", "message"}
        rest = {name: value for name, value in data.items() if name in known}
        return cls(data["validation"], data["message"], **rest)
