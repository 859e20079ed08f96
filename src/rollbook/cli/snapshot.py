"""`rollbook snapshot`: read the facts of every host once."""

from __future__ import annotations

import datetime as dt
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from rollbook.clean import clean, count_text
from rollbook.cli.live import gather_live
from rollbook.cli.options import OUTPUT, RECORDING, complete, json_option, option, refuse_given, sign_option
from rollbook.cli.output import coverage_line, print_failures, print_hosts, print_json, size
from rollbook.cli.reach import Reach, ReachCommand, reach_options
from rollbook.cli.recording import share_option
from rollbook.errors import ExitCode, UsageError
from rollbook.files import BY_UMASK, output_path, require_utf8, write_file
from rollbook.protocol.plan import Plan
from rollbook.records.cluster import HostInfo
from rollbook.records.document import Snapshot, encode
from rollbook.records.hosts import HostResult
from rollbook.records.layout import RecordDirectory
from rollbook.records.signing import sign as sign_record
from rollbook.records.signing import try_key
from rollbook.sources import catalogue
from rollbook.sources.amdgpu import AmdGpu
from rollbook.sources.block import Block
from rollbook.sources.identity import Identity
from rollbook.sources.infiniband import Port
from rollbook.sources.net_class import Interface
from rollbook.sources.nvidia_smi import Gpu
from rollbook.times import iso_time

__all__ = ["command"]

OTHER_FORMATS = (".yaml", ".yml", ".csv", ".txt", ".html", ".parquet")
HEADINGS = ("status", "os", "kernel", "cpu", "memory", "disks", "network", "RDMA", "GPUs")


@click.command("snapshot", cls=ReachCommand)
@option(
    "-o",
    "--output",
    heading=OUTPUT,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="With a name ending in .json, the file to write; otherwise a results directory for a record.",
)
@sign_option
@share_option
@json_option
@option(
    "--source",
    "names",
    heading=RECORDING,
    multiple=True,
    metavar="NAME",
    shell_complete=complete(lambda: [source.name for source in catalogue.load()]),
    help="Read this source only; may be repeated.",
)
@click.option("--list-sources", is_flag=True, help="List all sources.")
@reach_options
def command(
    reach: Reach,
    *,
    output: Path | None,
    sign: Path | None,
    share: bool,
    as_json: bool,
    names: tuple[str, ...],
    list_sources: bool,
) -> None:
    """Read the facts of every host once: hardware, kernel, settings, mounts, devices, limits, counters.

    Every requested host is in the result with its status and, if it failed, the reason.
    """
    if list_sources:
        refuse_given(("output", "sign", "share", "as_json", "names", "hosts"), "--list-sources reads no hosts")
        for source in catalogue.load():
            click.echo(f"{source.name:24} {source.summary}")
        return
    sources = [catalogue.source(name) for name in names] or catalogue.load()
    for flag, given in (("--sign", sign is not None), ("--share", share)):
        if given and (output is None or output.suffix == ".json"):
            raise UsageError(f"{flag} needs a record: give -o with a results directory")
    if sign is not None:
        try_key(sign)
    if output is not None:
        _must_be_writable(output)
    now = dt.datetime.now(dt.UTC)
    results, interrupted = gather_live(reach, Plan.of(sources))
    snapshot = Snapshot.of(iso_time(now), results)
    if output is not None:
        _write(output, snapshot, now, sign, share=share)
    if as_json:
        print_json(snapshot)
    else:
        _show(results)
    print_failures(results)
    click.echo(coverage_line(snapshot.coverage), err=True)
    sys.exit(ExitCode.INTERRUPTED if interrupted else snapshot.coverage.exit_code)


def _must_be_writable(output: Path) -> None:
    """Raise `UsageError` before the hosts are contacted, not after."""
    require_utf8(output, "the path of the output")
    if output.suffix in OTHER_FORMATS and not output.is_dir():
        raise UsageError(f"cannot write {output}: a snapshot is a .json file, or a record in a results directory")
    directory = output.parent if output.suffix == ".json" else output
    if output.suffix == ".json" and output.is_dir():
        raise UsageError(f"cannot write to {output}: it is a directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {error.strerror}") from error


