"""Which names and addresses are this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest

from rollbook.hosts import is_local
from rollbook.hosts.local import read_machine

DATA = Path(__file__).parents[1] / "data" / "hosts"


class Self(msgspec.Struct, forbid_unknown_fields=True):
    """A machine by its files and host name, and names that are it and are not."""

    files: str
    hostname: str
    local: list[str]
    remote: list[str]


class Cases(msgspec.Struct, forbid_unknown_fields=True):
    """The data file."""

    about: str
    machines: list[Self]


CASES = msgspec.json.decode((DATA / "local.json").read_bytes(), type=Cases)


@pytest.mark.parametrize("case", CASES.machines, ids=lambda case: f"{case.files}-{case.hostname}")
def test_machine(case: Self) -> None:
    """A machine knows itself by exactly the names of its case."""
    machine = read_machine(DATA / "local" / case.files, case.hostname)
    assert [name for name in case.local if not machine.is_called(name)] == []
    assert [name for name in case.remote if machine.is_called(name)] == []


def test_this_machine_without_a_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is known from its own files; no name is ever looked up."""

    def looked_up(*args: object) -> None:
        raise AssertionError(args)

    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getfqdn", "getnameinfo"):
        monkeypatch.setattr(socket, name, looked_up)
    assert all(map(is_local, ["localhost", "127.0.0.1", "::1", socket.gethostname(), socket.gethostname().upper()]))
    assert not any(map(is_local, ["other.example", "192.0.2.77", "2001:db8::77", f"{socket.gethostname()}.example"]))
    assert "127.0.0.1" in read_machine().addresses
