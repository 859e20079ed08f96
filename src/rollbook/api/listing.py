"""Finds records: all records of a results directory, newest first, and the one that a name or time means."""

from __future__ import annotations

import errno
import itertools
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import get_args

import msgspec

from rollbook.adapters.argv import storable_text
from rollbook.api.arguments import check_arguments
from rollbook.api.options import as_list
from rollbook.errors import RecordError, UsageError
from rollbook.journal.entries import segment_files
from rollbook.journal.reader import Reader
from rollbook.journal.state import is_recording, is_unfinished
from rollbook.records.labels import PATH_STARTS
from rollbook.records.locate import MANIFEST, RUN_DOCUMENT, result_directory
from rollbook.records.summary import RecordList, RecordSummary, State, Verdict, bare_summary, read_summary, start_of

__all__ = ["find_group", "find_record", "list_records", "no_records", "record_path", "summaries", "summary_of"]

LATEST = "latest"
VERDICTS = (*get_args(Verdict), *get_args(State), "CLOSED", "OPEN", "INVALID")
CANDIDATES = 8  # records that the error for an ambiguous name lists
PARTS = ("hosts.json", MANIFEST, RUN_DOCUMENT)
"""A directory with one of these, or with a journal, is a record, however damaged."""


@check_arguments
def list_records(
    results_dir: Path | str = "results",
    *,
    limit: int = 0,
    type: str = "",  # noqa: A002 - the name of the option
    host: str = "",
    verdict: str = "",
    name: str = "",
    tags: str | Sequence[str] = (),
) -> RecordList:
    """The records of a results directory, newest first; broken and unfinished ones with their state and reason.

    `limit` is the most records to read (0: all). `type` is the type of the records to list, `host` one of their hosts,
    `verdict` their verdict or state, `name` their name; they must have all of the `tags`. Raises `RecordError` if the
    directory cannot be read, and `UsageError` for a verdict that does not exist.
    """
    if limit < 0:
        raise UsageError(f"the limit must be a number of records, or 0 for all, not {limit}")
    if verdict and verdict not in VERDICTS:
        raise UsageError(f"{verdict!r} is not a verdict or state; these are: {', '.join(VERDICTS)}")
    results, tags = Path(results_dir), as_list(tags or ())
    found = (
        one
        for one in summaries(results)
        if (not type or one.type == type)
        and (not host or host in one.host_names)
        and (not verdict or verdict in (one.verdict, one.state, one.verification))
        and (not name or one.name == name)
        and all(tag in one.tags for tag in tags)
    )
    if not limit:
        return RecordList(results_dir=str(results), records=list(found))
    records = list(itertools.islice(found, limit))
    # Without a filter the records that are left out need not be read to be counted.
    is_filtered = any((type, host, verdict, name, tags))
    rest = sum(1 for _ in found) if is_filtered else len(_record_paths(results)) - len(records)
    return RecordList(results_dir=str(results), records=records, omitted=rest)


def summaries(results: Path) -> Iterator[RecordSummary]:
    """The records of a results directory, newest first, each read when it is needed."""
    return map(summary_of, _record_paths(results))


@check_arguments
def find_record(text: Path | str, results_dir: Path | str = "results") -> Path:
    """The record that a text means: an existing path, `latest`, or the start of a name, time or `type/time`.

    `latest` is the newest record that is not being recorded and not broken. A name that is written completely takes
    precedence over longer names. Raises `RecordError` if no record matches, and `UsageError` with the candidates if
    several do.
    """
    if os.path.lexists(text):
        return Path(text)
    text, results = os.fspath(text), Path(results_dir)
    if not text:
        raise UsageError("the name of the record is empty")
    if text == LATEST:
        found = summaries(results) if results.exists() else iter(())
        newest = next((one for one in found if one.state in ("complete", "unfinished")), None)
        if newest is None:
            raise RecordError(no_records(results))
        return Path(newest.path)
    matching = _matching(text, results) if results.is_dir() else []
    if len(matching) > 1:
        raise UsageError(f"{text} is ambiguous; it could be\n{_candidates(matching)}")
    if not matching:
        raise RecordError(f"{text} does not exist, and no record in {results} has a name or time that starts with it")
    return Path(matching[0].path)


