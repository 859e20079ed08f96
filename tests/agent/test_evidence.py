"""The agent's extension that reads items of issue reports: what it sends, its limits, and that no process remains."""

from __future__ import annotations

import ast
import base64
import datetime as dt
import os
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rollbook import agent
from rollbook.agent.log_window import time_of
from rollbook.bundle.items import Item, When
from rollbook.bundle.request import orders
from rollbook.bundle.summary import Window
from tests.support.agents import HandAgent
from tests.support.waits import SECONDS, is_running, until

TEXT = zlib.decompress(base64.b64decode(agent.extension(archive=True))).decode()
MINUTE = dt.datetime(2026, 11, 16, 5, 0, tzinfo=dt.UTC)


@pytest.fixture
def hand() -> Iterator[HandAgent]:
    """An agent under this Python, binary carrier."""
    with HandAgent() as running:
        yield running


class Sent:
    """The data that an agent sent for items: text by source, status and note by item."""

    def __init__(self, hand: HandAgent) -> None:
        self.files: dict[str, bytes] = {}
        self.ends: dict[str, list[str]] = {}
        self.done: dict[int, tuple[str, str]] = {}
        sources: dict[tuple[str, str], str] = {}
        for frame in hand.frames:
            if frame.kind != "I":
                continue
            head, _, body = frame.payload.partition(b"\n")
            item, file, word, *rest = head.decode().split("\t")
            source = sources.get((item, file), "")
            if word == "open":
                sources[item, file] = rest[0]
                self.files[rest[0]] = b""
            elif word == "data":
                self.files[source] += zlib.decompress(body)
            elif word == "end":
                self.ends[source] = rest
            elif word == "done":
                self.done[int(item)] = rest[0], rest[2]


def read(
    hand: HandAgent, *items: Item, seconds: float = 30.0, size: int = 1 << 30, window: Window | None = None
) -> Sent:
    """Order the agent to read the items, and return what it sent."""
    send(hand, items, seconds=seconds, size=size, window=window)
    hand.until(lambda frame: frame.kind == "D" and frame.payload == b"items")
    return Sent(hand)


def send(
    hand: HandAgent, items: Sequence[Item], *, seconds: float = 30.0, size: int = 1 << 30, window: Window | None = None
) -> None:
    """Send the orders for items."""
    assert hand.process.stdin is not None
    hand.process.stdin.write(orders(items, window or Window(), seconds=seconds, size=size, salt="salt"))


def test_packed_size() -> None:
    """The extension is sent to every node of a report, or is part of an argument if the agent cannot receive orders."""
    assert len(agent.extension()) < 24 * 1024
    assert len(agent.extension(archive=True)) < 28 * 1024


