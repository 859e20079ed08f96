"""Hosts and clusters by MLPerf Storage's names: made from collectors, files and DLIO's summary, and written back."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from rollbook import mlpstorage
from rollbook.mlpstorage import (
    ClusterInformation,
    ClusterSnapshots,
    HostCPUInfo,
    HostInfo,
    HostMemoryInfo,
    HostSystemInfo,
    TimeSeriesData,
    TimeSeriesSample,
    summarize_cpuinfo,
)
from rollbook.mlpstorage.shapes import raw_host
from rollbook.records.cluster import ClusterInformation as Core
from rollbook.sources import catalogue
from tests.support.records import host_results

LOGGER = logging.getLogger(__name__)
DATA = Path(__file__).parents[1] / "data"
GIB = 1024**3
RAW = (
    "hostname collection_timestamp meminfo cpuinfo diskstats netdev version loadavg uptime_seconds uptime os_release "
    "vmstat mounts cgroups chassis_model networking sysctl environment drives"
)
GARBAGE = ("", "\x00", "no such file\n", "a: b: c\n: :\n1 2\n", "8 0 sda 1\n", "é" * 9)


def facts(gib: float = 512, kernel: str = "6.8.0-79-generic") -> dict[str, Any]:
    """The facts of a host: the longest data case of each source, with this memory and kernel."""
    found = {}
    for name in catalogue.NAMES:
        cases = [json.loads(path.read_bytes()).get("record") for path in (DATA / "sources" / name).glob("*.json")]
        found[name] = max((case for case in cases if case is not None), key=lambda case: len(json.dumps(case)))
    kib = {"MemTotal": int(gib * 1024**2), "MemFree": 5, "Buffers": 1, "Cached": 1}
    found["meminfo"] = {"total_kib": kib["MemTotal"], "kib": kib, "counts": {"HugePages_Total": 0}}
    found["version"] = {"banner": f"Linux version {kernel} (a@b) #1", "release": kernel}
    return found


def collected(**memory: float) -> dict[str, Any]:
    """What a collector returns for hosts with this memory, in GiB."""
    return {host.name: raw_host(host) for name, gib in memory.items() for host in host_results({name: facts(gib)})}


def test_raw_host_has_the_keys_of_all_collectors() -> None:
    """A host has the keys of the tool's local, MPI and SSH collectors together."""
    (host,) = host_results({"n1": {**facts(), "@collected_at": "2026-08-01T00:00:00Z"}})
    raw = raw_host(host)
    assert set(raw) >= set(RAW.split())
    assert json.loads(json.dumps(raw)) == raw
    assert set(raw["diskstats"][0]) >= {"device_name", "reads_completed", "weighted_time_doing_ios_ms"}
    assert "device_number" not in raw["diskstats"][0]
    assert len(raw["cpuinfo"]) == facts()["cpuinfo"]["logical_cpus"]
    assert "errors" not in raw
    (lost,) = host_results({"n2": {"@status": "refused", "@reason": "key rejected"}})
    assert raw_host(lost) == {"hostname": "n2", "error": "refused: key rejected"}


def test_unread_sources_are_empty_and_named() -> None:
    """A reader that indexes a key finds the tool's empty value, and the reason under `errors`."""
    given = facts()
    for name in ("meminfo", "vmstat", "uptime", "version", "mounts"):
        del given[name]
    (host,) = host_results({"n1": given}, ["meminfo", "vmstat", "uptime", "version", "mounts"])
    raw = raw_host(host)
    assert set(raw) >= set(RAW.split())
    empty = {"meminfo": {}, "vmstat": {}, "uptime_seconds": 0.0, "version": "", "mounts": []}
    assert {key: raw[key] for key in empty} == empty
    assert set(raw["errors"]) == {"meminfo", "vmstat", "uptime", "version", "mounts"}
    assert raw["chassis_model"] == given["dmi"]["product_name"]


def test_cores_that_do_not_divide_by_sockets() -> None:
    """The number of cores and sockets is right although 63 cores do not divide by 2 sockets."""
    given = facts()
    given["cpuinfo"] = {**given["cpuinfo"], "logical_cpus": 126}
    given["cpu_topology"] = {"online": "0-125", "online_count": 126, "sockets": 2, "cores": 63}
    (host,) = host_results({"n1": given})
    summary = summarize_cpuinfo(raw_host(host)["cpuinfo"])
    assert [summary[name] for name in ("num_logical_cores", "num_physical_cores", "num_sockets")] == [126, 63, 2]


