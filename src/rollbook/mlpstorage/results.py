"""Results of a benchmark on disk and as rules see them, by the names MLPerf Storage's code uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rollbook.errors import RecordError
from rollbook.mlpstorage.cluster import ClusterInformation

__all__ = ["BenchmarkResult", "BenchmarkRun"]


class BenchmarkResult:
    """The files of one run: metadata, DLIO's summary, and the cluster from its own file or from the metadata."""

    def __init__(self, benchmark_result_root_dir: str | Path, logger: Any) -> None:
        self.benchmark_result_root_dir, self.logger = Path(benchmark_result_root_dir), logger
        found = sorted(self.benchmark_result_root_dir.glob("*_metadata.json"))
        if len(found) != 1:
            raise RecordError(f"{self.benchmark_result_root_dir} has {len(found)} files named *_metadata.json, not one")
        self.metadata: dict[str, Any] = _json(found[0]) or {}
        self.summary: dict[str, Any] | None = _json(self.benchmark_result_root_dir / "summary.json")
        own = sorted(self.benchmark_result_root_dir.glob("*_cluster_info.json"))
        # Some writers call it system_info, some readers cluster_information.
        self.cluster_info: dict[str, Any] | None = (_json(own[0]) if own else None) or next(
            (self.metadata[key] for key in ("cluster_information", "system_info") if self.metadata.get(key)), None
        )


class BenchmarkRun:
    """One run as rules see it, from its files after the run or from a benchmark object before it."""

    def __init__(
        self,
        benchmark_result: BenchmarkResult | None = None,
        benchmark_instance: Any = None,
        logger: Any = None,
    ) -> None:
        self.logger = logger
        self.metadata: dict[str, Any] = {}
        self.summary: dict[str, Any] | None = None
        self.directory: Path | None = None
        self.system_info: ClusterInformation | None = None
        if benchmark_result is not None:
            self._load_from_result(benchmark_result)
        elif benchmark_instance is not None:
            self._load_from_instance(benchmark_instance)
        else:
            raise ValueError("a run is made of a benchmark_result or of a benchmark_instance")

    def _load_from_result(self, result: BenchmarkResult) -> None:
        self.metadata, self.summary, self.directory = result.metadata, result.summary, result.benchmark_result_root_dir
        if result.cluster_info:
            self.system_info = ClusterInformation.from_dict(result.cluster_info, self.logger)
        if self.system_info is None and result.summary and result.summary.get("host_memory_GB"):
            self.system_info = ClusterInformation.from_dlio_summary_json(result.summary, self.logger, self.directory)

    def _load_from_instance(self, benchmark: Any) -> None:
        self.metadata = dict(getattr(benchmark, "metadata", None) or {})
        self.system_info = getattr(benchmark, "cluster_information", None)

    @property
    def benchmark_type(self) -> str | None:
        """training, checkpointing, vector_database or kv_cache."""
        return self.metadata.get("benchmark_type")

    @property
    def parameters(self) -> dict[str, Any]:
        """What the run was configured with."""
        return self.metadata.get("parameters") or {}


def _json(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: {error}") from error
    return data if isinstance(data, dict) else None
