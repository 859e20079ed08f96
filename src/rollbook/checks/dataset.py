"""How large a training data set must be for MLPerf Storage: 500 steps, and five times the memory of all clients."""

from __future__ import annotations

import math

import msgspec

from rollbook.checks.mlperf import GIB, Memory, memory_of, parameter, whole
from rollbook.checks.subject import Subject
from rollbook.errors import CannotTell

__all__ = ["STEPS", "TIMES_MEMORY", "DatasetSize", "dataset_size"]

STEPS = 500
TIMES_MEMORY = 5


class DatasetSize(msgspec.Struct, frozen=True):
    """The numbers that the size follows from."""

    batch_size: int
    accelerators: int
    record_bytes: int
    samples_per_file: int
    memory_bytes: int
    memory_origin: str

    @property
    def by_steps(self) -> int:
        """Samples for the steps."""
        return STEPS * self.batch_size * self.accelerators

    @property
    def by_memory(self) -> int:
        """Samples that no page cache can hold."""
        return math.ceil(TIMES_MEMORY * self.memory_bytes / self.record_bytes)

    @property
    def files(self) -> int:
        """Files needed for the larger of the two."""
        return math.ceil(max(self.by_steps, self.by_memory) / self.samples_per_file)

    def explained(self) -> list[str]:
        """Each number with those it is made of."""
        memory = f"{self.memory_bytes / GIB:.1f} GiB {self.memory_origin}"
        return [
            f"{STEPS} steps × batch {self.batch_size} × {self.accelerators} accelerators = {self.by_steps} samples",
            f"{TIMES_MEMORY} × {memory} / {self.record_bytes} bytes a sample = {self.by_memory} samples",
            f"the larger / {self.samples_per_file} samples a file = {self.files} files",
        ]


def dataset_size(run: Subject, memory: Memory | None = None) -> DatasetSize:
    """The size for a run; raises `CannotTell` that names the number the record does not hold."""
    judged = (memory or memory_of(run)).judged
    if judged is None:
        raise CannotTell("nobody says how much memory the clients have")
    data = run.metadata
    return DatasetSize(
        batch_size=whole(parameter(data, "reader.batch_size"), "reader.batch_size"),
        accelerators=whole(data.get("num_processes"), "num_processes"),
        record_bytes=whole(
            parameter(data, "dataset.record_length_bytes", "dataset.record_length"), "dataset.record_length_bytes"
        ),
        samples_per_file=whole(parameter(data, "dataset.num_samples_per_file"), "dataset.num_samples_per_file"),
        memory_bytes=judged[1],
        memory_origin=judged[0],
    )
