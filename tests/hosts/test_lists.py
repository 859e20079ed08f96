"""Host lists of the command line: users, slots, addresses."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rollbook.errors import HostListError, UsageError
from rollbook.hosts.lists import read_list

Triple = tuple[str, str | None, int | None]


class Valid(msgspec.Struct, forbid_unknown_fields=True):
    """A host list and its hosts."""

    text: str
    hosts: list[Triple]


class Invalid(msgspec.Struct, forbid_unknown_fields=True):
    """An invalid list, the position of the error, and a part of the reason."""

    text: str
    position: int
    why: str


class Cases(msgspec.Struct, forbid_unknown_fields=True):
    """The data file."""

    about: str
    hosts: list[Valid]
    errors: list[Invalid]


CASES = msgspec.json.decode((Path(__file__).parents[1] / "data/hosts/lists.json").read_bytes(), type=Cases)


@pytest.mark.parametrize("case", CASES.hosts, ids=lambda case: case.text)
def test_hosts(case: Valid) -> None:
    """A list has the hosts of its case, in order, with the given users and slots only."""
    assert [(host.name, host.user, host.slots) for host in read_list(case.text).values()] == case.hosts


@pytest.mark.parametrize("case", CASES.errors, ids=lambda case: ascii(case.text))
def test_error(case: Invalid) -> None:
    """The error has the position and the reason."""
    with pytest.raises(HostListError) as caught:
        read_list(case.text)
    assert (caught.value.position, caught.value.text) == (case.position, case.text)
    assert case.why in caught.value.why


def test_two_users_for_one_host() -> None:
    """Two users for one host are an error, not a silent choice."""
    with pytest.raises(UsageError, match="n2 is given with user ann and with user bob"):
        read_list("ann@n[1-3],bob@n2")
