"""The labels that users give to a run: a name, tags, a note, and the group of repeats it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rollbook.errors import UsageError
from rollbook.records.hosts import Int64

__all__ = ["PATH_STARTS", "Group", "Label", "label_of"]

LONGEST = {"name": 100, "tag": 100, "note": 2000}
RESERVED = "latest"
PATH_STARTS = (".", "/", "~")
"""A text that starts like this is a path, not the name of a record."""


class Group(msgspec.Struct, frozen=True):
    """The place of a run in a group of repeats: `index` counts from 1 to `size`."""

    id: str
    index: Int64
    size: Int64


class Label(msgspec.Struct, frozen=True, omit_defaults=True):
    """Name, tags, note and group of a run, each empty unless the user gave it."""

    name: str = ""
    tags: list[str] = []
    note: str = ""
    group: Group | None = None

    @classmethod
    def of(cls, name: str = "", tags: Sequence[str] = (), note: str = "") -> Label:
        """A checked label without a group; raises `UsageError` for a text that could not be typed or shown later."""
        for kind, text in (("name", name), *(("tag", tag) for tag in tags), ("note", note)):
            if len(text) > LONGEST[kind]:
                raise UsageError(f"a {kind} has at most {LONGEST[kind]} characters, not {len(text)}")
            if not text.replace("\n", "" if kind == "note" else "\n").isprintable():
                raise UsageError(f"the {kind} {text!a} has control characters")
            if kind != "note" and text != text.strip():
                raise UsageError(f"the {kind} {text!r} starts or ends with a space")
        if "" in tags:
            raise UsageError("a tag is empty")
        if name == RESERVED or any(character in name for character in "/,:"):
            raise UsageError(f"{name!r} cannot be a name: `latest`, '/', ',' and ':' are reserved")
        if name.startswith(PATH_STARTS):
            raise UsageError(f"{name!r} cannot be a name: it starts like a path")
        return cls(name, list(dict.fromkeys(tags)), note)


def label_of(stored: Any) -> Label:
    """The label in a journal or in metadata; an empty one if there is none or it is not valid."""
    try:
        return msgspec.convert(stored, Label)
    except msgspec.ValidationError:
        return Label()
