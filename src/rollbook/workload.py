"""A short file workload to record: `python -m rollbook.workload [--seconds N] [--directory D] [--size MB]`.

Three phases of equal length: write and sync one large file, read it back after dropping it from the page cache, then
sync, read and remove many small files. Prints a JSON summary and leaves no files. Inside `rollbook run` each phase is
marked. It demonstrates a recording; it is not a benchmark.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollbook.collect.marks import VARIABLE, send_mark
from rollbook.errors import RollbookError

__all__ = ["main", "work"]

MIB = 1 << 20
BLOCK = MIB
SYNC_EVERY = 16 * MIB
SMALL, BATCH = 4096, 64


def _write(path: Path, size: int, until: float) -> dict[str, Any]:
    """Write the file from its start repeatedly, with regular syncs; it never grows beyond its size."""
    data = os.urandom(8 * BLOCK)  # random: no device can compress it
    written = 0
    with path.open("wb", buffering=0) as file:
        while time.monotonic() < until or written < BLOCK:
            at = written % len(data)
            written += file.write(data[at : at + BLOCK])
            if file.tell() >= size:
                file.seek(0)
            if written % SYNC_EVERY == 0:
                os.fdatasync(file.fileno())
        os.fsync(file.fileno())
    return {"bytes": written}


def _read(path: Path, until: float) -> dict[str, Any]:
    """Read the file repeatedly, each time after dropping its pages from the cache.

    `dropped` is whether that worked, None if the kernel does not report it: some file systems keep all in memory.
    """
    read, dropped = 0, None
    with path.open("rb", buffering=0) as file:
        while time.monotonic() < until or not read:
            file.seek(0)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            dropped = _absent(file.fileno()) if dropped is None else dropped
            while (block := file.read(BLOCK)) and (time.monotonic() < until or not read):
                read += len(block)
    return {"bytes": read, "dropped": dropped}


def _absent(fd: int) -> bool | None:
    """Whether the first page is not cached; None if the file system cannot tell without reading it."""
    try:
        os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _small_files(directory: Path, until: float) -> dict[str, Any]:
    """Write and sync a batch of small files, read them, remove them; repeatedly."""
    files, data = 0, os.urandom(SMALL)
    while time.monotonic() < until or not files:
        batch = [directory / f"small-{number}" for number in range(BATCH)]
        for small in batch:
            with small.open("wb", buffering=0) as file:
                file.write(data)
                os.fsync(file.fileno())
        for small in batch:
            if small.read_bytes() != data:
                raise OSError(f"{small} does not read back as it was written")
            small.unlink()
        files += BATCH
    return {"files": files, "bytes": files * SMALL}


def work(directory: Path, seconds: float, size: int, mark: Callable[[str], None]) -> dict[str, Any]:
    """Run all phases in a temporary directory; returns what each did."""
    place = Path(tempfile.mkdtemp(prefix="rollbook-workload-", dir=directory))
    large, done = place / "large", []
    phases: dict[str, Callable[[float], dict[str, Any]]] = {
        "write": lambda until: _write(large, size, until),
        "read": lambda until: _read(large, until),
        "small files": lambda until: _small_files(place, until),
    }
    try:
        for name, phase in phases.items():
            mark(name)
            began = time.monotonic()
            did = phase(began + seconds / len(phases))
            took = time.monotonic() - began
            rates = {f"{what}_per_second": did[what] / took for what in ("bytes", "files") if what in did}
            done.append({"name": name, "seconds": took, **did, **rates})
    finally:
        shutil.rmtree(place)
    return {"workload": "rollbook", "directory": str(directory), "size_bytes": size, "phases": done}


def _mark(name: str) -> None:
    """Start a phase if this is recorded; continue if the recorder does not answer."""
    if os.environ.get(VARIABLE):
        try:
            send_mark(name)
        except RollbookError as error:
            sys.stderr.write(f"workload: {error}\n")


def _bounded(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            if low <= int(text) <= high:
                return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")

    return read


def main() -> int:
    """Parse arguments, run the phases, print the summary. On a signal, the files are removed too."""
    parser = argparse.ArgumentParser(prog="rollbook.workload", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=_bounded(1, 3600), default=9, help="total length (default 9)")
    parser.add_argument("--directory", type=Path, default=Path(), help="directory for the files (default: current)")
    parser.add_argument("--size", type=_bounded(1, 65536), default=128, metavar="MB", help="size of the large file")
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        if shutil.disk_usage(args.directory).free < 2 * args.size * MIB:
            parser.error(f"{args.directory} has less than {2 * args.size} MB free")
        summary = work(args.directory.absolute(), args.seconds, args.size * MIB, _mark)
    except OSError as error:
        parser.exit(1, f"workload: {error}\n")
    sys.stdout.write(json.dumps(summary, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
