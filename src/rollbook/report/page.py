"""One HTML file: document, script and style, with a content security policy that allows nothing else.

Text from hosts is only in the document, which is JSON with every `<` escaped: no text can end its script element, and
the script only creates text nodes. The policy names script and style by their hashes.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.resources
from pathlib import Path

import msgspec

from rollbook.errors import RecordError
from rollbook.files import PRIVATE, write_file
from rollbook.records.record import Record
from rollbook.report.build import build
from rollbook.report.model import PageData
from rollbook.sql.grids import Tables, open_tables

__all__ = ["embed", "html", "write_report"]

BUILT = "built"

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>Rollbook</title>
<style>{style}</style>
</head>
<body>
<div id="page"><noscript>This page needs JavaScript; the same data is in the files next to it.
</noscript></div>
<script id="data" type="application/json">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def write_report(record: Record, path: Path, *, mode: int = PRIVATE, tables: Tables | None = None) -> None:
    """Write the page of a record atomically, from its open tables or after opening them."""
    with contextlib.nullcontext(tables) if tables else open_tables(record) as opened:
        data = build(record, opened)
    write_file(path, html(data).encode(), mode=mode)


def html(data: PageData) -> str:
    """The page of a record as text."""
    return embed("page", data)


def embed(name: str, data: msgspec.Struct) -> str:
    """A page as text: the script and style of that name, and the document that they draw."""
    script, style = _bundled(f"{name}.js"), _bundled(f"{name}.css")
    return PAGE.format(
        policy=(
            f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src 'none'; "
            "connect-src 'none'; base-uri 'none'; form-action 'none'"
        ),
        style=style,
        data=msgspec.json.encode(data).decode().replace("<", "\\u003c"),
        script=script,
    )


def _bundled(name: str) -> str:
    """A file made by the package build; raises `RecordError` if it is missing or would end its own element."""
    found = importlib.resources.files(__package__) / BUILT / name
    if not found.is_file():
        raise RecordError("the script of the page is missing; scripts/setup builds it in a checkout")
    text = found.read_text("utf-8")
    if "</script" in text or "</style" in text:
        raise RecordError(f"{name} would end its own element")
    return text


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
