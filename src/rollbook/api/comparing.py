"""Compares records, or groups of repeated runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rollbook.api.arguments import check_arguments
from rollbook.api.finish import open_record
from rollbook.api.listing import find_group, find_record, summaries
from rollbook.comparison.model import Comparison, letter_of
from rollbook.comparison.results import compared_results
from rollbook.comparison.sides import Side, compare_sides
from rollbook.comparison.statistics import FLOOR, spread_of
from rollbook.errors import RecordError, UsageError
from rollbook.records.labels import label_of
from rollbook.records.locate import locate_record
from rollbook.records.record import Record

__all__ = ["compare", "compare_opened", "open_sides"]

HISTORY = 20  # earlier runs of the same command that are read for the usual spread

SideLike = Record | Path | str | Sequence[Record | Path | str]
"""A record or its path, a group of repeats by name or id, a directory of records, or a list of records."""


@check_arguments
def compare(*sides: SideLike, results_dir: Path | str = "results", phase: str = "", floor: float = FLOOR) -> Comparison:
    """Compare runs or groups of repeated runs; all further sides are compared with the first.

    A side is a record, a path, a name, a group of `rollbook run --repeat`, a directory of records, several of them in
    one text separated by commas, or a list. `phase` is the one whose metrics are compared (default: the whole
    command), `floor` the share below which differences do not matter. With fewer than three runs a side, earlier runs
    of the same command in `results_dir` tell noise from a difference, if there are five. Raises `UsageError`.
    """
    return compare_opened(open_sides(sides, results_dir), results_dir=results_dir, phase=phase, floor=floor)


def compare_opened(
    sides: Sequence[Side], *, results_dir: Path | str = "results", phase: str = "", floor: float = FLOOR
) -> Comparison:
    """The same for sides of `open_sides`."""
    if not 0 <= floor <= 1:
        raise UsageError(f"the floor must be a share from 0 to 1, not {floor}")
    few = any(len(side.runs) < 3 for side in sides)
    history = _history(sides, Path(results_dir)) if few else {}
    return compare_sides(sides, phase=phase, floor=floor, history=history)


def open_sides(sides: Sequence[SideLike], results_dir: Path | str = "results") -> list[Side]:
    """The sides with their records opened, the runs of each in the order of their start; raises `UsageError`."""
    found = []
    for number, side in enumerate(sides):
        runs = sorted(_runs(side, Path(results_dir)), key=lambda run: run.hosts.started_ns)
        if len({run.path.resolve() for run in runs}) < len(runs):
            raise UsageError(f"{side} has a record twice")
        found.append(Side(_label(side, runs, number), runs))
    taken: dict[Path, str] = {}
    for one in found:
        for run in one.runs:
            if (path := run.path.resolve()) in taken:
                raise UsageError(f"{path} is on two sides: {taken[path]} and {one.label}")
            taken[path] = one.label
    labels = [one.label for one in found]
    return [
        Side(one.label if labels.count(one.label) == 1 else f"{one.label} ({letter_of(at)})", one.runs)
        for at, one in enumerate(found)
    ]


def _runs(side: SideLike, results: Path) -> list[Record]:
    if isinstance(side, Record):
        return [side]
    if not isinstance(side, str | Path):
        return [run for one in side for run in _runs(one, results)]
    if "," in str(side) and not os.path.lexists(side):
        return [run for one in str(side).split(",") if one for run in _runs(one, results)]
    return [open_record(path) for path in _paths(str(side), results)]


def _paths(text: str, results: Path) -> list[Path]:
    """The records that a text means: those of a directory or a group, or a single one.

    Records that are still being recorded are left out; raises `UsageError` for a broken one in a directory.
    """
    if not os.path.lexists(text):
        group = find_group(text, results) if results.is_dir() else []
        return group or [find_record(text, results)]
    record = locate_record(Path(text))
    if not record.is_dir() or (record / "hosts.json").exists() or (record / "raw").exists():
        return [record]
    members = [one for one in summaries(record) if one.state != "recording"]
    if not members:
        raise UsageError(f"{record} has no complete records")
    if broken := next((one for one in members if one.state == "broken"), None):
        raise UsageError(f"{broken.path} cannot be compared: {broken.reason}")
    return [Path(one.path) for one in members]


def _label(side: SideLike, runs: Sequence[Record], number: int) -> str:
    """The name that all runs have, or how the side was given, if that is short."""
    names = {label_of(run.metadata.get("label") or {}).name for run in runs}
    if len(names) == 1 and (name := names.pop()):
        return name
    if len(runs) == 1:
        return runs[0].path.name
    return side if isinstance(side, str) and len(side) <= 20 and "," not in side else letter_of(number)


def _history(sides: Sequence[Side], results: Path) -> dict[str, float]:
    """The usual spread of each result between earlier runs of the same command on the same hosts."""
    taken = {run.path.resolve() for side in sides for run in side.runs}
    base = sides[0].runs[0]
    command, hosts = base.metadata.get("executed_command"), {host.name for host in base.hosts.start}
    values: dict[str, list[float]] = {}
    read = 0
    if not command or not results.is_dir():
        return {}
    for one in summaries(results):
        same = one.state == "complete" and one.command == command and set(one.host_names) == hosts
        if not same or one.exit_code != 0 or Path(one.path).resolve() in taken:
            continue
        try:
            earlier = Record.open(Path(one.path))
        except RecordError:
            continue
        for key, value in compared_results(earlier.metadata):
            values.setdefault(key.name, []).append(value)
        read += 1
        if read == HISTORY:
            break
    return {name: spread for name, found in values.items() if (spread := spread_of(found)) is not None}
