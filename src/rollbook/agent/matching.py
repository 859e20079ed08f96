"""Finds the paths that a pattern matches. Part of the agent for issue reports; see `evidence.py`."""

import fnmatch
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def below(base: str, parts: "list[str]") -> "Iterator[str]":
    """Paths below a directory that match the parts of a pattern."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        if rest:
            yield from below(base, rest)
        for name, is_directory in listed(base):
            path = os.path.join(base, name)
            if is_directory:
                yield from below(path, parts)
            elif not rest:
                yield path
        return
    if not any(letter in part for letter in "*?["):
        path = os.path.join(base, part)
        if not rest and os.path.lexists(path):
            yield path
        elif rest and os.path.isdir(path):
            yield from below(path, rest)
        return
    for name, is_directory in listed(base):
        if fnmatch.fnmatchcase(name, part) and (part[0] == "." or name[0] != "."):
            path = os.path.join(base, name)
            if not rest:
                yield path
            elif is_directory or os.path.isdir(path):  # a link that a single `*` matches is followed, as in /sys/class
                yield from below(path, rest)


def listed(directory: str) -> "list[tuple[str, bool]]":
    """The names in a directory, sorted, each with whether it is a directory and not a link to one."""
    try:
        return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in os.scandir(directory))
    except OSError:
        return []
