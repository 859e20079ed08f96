"""Converts a journal to `series/<source>.parquet`, on all cores if it is large.

A process reads one host after the other, each over the whole run. It holds one window of one host and the blocks that
wait to be written, so memory does not grow with the length of the run. With several cores the hosts are divided among
processes; their parts are joined in the order of host names.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rollbook.errors import RecordError
from rollbook.journal.gaps import SamplingTime, frame_gaps, sampling_time
from rollbook.journal.samples import ALL, HostSamples, Segments
from rollbook.journal.survey import HostJournal, Survey
from rollbook.protocol.beats import nearest_beat
from rollbook.protocol.samples import Sample
from rollbook.records.record import SourceLoss
from rollbook.tables.columns import HostColumns, Merge, block_of
from rollbook.tables.incremental.sample_parser import SampleParser
from rollbook.tables.losses import Tally
from rollbook.tables.parquet import Part, Parts, connect, join

__all__ = ["Sealed", "seal"]

WINDOW = 8 << 20  # values of one host held before they are written
TURN, MAX_WAITING = 1024, 16_384  # samples waiting to be parsed: usually, and within one group of merged samples
SAMPLE_BYTES = 64 << 10  # a larger sample counts as several
UNDECODABLE, EXCESS = -1, -2  # instead of a connection number: not decodable, or the host exceeded its budget
FRAMES_PER_PROCESS = 5_000  # with fewer frames, starting a process takes longer than it saves
FRAMES_PER_HOST = 100  # parsing these takes as long as a host's first samples, which are parsed in full

Waiting = dict[int, list[tuple[Sample, int]]]
"""Samples waiting to be parsed, with the number of their connection, by position of the source in the plan."""
PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclasses.dataclass
class Sealed:
    """The result of converting a journal: rows by table, the number of beats in one sample, and losses by host.

    `left_out` is the number of columns that a table lacks because there are too many, by table; not every table has it.
    """

    tables: dict[str, int]
    merged: int
    losses: dict[str, list[SourceLoss]]
    left_out: dict[str, int]


def seal(
    survey: Survey, target: Path, *, max_samples: int = 0, processes: int | None = None, incremental: bool = True
) -> Sealed:
    """Write the tables of a journal into the directory `target`, each atomically; raises `RecordError`.

    Without `incremental`, the parser of a source reads every sample in full: the same tables, more slowly.
    """
    merged, merge = merging(survey, max_samples)
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".parts-", dir=target))
    except OSError as error:
        raise RecordError(f"cannot write to {target}: {error.strerror}") from error
    try:
        shares = _distribute(Job(survey, [], {}, scratch, merge, incremental), processes)
        tables, left_out = dict[str, list[Part]](), dict[str, int]()
        for share in shares:
            for part in share.parts:
                tables.setdefault(part.source, []).append(part)
        with connect() as connection:
            for source in survey.plan.sources:
                if source.name in tables:
                    path = target / f"{source.name}.parquet"
                    if count := join(connection, source, tables[source.name], path, merged=merge is not None):
                        left_out[source.name] = count
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    rows = {name: sum(part.rows for part in parts) for name, parts in tables.items()}
    losses = {host: losses for share in shares for host, losses in share.losses.items()}
    return Sealed(rows, merged, losses, left_out)


def merging(survey: Survey, max_samples: int) -> tuple[int, Merge | None]:
    """The number of beats to merge into one sample so that no host has more than `max_samples`, and the merge.

    Beats are those at the end of the run: if the interval grew, earlier samples are merged up to it. A mark or a new
    connection of the host may add one sample.
    """
    edges = [(times[0], times[-1]) for host in survey.hosts if (times := host.times())]
    if not edges or not max_samples or not survey.interval_ns:
        return 1, None
    # A clock that could not be measured may be years off; it does not change the length of the run.
    begin, end = survey.started_ns - survey.interval_ns, survey.ended_ns + survey.interval_ns
    edges = [(first, last) for first, last in edges if begin <= first and last <= end] or edges
    first = nearest_beat(min(first for first, _ in edges), survey.interval_ns)
    last = max(last for _, last in edges)
    beats = round((last - first) / survey.interval_ns) + 1
    # A host's first sample is never merged and counts towards the limit.
    merged = 1 if beats <= max_samples else -(-beats // max(1, max_samples - 1))
    finest = survey.schedule.at(first)
    if merged == 1 and finest == survey.interval_ns:
        return 1, None
    # Beats come slightly early or late, so groups end between them; the last beat of a group is one of the end.
    begin, step = first - survey.interval_ns + finest // 2, merged * survey.interval_ns
    return merged, Merge(begin, step, [at_ns for at_ns, _ in survey.marks])


@dataclasses.dataclass(frozen=True)
class Job:
    """The work of one process: hosts to read, the directory for their parts, and how samples are merged and parsed."""

    survey: Survey
    hosts: Sequence[HostJournal]
    due: Mapping[str, SamplingTime]
    directory: Path
    merge: Merge | None
    incremental: bool


def _distribute(whole: Job, processes: int | None) -> list[Share]:
    hosts = sorted((host for host in whole.survey.hosts if len(host.places)), key=lambda host: host.name)
    whole = dataclasses.replace(whole, due={host.name: sampling_time(whole.survey, host) for host in hosts})
    frames = sum(FRAMES_PER_HOST + len(host.places) for host in hosts)
    cores = len(os.sched_getaffinity(0)) if processes is None else processes
    count = max(1, min(cores, len(hosts), frames // FRAMES_PER_PROCESS if processes is None else cores))
    if count == 1:
        return [Share.of(dataclasses.replace(whole, hosts=hosts, directory=whole.directory / "0000"))]
    groups: list[list[HostJournal]] = [[] for _ in range(count)]
    done = 0
    for host in hosts:
        groups[done * count // frames].append(host)
        done += FRAMES_PER_HOST + len(host.places)
    # Not multiprocessing: it would import the caller's main module again, or fork its threads.
    argv = [sys.executable, "-P", "-c", "from rollbook.tables.seal import work; work()"]
    # In their own process group, so that Ctrl-C reaches only this process, which decides what it means.
    workers = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0) for _ in groups]
    survey, answers = dataclasses.replace(whole.survey, hosts=[]), []
    try:
        for number, (worker, group) in enumerate(zip(workers, groups, strict=True)):
            assert worker.stdin is not None
            job = dataclasses.replace(whole, survey=survey, hosts=group, directory=whole.directory / f"{number:04d}")
            with contextlib.suppress(BrokenPipeError), worker.stdin:  # its exit status is checked below
                pickle.dump(job, worker.stdin)
        for worker in workers:
            assert worker.stdout is not None
            with worker.stdout:
                answers.append(worker.stdout.read())
            worker.wait()
    finally:
        for worker in workers:
            worker.kill()
            with contextlib.suppress(BrokenPipeError), worker:  # closes its pipes
                worker.wait()
    if failed := [worker.returncode for worker in workers if worker.returncode]:
        raise RecordError(_failure(failed))
    shares = [pickle.loads(answer) for answer in answers]  # noqa: S301 - from our own children
    for share in shares:
        if isinstance(share, RecordError):
            raise share
    return shares


def _failure(failed: Sequence[int]) -> str:
    """What is known about workers that failed, by their exit statuses."""
    statuses = ", ".join(str(status) for status in dict.fromkeys(failed))
    why = "; killed, perhaps for lack of memory" if -signal.SIGKILL in failed else ""
    return f"cannot build the tables: worker processes ended with exit status {statuses}{why}"


def work() -> None:
    """The main function of a worker process: reads a job from stdin, writes its share to stdout."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a worker never outlives the process that reads it
    gc.disable()  # there are no reference cycles, and searching for them takes time
    answer = os.dup(1)
    os.dup2(2, 1)  # other output must not be mixed with the answer
    job = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
    try:
        share: Share | RecordError = Share.of(job)
    except RecordError as error:
        share = error
    with os.fdopen(answer, "wb") as out:
        pickle.dump(share, out)