def record_path(record: Path | str, results_dir: Path | str | Callable[[], Path] = "results") -> Path:
    """The path of the record that an argument means: a text may also be a name, a time or `latest`.

    A `Path`, and a text that starts like one, are paths even if nothing is there; opening them explains that. The
    results directory is looked up only for a name. Raises the errors of `find_record`.
    """
    if not isinstance(record, str) or os.path.lexists(record) or record.startswith(PATH_STARTS):
        return Path(record)
    return find_record(record, results_dir() if callable(results_dir) else results_dir)


def no_records(results: Path) -> str:
    """The message for a results directory that is empty or does not exist yet."""
    return f"no records in {results} yet; `rollbook run -- COMMAND` makes one"


def find_group(text: str, results_dir: Path | str = "results") -> list[Path]:
    """The records of the group of repeats with this id or name, the oldest first; empty if there is none.

    Of several groups with the same name, it is the newest. Complete records that share a name without being repeats
    of one run are a group, too: that is how runs are alternated.
    """
    named = (one for one in summaries(Path(results_dir)) if one.state in ("complete", "unfinished"))
    found = [one for one in named if text == one.name or (one.group and text == one.group.id)]
    newest = found[0].group if found else None
    members = [one for one in found if (one.group.id if one.group else None) == (newest.id if newest else None)]
    return [Path(one.path) for one in reversed(members)]


def _matching(text: str, results: Path) -> list[RecordSummary]:
    text = text.rstrip("/")
    found, exact = [], []
    for one in summaries(results):
        path = Path(one.path)
        stamp = result_directory(path).name
        names = (one.name, stamp, f"{one.type}/{stamp}", one.group.id if one.group else "")
        if text in names:
            exact.append(one)
        elif any(name.startswith(text) for name in names):
            found.append(one)
    return exact or found


def _candidates(found: list[RecordSummary]) -> str:
    lines = [f"  {one.path}" + (f"  {one.name}" if one.name else "") for one in found[:CANDIDATES]]
    more = len(found) - CANDIDATES
    return "\n".join([*lines, *([f"  and {more} more"] if more > 0 else [])])


def _record_paths(results: Path) -> list[Path]:
    """All records below a directory, newest first by the times in their names; others come last."""
    found: list[str] = []
    waiting = [str(results)]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                below, is_record = [], False
                for entry in entries:
                    if entry.name in PARTS or (entry.name == "raw" and segment_files(Path(entry.path))):
                        is_record = True
                    elif entry.is_dir(follow_symlinks=False):
                        below.append(entry)
        except OSError as error:
            if directory == str(results):
                raise RecordError(f"{results}: {error.strerror}") from error
            found.append(directory)  # listed as broken: one that cannot be read may be a record
            continue
        if is_record:
            found.append(directory)
        else:
            waiting.extend(entry.path for entry in below)
    paths = map(Path, found)
    return sorted(paths, key=lambda path: (start_of(path), str(path)), reverse=True)


def summary_of(path: Path) -> RecordSummary:
    """The summary of a record in any state; never raises because of its content."""
    if (name := storable_text(str(path))) != str(path):
        return bare_summary(Path(name), "broken", "its name is not UTF-8")
    try:
        if not os.access(path, os.R_OK | os.X_OK):
            return bare_summary(path, "broken", os.strerror(errno.EACCES))
        if is_unfinished(path):
            return _unfinished(path)
        return read_summary(path)
    except (RecordError, OSError) as error:
        reason = str(error.strerror if isinstance(error, OSError) else error)
        return bare_summary(path, "broken", reason.removeprefix(f"{path}/").removeprefix(f"{path}: "))


def _unfinished(path: Path) -> RecordSummary:
    """The summary of a record without an end: its journal starts with what is known about the run."""
    recording = is_recording(path / "raw")
    begin = next((entry.event for entry in Reader(path / "raw")), None) or {}
    found = bare_summary(
        path,
        "recording" if recording else "unfinished",
        "being recorded" if recording else f"its collector died: rollbook recover {shlex.quote(str(path))}",
        begin.get("label"),
    )
    hosts, argv = begin.get("hosts"), begin.get("argv")
    if isinstance(hosts, list):
        found.hosts, found.host_names = len(hosts), [str(name) for name in hosts]
    if isinstance(argv, list):
        found.command = shlex.join(map(str, argv))
    return msgspec.structs.replace(found, type=str(begin.get("type") or found.type))
