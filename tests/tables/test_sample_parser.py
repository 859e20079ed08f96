"""Incremental parsing returns, for every sample, exactly what the source's parser returns for its text."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ParseError
from rollbook.journal.gaps import FrameGaps, SamplingTime
from rollbook.protocol.beats import Schedule
from rollbook.sources import catalogue
from rollbook.sources.base import Pages, Source, compare_of
from rollbook.tables.columns import RESERVED, HostColumns, block_of
from rollbook.tables.incremental.sample_parser import SampleParser
from rollbook.tables.losses import Tally
from rollbook.testing.journals import body_of
from tests.tables.reference import parse_good_lines

SAMPLED = [source for source in catalogue.load() if source.every]
CASES = {
    source.name: [
        case["pages"]
        for path in sorted((Path(__file__).parents[1] / "data" / "sources" / source.name).glob("*.json"))
        if (case := msgspec.json.decode(path.read_bytes())) and not case.get("error")
    ]
    for source in SAMPLED
}
NUMBER = re.compile(r"\d+(\.\d+)?")


def new_parser(source: Source) -> SampleParser:
    """A parser for samples one second apart."""
    return SampleParser(
        source, Tally(source, FrameGaps(SamplingTime(0, 100, Schedule(1), connection_lost=False)), every_beat=True)
    )


def parse_in_full(source: Source, bodies: list[dict[str, str] | None]) -> list[tuple[int, dict[str, Any]]]:
    """Rows with their times, each sample parsed in full; samples that are rejected or have no page have no rows."""
    found: list[tuple[int, dict[str, Any]]] = []
    for ts, pages in enumerate(bodies):
        if not pages:
            continue
        try:
            parsed = parse_good_lines(source, pages)
        except ParseError:
            continue
        keys = [name for name, how in compare_of(source.row_type).items() if how.mode == "key"]
        rows = {tuple(getattr(r, key) for key in keys): r for r in parsed} if source.is_table else {(): parsed}
        for record in rows.values():  # of rows with equal keys, the last one
            row: dict[str, Any] = {}
            for name, value in msgspec.structs.asdict(record).items():
                if isinstance(value, dict):
                    taken = {*RESERVED, *record.__struct_fields__}
                    row |= {f"{name}.{n}" if n.lower() in taken else n: v for n, v in value.items()}
                elif value is not None:
                    row[name] = value
            found.append((ts, row))
    return found


def parse_incrementally(source: Source, bodies: list[dict[str, str] | None]) -> list[tuple[int, dict[str, Any]]]:
    """The same rows from a `SampleParser`; samples that did not change have no body, except every fourth."""
    parser = new_parser(source)
    for ts, pages in enumerate(bodies):
        same = ts % 4 and ts > 0 and pages == bodies[ts - 1]
        parser.add(ts, ts, 1 + ts // 12, None if same else body_of(pages or {}))
    block = block_of(source, "h", parser.take(), None, first=0, admitted=HostColumns())
    if block is None:
        return []
    absent = {
        name: {at for first, count in column.nulls for at in range(first, first + count)}
        for name, column in block.columns.items()
    }
    return [
        (
            ts,
            {
                name: column.data[row]
                for name, column in block.columns.items()
                if row < column.size and row not in absent[name] and column.kind
            },
        )
        for row, ts in enumerate(block.ts)
    ]


def sort_rows(rows: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, str]]:
    """Sort rows into an order that does not depend on the parser."""
    return sorted((ts, repr(sorted((name, value) for name, value in row.items()))) for ts, row in rows)


@st.composite
def text_histories(draw: st.DrawFn) -> tuple[Source, list[dict[str, str] | None]]:
    """A source and its texts over time: numbers change, lines are added, removed and swapped, pages disappear."""
    source = draw(st.sampled_from([source for source in SAMPLED if CASES[source.name]]))
    pages = dict(draw(st.sampled_from(CASES[source.name])))
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    bodies: list[dict[str, str] | None] = []
    for kind in draw(st.text("nnnnnnnnldxpc", min_size=2, max_size=30)):
        if kind == "c":
            pages = dict(rng.choice(CASES[source.name]))
        elif kind == "p" and len(pages) > 1:
            del pages[rng.choice(sorted(pages))]
        elif pages:
            path = rng.choice(sorted(pages))
            pages[path] = "\n".join(_mutate(pages[path].split("\n"), kind, rng))
        bodies.append(dict(pages) if rng.random() < 0.97 else None)
    return source, bodies


def _mutate(lines: list[str], kind: str, rng: random.Random) -> list[str]:
    at = rng.randrange(len(lines))
    if kind == "l":
        lines.insert(at, lines[at])
    elif kind == "d" and len(lines) > 1:
        del lines[at]
    elif kind == "x":
        lines[at], lines[0] = lines[0], lines[at]
    for index, line in enumerate(lines):
        if rng.random() < 0.3:
            lines[index] = NUMBER.sub(lambda m: m[0] if rng.random() < 0.3 else _other_number(m[0], rng), line)
    return lines


def _other_number(number: str, rng: random.Random) -> str:
    if "." in number:
        return f"{rng.randrange(1000)}.{rng.randrange(100):02d}"
    if rng.random() < 0.05:
        return rng.choice(["0", "1", "4294967295", "999999999999999999", "18446744073709551615", "5.5", "-3", "a"])
    return str(int(number) + rng.randrange(100))


@settings(max_examples=400, deadline=None)
@given(text_histories())
def test_incremental_parse_equals_full_parse(history: tuple[Source, list[dict[str, str] | None]]) -> None:
    """After any change of a text between beats, rows have the values that the parser returns for the whole text."""
    source, bodies = history
    assert sort_rows(parse_incrementally(source, bodies)) == sort_rows(parse_in_full(source, bodies))


@pytest.mark.parametrize("source", [source for source in SAMPLED if source.lines is not None], ids=lambda s: s.name)
def test_declared_lines_can_be_parsed_alone(source: Source) -> None:
    """If a source declares that its lines can be parsed alone, this holds for every text of its cases."""
    for pages in CASES[source.name]:
        parser = new_parser(source)
        parser.add(0, 0, 1, body_of(pages))
        assert parser._lines is not None
        assert parser._lines._alone is not None


def test_changed_counters_need_no_parser_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a few beats, a changed counter is read without a call of the source's parser."""
    source = catalogue.source("vmstat")
    parser, calls = new_parser(source), record_parsed_sizes(monkeypatch)
    texts = [f"nr_free_pages {n}\npgfault {3 * n}\nnr_dirty 5\n" for n in range(50)]
    for ts, text in enumerate(texts):
        if ts == 10:
            calls.clear()
        parser.add(ts, ts, 1, body_of({"/proc/vmstat": text}))
    assert not calls
    (layout,) = parser.take()
    assert list(layout.integers[1::3]) != list(layout.integers[0::3])
    assert len(layout) == 50


