"""MLPerf Storage's classes over our core: made from collectors, files and DLIO's summary; verdicts; round trips."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollbook import mlpstorage
from rollbook.checks.mlperf import Validation
from rollbook.errors import ParseError, RecordError
from rollbook.mlperf.export import export_mlpstorage
from rollbook.mlpstorage.cluster import ClusterInformation, ClusterSnapshots
from rollbook.mlpstorage.collector import MPIClusterCollector
from rollbook.mlpstorage.results import BenchmarkResult, BenchmarkRun
from rollbook.mlpstorage.rules import BenchmarkVerifier, ClusterValidationRulesChecker, Issue
from rollbook.mlpstorage.shapes import raw_record
from rollbook.records.cluster import ClusterInformation as Core
from rollbook.records.document import Snapshot
from rollbook.records.record import Record, RecordHosts
from rollbook.sources import catalogue
from tests.support.records import host_records

LOGGER = logging.getLogger(__name__)
DATA = Path(__file__).parents[1] / "data"
GIB = 1024**3
NAMES = (
    "BenchmarkResult BenchmarkRun BenchmarkVerifier ClusterCollectorInterface ClusterInformation ClusterSnapshots "
    "ClusterValidationRulesChecker CollectionResult Issue MPIClusterCollector MultiHostTimeSeriesCollector "
    "PARAM_VALIDATION SSHClusterCollector TimeSeriesCollector TimeSeriesData TimeSeriesSample parse_proc_cpuinfo "
    "parse_proc_diskstats parse_proc_loadavg parse_proc_meminfo parse_proc_net_dev parse_proc_version parse_proc_vmstat"
)
RAW = (
    "hostname collection_timestamp meminfo cpuinfo diskstats netdev version loadavg uptime_seconds os_release vmstat "
    "mounts cgroups chassis_model networking sysctl environment drives"
)


def facts(gib: int = 512, kernel: str = "6.8.0-79-generic") -> dict[str, Any]:
    """A host with the richest case of each source, of that memory and kernel."""
    found = {}
    for name in catalogue.NAMES:
        cases = [json.loads(path.read_bytes()).get("record") for path in (DATA / "sources" / name).glob("*.json")]
        found[name] = max((case for case in cases if case is not None), key=lambda case: len(json.dumps(case)))
    kib = {"MemTotal": gib * 1024**2, "MemFree": 5, "Buffers": 1, "Cached": 1}
    found["meminfo"] = {"total_kib": kib["MemTotal"], "kib": kib, "counts": {"HugePages_Total": 0}}
    found["version"] = {"banner": f"Linux version {kernel} (a@b) #1", "release": kernel}
    return found


def collected(**memory: int) -> dict[str, Any]:
    """What a collector returns for hosts of so much memory."""
    return {host.name: raw_record(host) for name, gib in memory.items() for host in host_records({name: facts(gib)})}


def test_every_name_is_there() -> None:
    """A benchmark that imports them runs."""
    assert [name for name in NAMES.split() if not hasattr(mlpstorage, name)] == []
    assert set(NAMES.split()) <= set(dir(mlpstorage))
    with pytest.raises(AttributeError):
        _ = mlpstorage.Nothing


def test_raw_record_has_the_keys_of_all_three_transports() -> None:
    """No transport gives less: the keys of their local, MPI and SSH collectors together."""
    (host,) = host_records({"n1": {**facts(), "@collected_at": "2026-08-01T00:00:00Z"}})
    raw = raw_record(host)
    assert set(raw) >= set(RAW.split())
    assert json.loads(json.dumps(raw)) == raw
    assert set(raw["diskstats"][0]) >= {"device_name", "reads_completed", "weighted_time_doing_ios_ms"}
    assert "device_number" not in raw["diskstats"][0]
    assert len(raw["cpuinfo"]) == facts()["cpuinfo"]["logical_cpus"]
    (lost,) = host_records({"n2": {"@status": "refused", "@reason": "key rejected"}})
    assert raw_record(lost) == {"hostname": "n2", "error": "refused: key rejected"}


def test_raw_record_without_memory() -> None:
    """What does not come from meminfo is there without it; cores that do not divide by sockets count what there is."""
    given = facts()
    del given["meminfo"]
    given["cpuinfo"] = {**given["cpuinfo"], "logical_cpus": 126}
    given["cpu_topology"] = {"online": "0-125", "online_count": 126, "sockets": 2, "cores": 63}
    (host,) = host_records({"n1": given}, ["meminfo"])
    raw = raw_record(host)
    assert set(RAW.split()) - set(raw) == {"meminfo"}
    assert raw["chassis_model"] == given["dmi"]["product_name"]
    cpus = raw["cpuinfo"]
    assert len({(cpu["physical id"], cpu["core id"]) for cpu in cpus}) == 63
    assert {cpu["physical id"] for cpu in cpus} == {0, 1}
    with pytest.raises(RecordError, match="n1 gave no memory"):
        mlpstorage.host_info(raw)
    with pytest.raises(RecordError, match="n2 gave no memory: refused"):
        mlpstorage.host_info({"hostname": "n2", "error": "refused"})


def test_from_collection_agrees_with_the_core() -> None:
    """The same hosts give the same sums, whichever way they are taken; failed hosts count in nothing."""
    data = {**collected(n1=512, n2=256), "n3": {"hostname": "n3", "error": "refused"}}
    cluster = ClusterInformation.from_mpi_collection({**data, "_metadata": {"collection_method": "ssh"}}, LOGGER)
    core = Core.of([h for n, g in (("n1", 512), ("n2", 256)) for h in host_records({n: facts(g)})])
    assert cluster.num_hosts == core.num_hosts == 2
    assert cluster.total_memory_bytes == core.total_memory_bytes == 768 * GIB
    assert (cluster.min_memory_bytes, cluster.max_memory_bytes) == (256 * GIB, 512 * GIB)
    assert cluster.total_cores == core.total_cores
    assert cluster.collection_method == "ssh"
    assert cluster.host_consistency_issues == core.host_consistency_issues
    assert any("Memory variance across hosts" in issue for issue in cluster.host_consistency_issues)


def test_round_trip() -> None:
    """What is written reads back, hosts and all, and writes the same again."""
    cluster = ClusterInformation.from_mpi_collection(collected(n1=512, n2=500), LOGGER)
    written = json.loads(json.dumps(cluster.as_dict()))
    again = ClusterInformation.from_dict(written, LOGGER)
    assert again is not None
    assert again.as_dict() == cluster.as_dict()
    assert again.host_info_list[1].memory.total == 500 * GIB
    assert again.host_info_list[0].disks == cluster.host_info_list[0].disks
    assert ClusterInformation.from_dict({"hosts": []}, LOGGER) is None
    lost = host_records({"n1": facts(), "n2": {"@status": "refused", "@reason": "key rejected"}})
    ours = msgspec.to_builtins(Core.of(lost))
    kept = ClusterInformation.from_dict(ours, LOGGER)
    assert kept is not None
    assert (kept.as_dict(), kept.num_hosts_requested, len(kept.missing_hosts)) == (ours, 2, 1)
    both = ClusterSnapshots(start=cluster, collection_method="mpi").as_dict()
    assert (both["start"]["num_hosts"], both["end"], both["collection_method"]) == (2, None, "mpi")


def test_dlio_summary_as_it_really_is(tmp_path: Path) -> None:
    """Sums are right, positions are not; the files of the ranks name the hosts."""
    summary = json.loads((DATA / "mlpstorage" / "dlio_summary.json").read_bytes())
    real = ClusterInformation.from_dlio_summary_json(summary, LOGGER)
    assert (real.num_hosts, real.total_cores, real.collection_method) == (1, 2, "dlio_summary")
    assert real.total_memory_bytes == pytest.approx(24682416 * 1024, abs=2048)
    doubled = {**summary, "num_hosts": 3, "host_memory_GB": [1000.0, 500.0, 0.0], "host_cpu_count": [192, 96, 0]}
    spread = ClusterInformation.from_dlio_summary_json(doubled, LOGGER)
    assert [host.memory.total for host in spread.host_info_list] == [500 * GIB] * 3
    assert (spread.total_memory_bytes, spread.total_cores) == (1500 * GIB, 288)
    for rank, (host, gib) in enumerate((("a", 512), ("a", 512), ("b", 256))):
        output = {"hostname": host, "host_meminfo": {"MemTotal": f"{gib * 1024**2} kB"}, "host_cpu_count": [96, 0]}
        (tmp_path / f"{rank}_output.json").write_text(json.dumps(output))
    named = ClusterInformation.from_dlio_summary_json({**doubled, "num_hosts": 961}, LOGGER, tmp_path)
    assert [(host.hostname, host.memory.total // GIB) for host in named.host_info_list] == [("a", 512), ("b", 256)]
    (tmp_path / "3_output.json").write_text("[1]")
    (tmp_path / "4_output.json").write_text('{"hostname": "c", "host_meminfo": [1]}')
    assert ClusterInformation.from_dlio_summary_json(doubled, LOGGER, tmp_path).num_hosts == 2
    few = ClusterInformation.from_dlio_summary_json({**doubled, "num_accelerators": 6}, LOGGER, tmp_path)
    assert (few.num_hosts, few.total_memory_bytes) == (3, 1500 * GIB)


def leaf(directory: Path, **metadata: Any) -> BenchmarkRun:
    """A run read from a directory with these files."""
    cluster = metadata.pop("cluster", None)
    (directory / "training_20260801_000000_metadata.json").write_text(json.dumps(metadata))
    if cluster is not None:
        (directory / "training_cluster_info.json").write_text(json.dumps(cluster))
    return BenchmarkRun(BenchmarkResult(directory, LOGGER), logger=LOGGER)


def test_cluster_is_found_under_either_key(tmp_path: Path) -> None:
    """Its own file first, then what the metadata calls cluster_information or system_info."""
    cluster = ClusterInformation.from_mpi_collection(collected(n1=512), LOGGER).as_dict()
    ways: list[dict[str, Any]] = [
        {"cluster": cluster},
        {"system_info": cluster},
        {"cluster_information": cluster, "system_info": None},
    ]
    for number, files in enumerate(ways):
        directory = tmp_path / str(number)
        directory.mkdir()
        run = leaf(directory, benchmark_type="training", **files)
        assert run.system_info is not None
        assert run.system_info.total_memory_bytes == 512 * GIB
    (tmp_path / "0" / "second_metadata.json").write_text("{}")
    with pytest.raises(RecordError, match="2 files"):
        BenchmarkResult(tmp_path / "0", LOGGER)


@pytest.mark.parametrize(
    ("files", "memory", "expected"),
    [
        (36622, {"n1": 500, "n2": 500}, Validation.CLOSED),
        (36621, {"n1": 500, "n2": 500}, Validation.INVALID),
        (36622, {"n1": 580, "n2": 420}, Validation.OPEN),
    ],
)
def test_verdict_from_disk(tmp_path: Path, files: int, memory: dict[str, int], expected: Validation) -> None:
    """The worst counts; the size of the data set is judged by the memory that was measured, also after the run."""
    cluster = {**ClusterInformation.from_mpi_collection(collected(**memory), LOGGER).as_dict()}
    data = {"num_files_train": files, "num_samples_per_file": 1, "record_length_bytes": 146600628}
    run = leaf(
        tmp_path,
        benchmark_type="training",
        num_processes=2,
        parameters={"dataset": data, "reader": {"batch_size": 1}},
        system_info=cluster,
    )
    verifier = BenchmarkVerifier(run, LOGGER)
    assert verifier.verify() is expected
    assert any(issue.validation is expected for issue in verifier.issues) == (expected is not Validation.CLOSED)


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({"collection_method": "local_fallback", "num_hosts": 1}, Validation.OPEN),
        ({"collection_method": "mpi", "num_hosts": 1}, Validation.CLOSED),
        ({"collection_method": "args", "num_hosts": 4, "total_memory_bytes": 0}, Validation.OPEN),
    ],
)
def test_a_cluster_that_was_not_looked_at(tmp_path: Path, cluster: dict[str, Any], expected: Validation) -> None:
    """One machine that stands for all is no CLOSED run; memory that nobody told is not too little."""
    size = cluster.pop("total_memory_bytes", GIB)
    sizes = {f"{which}_memory_bytes": size for which in ("total", "min", "max")}
    run = leaf(tmp_path, benchmark_type="training", system_info={**cluster, **sizes})
    assert BenchmarkVerifier(run, LOGGER).verify() is expected


def test_hosts_of_one_name_are_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those made from one image: the first has the name, the others the one that they were asked by."""
    hosts = host_records({"n[1-3]": {**facts(), "@hostname": "image"}})
    taken = Snapshot.of("2026-08-01T00:00:00Z", hosts)
    monkeypatch.setattr("rollbook.mlpstorage.collector.snapshot", lambda *_, **__: taken)
    found = MPIClusterCollector(["n1", "n2", "n3"], "mpirun", LOGGER).collect()
    assert {name: info["requested_name"] for name, info in found.items()} == {"image": "n1", "n2": "n2", "n3": "n3"}


