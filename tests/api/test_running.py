"""Signals while a record is written, one at a time and at the worst moments."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from rollbook.api.recording import Recording
from rollbook.api.running import _finish, run
from rollbook.api.signals import Signals
from rollbook.errors import RecordError


class Endless:
    """A recording whose record takes until the end of the test to write."""

    def __init__(self) -> None:
        self.over, self.abandoned = threading.Event(), 0

    def finish_or_explain(self) -> None:
        """Write the record."""
        self.over.wait(60)

    def abandon(self) -> None:
        """Stop waiting for the record."""
        self.abandoned += 1


class Late(Signals):
    """Two signals are pending, and a third one arrives just before a receiver is removed."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = [signal.SIGINT, signal.SIGINT]
        self.late = 0

    def receive(self, receiver: Callable[[int], None] | None) -> None:
        """Deliver the third one first."""
        if receiver is None:
            self.late += 1
            self._handle(signal.SIGINT, None)
        super().receive(receiver)


def test_a_third_signal_while_the_record_is_abandoned() -> None:
    """It is ignored: nothing is raised, and the record is abandoned once."""
    recording, signals = Endless(), Late()
    try:
        _finish(cast("Recording", cast("Any", recording)), None, signals)
    finally:
        recording.over.set()
    assert (recording.abandoned, signals.late) == (1, 1)


def test_failed_bundle_is_not_a_signing_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while the failure is examined is reported as the error of the bundle."""

    def fail(*_: object) -> None:
        raise RecordError("findings.json is not a valid document")

    monkeypatch.setattr("rollbook.api.failure.affected_hosts", fail)
    done = run(["true"], results_dir=tmp_path, interval=0, report=False, bundle_on_failure=True)
    assert (done.signing_error, done.bundle_error) == ("", "findings.json is not a valid document")
