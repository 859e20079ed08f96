"""The redactor of issue reports: cases from data files, block boundaries, repeated redaction, ordinary text."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollbook.agent import redactor as redactor_module
from rollbook.agent.redactor import Redactor

DATA = Path(__file__).parents[1] / "data"
SALT = b"salt of a run"
MARK = re.compile(rb"\*\*\*[0-9a-f]{8}")


def load(path: str, key: str) -> list[dict[str, Any]]:
    """Load the entries of a data file."""
    return list(tomllib.loads((DATA / path).read_text())[key])


CASES = load("redaction/text.toml", "case")
CANARIES = [each for each in load("bundle/canaries.toml", "canary") if each["place"] in {"file", "log", "argument"}]


def redact(text: bytes, *, size: int = 1 << 20, salt: bytes = SALT) -> tuple[bytes, Redactor]:
    """Redact a text in blocks of one size."""
    redactor = Redactor(salt)
    parts = [redactor.feed(text[start : start + size]) for start in range(0, len(text), size)]
    return b"".join([*parts, redactor.close()]), redactor


def number_marks(text: bytes) -> str:
    """Replace marks by `{1}`, `{2}` in the order of their first occurrence."""
    seen: dict[bytes, str] = {}
    return MARK.sub(lambda found: seen.setdefault(found[0], f"{{{len(seen) + 1}}}").encode(), text).decode()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_cases(case: dict[str, str]) -> None:
    """Every secret is redacted, and redacting again changes nothing; secrets of the cases contain `canary`."""
    redacted, _ = redact(case["text"].encode())
    assert number_marks(redacted) == case.get("redacted", case["text"])
    assert b"can" not in redacted or "redacted" not in case
    assert redact(redacted)[0] == redacted


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary["text"][:60])
def test_canaries(canary: dict[str, str]) -> None:
    """Each secret that the lab plants is found by the expected rule; the text around it is unchanged."""
    redacted, redactor = redact(f"before\n{canary['text']}\nafter\n".encode())
    assert canary["secret"].encode() not in redacted
    assert redacted.startswith(b"before\n")
    assert redacted.endswith(b"\nafter\n")
    assert canary["rule"] in [rule for rule, *_ in redactor.log]


@settings(max_examples=40)
@given(st.lists(st.sampled_from(CANARIES), min_size=1, max_size=6), st.integers(1, 400))
def test_block_boundaries(canaries: list[dict[str, str]], size: int) -> None:
    """The block size changes neither the redacted text nor the log."""
    text = "".join(f"Nov 16 05:00:00 node1 systemd: started\n{each['text']}\n" for each in canaries).encode()
    whole, redactor = redact(text)
    pieces, other = redact(text, size=size)
    assert pieces == whole
    assert other.log == redactor.log
    for each in canaries:
        assert each["secret"].encode() not in pieces


@settings(max_examples=40)
@given(st.lists(st.sampled_from(CASES), min_size=1, max_size=4), st.lists(st.integers(1, 200), min_size=1, max_size=40))
def test_any_division_into_blocks(cases: list[dict[str, str]], sizes: list[int]) -> None:
    """Splitting a text with multi-line secrets into blocks changes neither the result nor the log."""
    text = "".join(case["text"] for case in cases).encode()
    whole, redactor = redact(text)
    other, at = Redactor(SALT), 0
    parts: list[bytes] = []
    while at < len(text):
        size = sizes[len(parts) % len(sizes)]
        parts.append(other.feed(text[at : at + size]))
        at += size
    assert b"".join([*parts, other.close()]) == whole
    assert other.log == redactor.log


def test_long_block_scalar() -> None:
    """A block scalar of any length ends where its indentation ends."""
    redacted, _ = redact(b"password: |\n" + b"  canary line\n" * 3000 + b"user: me\n")
    assert b"canary" not in redacted
    assert redacted.endswith(b"\nuser: me\n")


FRAGMENTS = st.sampled_from(
    [
        *"\"'\\,;&=:<>{}()@$*-_. \n\t",
        "password",
        "token",
        "api_key",
        "key",
        "value",
        "://",
        "--",
        "ghp_",
        "Bearer ",
        "x1",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "AKIAABCDEFGHIJKLMNOP",
        "name: ",
        "apiVersion: v1",
        "kind: Secret",
        "data:",
        "  ",
        "- ",
        "|",
        "<<EOF",
        "EOF",
        "curl -u ",
        "Cookie: ",
        "\x1b[1m",
        "</name>",
        "<value>",
        "LS0tLS1CRUdJTiBP" + 25 * "x",
        40 * "x",
        "sshpass -p ",
    ]
)


@settings(max_examples=200)
@given(st.lists(FRAGMENTS, max_size=30), st.integers(1, 50))
@example(["password", "=", '"', "x1", "'"], 3)
def test_redacting_twice_changes_nothing(parts: list[str], size: int) -> None:
    """Redacting redacted text changes nothing, even if the text is malformed, in blocks of any size."""
    text = "".join(parts).encode()
    once, _ = redact(text)
    assert redact(text, size=size)[0] == once
    twice, redactor = redact(once, size=size)
    assert twice == once
    assert redactor.log == []


@settings(max_examples=100)
@given(st.text(st.characters(codec="utf-8", exclude_characters="@$%"), max_size=300))
def test_text_without_hints_is_unchanged(text: str) -> None:
    """Arbitrary text is unchanged, unless the log has an entry."""
    data = text.encode()
    redacted, redactor = redact(data)
    assert redacted == data or redactor.log


def test_binary_data_is_unchanged() -> None:
    """Bytes that are not text are not redacted."""
    data = bytes(range(256)) * 100
    assert redact(data, size=1000)[0] == data


def test_a_very_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A very long line is redacted in pieces; the redactor buffers only a part of it."""
    longest = 1 << 16
    monkeypatch.setattr(redactor_module, "LONGEST_LINE", longest)
    item = b'{"name": "x", "password": "canary123", "n": 1}, '
    text = item * (3 * longest // len(item))
    redactor = Redactor(SALT)
    most = 0
    out = []
    for start in range(0, len(text), 1 << 13):
        out.append(redactor.feed(text[start : start + (1 << 13)]))
        most = max(most, len(redactor.rest))
    redacted = b"".join([*out, redactor.close()])
    assert b"canary" not in redacted
    assert redacted.count(b"***") == text.count(b"canary")
    assert most < longest + (1 << 14)


def test_log_entries() -> None:
    """An entry has the rule, first line, count and mark; equal secrets are one entry."""
    redacted, redactor = redact(b"a\ntoken=canary1\nb\nc token=canary1 --password canary2\n")
    assert [(rule, line, count) for rule, line, count, _ in redactor.log] == [("setting", 2, 2), ("option", 4, 1)]
    for _, line, _, mark in redactor.log:
        assert mark.encode() in redacted.splitlines()[line - 1]


def test_full_log_counts_further_replacements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit, one entry per rule, without a mark, counts all further secrets."""
    monkeypatch.setattr(redactor_module, "MAX_REDACTIONS", 2)
    redactor = Redactor(b"salt")
    words = ["first", "second", "third", "fourth", "first", "third"]
    redactor.feed("".join(f"password=secret-{word}\n" for word in words).encode() + b"https://ann:word@host/\n")
    redactor.close()
    places = [(line, count, bool(mark)) for _, line, count, mark in redactor.log]
    assert places == [(1, 2, True), (2, 1, True), (3, 3, False), (7, 1, False)]
    assert len({rule for rule, _, _, _ in redactor.log}) == 2


def test_marks_depend_on_the_salt() -> None:
    """The same secret has the same mark in one run, and another mark in another run."""
    one, other = redact(b"token=canary1\n")[0], redact(b"token=canary1\n", salt=b"another")[0]
    assert one != other
    assert redact(b"token=canary1\n")[0] == one


def test_every_line_of_arguments_is_parsed() -> None:
    """In process lists, single-dash options are recognized as well."""
    redactor = Redactor(SALT, "arguments")
    assert b"canary" not in redactor.feed(b"java -password canary1 x\n") + redactor.close()
