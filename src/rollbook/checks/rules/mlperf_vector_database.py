"""A vector database run is too short, lacks required metrics, or is a preview.

Why: Short runs measure caches; a result without recall says nothing about the answers; preview results are OPEN.
Example: the result has no p999_latency_ms
Fix: Run longer, and keep the benchmark's statistics.
Reference: MLPerf Storage rules 5
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rollbook.checks.mlperf_values import is_size, number, parameter_or_argument, table
from rollbook.checks.mlperf_verdict import Validation, finding_for, preview_finding, require_type, round_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-vector-database", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Runtime, metrics, and whether the round accepts the benchmark."""
    require_type(run, "vector_database")
    rules = round_of(run).vector_database
    if rules.preview:
        yield preview_finding("vector database")
    metrics = table(run.metadata.get("metrics"))
    if rules.metrics:
        if not metrics:
            raise CannotTell("the statistics of the benchmark are not recorded")
        missing = [name for name in rules.metrics if not is_size(_mean(name, metrics.get(name)))]
        yield Compared("metrics", rules.metrics, sorted(set(rules.metrics) - set(missing)))
        if missing:
            text = f"the result has no {', '.join(missing)}"
            yield finding_for(Validation.INVALID, text, "metrics", rules.metrics, missing)
    declared, measured = parameter_or_argument(run.metadata, "runtime"), run.metadata.get("runtime")
    seconds = number(measured if declared is None else declared, "runtime")
    yield Compared("runtime, s", f">= {rules.minimum_seconds:g}", measured, declared)
    if seconds < rules.minimum_seconds:
        text = f"runtime {seconds:g} s, at least {rules.minimum_seconds:g} s required"
        yield finding_for(Validation.INVALID, text, "runtime", f">= {rules.minimum_seconds:g}", seconds)


def _mean(name: str, value: Any) -> Any:
    """A metric, or its mean: the benchmark writes recall as a table of its own."""
    return table(value).get(f"mean_{name}", value)
