"""Incremental parsing gives, for every sample, exactly what the source's parser gives for its text."""

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
from rollbook.tables.columns import HostColumns, block_of
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


def expected(source: Source, bodies: list[dict[str, str] | None]) -> list[tuple[int, dict[str, Any]]]:
    """Rows by sample, each sample parsed in full; those that are refused or have no page give none."""
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
        for record in rows.values():  # of equal keys the last
            row: dict[str, Any] = {}
            for name, value in msgspec.structs.asdict(record).items():
                if isinstance(value, dict):
                    taken = {"host", "ts", "mono", *record.__struct_fields__}
                    row |= {f"{name}.{n}" if n.lower() in taken else n: v for n, v in value.items()}
                elif value is not None:
                    row[name] = value
            found.append((ts, row))
    return found


def made(source: Source, bodies: list[dict[str, str] | None]) -> list[tuple[int, dict[str, Any]]]:
    """The same from a parser; every fourth sample is told as unchanged where it is."""
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


def ordered(rows: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, str]]:
    """Rows in an order that does not depend on how they were made."""
    return sorted((ts, repr(sorted((name, value) for name, value in row.items()))) for ts, row in rows)


@st.composite
def stories(draw: st.DrawFn) -> tuple[Source, list[dict[str, str] | None]]:
    """A source and texts of it over time: numbers change, lines come, go, swap and double, pages vanish, cases mix."""
    source = draw(st.sampled_from([source for source in SAMPLED if CASES[source.name]]))
    pages = dict(draw(st.sampled_from(CASES[source.name])))
    chance = random.Random(draw(st.integers(0, 1 << 30)))
    bodies: list[dict[str, str] | None] = []
    for kind in draw(st.text("nnnnnnnnldxpc", min_size=2, max_size=30)):
        if kind == "c":
            pages = dict(chance.choice(CASES[source.name]))
        elif kind == "p" and len(pages) > 1:
            del pages[chance.choice(sorted(pages))]
        elif pages:
            path = chance.choice(sorted(pages))
            pages[path] = "\n".join(_changed(pages[path].split("\n"), kind, chance))
        bodies.append(dict(pages) if chance.random() < 0.97 else None)
    return source, bodies


def _changed(lines: list[str], kind: str, chance: random.Random) -> list[str]:
    at = chance.randrange(len(lines))
    if kind == "l":
        lines.insert(at, lines[at])
    elif kind == "d" and len(lines) > 1:
        del lines[at]
    elif kind == "x":
        lines[at], lines[0] = lines[0], lines[at]
    for index, line in enumerate(lines):
        if chance.random() < 0.3:
            lines[index] = NUMBER.sub(lambda m: m[0] if chance.random() < 0.3 else _other(m[0], chance), line)
    return lines


def _other(number: str, chance: random.Random) -> str:
    if "." in number:
        return f"{chance.randrange(1000)}.{chance.randrange(100):02d}"
    if chance.random() < 0.05:
        return chance.choice(["0", "1", "4294967295", "999999999999999999", "18446744073709551615", "5.5", "-3", "a"])
    return str(int(number) + chance.randrange(100))


@settings(max_examples=400, deadline=None)
@given(stories())
def test_sheet_equals_parse(story: tuple[Source, list[dict[str, str] | None]]) -> None:
    """Whatever happens to a text between beats, a row has the values that the parser gives for it."""
    source, bodies = story
    assert ordered(made(source, bodies)) == ordered(expected(source, bodies))


@pytest.mark.parametrize("source", [source for source in SAMPLED if source.lines is not None], ids=lambda s: s.name)
def test_lines_stand_for_themselves(source: Source) -> None:
    """A source that declares lines keeps its promise on every text of its cases."""
    for pages in CASES[source.name]:
        parser = new_parser(source)
        parser.add(0, 0, 1, body_of(pages))
        assert parser._lines is not None
        assert parser._lines._alone is not None


