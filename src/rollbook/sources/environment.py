"""The environment's settings for MPI, network and accelerators, by allow-list, secrets masked on the host."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Ask, Facts, Pages, Source, columns, info, same
from rollbook.sources.text import lines_of

_PREFIXES = (
    "AWS_DEFAULT_REGION AWS_ENDPOINT_URL AWS_REGION BUCKET CUDA_ DLIO_ FI_ GLOO_ GPU_ HIP_ HSA_ I_MPI_ KMP_ MASTER_ "
    "MIOPEN_ MKL_ MPICH_ MPI_ MV2_ NCCL_ NUMEXPR_ NVIDIA_ NVSHMEM_ OFI_ OMPI_ OMP_ OPENBLAS_ PALS_ PMIX_ PMI_ PSM "
    "PYTORCH_ RCCL_ RDMAV_ ROCR_ SHARP_ SLURMD_ SLURM_ STORAGE_ TORCH_ UCC_ UCX_ WORLD_SIZE XLA_"
)
PREFIXES = tuple(_PREFIXES.split())
# Names whose value belongs to one rank, one host or one launch.
VOLATILE = re.compile(
    r".*(_RANK|RANKID|_LOCALID|_NODEID|_NODENAME|_PROCID|_PID|_HOSTNAME|_TMPDIR)"
    r"|OMPI_(COMM_WORLD|MCA_(ess|orte|prte|pmix)|FILE_LOCATION|FIRST_RANKS|UNIVERSE)_.*"
    r"|(PMIX|PMI|PALS)_.*"
    r"|SLURM_(JOB_?ID|JOB_(START|END)_TIME|JOB_GPUS|GPUS_ON|GTIDS|CPU_BIND|MEM_BIND|TOPOLOGY|STEP|SRUN|LAUNCH).*"
)
# Devices by serial number: no two hosts have the same.
OWN_DEVICE = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}")


class Environment(Facts):
    """Variables by name. `volatile` are those that differ between the ranks or launches of one job."""

    settings: Annotated[dict[str, str], columns(same())]
    volatile: Annotated[dict[str, str], columns(info())]


def parse(pages: Pages) -> Environment:
    r"""`NAME=value` lines, with `\n` for a newline in a value and `\\` for a backslash."""
    settings: dict[str, str] = {}
    volatile: dict[str, str] = {}
    for line in lines_of(pages["environment"]):
        name, equals, written = line.partition("=")
        if not equals:
            raise ParseError(f"not a variable: {line[:80]!r}")
        value = re.sub(r"\\([n\\])", lambda escape: "\n" if escape[1] == "n" else "\\", written)
        own = VOLATILE.fullmatch(name) or OWN_DEVICE.search(value)
        (volatile if own else settings)[name] = value
    return Environment(settings, volatile)


SOURCE = Source((Ask("env", PREFIXES),), parse, Environment)
