"""Data of hostile nodes: nothing is written outside the node's directory, and limits are enforced."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollbook.bundle import receive
from rollbook.bundle.items import Item
from rollbook.bundle.receive import NodeFiles, Space, file_name
from rollbook.bundle.summary import ItemResult
from rollbook.errors import AgentFailed, RecordError

ITEMS = [Item(id="one", title="", paths=("/a",), limit=1000), Item(id="two", title="", paths=("/b",), limit=1000)]
MIB = 1 << 20


class Node:
    """A node's directory inside a bundle, with a canary next to it."""

    def __init__(self, path: Path, *, space: Space | None = None, node_bytes: int = 1 << 20) -> None:
        self.bundle = path / "bundle"
        self.directory = self.bundle / "nodes" / "n"
        self.directory.mkdir(parents=True)
        (path / "outside").write_text("untouched")
        results = self.results = list[ItemResult]()
        self.files = NodeFiles(
            self.directory, "nodes/n", ITEMS, space=space or Space(path, 1 << 30, 0), node_bytes=node_bytes,
            on_item=lambda item, _: results.append(item),
        )  # fmt: skip

    def file(self, item: int, number: int, source: str, data: bytes) -> None:
        """Send a file as an agent does."""
        head = f"{item}\t{number}\t".encode()
        self.files.take(head + b"open\t" + source.encode("utf-8", "surrogateescape"))
        self.files.take(head + b"data\t%d\n" % len(data) + zlib.compress(data))
        self.files.take(head + b"end\t0\t0\t-\t%d" % len(data))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with high limits."""
    return Node(tmp_path)


@pytest.mark.parametrize(
    "source",
    [
        "../../../outside",
        "/../../outside",
        "..",
        ".",
        "",
        "a/../../b",
        "\0",
        "a\nb",
        "-rf",
        ".hidden",
        "x" * 5000,
        "é\udc80",
        "~",
    ],
)
def test_hostile_file_names(node: Node, tmp_path: Path, source: str) -> None:
    """Any file name that a node sends becomes a plain name in the directory of its item."""
    node.file(0, 0, source.replace("\n", "\\n"), b"data")
    node.files.take(b"0\t-\tdone\tcomplete\t1\t")
    [path] = (node.directory / "one").iterdir()
    assert path.read_bytes() == b"data"
    assert path.name[0] not in ".-"
    assert len(os.fsencode(path.name)) <= 110
    assert (tmp_path / "outside").read_text() == "untouched"
    assert {one.name for one in tmp_path.iterdir()} == {"bundle", "outside"}


def test_equal_names_are_numbered(node: Node) -> None:
    """Two sources with the same name do not replace each other."""
    node.file(0, 0, "/a b", b"1")
    node.file(0, 1, "/a_b", b"2")
    assert {one.name: one.read_bytes() for one in (node.directory / "one").iterdir()} == {"a_b": b"1", "a_b~2": b"2"}


def test_a_link_in_the_bundle_is_not_followed(node: Node, tmp_path: Path) -> None:
    """Files are not written through a symlink that was placed in the bundle."""
    (tmp_path / "elsewhere").mkdir()
    (node.directory / "one").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match="symlink"):
        node.file(0, 0, "/a", b"data")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"0"],
        [b"9\t0\topen\tx"],
        [b"-1\t0\topen\tx"],
        [b"0\t99999\topen\tx"],
        [b"0\t0\topen\tx", b"0\t0\topen\tx"],
        [b"0\t0\topen\tx", b"0\t0\tdata\t5\nnot deflated"],
        [b"0\t0\topen\tx", b"0\t0\tdata\t5\n" + zlib.compress(b"0" * (receive.CHUNK + 1))],
        [b"0\t0\topen\tx", b"0\t0\tlog\n" + zlib.compress(b"not a redaction\n")],
        [b"0\t0\topen\tx", b"0\t0\tlog\n" + zlib.compress(b"rule\t1\t1\tmark\n" * 1000)],  # a bomb
        [b"0\t%d\topen\tx" % number for number in range(receive.MAX_OPEN + 1)],
        [b"0\t0\topen\tx", b"0\t0\tend\t0\t0\tx\t0"],
        [b"0\t0\topen\tx", b"0\t0\tunknown"],
        [b"0\t-\tdone\tsplendid\t0\t"],
        [b"0\t-\tdone\tcomplete\t0\t", b"0\t-\tdone\tcomplete\t0\t"],
        [b"0\t-\tdone\tcomplete\t99999999999999999999\t"],
        [b"0\t-\tother"],
    ],
)
def test_invalid_frames_disconnect_the_node(node: Node, frames: list[bytes]) -> None:
    """The node is disconnected with a reason, and every item has a result."""
    *before, last = frames
    for frame in before:
        node.files.take(frame)
    with pytest.raises(AgentFailed, match="disconnected"):
        node.files.take(last)
    node.files.finish("disconnected")
    assert len(node.results) == 2


def test_limits_of_items_run_and_disk(tmp_path: Path) -> None:
    """A node cannot exceed the limit of an item, the limit of the run, or the free disk space."""
    chunk = b"x" * receive.CHUNK
    with pytest.raises(AgentFailed, match="more than the limit of the item one"):
        send_endless_file(Node(tmp_path / "a"), chunk)
    with pytest.raises(RecordError, match="limit of this run"):
        send_endless_file(Node(tmp_path / "b", space=Space(tmp_path, MIB // 2, 0)), chunk)
    with pytest.raises(RecordError, match="is free on the disk"):
        send_endless_file(Node(tmp_path / "c", space=Space(tmp_path, 1 << 40, 1 << 60)), chunk)


def test_limits_of_files_and_redactions(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits apply to all items together, because names and redactions are kept in memory."""
    monkeypatch.setattr(receive, "MAX_NODE_FILES", 3)
    monkeypatch.setattr(receive, "MAX_LOGGED", 5000)
    for number in range(3):
        node.file(number % 2, number, f"/{number}", b"data")
    with pytest.raises(AgentFailed, match="too many files"):
        node.files.take(b"1\t9\topen\tx")
    rows = "".join(f"rule\t{number}\t1\t***{number * 7919 % 99991:08x}\n" for number in range(100))
    log = b"0\t0\tlog\n" + zlib.compress(rows.encode())
    node = Node(node.directory)
    node.files.take(b"0\t0\topen\tx")
    node.files.take(log)
    node.files.take(log)
    with pytest.raises(AgentFailed, match="too many redactions"):
        node.files.take(log)


