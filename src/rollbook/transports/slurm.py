"""The agent through Slurm: one `srun` step that spans the nodes (srun(1)).

Inside an allocation the step lies over the job's own steps and takes nothing from them: with `--overlap` it shares
CPUs, memory and GPUs, it is bound to nothing, and a node that fails does not end it. Outside of one, the arguments
given for it go to an allocation of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from rollbook.errors import AgentFailed, Refused, TransportError, Unreachable, UsageError
from rollbook.hosts import Host, expand, node_lists
from rollbook.transports.launcher import Launcher
from rollbook.transports.program import ask

__all__ = ["Slurm", "allocation"]

SECONDS = 20.0
NODE = re.compile(r"^NodeName=(\S+) .*? State=(\S+)(?:.*? Reason=(.*?))?\s*$", re.MULTILINE)
DEAD = {"DOWN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "FUTURE", "UNKNOWN"}
CLOSED = {"DRAIN", "DRAINED", "DRAINING", "MAINTENANCE", "MAINT"}  # to new jobs; one that runs there goes on


def allocation(environ: Mapping[str, str]) -> str | None:
    """The job whose allocation we are in, if we are in one."""
    return environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")


class Slurm(Launcher):
    """Runs the agent with `srun`; `args` are the user's own for it, and win over ours."""

    name = "slurm"
    program = "srun"

    def __init__(
        self,
        args: Sequence[str] = (),
        *,
        python: str | None = None,
        connect_back: str | None = None,
        patience: float = 40.0,
    ) -> None:
        super().__init__(python=python, connect_back=connect_back, patience=patience)
        self._args = list(args)
        self._job = allocation(os.environ)

    def variables(self) -> tuple[str, str]:
        """Several nodes may share a machine; the node name is what tells them apart."""
        return "SLURM_PROCID", "SLURMD_NODENAME"

    async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
        """One task on each node."""
        groups = self._groups([host.name for host in hosts])
        argv = ["srun"]
        for number, (group, names) in enumerate(groups):
            argv += [":"] if number else []
            argv += [*_step(names), *([f"--het-group={group}"] if group else []), *self._args, *program]
        return argv

    async def screen(self, hosts: Sequence[Host]) -> dict[str, TransportError]:
        """Nodes that Slurm does not know, that are down, or that are not ours: any of them would fail the step."""
        names = [host.name for host in hosts]
        ours = self.nodes()
        barred: dict[str, TransportError] = {}
        if ours:
            barred = {name: Refused(f"not one of the nodes of job {self._job}") for name in names if name not in ours}
        try:
            text, ending = await ask(["scontrol", "-o", "show", "node", ",".join(names)], SECONDS)
        except AgentFailed:
            return barred  # srun has words of its own for whatever is wrong
        states = {name: (set(re.split(r"[+*]+", state)), state, why) for name, state, why in NODE.findall(text)}
        for name in names:
            if name in states:
                flags, state, why = states[name]
                said = f"Slurm says {state}" + (f": {why}" if why else "")
                if flags & DEAD:
                    barred[name] = Unreachable(said)
                elif flags & CLOSED and not self._job:
                    barred[name] = Refused(said)
            elif f"Node {name} not found" in text + ending.stderr:
                barred[name] = Unreachable("Slurm knows no node of that name")
        return barred

    def meaning(self, words: str) -> type[TransportError]:
        """A node that failed is unreachable, an allocation not granted is refused."""
        if re.search(r"[Nn]ode failure|not responding|Unable to contact|Communication connection failure", words):
            return Unreachable
        return (
            Refused
            if re.search(r"Unable to (allocate|create step)|[Ii]nvalid (job|account|part)", words)
            else AgentFailed
        )

    def nodes(self) -> dict[str, str]:
        """The nodes of the allocation we are in, each with its group in a heterogeneous job."""
        if not self._job:
            return {}
        try:
            return {name: group for group, names in node_lists(os.environ).items() for name in expand(names)}
        except UsageError:  # a form that only scontrol knows; srun will say what is wrong
            return {}

    def _groups(self, names: Sequence[str]) -> list[tuple[str, list[str]]]:
        """The hosts by group; a job that is not heterogeneous is one without a name."""
        nodes = self.nodes()
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(nodes.get(name, ""), []).append(name)
        return list(groups.items())


def _step(names: Sequence[str]) -> list[str]:
    """Options of a step that takes nothing from others. They also undo what a batch script's variables ask for."""
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
        "--propagate=NONE",  # limits are facts of the node, not of the place we start from
        "--chdir=/",
        "--input=none",
        "--job-name=rollbook",
    ]
