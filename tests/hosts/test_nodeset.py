"""Nodesets: results recorded from other tools, and round trips."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import HostListError
from rollbook.hosts import MAX_HOSTS, expand, fold, natural


class Pair(msgspec.Struct, forbid_unknown_fields=True):
    """A nodeset, its hosts, and the tool that reports them."""

    by: str
    text: str
    hosts: str


class Invalid(msgspec.Struct, forbid_unknown_fields=True):
    """An invalid nodeset, the position of the error, and a part of the reason."""

    text: str
    position: int
    why: str


class Cases(msgspec.Struct, forbid_unknown_fields=True):
    """The data file."""

    about: str
    expand: list[Pair]
    fold: list[Pair]
    errors: list[Invalid]


CASES = msgspec.json.decode((Path(__file__).parents[1] / "data/hosts/nodeset.json").read_bytes(), type=Cases)

NAMES = st.from_regex(r"[a-z]{0,2}[0-9]{0,3}([a-z.-][0-9]{1,3}){0,3}[a-z]?", fullmatch=True).filter(
    lambda name: name[:1].isalnum()
)
NUMBERS = st.integers(0, 120)


@pytest.mark.parametrize("case", CASES.expand, ids=lambda case: ascii(case.text))
def test_expand(case: Pair) -> None:
    """A nodeset expands to the hosts of its case, in order."""
    assert expand(case.text) == case.hosts.split()


@pytest.mark.parametrize("case", CASES.fold, ids=lambda case: case.text[:40])
def test_fold(case: Pair) -> None:
    """Hosts fold to the nodeset of their case, in any order."""
    assert fold(case.hosts.split()) == case.text
    assert fold(reversed(case.hosts.split())) == case.text


@pytest.mark.parametrize("case", CASES.errors, ids=lambda case: ascii(case.text[:40]))
def test_error(case: Invalid) -> None:
    """The error has the position and the reason."""
    with pytest.raises(HostListError) as caught:
        expand(case.text)
    assert (caught.value.position, caught.value.text) == (case.position, case.text)
    assert case.why in caught.value.why


@given(st.lists(NAMES, min_size=1, max_size=60))
def test_fold_and_expand_round_trip(names: list[str]) -> None:
    """Folding neither loses, adds nor repeats names."""
    assert sorted(expand(fold(names)), key=natural) == sorted(set(names), key=natural)


@given(st.sets(st.tuples(NUMBERS, st.sampled_from([1, 2, 3])), min_size=1))
def test_one_number_folds_in_natural_order(numbers: set[tuple[int, int]]) -> None:
    """With one number in the name, folding keeps the natural order, and distinguishes hosts by padding."""
    names = {f"n{number:0{width}d}" for number, width in numbers}
    assert expand(fold(names)) == sorted(names, key=natural)


@given(st.sets(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=40))
def test_full_grid_folds_to_one_range_per_dimension(points: set[tuple[int, int]]) -> None:
    """If all racks have the same nodes, the nodeset has one bracket per dimension."""
    racks, nodes = {rack for rack, _ in points}, {node for _, node in points}
    folded = fold(f"r{rack}n{node}" for rack in racks for node in nodes)
    assert folded == fold(f"r{rack}" for rack in racks) + fold(f"n{node}" for node in nodes)


@given(st.text(st.sampled_from("n1029-[],/!&@:%. \t#^~é\x1b") | st.characters()))
def test_arbitrary_text(text: str) -> None:
    """Only `HostListError` is raised, its position is within the text, and names contain no special characters."""
    names, position = [], 0
    try:
        names = expand(text)
    except HostListError as error:
        position = error.position
    assert 0 <= position < max(1, len(text))
    assert all(name.isascii() and name.isprintable() and name[0] not in "-." for name in names)
    assert not set("".join(names)) & set(" ,;&|$`<>(){}[]*?!\\\"'~#^@/=")


def test_maximum_number_of_hosts() -> None:
    """The maximum is allowed for one range; more is an error for many names."""
    assert len(expand(f"n[1-{MAX_HOSTS}]")) == MAX_HOSTS
    with pytest.raises(HostListError, match="more than"):
        expand("n1," * MAX_HOSTS + "n1")
