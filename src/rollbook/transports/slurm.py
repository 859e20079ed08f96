"""The agent through Slurm: one `srun` step that spans the nodes (srun(1)).

Inside an allocation the step overlaps the job's own steps and takes nothing from them: it shares CPUs, memory and GPUs,
is not bound to any of them, and a node that fails does not end it. Outside of one, srun makes an allocation with the
arguments given for it.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Sequence
from typing import Annotated

from rollbook.errors import AgentFailed, Refused, TransportError, Unreachable, UsageError
from rollbook.hosts import Host, expand, node_lists
from rollbook.transports.launcher import Launcher
from rollbook.transports.options import Option, launcher_arguments
from rollbook.transports.program import run_program

__all__ = ["Slurm", "allocation"]

SECONDS = 20.0
NODE = re.compile(r"^NodeName=(\S+) .*? State=(\S+)(?:.*? Reason=(.*?)[ \t]*$)?", re.MULTILINE)
LABEL = re.compile(rb" *(\d{1,9}): ")
DEAD = {"DOWN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "FUTURE", "UNKNOWN"}
RESERVED = {"MAINTENANCE", "MAINT"}  # for jobs of a reservation
CLOSED = {"DRAIN", "DRAINED", "DRAINING"} | RESERVED  # to new jobs; a running job continues


def allocation() -> str | None:
    """The job whose allocation this process is in, if any."""
    return os.environ.get("SLURM_JOB_ID") or os.environ.get("SLURM_JOBID")


@dataclasses.dataclass(eq=False, kw_only=True)
class Slurm(Launcher):
    """Run the agents with one `srun` step; the user's own arguments take precedence over Rollbook's."""

    slurm_args: Annotated[
        str,
        Option(
            "Arguments for srun, quoted as in a shell; outside a job they request an allocation.",
            metavar="ARGS",
            check=launcher_arguments(r"-[oe]|--(output|error)\b"),
        ),
    ] = ""
    name = "slurm"
    program = "srun"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._args = shlex.split(self.slurm_args)
        self._job = allocation()
        self._closed = CLOSED - RESERVED if any(word.startswith("--reservation") for word in self._args) else CLOSED

    def variables(self) -> tuple[str, str]:
        """The node name tells apart nodes that share a machine."""
        return "SLURM_PROCID", "SLURMD_NODENAME"

    def label(self) -> re.Pattern[bytes]:
        """What `--label` makes srun print; the numbers are aligned."""
        return LABEL

    async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
        """One task on each node."""
        groups = self._groups([host.name for host in hosts])
        argv = ["srun"]
        for number, (group, names) in enumerate(groups):
            argv += [":"] if number else []
            argv += [*_step(names), *([f"--het-group={group}"] if group else []), *self._args, *program]
        return argv

    async def unusable_hosts(self, hosts: Sequence[Host]) -> dict[str, TransportError]:
        """Nodes that are unknown to Slurm, down, or not part of the job: any of them would fail the step."""
        names = [host.name for host in hosts]
        ours = self.nodes()
        unusable: dict[str, TransportError] = {}
        if ours:
            unusable = {name: Refused(f"not one of the nodes of job {self._job}") for name in names if name not in ours}
        try:
            text, ending = await run_program(["scontrol", "-o", "show", "node", ",".join(names)], SECONDS)
        except AgentFailed:
            return unusable  # srun will report what is wrong
        states = {name: (set(re.split(r"[+*]+", state)), state, why) for name, state, why in NODE.findall(text)}
        for name in names:
            if name in states:
                flags, state, why = states[name]
                reason = f"Slurm reports {state}" + (f": {why}" if why else "")
                if flags & DEAD:
                    unusable[name] = Unreachable(reason)
                elif flags & self._closed and not self._job:
                    unusable[name] = Refused(reason)
            elif f"Node {name} not found" in text + ending.stderr:
                unusable[name] = Unreachable("Slurm knows no node with this name")
        return unusable

    def classify(self, message: str) -> type[TransportError]:
        """A failed node is unreachable, an allocation that is not granted is refused."""
        if re.search(r"[Nn]ode failure|not responding|Unable to contact|Communication connection failure", message):
            return Unreachable
        if re.search(r"Unable to (allocate|create step)|[Ii]nvalid (job|account|part)", message):
            return Refused
        return AgentFailed

    def nodes(self) -> dict[str, str]:
        """The nodes of the allocation, each with its group in a heterogeneous job; empty outside of one."""
        if not self._job:
            return {}
        try:
            return {name: group for group, names in node_lists(os.environ).items() for name in expand(names)}
        except UsageError:  # a form that only scontrol reads; srun will report what is wrong
            return {}

    def _groups(self, names: Sequence[str]) -> list[tuple[str, list[str]]]:
        """The hosts by group; a job that is not heterogeneous has one group without a name."""
        nodes = self.nodes()
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(nodes.get(name, ""), []).append(name)
        return list(groups.items())


def _step(names: Sequence[str]) -> list[str]:
    """Options of a step that takes nothing from other steps. They also override SLURM_ variables of a batch script."""
    return [
        "--overlap",
        f"--nodes={len(names)}",
        f"--ntasks={len(names)}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(names)}",
        "--cpus-per-task=1",
        "--cpu-bind=none",
        "--mem-bind=none",
        "--gpu-bind=none",
        "--mem=0",  # what the job has, shared with its other steps
        "--mpi=none",
        "--kill-on-bad-exit=0",
        "--no-kill",
        "--wait=0",
        "--export=ALL",
        "--propagate=NONE",  # limits are facts of the node, not of the machine that starts us
        "--chdir=/",
        "--input=none",
        "--label",
        "--job-name=rollbook",
    ]
