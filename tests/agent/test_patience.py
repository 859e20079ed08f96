"""The timeout of an item: time in which it waits for a processor is not counted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator

import pytest

from rollbook.agent import patience
from rollbook.agent.patience import MOST, Patience, is_busy, is_starved, run_delay

SPIN = "while True: pass"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The time, the delay of this process, and whether host and program are busy, as tests set them."""
    values = {"now": 100.0, "delay": 7.0, "busy": 0.0, "starved": 0.0}
    monkeypatch.setattr(patience, "time", types.SimpleNamespace(monotonic=lambda: values["now"]))
    monkeypatch.setattr(patience, "run_delay", lambda: values["delay"])
    monkeypatch.setattr(patience, "is_busy", lambda: bool(values["busy"]))
    monkeypatch.setattr(patience, "is_starved", lambda *_: bool(values["starved"]))
    return values


def test_an_idle_host(clock: dict[str, float]) -> None:
    """The time is over after its seconds."""
    limit = Patience(2.0, 1000.0)
    clock["now"] += 1.9
    assert not limit.is_over(pid=1)
    assert limit.left() == pytest.approx(0.1)
    clock["now"] += 0.1
    assert limit.is_over(pid=1)
    assert not limit.is_extended


def test_time_without_a_processor_is_not_counted(clock: dict[str, float]) -> None:
    """Neither that of this process, nor that of a program; both end at the limits."""
    limit = Patience(2.0, 1000.0)
    clock["now"], clock["delay"] = 104.0, 7.0 + 3.0
    assert not limit.is_over(pid=0)
    assert limit.is_extended
    clock["now"] = 105.0
    assert limit.is_over(pid=0)
    clock["delay"] += 3.0
    assert limit.is_over(pid=0), "what is over stays over"
    limit.restart()
    clock["busy"] = clock["starved"] = 1
    while not limit.is_over(pid=1):
        clock["now"] += 0.1
    assert clock["now"] - limit.began == pytest.approx(MOST * 2.0, abs=0.2)
    clock["starved"] = 0
    sleeping = Patience(2.0, 1000.0)
    while not sleeping.is_over(pid=1):
        clock["now"] += 0.1
    assert 2.0 < clock["now"] - sleeping.began < 3.0
    clock["starved"] = 1
    ending = Patience(2.0, clock["now"] + 3.0)
    clock["now"] += 3.0
    assert ending.is_over(pid=1)


@contextlib.contextmanager
def running(count: int, program: str, nice: int = 0) -> Iterator[list[int]]:
    """Processes, and their ids."""
    argv = ["nice", "-n", str(nice), sys.executable, "-S", "-c", program]
    found = [subprocess.Popen(argv) for _ in range(count)]
    try:
        yield [one.pid for one in found]
    finally:
        for one in found:
            one.kill()
            one.wait()


def test_a_program_that_waits_for_a_processor() -> None:
    """It could run and did little; one that does not run, or that used its seconds, is not starved."""
    with running(2 * (os.cpu_count() or 1), SPIN, 1), running(1, SPIN, 19) as [low]:
        until = time.monotonic() + 30
        while not (is_busy() and is_starved(low, 1000.0)):
            assert time.monotonic() < until
            time.sleep(0.02)
        assert not is_starved(low, 0.0)
        os.kill(low, signal.SIGSTOP)
        while is_starved(low, 1000.0):
            assert time.monotonic() < until
            time.sleep(0.02)
    before = run_delay()
    assert before >= 0.0
    assert run_delay() >= before
