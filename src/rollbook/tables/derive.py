"""Derives the tables of the series and `hosts.json` from a journal.

The end of a run and the recovery after a collector died are the same work: only `raw/` is needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from rollbook.errors import RecordError
from rollbook.files import write_file
from rollbook.journal.entries import segment_files
from rollbook.journal.history import facts_of, series_of
from rollbook.journal.samples import Segments
from rollbook.journal.state import refuse_while_recording
from rollbook.journal.survey import Survey, survey
from rollbook.records.document import encode
from rollbook.records.locate import is_record, not_a_record
from rollbook.records.record import ClockJump, RecordHosts, SourceLoss
from rollbook.tables.seal import Sealed, seal

__all__ = ["derive", "hosts_of"]


def derive(path: Path) -> tuple[Survey, Sealed, RecordHosts]:
    """Write the tables and `hosts.json` of the record at `path` from its journal; raises `RecordError`.

    Existing ones are replaced, so that a later version with better parsers can derive them again.
    """
    raw = path / "raw"
    refuse_while_recording(path)
    if not segment_files(raw):
        raise RecordError(f"{path} has no journal to recover from") if is_record(path) else not_a_record(path)
    found = survey(raw)
    sealed = seal(found, path / "series", max_samples=int(found.begin.get("max_samples") or 0))
    hosts = hosts_of(found, sealed.merged, sealed.losses)
    write_file(path / "hosts.json", encode(hosts))
    return found, sealed, hosts


def hosts_of(found: Survey, merged: int, losses: Mapping[str, Sequence[SourceLoss]]) -> RecordHosts:
    """Start facts, end facts and series status of all hosts of a run."""
    with contextlib.closing(Segments(found)) as files:
        facts = [facts_of(found, host, files) for host in found.hosts]
    start, end = [first for first, _ in facts], [last for _, last in facts]
    has_end_facts = found.end_facts or any(result.readings for result in end)
    return RecordHosts(
        started_ns=found.started_ns,
        ended_ns=found.ended_ns,
        interval_seconds=found.interval_ns / 1e9 if found.interval_ns else None,
        first_interval_seconds=found.schedule.interval_ns / 1e9
        if found.interval_ns != found.schedule.interval_ns
        else None,
        merged=merged,
        start=start,
        end=end if has_end_facts else [],
        series=[
            series_of(found, host, first, losses.get(host.name, ()))
            for host, first in zip(found.hosts, start, strict=True)
        ]
        if found.interval_ns
        else [],
        clock_steps=[ClockJump(at, by) for at, by in found.clock.steps],
        phases=found.phases,
    )
