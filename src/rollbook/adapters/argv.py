"""What a command line says: options, the launcher's processes, Hydra's overrides."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import PurePath

__all__ = ["natural", "option", "options", "overrides", "processes", "shown", "words_after"]

_LAUNCHERS = {"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "srun"}
_PROCESSES = re.compile(r"(?:-np?|--np?|--ntasks)=?(\d+)?", re.ASCII)
_PAIRS = {"mca", "gmca", "omca", "prtemca", "pmixmca", "env", "genv"}  # options that take a name and a value
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w./@-]*)=(.*)", re.DOTALL)


def shown(word: str) -> str:
    """A word of a command line as text that can be stored: bytes that are not UTF-8 are replaced."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def option(argv: Sequence[str], *names: str) -> str | None:
    """The value of the last of these options, as `--name value` or `--name=value`; None where there is none."""
    value = None
    for word, following in itertools.zip_longest(argv, argv[1:]):
        name, equals, after = word.partition("=")
        if name in names:
            value = after if equals else following
    return value


def options(argv: Sequence[str]) -> dict[str, str | bool]:
    """All long options by name with underscores; one without a value is true."""
    found: dict[str, str | bool] = {}
    for word, following in itertools.zip_longest(argv, argv[1:]):
        if not word.startswith("--") or word == "--":
            continue
        name, equals, after = word[2:].partition("=")
        alone = following is None or following.startswith("--")
        found[shown(name).replace("-", "_")] = shown(after) if equals else alone or shown(following)
    return found


def overrides(argv: Sequence[str]) -> dict[str, str]:
    """Hydra's `key=value`, `+key=value` and `++key=value`, by dotted key."""
    found = (_OVERRIDE.fullmatch(shown(word)) for word in argv)
    return {match[1]: match[2] for match in found if match}


def natural(word: str | None) -> int | None:
    """A count as typed; None where it is absent or no count."""
    return int(word) if word and re.fullmatch(r"[1-9]\d{0,8}", word, re.ASCII) else None


def processes(argv: Sequence[str]) -> int | None:
    """How many processes a parallel launcher at the front of the command line was told to start.

    Only before the program that it starts: an `-n` that follows is the program's own.
    """
    if not argv or PurePath(argv[0]).name not in _LAUNCHERS:
        return None
    values = 0  # words that may yet belong to the option before
    for word, following in itertools.zip_longest(argv[1:], argv[2:]):
        if told := _PROCESSES.fullmatch(word):
            return natural(told[1] or following)
        if word.startswith("-"):
            values = 0 if "=" in word else 2 if word.lstrip("-") in _PAIRS else 1
        elif values == 0:
            return None
        else:
            values -= 1
    return None


def words_after(argv: Sequence[str], *programs: str) -> list[str] | None:
    """The words after the first that is one of these programs or Python modules; None where none is there."""
    for at, word in enumerate(argv):
        if PurePath(word).name.partition(".")[0] in programs:
            return list(argv[at + 1 :])
    return None
