"""The model, or the vector database's engine or index, is not part of the round.

Why: Results are comparable only for the workloads that a round defines.
Example: model bert is not in round 2026-07: unet3d, retinanet
Fix: Run a workload of the round.
Reference: MLPerf Storage rules, workloads
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rollbook.checks.mlperf_values import parameter_or_argument
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type, round_of
from rollbook.checks.run_data import BENCHMARKS, Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-model-unknown", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Compare the names with those of the round."""
    require_type(run, *BENCHMARKS)
    rules, kind = round_of(run), run.metadata["benchmark_type"]
    if kind == "vector_database":
        database = rules.vector_database
        engine = parameter_or_argument(run.metadata, "database.database", "vdb_engine", "engine")
        index = parameter_or_argument(run.metadata, "index.index_type", "vdb_index", "index_type")
        yield from _compared("engine", engine, database.engines, [], rules.name)
        yield from _compared("index", index, database.indexes, database.open_indexes, rules.name)
        return
    models = {
        "training": list(rules.training.workload),
        "checkpointing": list(rules.checkpointing.model),
        "kv_cache": rules.kv_cache.models,
    }[kind]
    yield from _compared(
        "model", run.metadata.get("model") or parameter_or_argument(run.metadata, "model"), models, [], rules.name
    )


def _compared(
    what: str, value: object, closed: Sequence[str], opened: Sequence[str], name: str
) -> Iterator[Finding | Compared]:
    if not isinstance(value, str) or not value:
        raise CannotTell(f"the {what} is not recorded")
    yield Compared(what, list(closed), declared=value)
    known = {one.lower() for one in closed}
    if value.lower() not in known:
        only_open = value.lower() in {one.lower() for one in opened}
        validation = Validation.OPEN if only_open else Validation.INVALID
        text = f"{what} {value} is not in {'CLOSED of ' * only_open}round {name}: {', '.join(closed)}"
        yield finding_for(validation, text, what, list(closed), value)
