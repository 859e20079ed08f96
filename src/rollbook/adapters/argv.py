"""Parses command lines: options, the number of a launcher's processes, Hydra's overrides."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import PurePath

__all__ = [
    "MLPSTORAGE",
    "arguments_of",
    "option",
    "options",
    "overrides",
    "positive_count",
    "processes",
    "storable_text",
]

MLPSTORAGE = ("mlpstorage", "mlpstorage_py")
"""The names of MLPerf Storage's own tool."""

_LAUNCHERS = {"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "srun"}
_PROCESSES = re.compile(r"(?:-np?|--np?|--ntasks)=?(\d+)?", re.ASCII)
_PAIRS = {"mca", "gmca", "omca", "prtemca", "pmixmca", "env", "genv"}  # options that take a name and a value
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w./@-]*)=(.*)", re.DOTALL)


def storable_text(word: str) -> str:
    """Return an argument as text that can be stored: bytes that are not UTF-8 are replaced."""
    try:
        return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # surrogates that stand for no byte
        return word.encode("utf-8", "replace").decode()


def option(argv: Sequence[str], *names: str) -> str | None:
    """Return the value of the last of these options, `--name value` or `--name=value`; None without one."""
    value = None
    for word, following in itertools.zip_longest(argv, argv[1:]):
        name, equals, after = word.partition("=")
        if name in names:
            value = after if equals else following
    return value


def options(argv: Sequence[str]) -> dict[str, str | bool]:
    """Return all long options by name, with underscores; an option without a value is True."""
    found: dict[str, str | bool] = {}
    for word, following in itertools.zip_longest(argv, argv[1:]):
        if not word.startswith("--") or word == "--":
            continue
        name, equals, after = word[2:].partition("=")
        alone = following is None or following.startswith("--")
        found[storable_text(name).replace("-", "_")] = (
            storable_text(after) if equals else alone or storable_text(following)
        )
    return found


def overrides(argv: Sequence[str]) -> dict[str, str]:
    """Return Hydra's `key=value`, `+key=value` and `++key=value` by dotted key."""
    found = (_OVERRIDE.fullmatch(storable_text(word)) for word in argv)
    return {match[1]: match[2] for match in found if match}


def positive_count(word: str | None) -> int | None:
    """Return a positive number from text; None if it is missing or not one."""
    return int(word) if word and re.fullmatch(r"[1-9]\d{0,8}", word, re.ASCII) else None


def processes(argv: Sequence[str]) -> int | None:
    """Return the number of processes in the arguments of a parallel launcher; None without one.

    Arguments after the launched program are not the launcher's.
    """
    if not argv or PurePath(argv[0]).name not in _LAUNCHERS:
        return None
    values = 0  # arguments that may still be values of the last option
    for word, following in itertools.zip_longest(argv[1:], argv[2:]):
        if match := _PROCESSES.fullmatch(word):
            return positive_count(match[1] or following)
        if word.startswith("-"):
            values = 0 if "=" in word else 2 if word.lstrip("-") in _PAIRS else 1
        elif values == 0:
            return None
        else:
            values -= 1
    return None


def arguments_of(argv: Sequence[str], *programs: str) -> list[str] | None:
    """Return the arguments of the first of these programs or Python modules; None if none of them is there."""
    for at, word in enumerate(argv):
        if PurePath(word).name.partition(".")[0] in programs:
            return list(argv[at + 1 :])
    return None