def test_only_what_changed_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a few beats a changed counter costs no call of the parser at all."""
    source = catalogue.source("vmstat")
    parser, calls = new_parser(source), counting(monkeypatch)
    texts = [f"nr_free_pages {n}\npgfault {3 * n}\nnr_dirty 5\n" for n in range(50)]
    for ts, text in enumerate(texts):
        if ts == 10:
            calls.clear()
        parser.add(ts, ts, 1, body_of({"/proc/vmstat": text}))
    assert not calls
    (layout,) = parser.take()
    assert list(layout.wholes[1::3]) != list(layout.wholes[0::3])
    assert len(layout) == 50


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all texts that are parsed from now on."""
    sizes: list[int] = []
    parse = Source.parse

    def counted(self: Source, pages: Pages) -> Any:
        sizes.append(sum(map(len, pages.values())))
        return parse(self, pages)

    monkeypatch.setattr(Source, "parse", counted)
    return sizes


def test_many_lines_are_learned_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a trial parses the whole text, what a text with many lines costs does not grow with their square."""
    mounts = [
        f"device srv:/{name} mounted on /{name} with fstype nfs4 statvers=1.1\n\tper-op statistics\n"
        + "".join(
            f"\t{op}: {{0}} {{0}} 0 {{1}} {{1}} 3 4 5 0\n" for op in ("READ", "WRITE", "OPEN", "CLOSE", "GETATTR")
        )
        for name in "abcdefghijklmnop"
    ]
    texts = ["".join(mounts).format(10 + ts, 4096 * ts) for ts in range(6)]
    source, sizes = catalogue.source("nfs_ops"), counting(monkeypatch)
    bodies: list[dict[str, str] | None] = [{"/proc/self/mountstats": text} for text in texts]
    rows = made(source, bodies)
    assert sum(sizes) < 15 * len(texts[0])
    assert ordered(rows) == ordered(expected(source, bodies))


def test_learning_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text made to prevent learning is parsed a bounded number of times and still read."""
    monkeypatch.setattr("rollbook.tables.incremental.lines.LEARNING", 100_000)
    source, sizes = catalogue.source("stat_totals"), counting(monkeypatch)
    head = "ctxt {0}\nprocesses 1\nbtime 1\nprocs_running 1\nprocs_blocked 1\nintr 1\nsoftirq 1\n"
    bodies: list[dict[str, str] | None] = [
        {"/proc/stat": head.format(ts) + "".join(f"ctxt {ts} {line}\n" for line in range(300))} for ts in range(5)
    ]
    rows = made(source, bodies)
    assert sum(sizes) < 100_000 + 20 * len(str(bodies[0]))
    assert ordered(rows) == ordered(expected(source, bodies))


@pytest.mark.parametrize(
    "odd",
    [
        "pgalloc_dma64 {0}", "pgalloc_dma32 {0} {0}", "pgalloc_dma32 -{0}", "pgalloc_dma32 {0}.5", "pgalloc_dma32",
        "pgalloc_dma32  {0}", "pgalloc_dma 32{0}", "pgalloc_dma32{0}", "pgalloc_dma32 {0} ", "pgalloc_dma32\t{0}",
        "pgalloc_dma32 {0}e1", "pgalloc_dma32 0x{0}", "pgalloc_dma32 18446744073709551615", "pgalloc_dma32 00{0}",
    ],
)  # fmt: skip
def test_odd_lines_among_names_with_a_number(odd: str) -> None:
    """Once it is known how lines of a name and a number are read, one that is otherwise is read as the parser does."""
    usual = "nr_free {0}\npgalloc_dma32 {1}\npgalloc_dma4 7\nnr_dirty {2}\n"
    source = catalogue.source("vmstat")
    texts = [usual.format(10**ts % 997, 3 * ts, ts % 2) for ts in range(30)]
    texts[20] = texts[20].replace("pgalloc_dma32 60", odd.format(60))
    bodies: list[dict[str, str] | None] = [{"/proc/vmstat": text} for text in texts]
    assert ordered(made(source, bodies)) == ordered(expected(source, bodies))
