"""Single parts of this machine's record, in the tool's format, from real files or from a directory tree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rollbook.mlpstorage import (
    collect_chassis_model,
    collect_drives,
    collect_environment,
    collect_local_system_info,
    collect_networking,
    collect_sysctl,
)

# Interfaces of containers come and go, so the network cards are compared in a tree of files.
PARTS = {
    "chassis_model": collect_chassis_model,
    "sysctl": collect_sysctl,
    "environment": collect_environment,
    "drives": collect_drives,
}


def write_tree(root: Path, files: dict[str, str]) -> str:
    """Write files below a directory; a text that starts with `-> ` makes a symlink."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text.removeprefix("-> "))
        else:
            path.write_text(text)
    return str(root)


@pytest.mark.parametrize("key", PARTS)
def test_parts_equal_the_record(key: str) -> None:
    """On this machine, a part has the same values as the record."""
    assert PARTS[key]() == collect_local_system_info()[key]


@pytest.mark.parametrize(
    ("text", "model"), [("PowerEdge R760\n", "PowerEdge R760"), ("To Be Filled By O.E.M.\n", ""), (None, "")]
)
def test_chassis_model(tmp_path: Path, text: str | None, model: str) -> None:
    """The model is empty for a placeholder of the vendor, and if the file does not exist."""
    if text is not None:
        (tmp_path / "product_name").write_text(text)
    assert collect_chassis_model(str(tmp_path / "product_name")) == model


def test_networking(tmp_path: Path) -> None:
    """Cards have their state and, if up, their speed; InfiniBand ports count without an IP interface."""
    devices = "-> ../devices/pci0000:00/net"
    net = write_tree(
        tmp_path / "net",
        {
            "../devices/pci0000:00/net/eth0/type": "1\n",
            "../devices/pci0000:00/net/eth0/operstate": "up\n",
            "../devices/pci0000:00/net/eth0/speed": "100000\n",
            "../devices/pci0000:00/net/eth1/type": "1\n",
            "../devices/pci0000:00/net/eth1/operstate": "down\n",
            "../devices/virtual/net/lo/type": "772\n",
            "eth0": f"{devices}/eth0",
            "eth1": f"{devices}/eth1",
            "lo": "-> ../devices/virtual/net/lo",
        },
    )
    ports = write_tree(
        tmp_path / "ib",
        {
            "mlx5_0/ports/1/state": "4: ACTIVE\n",
            "mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            "mlx5_0/ports/1/link_layer": "InfiniBand\n",
            "mlx5_1/ports/1/state": "1: DOWN\n",
            "mlx5_1/ports/1/link_layer": "InfiniBand\n",
            "mlx5_2/ports/1/state": "4: ACTIVE\n",
            "mlx5_2/ports/1/rate": "100 Gb/sec (4X EDR)\n",
            "mlx5_2/ports/1/link_layer": "Ethernet\n",
        },
    )
    found: list[dict[str, Any]] = collect_networking(net, ports)
    assert sorted(found, key=str) == [
        {"type": "ethernet", "state": "down"},
        {"type": "ethernet", "state": "up", "speed": 100},
        {"type": "infiniband", "state": "down"},
        {"type": "infiniband", "state": "up", "speed": 400},
    ]
    assert collect_networking(str(tmp_path / "none"), str(tmp_path / "none")) == []


def test_sysctl(tmp_path: Path) -> None:
    """The default settings, or those that match the patterns; a directory that does not exist has none."""
    root = write_tree(
        tmp_path / "sys", {"vm/dirty_ratio": "20\n", "net/ipv4/tcp_rmem": "4096\t87380\t1\n", "vm/own": "1\n"}
    )
    assert collect_sysctl(root) == [
        {"name": "net.ipv4.tcp_rmem", "value": "4096 87380 1"},
        {"name": "vm.dirty_ratio", "value": "20"},
    ]
    assert collect_sysctl(root, (re.compile(r"vm\..*"),)) == [
        {"name": "vm.dirty_ratio", "value": "20"},
        {"name": "vm.own", "value": "1"},
    ]
    assert collect_sysctl(str(tmp_path / "none")) == collect_sysctl(str(tmp_path / "none"), ()) == []


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables are selected by name, and secrets are masked."""
    for name, value in {"NCCL_DEBUG": "INFO", "BUCKET": "b", "STORAGE_SECRET_KEY": "hush", "HOME_OF": "x"}.items():
        monkeypatch.setenv(name, value)
    found = {row["name"]: row["value"] for row in collect_environment()}
    assert (found["NCCL_DEBUG"], found["BUCKET"]) == ("INFO", "b")
    assert "hush" not in found.values()
    assert "HOME_OF" not in found


def test_drives() -> None:
    """Every row has all four keys, and an interface that the tool knows."""
    for row in collect_drives():
        assert set(row) == {"vendor_name", "model_name", "interface", "capacity_in_GB"}
        assert row["interface"] in ("nvme", "sata", "sas")
