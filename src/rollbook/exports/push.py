"""Live push: a process that follows the journal of a recording and sends the metrics to a receiver.

The journal is the buffer, so nothing that the receiver does reaches the recorder: while the receiver is slow or
unavailable, this process falls behind and catches up later. What is too old by then is skipped, and every value that
the receiver did not accept is counted. The end of standard input means that the recording is over.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rollbook.collect.backoff import growing_pauses
from rollbook.errors import RecordError
from rollbook.exports.families import Gauge, gauge_of
from rollbook.exports.receiver import TOKEN, Receiver
from rollbook.exports.remote_write import Batch, encode_labels, encode_time, snappy
from rollbook.journal.clocks import CollectorClock, Timeline
from rollbook.journal.entries import RUN, Entry
from rollbook.journal.reader import Follower
from rollbook.journal.survey import plan_of, schedule_of
from rollbook.metrics import catalogue
from rollbook.metrics.frames import HostFrames
from rollbook.protocol.beats import Schedule
from rollbook.protocol.frames import LATEST, Frame
from rollbook.protocol.plan import Plan
from rollbook.records.pushed import Pushed, write_pushed

__all__ = ["END_SECONDS", "Job", "Limits", "Push", "main"]

END_SECONDS = 5.0
"""The time after the end of a recording in which the rest is sent."""
POLL = 0.5  # seconds; the recorder flushes its journal as often
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before a retry
MAX_SERIES = 20_000  # of a host: one that names new devices on every beat must not fill the receiver
LONGEST_LABEL = 256  # characters; receivers reject or cut long ones
NICE = 5


class Job(msgspec.Struct, frozen=True):
    """The task of the process, which it reads from standard input because the address may contain a password."""

    raw: str
    url: str
    labels: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Limits:
    """Seconds for one request, for the rest after the end, until a batch is sent, and until a sample is too old.

    A batch has about `batch_bytes` at most; while `pending_bytes` wait to be sent, no more is read.
    """

    request: float = 10.0
    end: float = END_SECONDS
    batch: float = 5.0
    age: float = 300.0
    batch_bytes: int = 1 << 20
    pending_bytes: int = 16 << 20


class Push:
    """Sends the metrics of a journal; `wait` sleeps for some seconds, or until it is over, and returns whether it is.

    `labels` are those that all series have. `on_problem` is called with the reason of the first failure.
    """

    def __init__(
        self,
        raw: Path,
        receiver: Receiver,
        labels: Mapping[str, str],
        *,
        wait: Callable[[float], bool],
        on_problem: Callable[[str], None] = lambda _: None,
        limits: Limits | None = None,
    ) -> None:
        self._raw, self._receiver, self._labels, self._wait = raw, receiver, labels, wait
        self._on_problem, self._limits = on_problem, limits or Limits()
        self._journal, self._clock = Follower(raw), CollectorClock()
        self._hosts: list[_Host] = []
        self._batch, self._closed_at = Batch(), 0.0  # the first values are sent at once, to notice mistakes early
        self._pending: deque[tuple[bytes, int]] = deque()
        self._pending_bytes = 0
        self._pauses, self._retry_at = growing_pauses(FIRST_PAUSE, LONGEST_PAUSE), 0.0
        self._sent = self._lost = 0
        self._problem = self._reason = ""  # the latest failure, and the reason of the latest loss
        self._deadline: float | None = None

    def run(self) -> Pushed:
        """Send until the recording is over and all is sent, or its time has expired; returns and stores the result."""
        over = False
        while not over:
            self._sleep(POLL)
            self._read()
            over = self._deadline is not None
            if not over and time.monotonic() - self._closed_at >= self._limits.batch:
                self._close_batch()
            self._send()
        self._read()
        for host in self._hosts:
            host.end(self._batch)
        self._close_batch()
        self._store()  # in case this process is killed before it is done
        self._send()
        return self._store()

    def _store(self) -> Pushed:
        """Store the result as it would be if nothing more were sent."""
        pending = sum(count for _, count in self._pending)
        reason = self._unsent if pending else self._reason
        found = Pushed(url=self._receiver.masked, sent=self._sent, lost=self._lost + pending, reason=reason)
        write_pushed(self._raw, found)
        return found

    def _sleep(self, seconds: float) -> None:
        """Wait; notice the end of the recording."""
        if self._deadline is None:
            if self._wait(seconds):
                self._deadline = time.monotonic() + self._limits.end
        else:
            time.sleep(max(0.0, min(seconds, self._deadline - time.monotonic())))

    @property
    def _unsent(self) -> str:
        """Why values are left at the end."""
        return self._problem or f"not sent within {self._limits.end:g} s after the end"

    @property
    def _expired(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _read(self) -> None:
        """Take what the journal has gained; while too much is pending, wait until it is sent."""
        for entry in self._journal:
            event = entry.event
            if event is not None and isinstance(boot_ns := event.get("boot_ns"), int):
                self._clock.observe(entry.arrived_ns, boot_ns)
            if event is not None and entry.host == RUN:
                if event.get("event") == "begin" and not self._hosts:
                    plan, schedule = plan_of(event), schedule_of(event)
                    self._hosts = [_Host(str(name), self._labels, plan, schedule) for name in event["hosts"]]
            elif entry.host < len(self._hosts):
                self._take(self._hosts[entry.host], entry, event)

    def _take(self, host: _Host, entry: Entry, event: dict[str, Any] | None) -> None:
        arrived_ns = self._clock.steady(entry.arrived_ns)
        if event is not None:
            host.event(event, arrived_ns, self._clock, self._batch)
        elif (frame := entry.frame) is not None:
            late = ""
            if self._expired:
                late = self._unsent
            elif time.time_ns() - entry.arrived_ns > 1e9 * self._limits.age:
                late = self._problem or f"this machine was more than {self._limits.age:g} s behind"
            try:
                self._lose(*host.frame(frame, arrived_ns, self._batch, late))
            except Exception as error:  # noqa: BLE001 - whatever a host sends affects only its own values
                self._lose(host.count, f"unexpected: {error!r}")
        if self._batch.size >= self._limits.batch_bytes:
            self._close_batch()
            self._send()

    def _lose(self, count: int, reason: str) -> None:
        if count:
            self._lost += count
            self._reason = reason

    def _close_batch(self) -> None:
        if self._batch.size:
            body = self._batch.body()
            self._pending.append((body, self._batch.count))
            self._pending_bytes += len(body)
            self._batch, self._closed_at = Batch(), time.monotonic()

    def _send(self) -> None:
        """Send what is pending. Returns while a retry is due later, unless too much is pending or it is the end."""
        while self._pending and not self._expired:
            pause = self._retry_at - time.monotonic()
            if pause > 0:
                if self._deadline is None and self._pending_bytes < self._limits.pending_bytes:
                    return
                if self._deadline is not None and self._retry_at >= self._deadline:
                    self._deadline = time.monotonic()  # nothing more can be sent
                    return
                self._sleep(min(pause, POLL))
                continue
            body, count = self._pending[0]
            failure = self._receiver.post(snappy(body), self._request_limit())
            if failure is None:
                self._sent += count
            else:
                self._fail(failure.reason)
                if failure.may_retry:
                    pause = next(self._pauses) if failure.pause is None else failure.pause
                    self._retry_at = time.monotonic() + pause
                    continue
                self._lose(count, failure.reason)
            self._pauses = growing_pauses(FIRST_PAUSE, LONGEST_PAUSE)
            self._pending.popleft()
            self._pending_bytes -= len(body)

    def _request_limit(self) -> float:
        if self._deadline is None:
            return self._limits.request
        return max(0.1, min(self._limits.request, self._deadline - time.monotonic()))

    def _fail(self, reason: str) -> None:
        if not self._problem:
            self._on_problem(reason)
        self._problem = reason


class _Host:
    """One host: its clock, its metrics, and the series that it has now. `count` is the number of its latest values."""

    def __init__(self, name: str, labels: Mapping[str, str], plan: Plan, schedule: Schedule) -> None:
        self._labels = {**labels, "host": name[:LONGEST_LABEL]}
        self._schedule, self._timeline = schedule, Timeline()
        self._frames = HostFrames(plan, schedule.interval_ns / 1e9, catalogue.parts())
        self._gauges = _gauges()
        self._known: dict[tuple[str, str], bytes] = {}
        self._now: set[bytes] = set()
        self._ms = 0

    @property
    def count(self) -> int:
        """The number of values of its latest beat."""
        return len(self._now)

    def event(self, event: dict[str, Any], at_ns: int, clock: CollectorClock, batch: Batch) -> None:
        """Take an event of the collector about this host."""
        match event.get("event"):
            case "clock":
                self._timeline.measured(at_ns, clock.steady(int(event["offset_ns"])))
            case "connected":
                self._frames.connected(event["hello"])
            case "lost":
                self.end(batch)

    def frame(self, frame: Frame, arrived_ns: int, batch: Batch, late: str) -> tuple[int, str]:
        """Take a frame, and add the values of a complete beat; returns the number of those lost, and the reason.

        If it is too `late`, all are lost, as many as the host had before; they are not computed.
        """
        if frame.mono | frame.wall > LATEST:
            return 0, ""
        if frame.kind == "H":
            self._timeline.connect()
        ts = self._timeline.latest(self._timeline.steady(frame.mono, frame.wall, arrived_ns))
        if self._schedule.doubles:
            self._frames.step = self._schedule.at(ts) / 1e9
        beat = self._frames.frame(frame, ts, compute=not late)
        if beat is None or late:
            return (0, "") if beat is None else (self.count, late)
        # Receivers store milliseconds. Of samples that are closer, as at the edge of a phase, the first is sent.
        before, ms = self._ms, beat // 1_000_000
        if ms <= before + 1:
            return (self.count, "the clock of a host went back") if ms < before else (0, "")
        return self._add(ms, batch)

    def end(self, batch: Batch) -> None:
        """End all series: the host has no values from here on."""
        if self._now:
            self._ms += 1
            self._end(self._now, batch)
            self._now = set()

    def _end(self, series: set[bytes], batch: Batch) -> None:
        time_ = encode_time(self._ms)
        for labels in series:
            batch.end(labels, time_)

    def _add(self, ms: int, batch: Batch) -> tuple[int, str]:
        """Add all values of the beat; series that had a value before and have none now are ended."""
        self._ms, time_, now, lost = ms, encode_time(ms), set[bytes](), 0
        for device, values in [("", self._frames.values), *self._frames.devices.items()]:
            for name, value in values.items():
                labels = self._series(device, name)
                if labels and labels not in now:
                    gauge = self._gauges[name]
                    batch.add(labels, time_, value * gauge.factor / gauge.divisor)
                    now.add(labels)
                else:
                    lost += 1
        self._end(self._now - now, batch)
        self._now = now
        return lost, f"a host has more than {MAX_SERIES} series, or equal names within {LONGEST_LABEL} characters"

    def _series(self, device: str, name: str) -> bytes:
        """The labels of a series; empty if the host has too many."""
        found = self._known.get((device, name))
        if found is None:
            if len(self._known) >= MAX_SERIES:
                return b""
            gauge = self._gauges[name]
            own = {"__name__": gauge.device, "device": device[:LONGEST_LABEL]} if device else {"__name__": gauge.host}
            found = self._known[device, name] = encode_labels({**self._labels, **own})
        return found


@functools.cache
def _gauges() -> dict[str, Gauge]:
    return {name: gauge_of(metric) for name, metric in catalogue.load().items()}


def main() -> None:
    """The main function of the process: reads a `Job` line from stdin, then works until stdin ends."""
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=Job)
    os.nice(NICE)

    def over(seconds: float) -> bool:
        return bool(select.select([sys.stdin], [], [], seconds)[0])

    def tell(reason: str) -> None:
        sys.stdout.write(f"{reason}\n")
        sys.stdout.flush()

    raw, receiver = Path(job.raw), Receiver(job.url, os.environ.get(TOKEN, ""))
    try:
        Push(raw, receiver, job.labels, wait=over, on_problem=tell).run()
    except RecordError:  # the journal was removed, or its disk is full: the record says so itself
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - no one reads the stderr of this process
        write_pushed(raw, Pushed(url=receiver.masked, reason=f"unexpected: {error!r}"))
        sys.exit(1)