def _write(output: Path, snapshot: Snapshot, now: dt.datetime, key: Path | None, *, share: bool) -> None:
    if output.suffix == ".json":
        with output_path(output) as file:
            write_file(file, encode(snapshot), mode=BY_UMASK)
        click.echo(f"written to {clean(output)}", err=True)
        return
    directory = RecordDirectory.create(output, "snapshot", now, share=share)
    names = [host.name for host in snapshot.hosts]
    directory.write_snapshot(snapshot.hosts, now, coverage=snapshot.coverage, host_names=names)
    directory.write_manifest()
    if key is not None:
        sign_record(directory.path, key)
    click.echo(f"record in {clean(directory.path)}", err=True)


def _show(hosts: Sequence[HostResult]) -> None:
    """Print a table with the columns that some host has a value for."""
    cells = [_cells(host) for host in hosts]
    shown = [at for at in range(len(HEADINGS)) if at == 0 or any(row[at] for row in cells)]
    rows = [(host.name, [row[at] for at in shown]) for host, row in zip(hosts, cells, strict=True)]
    print_hosts(("host", *(HEADINGS[at] for at in shown)), rows)


def _cells(host: HostResult) -> tuple[str, ...]:
    """The cells of one host; unknown ones are empty."""
    known, identity = HostInfo.of(host), host.fact(Identity)
    devices = (_disks(host), _network(host), _rdma(host), _gpus(host))
    if known is None:
        return (host.status, "", identity.kernel_release if identity else "", "", "", *devices)
    release = known.system.os_release if known.system else {}
    memory = size(known.memory.total)
    if known.memory.limit is not None:
        memory += f" (limit {size(known.memory.limit)})"
    return (
        host.status,
        f"{release.get('ID', '')} {release.get('VERSION_ID', '')}".strip(),
        identity.kernel_release if identity else "",
        _cpu(known),
        memory,
        *devices,
    )


def _cpu(known: HostInfo) -> str:
    if known.cpu is None:
        return ""
    sockets = f"{known.cpu.num_sockets} × " if known.cpu.num_sockets else ""
    cores = f"{count_text(known.cpu.num_cores, 'core')}, " if known.cpu.num_cores else ""
    threads = count_text(known.cpu.num_logical_cores, "thread")
    return f"{sockets}{known.cpu.model or known.cpu.architecture}, {cores}{threads}"


def _disks(host: HostResult) -> str:
    disks = [block for block in host.rows(Block) if block.kind == "disk"]
    return f"{len(disks)} × {size(sum(d.capacity_bytes or 0 for d in disks) / len(disks))}" if disks else ""


def _rdma(host: HostResult) -> str:
    """The active RDMA ports by rate: `8 × 400 Gb/s, 1 down`."""
    ports = host.rows(Port)
    rates = Counter(port.rate_gbps for port in ports if (port.state or "").endswith("ACTIVE"))
    found = [f"{count} × {rate:g} Gb/s" if rate else count_text(count, "port") for rate, count in rates.items()]
    down = len(ports) - rates.total()
    return ", ".join([*found, *([f"{down} down"] if down else [])])


def _gpus(host: HostResult) -> str:
    """The GPUs by model: `8 × NVIDIA H100 80GB HBM3`."""
    models = Counter(gpu.name or "NVIDIA" for gpu in host.rows(Gpu))
    models.update(f"AMD {size(gpu.vram_total)}" if gpu.vram_total else "AMD" for gpu in host.rows(AmdGpu))
    return ", ".join(f"{count} × {model}" for model, count in models.items())


def _network(host: HostResult) -> str:
    """The fastest link that is up, and its MTU."""
    links = [i for i in host.rows(Interface) if i.operstate == "up" and i.kind not in ("loopback", "bridge")]
    if not links:
        return ""
    best = max(links, key=lambda link: link.speed_mbps or 0)
    speed = f"{best.speed_mbps / 1000:g} Gb/s, " if best.speed_mbps else ""
    mtu = f"MTU {best.mtu}" if best.mtu else ""
    return f"{best.interface_name}: {speed}{mtu}".rstrip(", :")
