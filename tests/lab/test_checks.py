"""Checks over real hosts: a uniform cluster, and the same cluster with six hosts that differ in one property each."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollbook.testing import Lab, LabHost
from tests.support.commands import ROLLBOOK

QUIET = "0.01 0.01 0.01 1/100 4242\n"  # the machine that runs the tests is busy with them
NFS = (
    "900 1 0:77 / /data rw,relatime shared:9 - nfs4 filer:/data "
    "rw,vers=4.2,rsize={rsize},wsize=1048576,hard,proto=tcp,nconnect=8,clientaddr={address},addr=10.9.9.9\n"
)
# /proc/self/mountinfo differs per process, so no file can be mounted over it: this Python reads another file instead.
PYTHON = """#!/usr/bin/env python3
import os, sys
plain = os.open
os.open = lambda path, *rest: plain("/run/mountinfo" if path == "/proc/self/mountinfo" else path, *rest)
at = sys.argv.index("-c")
code, sys.argv = sys.argv[at + 1], sys.argv[at : at + 1] + sys.argv[at + 2 :]
exec(code)
"""
GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"


def set_up(host: LabHost, *, rsize: int = 1048576, governor: str = "performance") -> None:
    """Give a host the properties of every host of the cluster: a low load, a governor, an NFS mount."""
    mounts = host.run(["cat", "/proc/self/mountinfo"], check=True).stdout
    host.overlay(
        {
            "/proc/loadavg": QUIET,
            GOVERNOR: f"{governor}\n",
            "/run/mountinfo": mounts + NFS.format(rsize=rsize, address=host.address),
        }
    )
    host.programs({"mounted-python": PYTHON})


def check(lab: Lab, *options: str) -> tuple[int, dict[str, Any]]:
    """Run `rollbook check --json` for all hosts of the lab; returns exit code and document."""
    argv = [*ROLLBOOK, "check", "--json", "--fail-on", "warn", "--via", "ssh", "--python", "mounted-python"]
    argv += ["-w", ",".join(lab.names), "--ssh-config", str(lab.ssh_config), *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def findings_by_rule(document: dict[str, Any]) -> dict[str, list[str]]:
    """The hosts of the findings of each rule that has findings."""
    return {
        result["id"]: sorted(host for finding in result["findings"] for host in finding["hosts"])
        for result in document["rules"]
        if result.get("findings")
    }


def test_only_hosts_that_differ_are_found(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """A uniform cluster has no finding; each host that differs is found by one rule, and no other host is."""
    lab = make_lab(16, max_startups="64:30:128", kind="namespaces")
    for host in lab:
        set_up(host)
    code, uniform = check(lab)
    assert (findings_by_rule(uniform), code) == ({}, 0)
    assert uniform["outcomes"]["pass"] > 40

    lab["node02"].mtu(9000)
    meminfo = lab["node04"].run(["cat", "/proc/meminfo"], check=True).stdout
    total = int(re.findall(r"MemTotal:\s+(\d+)", meminfo)[0])
    lab["node04"].overlay({"/proc/meminfo": meminfo.replace(str(total), str(total * 9 // 10))})
    release = lab["node06"].run(["uname", "-r"], check=True).stdout.strip()
    lab["node06"].overlay({"/proc/sys/kernel/osrelease": f"{release}-old\n"})
    set_up(lab["node08"], governor="powersave")
    lab["node10"].overlay({"/etc/machine-id": lab["node11"].run(["cat", "/etc/machine-id"]).stdout})
    set_up(lab["node12"], rsize=65536)

    code, differing = check(lab)
    assert code == 1
    assert findings_by_rule(differing) == {
        "mtu-mismatch": ["node02"],
        "memory-mismatch": ["node04"],
        "kernel-mismatch": ["node06"],
        "governor-mismatch": ["node08"],
        "machine-id-duplicate": ["node10", "node11"],
        "shared-mount-mismatch": ["node12"],
    }
    results = [result for result in differing["rules"] if result.get("findings")]
    messages = {result["id"]: result["findings"][0]["message"] for result in results}
    assert messages["mtu-mismatch"] == "net_class eth0: mtu 1500 bytes on 15 of 16 hosts; 9000 bytes on node02"
    mount = "shared_mounts /data: super_options rsize=1048576 on 15 of 16 hosts; rsize=65536 on node12"
    assert messages["shared-mount-mismatch"] == mount

    silence = tmp_path / "silence.toml"
    silence.write_text(
        "".join(
            f'[[silence]]\nrule = "{rule}"\nhosts = "{",".join(hosts)}"\nreason = "known"\nuntil = 2999-12-31\n'
            for rule, hosts in findings_by_rule(differing).items()
        )
    )
    code, silenced = check(lab, "--silence", str(silence))
    assert (code, findings_by_rule(silenced)) == (0, findings_by_rule(differing))
