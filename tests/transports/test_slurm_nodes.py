"""Nodes that are excluded from a step by their state in Slurm: any of them would fail the step for all others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rollbook.errors import TransportError
from rollbook.hosts import Host
from rollbook.transports.slurm import Slurm

NODE = (
    "NodeName={name} CoresPerSocket=1 CPUAlloc=0 RealMemory=1 State={state} ThreadsPerCore=1 Weight=1 Partitions=all "
    "BootTime=None SlurmdStartTime=None CfgTRES=cpu=1,mem=1M CurrentWatts=0 AveWatts=0{reason} "
)
REASON = "   Reason=bad disk [root@2026-11-15T03:33:00]"
UNREACHABLE, REFUSED = "unreachable", "refused"


def unusable(tmp_path: Path, listed: str, names: list[str], arguments: str = "") -> dict[str, TransportError]:
    """The nodes that are excluded if scontrol prints this list."""
    (tmp_path / "nodes").write_text(listed)
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\ncat {tmp_path}/nodes\n")
    (tmp_path / "scontrol").chmod(0o755)
    return asyncio.run(Slurm(slurm_args=arguments).unusable_hosts([Host(name) for name in names]))


@pytest.mark.parametrize(
    ("node", "statuses", "text"),
    [
        (("IDLE", ""), (None, None), ""),
        (("IDLE+CLOUD", REASON), (None, None), ""),
        (("DOWN*+DRAIN", REASON), (UNREACHABLE, UNREACHABLE), "DOWN*+DRAIN: bad disk [root@2026-11-15T03:33:00]"),
        (("IDLE+DRAIN", REASON), (None, REFUSED), "IDLE+DRAIN: bad disk [root@2026-11-15T03:33:00]"),
        (("IDLE+POWERED_DOWN", ""), (UNREACHABLE, UNREACHABLE), "IDLE+POWERED_DOWN"),
        (("UNKNOWN", ""), (UNREACHABLE, UNREACHABLE), "UNKNOWN"),
        (("FUTURE", ""), (UNREACHABLE, UNREACHABLE), "FUTURE"),
        (("IDLE+NOT_RESPONDING", ""), (UNREACHABLE, UNREACHABLE), "IDLE+NOT_RESPONDING"),
        (("IDLE+MAINT", ""), (None, REFUSED), "IDLE+MAINT"),
    ],
)
def test_node_states(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    node: tuple[str, str],
    statuses: tuple[str | None, str | None],
    text: str,
) -> None:
    """A node's state decides whether it is excluded, inside a job and outside of one; other nodes are not affected."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_JOBID", raising=False)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    nodes = [("n1", "IDLE", ""), ("n2", *node), ("n3", "IDLE", REASON)]
    listed = "\n".join(NODE.format(name=name, state=state, reason=reason) for name, state, reason in nodes) + "\n"
    for job, expected in zip(("7", ""), statuses, strict=True):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        found = unusable(tmp_path, listed, ["n1", "n2", "n3"])
        assert {name: (error.status, str(error)) for name, error in found.items()} == (
            {"n2": (expected, f"Slurm reports {text}")} if expected else {}
        )


def test_maintenance_reservation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--reservation`, nodes in maintenance can be used, but drained nodes cannot."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    states = {"n1": "IDLE+MAINT", "n2": "IDLE+DRAIN+MAINT"}
    listed = "\n".join(NODE.format(name=name, state=state, reason="") for name, state in states.items())
    assert list(unusable(tmp_path, listed, ["n1", "n2"])) == ["n1", "n2"]
    assert list(unusable(tmp_path, listed, ["n1", "n2"], "--reservation=service")) == ["n2"]
