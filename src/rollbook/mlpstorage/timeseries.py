"""MLPerf Storage's time series collectors over Rollbook's recorder: one stream per host, kept on disk while it runs.

Samples fall on the same instants on all hosts, whatever the hosts take to answer; a host that is slow or gone costs
itself alone. Past `max_samples` every second sample is kept, on all hosts, so that the end of a run is never lost; 0 is
no limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rollbook.api.options import check_fanout
from rollbook.collect.recorder import Recorder
from rollbook.errors import ParseError
from rollbook.files import temporary_directory
from rollbook.hosts import Host, parse_hosts
from rollbook.journal.samples import HostSamples, Segments
from rollbook.journal.survey import HostJournal, Survey, survey
from rollbook.mlpstorage.shapes import SOURCES, sample_value
from rollbook.protocol.plan import Plan
from rollbook.protocol.readings import Reading
from rollbook.records.timeseries import TimeSeriesData, TimeSeriesSample
from rollbook.sources import catalogue
from rollbook.times import iso_now, iso_time
from rollbook.transports.routing import Options, route

__all__ = ["MultiHostTimeSeriesCollector", "TimeSeriesCollector"]

# Keys of a sample, and the sources they come from.
SAMPLED = {key: SOURCES[key] for key in ("diskstats", "vmstat", "meminfo", "loadavg", "netdev")}


class MultiHostTimeSeriesCollector:
    """Samples hosts in the background from `start` to `stop`."""

    def __init__(  # noqa: PLR0917 - their signature
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
        self.hosts, self.interval, self.max_samples, self.logger = list(hosts), interval_seconds, max_samples, logger
        self._options = Options.of(ssh_user=ssh_username, timeout=ssh_timeout, **options)
        self._fanout = check_fanout(max_workers)
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._asked: list[Host] = []
        self._directory: Path | None = None
        self._cleanup = contextlib.ExitStack()
        self._began = self._ended = ""
        self._given: TimeSeriesData | None = None

    def start(self) -> None:
        """Begin; returns when every host gives samples or has failed to, and raises what keeps it from beginning."""
        if self._thread is not None:
            raise RuntimeError("it was started already")
        self._asked = parse_hosts(self.hosts)
        self._directory = self._cleanup.enter_context(temporary_directory())
        self._began = iso_now()
        # A program that ends without `stop` ends: nobody would get the samples.
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._cleanup.close()
            raise self._error

    def stop(self) -> TimeSeriesData:
        """End, and give what was sampled; asked again, the same."""
        if self._thread is None or self._directory is None:
            raise RuntimeError("it was not started")
        if self._given is None:
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # it ended by itself
                    self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._ended = iso_now()
            with self._cleanup:
                if self._error is not None:
                    raise self._error
                self._given = self._data(survey(self._directory))
        return self._given

    @property
    def is_running(self) -> bool:
        """Whether samples are being taken."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.run(self._record())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread, by `start` or `stop`
            self._error = error
        finally:
            self._ready.set()

    async def _record(self) -> None:
        assert self._directory is not None
        self._loop = asyncio.get_running_loop()
        plan = Plan.of([catalogue.source(name) for name in SAMPLED.values()])
        async with Recorder(
            self._directory,
            self._asked,
            route(self._options),
            plan,
            interval=self.interval,
            about={"type": "timeseries"},
            timeout=self._options.timeout,
            fanout=self._fanout,
        ) as recorder:
            await recorder.ready()
            self._ready.set()
            await self._stop.wait()
            await recorder.end(facts=False)

    def _data(self, found: Survey) -> TimeSeriesData:
        files = Segments(found)
        try:
            samples = {host.name: list(_samples(found, host, files)) for host in found.hosts}
        finally:
            files.close()
        step = self._step(max(map(len, samples.values()), default=0))
        samples = {host: taken[::step] for host, taken in samples.items()}
        collected = [host for host, taken in samples.items() if taken]
        return TimeSeriesData(
            collection_interval_seconds=self.interval * step,
            start_time=self._began,
            end_time=self._ended,
            num_samples=sum(map(len, samples.values())),
            samples_by_host={host: samples[host] for host in collected},
            collection_method="ssh" if len(collected) > 1 else "local",
            hosts_requested=[host.name for host in self._asked],
            hosts_collected=collected,
        )

    def _step(self, longest: int) -> int:
        """One of how many samples is kept, with so many on the host that has most."""
        step = 1
        while 0 < self.max_samples * step < longest:
            step *= 2
        return step


class TimeSeriesCollector(MultiHostTimeSeriesCollector):
    """The same for this machine alone."""

    def __init__(self, interval_seconds: float = 10.0, max_samples: int = 3600, logger: Any = None) -> None:
        super().__init__(["localhost"], interval_seconds, max_samples, logger=logger, via="local")


def _samples(found: Survey, host: HostJournal, files: Segments) -> Iterator[TimeSeriesSample]:
    """The samples of a host, all sources of one beat together."""
    keys = {
        number: key
        for number, source in enumerate(found.plan.sources)
        for key, s in SAMPLED.items()
        if s == source.name
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
