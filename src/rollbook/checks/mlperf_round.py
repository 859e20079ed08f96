"""The numbers and lists of one round of MLPerf Storage's rules; `rollbook.mlperf.rounds` reads them from TOML.

A part that is None, or a list that is empty, means that the round has no such rule.
"""

from __future__ import annotations

import datetime as dt
from typing import Literal, TypeVar

import msgspec

from rollbook.errors import NotApplicable

__all__ = ["Overrides", "Round"]

T = TypeVar("T")
Effect = Literal["closed", "open", "invalid"]
"""The effect of a violation on a run; `closed` only informs."""


class Overrides(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters that may be changed, by dotted name; those in `injected` are set by the tool itself.

    `models` limits a parameter to some models; parameters below `prefixes` are not checked; `otherwise` is the effect
    of every other parameter.
    """

    closed: list[str] = []
    open: list[str] = []
    injected: list[str] = []
    prefixes: list[str] = []
    models: dict[str, list[str]] = {}
    otherwise: Effect = "invalid"


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training workload as the round publishes it. `batch_size` and `epochs` are by accelerator."""

    utilisation: float
    format: str
    samples_per_file: int
    record_bytes: float
    batch_size: dict[str, int]
    epochs: dict[str, int]


class Training(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Training: workloads, size of the data set, number of runs."""

    closed_accelerators: list[str]
    open_accelerators: list[str] = []
    steps: int
    times_memory: int
    files: Literal["rounded up", "rounded down"]
    summary_word: str = ""
    minimum_runs: int
    maximum_runs: int | None = None
    datagen_runs: int | None = None
    gap_times_shortest: float | None = None
    overrides: Overrides
    workload: dict[str, Workload]


class CheckpointModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model to checkpoint: processes in CLOSED, what they must be a multiple of in OPEN, whether it has a subset."""

    closed_processes: int
    open_multiple: int
    subset: bool = False


class Checkpointing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Checkpointing: process counts, writes and reads, and the gap between them."""

    subset_processes: int
    writes: int
    reads: int
    split: Literal["any", "one or two"]
    maximum_runs: int | None = None
    gap_seconds: float | None = None
    more_processes_per_host: int
    times_memory: int
    accelerator_gb: dict[str, float] = {}
    overrides: Overrides
    model: dict[str, CheckpointModel]


class VectorDatabase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Vector database: engines, indexes, metrics that a result must have."""

    engines: list[str]
    indexes: list[str]
    open_indexes: list[str] = []
    minimum_seconds: float
    metrics: list[str] = []
    runs: int | None = None
    preview: bool = False
    overrides: Overrides | None = None


class KvCache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """KV cache: models and minimum values."""

    models: list[str]
    profiles: list[str]
    modes: list[str]
    open_modes: list[str] = []
    minimum_users: int
    closed_users: int
    minimum_seconds: float
    closed_seconds: float
    minimum_memory_gb: float
    preview: bool = False


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the hosts of a run must be: the effects of unlike hosts, and of hosts without measured data."""

    unlike: Effect
    not_collected: Effect


class Round(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One round. `needs` are, by benchmark type, the rules that must have been evaluated before a run is CLOSED.

    `without_rules` gives for benchmark types that the round has without published rules the reason why they are not
    judged. `separate_file_systems` are the types whose data and results must be on different file systems.
    """

    name: str
    source: str
    date: dt.date
    needs: dict[str, list[str]]
    without_rules: dict[str, str] = {}
    separate_file_systems: list[str] = []
    cluster: Cluster
    training: Training
    checkpointing: Checkpointing
    vector_database: VectorDatabase
    kv_cache: KvCache

    def require(self, part: T | None) -> T:
        """Return a part of this round; raises `NotApplicable` if the round has no such rule."""
        if not part:
            raise NotApplicable(f"round {self.name} has no such rule")
        return part
