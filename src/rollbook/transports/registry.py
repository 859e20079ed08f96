"""Transports by name: built-in ones from a static table, those of other packages by entry point."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import TYPE_CHECKING

from rollbook.errors import UsageError
from rollbook.transports.options import Declared, declared_options

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from rollbook.transports.base import Transport

__all__ = ["AUTO", "BUILT_IN", "GROUP", "load", "options_of", "plug_ins"]

AUTO = "auto"
"""The value of `--via` that has a transport chosen for each host."""

BUILT_IN = {
    "local": "rollbook.transports.local:Local",
    "ssh": "rollbook.transports.ssh:Ssh",
    "slurm": "rollbook.transports.slurm:Slurm",
    "mpi": "rollbook.transports.mpi:Mpi",
    "ssm": "rollbook.transports.ssm:Ssm",
    "kube": "rollbook.transports.kube:Kube",
}

GROUP = "rollbook.transports"
"""The entry point group in which other packages name their transports: dataclasses, as the built-in ones are."""


@functools.cache
def plug_ins() -> dict[str, EntryPoint]:
    """The transports of installed packages, by name. Looking through all packages takes longer than most commands."""
    from importlib import metadata  # noqa: PLC0415 - only where a transport is not built in

    found = {entry.name: entry for entry in metadata.entry_points(group=GROUP)}
    return {name: found[name] for name in sorted(found) if name not in BUILT_IN and name != AUTO}


@functools.cache
def load(name: str) -> type[Transport]:
    """The class of a transport; raises `UsageError` for an unknown name and for a plug-in that cannot be used."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        built_in: type[Transport] = getattr(importlib.import_module(module), attribute)
        return built_in
    if name not in plug_ins():
        raise UsageError(f"no transport is called {name!r}; available: {', '.join((AUTO, *BUILT_IN, *plug_ins()))}")
    try:
        plugged: type[Transport] = plug_ins()[name].load()
        _check_declarations(name, plugged)
    except Exception as error:  # whatever a plug-in does
        raise UsageError(f"the transport {name!r} cannot be loaded: {error!r}") from error
    return plugged


def options_of(name: str) -> dict[str, Declared]:
    """The options that a transport declares, by name; raises `UsageError` as `load` does."""
    return declared_options(load(name))


def _check_declarations(name: str, plugged: type[Transport]) -> None:
    """An option may be shared with a built-in transport, but must not mean something else there."""
    if not dataclasses.is_dataclass(plugged):
        raise TypeError(f"{plugged!r} is not a dataclass")
    for other in BUILT_IN:
        for option in declared_options(plugged).values():
            for theirs in options_of(other).values():
                if option.flag == theirs.flag and option != theirs:
                    raise ValueError(f"{name} declares {option.flag}, which {other} declares differently")
