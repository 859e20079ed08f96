"""The workload of a training run is not the one that the round publishes.

Why: Sample size, batch size and epochs decide how much storage is needed; a changed configuration file is not visible
among the overrides.
Example: reader.batch_size is 4, round 2026-07 has 7 for unet3d on b200
Fix: Use the configuration of the round without changes.
Reference: MLPerf Storage workload configurations
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rollbook.checks.dataset import column_bytes
from rollbook.checks.mlperf_values import number, parameter, table, text_of
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type, round_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-workload-changed", "fail", (Benchmark,)
LENGTH = "dataset.record_length_bytes"


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The parameters of the run against those of its model and accelerator."""
    require_type(run, "training")
    rules, model = round_of(run), text_of(run, "model")
    accelerator = text_of(run, "accelerator", "accelerator_type").lower()
    workload = rules.training.workload.get(model)
    if workload is None or accelerator not in workload.batch_size:
        raise CannotTell(f"round {rules.name} has no workload for {model} on {accelerator}")
    required: dict[str, Any] = {
        "dataset.format": workload.format,
        "dataset.num_samples_per_file": workload.samples_per_file,
        LENGTH: workload.record_bytes,
        "reader.batch_size": workload.batch_size[accelerator],
        "train.epochs": workload.epochs[accelerator],
    }
    unknown = []
    for name, wanted in required.items():
        value = _value(run, name)
        if value is None:
            unknown.append(name)
            continue
        yield Compared(name, wanted, declared=value)
        if not _same(value, wanted, name):
            validation = Validation.OPEN if name in rules.training.overrides.open else Validation.INVALID
            text = f"{name} is {value}, round {rules.name} has {wanted} for {model} on {accelerator}"
            yield finding_for(validation, text, name, wanted, value)
    if unknown:
        raise CannotTell(f"{', '.join(unknown)} not recorded")


def _value(run: RunData, name: str) -> Any:
    names = (name, "dataset.record_length") if name == LENGTH else (name,)
    value = parameter(run.metadata, *names)
    if value is None and name == LENGTH:
        value = column_bytes(table(table(run.metadata.get("parameters")).get("dataset")))
    return value


def _same(value: Any, wanted: Any, name: str) -> bool:
    if isinstance(wanted, str):
        return str(value).lower() == wanted
    return math.isclose(number(value, name), wanted, rel_tol=1e-6)
