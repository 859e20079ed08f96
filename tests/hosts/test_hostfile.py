"""Host files: the styles in use, and errors that name file, line and character."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rollbook.errors import HostListError, UsageError
from rollbook.hosts import MAX_HOSTS, hostfile
from rollbook.hosts.hostfile import read_hostfile


class Read(msgspec.Struct, forbid_unknown_fields=True):
    """A file's text and its hosts."""

    text: str
    hosts: list[tuple[str, str | None, int | None]]


class Wrong(msgspec.Struct, forbid_unknown_fields=True):
    """A file's text, and where and why it cannot be read."""

    text: str
    line: int
    position: int
    why: str


class Cases(msgspec.Struct, forbid_unknown_fields=True):
    """The data file."""

    about: str
    hosts: list[Read]
    errors: list[Wrong]


CASES = msgspec.json.decode((Path(__file__).parents[1] / "data/hosts/hostfile.json").read_bytes(), type=Cases)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A host file to write."""
    return tmp_path / "hosts"


@pytest.mark.parametrize("case", CASES.hosts, ids=lambda case: ascii(case.text))
def test_hosts(path: Path, case: Read) -> None:
    """A file is the hosts of its case, in that order."""
    path.write_bytes(case.text.encode())
    assert [(host.name, host.user, host.slots) for host in read_hostfile(path).values()] == case.hosts


@pytest.mark.parametrize("case", CASES.errors, ids=lambda case: ascii(case.text))
def test_error(path: Path, case: Wrong) -> None:
    """An error names the file and the line and points at the character in it."""
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
        (b"n[1-%d]\nm1\n" % MAX_HOSTS, "hosts:2: more than 100,000 hosts in all"),
    ],
)
def test_unusable(path: Path, raw: bytes, why: str) -> None:
    """The error names a file that is not a host file."""
    path.write_bytes(raw)
    with pytest.raises(UsageError, match=why):
        read_hostfile(path)


def test_cannot_be_opened(path: Path) -> None:
    """A path that leads nowhere, to a directory, or is none."""
    with pytest.raises(UsageError, match=r"cannot read host file .*: No such file"):
        read_hostfile(path)
    with pytest.raises(UsageError, match=r"cannot read host file .*: Is a directory"):
        read_hostfile(path.parent)
    with pytest.raises(UsageError, match=r"cannot read host file .*null"):
        read_hostfile("a\0b")


def test_never_ending_file() -> None:
    """No more than the limit is ever read."""
    with pytest.raises(UsageError, match="larger than 16 MiB"):
        read_hostfile("/dev/zero")


def test_one_line_as_long_as_the_limit(path: Path) -> None:
    """A file without a line end costs no more than its length."""
    path.write_bytes(b"n" * hostfile.MAX_BYTES)
    with pytest.raises(HostListError, match="at most 253 characters"):
        read_hostfile(path)
