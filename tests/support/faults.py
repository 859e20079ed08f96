"""The fault campaign: an independent reader of this machine's counters, one run, and the checks after it.

A kind of fault is a function that takes a `Run`, causes the fault at a random moment and calls the checks.
`bench/faults` runs all kinds many times, `tests/lab/test_faults.py` runs each once.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import duckdb

from rollbook.checks.verify import verify
from rollbook.journal.entries import Entry
from rollbook.journal.reader import Reader
from rollbook.records.record import Record, SeriesHost, SourceLoss
from rollbook.testing import Lab
from rollbook.testing.lab.processes import living
from tests.support.commands import ROLLBOOK
from tests.support.launchers import HostProgress, agents, have_returned, read_progress, send_signal
from tests.support.waits import READ_PAUSE, until, until_sampled

__all__ = [
    "GROUPS",
    "KINDS",
    "MPI_RUN",
    "PATIENCE",
    "ROLLBOOK",
    "Campaign",
    "Kind",
    "Result",
    "Run",
    "in_order",
    "kind",
    "wrong_values",
]

MPI_RUN = Path(sys.prefix) / "bin" / "mpirun"
INTERVAL = 0.2
PATIENCE, LEAVING = 300.0, 30.0  # timeouts in seconds: for a state of the journal or a command; for processes to end
STEP = round(INTERVAL * 1e9)
LATE = 1.5  # intervals; with more between two rows, a beat is missing
SPARE = 2  # beats at the start and end of a recording that may or may not be due
RESOLUTION = 20_000_000  # ns, of the monotonic clock of the stand-in: each of two readings may be off by half of it
DRIFT = 50_000_000  # ns by which the wall clock of a host may drift, or be set without being noticed
COUNTERS = {"stat_totals": ("ctxt", "processes"), "vmstat": ("pgfault",)}
SINGLE = ("loadavg", "stat_totals", "vmstat", "meminfo")  # sources with one row per beat, read on every beat
GROUPS = (
    "network", "host", "agent", "launcher", "collector", "disk", "clock", "damaged journal", "hostile host",
    "hostile record", "hostile local user",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of fault; `needs_reference` says that it starts from the record that all such kinds share."""

    name: str
    group: str
    cause: Callable[[Run], None]
    needs_reference: bool = False


KINDS: dict[str, Kind] = {}


def in_order(kinds: Iterable[Kind]) -> list[Kind]:
    """First one kind that makes the reference record, then those that do not need it, so that no kind waits for it."""
    ordered = sorted(kinds, key=lambda one: one.needs_reference)
    first = next((one for one in ordered if one.needs_reference), None)
    return [*([first] if first else []), *(one for one in ordered if one is not first)]


