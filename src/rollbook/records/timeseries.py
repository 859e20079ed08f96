"""MLPerf Storage's time series as data: what `*_timeseries.json` holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

__all__ = ["NOT_IN_TOOL", "SAMPLED", "TimeSeriesData", "TimeSeriesSample"]

SAMPLED = {
    "diskstats": "diskstats",
    "vmstat": "vmstat",
    "meminfo": "meminfo",
    "loadavg": "loadavg",
    "netdev": "net_dev",
}
"""Keys of a sample, and the sources they come from."""
NOT_IN_TOOL = ("device_number", "extra")
"""Fields of sources that MLPerf Storage's tools do not have."""


@dataclasses.dataclass
class TimeSeriesSample:
    """One host at one time; what was not read is None."""

    timestamp: str
    hostname: str
    diskstats: list[dict[str, Any]] | None = None
    vmstat: dict[str, int] | None = None
    meminfo: dict[str, int] | None = None
    loadavg: dict[str, float] | None = None
    netdev: list[dict[str, Any]] | None = None
    errors: dict[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields that are not None."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TimeSeriesSample:
        """From `to_dict`; keys of later versions are ignored."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})


@dataclasses.dataclass
class TimeSeriesData:
    """The samples of all hosts of a run. `collection_methods` names the transport used for each host."""

    collection_interval_seconds: float
    start_time: str
    end_time: str
    num_samples: int
    samples_by_host: dict[str, list[TimeSeriesSample]]
    collection_method: str
    hosts_requested: list[str]
    hosts_collected: list[str]
    collection_methods: dict[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The content of `*_timeseries.json`."""
        samples = {host: [sample.to_dict() for sample in found] for host, found in self.samples_by_host.items()}
        found = {**vars(self), "samples_by_host": samples}
        if self.collection_methods is None:
            del found["collection_methods"]
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TimeSeriesData:
        """From `to_dict`; what is missing is empty, and unknown keys are ignored."""
        samples = {
            host: [TimeSeriesSample.from_dict(sample) for sample in found]
            for host, found in data.get("samples_by_host", {}).items()
        }
        return cls(
            data.get("collection_interval_seconds", 10.0),
            data.get("start_time", ""),
            data.get("end_time", ""),
            data.get("num_samples", 0),
            samples,
            data.get("collection_method", "unknown"),
            list(data.get("hosts_requested", [])),
            list(data.get("hosts_collected", [])),
            data.get("collection_methods"),
        )
