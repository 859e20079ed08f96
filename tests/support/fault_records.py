"""Kinds of fault of the campaign that happen to a journal or to a finished record."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from rollbook.journal.entries import HEADER, RUN, pack_entry
from rollbook.journal.reader import Reader
from tests.support import faults
from tests.support.faults import PATIENCE, ROLLBOOK, Run

kind = functools.partial(faults.kind, needs_reference=True)


def _damage(run: Run, change: Callable[[bytearray], object]) -> None:
    """Change the journal, recover the record, and compare it with the one of the undamaged journal."""
    reference = run.reference()
    record = run.results / "record" / reference.name
    shutil.copytree(reference / "raw", record / "raw")
    (segment,) = (record / "raw").glob("*.seg")
    data = bytearray(segment.read_bytes())
    change(data)
    segment.write_bytes(data)
    done = run.command("recover", record)
    run.expect_code(done.returncode, (0,), done.stderr)
    run.compare(record)
    run.check_leftovers()


def _region(run: Run, data: bytearray, longest: int = 20_000) -> tuple[int, int]:
    """A random region after the header of the first entry."""
    start = run.random.randrange(HEADER.size, len(data) - 100)
    return start, min(len(data), start + run.random.randrange(1, longest))


@kind("bit flipped", "damaged journal")
def _bit_flipped(run: Run) -> None:
    def change(data: bytearray) -> None:
        for _ in range(run.random.randrange(1, 6)):
            data[run.random.randrange(len(data))] ^= 1 << run.random.randrange(8)

    _damage(run, change)


@kind("end cut off", "damaged journal")
def _cut(run: Run) -> None:
    def change(data: bytearray) -> None:
        del data[run.random.randrange(len(data) // 3, len(data)) :]

    _damage(run, change)


@kind("page of zeros", "damaged journal")
def _zeros(run: Run) -> None:
    def change(data: bytearray) -> None:
        page = run.random.randrange(1, len(data) // 4096) * 4096
        data[page : page + 4096] = bytes(len(data[page : page + 4096]))

    _damage(run, change)


@kind("region missing", "damaged journal")
def _missing(run: Run) -> None:
    def change(data: bytearray) -> None:
        start, end = _region(run, data)
        del data[start:end]

    _damage(run, change)


@kind("region duplicated", "damaged journal")
def _duplicated(run: Run) -> None:
    def change(data: bytearray) -> None:
        start, end = _region(run, data)
        data[end:end] = data[start:end]

    _damage(run, change)


@kind("region repeated at the end", "damaged journal")
def _repeated(run: Run) -> None:
    def change(data: bytearray) -> None:
        start, end = _region(run, data, 60_000)
        data += data[start:end]

    _damage(run, change)


@kind("regions swapped", "damaged journal")
def _swapped(run: Run) -> None:
    def change(data: bytearray) -> None:
        start, middle, end = sorted(run.random.sample(range(len(data)), 3))
        data[start:end] = data[middle:end] + data[start:middle]

    _damage(run, change)


@kind("random bytes inside", "damaged journal")
def _random_inside(run: Run) -> None:
    def change(data: bytearray) -> None:
        start, end = _region(run, data, 5000)
        data[start:end] = run.random.randbytes(run.random.randrange(5000))

    _damage(run, change)


# Hostile record


def _copied(run: Run) -> Path:
    """Copy the reference record, so that it can be changed."""
    record = run.results / "record" / run.reference().name
    shutil.copytree(run.reference(), record)
    return record


def _expect(run: Run, codes: tuple[int, ...], *arguments: str | Path) -> str:
    """Run a command that must end with one of these codes and without a traceback."""
    done = run.command(*arguments)
    run.expect_code(done.returncode, codes, done.stdout + done.stderr)
    return done.stdout + done.stderr


def _outside(run: Run, record: Path) -> dict[str, int]:
    """The files of this run that are not in the record, with their sizes."""
    found = [path for path in run.directory.rglob("*") if record not in path.parents and path.is_file()]
    return {str(path): path.stat().st_size for path in found}


@kind("pipe as a document", "hostile record")
def _pipe(run: Run) -> None:
    record = _copied(run)
    name = run.random.choice(["hosts.json", "manifest.json", next(record.glob("*_metadata.json")).name])
    (record / name).unlink()
    os.mkfifo(record / name)
    _expect(run, (1, 2), "verify", record)
    if name != "manifest.json":
        _expect(run, (2,), "query", record, "SELECT count(*) FROM loadavg")
    run.check_leftovers()


@kind("link to /dev/zero", "hostile record")
def _zero(run: Run) -> None:
    record = _copied(run)
    name = run.random.choice(["hosts.json", "series/loadavg.parquet"])
    (record / name).unlink()
    (record / name).symlink_to("/dev/zero")
    _expect(run, (1, 2), "verify", record)
    _expect(run, (2,), "query", record, "SELECT count(*) FROM loadavg")
    run.check_leftovers()


@kind("link out of the record", "hostile record")
def _link_out(run: Run) -> None:
    record, outside = _copied(run), run.directory / "outside"
    outside.mkdir()
    name = run.random.choice(["series", "raw"])
    shutil.move(record / name, outside / name)
    (record / name).symlink_to(outside / name)
    before = _outside(run, record)
    _expect(run, (2,), "recover", record)
    if _outside(run, record) != before:
        run.result.leftovers.append("files outside the record were changed")
    run.check_leftovers()


@kind("names that lead out of the record", "hostile record")
def _names_out(run: Run) -> None:
    record = _copied(run)
    for path in record.iterdir():
        if path.is_file():
            path.unlink()
    (segment,) = (record / "raw").glob("*.seg")
    data = bytearray()
    for entry in Reader(record / "raw"):
        payload = entry.payload
        if entry.host == RUN:
            payload = payload.replace(b'"type": "record"', b'"type": "../../../evil"')
            payload = payload.replace(b'"stamp": "20', b'"stamp": "../../evil/20')
            payload = payload.replace(b'"cwd": "', b'"cwd": "/proc/self/fd/../../../')
        data += pack_entry(entry.host, entry.arrived_ns, payload)
    segment.write_bytes(data)
    before = _outside(run, record)
    _expect(run, (0, 2), "recover", record)
    if _outside(run, record) != before:
        run.result.leftovers.append(f"files outside the record: {set(_outside(run, record)) - set(before)}")
    run.check_leftovers()


@kind("bit flipped in a table", "hostile record")
def _table_changed(run: Run) -> None:
    record = _copied(run)
    table = record / "series" / "stat_totals.parquet"
    data = bytearray(table.read_bytes())
    data[run.random.randrange(len(data))] ^= 1 << run.random.randrange(8)
    table.write_bytes(data)
    _expect(run, (1,), "verify", record)
    done = run.command("query", record, "SELECT * FROM stat_totals", "--format", "csv")
    run.expect_code(done.returncode, (0, 2), done.stderr)
    if "stat_totals" not in done.stderr:
        run.result.wrong_values.append(f"query does not warn about the changed table: {done.stderr[-300:]}")
    run.expect_code(run.command("query", record, "SELECT count(*) FROM vmstat").returncode, (0,))
    run.check_leftovers()


@kind("deeply nested document", "hostile record")
def _nested(run: Run) -> None:
    record = _copied(run)
    path = run.random.choice([record / "hosts.json", next(record.glob("*_metadata.json"))])
    path.write_text(run.random.choice(["[", '{"a":']) * 200_000)
    _expect(run, (1,), "verify", record)
    _expect(run, (2,), "query", record, "SELECT count(*) FROM loadavg")
    run.check_leftovers()


@kind("record read by others at once", "hostile local user")
def _readers_at_once(run: Run) -> None:
    """An unfinished record is queried by several processes at the same time: each gets the same answer."""
    record = _copied(run)
    (record / "manifest.json").unlink()
    shutil.rmtree(record / "series")
    argv = [*ROLLBOOK, "query", str(record), "SELECT count(*) AS n FROM loadavg", "--format", "csv"]
    answers: list[tuple[int, str, str]] = []

    def ask() -> None:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=run.environ, timeout=PATIENCE)
        answers.append((done.returncode, done.stdout, done.stderr))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for code, _, message in answers:
        run.expect_code(code, (0,), message)
    if len({answer for _, answer, _ in answers}) != 1:
        run.result.wrong_values.append(f"the answers differ: {answers}")
    run.compare(record)
    run.check_leftovers()


@kind("readers while it is recorded", "hostile local user")
def _readers_while_recording(run: Run) -> None:
    """Commands that read a record while it is being recorded do not change it."""
    with run.recording():
        for arguments in (["query", "SELECT 1"], ["verify"], ["recover"]):
            done = run.command(arguments[0], run.path, *arguments[1:])
            run.expect_code(done.returncode, (1, 2), done.stderr)
    with contextlib.suppress(FileNotFoundError):
        run.check_leftovers()
