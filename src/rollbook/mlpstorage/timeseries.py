"""MLPerf Storage's time-series collectors over Rollbook's recorder: one stream per host, on disk while it runs.

Samples fall on the same instants on all hosts; a slow or lost host affects only itself. A beat that a host missed is
an error sample. Past `max_samples` every second sample is kept, on all hosts, so that the end of a run is never lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rollbook.api.options import check_fanout
from rollbook.collect.recorder import Recorder
from rollbook.errors import ParseError, RollbookError
from rollbook.files import temporary_directory
from rollbook.hosts import Host, parse_hosts
from rollbook.journal.samples import HostSamples, Segments
from rollbook.journal.survey import HostJournal, Survey, survey
from rollbook.mlpstorage.collector import TimeSeriesCollectorInterface, host_names
from rollbook.mlpstorage.logs import log
from rollbook.mlpstorage.shapes import sample_value
from rollbook.protocol.plan import Plan
from rollbook.protocol.readings import Reading
from rollbook.records.timeseries import SAMPLED, TimeSeriesData, TimeSeriesSample
from rollbook.sources import catalogue
from rollbook.times import iso_now, iso_time
from rollbook.transports.routing import Options, route

__all__ = ["MultiHostTimeSeriesCollector", "TimeSeriesCollector"]

POLL_SECONDS = 0.2  # between checks whether the main thread still runs
NANO = 10**9


class SampleList(list[dict[str, Any]]):
    """The samples of this machine; `data` has them as TimeSeriesData."""

    data: TimeSeriesData


class HostSampleLists(dict[str, list[dict[str, Any]]]):
    """The samples by host; `data` has them as TimeSeriesData."""

    data: TimeSeriesData


class _Collector(TimeSeriesCollectorInterface):
    """What both collectors share: a thread that records hosts, and the samples read back from its journal."""

    def __init__(
        self, names: Sequence[str], interval: float, max_samples: int, *, fanout: int, logger: Any, options: Options
    ) -> None:
        self.interval_seconds, self.max_samples, self.logger = interval, max_samples, logger
        self._names, self._fanout, self._options = list(names), fanout, options
        self._stop_event = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._directory: Path | None = None
        self._cleanup = contextlib.ExitStack()
        self._started_ns = self._stopped_ns = 0
        self._start_time: str | None = None
        self._end_time: str | None = None
        self._result: HostSampleLists | None = None

    @property
    def start_time(self) -> str | None:
        """When it was started; None before."""
        return self._start_time

    @property
    def end_time(self) -> str | None:
        """When it was stopped; None before."""
        return self._end_time

    @property
    def is_running(self) -> bool:
        """Whether it was started and not yet stopped."""
        return self._start_time is not None and self._end_time is None

    def start(self) -> None:
        """Start in the background and return at once; raises `RuntimeError` the second time."""
        name = type(self).__name__
        if self._end_time is not None:
            raise RuntimeError(f"{name} already started and already stopped; create a new instance")
        if self._thread is not None:
            raise RuntimeError(f"{name} already started")
        hosts = parse_hosts(self._names) if self._names else []
        way = route(self._options)
        # Not the temporary directory itself: both it and a journal are locked.
        self._directory = self._cleanup.enter_context(temporary_directory()) / "journal"
        self._directory.mkdir()
        self._started_ns, self._start_time = time.time_ns(), iso_now()
        self._thread = threading.Thread(target=self._run, args=(hosts, way), name=name, daemon=False)
        self._thread.start()
        log(self.logger, "debug", f"{name} started: {len(hosts)} hosts, every {self.interval_seconds:g}s")

    def _stop(self) -> HostSampleLists:
        name = type(self).__name__
        if self._thread is None or self._directory is None:
            raise RuntimeError(f"{name} not started")
        if self._result is None:
            self._stopped_ns = time.time_ns()
            self._stop_event.set()
            self._thread.join()
            self._end_time = iso_now()
            with self._cleanup:
                self._result = self._read(self._directory)
            data = self._result.data
            log(self.logger, "debug", f"{name} stopped: {data.num_samples} samples of {len(self._result)} hosts")
            for host in (host for host in data.hosts_requested if host not in data.hosts_collected):
                why = next((text for one in self._result[host] for text in one["errors"].values()), "no samples")
                log(self.logger, "warning", f"{name}: {host} gave no samples: {why}")
            if data.collection_interval_seconds > self.interval_seconds:
                text = f"more than {self.max_samples} samples per host: kept one every "
                log(self.logger, "warning", f"{name}: {text}{data.collection_interval_seconds:g}s")
        return self._result

    def _live(self) -> HostSampleLists:
        """The samples so far; after the stop, all."""
        if self._result is not None:
            return self._result
        if self._directory is None:
            return HostSampleLists()
        with contextlib.suppress(RollbookError, OSError):
            return self._read(self._directory)
        return HostSampleLists({host: [] for host in self._names})

    def _run(self, hosts: list[Host], way: Any) -> None:
        try:
            asyncio.run(self._record(hosts, way))
        except BaseException as error:  # noqa: BLE001 - it becomes the error of every sample
            self._error = error
            log(self.logger, "warning", f"{type(self).__name__}: {error}")

    async def _record(self, hosts: list[Host], way: Any) -> None:
        assert self._directory is not None
        if not hosts:
            await self._stopped()
            return
        plan = Plan.of([catalogue.source(name) for name in SAMPLED.values()])
        async with Recorder(
            self._directory,
            hosts,
            way,
            plan,
            interval=self.interval_seconds,
            about={"type": "timeseries"},
            timeout=self._options.timeout,
            fanout=self._fanout,
        ) as recorder:
            await self._stopped()
            await recorder.end(facts=False)

    async def _stopped(self) -> None:
        """Wait for `stop`, or for the end of the main thread: then no one is left to take the samples."""
        while not self._stop_event.is_set() and threading.main_thread().is_alive():  # noqa: ASYNC110 - set by threads
            await asyncio.sleep(POLL_SECONDS)

    def _read(self, path: Path) -> HostSampleLists:
        samples: dict[str, list[TimeSeriesSample]] = {name: [] for name in self._names}
        methods: dict[str, str] = {}
        reasons: dict[str, str] = {}
        if path.exists() and any(path.iterdir()):
            found = survey(path)
            files = Segments(found)
            try:
                samples |= {host.name: list(_samples(found, host, files)) for host in found.hosts}
            finally:
                files.close()
            for host in found.hosts:
                methods[host.name] = host.method
                # A loss after `stop` is the end of the recording.
                losses = [loss for loss in host.losses if not self._stopped_ns or loss["at_ns"] < self._stopped_ns]
                reasons[host.name] = str(losses[-1].get("reason", "")) if losses else ""
        step = self._step(max(map(len, samples.values()), default=0))
        samples = {name: taken[::step] if self.max_samples else [] for name, taken in samples.items()}
        collected = [name for name, taken in samples.items() if taken]
        for name in self._names if self.max_samples else []:
            samples[name] = self._with_errors(name, samples, reasons.get(name, ""), methods.get(name, ""), step)
        ways = {methods[name] for name in collected if methods.get(name)}
        result = HostSampleLists({name: [one.to_dict() for one in taken] for name, taken in samples.items()})
        result.data = TimeSeriesData(
            collection_interval_seconds=self.interval_seconds * step,
            start_time=self._start_time or "",
            end_time=self._end_time or iso_now(),
            num_samples=sum(map(len, samples.values())),
            samples_by_host=samples,
            collection_method="+".join(sorted(ways)) or "unknown",
            hosts_requested=list(self._names),
            hosts_collected=collected,
            collection_methods={name: methods[name] for name in collected if methods.get(name)},
        )
        return result

    def _with_errors(
        self, name: str, samples: dict[str, list[TimeSeriesSample]], reason: str, method: str, step: int
    ) -> list[TimeSeriesSample]:
        """Return the samples of a host, with an error sample for each beat that it missed at the end or altogether."""
        own = samples[name]
        if not reason and (own or self.is_running):  # it is sampled, or still connecting
            return own
        others = max(samples.values(), key=len)
        times = [one.timestamp for one in others] if others and not own else self._beats(step, after=own)
        way = "ssh" if method in ("", "ssh") and self._options.via in ("auto", "ssh") else "collection"
        text = reason or (str(self._error) if self._error else "no sample before the stop")
        return [*own, *(TimeSeriesSample(time, name, errors={way: text}) for time in times)]

    def _beats(self, step: int, after: Sequence[TimeSeriesSample]) -> list[str]:
        """The beats from the last sample, or from the start, to now."""
        spacing = max(int(self.interval_seconds * step * NANO), 1)
        at = self._started_ns
        if after:
            at = int(dt.datetime.fromisoformat(after[-1].timestamp).timestamp()) * NANO + spacing
        end = time.time_ns()
        room = max(self.max_samples - len(after), 0)
        moments = range(at, end, spacing)[:room]
        return [iso_time(moment) for moment in moments]

    def _step(self, longest: int) -> int:
        """Of how many samples one is kept, so that the host with most keeps at most `max_samples`."""
        step = 1
        while 0 < self.max_samples * step < longest:
            step *= 2
        return step


class MultiHostTimeSeriesCollector(_Collector):
    """Samples hosts in the background from `start` to `stop`.

    Other keyword arguments are fields of `rollbook.transports.Options`.
    """

    def __init__(  # noqa: PLR0917 - the tool's signature
        self,
        hosts: Sequence[str],
        interval_seconds: float = 10.0,
        max_samples: int = 3600,
        ssh_username: str | None = None,
        ssh_timeout: float = 30,
        max_workers: int = 10,
        logger: Any = None,
        **options: Any,
    ) -> None:
        self.hosts, self.ssh_username = host_names(hosts), ssh_username
        self.ssh_timeout, self.max_workers = ssh_timeout, max_workers
        user = {"ssh_user": ssh_username} if ssh_username else {}
        way = Options.of(timeout=ssh_timeout, **user, **options)
        fanout = check_fanout(max_workers)
        super().__init__(self.hosts, interval_seconds, max_samples, fanout=fanout, logger=logger, options=way)

    def stop(self) -> HostSampleLists:
        """Stop, and return the samples by requested host; the second time, the same object."""
        return self._stop()

    @property
    def samples_by_host(self) -> HostSampleLists:
        """The samples so far."""
        return self._live()

    def get_hosts_with_data(self) -> list[str]:
        """The hosts of which there is a sample with a metric; error samples do not count."""
        found = self._live()
        return [host for host, taken in found.items() if any(key in one for one in taken for key in SAMPLED)]


class TimeSeriesCollector(_Collector):
    """Samples this machine in the background from `start` to `stop`."""

    def __init__(self, interval_seconds: float = 10.0, max_samples: int = 3600, logger: Any = None) -> None:
        way = Options.of(via="local")
        super().__init__(["localhost"], interval_seconds, max_samples, fanout=1, logger=logger, options=way)
        self._list: SampleList | None = None

    def stop(self) -> SampleList:
        """Stop, and return the samples; the second time, the same object."""
        found = self._stop()
        if self._list is None:
            self._list = SampleList(found["localhost"])
            self._list.data = found.data
        return self._list

    @property
    def samples(self) -> list[dict[str, Any]]:
        """The samples so far."""
        return self._live().get("localhost", []) if self._list is None else self._list


def _samples(found: Survey, host: HostJournal, files: Segments) -> Iterator[TimeSeriesSample]:
    """Yield the samples of a host, all sources of one beat together."""
    keys = {
        number: key
        for number, source in enumerate(found.plan.sources)
        for key, name in SAMPLED.items()
        if name == source.name
    }
    name = next((hello["hostname"] for hello in host.hellos if hello.get("hostname")), host.name)
    beats: dict[int, TimeSeriesSample] = {}
    bodies: dict[int, bytes] = {}
    for sample in HostSamples(found, host, files):
        if sample.source not in keys:
            continue
        beat = beats.setdefault(sample.ts, TimeSeriesSample(iso_time(sample.ts), name))
        body = bodies[sample.source] = bodies.get(sample.source, b"") if sample.body is None else sample.body
        source = found.plan.sources[sample.source]
        reading = Reading(source, "sample", "ok", "", sample.mono, 0, 0.0, body)
        try:
            setattr(beat, keys[sample.source], sample_value(reading.parse()))
        except ParseError as error:
            beat.errors = {**(beat.errors or {}), keys[sample.source]: str(error)}
    yield from beats.values()
