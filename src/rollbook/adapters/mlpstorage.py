"""MLPerf Storage's command line and leaf layout: `mlpstorage [MODE] training MODEL run file --option value …`.

Earlier versions have no mode and take the model as an option: `mlpstorage training run --model MODEL …`. The
benchmarks below can also be called by themselves; then only their own options are available. The tool's own metadata
have the parameters of the run, and are used if they were written during it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from rollbook.adapters import dlio
from rollbook.adapters.argv import MLPSTORAGE, arguments_of, option, options, positive_count, processes, storable_text
from rollbook.adapters.base import Ran
from rollbook.adapters.results import Results, count, table
from rollbook.adapters.workflow import Workflow
from rollbook.errors import UsageError
from rollbook.records.locate import INSIDE
from rollbook.records.outcome import Outcome

__all__ = ["DlioBenchmark", "add_results", "from_command_line", "leaf_parts", "require_place", "root"]

_WORKFLOW = "workflow."
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


def from_command_line(kind: str, argv: Sequence[str]) -> Outcome:
    """Return what the command line alone contains about a run of this type."""
    words = arguments_of(argv, *MLPSTORAGE)
    if words is not None:
        return _mlpstorage(kind, words)
    if kind in ("training", "checkpointing"):
        outcome = dlio.from_command_line(argv)
        outcome.benchmark_type = kind
        return outcome
    return Outcome(
        benchmark_type=kind,
        model=storable_text(option(argv, "--model") or ""),
        num_processes=processes(argv) or 1,
        parameters=dict(options(argv)),
    )


def _mlpstorage(kind: str, words: Sequence[str]) -> Outcome:
    positional = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    name = next((word for word in positional if word not in (*_COMMANDS, *_OTHER_WORDS)), "")
    outcome = Outcome(
        benchmark_type=kind,
        command=next((word for word in positional if word in _COMMANDS), ""),
        accelerator=storable_text(option(words, "--accelerator-type", "-at", "-g") or ""),
        num_processes=positive_count(option(words, *_COUNTS)) or 1,
        override_parameters=_params(words),
        args=dict(options(words)),
    )
    if kind == "vector_database":
        index = option(words, "--vdb-index", "--index-type") or name
        # Milvus is mlpstorage's default engine.
        outcome.parameters = {"vdb_engine": "milvus", "vdb_index": storable_text(index), **options(words)}
    else:
        outcome.model = storable_text(option(words, "--model", "-m") or name)
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
            name, _, value = storable_text(given).partition("=")
            found[name] = value
    return found


def root(ran: Ran) -> Path | None:
    """Return the results directory on mlpstorage's command line, None without one."""
    named = option(ran.argv, "--results-dir", "-rd", "--output-dir")
    return ran.cwd / named if named else None


class DlioBenchmark:
    """The adapter of a benchmark that runs DLIO: `mlpstorage … NAME`, or DLIO called with such a workload."""

    def __init__(self, name: str) -> None:
        self.name = name

    def outcome(self, ran: Ran) -> Outcome:
        """What DLIO left; MLPerf Storage's names take precedence over DLIO's."""
        outcome = from_command_line(self.name, ran.argv)
        model = outcome.model
        dlio.read(ran, outcome, root(ran))
        outcome.model = model or outcome.model
        return add_results(outcome, Results(ran))


def add_results(outcome: Outcome, results: Results) -> Outcome:
    """Add the files and notes of these results to the outcome, and what the tool's own metadata of this run say.

    The metadata have parameters, overrides, arguments and counts.
    """
    ran, path = results.ran, None
    if ran.leaf.name == INSIDE:
        found = sorted(ran.leaf.parent.glob("*_metadata.json"))
        path = found[0] if len(found) == 1 else None
    elif arguments_of(ran.argv, *MLPSTORAGE) is not None:
        path = results.newest(root(ran) or ran.cwd, "*_metadata.json")
    metadata = results.json(path) if path else {}
    if metadata.get("benchmark_type") == outcome.benchmark_type:
        for name in ("parameters", "override_parameters", "args"):
            setattr(outcome, name, table(metadata.get(name)) or getattr(outcome, name))
        for name in ("model", "command", "accelerator"):
            value = metadata.get(name)
            setattr(outcome, name, value if isinstance(value, str) and value else getattr(outcome, name))
        outcome.num_processes = count(metadata.get("num_processes")) or outcome.num_processes
        outcome.metrics = outcome.metrics or table(metadata.get("metrics"))
    outcome.result_files = [*outcome.result_files, *results.files]
    outcome.notes = [*outcome.notes, *results.notes]
    return outcome


def _dlio_command(outcome: Outcome) -> str:
    """The command that a workload of DLIO stands for; it generates data or runs. Without a workload it is unknown."""
    given = outcome.override_parameters.items()
    flags = {name.removeprefix(_WORKFLOW): value for name, value in given if name.startswith(_WORKFLOW)}
    return Workflow.of(flags).command if outcome.model else ""


def require_place(kind: str) -> None:
    """Raise `UsageError` for a type of benchmark that MLPerf Storage's layout has no directory for."""
    if kind not in _TAILS:
        raise UsageError(f"MLPerf Storage's layout has no place for {kind!r}, only for: {', '.join(_TAILS)}")


def leaf_parts(outcome: Outcome) -> tuple[str, ...]:
    """Return the directories of a run below the system's name, without the time stamp: `training/unet3d/run`.

    Raises `UsageError` for a part that is unknown or not allowed as a directory.
    """
    kind = outcome.benchmark_type
    require_place(kind)
    values = {**outcome.parameters, "model": outcome.model, "command": outcome.command or _dlio_command(outcome)}
    parts = [kind]
    for name in _TAILS[kind]:
        part = values.get(name)
        if not isinstance(part, str) or not _COMPONENT.fullmatch(part):
            raise UsageError(f"MLPerf Storage's layout needs the {name} of a {kind} run; it is {part!r} here")
        parts.append(part)
    return tuple(parts)
