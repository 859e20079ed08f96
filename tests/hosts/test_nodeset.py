"""Nodesets: recorded from the tools of the field, and round trips."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import HostListError
from rollbook.hosts import MAX_HOSTS, expand, fold, natural


class Pair(msgspec.Struct, forbid_unknown_fields=True):
    """A nodeset, its hosts, and who says that they belong together."""

    by: str
    text: str
    hosts: str


class Wrong(msgspec.Struct, forbid_unknown_fields=True):
    """A list that cannot be read, the character pointed at, and a part of the reason."""

    text: str
    position: int
    why: str


class Cases(msgspec.Struct, forbid_unknown_fields=True):
    """The data file."""

    about: str
    expand: list[Pair]
    fold: list[Pair]
    errors: list[Wrong]


CASES = msgspec.json.decode((Path(__file__).parents[1] / "data/hosts/nodeset.json").read_bytes(), type=Cases)

NAMES = st.from_regex(r"[a-z]{0,2}[0-9]{0,3}([a-z.-][0-9]{1,3}){0,3}[a-z]?", fullmatch=True).filter(
    lambda name: name[:1].isalnum()
)
NUMBERS = st.integers(0, 120)


@pytest.mark.parametrize("case", CASES.expand, ids=lambda case: ascii(case.text))
def test_expand(case: Pair) -> None:
    """A nodeset is the hosts its case lists, in that order."""
    assert expand(case.text) == case.hosts.split()


@pytest.mark.parametrize("case", CASES.fold, ids=lambda case: case.text[:40])
def test_fold(case: Pair) -> None:
    """Hosts give the nodeset of their case, whatever their order."""
    assert fold(case.hosts.split()) == case.text
    assert fold(reversed(case.hosts.split())) == case.text


@pytest.mark.parametrize("case", CASES.errors, ids=lambda case: ascii(case.text[:40]))
def test_error(case: Wrong) -> None:
    """What cannot be read is pointed at."""
    with pytest.raises(HostListError) as caught:
        expand(case.text)
    assert (caught.value.position, caught.value.text) == (case.position, case.text)
    assert case.why in caught.value.why


@given(st.lists(NAMES, min_size=1, max_size=60))
def test_folded_names_expand_to_themselves(names: list[str]) -> None:
    """Folding loses nothing, adds nothing, and repeats nothing."""
    assert sorted(expand(fold(names)), key=natural) == sorted(set(names), key=natural)


@given(st.sets(st.tuples(NUMBERS, st.sampled_from([1, 2, 3])), min_size=1))
def test_one_number_folds_in_natural_order(numbers: set[tuple[int, int]]) -> None:
    """With one number in the name, a folded nodeset also keeps the order, and padding tells hosts apart."""
    names = {f"n{number:0{width}d}" for number, width in numbers}
    assert expand(fold(names)) == sorted(names, key=natural)


@given(st.sets(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=40))
def test_a_full_grid_is_one_box(points: set[tuple[int, int]]) -> None:
    """All racks with the same nodes need one bracket per dimension."""
    racks, nodes = {rack for rack, _ in points}, {node for _, node in points}
    folded = fold(f"r{rack}n{node}" for rack in racks for node in nodes)
    assert folded == fold(f"r{rack}" for rack in racks) + fold(f"n{node}" for node in nodes)


@given(st.text(st.sampled_from("n1029-[],/!&@:%. \t#^~é\x1b") | st.characters()))
def test_any_text_is_read_or_pointed_at(text: str) -> None:
    """Nothing but `HostListError` comes out, its position is within the text, and names are safe to hand on."""
    names, position = [], 0
    try:
        names = expand(text)
    except HostListError as error:
        position = error.position
    assert 0 <= position < max(1, len(text))
    assert all(name.isascii() and name.isprintable() and name[0] not in "-." for name in names)
    assert not set("".join(names)) & set(" ,;&|$`<>(){}[]*?!\\\"'~#^@/=")


def test_the_largest_list_is_allowed() -> None:
    """The limit is what it says, for one range and for many words."""
    assert len(expand(f"n[1-{MAX_HOSTS}]")) == MAX_HOSTS
    with pytest.raises(HostListError, match="more than"):
        expand("n1," * MAX_HOSTS + "n1")
