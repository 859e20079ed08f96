"""The system description: equal hosts are grouped, values have their origin, and existing values are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import rollbook
from rollbook.checks.run_data import RunData
from rollbook.cli.describe import command
from rollbook.mlperf.describe import draft, merge_existing, roles_of, to_do
from rollbook.mlperf.node import Entry
from rollbook.mlperf.yaml_text import yaml_text
from rollbook.records.document import Snapshot, encode
from rollbook.records.record import RecordHosts
from rollbook.records.yaml import read_yaml
from tests.support.records import RunCase, Sets, host_results

DISK = {
    "device": "nvme0n1",
    "kind": "disk",
    "interface": "nvme",
    "model": "MZQL23T8",
    "vendor": "SAMSUNG",
    "capacity_bytes": 3840755982336,
    "rotational": False,
}
CARD = {"interface_name": "eth0", "kind": "physical", "type": 1, "operstate": "up", "speed_mbps": 200000}
FACTS: dict[str, Any] = {
    "meminfo": {"total_kib": 527951236, "kib": {"MemTotal": 527951236}, "counts": {}},
    "cpuinfo": {"logical_cpus": 192, "model": "AMD EPYC 9654", "sockets": 1, "physical_cores": 96},
    "dmi": {"sys_vendor": "Dell Inc.", "product_name": "PowerEdge R7625"},
    "os_release": {"id": "ubuntu", "version_id": "24.04", "fields": {"NAME": "Ubuntu"}},
    "block": [DISK, {**DISK, "device": "nvme1n1"}],
    "net_class": [CARD, {**CARD, "interface_name": "eth1", "operstate": "down", "speed_mbps": None}],
    "environment": {"settings": {"NCCL_DEBUG": "WARN", "UCX_TLS": ""}, "volatile": {"SLURM_PROCID": "0"}},
    "mountinfo": [
        {
            "mount_point": "/data",
            "fs_type": "lustre",
            "source": "mgs@tcp:/scratch",
            "root": "/",
            "remote": True,
            "mount_options": [],
            "super_options": [],
            "device_number": "0:1",
        }
    ],
    "space": [{"mount_point": "/data", "total_bytes": 2 * 1024**4, "free_bytes": 1, "available_bytes": 1}],
}


def draft_of(sets: Sets) -> Any:
    """The draft for hosts."""
    return draft(RunCase(about="", outcome="", start=sets).run_data())


def test_equal_hosts_are_one_client() -> None:
    """Per-rank variables and device names do not separate hosts; different memory does."""
    other = {**FACTS, "environment": {"settings": {"NCCL_DEBUG": "WARN"}, "volatile": {"SLURM_PROCID": "3"}}}
    other["block"] = [{**DISK, "device": "nvme7n1"}, {**DISK, "device": "nvme3n1"}]
    small = {**FACTS, "meminfo": {"total_kib": 2**28, "kib": {"MemTotal": 2**28}, "counts": {}}}
    clients = draft_of({"n[1-14]": FACTS, "n15": other, "n16": small})["system_under_test"]["clients"]
    assert [client["quantity"].value for client in clients] == [15, 1]
    chassis = clients[0]["chassis"]
    assert {name: chassis[name].value for name in chassis} == {
        "model_name": "PowerEdge R7625",
        "rack_units": None,
        "cpu_model": "AMD EPYC 9654",
        "cpu_qty": 1,
        "cpu_cores": 96,
        "memory_capacity": 503,
        "power": None,
    }
    (drive,) = clients[0]["drives"]
    assert (drive["unit_count"].value, drive["capacity_in_GB"].value, drive["media_type"].origin) == (2, 3841, "ask")
    up, down = sorted(clients[0]["networking"], key=lambda card: card["state"].value, reverse=True)
    assert (up["speed"].value, up["traffic"].origin) == (200, "ask")
    assert "speed" not in down
    assert clients[0]["environment"] == [{"name": Entry("NCCL_DEBUG", "measured"), "value": Entry("WARN", "measured")}]


def test_solution_is_inferred_from_mounts() -> None:
    """Values that follow from mounts are marked as inferred."""
    solution = draft_of({"n[1-2]": FACTS})["system_under_test"]["solution"]
    found = {name: (entry.value, entry.origin) for name, entry in solution["architecture"].items()}
    assert found == {
        "storage_location": ("remote", "inferred"),
        "benchmark_API": (None, "ask"),
        "product_API": ("file", "inferred"),
        "client_footprint": ("open_source", "inferred"),
        "client_installation": ("installable", "inferred"),
    }
    assert solution["usable_capacity_tib"] == Entry(2.0, "inferred", "the size of /data")
    assert solution["capabilities"]["multi_host"].value is True


def test_product_nodes_from_a_record(tmp_path: Path) -> None:
    """Product nodes are a to-do item; from a record of the nodes, they are described and grouped like clients."""
    todo = [line.partition(":")[0] for line in to_do(draft_of({"n[1-2]": FACTS}))]
    assert {"product_nodes", "product_switches", "rack_power_supplies"} <= set(todo)
    for name, hosts in (("run", {"n[1-2]": FACTS}), ("storage", {"s[1-3]": FACTS})):
        snapshot = Snapshot.of("2026-08-01T00:00:00Z", host_results(hosts))
        (tmp_path / f"{name}.json").write_bytes(encode(snapshot))
    file = tmp_path / "system.yaml"
    options = [str(tmp_path / "run.json"), "-o", str(file), "--product", str(tmp_path / "storage.json")]
    done = CliRunner().invoke(command, options)
    assert done.exit_code == 0
    assert "to do    product_nodes[0].chassis.power: " in done.stderr
    assert file.read_text() == rollbook.describe(tmp_path / "run.json", product=tmp_path / "storage.json")
    system = read_yaml(file)["system_under_test"]
    assert [node["quantity"] for node in system["clients"]] == [2]
    assert [node["quantity"] for node in system["product_nodes"]] == [3]
    assert system["product_nodes"][0]["friendly_description"] == "storage node: PowerEdge R7625, AMD EPYC 9654"
    kept, lines = merge_existing(read_yaml(file), draft_of({"n[1-2]": FACTS}))
    assert lines == []
    assert kept["system_under_test"]["product_nodes"].origin == "kept"


def test_cloud_has_no_racks() -> None:
    """Keys that the schema forbids for cloud systems are left out."""
    cloud = {**FACTS, "cloud": {"provider": "aws", "instance_type": "p5.48xlarge"}}
    system = draft_of({"n1": cloud})["system_under_test"]
    assert system["deployment"].value == "cloud"
    assert not {"total_rack_units", "rack_power_supplies", "product_switches"} & set(system)
    assert set(system["clients"][0]["chassis"]) == {
        "model_name",
        "cpu_model",
        "cpu_qty",
        "cpu_cores",
        "memory_capacity",
    }
    assert system["clients"][0]["chassis"]["model_name"].value == "p5.48xlarge"


@pytest.mark.parametrize("text", ["plain", "no", "1e3", 'a"b\\c', "x: y # z", "line\nbreak\x85\u2028", "- -", "ß", ""])
def test_yaml_round_trip(text: str, tmp_path: Path) -> None:
    """Any text from a host reads back unchanged as a value or a key, also beside a comment with that text."""
    tree = {
        "a": {"b": Entry(text, "measured", text)},
        "c": [{"d": Entry(1, "ask"), "e": [Entry(text, "kept")]}],
        text: 1,
    }
    path = tmp_path / "x.yaml"
    path.write_text(yaml_text(tree, "two\nlines"))
    assert read_yaml(path) == {"a": {"b": text}, "c": [{"d": 1, "e": [text]}], text: 1}


def test_existing_file_is_completed_in_a_new_file(tmp_path: Path) -> None:
    """The new file keeps existing values and fills empty ones; differences are reported. The old file stays."""
    (tmp_path / "s.json").write_bytes(encode(Snapshot.of("2026-08-01T00:00:00Z", host_results({"n[1-2]": FACTS}))))
    file = tmp_path / "system.yaml"
    run = CliRunner().invoke
    first = run(command, [str(tmp_path / "s.json"), "-o", str(file)])
    assert first.exit_code == 0
    assert "to do    solution.submission_name: the name of the submission" in first.stderr
    text = file.read_text().replace("submission_name: null", 'submission_name: "ours"')
    text = text.replace("memory_capacity: 503", "memory_capacity: 512").replace("quantity: 2", "quantity: null")
    file.write_text(text + "  site_note: kept\n")
    again = run(command, [str(tmp_path / "s.json"), "-o", str(file)])
    assert again.exit_code == 1
    assert "memory_capacity: 512 in the file, 503 found" in again.stderr
    assert "submission_name" not in again.stderr
    assert file.read_text() == text + "  site_note: kept\n"
    new = read_yaml(tmp_path / "system.yaml.new")["system_under_test"]
    assert new["solution"]["submission_name"] == "ours"
    assert new["site_note"] == "kept"
    assert (new["clients"][0]["chassis"]["memory_capacity"], new["clients"][0]["quantity"]) == (512, 2)


def test_different_number_of_clients_is_reported() -> None:
    """The clients of the file are kept as they are."""
    tree = draft_of({"n1": FACTS})
    whole, lines = merge_existing({"system_under_test": {"clients": [{}, {}]}}, tree)
    assert lines == ["system_under_test.clients: 2 in the file, 1 found"]
    assert whole["system_under_test"]["clients"] == Entry([{}, {}], "kept")
    assert not any(line.startswith("clients") for line in to_do(whole))


def write_traffic(path: Path, *moved: tuple[str, str, int]) -> None:
    """Write the series of interfaces: host, name and the bytes that it received during the run."""
    import duckdb

    (path / "series").mkdir(exist_ok=True)
    rows = ",".join(f"('{host}','{name}',1,1),('{host}','{name}',{size + 1},1)" for host, name, size in moved)
    duckdb.sql(
        f"copy (select * from (values {rows}) t(host, interface_name, rx_bytes, tx_bytes)) "
        f"to '{path / 'series' / 'net_dev.parquet'}' (format parquet)"
    )


def run_at(path: Path | None, sets: Sets | None = None) -> RunData:
    """A run with hosts and a series."""
    return RunData(RecordHosts(started_ns=0, ended_ns=0, start=host_results(sets or {})), path=path)


def test_traffic_roles_follow_the_bytes(tmp_path: Path) -> None:
    """The interface with the most traffic gets the role data; without a readable series there are no roles."""
    run = run_at(tmp_path)
    assert roles_of(run_at(None)) == roles_of(run) == {}
    write_traffic(tmp_path, ("n1", "eth0", 950), ("n1", "eth1", 8), ("n1", "lo", 99999))
    assert roles_of(run) == {"eth0": ["data"], "eth1": ["management"]}
    write_traffic(tmp_path, ("n1", "eth0", 0), ("n1", "eth1", 0))
    assert roles_of(run) == {}
    (tmp_path / "series" / "net_dev.parquet").write_bytes(b"PAR1 no more")
    assert roles_of(run) == {}


def test_cards_below_bonds_and_vlans_carry_the_data(tmp_path: Path) -> None:
    """The traffic of a bond and its VLANs is that of its cards, which are not compared with it."""
    kinds = {"bond0": "bond", "bond0.100": "vlan", "br0": "bridge", **{f"eth{n}": "physical" for n in range(8)}}
    rows = [{"interface_name": name, "kind": kind, "type": 1} for name, kind in kinds.items()]
    sizes = {**dict.fromkeys(kinds, 1000), **{f"eth{n}": 125 for n in range(8)}, "mgmt": 1}
    write_traffic(tmp_path, *(("n1", name, size) for name, size in sizes.items()))
    roles = roles_of(run_at(tmp_path, {"n1": {"net_class": rows}}))
    assert roles == {**{f"eth{n}": ["data"] for n in range(8)}, "mgmt": ["management"]}


def test_an_interface_that_few_hosts_have(tmp_path: Path) -> None:
    """The share is that of a host's traffic: the only interface of two hosts among many carried their data."""
    few = [("a1", "eth0", 500), ("a2", "eth0", 500)]
    write_traffic(tmp_path, *few, *((f"b{n}", "ens5", 500) for n in range(30)), ("b1", "ens6", 2), ("c1", "ens5", 0))
    assert roles_of(run_at(tmp_path)) == {"eth0": ["data"], "ens5": ["data"], "ens6": ["management"]}


def test_date_in_an_existing_file(tmp_path: Path) -> None:
    """YAML parses it as a date, not as a string; it is kept."""
    (tmp_path / "s.json").write_bytes(encode(Snapshot.of("2026-08-01T00:00:00Z", host_results({"n1": FACTS}))))
    (tmp_path / "system.yaml").write_text("system_under_test:\n  available_since: 2026-08-01\n")
    done = CliRunner().invoke(command, [str(tmp_path / "s.json"), "-o", str(tmp_path / "system.yaml")])
    assert done.exit_code == 0, done.output
    assert '"2026-08-01"  # kept' in (tmp_path / "system.yaml.new").read_text()
