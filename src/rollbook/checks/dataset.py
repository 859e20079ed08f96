"""Minimum size of a training data set for MLPerf Storage: 500 steps and five times the memory of all clients."""

from __future__ import annotations

import math

import msgspec

from rollbook.checks.mlperf import GIB, Memory, memory_of, parameter, positive_integer
from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell

__all__ = ["STEPS", "TIMES_MEMORY", "DatasetSize", "dataset_size"]

STEPS = 500
TIMES_MEMORY = 5


class DatasetSize(msgspec.Struct, frozen=True):
    """The numbers from which the size is computed."""

    batch_size: int
    accelerators: int
    record_bytes: int
    samples_per_file: int
    memory_bytes: int
    memory_origin: str

    @property
    def by_steps(self) -> int:
        """Samples needed for the steps."""
        return STEPS * self.batch_size * self.accelerators

    @property
    def by_memory(self) -> int:
        """Samples needed to exceed all page caches."""
        return math.ceil(TIMES_MEMORY * self.memory_bytes / self.record_bytes)

    @property
    def files(self) -> int:
        """Files needed for the larger number of samples."""
        return math.ceil(max(self.by_steps, self.by_memory) / self.samples_per_file)

    def explain(self) -> list[str]:
        """The computation, one line per step."""
        memory = f"{self.memory_bytes / GIB:.1f} GiB {self.memory_origin}"
        return [
            f"{STEPS} steps × batch {self.batch_size} × {self.accelerators} accelerators = {self.by_steps} samples",
            f"{TIMES_MEMORY} × {memory} / {self.record_bytes} bytes per sample = {self.by_memory} samples",
            f"the larger / {self.samples_per_file} samples per file = {self.files} files",
        ]


def dataset_size(run: RunData, memory: Memory | None = None) -> DatasetSize:
    """The size for a run; raises `CannotTell` with the name of the number that the record lacks."""
    effective = (memory or memory_of(run)).effective
    if effective is None:
        raise CannotTell("the memory of the clients is unknown")
    data = run.metadata
    return DatasetSize(
        batch_size=positive_integer(parameter(data, "reader.batch_size"), "reader.batch_size"),
        accelerators=positive_integer(data.get("num_processes"), "num_processes"),
        record_bytes=positive_integer(
            parameter(data, "dataset.record_length_bytes", "dataset.record_length"), "dataset.record_length_bytes"
        ),
        samples_per_file=positive_integer(
            parameter(data, "dataset.num_samples_per_file"), "dataset.num_samples_per_file"
        ),
        memory_bytes=effective[1],
        memory_origin=effective[0],
    )
