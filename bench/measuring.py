"""What several benchmarks need: the cost of programs, a recording next to other work, sizes."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from rollbook.exports.timeseries import write_timeseries
from rollbook.journal.reader import Reader
from rollbook.records.record import Record
from rollbook.testing.lab.processes import living

ROLLBOOK = [sys.executable, "-m", "rollbook"]
FIVE = ("diskstats", "vmstat", "meminfo", "loadavg", "net_dev")
"""The sources of MLPerf Storage's time series."""
MB = 1_000_000
Output = IO[bytes] | IO[str] | int | None
Result = TypeVar("Result")


class Cost(NamedTuple):
    """A program with its children: seconds, processor seconds, and the bytes of the largest of them.

    `code` is its exit code; None if it exceeded its limit.
    """

    wall: float
    cpu: float
    memory: int
    code: int | None = 0


def need(*programs: str) -> None:
    """End the benchmark with 2 if one of these programs is not installed."""
    if missing := [name for name in programs if not shutil.which(name)]:
        print(f"needs: {', '.join(missing)}", file=sys.stderr)
        sys.exit(2)


def measure(
    argv: Sequence[str],
    *,
    limit: float = 3600.0,
    environ: Mapping[str, str] = {},
    stdout: Output = subprocess.PIPE,
    stderr: Output = None,
) -> Cost:
    """Run a program; after `limit` seconds it is killed with everything that it started. Piped output is dropped."""
    name, value = "BENCH_RUN", uuid.uuid4().hex
    killer = threading.Timer(limit, kill_marked, [f"{name}={value}"])
    killer.daemon = True  # an interrupted benchmark does not wait for it
    variables = {**os.environ, **environ, name: value}
    began = time.perf_counter()
    with subprocess.Popen(argv, env=variables, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr) as child:
        killer.start()
        while child.stdout and child.stdout.read(1 << 20):
            pass
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - began
        killer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
    killer.join()
    return Cost(wall, cpu_seconds(used), used.ru_maxrss * 1024, None if wall >= limit else child.returncode)


def kill_marked(mark: str) -> None:
    """Kill all processes with this variable in their environment, for at most 10 s."""
    end = time.monotonic() + 10
    while time.monotonic() < end and (found := [one.pid for one in living() if one.has_environment(mark)]):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def checked(argv: Sequence[str], environ: Mapping[str, str] = {}) -> Cost:
    """Run a program and drop its output; if it fails, the benchmark ends with its error output."""
    with tempfile.TemporaryFile() as errors:
        cost = measure(argv, environ=environ, stderr=errors)
        if cost.code != 0:
            errors.seek(0)
            how = "exceeded its limit" if cost.code is None else f"ended with code {cost.code}"
            sys.exit(f"{argv[0]} {how}: {errors.read().decode(errors='replace')}")
    return cost


def fastest(programs: Mapping[str, Sequence[str]], turns: int, environ: Mapping[str, str]) -> dict[str, Cost]:
    """The least that each program took; the programs take turns."""
    best: dict[str, Cost] = {}
    for _ in range(turns):
        for name, argv in programs.items():
            cost = checked(argv, environ)
            before = best.setdefault(name, cost)
            best[name] = cost._replace(wall=min(cost.wall, before.wall), cpu=min(cost.cpu, before.cpu))
    return best


@contextlib.contextmanager
def byte_code() -> Iterator[dict[str, str]]:
    """Environment variables with which byte code is compiled once, as by an installer."""
    with tempfile.TemporaryDirectory() as directory:
        yield {"PYTHONPYCACHEPREFIX": directory, "PYTHONDONTWRITEBYTECODE": ""}


def cpu_seconds(usage: resource.struct_rusage) -> float:
    """Processor seconds, of the program and of the kernel for it."""
    return usage.ru_utime + usage.ru_stime


def in_child(work: Callable[..., Result], *arguments: Any) -> tuple[Cost, Result]:
    """Call a function in a process of its own: what that took, and its result."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(_with_cost, work, *arguments).result()


def _with_cost(work: Callable[..., Result], *arguments: Any) -> tuple[Cost, Result]:
    began = time.perf_counter()
    result = work(*arguments)
    wall = time.perf_counter() - began
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Cost(wall, sum(map(cpu_seconds, used)), max(one.ru_maxrss for one in used) * 1024), result


@contextlib.contextmanager
def recording(results: Path, *options: str) -> Iterator[None]:
    """`rollbook record` at 1 s, of this machine unless options name hosts; sampling when the block begins."""
    argv = [*ROLLBOOK, "record", "--results-dir", str(results), "--interval", "1", "--no-report", *options]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not is_sampling(results):
            if process.poll() is not None:
                sys.exit("rollbook record ended by itself")
            time.sleep(0.2)
        try:
            yield
        finally:
            process.terminate()  # not SIGINT: a program that a shell started in the background ignores it
            process.wait()


def is_sampling(results: Path) -> bool:
    """Whether the newest record has a sample from the time after all hosts were ready."""
    is_ready = False
    for raw in sorted(results.glob("record/*/raw"))[-1:]:
        for entry in Reader(raw):
            is_ready |= entry.event is not None and entry.event["event"] == "ready"
            if is_ready and entry.frame is not None and entry.frame.kind == "S":
                return True
    return False


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The median, and the median distance from it."""
    median = statistics.median(values)
    return median, statistics.median(abs(value - median) for value in values)


def tree_size(path: Path) -> int:
    """The bytes of all files below a directory."""
    return sum(file.lstat().st_size for file in path.rglob("*") if file.is_file())


def mlperf_json(record: Record) -> float:
    """Bytes of one sample in MLPerf Storage's own JSON, as its tools write it."""
    path = record.path / "timeseries.json"
    write_timeseries(record, path)
    first = next(iter(json.loads(path.read_bytes())["samples_by_host"].values()))[:50]
    return len(json.dumps(first, indent=2)) / len(first)