def test_failed_hosts_are_named_and_not_counted() -> None:
    """The sums equal those of Rollbook; the failed host is missing, not a host with zero memory."""
    data = {**collected(n1=512, n2=256), "n3": {"hostname": "n3", "error": "refused"}}
    cluster = ClusterInformation.from_mpi_collection({**data, "_metadata": {"collection_method": "ssh"}}, LOGGER)
    core = Core.of([h for n, g in (("n1", 512), ("n2", 256)) for h in host_results({n: facts(g)})])
    assert cluster.num_hosts == core.num_hosts == 2
    assert (cluster.num_hosts_requested, cluster.missing_hosts[0]["name"]) == (3, "n3")
    assert cluster.total_memory_bytes == core.total_memory_bytes == 768 * GIB
    assert (cluster.min_memory_bytes, cluster.max_memory_bytes) == (256 * GIB, 512 * GIB)
    assert cluster.total_cores == core.total_cores
    assert cluster.collection_method == "ssh"
    (issue,) = cluster.host_consistency_issues
    assert issue.startswith("Memory variance across hosts:")
    cluster.calculate_aggregated_info()
    assert cluster.total_memory_bytes == 768 * GIB, "a second call does not double it"


@pytest.mark.parametrize("value", [None, [], {}, "x", -1, True, [1], [[]], {"a": 1}, float("inf")], ids=repr)
def test_collected_values_of_a_wrong_type(value: Any) -> None:
    """Nothing is raised: a host without readable memory is missing, every other value is left out."""
    raw = collected(n1=512)["n1"]
    for key in (*RAW.split(), "machine_id", "boot_id", "errors"):
        cluster = ClusterInformation.from_mpi_collection({"n1": {**raw, key: value}, "_metadata": value}, LOGGER)
        assert cluster.num_hosts + len(cluster.missing_hosts) == 1
        assert cluster.num_hosts == (key != "meminfo")
        assert ClusterInformation.from_dict(json.loads(json.dumps(cluster.as_dict())), LOGGER) is not None
    rows = {"cpuinfo": [{"core id": value, "physical id": value}], "diskstats": [{"device_name": "sda"}, value]}
    (host,) = ClusterInformation.from_mpi_collection({"n1": {**raw, **rows}}, LOGGER).host_info_list
    assert host.disks is not None
    assert [disk.device_name for disk in host.disks] == ["sda"]
    assert host.cores == 1


def test_one_machine_under_two_names_counts_once(caplog: pytest.LogCaptureFixture) -> None:
    """The memory of one machine counts once; a clone with another hostname counts separately."""
    (host,) = host_results({"n1": {**facts(), "@machine_id": "a" * 32, "@boot_id": "b", "@hostname": "n1"}})
    raw = raw_host(host)
    cluster = ClusterInformation.from_mpi_collection({"n1": raw, "alias": {**raw, "requested_name": "alias"}}, LOGGER)
    assert (cluster.num_hosts, cluster.total_memory_bytes) == (1, 512 * GIB)
    assert "alias is the same machine as n1" in caplog.text
    clone = {**raw, "hostname": "n2"}
    assert ClusterInformation.from_mpi_collection({"n1": raw, "n2": clone}, LOGGER).num_hosts == 2


def test_local_fallback_names_the_hosts_it_does_not_cover() -> None:
    """The other requested hosts are missing, with the error of MPI as the reason."""
    about = {"collection_method": "local_fallback", "requested_hosts": ["n1:4", "n2"], "mpi_error": "no launcher"}
    cluster = ClusterInformation.from_mpi_collection({**collected(n1=512), "_metadata": about}, LOGGER)
    assert (cluster.num_hosts, cluster.num_hosts_requested) == (1, 2)
    assert cluster.missing_hosts == [{"name": "n2", "status": "failed", "reason": "no launcher"}]


def test_round_trip() -> None:
    """Clusters and snapshots that were written read back, with their hosts, and are written the same again."""
    cluster = ClusterInformation.from_mpi_collection(collected(n1=512, n2=500), LOGGER)
    written = json.loads(json.dumps(cluster.as_dict()))
    again = ClusterInformation.from_dict(written, LOGGER)
    assert again is not None
    assert again.as_dict() == cluster.as_dict() == cluster.to_detailed_dict() == cluster.info
    assert again.host_info_list[1].memory.total == 500 * GIB
    assert again.host_info_list[0].disks == cluster.host_info_list[0].disks
    empty: list[Any] = [None, {}, {"hosts": []}, [1]]
    assert [ClusterInformation.from_dict(one, LOGGER) for one in empty] == [None] * 4
    both = ClusterSnapshots(start=cluster, collection_method="mpi").as_dict()
    assert (both["start"]["num_hosts"], both["end"], both["collection_method"]) == (2, None, "mpi")
    read = ClusterSnapshots.from_dict(json.loads(json.dumps(both)), LOGGER)
    assert read is not None
    assert read.as_dict() == both
    assert ClusterSnapshots.from_dict(None, LOGGER) is ClusterSnapshots.from_dict({"start": {}}, LOGGER) is None


