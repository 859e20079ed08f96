"""Find the messages that matter in what a launcher printed, and those that are about one host."""

from __future__ import annotations

import functools
import re

from rollbook.errors import HostListError
from rollbook.hosts import expand

__all__ = ["first_message", "message_about", "messages"]

NODESET = re.compile(r"[\w.-]*\[[\d,-]+\][\w.,\[\]-]*")
LONGEST = 300
FEWEST_WORDS = 4  # in a message that names a host; shorter lines are headings and labels
# Open MPI 5 names a host that it cannot start on in a labelled line.
HOST_LABEL = re.compile(r"Remote host: +(\S+)$")
# Not failures of a host: Open MPI's races with its own children, PMIx's notes to its developers.
IRRELEVANT = re.compile(r"\bwarning\b|PMIX ERROR", re.IGNORECASE)


def message_about(text: str, host: str, rank: int | None = None) -> str:
    """The last line that names the host, alone or in a nodeset, or its rank; empty if there is none."""
    name = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-])")
    number = re.compile(rf"\b(?:rank|task|process|proc) {rank}\b") if rank is not None else None
    for line in reversed(messages(text)):
        label = HOST_LABEL.match(line)
        if label and label[1] == host:
            return first_message(text)
        if len(line.split()) < FEWEST_WORDS:
            continue
        if (
            name.search(line)
            or (number and number.search(line))
            or any(host in _members(found) for found in NODESET.findall(line))
        ):
            return line
    return ""


def first_message(text: str) -> str:
    """The first message, joined with the next line if the sentence continues there."""
    lines = messages(text)
    if not lines:
        return ""
    first = lines[0]
    return f"{first} {lines[1]}"[:LONGEST] if len(lines) > 1 and first[-1].isalnum() else first


def messages(text: str) -> list[str]:
    """The lines with text, without control characters; rules of dashes, banners and warnings are left out."""
    printable = ("".join(c if c.isprintable() else " " for c in line).strip() for line in text.splitlines())
    return [line[:LONGEST] for line in printable if re.search(r"[A-Za-z]{3}", line) and not IRRELEVANT.search(line)]


@functools.lru_cache(maxsize=64)  # the same few are looked up for every host
def _members(nodeset: str) -> frozenset[str]:
    try:
        return frozenset(expand(nodeset.strip(",:")))
    except HostListError:
        return frozenset()
