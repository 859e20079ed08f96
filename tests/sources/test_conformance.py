"""Properties of every source in the catalogue."""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from pathlib import Path

import msgspec
import pytest

from rollbook.errors import ParseError
from rollbook.sources import catalogue
from rollbook.sources.base import Compare, Order, Source, compare_of

ROOTS = ("/proc/", "/sys/", "/etc/", "/run/")
MAX_LINES = 120
CASES = sorted((Path(__file__).parents[1] / "data" / "sources").glob("*/*.json"))
DAMAGE = (
    "",
    "\0",
    "-1",
    "9" * 40,
    f"-{2**64 - 1}",
    f"{2**64 - 1}",
    "٣",
    "a:b",
    "[",
    "0-9999999999",
    "1_0 nan inf 1e400",
    "\ud7ff\x85x",
)

every_source = pytest.mark.parametrize("source", catalogue.load(), ids=lambda source: source.name)


def test_names_are_identifiers_and_unique() -> None:
    """A name is used as a module, a table and a file."""
    assert len(set(catalogue.NAMES)) == len(catalogue.NAMES)
    assert [name for name in catalogue.NAMES if not re.fullmatch(r"[a-z][a-z0-9_]*", name)] == []


@every_source
def test_summary_names_what_is_read(source: Source) -> None:
    """The first line is one sentence that starts with the path or the program that is read, if there is one."""
    assert source.summary.endswith(".")
    assert ". " not in source.summary
    if any(order.op in ("read", "link", "run") for order in source.orders):
        what, colon, _ = source.summary.partition(": ")
        programs = [order.args[0] for order in source.orders if order.op == "run"]
        assert colon
        assert what.startswith(ROOTS) or what.split()[0] in programs


@every_source
def test_every_field_declares_its_comparison(source: Source) -> None:
    """No field is `info` by default: each declares its comparison."""
    hints = typing.get_type_hints(source.row_type, include_extras=True)
    notes = {
        name: [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Compare)]
        for name, hint in hints.items()
    }
    assert {name: found for name, found in notes.items() if len(found) != 1} == {}
    assert tuple(hints) == source.row_type.__struct_fields__


@every_source
def test_rows_have_keys_and_columns_have_names(source: Source) -> None:
    """Rows of a table have a key; open columns are dicts by name."""
    compared = compare_of(source.row_type)
    assert any(how.mode == "key" for how in compared.values()) == source.is_table
    hints = typing.get_type_hints(source.row_type)
    for name, how in compared.items():
        if how.columns:
            assert typing.get_origin(hints[name]) is dict, name


@every_source
def test_orders_stay_in_bounds(source: Source) -> None:
    """Orders use known operations, read only files of the kernel and the system, and have limits."""
    assert source.orders
    for order in source.orders:
        assert order.op in typing.get_args(typing.get_type_hints(Order)["op"])
        if order.op in ("read", "link"):
            (path,) = order.args
            assert re.sub(r"^{(cgroup|own)}", "/sys/fs/cgroup", path).startswith(ROOTS), path
            assert ".." not in path
    assert len(set(source.orders)) == len(source.orders)
    assert source.every >= 0
    assert source.limit > 0
    assert source.seconds > 0


@every_source
def test_schema(source: Source) -> None:
    """The facts of every source have a JSON schema."""
    assert msgspec.json.schema(source.produces)


@every_source
def test_module_is_short(source: Source) -> None:
    """A source module is short."""
    lines = inspect.getsource(importlib.import_module(f"rollbook.sources.{source.name}")).count("\n")
    assert lines < MAX_LINES


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_damaged_text_is_a_parse_error_at_worst(path: Path) -> None:
    """For any truncated or replaced page the source gives storable facts of its type or raises `ParseError`."""
    source = catalogue.source(path.parent.name)
    pages: dict[str, str] = msgspec.json.decode(path.read_bytes())["pages"]
    for page, text in pages.items():
        for damaged in (*DAMAGE, text[: len(text) // 2], text * 2, text.replace("0", "-99999999999999999999")):
            try:
                record = source.parse({**pages, page: damaged})
            except ParseError:
                continue
            assert msgspec.json.decode(msgspec.json.encode(record), type=source.produces) == record
    for page in pages:
        try:
            source.parse({other: text for other, text in pages.items() if other != page})
        except ParseError:
            continue