@pytest.mark.parametrize("name", ["../evil", "", None])
def test_names_become_file_names_only_if_they_can(tmp_path: Path, name: str | None) -> None:
    """A record may come from anywhere."""
    run = Record(tmp_path, {"benchmark_type": name, "run_datetime": "1"}, RecordHosts(started_ns=0, ended_ns=0))
    with pytest.raises(RecordError, match="benchmark_type"):
        export_mlpstorage(run, tmp_path / "out")


def test_the_files_that_the_metadata_name_are_exported(tmp_path: Path) -> None:
    """Also what the command wrote."""
    (tmp_path / "stdout.log").write_text("done")
    run = Record(tmp_path, {"benchmark_type": "training", "run_datetime": "1"}, RecordHosts(started_ns=0, ended_ns=0))
    written = export_mlpstorage(run, tmp_path / "out")
    assert [path.name for path in written] == ["training_1_metadata.json", "stdout.log"]
    assert (tmp_path / "out" / "stdout.log").read_text() == "done"


def test_cluster_checker() -> None:
    """Consistency is OPEN, a host without memory INVALID, and a cluster that was only declared is told."""

    class Instance:
        metadata: dict[str, Any] = {}  # noqa: RUF012 - read only
        cluster_information = ClusterInformation.from_mpi_collection(collected(n1=512, n2=0), LOGGER)

    Instance.cluster_information.collection_method = "args"
    checker = ClusterValidationRulesChecker(BenchmarkRun(benchmark_instance=Instance()), LOGGER)
    found = {(issue.validation, issue.parameter) for issue in checker.run_checks()}
    assert found == {
        (Validation.INVALID, "host_memory"),
        (Validation.OPEN, "collection_method"),
        (Validation.OPEN, None),
    }
    assert checker.run_checks() == checker.issues
    assert Issue(Validation.OPEN, "x").severity == "error"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("parse_proc_meminfo", "MemTotal: 8 kB\nHugePages_Total: 2\n", {"MemTotal": 8, "HugePages_Total": 2}),
        ("parse_proc_version", "Linux version 6.8.0 (a@b) #1\n", "Linux version 6.8.0 (a@b) #1"),
        ("parse_proc_uptime", "12.5 40.0\n", 12.5),
        ("parse_proc_vmstat", "nr_free_pages 7\npgfault 9\n", {"nr_free_pages": 7, "pgfault": 9}),
        ("parse_os_release", 'ID=debian\nNAME="D L"\n', {"ID": "debian", "NAME": "D L"}),
        (
            "parse_proc_loadavg",
            "0.5 0.2 0.1 2/100 9\n",
            {"load_1min": 0.5, "load_5min": 0.2, "load_15min": 0.1, "running_processes": 2, "total_processes": 100},
        ),
        (
            "parse_proc_cpuinfo",
            "processor\t: 0\nmodel name\t: X 1\ncpu MHz\t: 2.5\n\nprocessor\t: 1\n",
            [{"processor": 0, "model name": "X 1", "cpu MHz": 2.5}, {"processor": 1}],
        ),
        (
            "parse_proc_mounts",
            "filer:/a /mnt/a\\040b nfs4 rw 0 0\n",
            [
                {
                    "device": "filer:/a",
                    "mount_point": "/mnt/a b",
                    "fs_type": "nfs4",
                    "options": "rw",
                    "dump_freq": 0,
                    "pass_num": 0,
                }
            ],
        ),
    ],
)
def test_parsers(name: str, text: str, expected: Any) -> None:
    """Their names, their shapes."""
    assert getattr(mlpstorage, name)(text) == expected


def test_parsers_of_rows() -> None:
    """What a kernel does not have is left out; what is no such file raises."""
    (disk,) = mlpstorage.parse_proc_diskstats("8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n")
    assert disk["device_name"] == "sda"
    assert disk["weighted_time_doing_ios_ms"] == 11
    assert "discards_completed" not in disk
    (row,) = mlpstorage.parse_proc_net_dev("h\nh\n eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
    assert (row["interface_name"], row["rx_bytes"], row["tx_compressed"]) == ("eth0", 1, 16)
    with pytest.raises(ParseError):
        mlpstorage.parse_proc_diskstats("8 0 sda 1\n")
