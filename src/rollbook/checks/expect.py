"""What a site expects of its hosts, written down in a file.

[[expect]]
field = "net_class.mtu"     # source.field, or source.field.column
row = "eth[02]"             # optional: rows of a table by name; * ? [] are wildcards, and one row at least must fit
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

from rollbook.checks.compare import key_of
from rollbook.checks.toml import read_toml
from rollbook.checks.views import View
from rollbook.errors import UsageError
from rollbook.hosts import expand
from rollbook.records.hosts import HostResult
from rollbook.sources import catalogue

__all__ = ["Expectation", "read_expectations"]


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One expectation; of the ways to say it exactly one is given."""

    field: str
    row: str | None = None
    hosts: str | None = None
    reason: str = ""
    equals: Any = None
    one_of: list[Any] | None = None
    at_least: float | None = None
    at_most: float | None = None
    matches: str | None = None

    def said(self) -> str:
        """What is expected, in words."""
        ways = {name: getattr(self, name) for name in WAYS}
        ((way, value),) = ((way, value) for way, value in ways.items() if value is not None)
        return str(value) if way == "equals" else f"{way.replace('_', ' ')} {value}"

    def met(self, value: Any) -> bool:
        """Whether a value is as expected; an absent one never is."""
        if value is None:
            return False
        if self.matches is not None:
            return re.fullmatch(self.matches, str(value)) is not None
        if self.at_least is not None or self.at_most is not None:
            low, high = self.at_least, self.at_most
            return isinstance(value, int | float) and (low is None or value >= low) and (high is None or value <= high)
        return value in self.one_of if self.one_of is not None else value == self.equals

    def concerns(self, host: str) -> bool:
        """Whether it is about this host."""
        return self.hosts is None or host in expand(self.hosts)

    def values(self, host: HostResult) -> Iterator[tuple[str, Any]]:
        """The values of the field on a host, with the names of their rows; None where there is none, or no such row."""
        source, field, column = (*self.field.split(".", 2), "")[:3]
        fact = host.facts.get(source)
        if not catalogue.source(source).is_table:
            yield "", _one(fact, field, column)
            return
        view = View(source, source)
        rows = [(key_of(view, row), row) for row in fact or []]
        fitting = [(key, row) for key, row in rows if self.row is None or fnmatch.fnmatchcase(key, self.row)]
        if not fitting:
            yield self.row or "", None
        for key, row in fitting:
            yield key, _one(row, field, column)


WAYS = ("equals", "one_of", "at_least", "at_most", "matches")


def _one(fact: Any, field: str, column: str) -> Any:
    value = getattr(fact, field, None)
    return value.get(column) if column and isinstance(value, dict) else value


class _File(msgspec.Struct, forbid_unknown_fields=True):
    expect: list[Expectation]


def _has(record: type[msgspec.Struct], field: str, column: str = "") -> bool:
    """Whether a record has such a field, and columns in it where one is named."""
    types = {one.name: one.type for one in msgspec.structs.fields(record)}
    return field in types and (not column or "dict" in str(types[field]))


def read_expectations(path: Path) -> list[Expectation]:
    """The expectations of a file; raises `UsageError` that names what cannot be used."""
    found = read_toml(path, _File).expect
    for one in found:
        given = [way for way in WAYS if getattr(one, way) is not None]
        if len(given) != 1:
            raise UsageError(f"{path}: {one.field} needs exactly one of {', '.join(WAYS)}")
        source, _, field = one.field.partition(".")
        known = catalogue.find(source)
        if known is None or not _has(known.row_type, *field.split(".", 1)):
            raise UsageError(f"{path}: no source has a field called {one.field}")
        if one.hosts is not None:
            expand(one.hosts)
        try:
            re.compile(one.matches or "")
        except re.error as error:
            raise UsageError(f"{path}: {one.field}: not a pattern: {error}") from error
    return found