@dataclasses.dataclass
class Share:
    """The result for some of the hosts: parts of tables, and the losses of each host."""

    parts: list[Part]
    losses: dict[str, list[SourceLoss]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, job: Job) -> Share:
        """Read the hosts of a job one after the other and write parts into its directory."""
        survey, merge = job.survey, job.merge
        parts = Parts(job.directory, merged=merge is not None)
        share = cls(parts.written)
        with contextlib.closing(Segments(survey)) as files:
            for host in job.hosts:
                first = min(host.times())
                frames = frame_gaps(host, job.due[host.name])
                parsers, columns = dict[int, SampleParser](), dict[str, HostColumns]()
                every_beat = host.uses_stand_in
                for number, source in enumerate(survey.plan.sources):
                    if source.every:
                        tally = Tally(source, frames, every_beat=every_beat)
                        parsers[number] = SampleParser(source, tally, incremental=job.incremental)
                samples = HostSamples(survey, host, files)
                for _ in _windows(samples, parsers, merge):
                    for parser in parsers.values():
                        admitted = columns.setdefault(parser.source.name, HostColumns())
                        block = block_of(parser.source, host.name, parser.take(), merge, first=first, admitted=admitted)
                        if block is not None:
                            parser.tally.rows += len(block.ts)
                            if block.incomplete:
                                parser.tally.incomplete("excess", min(block.ts), max(block.ts), block.incomplete)
                            parts.add(block)
                losses = share.losses[host.name] = []
                for number, parser in parsers.items():
                    if (loss := parser.tally.result()) is not None:
                        loss.delay_ns = 1000 * samples.delays.get(number, 0)
                        losses.append(loss)
            parts.close()
        return share


