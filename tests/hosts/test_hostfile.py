"""Host files: common formats, and errors with file, line and position."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rollbook.errors import HostListError, UsageError
from rollbook.hosts import MAX_HOSTS, hostfile
from rollbook.hosts.hostfile import read_hostfile


class Valid(msgspec.Struct, forbid_unknown_fields=True):
    """The text of a file, and its hosts."""

    text: str
    hosts: list[tuple[str, str | None, int | None]]


class Invalid(msgspec.Struct, forbid_unknown_fields=True):
    """The text of an invalid file, and the position and reason of the error."""

    text: str
    line: int
    position: int
    why: str


class Cases(msgspec.Struct, forbid_unknown_fields=True):
    """The data file."""

    about: str
    hosts: list[Valid]
    errors: list[Invalid]


CASES = msgspec.json.decode((Path(__file__).parents[1] / "data/hosts/hostfile.json").read_bytes(), type=Cases)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a host file."""
    return tmp_path / "hosts"


@pytest.mark.parametrize("case", CASES.hosts, ids=lambda case: ascii(case.text))
def test_hosts(path: Path, case: Valid) -> None:
    """A file has the hosts of its case, in order."""
    path.write_bytes(case.text.encode())
    assert [(host.name, host.user, host.slots) for host in read_hostfile(path).values()] == case.hosts


@pytest.mark.parametrize("case", CASES.errors, ids=lambda case: ascii(case.text))
def test_error(path: Path, case: Invalid) -> None:
    """An error has the file, the line and the position in it."""
    path.write_bytes(case.text.encode())
    with pytest.raises(HostListError) as caught:
        read_hostfile(path)
    assert caught.value.why.startswith(f"{path}:{case.line}: ")
    assert case.why in caught.value.why
    assert caught.value.position == case.position
    assert caught.value.text == case.text.split("\n")[case.line - 1]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "contains no hosts"),
        (b"# nothing\n\n", "contains no hosts"),
        (b"n1\n# caf\xe9\n", r"hosts:2: not UTF-8 text \(byte 0xe9\)"),
        (b"\xef\xbb\xbf\nn1\xff\n", r"hosts:2: not UTF-8 text \(byte 0xff\)"),
        (b"\xff\xfen\x001\x00", "hosts:1: not UTF-8 text"),
        (b"ann@n1\nbob@n1\n", "hosts:2: n1 is given with user ann and with user bob"),
        (b"n[1-%d]\nm1\n" % MAX_HOSTS, "hosts:2: more than 100,000 hosts in total"),
    ],
)
def test_invalid_files(path: Path, raw: bytes, why: str) -> None:
    """Empty files, other encodings, conflicting users and too many hosts are errors."""
    path.write_bytes(raw)
    with pytest.raises(UsageError, match=why):
        read_hostfile(path)


def test_unreadable_paths(path: Path) -> None:
    """A missing file, a directory and an invalid path are errors."""
    with pytest.raises(UsageError, match=r"cannot read host file .*: No such file"):
        read_hostfile(path)
    with pytest.raises(UsageError, match=r"cannot read host file .*: Is a directory"):
        read_hostfile(path.parent)
    with pytest.raises(UsageError, match=r"cannot read host file .*null"):
        read_hostfile("a\0b")


def test_endless_file() -> None:
    """Reading stops at the limit."""
    with pytest.raises(UsageError, match="larger than 16 MiB"):
        read_hostfile("/dev/zero")


def test_one_line_as_long_as_the_limit(path: Path) -> None:
    """A line as long as the size limit is refused as a host name that is too long."""
    path.write_bytes(b"n" * hostfile.MAX_BYTES)
    with pytest.raises(HostListError, match="at most 253 characters"):
        read_hostfile(path)
