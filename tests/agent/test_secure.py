"""Authentication codes and sealed messages: modified messages are rejected."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rollbook.agent import secure
from rollbook.agent.secure import CODE, Key, Seal, derive, line_code


@given(st.binary(max_size=200), st.lists(st.binary(max_size=300), max_size=4))
def test_codes_are_hmac_sha256(key: bytes, parts: list[bytes]) -> None:
    """Codes match HMAC-SHA256 of the standard library, for keys of any length."""
    assert Key(key).code(*parts) == hmac.new(key, b"".join(parts), hashlib.sha256).digest()


@pytest.mark.parametrize("missing", [(), ("_sha2", "_sha256")])
def test_sha256_without_private_modules(missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """If Python was built without `_sha2` and `_sha256`, another implementation is used."""
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    assert secure.sha256()(b"x").digest() == hashlib.sha256(b"x").digest()


def test_imports() -> None:
    """`hashlib` and `hmac`, whose import takes milliseconds, are not imported if a private module is available."""
    code = (
        "import sys\nfrom rollbook.agent.secure import Seal, derive, same\n"
        "Seal(derive(b'token', b'word')).seal(b'data'); same(b'a', b'a')\n"
        "print([name for name in ('hashlib', 'hmac', '_hashlib', 'ssl') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _with_path(code)], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


def _with_path(code: str) -> str:
    return f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}\n{code}"


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=6), st.lists(st.integers(1, 500), max_size=20))
def test_messages_in_pieces(messages: list[bytes], cuts: list[int]) -> None:
    """Messages are opened correctly even if the stream arrives in pieces."""
    send, receive = Seal(b"key"), Seal(b"key")
    stream = b"".join(map(send.seal, messages))
    opened = b""
    for cut in cuts:
        opened += receive.open(stream[:cut])
        stream = stream[cut:]
    assert opened + receive.open(stream) == b"".join(messages)


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=2, max_size=5), st.data())
def test_tampering(messages: list[bytes], data: st.DataObject) -> None:
    """A changed bit and a message that is inserted, dropped, repeated, moved or of the other direction are detected."""
    send, receive = Seal(b"key"), Seal(b"key")
    sealed = [send.seal(message) for message in messages]
    at = data.draw(st.integers(0, len(sealed) - 2))
    how = data.draw(st.sampled_from(["bit", "insert", "drop", "repeat", "swap", "direction", "raw"]))
    if how == "bit":
        bit = data.draw(st.integers(32, 8 * len(sealed[at]) - 1))  # a greater length would only wait for more data
        changed = bytearray(sealed[at])
        changed[bit // 8] ^= 1 << bit % 8
        sealed[at] = bytes(changed)
    elif how == "insert":
        sealed.insert(at, len(messages[at]).to_bytes(4, "big") + b"\0" * CODE + messages[at])
    elif how == "drop":
        del sealed[at]
    elif how == "repeat":
        sealed.insert(at, sealed[at])
    elif how == "swap":
        assume(sealed[at] != sealed[at + 1])
        sealed[at : at + 2] = sealed[at + 1], sealed[at]
    elif how == "direction":
        sealed[at] = Seal(b"other").seal(messages[at])
    else:
        sealed.insert(at, b"\0\0\0\1" + b"go\tnow\n" * 4)
    opened = bytearray()
    with pytest.raises(ConnectionError, match="failed authentication"):
        opened.extend(receive.open(b"".join(sealed)))
    assert not opened


def test_message_length_is_limited() -> None:
    """A length that exceeds the maximum closes the connection immediately."""
    with pytest.raises(ConnectionError, match="too long"):
        Seal(b"key").open(b"\xff" * 4)


def test_keys_and_codes_differ_by_purpose() -> None:
    """Proofs, keys of both roles, and codes of lines with different tags or boundaries are all different."""
    roles = [derive(b"token", role, b"1", b"2") for role in (b"agent", b"collector", b"agent-key", b"collector-key")]
    lines = [line_code(b"token", tag)(b"H 0 1 1", b"x") for tag in (b"1", b"2", b"12")]
    moved = [line_code(b"token", b"1")(*parts) for parts in ((b"S 1 2 3", b"4x"), (b"S 1 2 34", b"x"))]
    assert len({*roles, *lines, *moved}) == 9
    assert {len(code) for code in lines} == {CODE}
