"""Terminal output for comparison with a document: text that differs between two runs of a command is replaced.

Numbers with their units become `#`, times of records `STAMP`. In the summary of a run, findings, results and the
metrics of phases depend on the machine and become `…`; the load, which a short run may not have, is left out. Exit
statuses, counts and names of hosts, and counts of findings stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

__all__ = ["matches", "normalised"]

STAMP = re.compile(r"\d{8}_\d{6}(?:[-_][\da-f]+)?|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z?")
UNIT = r"(?: (?:[KMGT]i?B|kB|B|ns|us|ms|s|min|h|%|tasks)(?:/s)?|[kM]?/s)?"
KEPT = r"\A\d+\Z|exit (?:status|code) \d+|\d+ of \d+ hosts?|\d+ (?:bytes|fail|findings?|partial|refused|warn)\b"
NUMBER = re.compile(rf"({KEPT}|\bnode\[?[\d,-]+\]?)|(?<![\w./#])[-+±]?\d+(?:[.,]\d+)*{UNIT}(?!\w)")
LABEL = 10  # columns of the summary before its text
REDUCED = ("result", "phases", "checks", "load", "per host")
"""Paragraphs of the summary that depend on the machine; the last two are left out."""
WRAPPED = re.compile(rf"overhead|(?: {{{LABEL}}})?(?:refused|partial)  ")
"""Lines with numbers or addresses, which may be wrapped at another position in the next run."""


def normalised(text: str) -> str:
    """The text without differences between two runs; more than two blanks inside a line become two."""
    lines = _reduced(_unwrapped(line.rstrip() for line in text.rstrip().splitlines()))
    plain = (line if line.startswith("$ ") else _plain(line) for line in lines)
    return "".join(re.sub(r"(?<=\S) {2,}", "  ", line) + "\n" for line in plain)


def _plain(line: str) -> str:
    return NUMBER.sub(lambda found: found[1] or "#", STAMP.sub("STAMP", line))


def _unwrapped(lines: Iterable[str]) -> list[str]:
    """The lines, with the parts of `WRAPPED` ones joined."""
    found: list[str] = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if found and indent in (2, LABEL + 2) and WRAPPED.match(found[-1]):
            found[-1] += f" {line.lstrip()}"
        else:
            found.append(line)
    return found


def _reduced(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the contents of `REDUCED`, except for the names of phases."""
    label = ""
    for line in lines:
        if line[:LABEL].strip():
            label = next((one for one in REDUCED if line.startswith(f"{one:<{LABEL}}")), "")
            if label not in REDUCED[-2:]:
                yield f"{label:<{LABEL}}…" if label else line
        elif not label:
            yield line
        elif label == "phases":
            yield line[:LABEL] + line[LABEL:].partition("  ")[0] + "  …"


def matches(document: str, output: str) -> bool:
    """Whether output matches a document, in which `…` stands for any text, and alone on a line for any lines.

    The width of columns does not matter.
    """
    parts = [
        r"(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in map(_single_blanks, normalised(document).splitlines())
    ]
    found = "".join(f"{_single_blanks(line)}\n" for line in normalised(output).splitlines())
    return re.fullmatch("".join(parts), found) is not None


def _single_blanks(line: str) -> str:
    return " ".join(line.split())
