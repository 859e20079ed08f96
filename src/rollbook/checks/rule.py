"""Rule definitions: an id named after the problem, a severity, required input, a pure function and a manual."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from rollbook.records.findings import Compared, Finding, Severity

if TYPE_CHECKING:
    from rollbook.checks.run_data import RunData

__all__ = ["SECTIONS", "Manual", "Rule", "rule_from_module"]

SECTIONS = ("why", "example", "fix", "reference")


class Manual(msgspec.Struct, frozen=True):
    """The documentation of a rule: the problem, why it matters, an example finding, the fix, a reference."""

    what: str
    why: str
    example: str
    fix: str
    reference: str

    @classmethod
    def parse(cls, text: str) -> Manual:
        """Parse a docstring: the problem, then paragraphs that begin with `Why:`, `Example:`, `Fix:`, `Reference:`."""
        first, *rest = re.split(r"^(Why|Example|Fix|Reference):", inspect.cleandoc(text), flags=re.MULTILINE)
        parts = {name.lower(): _flat(body) for name, body in zip(rest[::2], rest[1::2], strict=True)}
        return cls(_flat(first), **{name: parts.get(name, "") for name in SECTIONS})

    def __str__(self) -> str:
        titled = (f"{name.capitalize()}: {getattr(self, name)}" for name in SECTIONS)
        return "\n\n".join([self.what, *titled])


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule. `check` is pure: the same run gives the same findings, and values that were compared.

    `needs` lists `Facts` types and the other types that `RunData.presence` accepts. If one of them is missing, the rule
    is not evaluated: its outcome is not-applicable if no host has such a device or setting, else could-not-tell.
    """

    id: str
    severity: Severity
    needs: tuple[type, ...]
    check: Callable[[RunData], Iterator[Finding | Compared]]
    manual: Manual


def rule_from_module(module: ModuleType) -> Rule:
    """The rule that a module declares with `ID`, `SEVERITY`, `NEEDS`, `check` and its docstring, the manual."""
    return Rule(module.ID, module.SEVERITY, tuple(module.NEEDS), module.check, Manual.parse(module.__doc__ or ""))


def _flat(text: str) -> str:
    return " ".join(text.split())
