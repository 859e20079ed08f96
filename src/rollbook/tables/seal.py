"""From a journal to `series/<source>.parquet`, on all cores where it pays.

Hosts are read one after the other, each through the whole run; what a process holds is one window of one host and the
blocks that wait to be written, whatever the length of the run. With several cores the hosts are shared out to
processes of their own, and the parts they write are put together in the order of the hosts' names.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rollbook.errors import RecordError
from rollbook.journal.samples import HostSamples, Segments
from rollbook.journal.survey import HostLog, Survey
from rollbook.protocol.beats import nearest_beat
from rollbook.protocol.samples import Sample
from rollbook.tables.columns import Merge, block_of
from rollbook.tables.incremental.sheet import Sheet
from rollbook.tables.parquet import Part, Parts, connect, join

__all__ = ["Sealed", "seal"]

WINDOW = 8 << 20  # values of one host that are held before they are written
TURN, MOST_WAITING = 1024, 16_384  # samples that wait to be read: usually, and while they may not be parted
A_SAMPLE = 64 << 10  # bytes; a larger one counts as several
WORTH_A_PROCESS = 20_000  # frames
PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclasses.dataclass
class Sealed:
    """What came of a journal: rows by table, how many beats make one sample, and samples without a row.

    `lost` counts, by host, samples whose deflate stream was broken; `refused`, by source, those the parser refused.
    """

    tables: dict[str, int]
    merged: int
    lost: Counter[str]
    refused: Counter[str]


def seal(survey: Survey, target: Path, *, max_samples: int = 0, processes: int | None = None) -> Sealed:
    """Write the tables of a journal into `target`; each replaces the one before as a whole."""
    merged, merge = merging(survey, max_samples)
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".parts-", dir=target))
    except OSError as error:
        raise RecordError(f"cannot write to {target}: {error.strerror}") from error
    try:
        shares = _share_out(survey, scratch, merge, processes)
        tables: dict[str, list[Part]] = {}
        for share in shares:
            for part in share.parts:
                tables.setdefault(part.source, []).append(part)
        with connect() as connection:
            for source in survey.plan.sources:
                if source.name in tables:
                    path = target / f"{source.name}.parquet"
                    join(connection, source, tables[source.name], path, merged=merged > 1)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    rows = {name: sum(part.rows for part in parts) for name, parts in tables.items()}
    lost, refused = Counter[str](), Counter[str]()
    for share in shares:
        lost.update(share.lost)
        refused.update(share.refused)
    return Sealed(rows, merged, lost, refused)


def merging(survey: Survey, max_samples: int) -> tuple[int, Merge | None]:
    """How many beats must become one sample so that no host has more than asked for, and the merge that does it.

    A mark or a new connection of the host may cost one more.
    """
    edges = [(times[0], times[-1]) for host in survey.hosts if (times := host.times())]
    if not edges or not max_samples or not survey.interval_ns:
        return 1, None
    # A clock that nobody could measure may be years off: the run was not longer for that.
    begin, end = survey.started_ns - survey.interval_ns, survey.ended_ns + survey.interval_ns
    edges = [(first, last) for first, last in edges if begin <= first and last <= end] or edges
    first = nearest_beat(min(first for first, _ in edges), survey.interval_ns)
    last = max(last for _, last in edges)
    beats = round((last - first) / survey.interval_ns) + 1
    # A host's first sample is never merged, and takes one of those asked for.
    merged = 1 if beats <= max_samples else -(-beats // max(1, max_samples - 1))
    if merged == 1:
        return 1, None
    # Beats come a little before or after their time: the edges of groups lie between them.
    begin, step = first - survey.interval_ns // 2, merged * survey.interval_ns
    return merged, Merge(begin, step, [at_ns for at_ns, _ in survey.marks])


def _share_out(survey: Survey, scratch: Path, merge: Merge | None, processes: int | None) -> list[Share]:
    hosts = sorted((host for host in survey.hosts if len(host.places)), key=lambda host: host.name)
    frames = sum(len(host.places) for host in hosts)
    cores = len(os.sched_getaffinity(0)) if processes is None else processes
    count = max(1, min(cores, len(hosts), frames // WORTH_A_PROCESS if processes is None else cores))
    if count == 1:
        return [Share.of(survey, hosts, scratch / "0000", merge)]
    groups: list[list[HostLog]] = [[] for _ in range(count)]
    done = 0
    for host in hosts:
        groups[done * count // frames].append(host)
        done += len(host.places)
    # Not multiprocessing: it would import the caller's program anew, or fork its threads.
    argv = [sys.executable, "-P", "-c", "from rollbook.tables.seal import work; work()"]
    # In their own process group, so that Ctrl-C reaches only this process, which decides what it means.
    workers = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0) for _ in groups]
    answers = []
    try:
        for number, (worker, group) in enumerate(zip(workers, groups, strict=True)):
            assert worker.stdin is not None
            job = dataclasses.replace(survey, hosts=[]), group, scratch / f"{number:04d}", merge
            with contextlib.suppress(BrokenPipeError), worker.stdin:  # its exit code tells why
                pickle.dump(job, worker.stdin)
        for worker in workers:
            assert worker.stdout is not None
            with worker.stdout:
                answers.append(worker.stdout.read())
            worker.wait()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    if any(worker.returncode for worker in workers):
        raise RecordError(f"a process that was sealing the series failed ({[w.returncode for w in workers]})")
    shares = [pickle.loads(answer) for answer in answers]  # noqa: S301 - from our own children
    for share in shares:
        if isinstance(share, RecordError):
            raise share
    return shares


def work() -> None:
    """What a process of its own does: a job on stdin, its share on stdout."""
    gc.disable()  # nothing here refers to itself, and looking for it takes its time
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a worker never outlives the process that reads it
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever else may write to stdout must not get into the answer
    job = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
    try:
        share: Share | RecordError = Share.of(*job)
    except RecordError as error:
        share = error
    with os.fdopen(answer, "wb") as out:
        pickle.dump(share, out)


@dataclasses.dataclass
class Share:
    """What came of some of the hosts: parts of tables, and the samples that are in none."""

    parts: list[Part]
    lost: Counter[str] = dataclasses.field(default_factory=Counter)
    refused: Counter[str] = dataclasses.field(default_factory=Counter)

    @classmethod
    def of(cls, survey: Survey, hosts: Sequence[HostLog], directory: Path, merge: Merge | None) -> Share:
        """Read these hosts, one after the other, and write parts into the directory."""
        parts, files = Parts(directory, merged=merge is not None), Segments(survey)
        share = cls(parts.written)
        try:
            for host in hosts:
                samples, first = HostSamples(survey, host, files), min(host.times(), default=0)
                for sheets in _windows(samples, survey, merge):
                    for sheet in sheets:
                        block = block_of(sheet.source, host.name, sheet.take(), merge, first)
                        if block is not None:
                            parts.add(block)
                        share.refused[sheet.source.name] += sheet.refused
                        sheet.refused = 0
                share.lost[host.name] += samples.lost
            parts.close()
        finally:
            files.close()
        return share


def _windows(samples: HostSamples, survey: Survey, merge: Merge | None) -> Iterator[list[Sheet]]:
    """All samples of a host on sheets, one per source, given out whenever they hold much, and at the end.

    Samples that are to be merged are never parted. Sources are read in turns of some beats each: going through all of
    them at every beat would leave nothing of one in the processor's caches until its next turn.
    """
    sheets = {number: Sheet(source) for number, source in enumerate(survey.plan.sources) if source.every}
    waiting: dict[int, list[tuple[Sample, int]]] = {number: [] for number in sheets}
    count = group = 0
    for sample in samples:
        after = (sample.ts - merge.origin) // merge.step if merge is not None else sample.ts
        if count >= TURN and (after != group or count >= MOST_WAITING):
            _read(waiting, sheets)
            count = 0
            if after != group and sum(map(len, sheets.values())) > WINDOW:
                yield list(sheets.values())
        if sample.source in waiting:
            waiting[sample.source].append((sample, samples.connection))
        count, group = count + 1 + len(sample.body or b"") // A_SAMPLE, after
    _read(waiting, sheets)
    yield list(sheets.values())


def _read(waiting: dict[int, list[tuple[Sample, int]]], sheets: dict[int, Sheet]) -> None:
    for number, some in waiting.items():
        add = sheets[number].add
        for sample, connection in some:
            add(sample.ts, sample.mono, connection, sample.body)
        some.clear()
