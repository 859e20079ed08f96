"""Every source against its data cases: pages in, record or error out."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rollbook.errors import ParseError
from rollbook.sources import catalogue

CASES = sorted((Path(__file__).parents[1] / "data" / "sources").glob("*/*.json"))


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """One case file: where the text comes from, the pages, and the record or the error they give."""

    about: str
    pages: dict[str, str]
    record: object = None
    error: str = ""


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_case(path: Path) -> None:
    """A source gives exactly the record its case states, or the error it names."""
    case = msgspec.json.decode(path.read_bytes(), type=Case)
    source = catalogue.source(path.parent.name)
    if case.error:
        with pytest.raises(ParseError, match=case.error):
            source.parse(case.pages)
    else:
        assert msgspec.to_builtins(source.parse(case.pages)) == case.record


@pytest.mark.parametrize("name", catalogue.NAMES)
def test_every_source_has_a_case(name: str) -> None:
    """Every source has at least one case file."""
    assert any(path.parent.name == name for path in CASES), f"tests/data/sources/{name} has no case"
