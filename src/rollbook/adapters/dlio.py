"""DLIO (`dlio-benchmark`): `summary.json`, the per-rank files beside it and the configuration Hydra wrote down.

A run that only generates data writes its configuration and its log, but no summary.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rollbook.adapters.argv import arguments_of, overrides, processes
from rollbook.adapters.base import Ran
from rollbook.adapters.results import DLIO_FILE, Results, count, table, there
from rollbook.adapters.times import inside, place
from rollbook.adapters.workflow import Workflow
from rollbook.records.locate import INSIDE
from rollbook.records.outcome import Outcome
from rollbook.records.record import Phase

__all__ = ["ADAPTER", "from_command_line", "read"]

ACCELERATORS = ("a100", "h100", "b200", "mi355")
"""Suffixes of DLIO's workload names: `unet3d_h100`."""

_RANK_FILE = re.compile(r"[0-9]{1,9}_output\.json")
# The last member of a rank's file, which grows with the number of steps: only its end is read.
_HOSTNAME = re.compile(rb'"hostname"\s*:\s*"([A-Za-z0-9._-]{1,253})"\s*\}\s*$')
_PARTS = re.compile(r"eval|ckpt|save_ckpt|load_ckpt")


class Dlio:
    """The deep learning I/O benchmark, called directly or through a launcher."""

    name = "dlio"

    def outcome(self, ran: Ran) -> Outcome:
        """Parameters, metrics, and a phase per epoch."""
        return read(ran, from_command_line(ran.argv))


def from_command_line(argv: Sequence[str]) -> Outcome:
    """Return what the command line alone contains about a DLIO run."""
    given = _overrides(argv)
    model, _, accelerator = given.get("workload", "").rpartition("_")
    if accelerator not in ACCELERATORS:
        model, accelerator = given.get("workload", ""), ""
    return Outcome(
        benchmark_type="dlio",
        model=model,
        accelerator=accelerator,
        num_processes=processes(argv) or 1,
        override_parameters={
            name.removeprefix("workload."): value for name, value in given.items() if name.startswith("workload.")
        },
    )


def read(ran: Ran, outcome: Outcome, root: Path | None = None) -> Outcome:
    """Complete an outcome from DLIO's files, in the directory that the command line names or below `root`."""
    results = Results(ran)
    output = _output(results, root)
    outcome.parameters = _nested(outcome.override_parameters)
    if output is None:
        results.note(f"DLIO left no summary.json and no dlio.log of this run below {root or ran.cwd}")
    else:
        _configuration(output, results, outcome)
        summary = outcome.summary = results.json(output / "summary.json")
        outcome.metrics = table(summary.get("metric"))
        outcome.num_processes = count(summary.get("num_accelerators")) or outcome.num_processes
        _count_hosts(output, results, summary)
        outcome.phases = _phases(output, results)
        results.files += [str(path) for path in _result_files(output, results) if str(path) not in results.files]
    outcome.result_files, outcome.notes = results.files, outcome.notes + results.notes
    return outcome


def _overrides(argv: Sequence[str]) -> dict[str, str]:
    """Overrides of DLIO alone: a launcher's arguments or `env NAME=VALUE` may come before."""
    return overrides(arguments_of(argv, "dlio_benchmark") or argv)


def _output(results: Results, root: Path | None) -> Path | None:
    """The output directory: the one around the record, the one on the command line, or that of the newest summary."""
    ran = results.ran
    if ran.leaf.name == INSIDE and there(ran.leaf.parent / "summary.json"):
        return ran.leaf.parent
    given = _overrides(ran.argv)
    named = given.get("workload.output.folder") or given.get("hydra.run.dir")
    if named and "${" not in named:
        return ran.cwd / named
    found = results.newest(root or ran.cwd, "summary.json") or results.newest(root or ran.cwd, "dlio.log")
    return found.parent if found else None


