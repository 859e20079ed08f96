"""How a transport declares its options, once: as fields of its dataclass, each annotated with an `Option`.

    zone: Annotated[str, Option("Zone of the hosts.", metavar="ZONE")] = "a"

A declaration becomes an option of the command line, a keyword of the Python functions, a check of the value, a line
of `--help` and a row of the reference.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shlex
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from rollbook.errors import UsageError

__all__ = [
    "ConnectBack",
    "Declared",
    "Option",
    "Python",
    "declared_options",
    "is_file",
    "is_positive",
    "launcher_arguments",
]


@dataclasses.dataclass(frozen=True)
class Option:
    """What a declaration contains besides name, type and default.

    `flag` replaces the one that follows from the field's name, `aliases` are further ones. `check` raises `ValueError`
    for a value that cannot be used.
    """

    help: str
    metavar: str = ""
    flag: str = ""
    aliases: tuple[str, ...] = ()
    check: Callable[[Any], object] | None = None


class Declared(NamedTuple):
    """One option of a transport: the keyword of Python, the flag of the command line, type, default and the rest."""

    name: str
    flag: str
    type: Any
    default: Any
    option: Option

    def validate(self, value: Any) -> Any:
        """The value in the declared type; raises `UsageError` if it is of another type or fails the check."""
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, str) and typing.get_origin(self.type) is tuple:
            value = (value,)
        try:
            value = msgspec.convert(value, self.type)
            if self.option.check is not None:
                self.option.check(value)
        except (msgspec.ValidationError, ValueError) as error:
            raise UsageError(f"{self.flag} {value!r}: {error}") from error
        return value


@functools.cache
def declared_options(transport: type) -> dict[str, Declared]:
    """The options that a transport declares, by name; raises `TypeError` if it is not a dataclass."""
    hints = typing.get_type_hints(transport, include_extras=True)
    found = {}
    for field in dataclasses.fields(transport):
        hint = hints[field.name]
        option = next((note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Option)), None)
        if option is not None:
            flag = option.flag or "--" + field.name.replace("_", "-")
            found[field.name] = Declared(field.name, flag, typing.get_args(hint)[0], field.default, option)
    return found


def is_file(path: str | None) -> None:
    """Raise `ValueError` unless the path names something that can be read as a file; for `Option.check`."""
    if path is not None and not Path(path).exists():
        raise ValueError("no such file")
    if path is not None and Path(path).is_dir():
        raise ValueError("it is a directory")


def is_positive(value: float) -> None:
    """Raise `ValueError` unless the number is positive; for `Option.check`."""
    if not value > 0:
        raise ValueError("it must be positive")


def launcher_arguments(output: str) -> Callable[[str], None]:
    """A check for arguments of a launcher, quoted as in a shell; for `Option.check`.

    It raises `ValueError` for those that match `output`: options for the output of the launched programs. Agents that
    cannot connect back send lines there, and the launcher's label shows which process wrote a line.
    """
    pattern = re.compile(output)

    def check(text: str) -> None:
        for word in shlex.split(text):
            if pattern.match(word):
                raise ValueError(f"{word} changes the output of the launcher, where agents write; remove it")

    return check


def _is_program(python: str | None) -> None:
    """The name goes through two shells: one that any of them would change is refused."""
    if python is not None and not re.fullmatch(r"[\w@%+=:,./~-]+", python):
        raise ValueError("not a plain program name or path: spaces, quotes and other shell characters are not allowed")


Python = Annotated[
    str | None,
    Option(
        "Python on the hosts, 3.6 or later [default: python3; a shell stand-in where there is none]. `none` forces "
        "the stand-in.",
        metavar="PROGRAM",
        check=_is_program,
    ),
]
"""The option of every transport that starts the agent with Python."""

ConnectBack = Annotated[
    str | None,
    Option(
        "Address of this machine that agents connect to [default: any that they reach]. `none`: agents write to the "
        "launcher's standard output.",
        metavar="ADDRESS",
    ),
]
"""The option of every transport that starts agents with a launcher."""
