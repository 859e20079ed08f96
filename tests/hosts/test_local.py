"""Names and addresses of this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest

from rollbook.hosts import is_local
from rollbook.hosts.local import read_machine

DATA = Path(__file__).parents[1] / "data" / "hosts"


class Machine(msgspec.Struct, forbid_unknown_fields=True):
    """A machine by its files and host name, with local and remote names."""

    files: str
    hostname: str
    local: list[str]
    remote: list[str]


class Cases(msgspec.Struct, forbid_unknown_fields=True):
    """The data file."""

    about: str
    machines: list[Machine]


CASES = msgspec.json.decode((DATA / "local.json").read_bytes(), type=Cases)


@pytest.mark.parametrize("case", CASES.machines, ids=lambda case: f"{case.files}-{case.hostname}")
def test_machine(case: Machine) -> None:
    """Local names of the case refer to the machine, remote names do not."""
    machine = read_machine(DATA / "local" / case.files, case.hostname)
    assert [name for name in case.local if not machine.is_called(name)] == []
    assert [name for name in case.remote if machine.is_called(name)] == []


def test_this_machine_without_a_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is recognized by its own files; no name is resolved."""

    def fail(*args: object) -> None:
        raise AssertionError(args)

    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getfqdn", "getnameinfo"):
        monkeypatch.setattr(socket, name, fail)
    assert all(map(is_local, ["localhost", "127.0.0.1", "::1", socket.gethostname(), socket.gethostname().upper()]))
    assert not any(map(is_local, ["other.example", "192.0.2.77", "2001:db8::77", f"{socket.gethostname()}.example"]))
    assert "127.0.0.1" in read_machine().addresses