def record_parsed_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Patch `Source.parse`; the returned list gets the size of each text that is parsed."""
    sizes: list[int] = []
    parse = Source.parse

    def counted(self: Source, pages: Pages) -> Any:
        sizes.append(sum(map(len, pages.values())))
        return parse(self, pages)

    monkeypatch.setattr(Source, "parse", counted)
    return sizes


def test_many_lines_are_learned_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """If each trial must parse the whole text, the cost of learning is not quadratic in the number of lines."""
    mounts = [
        f"device srv:/{name} mounted on /{name} with fstype nfs4 statvers=1.1\n\tper-op statistics\n"
        + "".join(
            f"\t{op}: {{0}} {{0}} 0 {{1}} {{1}} 3 4 5 0\n" for op in ("READ", "WRITE", "OPEN", "CLOSE", "GETATTR")
        )
        for name in "abcdefghijklmnop"
    ]
    texts = ["".join(mounts).format(10 + ts, 4096 * ts) for ts in range(6)]
    source, sizes = catalogue.source("nfs_ops"), record_parsed_sizes(monkeypatch)
    bodies: list[dict[str, str] | None] = [{"/proc/self/mountstats": text} for text in texts]
    rows = parse_incrementally(source, bodies)
    assert sum(sizes) < 15 * len(texts[0])
    assert sort_rows(rows) == sort_rows(parse_in_full(source, bodies))


def test_learning_cost_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is made to prevent learning is parsed a bounded number of times, and its values are correct."""
    monkeypatch.setattr("rollbook.tables.incremental.lines.LEARNING", 100_000)
    source, sizes = catalogue.source("stat_totals"), record_parsed_sizes(monkeypatch)
    head = "ctxt {0}\nprocesses 1\nbtime 1\nprocs_running 1\nprocs_blocked 1\nintr 1\nsoftirq 1\n"
    bodies: list[dict[str, str] | None] = [
        {"/proc/stat": head.format(ts) + "".join(f"ctxt {ts} {line}\n" for line in range(300))} for ts in range(5)
    ]
    rows = parse_incrementally(source, bodies)
    assert sum(sizes) < 100_000 + 20 * len(str(bodies[0]))
    assert sort_rows(rows) == sort_rows(parse_in_full(source, bodies))


@pytest.mark.parametrize(
    "line",
    [
        "pgalloc_dma64 {0}", "pgalloc_dma32 {0} {0}", "pgalloc_dma32 -{0}", "pgalloc_dma32 {0}.5", "pgalloc_dma32",
        "pgalloc_dma32  {0}", "pgalloc_dma 32{0}", "pgalloc_dma32{0}", "pgalloc_dma32 {0} ", "pgalloc_dma32\t{0}",
        "pgalloc_dma32 {0}e1", "pgalloc_dma32 0x{0}", "pgalloc_dma32 18446744073709551615", "pgalloc_dma32 00{0}",
    ],
)  # fmt: skip
def test_unusual_lines_after_learning(line: str) -> None:
    """After `name number` lines were learned, a line with another format is read as the source's parser reads it."""
    usual = "nr_free {0}\npgalloc_dma32 {1}\npgalloc_dma4 7\nnr_dirty {2}\n"
    source = catalogue.source("vmstat")
    texts = [usual.format(10**ts % 997, 3 * ts, ts % 2) for ts in range(30)]
    texts[20] = texts[20].replace("pgalloc_dma32 60", line.format(60))
    bodies: list[dict[str, str] | None] = [{"/proc/vmstat": text} for text in texts]
    assert sort_rows(parse_incrementally(source, bodies)) == sort_rows(parse_in_full(source, bodies))