def _windows(samples: HostSamples, parsers: Mapping[int, SampleParser], merge: Merge | None) -> Iterator[None]:
    """Parse all samples of a host, each by the parser of its source; yields after each window and at the end.

    Samples to be merged stay in one window. Each source is parsed for many beats at a time: switching sources at every
    beat would evict each one from the processor's caches.
    """
    waiting: Waiting = {number: [] for number in parsers}
    count = group = 0
    for sample in samples:
        after = (sample.ts - merge.origin) // merge.step if merge is not None else sample.ts
        if count >= TURN and (after != group or count >= MAX_WAITING):
            _parse_waiting(waiting, parsers)
            count = 0
            if after != group and sum(map(len, parsers.values())) > WINDOW:
                yield
        if samples.undecodable:
            _queue_undecodable(samples, waiting, parsers)
        if sample.source in waiting:
            waiting[sample.source].append((sample, samples.connection))
        count, group = count + 1 + len(sample.body or b"") // SAMPLE_BYTES, after
    _queue_undecodable(samples, waiting, parsers)
    _parse_waiting(waiting, parsers)
    yield


def _queue_undecodable(samples: HostSamples, waiting: Waiting, parsers: Mapping[int, SampleParser]) -> None:
    """Add samples that could not be decoded to those that wait, in order of time."""
    connection = EXCESS if samples.over_budget else UNDECODABLE
    for source, ts in samples.undecodable:
        sources = [source]
        if source == ALL:  # the host's known sources, or all if none is known, except those decoded from this frame
            known = [number for number, parser in parsers.items() if parser.tally or waiting[number]] or list(waiting)
            sources = [number for number in known if not waiting[number] or waiting[number][-1][0].ts != ts]
        for number in sources:
            if number in waiting:
                waiting[number].append((Sample(number, ts, 0, None), connection))
    samples.undecodable.clear()


def _parse_waiting(waiting: Waiting, parsers: Mapping[int, SampleParser]) -> None:
    for number, samples in waiting.items():
        add, lose = parsers[number].add, parsers[number].lose
        for sample, connection in samples:
            if connection >= 0:
                add(sample.ts, sample.mono, connection, sample.body)
            else:
                lose(sample.ts, "excess" if connection == EXCESS else "undecodable")
        samples.clear()
