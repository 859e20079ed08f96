"""What a rule is: an id named after what is wrong, a severity, what it needs, a pure function, and its manual."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from rollbook.records.findings import Compared, Finding, Severity

if TYPE_CHECKING:
    from rollbook.checks.subject import Subject

__all__ = ["SECTIONS", "Manual", "Rule", "of_module"]

SECTIONS = ("why", "example", "fix", "reference")


@dataclasses.dataclass(frozen=True)
class Manual:
    """What a rule has to say of itself: what is wrong, why it matters, an example, how to fix it, where to read on."""

    what: str
    why: str
    example: str
    fix: str
    reference: str

    @classmethod
    def parse(cls, text: str) -> Manual:
        """From a docstring: what is wrong, then paragraphs that begin with `Why:`, `Example:`, `Fix:`, `Reference:`."""
        first, *rest = re.split(r"^(Why|Example|Fix|Reference):", inspect.cleandoc(text), flags=re.MULTILINE)
        parts = {name.lower(): _flat(body) for name, body in zip(rest[::2], rest[1::2], strict=True)}
        return cls(_flat(first), **{name: parts.get(name, "") for name in SECTIONS})

    def __str__(self) -> str:
        titled = (f"{name.capitalize()}: {getattr(self, name)}" for name in SECTIONS)
        return "\n\n".join([self.what, *titled])


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule. `check` is pure: the same run gives the same findings, and values that were compared.

    `needs` are record types (facts of hosts) and the other types `Subject.presence` knows. Where one of them is
    missing the rule is not asked: it is not applicable where no host has such a thing, else it could not tell.
    """

    id: str
    severity: Severity
    needs: tuple[type, ...]
    check: Callable[[Subject], Iterator[Finding | Compared]]
    manual: Manual


def of_module(module: ModuleType) -> Rule:
    """The rule a module declares with `ID`, `SEVERITY`, `NEEDS` and `check`; its manual is the docstring."""
    return Rule(module.ID, module.SEVERITY, tuple(module.NEEDS), module.check, Manual.parse(module.__doc__ or ""))


def _flat(text: str) -> str:
    return " ".join(text.split())
