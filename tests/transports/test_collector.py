"""Which collector is gone: only one of this machine, and of the same processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rollbook.transports import collector
from rollbook.transports.collector import is_gone, this_collector


def test_a_collector_that_ended() -> None:
    """Its process does not exist, or started at another time."""
    code = "from rollbook.transports.collector import this_collector; print(this_collector())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert is_gone(done.stdout.strip())
    place, pid, start = this_collector().split("/")
    assert is_gone(f"{place}/{pid}/{int(start) - 1}")


def test_collectors_that_may_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """This one; one of another boot or namespace, or of an unknown form; one whose process is not shown to us."""
    own = this_collector()
    place, pid, start = own.split("/")
    boot, _, namespace = place.partition(".")
    assert not is_gone(own)
    for other in (
        f"{boot}.{int(namespace) + 1}/1/1",
        f"other.{namespace}/1/1",
        f"{boot}/{pid}/1",
        "",
        "x",
        f"{place}/x/1",
    ):
        assert not is_gone(other)
    monkeypatch.setattr(collector, "_start_time", lambda _: "")  # as with hidepid
    assert not is_gone(f"{place}/{os.getpid()}/{start}")