def test_host_constructors() -> None:
    """Hosts can be made with the tool's constructors, with its defaults."""
    assert HostMemoryInfo.from_total_mem_int(7).to_dict() == {
        "total": 7, **dict.fromkeys(("available", "used", "free", "active", "inactive", "buffers", "cached", "shared"))
    }  # fmt: skip
    memory = HostMemoryInfo.from_proc_meminfo_dict({"MemTotal": "8 kB", "MemFree": 2, "Buffers": 1, "Cached": 1})
    assert (memory.total, memory.used, memory.available) == (8192, 4096, 0)
    assert HostMemoryInfo.from_psutil_dict({"total": 5}).free == 0
    assert HostCPUInfo.from_dict({}) == HostCPUInfo(0, 0, "", "", 0)
    old = HostInfo.from_dict("n", {"memory_info": {"total": 3}, "cpu_info": {"num_cores": 2}})
    assert (old.hostname, old.memory.total, old.cpu and old.cpu.num_cores) == ("n", 3, 2)
    nothing = HostInfo.from_collected_data({})
    assert (nothing.hostname, nothing.memory.total, nothing.cpu) == ("unknown", 0, None)
    assert set(nothing.to_dict()) == {"hostname", "memory", "collection_timestamp", "system"}
    assert set(HostInfo("n").to_dict()) == {"hostname", "memory", "collection_timestamp"}
    assert len(HostSystemInfo("n").to_dict()) == 9
    nothing.memory.total = 4
    assert nothing.memory["total"] == 4


def test_real_dlio_summary(tmp_path: Path) -> None:
    """Only the sums of DLIO's lists are right, so hosts get equal parts; the files of the ranks name the hosts."""
    summary = json.loads((DATA / "mlpstorage" / "dlio_summary.json").read_bytes())
    real = ClusterInformation.from_dlio_summary_json(summary, LOGGER)
    assert real is not None
    assert (real.num_hosts, real.total_cores, real.collection_method) == (1, 2, "dlio_summary")
    assert real.total_memory_bytes == pytest.approx(24682416 * 1024, abs=2048)
    doubled = {**summary, "num_hosts": 3, "host_memory_GB": [1000.0, 500.0, 0.0], "host_cpu_count": [192, 96, 0]}
    spread = ClusterInformation.from_dlio_summary_json(doubled, LOGGER)
    assert spread is not None
    assert [host.memory.total for host in spread.host_info_list] == [500 * GIB] * 3
    assert (spread.total_memory_bytes, spread.total_cores) == (1500 * GIB, 288)
    for rank, (host, gib) in enumerate((("a", 512), ("a", 512), ("b", 256))):
        output = {"hostname": host, "host_meminfo": {"MemTotal": f"{gib * 1024**2} kB"}, "host_cpu_count": [96, 0]}
        (tmp_path / f"{rank}_output.json").write_text(json.dumps(output))
    (tmp_path / "3_output.json").write_text('{"hostname": ["c"], "host_meminfo": {"MemTotal": "9 kB"}}')
    named = ClusterInformation.from_dlio_summary_json({**doubled, "num_hosts": 961}, LOGGER, tmp_path)
    assert named is not None
    assert [(host.hostname, host.memory.total // GIB) for host in named.host_info_list] == [("a", 512), ("b", 256)]
    (tmp_path / "3_output.json").write_text("[1]")
    few = ClusterInformation.from_dlio_summary_json({**doubled, "num_accelerators": 6}, LOGGER, tmp_path)
    assert few is not None
    assert (few.num_hosts, few.total_memory_bytes) == (3, 1500 * GIB)
    wrong = [{"host_memory_GB": [size], "host_cpu_count": [1]} for size in ("x", float("inf"), -1.0)]
    for lacking in ({}, {"host_memory_GB": [1.0]}, *wrong):
        assert ClusterInformation.from_dlio_summary_json(lacking, LOGGER) is None


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("parse_proc_meminfo", "MemTotal: 8 kB\nHugePages_Total: 2\n", {"MemTotal": 8, "HugePages_Total": 2}),
        ("parse_proc_version", "Linux version 6.8.0 (a@b) #1\n", "Linux version 6.8.0 (a@b) #1"),
        ("parse_proc_uptime", "12.5 40.0\n", 12.5),
        ("parse_proc_vmstat", "nr_free_pages 7\npgfault 9\nbad x\n", {"nr_free_pages": 7, "pgfault": 9}),
        ("parse_os_release", 'ID=debian\nNAME="D L"\nnone\n', {"ID": "debian", "NAME": "D L"}),
        ("parse_proc_loadavg", "0.5 0.2 0.1 2/100 9\n", (0.5, 0.2, 0.1, 2, 100)),
        (
            "parse_proc_cpuinfo",
            "processor\t: 0\nmodel name\t: X 1\ncpu MHz\t: 2.5\n\nprocessor\t: -1\ngarbage\n",
            [{"processor": 0, "model name": "X 1", "cpu MHz": 2.5}, {"processor": -1}],
        ),
    ],
)
def test_parsers(name: str, text: str, expected: Any) -> None:
    """Parsers have the tool's names and results, and skip invalid lines as the tool does."""
    assert getattr(mlpstorage, name)(text) == expected


