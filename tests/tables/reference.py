"""The values that tables must hold, computed without the code under test."""

from __future__ import annotations

import contextlib
from typing import Any

from rollbook.errors import ParseError
from rollbook.sources.base import Pages, Source

__all__ = ["parse_good_lines"]


def parse_good_lines(source: Source, pages: Pages) -> Any:
    """Parse pages without the lines that the parser rejects, if the lines of the source can be parsed alone."""
    try:
        return source.parse(pages)
    except ParseError:
        if source.lines is None or len(pages) != 1:
            raise
    ((path, text),) = pages.items()
    lines, prefixes = text.split("\n"), tuple(source.lines)
    steady = {index for index, line in enumerate(lines) if prefixes and line.startswith(prefixes)}

    def parse(chosen: set[int]) -> Any:
        return source.parse({path: "\n".join(lines[index] for index in sorted(chosen | steady))})

    good = set[int]()
    for index in range(len(lines)):
        with contextlib.suppress(ParseError):
            parse({index})
            good.add(index)
    return parse(good)
