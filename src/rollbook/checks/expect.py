"""Expected values of a site, from a TOML file.

[[expect]]
field = "net_class.mtu"     # source.field, or source.field.column
row = "eth[02]"             # optional: rows by name with the wildcards * ? []; at least one row must match
hosts = "node[01-32]"       # optional: a nodeset
equals = 9000               # one of: equals, one_of, at_least, at_most, matches
reason = "jumbo frames on the storage network"
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rollbook.checks.toml import read_toml
from rollbook.errors import UsageError
from rollbook.hosts import expand
from rollbook.records.hosts import HostResult
from rollbook.sources import catalogue
from rollbook.sources.base import key_of

__all__ = ["Expectation", "read_expectations"]


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One expectation, with exactly one condition."""

    field: str
    row: str | None = None
    hosts: str | None = None
    reason: str = ""
    equals: Any = None
    one_of: list[Any] | None = None
    at_least: float | None = None
    at_most: float | None = None
    matches: str | None = None

    def describe(self) -> str:
        """The condition as text."""
        conditions = {name: getattr(self, name) for name in CONDITIONS}
        ((name, value),) = ((name, value) for name, value in conditions.items() if value is not None)
        return str(value) if name == "equals" else f"{name.replace('_', ' ')} {value}"

    def is_met(self, value: Any) -> bool:
        """Whether a value meets the condition; an absent value never does."""
        if value is None:
            return False
        if self.matches is not None:
            return re.fullmatch(self.matches, str(value)) is not None
        if self.at_least is not None or self.at_most is not None:
            low, high = self.at_least, self.at_most
            return isinstance(value, int | float) and (low is None or value >= low) and (high is None or value <= high)
        return value in self.one_of if self.one_of is not None else value == self.equals

    def applies_to(self, host: str) -> bool:
        """Whether it applies to this host."""
        return self.hosts is None or host in expand(self.hosts)

    def values(self, host: HostResult) -> Iterator[tuple[str, Any]]:
        """The values of the field on a host by row name; one None if no row matches or the field is absent."""
        source, field, column = (*self.field.split(".", 2), "")[:3]
        fact = host.facts.get(source)
        if not catalogue.source(source).is_table:
            yield "", _value_in(fact, field, column)
            return
        rows = [(key_of(row), row) for row in fact or []]
        matching = [(key, row) for key, row in rows if self.row is None or fnmatch.fnmatchcase(key, self.row)]
        if not matching:
            yield self.row or "", None
        for key, row in matching:
            yield key, _value_in(row, field, column)


CONDITIONS = ("equals", "one_of", "at_least", "at_most", "matches")


def _value_in(fact: Any, field: str, column: str) -> Any:
    value = getattr(fact, field, None)
    return value.get(column) if column and isinstance(value, dict) else value


class _File(msgspec.Struct, forbid_unknown_fields=True):
    expect: list[Expectation]


def _has(facts: type[msgspec.Struct], field: str, column: str = "") -> bool:
    """Whether a `Facts` type has the field, and columns in it if a column is given."""
    types = {one.name: one.type for one in msgspec.structs.fields(facts)}
    return field in types and (not column or "dict" in str(types[field]))


def read_expectations(path: Path) -> list[Expectation]:
    """The expectations in a file; raises `UsageError` for an invalid file, field or condition."""
    found = read_toml(path, _File).expect
    for one in found:
        given = [name for name in CONDITIONS if getattr(one, name) is not None]
        if len(given) != 1:
            raise UsageError(f"{path}: {one.field} needs exactly one of {', '.join(CONDITIONS)}")
        source, _, field = one.field.partition(".")
        definition = catalogue.find(source)
        if definition is None or not _has(definition.row_type, *field.split(".", 1)):
            raise UsageError(f"{path}: no source has a field {one.field}")
        if one.hosts is not None:
            expand(one.hosts)
        try:
            re.compile(one.matches or "")
        except re.error as error:
            raise UsageError(f"{path}: {one.field}: invalid pattern: {error}") from error
    return found
