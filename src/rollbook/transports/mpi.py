"""The agent through an MPI launcher: Open MPI 4 and 5, MPICH's Hydra, HPE's PALS.

Only the launcher is used. The agent is a plain program: no MPI library, no mpi4py, no shared directory, no staged
file. It is not bound to any CPU, and an agent that dies does not end the others.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from rollbook import agent
from rollbook.errors import AgentFailed, TransportError
from rollbook.hosts import Host
from rollbook.transports.launcher import Launcher
from rollbook.transports.options import Option, launcher_arguments
from rollbook.transports.program import run_program
from rollbook.transports.ssh import FAILURES

__all__ = ["Mpi", "family_of"]

SECONDS = 10.0
PARALLEL = 32  # ssh clients started at once to look up addresses
AGENTS = ("plm_rsh_agent", "plm_ssh_agent", "-launcher-exec")  # arguments that name the login program


class Family(NamedTuple):
    """A kind of launcher: what its `--version` prints, its options for hosts, and the variable with an agent's rank.

    `label` matches what its options make it put before each line of output, with the rank as its group.
    """

    name: str
    version: str
    rank: str
    options: Callable[[Sequence[str]], list[str]]
    root: str = ""
    more_than_slots: str = ""
    label: re.Pattern[bytes] | None = None


def _one_each(hosts: Sequence[str]) -> list[str]:
    places = ",".join(f"{host}:1" for host in hosts)
    return ["-np", str(len(hosts)), "--host", places, "--map-by", "node", "--bind-to", "none"]


def _open_mpi_4(hosts: Sequence[str]) -> list[str]:
    # mpirun(1) of 4.1: a rank that fails or is killed ends all others unless both are given.
    return [
        *_one_each(hosts), "--mca", "orte_abort_on_non_zero_status", "0", "--enable-recovery", "--tag-output",
        "-x", agent.TOKEN,
    ]  # fmt: skip


def _open_mpi_5(hosts: Sequence[str]) -> list[str]:
    # prterun(1): the same, as runtime options.
    return [
        *_one_each(hosts), "--runtime-options", "error-nonzero-status=false,recoverable", "--output", "tag",
        "-x", agent.TOKEN,
    ]  # fmt: skip


def _hydra(hosts: Sequence[str]) -> list[str]:
    # Its daemons fail in a working directory that the hosts do not have.
    return [
        "-n", str(len(hosts)), "-ppn", "1", "-hosts", ",".join(hosts), "-bind-to", "none", "-disable-auto-cleanup",
        "-genvall", "-prepend-rank", "-wdir", "/",
    ]  # fmt: skip


def _pals(hosts: Sequence[str]) -> list[str]:
    # mpiexec(1) of PALS: by default it copies the program to the nodes, and ends all ranks when one fails.
    return [
        "-n", str(len(hosts)), "--ppn", "1", "--hosts", ",".join(hosts), "--cpu-bind", "none", "--mem-bind", "none",
        "--envall", "--no-transfer", "--no-abort-on-failure", "--line-buffer",
    ]  # fmt: skip


OUTPUT = r"--?(output|tag-output|timestamp-output|xml|(out|err)file-pattern|prepend-pattern)"
"""Options of Open MPI and Hydra for the output of processes: files, and other labels than ours."""
OPEN_MPI_LABEL = re.compile(rb"\[\d+,(\d{1,9})\]<std(?:out|err)>: ?")
HYDRA_LABEL = re.compile(rb"\[(\d{1,9})\] ")

# PALS comes last: its version line names only mpiexec.
FAMILIES = (
    Family("Open MPI 5", r"\((Open MPI|PRRTE)\) [5-9]\.", "OMPI_COMM_WORLD_RANK", _open_mpi_5,
           "--allow-run-as-root", "--oversubscribe", OPEN_MPI_LABEL),
    Family("Open MPI 4", r"\((Open MPI|OpenRTE)\) [34]\.", "OMPI_COMM_WORLD_RANK", _open_mpi_4,
           "--allow-run-as-root", "--oversubscribe", OPEN_MPI_LABEL),
    Family("MPICH Hydra", r"HYDRA build details", "PMI_RANK", _hydra, label=HYDRA_LABEL),
    Family("HPE PALS", r"PALS|^mpiexec version \d", "PALS_RANKID", _pals),
)  # fmt: skip


def family_of(version: str) -> Family | None:
    """The kind of launcher whose `--version` prints this, if it is supported."""
    return next((family for family in FAMILIES if re.search(family.version, version)), None)


@dataclasses.dataclass(eq=False, kw_only=True)
class Mpi(Launcher):
    """Run the agents with an MPI launcher; the user's own arguments follow Rollbook's."""

    mpi_bin: Annotated[str, Option("MPI launcher: Open MPI 4 or 5, MPICH, PALS.", metavar="PROGRAM")] = "mpirun"
    mpi_args: Annotated[
        str,
        Option(
            "Arguments for the MPI launcher, quoted as in a shell.", metavar="ARGS", check=launcher_arguments(OUTPUT)
        ),
    ] = ""
    allow_run_as_root: Annotated[bool, Option("Let Open MPI run as root.")] = False
    oversubscribe: Annotated[bool, Option("Let Open MPI start more processes than a host has slots.")] = False
    name = "mpi"
    messages_apply_to_all = False  # what ssh prints may be about any of the hosts

    def __post_init__(self) -> None:
        super().__post_init__()
        self.program = self.mpi_bin.rpartition("/")[2]
        self._args = shlex.split(self.mpi_args)
        self._family: Family | None = None

    def variables(self) -> tuple[str, str]:
        """MPI launchers set no variable with the node's name."""
        assert self._family is not None
        return self._family.rank, ""

    def label(self) -> re.Pattern[bytes] | None:
        """What the family's launcher prints; None for PALS."""
        return self._family.label if self._family else None

    async def unusable_hosts(self, hosts: Sequence[Host]) -> dict[str, TransportError]:
        """None; finds out what kind of launcher it is, and raises `AgentFailed` if it is not supported."""
        del hosts
        if self._family is None:
            text, ending = await run_program([self.mpi_bin, "--version"], SECONDS)
            self._family = family_of(text + ending.stderr)
            if self._family is None:
                first = next(iter((text + ending.stderr).strip().splitlines()), "nothing")
                supported = ", ".join(family.name for family in FAMILIES)
                raise AgentFailed(
                    f"{self.mpi_bin} is not a supported launcher ({supported}); its --version prints: {first[:200]}"
                )
        return {}

    async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
        """One process on each host, in their order."""
        family = self._family
        assert family is not None
        names = [f"{host.user}@{host.name}" if host.user else host.name for host in hosts]
        extra = [
            option
            for option, on in ((family.root, self.allow_run_as_root), (family.more_than_slots, self.oversubscribe))
            if on and option
        ]
        return [self.mpi_bin, *family.options(names), *extra, *self._args, *program]

    async def addresses(self, hosts: Sequence[Host]) -> dict[str, str]:
        """What the launcher's ssh makes of each name: an alias of ssh_config(5) is an address in its messages."""
        limit = asyncio.Semaphore(PARALLEL)
        ssh = next((self._args[at + 1] for at, word in enumerate(self._args[:-1]) if word in AGENTS), "ssh")

        async def resolve(name: str) -> str:
            async with limit:
                text, _ = await run_program([*shlex.split(ssh), "-G", "--", name], SECONDS)
            found = re.search(r"^hostname (\S+)$", text, re.MULTILINE)
            return found[1] if found and found[1] != name else ""

        try:
            resolved = await asyncio.gather(*(resolve(host.name) for host in hosts))
        except (TransportError, OSError):  # another login program, which has no such option
            return {}
        return {host.name: address for host, address in zip(hosts, resolved, strict=True) if address}

    def classify(self, message: str) -> type[TransportError]:
        """Most launchers log in by ssh and pass on its messages."""
        return next((kind for pattern, kind, _ in FAILURES if re.search(pattern, message)), AgentFailed)

    def advice(self, message: str) -> str:
        """Open MPI's own advice about root is many lines further down."""
        return " Add --allow-run-as-root if you are sure." if "attempt to run as root" in message else ""
