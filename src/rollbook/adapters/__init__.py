"""Adapters for benchmarks: they find a benchmark's results and turn them into parameters and metrics of a record."""

from __future__ import annotations

import importlib
import importlib.metadata

from rollbook.adapters.base import Adapter, Ran
from rollbook.errors import UsageError
from rollbook.records.outcome import Outcome

__all__ = ["GROUP", "NAMES", "Adapter", "Outcome", "Ran", "load", "names"]

NAMES = ("generic", "fio", "dlio", "training", "checkpointing", "vector_database", "kv_cache")
"""The built-in adapters; each is `ADAPTER` in the module of that name."""

GROUP = "rollbook.adapters"
"""The entry point group for adapters of other packages: a name for `--type` and an object like `ADAPTER`."""


def names() -> list[str]:
    """The names of all adapters, those of other packages last."""
    return [*NAMES, *sorted(entry.name for entry in importlib.metadata.entry_points(group=GROUP))]


def load(name: str) -> Adapter:
    """Return an adapter by name; raises `UsageError` if there is none. Plug-ins are searched last."""
    if name in NAMES:
        adapter: Adapter = importlib.import_module(f"rollbook.adapters.{name}").ADAPTER
        return adapter
    plugged = {entry.name: entry for entry in importlib.metadata.entry_points(group=GROUP)}
    if name not in plugged:
        raise UsageError(f"no benchmark is called {name!r}; available: {', '.join((*NAMES, *sorted(plugged)))}")
    try:
        found: Adapter = plugged[name].load()
    except Exception as error:  # whatever a plug-in does when imported
        raise UsageError(f"the adapter {name!r} ({plugged[name].value}) cannot be loaded: {error!r}") from error
    return found