def test_python_3_6_is_enough(tmp_path: Path) -> None:
    """The extension uses only syntax and modules of Python 3.6."""
    path = tmp_path / "extension.py"
    path.write_text(TEXT)
    result = subprocess.run(
        [Path(sys.executable).with_name("vermin"), "--no-tips", "--violations", "-t=3.6-", path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout


def test_every_name_is_defined_once() -> None:
    """All modules of the agent and of the extension share a namespace: a second definition would replace the first."""
    nodes = ast.parse(f"{agent.text()}\n{TEXT}").body
    names = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names += [ast.unparse(target) for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
    assert {name for name, count in Counter(names).items() if count > 1} == {"TYPE_CHECKING"}


def test_paths_and_commands(hand: HandAgent, tmp_path: Path) -> None:
    """Files, kernel files joined into one, commands with pipes and quotes, exit statuses, conditions, denied files."""
    (tmp_path / "a.log").write_text("one\n")
    (tmp_path / "b.log").write_text("two")
    (tmp_path / "link").symlink_to("/etc/shadow")
    (tmp_path / "x.pem").write_text("key")
    os.mkfifo(tmp_path / "fifo.log")
    sent = read(
        hand,
        Item(id="files", title="", paths=(f"{tmp_path}/*.log", f"{tmp_path}/nothing")),
        Item(id="kernel", title="", paths=("/proc/sys/kernel/random/*id",), redact="none"),
        Item(id="shell", title="", commands=("printf '%s|' 'a  b' \"c\td\" | tr a x; exit 3",)),
        Item(id="argv", title="", commands=(("echo", "a  b"), ("nosuchprogram",))),
        Item(id="first", title="", commands=("exit 1", "echo second", "echo third"), first=True),
        Item(id="each", title="", commands=(("echo", "{each}"),), each=f"{tmp_path}/[ab].log"),
        Item(id="when", title="", commands=("echo never",), when=When(paths=(f"{tmp_path}/nothing",))),
        Item(id="also", title="", commands=("echo yes",), when=When(commands=("nosuchprogram", "sh"))),
        Item(id="secret", title="", paths=(f"{tmp_path}/link", f"{tmp_path}/x.pem")),
    )
    assert sent.files[f"{tmp_path}/a.log"] == b"one\n"
    assert sent.files[f"{tmp_path}/b.log"] == b"two"
    assert f"{tmp_path}/fifo.log" not in sent.files
    assert b"==> /proc/sys/kernel/random/boot_id <==\n" in sent.files["/proc/sys/kernel/random/*id"]
    assert sent.files["printf '%s|' 'a  b' \"c\\td\" | tr a x; exit 3"] == b"x  b|c\td|"
    assert sent.ends["printf '%s|' 'a  b' \"c\\td\" | tr a x; exit 3"][2] == "3"
    assert sent.files["echo 'a  b'"] == b"a  b\n"
    assert "echo third" not in sent.files
    assert {"echo a.log", "echo b.log"} <= sent.files.keys()
    statuses = [sent.done[number][0] for number in range(9)]
    assert statuses == ["complete"] * 6 + ["absent", "complete", "denied"]
    assert not any("link" in source or "pem" in source for source in sent.files)


def test_a_failed_file_is_worse_than_a_truncated_one(hand: HandAgent, tmp_path: Path) -> None:
    """The item is failed, so that resuming reads it again."""
    (tmp_path / "long").write_text("x\n" * 1000)
    paths = (f"{tmp_path}/long", "/proc/self/mem")  # whose first page is not mapped
    sent = read(hand, Item(id="both", title="", paths=paths, limit=1000))
    assert len(sent.files[f"{tmp_path}/long"]) < 2000
    assert sent.done[0] == ("failed", "/proc/self/mem: Input/output error")


def test_low_priority(hand: HandAgent) -> None:
    """Commands run at the lowest CPU priority and a low disk priority."""
    sent = read(hand, Item(id="nice", title="", commands=(("nice",), ("ionice",))))
    assert sent.files["nice"] == b"19\n"
    assert sent.files["ionice"] == b"best-effort: prio 7\n"


@pytest.mark.parametrize("keep", ["head", "tail"])
def test_truncation_is_reported(hand: HandAgent, tmp_path: Path, keep: str) -> None:
    """Text beyond the limit is cut at a line, and the number of missing bytes is reported."""
    lines = [f"line {number:06}\n" for number in range(20_000)]
    (tmp_path / "log").write_text("".join(lines))
    sent = read(
        hand,
        Item(id="file", title="", paths=(f"{tmp_path}/log",), limit=10_000, keep=keep),  # type: ignore[arg-type]
        Item(id="command", title="", commands=(f"cat {tmp_path}/log",), limit=10_000, keep=keep),  # type: ignore[arg-type]
        Item(id="small", title="", commands=("echo fits",), limit=10_000, keep=keep),  # type: ignore[arg-type]
    )
    for source in (f"{tmp_path}/log", f"cat {tmp_path}/log"):
        text = sent.files[source].decode()
        assert 9_900 < len(text) <= 10_000
        assert text.startswith(lines[0]) if keep == "head" else text.endswith(lines[-1])
        before, after = (int(number) for number in sent.ends[source][:2])
        assert (before == 0 and after != 0) if keep == "head" else (before == 240_000 - len(text) and after == 0)
        assert keep == "head" or text.startswith("line ")
    assert [sent.done[number][0] for number in range(3)] == ["truncated", "truncated", "complete"]


def test_secrets_that_are_truncated_are_masked(hand: HandAgent, tmp_path: Path) -> None:
    """A tail that begins inside a private key does not reveal the rest of the key."""
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA7v6R0canarycanarycanarycanary\n" * 60
    (tmp_path / "log").write_text("x" * 50 + "\n" + key + "-----END RSA PRIVATE KEY-----\n" + "after\n" * 10)
    sent = read(hand, Item(id="file", title="", paths=(f"{tmp_path}/log",), limit=1000))
    assert b"canary" not in sent.files[f"{tmp_path}/log"]
    assert sent.files[f"{tmp_path}/log"].endswith(b"after\n" * 10)


def test_many_files_share_a_limit(hand: HandAgent, tmp_path: Path) -> None:
    """Small files are read completely; large ones share the rest of the limit equally."""
    for name, size in (("a", 50_000), ("b", 100), ("c", 50_000)):
        (tmp_path / name).write_text("x" * 9 + "\n" + ("y" * 9 + "\n") * (size // 10 - 1))
    sent = read(hand, Item(id="files", title="", paths=(f"{tmp_path}/*",), limit=20_100))
    sizes = {Path(source).name: len(data) for source, data in sent.files.items()}
    assert sizes["b"] == 100
    assert 9_900 < sizes["a"] <= 10_000
    assert 9_900 < sizes["c"] <= 10_200


def test_hanging_commands_are_killed(hand: HandAgent) -> None:
    """A command that ignores signals is killed with its children at its timeout; its output is kept."""
    mark = f"{time.monotonic_ns()}"
    command = f"trap '' TERM INT HUP; echo begun; (set -m; sleep 987{mark} & wait) & sleep 987{mark}"
    sent = read(
        hand,
        Item(id="hang", title="", commands=(command,), seconds=3.0),
        Item(id="ok", title="", paths=("/etc/hostname",)),
        seconds=2 * SECONDS,
    )
    assert sent.files[command] == b"begun\n"
    assert sent.done[0][0] == "timed-out"
    assert sent.done[1][0] == "complete"
    until(lambda: not is_running(f"sleep 987{mark}"))


def test_time_limit_of_the_node(hand: HandAgent) -> None:
    """At the node's time limit, running items are timed out and waiting items are not read."""
    slow = [
        Item(id=f"slow{number}", title="", commands=(f"echo {number}; sleep 60",), seconds=60) for number in range(6)
    ]
    sent = read(hand, *slow, seconds=6.0)
    assert [sent.done[number][0] for number in range(6)] == ["timed-out"] * 4 + ["not-read"] * 2
    assert "time limit" in sent.done[5][1]
    assert sent.files["echo 0; sleep 60"] == b"0\n"


def test_size_limit_of_the_node(hand: HandAgent) -> None:
    """Items share the node's size limit; once it is reached, items are not read."""
    large = [Item(id=f"large{n}", title="", commands=(f"yes {n} | head -c 100000",), limit=200_000) for n in range(9)]
    sent = read(hand, *large, size=250_000)
    statuses = [sent.done[number][0] for number in range(9)]
    assert sum(map(len, sent.files.values())) <= 250_000
    assert statuses[0] == "complete"
    assert statuses[-1] == "not-read"
    assert "size limit" in sent.done[8][1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_programs_end_with_the_agent(hand: HandAgent, number: signal.Signals) -> None:
    """Programs are killed even if the agent itself is killed."""
    mark = f"{time.monotonic_ns()}"
    send(
        hand, [Item(id="hang", title="", commands=(f"trap '' TERM HUP; sleep 986{mark}; sleep 986{mark}",), seconds=60)]
    )
    until(lambda: is_running(f"sleep 986{mark}"))
    hand.process.send_signal(number)
    hand.process.wait(SECONDS)
    until(lambda: not is_running(f"sleep 986{mark}"))


def test_the_next_program_runs_if_the_first_has_no_output(hand: HandAgent) -> None:
    """With `first`, a program without output in the time window is skipped: the next one runs."""
    line = "2026-11-16T05:00:05 from the second"
    item = Item(id="log", title="", commands=("true", f"echo '{line}'; printf '{line}, cut'"), first=True, dated=True)
    sent = read(hand, item, window=Window(MINUTE, MINUTE + dt.timedelta(seconds=9)))
    assert b"".join(sent.files.values()) == f"{line}\n{line}, cut\n".encode()


def test_time_window(hand: HandAgent, tmp_path: Path) -> None:
    """Only lines in the window are sent; files that were last written before it are skipped."""
    lines = [f"{(MINUTE + dt.timedelta(seconds=n)).isoformat()} host: event {n}\n" for n in range(50_000)]
    (tmp_path / "new.log").write_text("".join(lines))
    (tmp_path / "old.log").write_text(lines[0])
    os.utime(tmp_path / "old.log", (MINUTE.timestamp(), MINUTE.timestamp()))
    os.utime(tmp_path / "new.log", (MINUTE.timestamp() + 50_000, MINUTE.timestamp() + 50_000))
    window = Window(MINUTE + dt.timedelta(seconds=20_000), MINUTE + dt.timedelta(seconds=20_009))
    sent = read(
        hand,
        Item(id="file", title="", paths=(f"{tmp_path}/*.log",), dated=True),
        Item(id="command", title="", commands=(f"cat {tmp_path}/new.log",), dated=True),
        window=window,
    )
    expected = "".join(lines[20_000:20_010]).encode()
    assert sent.files[f"{tmp_path}/new.log"] == expected
    assert sent.files[f"cat {tmp_path}/new.log"] == expected
    assert f"{tmp_path}/old.log" not in sent.files


@pytest.mark.parametrize("count", [10, 14_000], ids=["small", "large"])
def test_a_time_window_over_lines_without_times(hand: HandAgent, tmp_path: Path, count: int) -> None:
    """Without any time that is recognised, no line is left out of a file or of a program's output."""
    text = "".join(f"event {number}\n" for number in range(count))
    (tmp_path / "log").write_text(text)
    files = Item(id="file", title="", paths=(f"{tmp_path}/log",), dated=True)
    programs = Item(id="command", title="", commands=(f"cat {tmp_path}/log",), dated=True)
    window = Window(MINUTE, MINUTE + dt.timedelta(days=99_999))
    sent = read(hand, files, programs, window=window)
    assert sent.files[f"{tmp_path}/log"] == sent.files[f"cat {tmp_path}/log"] == text.encode()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("2026-11-16T05:00:00Z x", MINUTE),
        ("2026-11-16T06:00:00.123456+01:00 x", MINUTE),
        ("[2026-11-16T05:00:00+0000] x", MINUTE),
        ("Nov 16 05:00:00 x", dt.datetime(2026, 11, 16, 5, 0).astimezone()),
        ("Dec  1 05:00:00 x", dt.datetime(2025, 12, 1, 5, 0).astimezone()),
        ("E1116 05:00:00.000000 1 x.go:1] x", dt.datetime(2026, 11, 16, 5, 0).astimezone()),
        ("Mon 99 05:00:00 x", None),
        ("2026-13-45T99:00:00Z x", None),
        ("[    1.234567] x", None),
    ],
)
def test_timestamps_of_lines(line: str, expected: dt.datetime | None) -> None:
    """Timestamps in the formats of common logs; one without a year is never in the future."""
    now = dt.datetime(2026, 11, 16, 6, 0, tzinfo=dt.UTC).timestamp()
    assert time_of(line.encode(), now) == (expected.timestamp() if expected else None)
