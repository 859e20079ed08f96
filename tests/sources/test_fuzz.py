"""Every source on randomly damaged input: it gives storable facts of its type or raises `ParseError`."""

from __future__ import annotations

import functools
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollbook.errors import ParseError
from rollbook.sources import catalogue
from rollbook.sources.base import Source

CASES = Path(__file__).parents[1] / "data" / "sources"
# Numbers at the limits of 64 bits, digits of other scripts, separators, line ends.
JUNK = (
    *("0", "-1", f"{2**63}", f"{2**64 - 1}", f"{2**64}", "9" * 400, "1e999", "nan", "0x", "1_0", "٣", "²"),
    *(" ", "\t", "\n", "\n\n", ":", "=", ",", "-", " - ", "/", "[", "]", '"', "'", "\\", "\\777", "\\012", "%", "#"),
    *("\0", "\x0b", "\x1c", "\x85", "\u00a0", "\u2028", "\ufffd", "\U0001f4a5", "unlimited", "max", "{}", "null"),
)

fuzzed = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@functools.cache
def pages_of(name: str) -> list[dict[str, str]]:
    """The pages of each case of a source."""
    return [msgspec.json.decode(path.read_bytes())["pages"] for path in sorted((CASES / name).glob("*.json"))]


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """A real text, damaged one to four times: truncated, or a part removed, repeated, moved or overwritten."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 40)))
        how = draw(st.sampled_from(("truncate", "remove", "repeat", "move", "overwrite")))
        if how == "truncate":
            text = text[:start]
        elif how == "remove":
            text = text[:start] + text[end:]
        elif how == "repeat":
            text = text[:end] + text[start:]
        elif how == "move":
            text = text[start:end] + text[:start] + text[end:]
        else:
            text = text[:start] + draw(st.sampled_from(JUNK)) + text[end:]
    return text


@st.composite
def damaged_case(draw: st.DrawFn, name: str) -> dict[str, str]:
    """Pages of one case; some are missing, some damaged, or replaced by another page or by random text."""
    pages = dict(draw(st.sampled_from(pages_of(name))))
    for key in draw(st.lists(st.sampled_from(sorted(pages)), max_size=3, unique=True)):
        text = draw(st.one_of(damaged(pages[key]), st.text(max_size=80), st.sampled_from(sorted(pages.values()))))
        pages[key] = text
    for key in draw(st.lists(st.sampled_from(sorted(pages)), max_size=2, unique=True)):
        if len(pages) > 1:
            del pages[key]
    return pages


def assert_valid(source: Source, pages: dict[str, str]) -> None:
    """Assert that the source parses the pages to facts that can be written and read back, or raises `ParseError`."""
    try:
        record = source.parse(pages)
    except ParseError as error:
        assert str(error).startswith(source.name)  # noqa: PT017 - both outcomes are valid
        return
    assert msgspec.json.decode(msgspec.json.encode(record), type=source.produces) == record


@pytest.mark.parametrize("name", catalogue.NAMES)
@fuzzed
@given(data=st.data())
def test_damaged_pages(name: str, data: st.DataObject) -> None:
    """Real pages with random damage."""
    assert_valid(catalogue.source(name), data.draw(damaged_case(name)))


@pytest.mark.parametrize("name", catalogue.NAMES)
@fuzzed
@given(data=st.data())
def test_random_text(name: str, data: st.DataObject) -> None:
    """Known page names with random text."""
    keys = sorted({key for pages in pages_of(name) for key in pages})
    junk = st.lists(st.one_of(st.sampled_from(JUNK), st.text(max_size=8)), max_size=12).map("".join)
    assert_valid(
        catalogue.source(name), data.draw(st.dictionaries(st.sampled_from(keys), junk, min_size=1, max_size=4))
    )


@pytest.mark.parametrize("name", catalogue.NAMES)
@pytest.mark.parametrize("piece", ["a", "\n", " ", "[", '"', "0 ", "0-65535,"], ids=repr)
def test_very_long_text(name: str, piece: str) -> None:
    """Pages of 200,000 characters are parsed within seconds; quadratic backtracking would take minutes."""
    pages = pages_of(name)[0]
    before = time.process_time()
    for key in sorted(pages)[:5]:
        assert_valid(catalogue.source(name), {**pages, key: piece * (200_000 // len(piece))})
    assert time.process_time() - before < 5
