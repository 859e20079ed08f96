"""A comparison as tables for SQL."""

from __future__ import annotations

from pathlib import Path

from rollbook.comparison.model import Comparison, letter_of
from rollbook.comparison.statistics import middle_of
from rollbook.sql.all_runs import Rows, run_name
from rollbook.tables.parquet import json_text

__all__ = ["comparison_tables"]

SIDES = "CREATE TABLE sides (side VARCHAR, label VARCHAR, run VARCHAR)"
COMPARISON = """CREATE TABLE comparison (side VARCHAR, kind VARCHAR, name VARCHAR, title VARCHAR, unit VARCHAR,
    better VARCHAR, main BOOLEAN, host VARCHAR, "before" DOUBLE, "after" DOUBLE, change DOUBLE, low DOUBLE, high DOUBLE,
    confidence DOUBLE, p DOUBLE, verdict VARCHAR, reason VARCHAR, needed BIGINT)"""
FACTS = """CREATE TABLE changed_facts (side VARCHAR, field VARCHAR, "row" VARCHAR, "before" VARCHAR, "after" VARCHAR,
    unit VARCHAR, hosts VARCHAR[], score DOUBLE, reasons VARCHAR[], varies BOOLEAN)"""


def comparison_tables(found: Comparison, results: Path) -> dict[str, Rows]:
    """The statements that create `sides`, `comparison` and `changed_facts`, and their rows.

    A side is named by its letter; the runs are named as in the other tables of a query over `results`.
    """
    letters = [letter_of(at) for at in range(len(found.sides))]
    labelled = list(zip(letters, found.sides, strict=True))
    changes = [
        (
            letters[at], row.kind, row.name, row.title, row.unit or None, row.better or None, row.main,
            (row.hosts[at] if row.hosts else None) or None, middle_of(row.values[0]), _middle(row.values[at]),
            one.change, one.low, one.high, one.confidence, one.p, one.verdict, one.reason or None, one.needed,
        )
        for row in found.rows
        for at, one in enumerate(row.changes, 1)
    ]  # fmt: skip
    facts = [
        (
            letter, one.field, one.row or None, json_text(one.before), json_text(one.after), one.unit or None,
            one.hosts, one.score, one.reasons, one.varies,
        )
        for letter, side in zip(letters[1:], found.facts, strict=True)
        for one in side.facts
    ]  # fmt: skip
    return {
        SIDES: [
            (letter, side.label, run_name(Path(run), results)) for letter, side in labelled for run in side.records
        ],
        COMPARISON: changes,
        FACTS: facts,
    }


def _middle(values: list[float]) -> float | None:
    return middle_of(values) if values else None
