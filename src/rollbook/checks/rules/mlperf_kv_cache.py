"""A KV cache run has parameters outside the limits of the round.

Why: Too few users, too short a run or caches that are too small do not reach the storage.
Example: num_users is 4, at least 10 required for CLOSED
Fix: Use the limits of the round.
Reference: MLPerf Storage KV cache benchmark
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rollbook.checks.mlperf_values import number, parameter_or_argument
from rollbook.checks.mlperf_verdict import Validation, finding_for, preview_finding, require_type, round_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-kv-cache", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Users, duration, cache sizes, mode and profile."""
    require_type(run, "kv_cache")
    rules = round_of(run).kv_cache
    if rules.preview:
        yield preview_finding("KV cache")
    limits = {
        "num_users": (rules.minimum_users, rules.closed_users),
        "duration": (rules.minimum_seconds, rules.closed_seconds),
        "gpu_mem_gb": (rules.minimum_memory_gb, rules.minimum_memory_gb),
        "cpu_mem_gb": (rules.minimum_memory_gb, rules.minimum_memory_gb),
    }
    choices = {"generation_mode": (rules.modes, rules.open_modes), "performance_profile": (rules.profiles, [])}
    values = {name: parameter_or_argument(run.metadata, name) for name in (*limits, *choices)}
    missing = [name for name, value in values.items() if value is None]
    for name, (least, closed) in limits.items():
        if name not in missing:
            yield from _at_least(name, values[name], least, closed)
    for name, (known, only_open) in choices.items():
        if name not in missing:
            yield from _one_of(name, values[name], known, only_open)
    if missing:
        raise CannotTell(f"{', '.join(missing)} not recorded")


def _at_least(name: str, value: Any, least: float, closed: float) -> Iterator[Finding | Compared]:
    amount = number(value, name)
    yield Compared(name, f">= {closed:g}", declared=amount)
    if amount < closed:
        validation, limit = (Validation.INVALID, least) if amount < least else (Validation.OPEN, closed)
        text = f"{name} is {amount:g}, at least {limit:g} required{' for CLOSED' * (validation is Validation.OPEN)}"
        yield finding_for(validation, text, name, f">= {limit:g}", amount)


def _one_of(name: str, value: Any, known: Sequence[str], only_open: Sequence[str]) -> Iterator[Finding | Compared]:
    closed = [word for word in known if word not in only_open]
    yield Compared(name, closed, declared=value)
    if value not in closed:
        validation = Validation.OPEN if value in only_open else Validation.INVALID
        text = f"{name} is {value}; CLOSED allows {', '.join(closed)}"
        yield finding_for(validation, text, name, closed, value)
