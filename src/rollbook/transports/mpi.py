"""The agent through an MPI launcher: Open MPI 4 and 5, MPICH's Hydra, HPE's PALS.

Only the launcher is used. The agent is a plain program: no MPI library, no mpi4py, no shared directory, no staged
file. It is bound to nothing, and one that dies does not end the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rollbook import agent
from rollbook.errors import AgentFailed, TransportError
from rollbook.hosts import Host
from rollbook.transports.launcher import Launcher
from rollbook.transports.program import ask
from rollbook.transports.ssh import MEANINGS

__all__ = ["Family", "Mpi", "family_of"]

SECONDS = 10.0


class Family(NamedTuple):
    """A kind of launcher: what its `--version` says, its options for hosts, and where an agent finds its rank."""

    name: str
    version: str
    rank: str
    options: Callable[[Sequence[str]], list[str]]
    root: str = ""
    more_than_slots: str = ""


def _one_each(hosts: Sequence[str]) -> list[str]:
    places = ",".join(f"{host}:1" for host in hosts)
    return ["-np", str(len(hosts)), "--host", places, "--map-by", "node", "--bind-to", "none"]


def _open_mpi_4(hosts: Sequence[str]) -> list[str]:
    # mpirun(1) of 4.1: a rank that fails or is killed ends all others unless both of these are said.
    return [
        *_one_each(hosts), "--mca", "orte_abort_on_non_zero_status", "0", "--enable-recovery", "-x", agent.TOKEN,
    ]  # fmt: skip


def _open_mpi_5(hosts: Sequence[str]) -> list[str]:
    # prterun(1): the same, as runtime options.
    return [
        *_one_each(hosts), "--runtime-options", "error-nonzero-status=false,recoverable", "-x", agent.TOKEN,
    ]  # fmt: skip


def _hydra(hosts: Sequence[str]) -> list[str]:
    return [
        "-n", str(len(hosts)), "-ppn", "1", "-hosts", ",".join(hosts), "-bind-to", "none", "-disable-auto-cleanup",
        "-genvall",
    ]  # fmt: skip


def _pals(hosts: Sequence[str]) -> list[str]:
    # mpiexec(1) of PALS: by default it copies the program to the nodes, and ends all ranks when one fails.
    return [
        "-n", str(len(hosts)), "--ppn", "1", "--hosts", ",".join(hosts), "--cpu-bind", "none", "--mem-bind", "none",
        "--envall", "--no-transfer", "--no-abort-on-failure", "--line-buffer",
    ]  # fmt: skip


# PALS comes last: its version line names no more than mpiexec.
FAMILIES = (
    Family("Open MPI 5", r"\((Open MPI|PRRTE)\) [5-9]\.", "OMPI_COMM_WORLD_RANK", _open_mpi_5,
           "--allow-run-as-root", "--oversubscribe"),
    Family("Open MPI 4", r"\((Open MPI|OpenRTE)\) [34]\.", "OMPI_COMM_WORLD_RANK", _open_mpi_4,
           "--allow-run-as-root", "--oversubscribe"),
    Family("MPICH Hydra", r"HYDRA build details", "PMI_RANK", _hydra),
    Family("HPE PALS", r"PALS|^mpiexec version \d", "PALS_RANKID", _pals),
)  # fmt: skip


def family_of(version: str) -> Family | None:
    """The kind of launcher that answers so to `--version`."""
    return next((family for family in FAMILIES if re.search(family.version, version)), None)


class Mpi(Launcher):
    """Runs the agent with `binary`; `args` are the user's own for it and come after ours."""

    name = "mpi"
    speaks_for_all = False  # what ssh says may be about any of the hosts

    def __init__(
        self,
        binary: str = "mpirun",
        args: Sequence[str] = (),
        *,
        allow_run_as_root: bool = False,
        oversubscribe: bool = False,
        python: str | None = None,
        connect_back: str | None = None,
        patience: float = 40.0,
    ) -> None:
        super().__init__(python=python, connect_back=connect_back, patience=patience)
        self.program = binary.rpartition("/")[2]
        self._binary, self._args = binary, list(args)
        self._root, self._more = allow_run_as_root, oversubscribe
        self._family: Family | None = None

    def variables(self) -> tuple[str, str]:
        """Its node's name an agent has only from the host itself."""
        assert self._family is not None
        return self._family.rank, ""

    async def screen(self, hosts: Sequence[Host]) -> dict[str, TransportError]:
        """Find out what kind of launcher it is before it is needed."""
        del hosts
        if self._family is None:
            text, ending = await ask([self._binary, "--version"], SECONDS)
            self._family = family_of(text + ending.stderr)
            if self._family is None:
                first = next(iter((text + ending.stderr).strip().splitlines()), "nothing")
                known = ", ".join(family.name for family in FAMILIES)
                raise AgentFailed(
                    f"{self._binary} is of no kind known here ({known}); its --version says: {first[:200]}"
                )
        return {}

    async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
        """One process on each host, in their order."""
        family = self._family
        assert family is not None
        names = [f"{host.user}@{host.name}" if host.user else host.name for host in hosts]
        extra = [
            option for option, on in ((family.root, self._root), (family.more_than_slots, self._more)) if on and option
        ]
        return [self._binary, *family.options(names), *extra, *self._args, *program]

    def meaning(self, words: str) -> type[TransportError]:
        """Most launchers log in by ssh, and pass on what it says."""
        return next((kind for pattern, kind, _ in MEANINGS if re.search(pattern, words)), AgentFailed)
