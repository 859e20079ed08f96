"""A KV cache run has parameters outside the limits of the round.

Why: Too few users, too short a run or caches that are too small do not reach the storage.
Example: num_users is 4, at least 10 required for CLOSED
Fix: Use the limits of the round.
Reference: MLPerf Storage KV cache benchmark
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rollbook.checks.mlperf import Validation, finding_for, number, preview_finding, require_type, round_of, stated
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
    missing: list[str] = []
    for name, least, closed in (
        ("num_users", rules.minimum_users, rules.closed_users),
        ("duration", rules.minimum_seconds, rules.closed_seconds),
        ("gpu_mem_gb", rules.minimum_memory_gb, rules.minimum_memory_gb),
        ("cpu_mem_gb", rules.minimum_memory_gb, rules.minimum_memory_gb),
    ):
        yield from _at_least(run, name, least, closed, missing)
    yield from _one_of(run, "generation_mode", rules.modes, rules.open_modes, missing)
    yield from _one_of(run, "performance_profile", rules.profiles, (), missing)
    if missing:
        raise CannotTell(f"{', '.join(missing)} not recorded")


def _at_least(run: RunData, name: str, least: float, closed: float, missing: list[str]) -> Iterator[Finding | Compared]:
    value = stated(run.metadata, name)
    if value is None:
        missing.append(name)
        return
    amount = number(value, name)
    yield Compared(name, f">= {closed:g}", declared=amount)
    if amount < closed:
        validation, limit = (Validation.INVALID, least) if amount < least else (Validation.OPEN, closed)
        text = f"{name} is {amount:g}, at least {limit:g} required{' for CLOSED' * (validation is Validation.OPEN)}"
        yield finding_for(validation, text, name, f">= {limit:g}", amount)


def _one_of(
    run: RunData, name: str, known: Sequence[str], only_open: Sequence[str], missing: list[str]
) -> Iterator[Finding | Compared]:
    value = stated(run.metadata, name)
    if value is None:
        missing.append(name)
        return
    closed = [word for word in known if word not in only_open]
    yield Compared(name, closed, declared=value)
    if value not in closed:
        validation = Validation.OPEN if value in only_open else Validation.INVALID
        text = f"{name} is {value}; CLOSED allows {', '.join(closed)}"
        yield finding_for(validation, text, name, closed, value)
