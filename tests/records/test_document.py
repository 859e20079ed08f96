"""JSON documents: control characters are escaped, and read back to the same values."""

from __future__ import annotations

import json

from rollbook.records.document import encode
from tests.support.hostile_host import ATTACK


def test_control_characters_are_escaped() -> None:
    """JSON allows control characters above 127 and direction marks, which terminals interpret: they are escaped."""
    text = f"{ATTACK} é µ 日本 \x85 \u2066\ufeff"
    found = encode({"text": text}).decode()
    assert all(character.isprintable() or character == "\n" for character in found)
    assert "é µ 日本" in found
    assert json.loads(found) == {"text": text}
