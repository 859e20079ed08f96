"""How large a training data set must be for MLPerf Storage: enough steps, and a multiple of all clients' memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from rollbook.checks.mlperf_clients import Memory
from rollbook.checks.mlperf_values import GIB, number, parameter, positive_integer, table
from rollbook.checks.mlperf_verdict import round_of
from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell

__all__ = ["DatasetSize", "column_bytes", "dataset_size"]

COLUMN_BYTES = {"float64": 8, "int64": 8, "uint8": 1, "bool": 1}
OTHER_COLUMN_BYTES = 4


class DatasetSize(msgspec.Struct, frozen=True):
    """The numbers that the size is computed from."""

    steps: int
    times_memory: int
    rounded_up: bool
    batch_size: int
    accelerators: int
    record_bytes: float
    samples_per_file: int
    memory_bytes: int
    memory_origin: str

    @property
    def by_steps(self) -> int:
        """Samples for the steps."""
        return self.steps * self.batch_size * self.accelerators

    @property
    def by_memory(self) -> int:
        """Samples that exceed every page cache."""
        return math.ceil(self.times_memory * self.memory_bytes / self.record_bytes)

    @property
    def files(self) -> int:
        """Files needed for the larger of the two."""
        by_memory = self.times_memory * self.memory_bytes / (self.record_bytes * self.samples_per_file)
        by_steps = self.by_steps / self.samples_per_file
        whole_files = math.ceil if self.rounded_up else math.floor
        return max(whole_files(by_memory), whole_files(by_steps))

    def explained(self) -> list[str]:
        """Each number with its factors."""
        memory, record = f"{self.memory_bytes / GIB:.1f} GiB {self.memory_origin}", f"{self.record_bytes:.10g}"
        how = "rounded up" if self.rounded_up else "rounded down"
        steps = f"{self.steps} steps × batch {self.batch_size} × {self.accelerators} accelerators"
        return [
            f"{steps} = {self.by_steps} samples",
            f"{self.times_memory} × {memory} / {record} bytes per sample = {self.by_memory} samples",
            f"the larger / {self.samples_per_file} samples per file, {how} = {self.files} files",
        ]


def dataset_size(run: RunData, memory: Memory) -> DatasetSize:
    """Return the size for a run and its clients' memory; raises `CannotTell` that names the number the record lacks."""
    rules = round_of(run).training
    effective = memory.effective
    if effective is None:
        raise CannotTell("the memory of the clients is not recorded")
    data = run.metadata
    length = parameter(data, "dataset.record_length_bytes", "dataset.record_length")
    if length is None:
        length = column_bytes(table(table(data.get("parameters")).get("dataset")))
    record = number(length, "dataset.record_length_bytes")
    if record <= 0:
        raise CannotTell(f"dataset.record_length_bytes is {record:g}")
    return DatasetSize(
        steps=rules.steps,
        times_memory=rules.times_memory,
        rounded_up=rules.files == "rounded up",
        batch_size=positive_integer(parameter(data, "reader.batch_size"), "reader.batch_size"),
        accelerators=positive_integer(data.get("num_processes"), "num_processes"),
        record_bytes=record,
        samples_per_file=positive_integer(
            parameter(data, "dataset.num_samples_per_file"), "dataset.num_samples_per_file"
        ),
        memory_bytes=effective[1],
        memory_origin=effective[0],
    )


def column_bytes(dataset: Mapping[str, Any]) -> int | None:
    """Return the bytes of one record of a Parquet data set, from its columns; None without columns."""
    columns = table(dataset.get("parquet")).get("columns")
    if not isinstance(columns, list) or not columns:
        return None
    total = 0
    for column in map(table, columns):
        width = COLUMN_BYTES.get(str(column.get("dtype", "")), OTHER_COLUMN_BYTES)
        total += width * positive_integer(column.get("size", 1), "dataset.parquet.columns[].size")
    return total
