"""/etc/os-release: distribution and version (os-release(5))."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, File, columns, info, same
from rollbook.sources.text import lines_of


class OsRelease(Facts):
    """The distribution. `fields` has all assignments, unquoted."""

    id: Annotated[str | None, same()]
    version_id: Annotated[str | None, same()]
    fields: Annotated[dict[str, str], columns(info())]
    build_id: Annotated[str | None, same()] = None
    image_version: Annotated[str | None, same()] = None


def parse(text: str) -> OsRelease:
    """Shell assignments, one per line."""
    fields = {}
    for line in lines_of(text):
        if line.strip().startswith("#"):
            continue
        assignment = re.fullmatch(r"(\w+)=(.*)", line.strip(), re.ASCII)
        if not assignment:
            raise ParseError(f"not an assignment: {line[:80]!r}")
        fields[assignment[1]] = _unquoted(assignment[2])
    return OsRelease(
        fields.get("ID"), fields.get("VERSION_ID"), fields, fields.get("BUILD_ID"), fields.get("IMAGE_VERSION")
    )


def _unquoted(value: str) -> str:
    if value[:1] == "'":
        quoted = re.fullmatch(r"'([^']*)'", value)
    elif value[:1] == '"':
        quoted = re.fullmatch(r'"((?:[^"\\]|\\.)*)"', value)
    else:
        return re.sub(r"\\(.)", r"\1", value)
    if not quoted:
        raise ParseError(f"quotes do not match: {value[:80]!r}")
    return quoted[1] if value[0] == "'" else re.sub(r'\\([$"\\`])', r"\1", quoted[1])


SOURCE = File("/etc/os-release", parse)