def kind(
    name: str, group: str, *, needs_reference: bool = False
) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Register a kind of fault."""
    assert group in GROUPS

    def add(cause: Callable[[Run], None]) -> Callable[[Run], None]:
        assert name not in KINDS
        KINDS[name] = Kind(name, group, cause, needs_reference)
        return cause

    return add


@dataclasses.dataclass
class Result:
    """What is wrong after one run; each list has one line per problem."""

    wrong_values: list[str] = dataclasses.field(default_factory=list)
    unreported_losses: list[str] = dataclasses.field(default_factory=list)
    leftovers: list[str] = dataclasses.field(default_factory=list)
    wrong_exit_codes: list[str] = dataclasses.field(default_factory=list)
    values: int = 0
    seconds: float = 0.0

    def problems(self) -> list[str]:
        """All of them, with their type."""
        return [
            f"{field.name.replace('_', ' ')}: {problem}"
            for field in dataclasses.fields(self)
            if field.name not in ("values", "seconds")
            for problem in getattr(self, field.name)
        ]


class CounterReader(threading.Thread):
    """Reads monotonic counters of this machine about 20 times per second; shares no code with Rollbook."""

    def __init__(self) -> None:
        super().__init__(name="counters", daemon=True)
        self._began: list[int] = []
        self._ended: list[int] = []
        self._values: list[dict[str, int]] = []
        self._over = threading.Event()

    def run(self) -> None:
        """Read until the campaign is over."""
        while not self._over.wait(0.05):
            self.read()

    def read(self) -> None:
        """Read all counters once."""
        began, found = time.monotonic_ns(), dict[str, int]()
        for path in ("/proc/stat", "/proc/vmstat"):
            for line in Path(path).read_text().splitlines():
                name, value, *_ = line.split()
                if name in {"ctxt", "processes", "pgfault"}:
                    found[name] = int(value)
        self._values.append(found)
        self._ended.append(time.monotonic_ns())
        self._began.append(began)

    def close(self) -> None:
        """Stop reading."""
        self._over.set()
        self.join()

    def bounds(self, name: str, mono: int, after_ns: int) -> tuple[float, float]:
        """The minimum and maximum that a correct reader can have read at this time, or up to this much later."""
        count = len(self._began)
        before = bisect.bisect_right(self._ended, mono - RESOLUTION, hi=count) - 1
        after = bisect.bisect_left(self._began, mono + after_ns, hi=count)
        low = self._values[before][name] if before >= 0 else float("-inf")
        return low, self._values[after][name] if after < count else float("inf")


class Campaign:
    """A lab, a counter reader and a seed that all runs share; as many runs at once as there are pairs of hosts."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.seed = lab, seed
        self.counters = CounterReader()
        self.lock, self.making_reference = threading.Lock(), threading.Lock()
        self.free = list(lab.hosts)
        # Lab hosts have their own /tmp, but share /var/tmp.
        self.directory = Path(tempfile.mkdtemp(prefix="rollbook-faults-", dir="/var/tmp"))
        self.reference: Path | None = None
        self.reference_rows: dict[str, Counter[tuple[Any, ...]]] = {}

    def __enter__(self) -> Self:
        # A shell starts background programs with SIGINT ignored; recordings would inherit that.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self.counters.read()
        self.counters.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.counters.close()
        shutil.rmtree(self.directory)

    def run(self, one: Kind, number: int = 0) -> Result:
        """Run one kind of fault once. An exception counts as an unreported loss: nothing is known about the run."""
        began, run = time.monotonic(), Run(self, one.name, number)
        try:
            one.cause(run)
        except Exception as error:  # noqa: BLE001 - the other kinds must run
            run.result.unreported_losses.append(f"the run failed: {error!r}; {run.messages()[-2000:]}")
        finally:
            run.close()
        run.result.seconds = time.monotonic() - began
        return run.result


