"""A parameter was changed, which the division does not allow.

Why: CLOSED fixes the workload; only the listed parameters may be tuned. OPEN allows a few more.
Example: dataset.record_length_bytes=1024 is allowed neither in CLOSED nor in OPEN
Fix: Remove the override, or submit as OPEN where it is allowed there.
Reference: MLPerf Storage rules 3.6.2, 3.6.3, 5.6.4, 5.6.5
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rollbook.checks.mlperf_round import Overrides
from rollbook.checks.mlperf_values import table
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type, round_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-override-forbidden", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Each override against the lists of the round."""
    require_type(run, "training", "checkpointing", "vector_database")
    rules = round_of(run)
    allowed = {
        "training": rules.training.overrides,
        "checkpointing": rules.checkpointing.overrides,
        "vector_database": rules.vector_database.overrides,
    }[run.metadata["benchmark_type"]]
    if allowed is None:
        raise NotApplicable(f"round {rules.name} has no list of parameters")
    overrides = run.metadata.get("override_parameters")
    if not isinstance(overrides, Mapping) or not table(run.metadata.get("parameters")):
        raise CannotTell("the parameters of the benchmark and their overrides are not recorded")
    yield Compared("overrides", allowed.closed, declared=sorted(map(str, overrides)))
    for name, value in overrides.items():
        worst = _validation(str(name), str(run.metadata.get("model")), allowed)
        if worst is not Validation.CLOSED:
            where = "not allowed in CLOSED" if worst is Validation.OPEN else "allowed neither in CLOSED nor in OPEN"
            text = f"{name}={value} is {where}"
            yield finding_for(worst, text, str(name), allowed.closed, value)


def _validation(name: str, model: str, allowed: Overrides) -> Validation:
    if any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed.prefixes):
        return Validation.CLOSED
    if name in allowed.models and model not in allowed.models[name]:
        return Validation.INVALID
    if name in allowed.closed or name in allowed.injected:
        return Validation.CLOSED
    return Validation.OPEN if name in allowed.open else Validation(allowed.otherwise)
