"""timeseries.json: samples, transports and missing sources."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

import pytest

from rollbook.api import finish as finishing
from rollbook.api.finish import finish
from rollbook.exports.timeseries import write_timeseries
from rollbook.records.record import Record
from rollbook.records.timeseries import TimeSeriesData
from rollbook.testing.journals import record_this_machine

SOURCES = ("meminfo", "loadavg", "diskstats", "net_dev", "vmstat", "identity")
KEYS = {"meminfo": "meminfo", "loadavg": "loadavg", "diskstats": "diskstats", "net_dev": "netdev", "vmstat": "vmstat"}


def record_sources(directory: Path, sources: tuple[str, ...]) -> Record:
    """A finished record of this machine with these sources."""
    record_this_machine(directory / "r" / "raw", 5, 0.1, sources, type="generic", stamp="20260101_000000", args={})
    return finish(directory / "r", report=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A record with all sources."""
    return record_sources(tmp_path_factory.mktemp("whole"), SOURCES)


def missing_from(path: Path) -> set[str]:
    """The keys that no sample of a file has."""
    data = json.loads(path.read_bytes())
    (samples,) = data["samples_by_host"].values()
    assert data["num_samples"] == len(samples) >= 3
    return set(KEYS.values()) - {key for sample in samples for key in sample}


def test_missing_source(tmp_path: Path) -> None:
    """The source is left out of the samples; the file is written without a note, and no temporary files remain."""
    record = record_sources(tmp_path, tuple(name for name in SOURCES if name != "vmstat"))
    assert missing_from(record.path / record.metadata["timeseries_data"]["file"]) == {"vmstat"}
    assert not [note for note in record.metadata["notes"] if "timeseries" in note]
    assert not list(record.path.glob(".*"))


@pytest.mark.parametrize("missing", KEYS)
def test_missing_table(whole: Record, tmp_path: Path, missing: str) -> None:
    """Without any one of the tables, the samples lack its key."""
    write_timeseries(whole.without_tables([missing]), tmp_path / "out.json")
    assert missing_from(tmp_path / "out.json") == {KEYS[missing]}


def test_collection_method(whole: Record, tmp_path: Path) -> None:
    """The collection method is the transport that was used, also for a single host."""
    record = copy.deepcopy(whole)
    (host,) = record.hosts.series
    for method in ("mpi", "local", "ssh"):
        host.method = method
        write_timeseries(record, tmp_path / "out.json")
        data = json.loads((tmp_path / "out.json").read_bytes())
        assert (data["collection_method"], data["collection_methods"]) == (method, {host.name: method})
        assert TimeSeriesData.from_dict(data).to_dict() == data


def test_too_many_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is not written; a note gives the command that writes it."""
    monkeypatch.setattr(finishing, "MAX_SAMPLES", 2)
    record = record_sources(tmp_path, SOURCES)
    (note,) = (note for note in record.metadata["notes"] if "timeseries.json" in note)
    assert "exceed the limit of 2: rollbook export --format timeseries -o timeseries.json" in note
    assert note.endswith(str(record.path))
    assert not list(record.path.glob("*_timeseries.json"))
    shutil.rmtree(record.path)