class Run:
    """One run of one kind: two hosts of its own (`host` gets the fault, `other` does not), a directory and a result."""

    def __init__(self, campaign: Campaign, name: str, number: int = 0) -> None:
        self.campaign, self.lab = campaign, campaign.lab
        self.random = random.Random(f"{campaign.seed} {name} {number}")
        self.directory = campaign.directory / f"{re.sub('[^a-z]+', '-', name.lower())}-{number}"
        self.results, self.temporary = self.directory / "results", self.directory / "tmp"
        self.temporary.mkdir(parents=True)
        with campaign.lock:
            self.host, self.other = campaign.free.pop(), campaign.free.pop()
        self.names = [self.host.name, self.other.name]
        self.result = Result()
        self.stopped_ns = 0
        self.foreign_files = True
        self.mark = f"ROLLBOOK_FAULTS={self.directory}"
        self.environ = {**os.environ, "TMPDIR": str(self.temporary), "ROLLBOOK_FAULTS": str(self.directory)}
        self._processes: list[subprocess.Popen[bytes]] = []

    # Running Rollbook

    def command(self, *arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a Rollbook command to its end."""
        argv = [*ROLLBOOK, *map(str, arguments)]
        options = {"capture_output": True, "text": True, "errors": "replace", "env": self.environ, **more}
        return subprocess.run(argv, check=False, timeout=PATIENCE, **options)

    def start(
        self,
        *options: str | Path,
        transport: Sequence[str] = (),
        command: Sequence[str] = (),
        program: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """Start to record both hosts, over ssh if no other transport is given, around a command if there is one."""
        ssh = ["--via", "ssh", "--ssh-config", str(self.lab.ssh_config), "--ssh-option", "ServerAliveInterval=2"]
        argv = [
            *(program or ROLLBOOK), "run" if command else "record", *(transport or ssh), "-w", ",".join(self.names),
            "--results-dir", str(self.results), "--interval", str(INTERVAL), "--no-report", "--timeout", "60",
            *map(str, options), *(["--", *command] if command else []),
        ]  # fmt: skip
        with (self.directory / "stderr").open("ab") as messages:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                env=self.environ,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def messages(self) -> str:
        """The messages of the recording so far."""
        path = self.directory / "stderr"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, hosts: int = 2, samples: int = 3) -> None:
        """Wait until at least this many hosts have samples, and then for a random moment."""
        self._until(lambda: sum(count >= samples for count in self.samples().values()) >= hosts)
        time.sleep(self.random.random())

    @contextlib.contextmanager
    def recording(self, *options: str | Path, codes: Collection[int] = (0, 3), **more: Any) -> Iterator[None]:
        """Record both hosts; the block runs at a random moment. Then end the recording and check everything."""
        process = self.start(*options, **more)
        self.wait()
        yield
        time.sleep(0.5 + self.random.random())
        self.stop(process, codes)
        self.check()

    def stop(self, process: subprocess.Popen[bytes], codes: Collection[int], number: int = signal.SIGTERM) -> None:
        """End a recording with a signal and check its exit code."""
        self.stopped_ns = time.time_ns()
        process.send_signal(number)
        self.expect_code(process.wait(PATIENCE), codes)

    def interrupt(self, process: subprocess.Popen[bytes]) -> None:
        """Send SIGINT, as Ctrl-C does."""
        process.send_signal(signal.SIGINT)

    def expect_code(self, code: int, codes: Collection[int], messages: str | None = None) -> None:
        """Count an exit code that is not one of these, and any traceback in the messages."""
        messages = self.messages() if messages is None else messages
        if code not in codes:
            self.result.wrong_exit_codes.append(f"{code} instead of {sorted(codes)}: {messages[-500:]}")
        if "Traceback" in messages:
            self.result.wrong_exit_codes.append(f"traceback: {messages[-1500:]}")

    # The journal while it is being written

    def samples(self) -> Counter[int]:
        """The number of samples in the journal so far, by number of the host."""
        raw = next((path for path in self.results.glob("*/*/raw") if not path.parent.is_symlink()), None)
        frames = ((entry.host, entry.frame) for entry in Reader(raw)) if raw else ()
        return Counter(host for host, frame in frames if frame is not None and frame.kind == "S")

    def progress(self) -> dict[str, HostProgress]:
        """Read what the journal has of each host so far."""
        (raw,) = self.results.glob("*/*/raw")
        return read_progress(raw, self.names)

    def wait_for_loss(self, *names: str) -> None:
        """Wait until the collector notices that the connection to these hosts is lost."""
        self._until(lambda: all(self.progress()[name].lost for name in names or [self.host.name]))

    def wait_for_return(self, *names: str) -> None:
        """Wait until these hosts are sampled again after a loss."""
        self._until(lambda: have_returned(self.progress(), names or [self.host.name], 0))

    def wait_for_beats(self, count: int = 4) -> None:
        """Wait until the host has this many more samples."""
        wanted = len(self.progress()[self.host.name].beats) + count
        self._until(lambda: len(self.progress()[self.host.name].beats) >= wanted)

    def _until(self, condition: Callable[[], object]) -> None:
        """Wait for a state of the journal, with a long timeout: several runs share the machine."""
        until(condition, PATIENCE, READ_PAUSE)

    def signal_agents(self, number: int) -> None:
        """Send a signal to the agent of the host."""
        send_signal(agents(self.host), number)

    # Checks

    @property
    def path(self) -> Path:
        """The one record."""
        (path,) = self.results.glob("*/*")
        return path

    def check(self, *, partial: bool | None = None, code: bool = True, skip: Collection[str] = ()) -> Record:
        """Check the finished record: values, losses, leftovers, and the exit code against the status of all hosts.

        `partial` says whether the host with the fault must be incomplete. Hosts in `skip` send invented values.
        """
        record = Record.open(self.path)
        for name in sorted(set(COUNTERS) & record.series_files().keys()):
            self.check_values(record, name, skip)
        for host in record.hosts.series:
            if host.name not in skip:
                self.check_losses(record, host)
        if not skip:
            self.check_sources(record)
        status = {host.name: host for host in record.hosts.outcome}[self.host.name]
        if partial is not None and partial != (status.status != "complete"):
            self.result.unreported_losses.append(f"{status.name} is {status.status} {status.reason}")
        if status.status != "complete" and not status.reason:
            self.result.unreported_losses.append(f"{self.host.name} is {status.status} without a reason")
        if code and self._processes and self._processes[-1].returncode not in (record.coverage.exit_code, None):
            self.result.wrong_exit_codes.append(
                f"{self._processes[-1].returncode}, but the coverage is {record.coverage}"
            )
        self.result.leftovers += [f"verify: {one.kind} {one.path} {one.why}" for one in verify(self.path).problems]
        self.check_leftovers()
        return record

    def check_values(self, record: Record, source: str, skip: Collection[str] = ()) -> None:
        """Compare each stored value of monotonic counters with the values of the independent reader around it."""
        count, wrong = wrong_values(record, source, self.campaign.counters, skip)
        self.result.values += count
        self.result.wrong_values += wrong

    def check_losses(self, record: Record, host: SeriesHost) -> None:
        """Check that each beat due is stored or reported as lost, or that the host is partial with a reason."""
        reported = {one.source: one for one in host.sources}
        incomplete = host.status != "complete" and bool(host.reason)
        for source in SINGLE:
            times = self.times(record, source, host.name)
            loss = reported.get(source) or SourceLoss(source=source, due=0, stored=0)
            if loss.stored != len(times) or loss.due != len(times) + entirely_lost(loss):
                self.result.unreported_losses.append(f"{host.name} {source}: {len(times)} rows, but {loss}")
            window = self.window(record, times)
            missing = missing_beats(window)
            if missing > entirely_lost(loss) + SPARE and not incomplete:
                longest = max(range(1, len(window)), key=lambda at: window[at] - window[at - 1])
                seconds = (window[longest] - window[longest - 1]) / 1e9
                self.result.unreported_losses.append(
                    f"{host.name} {source}: {missing} beats are missing, {entirely_lost(loss)} are reported; "
                    f"the longest gap is number {longest} of {len(window) - 1}: {seconds:.1f} s"
                )
        for loss in host.sources:
            if loss.affected() and not incomplete:
                self.result.unreported_losses.append(f"{host.name} is complete in spite of {loss}")

    def check_sources(self, record: Record) -> None:
        """Check that complete hosts have the same sources: all hosts show the files of this machine."""
        complete = [host for host in record.hosts.series if host.status == "complete"]
        everything = {one.source for host in record.hosts.series for one in host.sources if one.rows}
        for host in complete:
            if absent := everything - {one.source for one in host.sources}:
                self.result.unreported_losses.append(f"{host.name} is complete without {sorted(absent)}")

    def times(self, record: Record, source: str, host: str) -> list[int]:
        """The times of a host's samples in one table."""
        path = record.series_files().get(source)
        if path is None:
            return []
        sql = "SELECT DISTINCT epoch_ns(ts) FROM read_parquet(?) WHERE host = ? ORDER BY 1"
        with duckdb.connect() as connection:
            return [ts for (ts,) in connection.execute(sql, [str(path), host]).fetchall()]

    def window(self, record: Record, times: list[int]) -> list[int]:
        """The times of samples, with the times at which all hosts were ready and the recording was ended."""
        ready = [entry.arrived_ns for entry in Reader(record.path / "raw") if is_ready(entry)]
        ready = ready[:1] if times and ready[:1] < times[:1] else []
        return [*ready, *times, *([self.stopped_ns] if self.stopped_ns else [])]

    def check_leftovers(self) -> None:
        """Record processes, temporary files and unfinished files that are left after the run."""
        with contextlib.suppress(AssertionError):
            until(lambda: not self.processes(), LEAVING, READ_PAUSE)
        self.result.leftovers += self.processes()
        found = [path for path in self.temporary.rglob("*") if self.foreign_files or path.name.startswith("rollbook")]
        found += [path for path in self.results.rglob("*") if is_scratch(path)]
        self.result.leftovers += [str(path) for path in found]

    def processes(self) -> list[str]:
        """The command lines that still run on the hosts or, started by this run, on this machine."""
        mine = [one.cmdline[:200] for one in living() if one.has_environment(self.mark)]
        return [*mine, *(command[:200] for host in (self.host, self.other) for _, command in host.processes())]

    def close(self) -> None:
        """Kill remaining processes, reset the hosts and remove the files."""
        for process in self._processes:
            process.kill()
            process.wait()
        send_signal([one.pid for one in living() if one.has_environment(self.mark)])
        for host in (self.host, self.other):
            if host.changed:
                host.reset()
        with self.campaign.lock:
            self.campaign.free += [self.host, self.other]
        shutil.rmtree(self.directory, ignore_errors=True)

    # Damaged journals

    def reference(self) -> Path:
        """A record without faults that all kinds of damage start from; its own values are checked once."""
        with self.campaign.making_reference:
            if self.campaign.reference is None:
                process = self.start()
                until_sampled(self.results, hosts=2, samples=70, seconds=PATIENCE)  # more than one key frame
                self.stop(process, (0, 3))
                self.check()
                target = self.campaign.directory / "reference"
                shutil.copytree(self.path, target)
                shutil.rmtree(self.results)
                files = Record.open(target).series_files()
                self.campaign.reference_rows = {source: rows_of(path) for source, path in files.items()}
                self.campaign.reference = target
            return self.campaign.reference

    def compare(self, damaged: Path) -> None:
        """Compare a record of a damaged journal with the reference: rows are equal or reported as lost."""
        self.reference()
        after = Record.open(damaged)
        series, files = {host.name: host for host in after.hosts.series}, after.series_files()
        for source, whole in self.campaign.reference_rows.items():
            found = rows_of(files.get(source))
            self.result.values += sum(found.values())
            if extra := found - whole:
                self.result.wrong_values.append(
                    f"{source}: {extra.total()} rows are not in the reference: {list(extra)[:1]}"
                )
            lost = Counter(sample for sample in {row[:2] for row in whole} - {row[:2] for row in found})
            for name, count in Counter(host for host, _ in lost).items():
                host = series.get(name)
                if host is None or (host.status != "complete" and host.reason):
                    continue
                reported = next((one for one in host.sources if one.source == source), None)
                if reported is None or entirely_lost(reported) < count:
                    self.result.unreported_losses.append(f"{name} {source}: {count} samples lost, reported: {reported}")


def wrong_values(
    record: Record, source: str, counters: CounterReader, skip: Collection[str] = ()
) -> tuple[int, list[str]]:
    """The number of values of a source that were compared with the independent reader, and what is wrong with them.

    All sources of a beat have the time of its start. A host that waits for a processor reads them later; the record
    reports by how much at most, and nothing more is allowed, so that the load of the machine decides nothing.
    """
    names, to_wall, count, wrong = COUNTERS[source], wall_minus_monotonic(), 0, list[str]()
    errors = {
        host.name: DRIFT + max((point.clock.bound_ns for point in host.clocks), default=0)
        for host in record.hosts.series
    }
    delays = {host.name: one.delay_ns for host in record.hosts.series for one in host.sources if one.source == source}
    columns, path = ", ".join(names), str(record.series_files()[source])
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT host, mono, epoch_ns(ts), {columns} FROM read_parquet(?)", [path])
        rows = found.fetchall()
    for host, mono, ts, *values in rows:
        if host in skip:
            continue
        off, delay = ts - mono - to_wall, delays[host]
        if not -errors[host] - delay <= off <= errors[host]:
            wrong.append(f"{host} {source}: stored {off / 1e6:.1f} ms off, {delay / 1e6:.1f} ms are reported")
        for name, value in zip(names, values, strict=True):
            low, high = counters.bounds(name, mono, delay + RESOLUTION)
            count += 1
            if value is None or not low <= value <= high:
                wrong.append(f"{host} {source}.{name}: {value} is not in {low} to {high}")
    return count, wrong


def wall_minus_monotonic() -> int:
    """The difference of the clocks, from the attempt in which they were read closest together."""
    attempts = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(20)]
    before, wall, after = min(attempts, key=lambda one: one[2] - one[0])
    return wall - (before + after) // 2


