"""Checks the arguments of the Python functions against their annotations.

A wrong type is a `TypeError` at once, wherever the value would have been used, and a path that no file can have is a
`UsageError`.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import numbers
import os
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from rollbook.errors import UsageError

__all__ = ["check_argument", "check_arguments", "check_keywords"]

P = ParamSpec("P")
R = TypeVar("R")
NAMES = {str: "a string", int: "an integer", float: "a number", bool: "True or False", Path: "a path"}
KINDS: Mapping[Any, type] = {int: numbers.Integral, float: numbers.Real, Path: os.PathLike}
"""The classes that are accepted for an annotation, where they are not the annotation itself."""


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: `TypeError` for an argument that its annotation does not allow."""

    @functools.cache
    def declared() -> tuple[inspect.Signature, dict[str, Any]]:
        return inspect.signature(function), typing.get_type_hints(function)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        signature, hints = declared()
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            several = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            for one in value if several else [value]:
                check_argument(name, one, hints[name])
        return function(*args, **kwargs)

    return checked


def check_keywords(options: Mapping[str, Any], keywords: type) -> None:
    """Raise `TypeError` for an option of a type that `keywords`, a `TypedDict`, does not allow."""
    hints = _hints(keywords)
    for name, value in options.items():
        if name in hints:
            check_argument(name, value, hints[name])


def check_argument(name: str, value: object, hint: Any) -> None:
    """Raise `TypeError` for a value that the annotation does not allow, `UsageError` for a path with a NUL."""
    if not _fits(value, hint):
        raise TypeError(f"{name} must be {_named(hint)}, not {type(value).__name__}")
    if Path in _alternatives(hint) and any("\0" in path for path in _paths(value)):
        raise UsageError(f"{name} {value!r}: a path cannot contain a NUL character")


@functools.cache
def _hints(keywords: type) -> dict[str, Any]:
    return typing.get_type_hints(keywords)


def _fits(value: object, hint: Any) -> bool:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(hint))
    if typing.get_origin(hint) is collections.abc.Sequence:
        if isinstance(value, str | bytes) or not isinstance(value, collections.abc.Iterable):
            return False
        # The items of an iterator would be consumed.
        [kind] = typing.get_args(hint)
        return not isinstance(value, collections.abc.Collection) or all(_fits(one, kind) for one in value)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, KINDS.get(hint, hint))


def _alternatives(hint: Any) -> set[Any]:
    """The types that occur in an annotation."""
    return {hint}.union(*(_alternatives(one) for one in typing.get_args(hint)))


def _paths(value: object) -> list[str]:
    """The texts among one or several values that are used as paths."""
    several = value if isinstance(value, list | tuple) else [value]
    return [str(one) for one in several if isinstance(one, str | os.PathLike)]


def _named(hint: Any) -> str:
    """What an annotation allows, for people."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_named(one) for one in typing.get_args(hint))
    if typing.get_origin(hint) is collections.abc.Sequence:
        item = _named(typing.get_args(hint)[0])
        return "a list of strings" if item == NAMES[str] else f"a list ({item})"
    return "None" if hint is types.NoneType else NAMES.get(hint, hint.__name__)
