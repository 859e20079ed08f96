"""The outcome of a host: its status at the start and everything that happened to it later."""

from __future__ import annotations

import pytest

from rollbook.records.hosts import HostResult, HostStatus
from rollbook.records.record import RecordHosts, SeriesHost

GAP = "88.0 s without samples: connection lost: no route"

TWICE = ("partial", "thp failed; at the end: thp failed")
LATER = ("partial", f"{GAP}; at the end: mounts timed-out")


@pytest.mark.parametrize(
    ("start", "series", "end", "expected"),
    [
        (("complete", ""), ("complete", ""), ("complete", ""), ("complete", "")),
        (("complete", ""), ("partial", GAP), ("complete", ""), ("partial", GAP)),
        (("partial", "thp failed"), ("complete", ""), ("complete", ""), ("partial", "thp failed")),
        (("partial", "thp failed"), ("partial", GAP), ("failed", "no route"), ("partial", f"thp failed; {GAP}")),
        (("partial", "thp failed"), ("complete", ""), ("partial", "thp failed"), TWICE),
        (("complete", ""), ("partial", GAP), ("partial", "mounts timed-out"), LATER),
        (("refused", "key rejected"), ("refused", "key rejected"), ("refused", "x"), ("refused", "key rejected")),
    ],
)  # fmt: skip
def test_all_reasons_are_reported(
    start: tuple[HostStatus, str],
    series: tuple[HostStatus, str],
    end: tuple[HostStatus, str],
    expected: tuple[str, str],
) -> None:
    """A host that was partial at the start and has a gap or fails later reports all reasons."""
    hosts = RecordHosts(
        started_ns=0,
        ended_ns=1,
        start=[HostResult(name="a", status=start[0], reason=start[1])],
        series=[SeriesHost(name="a", status=series[0], reason=series[1])],
        end=[HostResult(name="a", status=end[0], reason=end[1])],
    )
    [outcome] = hosts.outcome
    assert (outcome.status, outcome.reason) == expected
