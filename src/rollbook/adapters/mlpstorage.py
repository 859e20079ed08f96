"""MLPerf Storage's command line and leaf layout: `mlpstorage [MODE] training MODEL run file --option value …`.

Earlier versions have no mode and take the model as an option: `mlpstorage training run --model MODEL …`. The
benchmarks below can also be called by themselves; then their own options are what is known.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from rollbook.adapters import dlio
from rollbook.adapters.argv import natural, option, options, processes, shown, words_after
from rollbook.adapters.base import Ran
from rollbook.errors import UsageError
from rollbook.records.outcome import Outcome

__all__ = ["known", "leaf_parts", "read_dlio", "root"]

_COMMANDS = ("datasize", "datagen", "run", "configview", "validate")
_OTHER_WORDS = ("closed", "open", "whatif", "training", "checkpointing", "vectordb", "kvcache", "file", "object")
_COUNTS = ("--num-accelerators", "-na", "--num-processes", "-np", "--max-accelerators", "-ma")
_COMPONENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_TAILS = {
    "training": ("model", "command"),
    "checkpointing": ("model",),
    "vector_database": ("vdb_engine", "vdb_index", "command"),
    "kv_cache": ("model", "command"),
}


def known(kind: str, argv: Sequence[str]) -> Outcome:
    """What the command line alone says of a run of this type."""
    words = words_after(argv, "mlpstorage", "mlpstorage_py")
    if words is not None:
        return _mlpstorage(kind, words)
    if kind in ("training", "checkpointing"):
        outcome = dlio.known(argv)
        outcome.benchmark_type = kind
        return outcome
    return Outcome(
        benchmark_type=kind,
        model=shown(option(argv, "--model") or ""),
        num_processes=processes(argv) or 1,
        parameters=dict(options(argv)),
    )


def _mlpstorage(kind: str, words: Sequence[str]) -> Outcome:
    positional = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    name = next((word for word in positional if word not in (*_COMMANDS, *_OTHER_WORDS)), "")
    outcome = Outcome(
        benchmark_type=kind,
        command=next((word for word in positional if word in _COMMANDS), ""),
        accelerator=shown(option(words, "--accelerator-type", "-at", "-g") or ""),
        num_processes=natural(option(words, *_COUNTS)) or 1,
        override_parameters=_params(words),
    )
    if kind == "vector_database":
        index = option(words, "--vdb-index", "--index-type") or name
        # Milvus is what mlpstorage takes where no engine is named.
        outcome.parameters = {"vdb_engine": "milvus", "vdb_index": shown(index), **options(words)}
    else:
        outcome.model = shown(option(words, "--model", "-m") or name)
    if kind == "kv_cache":
        outcome.parameters = dict(options(words))
    return outcome


def _params(words: Sequence[str]) -> dict[str, str]:
    """`--params key=value key=value …` and `--params=key=value`, as often as it is given."""
    found, taking = {}, False
    for word in words:
        given = word
        if word.startswith("-"):
            name, _, given = word.partition("=")
            taking = name in ("--params", "--param", "-p")
        if taking and "=" in given:
            name, _, value = shown(given).partition("=")
            found[name] = value
    return found


def root(ran: Ran) -> Path | None:
    """Where mlpstorage was told to put its results."""
    named = option(ran.argv, "--results-dir", "-rd", "--output-dir")
    return ran.cwd / named if named else None


def read_dlio(kind: str, ran: Ran) -> Outcome:
    """A run of one of the benchmarks that are DLIO below; MLPerf Storage's names go before DLIO's."""
    outcome = known(kind, ran.argv)
    model = outcome.model
    dlio.read(ran, outcome, root(ran))
    outcome.model = model or outcome.model
    return outcome


def leaf_parts(kind: str, run: Outcome | Sequence[str]) -> tuple[str, ...]:
    """The directories of a run below the system's name, the time stamp left out: `training/unet3d/run`.

    Takes an outcome or a command line. Raises `UsageError` where a part is not known or cannot be a directory.
    """
    if kind not in _TAILS:
        raise UsageError(f"MLPerf Storage's layout has no place for {kind!r}, only for: {', '.join(_TAILS)}")
    outcome = run if isinstance(run, Outcome) else known(kind, run)
    values = {**outcome.parameters, "model": outcome.model, "command": outcome.command}
    parts = [kind]
    for name in _TAILS[kind]:
        part = values.get(name)
        if not isinstance(part, str) or not _COMPONENT.fullmatch(part):
            raise UsageError(f"MLPerf Storage's layout needs the {name} of a {kind} run; it is {part!r} here")
        parts.append(part)
    return tuple(parts)
