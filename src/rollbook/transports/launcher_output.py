"""What a launcher said, and which of it is about one host."""

from __future__ import annotations

import functools
import re

from rollbook.errors import HostListError
from rollbook.hosts import expand

__all__ = ["about", "gist", "sentences"]

FOLDED = re.compile(r"[\w.-]*\[[\d,-]+\][\w.,\[\]-]*")
LONGEST = 300
SENTENCE = 4  # words at least in a line that tells something; others are headings and labels
# Open MPI 5 names a host that it cannot start on by a label of its own.
LABEL = re.compile(r"Remote host: +(\S+)$")
# What tells of no failure of a host: Open MPI's races with its own children, PMIx's words to its developers.
BESIDE = re.compile(r"\bwarning\b|PMIX ERROR", re.IGNORECASE)


def about(text: str, host: str, rank: int | None = None) -> str:
    """The last line that names the host, alone or in a folded list, or its rank; empty if there is none."""
    name = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-])")
    number = re.compile(rf"\b(?:rank|task|process|proc) {rank}\b") if rank is not None else None
    for line in reversed(sentences(text)):
        label = LABEL.match(line)
        if label and label[1] == host:
            return gist(text)
        if len(line.split()) < SENTENCE:
            continue
        if (
            name.search(line)
            or (number and number.search(line))
            or any(host in _hosts(f) for f in FOLDED.findall(line))
        ):
            return line
    return ""


def gist(text: str) -> str:
    """The first line that is worth reading, with the next where the sentence goes on there."""
    lines = sentences(text)
    if not lines:
        return ""
    first = lines[0]
    return f"{first} {lines[1]}"[:LONGEST] if len(lines) > 1 and first[-1].isalnum() else first


def sentences(text: str) -> list[str]:
    """The lines with words in them, fit to be shown; rules of dashes, `[host:123] ***` banners and warnings are not."""
    shown = ("".join(c if c.isprintable() else " " for c in line).strip() for line in text.splitlines())
    return [line[:LONGEST] for line in shown if re.search(r"[A-Za-z]{3}", line) and not BESIDE.search(line)]


@functools.lru_cache(maxsize=64)  # every host asks for the same few
def _hosts(folded: str) -> frozenset[str]:
    try:
        return frozenset(expand(folded.strip(",:")))
    except HostListError:
        return frozenset()
