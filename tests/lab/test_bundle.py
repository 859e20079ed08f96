"""`rollbook bundle` over real sshd: what could be collected is there, and every node has a status and a reason."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

from rollbook.testing import Lab
from tests.lab.test_snapshot import arguments, nothing_left

ITEMS = """
[lab-hang]
title = "A command that hangs and ignores SIGTERM"
commands = ["trap '' TERM INT HUP; echo begun; sleep 1000 & wait; sleep 1000"]
when = { paths = ["/etc/lab-hang"] }
seconds = 2

[lab-drop]
title = "The session is killed halfway"
commands = ["kill -9 $(ps -o ppid= $(ps -o ppid= $PPID)); sleep 30"]
when = { paths = ["/etc/lab-drop"] }
priority = 4
"""
LINE = "2026-11-16T05:00:00.000000+00:00 node kernel: line {} of a long log\n"
LOG = 2 << 30


def summary_of(path: Path) -> dict[str, Any]:
    """The summary of a bundle, after every file in it was compared with its hash."""
    summary: dict[str, Any] = json.loads((path / "summary.json").read_bytes())
    for node in summary["results"]:
        for item in node.get("items", []):
            for file in item.get("files", []):
                data = (path / file["path"]).read_bytes()
                assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"]), file
    return summary


def items_of(node: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The items of a node by id."""
    return {item["id"]: item for item in node["items"]}


def test_every_kind_of_node(lab: Lab, tmp_path: Path) -> None:
    """Nodes that hang, are full, have huge logs, cannot be reached or disconnect affect only themselves."""
    healthy, hanging, full, large, dropping, *_ = lab.hosts
    hanging.overlay({"/etc/lab-hang": ""})
    full.run(["sh", "-c", "mount -t tmpfs -o size=64k none /tmp; cat /dev/zero > /tmp/full"])
    large.run(["mount", "-t", "tmpfs", "none", "/var/log"], check=True)
    end = "".join(LINE.format(number) for number in range(500_000))
    large.run(["sh", "-c", f"truncate -s {LOG} /var/log/syslog; cat >> /var/log/syslog"], input=end, check=True)
    dropping.overlay({"/etc/lab-drop": ""})
    (tmp_path / "items.toml").write_text(ITEMS)
    names = [host.name for host in (healthy, hanging, full, large, dropping)]
    output = tmp_path / "results"
    done = subprocess.run(
        arguments(lab, "bundle", [*names, "nosuch.invalid"], "-o", str(output), "--items", str(tmp_path / "items.toml"),
                  "--command", "printf '%s\\n' 'a  \"b\"' | tr a c", "--timeout", "90"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    [path] = (output / "bundle").iterdir()
    summary = summary_of(path)
    nodes = {node["node"]: node for node in summary["results"]}
    assert {name: node["status"] for name, node in nodes.items()} == {
        healthy.name: "complete",
        hanging.name: "partial",
        full.name: "complete",
        large.name: "complete",
        dropping.name: "partial",
        "nosuch.invalid": "unreachable",
    }, done.stderr
    for node in nodes.values():
        assert node["status"] == "complete" or node["reason"]
    assert (path / items_of(nodes[healthy.name])["command-1"]["files"][0]["path"]).read_text() == 'c  "b"\n'
    hang = items_of(nodes[hanging.name])["lab-hang"]
    assert hang["status"] == "timed-out"
    assert (path / hang["files"][0]["path"]).read_text() == "begun\n"
    log = items_of(nodes[large.name])["system-log"]
    assert log["status"] == "truncated"
    text = (path / log["files"][0]["path"]).read_text()
    assert text.endswith(LINE.format(499_999))
    assert text.startswith("2026-11-16")
    dropped = items_of(nodes[dropping.name])
    assert sum(item["status"] in {"complete", "absent"} for item in dropped.values()) > 20
    assert "ended early" in nodes[dropping.name]["reason"] or "gone" in nodes[dropping.name]["reason"]
    nothing_left(lab.hosts)

    (tmp_path / "items.toml").unlink()
    dropping.run(["umount", "/etc/lab-drop"])
    again = subprocess.run(
        [*arguments(lab, "bundle", [dropping.name], "--resume", str(path))], capture_output=True, text=True, check=False
    )
    resumed = {node["node"]: node for node in summary_of(path)["results"]}
    assert again.returncode == 3, again.stderr
    assert len(resumed) == 6


def test_a_bundle_is_a_snapshot(lab: Lab, tmp_path: Path) -> None:
    """Diff, check, describe and verify read a bundle; the archive holds all of it, with modes for its owner only."""
    names = [host.name for host in lab.hosts[:2]]
    done = subprocess.run(
        arguments(lab, "bundle", names, "-o", str(tmp_path), "--item", "os"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [path] = (tmp_path / "bundle").iterdir()
    assert {oct(one.stat().st_mode & 0o777) for one in path.rglob("*") if one.is_file()} == {"0o600"}
    assert {oct(one.stat().st_mode & 0o777) for one in [path, *path.rglob("*")] if one.is_dir()} == {"0o700"}
    rollbook = arguments(lab, "", [])[:3]
    for command in (["verify"], ["describe"], ["check"]):
        ran = subprocess.run([*rollbook, *command, str(path)], capture_output=True, text=True, check=False)
        assert ran.returncode in {0, 1}, (command, ran.stderr)
    one, other = (f"{path}:{name}" for name in names)
    ran = subprocess.run([*rollbook, "diff", one, other], capture_output=True, text=True, check=False)
    assert ran.returncode in {0, 1}, ran.stderr