def send_endless_file(node: Node, chunk: bytes) -> None:
    """Send a file that never ends."""
    node.files.take(b"0\t0\topen\tx")
    for _ in range(10_000):
        node.files.take(b"0\t0\tdata\t%d\n" % len(chunk) + zlib.compress(chunk))


def test_interrupted_items_keep_received_data(node: Node) -> None:
    """An unfinished file is kept and marked as truncated; items that had not begun are not read."""
    node.files.take(b"0\t0\topen\t/a")
    node.files.take(b"0\t0\tdata\t4\n" + zlib.compress(b"half"))
    node.files.finish("the connection broke")
    first, second = node.results
    assert (first.status, first.files[0].size, first.files[0].truncated) == (
        "failed",
        4,
        "the end: the connection broke",
    )
    assert (second.status, second.reason) == ("not-read", "the connection broke")
    assert not list(node.directory.rglob("*.part"))


def test_lost_frames_are_detected(node: Node) -> None:
    """A file with missing data is marked, data of an unopened file is ignored, and the item is not complete."""
    node.files.take(b"0\t0\topen\t/a")
    node.files.take(b"0\t0\tend\t0\t0\t-\t4")
    node.files.take(b"0\t1\tdata\t4\n" + zlib.compress(b"lost"))
    node.files.take(b"0\t-\tdone\tcomplete\t1\t")
    assert node.results[0].files[0].truncated == "a part was lost in transit"
    assert (node.results[0].status, node.results[0].reason) == ("failed", "a part was lost in transit")


@pytest.mark.parametrize("lost", range(3))
def test_an_item_with_a_lost_frame_is_not_complete(node: Node, lost: int) -> None:
    """This holds for each frame of a file: the one that opens it, its data, and the one that ends it."""
    frames = [b"0\t0\topen\t/a", b"0\t0\tdata\t4\n" + zlib.compress(b"data"), b"0\t0\tend\t0\t0\t-\t4"]
    for frame in [*frames[:lost], *frames[lost + 1 :], b"0\t-\tdone\tcomplete\t1\t"]:
        node.files.take(frame)
    assert (node.results[0].status, node.results[0].reason) == ("failed", "a part was lost in transit")


fields = st.one_of(
    st.sampled_from([b"0", b"1", b"-", b"open", b"data", b"log", b"end", b"done", b"complete", b"../x", b"-1"]),
    st.binary(max_size=20),
)
bodies = st.one_of(st.just(b""), st.binary(max_size=50), st.binary(max_size=200).map(zlib.compress))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.lists(fields, max_size=8), bodies), max_size=30))
def test_any_frames(tmp_path_factory: pytest.TempPathFactory, frames: list[tuple[list[bytes], bytes]]) -> None:
    """After any sequence of frames, all items have results, and only the files in them were written."""
    path = tmp_path_factory.mktemp("fuzz")
    node = Node(path)
    try:
        for head, body in frames:
            node.files.take(b"\t".join(head) + b"\n" + body)
    except AgentFailed:
        pass
    node.files.finish("over")
    assert sorted(result.id for result in node.results) == ["one", "two"]
    written = {one.relative_to(node.bundle).as_posix() for one in node.bundle.rglob("*") if one.is_file()}
    assert written == {file.path for result in node.results for file in result.files}
    assert {one.name for one in path.iterdir()} == {"bundle", "outside"}


@given(st.text())
def test_file_names(source: str) -> None:
    """Any text becomes a plain ASCII file name."""
    name = file_name(source)
    assert name.isascii()
    assert name not in {"", ".", ".."}
    assert "/" not in name
    assert len(name) <= receive.LONGEST_NAME


def test_notes_do_not_repeat_secrets(node: Node) -> None:
    """A note may contain the killed command, whose secrets are masked."""
    node.files.take(b"0\t-\tdone\ttimed-out\t5\tcurl -u me:hunter2hunter2 https://x: killed")
    assert "hunter2" not in node.results[0].reason
    assert node.results[0].reason.endswith(": killed")