def entirely_lost(loss: SourceLoss) -> int:
    """The samples of which nothing is stored."""
    return sum(one.samples - one.partly for one in loss.losses)


def missing_beats(times: list[int]) -> int:
    """The beats that are missing between samples."""
    steps = [after - before for before, after in itertools.pairwise(times)]
    return sum(round(step / STEP) - 1 for step in steps if step > LATE * STEP)


def is_ready(entry: Entry) -> bool:
    """Whether an entry of a journal is the event that all hosts are ready."""
    return (entry.event or {}).get("event") == "ready"


def is_scratch(path: Path) -> bool:
    """Whether a file or directory is one that only exists while a record is written."""
    return path.name == ".again" or path.name.startswith(".parts") or path.suffix == ".part"


def rows_of(path: Path | None) -> Counter[tuple[Any, ...]]:
    """The rows of a table, each starting with host and monotonic time; columns without a value are left out.

    Times on the collector's clock depend on all measurements of the host's clock, and are not compared.
    """
    if path is None:
        return Counter()
    with duckdb.connect() as connection:
        found = connection.execute("SELECT * EXCLUDE (ts) FROM read_parquet(?)", [str(path)])
        names, rows = [column[0] for column in found.description or []], found.fetchall()
    host, mono = names.index("host"), names.index("mono")
    return Counter(
        (
            row[host],
            row[mono],
            *((name, str(value)) for name, value in zip(names, row, strict=True) if value is not None),
        )
        for row in rows
    )
