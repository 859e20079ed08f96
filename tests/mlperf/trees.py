"""Results directories as MLPerf Storage's tool writes them, without Rollbook."""

from __future__ import annotations

import copy
import datetime as dt
import json
from pathlib import Path
from typing import Any

BASES = json.loads((Path(__file__).parents[1] / "data" / "mlperf" / "verdicts.json").read_bytes())["bases"]
GIB = 1024**3
START = dt.datetime(2026, 8, 1, 12, 0, 0)  # noqa: DTZ001 - the tool writes local times
HOST = {
    "memory": {"total": 500 * GIB},
    "cpu": {"num_cores": 96, "num_logical_cores": 192, "model": "EPYC", "architecture": "x86_64"},
    "system": {"os_release": {"NAME": "Debian", "VERSION_ID": "12"}, "kernel_version": "Linux version 6.1.0 x"},
}
CLUSTER: dict[str, Any] = {
    "total_memory_bytes": 1000 * GIB,
    "total_cores": 192,
    "num_hosts": 2,
    "min_memory_bytes": 500 * GIB,
    "max_memory_bytes": 500 * GIB,
    "collection_method": "mpi",
    "collection_timestamp": "2026-08-01T12:00:00Z",
    "hosts": [{"hostname": name, **HOST} for name in ("n1", "n2")],
}
SYSTEM = Path("closed/Acme/results/sys1")


def write_run(root: Path, base: str, place: str, at: dt.datetime, **changes: Any) -> Path:
    """Write one result directory; `changes` replace metadata."""
    run = copy.deepcopy(BASES[base])
    stamp = at.strftime("%Y%m%d_%H%M%S")
    metadata = {**run["metadata"], "run_datetime": stamp, "system_info": CLUSTER, **changes}
    del metadata["exit_code"]
    kind = metadata["benchmark_type"]
    path: Path = root / SYSTEM / kind / place / stamp
    (path / "dlio_config").mkdir(parents=True)
    (path / f"{kind}_{stamp}_metadata.json").write_text(json.dumps(metadata))
    (path / f"{kind}_run.stdout.log").write_text("")
    for name, content in run.get("files", {}).items():
        (path / name).write_text(json.dumps(content))
    if run["summary"] and metadata["command"] == "run":
        end = at + dt.timedelta(seconds=metadata["runtime"])
        times = {"start": at.isoformat(), "end": end.isoformat()}
        (path / "summary.json").write_text(json.dumps({**run["summary"], **times}))
    return path


def training(root: Path) -> list[Path]:
    """Data generation, then six runs in sequence."""
    paths = [write_run(root, "training", "unet3d/datagen", START - dt.timedelta(hours=5), command="datagen")]
    for number in range(6):
        at = START + dt.timedelta(seconds=2000 * number)
        paths.append(write_run(root, "training", "unet3d/run", at, runtime=1800.0))
    return paths


def checkpointing(root: Path) -> list[Path]:
    """A writing run, and a reading run that starts 20 seconds after its end."""
    counts = [(10, 0), (0, 10)]
    paths = []
    for number, (writes, reads) in enumerate(counts):
        overrides = {"checkpoint.num_checkpoints_write": writes, "checkpoint.num_checkpoints_read": reads}
        at = START + dt.timedelta(seconds=920 * number)
        paths.append(write_run(root, "checkpointing", "llama3-70b", at, override_parameters=overrides, runtime=900.0))
    return paths


def vector_database(root: Path) -> list[Path]:
    """Five runs of one index."""
    return [
        write_run(root, "vector_database", "milvus/DISKANN/run", START + dt.timedelta(seconds=200 * number))
        for number in range(5)
    ]
