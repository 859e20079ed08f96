"""The result of a host, made of the readings that its agent sent."""

from __future__ import annotations

import pytest

from rollbook.checks.views import status_of
from rollbook.hosts import Host
from rollbook.protocol.plan import Plan
from rollbook.protocol.readings import Reading, Status
from rollbook.protocol.visit import Visit
from rollbook.sources import catalogue

SOURCE = catalogue.source("nvidia_smi")


@pytest.mark.parametrize(
    ("status", "text", "starved", "host", "known"),
    [
        ("absent", b"", False, "complete", "absent"),
        ("failed", b"", False, "complete", "absent"),
        ("failed", b"", True, "partial", "unknown"),
        ("ok", b"surprise", False, "partial", "unknown"),
    ],
    ids=["no program", "an error of the program", "no free descriptors", "output that cannot be parsed"],
)
def test_program_without_facts(status: Status, text: bytes, starved: bool, host: str, known: str) -> None:
    """Only a program that is missing or reported an error itself says that the host has nothing of the kind."""
    raw = b"%s %d nvidia-smi\n%s" % (status.encode(), len(text), text)
    visit = Visit(Host("n1"), Plan((SOURCE,)))
    visit.keep(Reading(SOURCE, "now", status, "", 0, 0, 0.0, raw, starved))
    result = visit.result("now")
    assert SOURCE.name not in result.facts
    assert (result.status, status_of(result, SOURCE.name)) == (host, known)
