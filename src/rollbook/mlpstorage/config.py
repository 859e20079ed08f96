"""Enums and lists by the names of MLPerf Storage's configuration module; the lists are those of the 2026-03 round."""

from __future__ import annotations

import enum

from rollbook.checks.mlperf_verdict import Validation
from rollbook.checks.run_data import MINIMUM_HOST_MEMORY_GB
from rollbook.mlperf import rounds

__all__ = [
    "ACCELERATORS",
    "BENCHMARK_TYPES",
    "EXEC_TYPE",
    "EXIT_CODE",
    "INDEX_TYPES",
    "KVCACHE_GENERATION_MODES",
    "KVCACHE_MODELS",
    "KVCACHE_PERFORMANCE_PROFILES",
    "LLM_MODELS",
    "LLM_SUBSET_PROCS",
    "MAX_NUM_FILES_TRAIN",
    "MAX_READ_THREADS_TRAINING",
    "MINIMUM_HOST_MEMORY_GB",
    "MODELS",
    "MOST_MEMORY_MULTIPLIER",
    "PARAM_VALIDATION",
    "ROUND",
    "STEPS_PER_EPOCH",
    "RuleState",
]

ROUND = rounds.load("2026-03")
"""The round whose rules this module's checkers apply."""

# The tool has two enums with the same members; an issue counts with either.
PARAM_VALIDATION = Validation
RuleState = Validation


class BENCHMARK_TYPES(enum.Enum):  # noqa: N801 - the tool's name
    """The benchmarks."""

    training = "training"
    vector_database = "vector_database"
    checkpointing = "checkpointing"
    kv_cache = "kv_cache"


class EXEC_TYPE(enum.Enum):  # noqa: N801 - the tool's name
    """How the tool starts a benchmark."""

    MPI = "mpi"
    DOCKER = "docker"

    def __str__(self) -> str:
        return self.value


class EXIT_CODE(enum.IntEnum):  # noqa: N801 - the tool's name
    """Exit statuses of the tool."""

    SUCCESS = 0
    GENERAL_ERROR = 1
    INVALID_ARGUMENTS = 2
    FILE_NOT_FOUND = 3
    PERMISSION_DENIED = 4
    CONFIGURATION_ERROR = 5
    FAILURE = 6
    TIMEOUT = 7
    INTERRUPTED = 8

    def __str__(self) -> str:
        return f"{self.name} ({self.value})"


MODELS = list(ROUND.training.workload)
ACCELERATORS = [*ROUND.training.closed_accelerators, *ROUND.training.open_accelerators]
LLM_MODELS = list(ROUND.checkpointing.model)
LLM_SUBSET_PROCS = ROUND.checkpointing.subset_processes
KVCACHE_MODELS = list(ROUND.kv_cache.models)
KVCACHE_PERFORMANCE_PROFILES = list(ROUND.kv_cache.profiles)
KVCACHE_GENERATION_MODES = list(ROUND.kv_cache.modes)
INDEX_TYPES = list(ROUND.vector_database.indexes)
STEPS_PER_EPOCH = ROUND.training.steps
MOST_MEMORY_MULTIPLIER = ROUND.training.times_memory
MAX_READ_THREADS_TRAINING = 32
MAX_NUM_FILES_TRAIN = 128 * 1024
