"""Environment variables for MPI, network and accelerators, by allow-list, secrets masked on the host."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Order, Pages, Source, columns, info, same
from rollbook.sources.text import lines_of

_PREFIXES = (
    "AWS_DEFAULT_REGION AWS_ENDPOINT_URL AWS_REGION BUCKET CUDA_ DLIO_ FI_ GLOO_ GPU_ HIP_ HSA_ I_MPI_ KMP_ MASTER_ "
    "MIOPEN_ MKL_ MPICH_ MPI_ MV2_ NCCL_ NUMEXPR_ NVIDIA_ NVSHMEM_ OFI_ OMPI_ OMP_ OPENBLAS_ PALS_ PMIX_ PMI_ PSM "
    "PYTORCH_ RCCL_ RDMAV_ ROCR_ SHARP_ SLURMD_ SLURM_ STORAGE_ TORCH_ UCC_ UCX_ WORLD_SIZE XLA_"
)
PREFIXES = tuple(_PREFIXES.split())
# Variables whose value depends on the rank, the host or the launch.
VOLATILE = re.compile(
    r".*(_RANK|RANKID|_LOCALID|_NODEID|_NODENAME|_PROCID|_PID|_HOSTNAME|_TMPDIR)"
    r"|OMPI_(COMM_WORLD|MCA_(ess|orte|prte|pmix)|FILE_LOCATION|FIRST_RANKS|UNIVERSE)_.*"
    r"|(PMIX|PMI|PALS)_.*"
    r"|SLURM_(JOB_?ID|JOB_(START|END)_TIME|JOB_GPUS|GPUS_ON|GTIDS|CPU_BIND|MEM_BIND|TOPOLOGY|STEP|SRUN|LAUNCH).*"
)
# Device ids, which differ on every host.
OWN_DEVICE = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}")


class Environment(Facts):
    """Variables by name. `volatile` are those that differ between ranks or launches of one job."""

    settings: Annotated[dict[str, str], columns(same())]
    volatile: Annotated[dict[str, str], columns(info())]


def parse(pages: Pages) -> Environment:
    r"""`NAME=value` lines; in values `\n` is a newline and `\\` a backslash."""
    settings: dict[str, str] = {}
    volatile: dict[str, str] = {}
    for line in lines_of(pages["environment"]):
        name, equals, escaped = line.partition("=")
        if not equals:
            raise ParseError(f"not a variable: {line[:80]!r}")
        value = re.sub(r"\\([n\\])", lambda escape: "\n" if escape[1] == "n" else "\\", escaped)
        own = VOLATILE.fullmatch(name) or OWN_DEVICE.search(value)
        (volatile if own else settings)[name] = value
    return Environment(settings, volatile)


SOURCE = Source((Order("env", PREFIXES),), parse, Environment)
