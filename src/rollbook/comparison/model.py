"""The document of a comparison."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rollbook.comparison.statistics import Better, Change
from rollbook.records.document import current_version

__all__ = ["ChangedFact", "Comparison", "FactChanges", "Kind", "Row", "SideSummary", "letter_of"]

Kind = Literal["result", "phase", "metric", "host"]
"""A result that the benchmark reported, the length of a phase, the mean of a metric, or its value on the worst host."""


def letter_of(side: int) -> str:
    """The letter that names a side in tables and charts: A for the first, whose number is 0."""
    return chr(ord("A") + side)


class SideSummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One side: its label as given, the paths of its runs, and the benchmark type and the command of the first.

    `failed` counts the runs whose command failed or has no exit status, because the collector died. `lacks` are the
    results of the first side that this side does not have, `lacking_runs` the number of its runs without a main result
    that others of its runs have.
    """

    label: str
    records: list[str]
    hosts: list[str]
    type: str
    command: str
    failed: int = 0
    lacks: list[str] = []
    lacking_runs: dict[str, int] = {}


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One value on all sides: one number per run of each side, and the change of each further side against the first.

    Runs without the value are left out, and runs that failed unless all of a side did; a further side may have no value
    at all. `main` results are those that a summary states, and to which the limit of `--fail-on` applies. `hosts` names
    the worst host of each side, where all its runs agree.
    """

    kind: Kind
    name: str
    title: str
    unit: str = ""
    better: Better = ""
    main: bool = False
    values: list[list[float]]
    changes: list[Change]
    hosts: list[str] = []


class ChangedFact(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A fact that differs between two sides, with the hosts on which it does.

    `score` ranks facts by how likely they explain a difference; `reasons` name what raised or lowered it. A fact that
    also differs between repeats of one side has `varies`.
    """

    field: str
    row: str = ""
    before: Any
    after: Any
    unit: str = ""
    hosts: list[str] = []
    score: float
    reasons: list[str] = []
    varies: bool = False


class FactChanges(msgspec.Struct, kw_only=True):
    """The facts of one side that differ from the first, most likely explanation first.

    `ignored` counts changed identities and error counters; `unchanged` names usual causes that were read on all hosts
    of both sides and did not change.
    """

    side: str
    facts: list[ChangedFact]
    ignored: int = 0
    unchanged: list[str] = []


class Comparison(msgspec.Struct, kw_only=True, tag_field="schema", tag="rollbook.comparison/1"):
    """Several sides, each one run or a group of repeats; all are compared with the first.

    `phase` is the phase that metrics were compared in; empty for the whole command or, of a recording without one, all
    of it.
    """

    rollbook: str = msgspec.field(default_factory=current_version)
    sides: list[SideSummary]
    phase: str
    rows: list[Row]
    facts: list[FactChanges]
    notes: list[str]

    def _repr_html_(self) -> str:
        """The comparison in a notebook: every row with its verdict, the changed facts, and the first charts."""
        from rollbook.comparison.notebook import comparison_html  # noqa: PLC0415 - it needs this model

        return comparison_html(self)