def _configuration(output: Path, results: Results, outcome: Outcome) -> None:
    """The workload as Hydra composed it, overrides included; without it, the overrides of the command line."""
    config = _hydra_file(output, results, "config.yaml")
    composed = table(results.yaml(config).get("workload")) if config else {}
    if not composed:
        results.note(f"no DLIO configuration below {output}: parameters are those of the command line only")
    outcome.parameters = composed or outcome.parameters
    model = outcome.parameters.get("model")
    name = table(model).get("name", model)
    outcome.model = name if isinstance(name, str) else outcome.model
    outcome.command = outcome.command or Workflow.of(table(outcome.parameters.get("workflow"))).command


def _hydra_file(output: Path, results: Results, name: str) -> Path | None:
    given = _overrides(results.ran.argv)
    places = (given.get("hydra.output_subdir", "dlio_config"), "dlio_config", ".hydra")
    return next((path for place in places if there(path := output / place / name)), None)


def _result_files(output: Path, results: Results) -> list[Path]:
    """All result files of this run: of DLIO, of each rank, and Hydra's."""
    found = [path for path in sorted(output.glob("*")) if DLIO_FILE.fullmatch(path.name) and there(path)]
    hydra = (_hydra_file(output, results, name) for name in ("config.yaml", "hydra.yaml", "overrides.yaml"))
    return [path for path in (*found, *hydra) if path is not None and results.time_written(path) is not None]


def _nested(dotted: dict[str, Any]) -> dict[str, Any]:
    """Turn `{"a.b": 1}` into `{"a": {"b": 1}}`; names inside a group that is also a value stay dotted."""
    nested: dict[str, Any] = {}
    for name, value in dotted.items():
        *groups, last = name.split(".")
        if any(group in dotted for group in itertools.accumulate(groups, "{}.{}".format)):
            nested[name] = value
        else:
            functools.reduce(lambda inner, group: inner.setdefault(group, {}), groups, nested)[last] = value
    return nested


def _count_hosts(output: Path, results: Results, summary: dict[str, Any]) -> None:
    """Note per-rank files that name another number of hosts than DLIO's summary, or belong to another run."""
    ranks = [path for path in output.glob("*.json") if _RANK_FILE.fullmatch(path.name)]
    new = [path for path in ranks if results.time_written(path) is not None]
    if len(new) < len(ranks):
        results.note(f"{len(ranks) - len(new)} per-rank files in {output} were not written during this run")
    hosts = {host for path in new if (host := _hostname(path))}
    expected = count(summary.get("num_hosts"))
    if expected is not None and expected != len(hosts):
        results.note(f"the hosts in DLIO's summary are {expected}, those in its per-rank files {len(hosts)}")


def _hostname(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            found = _HOSTNAME.search(file.read(4096))
    except OSError:
        return None
    return found[1].decode() if found else None


def _phases(output: Path, results: Results) -> list[Phase]:
    """A phase per epoch and, inside it, per evaluation and checkpoint, as the first rank timed them.

    Later versions name the file after the rank. The times are local and carry no zone.
    """
    names = ("0_per_epoch_stats.json", "per_epoch_stats.json")
    path = next((path for name in names if there(path := output / name)), None)
    spans = list(_spans(results.json(path))) if path else []
    placed = place([edge for _, *edges in spans for edge in edges], results.ran)
    if placed is None:
        results.note(f"the times in {path} do not fit into the run: no phases")
        return []
    edges = iter(placed)
    phases = [Phase(name, next(edges), next(edges)) for name, *_ in spans]
    return [phase for phase in phases if inside(phase, results.ran)]


def _spans(epochs: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, start and end of everything that has both."""
    for epoch, data in epochs.items():
        parts = ((f" {part}", span) for part, span in table(data).items() if _PARTS.match(part))
        for part, span in itertools.chain([("", data)], parts):
            start, end = (table(span).get(edge) for edge in ("start", "end"))
            if isinstance(start, str) and isinstance(end, str):
                yield f"epoch {epoch}{part}", start, end


ADAPTER = Dlio()
