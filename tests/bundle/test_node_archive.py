"""Archives of hostile nodes: each is refused, and nothing is written outside the node's directory."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from rollbook.bundle.items import Item
from rollbook.bundle.node_archive import read_archive
from rollbook.bundle.receive import NodeFiles, Redaction, Space
from rollbook.bundle.summary import ItemResult
from rollbook.errors import AgentFailed

ITEMS = [Item(id="one", title="", paths=("/a",), limit=1000), Item(id="two", title="", paths=("/b",), limit=1000)]
FILES = {"nodes/n/one/a": b"first", "nodes/n/two/b": b""}
LIST = (
    b"about\tworker\ti-1\teks\n"
    b"0\t0\topen\t/a\ta\n0\t0\tlog\thf-token\t3\t2\t***12345678\n0\t0\tend\t0\t0\t-\t5\n0\t-\tdone\tcomplete\t1000\t\n"
    b"1\t0\topen\t/b\tb\n1\t0\tend\t0\t0\t0\t0\n1\t-\tdone\tdenied\t5\t/b: no\n"
)


def write_archive(path: Path, files: dict[str, bytes] | None = None, listed: bytes | None = LIST) -> Path:
    """Write an archive with these files and this list."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data in {
            **(FILES if files is None else files),
            **({"nodes/n/items.tsv": listed} if listed else {}),
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def read(path: Path, tmp_path: Path, most: int = 1 << 20) -> list[tuple[ItemResult, list[Redaction]]]:
    """Read an archive as the collector does: its items, each with its redactions."""
    directory = tmp_path / "bundle" / "nodes" / "n"
    directory.mkdir(parents=True)
    found: list[tuple[ItemResult, list[Redaction]]] = []
    files = NodeFiles(
        directory, "nodes/n", ITEMS, space=Space(tmp_path, 1 << 30, 0), node_bytes=1 << 20,
        on_item=lambda item, redactions: found.append((item, redactions)),
    )  # fmt: skip
    for _ in read_archive(path, "nodes/n", ITEMS, files, most=most):
        pass
    return found


def test_valid_archive(tmp_path: Path) -> None:
    """Items have their status, reason, files, exit status and redactions."""
    (one, redactions), (two, _) = read(write_archive(tmp_path / "archive"), tmp_path)
    assert (one.status, one.seconds, one.files[0].path, one.files[0].redactions) == (
        "complete", 0.001, "nodes/n/one/a", 2,
    )  # fmt: skip
    assert (two.status, two.reason, two.files[0].exit_status, two.files[0].size) == ("denied", "/b: no", 0, 0)
    assert [(entry.rule, entry.line, entry.mark) for entry in redactions] == [("hf-token", 3, "***12345678")]
    assert (tmp_path / "bundle/nodes/n/one/a").read_bytes() == b"first"
    assert (tmp_path / "bundle/nodes/n/items.tsv").read_bytes() == LIST


HOSTILE: dict[str, tuple[dict[str, bytes], bytes | None]] = {
    "no list": (FILES, None),
    "a file that is not listed": ({**FILES, "nodes/n/one/c": b"x"}, LIST),
    "a file outside": ({"../outside": b"x"}, LIST.replace(b"\ta\n", b"\t../outside\n")),
    "a path as a name": ({**FILES, "nodes/n/one/../../x": b"x"}, LIST.replace(b"\ta\n", b"\t../../x\n")),
    "a hidden name": ({**FILES, "nodes/n/one/.x": b"x"}, LIST.replace(b"\ta\n", b"\t.x\n")),
    "a file that is missing": ({"nodes/n/one/a": b"first"}, LIST),
    "an item that was not requested": (FILES, LIST.replace(b"\n1\t0\topen", b"\n7\t0\topen")),
    "an item before the first": (FILES, LIST.replace(b"\n1\t0\topen", b"\n-1\t0\topen")),
    "an unknown status": (FILES, LIST.replace(b"denied", b"splendid")),
    "lines without fields": (FILES, b"about\n\n\nx\n"),
    "too much of an item": ({**FILES, "nodes/n/one/a": bytes(2 << 20)}, LIST),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives(tmp_path: Path, name: str) -> None:
    """The archive is refused, and nothing is written outside the node's directory."""
    with pytest.raises(AgentFailed):
        read(write_archive(tmp_path / "archive", *HOSTILE[name]), tmp_path, 64 << 20)
    outside = {path.name for path in tmp_path.iterdir()} | {path.name for path in (tmp_path / "bundle/nodes").iterdir()}
    assert outside == {"archive", "bundle", "n"}


@pytest.mark.parametrize("where", [0, 1, 2, 3])
def test_huge_headers(tmp_path: Path, where: int) -> None:
    """`tarfile` would hold the header in memory, whatever its size: it is refused wherever it is."""
    path = tmp_path / "archive"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for number, (name, data) in enumerate([*FILES.items(), ("nodes/n/items.tsv", LIST), ("more", b"")]):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.pax_headers = {"comment": "x" * (3 << 20)} if number == where else {}
            tar.addfile(entry, io.BytesIO(data))
    with pytest.raises(AgentFailed, match="a header of more than 1 MiB"):
        read(path, tmp_path, 64 << 20)


def test_damaged_archives(tmp_path: Path) -> None:
    """A truncated or changed archive, a link, or data beyond the limit raises `AgentFailed`."""
    whole = write_archive(tmp_path / "whole").read_bytes()
    linked = io.BytesIO()
    with tarfile.open(fileobj=linked, mode="w:gz") as tar:
        link = tarfile.TarInfo("nodes/n/items.tsv")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    flipped = bytearray(whole)
    flipped[-6] ^= 1
    damaged = [whole[:end] for end in range(0, len(whole), 23)] + [linked.getvalue(), bytes(flipped)]
    for number, data in enumerate([*damaged, gzip.compress(bytes(9 << 20))]):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        (scratch / "archive").write_bytes(data)
        with pytest.raises(AgentFailed):
            read(scratch / "archive", scratch)
