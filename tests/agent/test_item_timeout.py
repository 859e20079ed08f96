"""The timeout of an item: time spent waiting for a CPU is not counted."""

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

from rollbook.agent import item_timeout
from rollbook.agent.item_timeout import MOST, ItemTimeout, is_busy, is_starved, run_delay
from tests.support.waits import SECONDS

SPIN = "while True: pass"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Settable values for the time, this process's run delay, and whether the host is busy and the program starved."""
    values = {"now": 100.0, "delay": 7.0, "busy": 0.0, "starved": 0.0}
    monkeypatch.setattr(item_timeout, "time", types.SimpleNamespace(monotonic=lambda: values["now"]))
    monkeypatch.setattr(item_timeout, "run_delay", lambda: values["delay"])
    monkeypatch.setattr(item_timeout, "is_busy", lambda: bool(values["busy"]))
    monkeypatch.setattr(item_timeout, "is_starved", lambda *_: bool(values["starved"]))
    return values


def test_timeout_on_an_idle_host(clock: dict[str, float]) -> None:
    """The timeout is not extended."""
    limit = ItemTimeout(2.0, 1000.0)
    clock["now"] += 1.9
    assert not limit.is_over(pid=1)
    assert limit.left() == pytest.approx(0.1)
    clock["now"] += 0.1
    assert limit.is_over(pid=1)
    assert not limit.is_extended


def test_time_without_a_cpu_is_not_counted(clock: dict[str, float]) -> None:
    """The timeout is extended while this process or a program waits for a CPU, up to a factor and to the deadline."""
    limit = ItemTimeout(2.0, 1000.0)
    clock["now"], clock["delay"] = 104.0, 7.0 + 3.0
    assert not limit.is_over(pid=0)
    assert limit.is_extended
    clock["now"] = 105.0
    assert limit.is_over(pid=0)
    clock["delay"] += 3.0
    assert limit.is_over(pid=0), "an expired timeout stays expired"
    limit.restart()
    clock["busy"] = clock["starved"] = 1
    while not limit.is_over(pid=1):
        clock["now"] += 0.1
    assert clock["now"] - limit.began == pytest.approx(MOST * 2.0, abs=0.2)
    clock["starved"] = 0
    sleeping = ItemTimeout(2.0, 1000.0)
    while not sleeping.is_over(pid=1):
        clock["now"] += 0.1
    assert 2.0 < clock["now"] - sleeping.began < 3.0
    clock["starved"] = 1
    ending = ItemTimeout(2.0, clock["now"] + 3.0)
    clock["now"] += 3.0
    assert ending.is_over(pid=1)


@contextlib.contextmanager
def running(count: int, program: str, nice: int = 0) -> Iterator[list[int]]:
    """Start processes, yield their ids, and kill them."""
    argv = ["nice", "-n", str(nice), sys.executable, "-S", "-c", program]
    processes = [subprocess.Popen(argv) for _ in range(count)]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_starved_programs_are_detected() -> None:
    """A runnable program with little CPU time is starved; one that is stopped, or has used its CPU time, is not."""
    with running(2 * (os.cpu_count() or 1), SPIN, 1), running(1, SPIN, 19) as [low]:
        until = time.monotonic() + 2 * SECONDS
        while not (is_busy() and is_starved(low, 1000.0)):
            assert time.monotonic() < until
            time.sleep(0.02)
        assert not is_starved(low, 0.0)
        os.kill(low, signal.SIGSTOP)
        while is_starved(low, 1000.0):
            assert time.monotonic() < until
            time.sleep(0.02)
        before = run_delay()
        while run_delay() == before:  # also this process waits for a CPU
            assert time.monotonic() < until
