"""/proc/site_queue: a source as another package would declare it, and a metric of this source."""

from __future__ import annotations

from typing import Annotated

from rollbook.metrics.metric import Metric
from rollbook.sources.base import Facts, File, counter, gauge, key


class Queue(Facts):
    """One queue."""

    name: Annotated[str, key()]
    waiting: Annotated[int, gauge("requests")]
    served: Annotated[int, counter("requests")]


def parse(text: str) -> list[Queue]:
    """`name waiting served` lines."""
    return [Queue(name, int(waiting), int(served)) for name, waiting, served in map(str.split, text.splitlines())]


SOURCE = File("/proc/site_queue", parse, every=1)
METRIC = Metric(
    "site_served",
    "Requests served",
    "1/s",
    "Requests that left a queue",
    {"site_queue": "served"},
    devices="site_queues",
    bad="low",
    negligible=5.0,
    watch="served",
)