def test_parsers_of_rows() -> None:
    """Rows are dataclasses that also have keys; fields that the kernel does not have are None."""
    old = "8 0 sda 1 2 3 4 5 6 7 8 9 10 11"
    disks = mlpstorage.parse_proc_diskstats(f"{old}\n8 1 sda1 1\n8 2 sdb {' '.join('1' * 15)} x\n{old} 1 2 3 4 5 6\n")
    assert [disk.device_name for disk in disks] == ["sda", "sdb", "sda"]
    assert disks[0]["weighted_time_doing_ios_ms"] == disks[0].weighted_time_doing_ios_ms == 11
    assert disks[0].discards_completed is None
    assert "discards_completed" not in disks[0].to_dict()
    assert (disks[1].discards_completed, disks[1].time_flushing_ms) == (1, None)
    assert disks[2].time_flushing_ms == 6
    (row,) = mlpstorage.parse_proc_net_dev("h\nh\n eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n lo: 1\n")
    assert (row.interface_name, row["rx_bytes"], row.tx_compressed, len(row.to_dict())) == ("eth0", 1, 16, 17)
    (mount,) = mlpstorage.parse_proc_mounts("filer:/a /mnt/a\\040b nfs4 rw\nshort\n")
    assert (mount.mount_point, mount.dump_freq) == ("/mnt/a\\040b", 0)
    assert dict(mount)["fs_type"] == "nfs4"
    (group,) = mlpstorage.parse_proc_cgroups("#subsys_name hierarchy num_cgroups enabled\ncpu 1 2 1\nbad x y 1\n")
    assert (group.subsys_name, group.enabled) == ("cpu", True)


@pytest.mark.parametrize("name", [name for name in dir(mlpstorage) if name.startswith("parse_")])
def test_parsers_never_raise(name: str) -> None:
    """No text makes a parser raise an error."""
    for text in GARBAGE:
        getattr(mlpstorage, name)(text)


def test_time_series_data_with_missing_or_unknown_keys() -> None:
    """Missing keys have the tool's defaults; unknown ones are ignored."""
    empty = TimeSeriesData.from_dict({})
    assert (empty.collection_interval_seconds, empty.collection_method, empty.samples_by_host) == (10.0, "unknown", {})
    sample = TimeSeriesSample.from_dict({"timestamp": "t", "hostname": "h", "later": 1})
    assert sample.to_dict() == {"timestamp": "t", "hostname": "h"}


@pytest.mark.parametrize(
    ("change", "hosts"),
    [
        ({"num_hosts": 10**12}, None),
        ({"num_hosts": float("inf")}, 2),
        ({"num_hosts": -3}, 2),
        ({"num_accelerators": float("inf")}, 2),
        ({"host_memory_GB": [1e308, 1e308]}, None),
        ({"host_memory_GB": [10**400]}, None),
    ],
)
def test_numbers_in_a_summary_that_cannot_be(change: dict[str, Any], hosts: int | None) -> None:
    """A number of hosts beyond any cluster is not built; other values that are none count as missing."""
    summary = {"host_memory_GB": [2.0, 2.0], "host_cpu_count": [4, 4], "num_accelerators": 2, **change}
    found = ClusterInformation.from_dlio_summary_json(summary, LOGGER)
    assert (found and found.num_hosts) == hosts
