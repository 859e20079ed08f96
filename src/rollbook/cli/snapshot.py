"""`rollbook snapshot`: facts of every host, now."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import click

from rollbook.clean import clean
from rollbook.cli.live import gather_live
from rollbook.cli.options import OUTPUT, RECORDING, option, sign_option
from rollbook.cli.output import coverage_line, failures, size, table
from rollbook.cli.reach import Reach, ReachCommand, reach_options
from rollbook.errors import UsageError
from rollbook.files import write_file
from rollbook.protocol.plan import Plan
from rollbook.records.cluster import HostInfo
from rollbook.records.document import Snapshot, encode
from rollbook.records.hosts import HostResult
from rollbook.records.layout import Leaf
from rollbook.records.signing import sign as sign_manifest
from rollbook.records.signing import try_key
from rollbook.sources import catalogue
from rollbook.sources.block import Block
from rollbook.sources.identity import Identity
from rollbook.sources.net_class import Interface
from rollbook.times import iso_time

__all__ = ["command"]

HEADINGS = ("host", "status", "os", "kernel", "cpu", "memory", "disks", "network")


@click.command("snapshot", cls=ReachCommand)
@option(
    "-o",
    "--output",
    heading=OUTPUT,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A name ending in .json: the document as one file; otherwise a results directory for a record.",
)
@sign_option
@option("--json", "as_json", heading=OUTPUT, is_flag=True, help="One JSON document on stdout.")
@option(
    "--source",
    "names",
    heading=RECORDING,
    multiple=True,
    metavar="NAME",
    help="Read only these sources; may be repeated.",
)
@click.option("--list-sources", "listed", is_flag=True, help="List the sources that can be read.")
@reach_options
def command(
    reach: Reach, *, output: Path | None, sign: Path | None, as_json: bool, names: tuple[str, ...], listed: bool
) -> None:
    """Read the facts of every host once: hardware, kernel, settings, mounts, devices, limits, counters.

    Every host asked for is in the result with its own status and, where it failed, the reason.
    """
    if listed:
        for source in catalogue.load():
            click.echo(f"{source.name:24} {source.summary}")
        return
    sources = [catalogue.source(name) for name in names] or catalogue.load()
    if sign is not None and (output is None or output.suffix == ".json"):
        raise UsageError("only a record can be signed: --sign needs -o with a results directory")
    if sign is not None:
        try_key(sign)
    if output is not None:
        _must_be_writable(output)
    now = dt.datetime.now(dt.UTC)
    records, interrupted = gather_live(reach, Plan.of(sources))
    snapshot = Snapshot.of(iso_time(now), records)
    if output is not None:
        _write(output, snapshot, now, sign)
    if as_json:
        click.echo(encode(snapshot), nl=False)
    else:
        table(HEADINGS, [(record.name, _cells(record)) for record in records])
    failures(records)
    click.echo(coverage_line(snapshot.coverage), err=True)
    sys.exit(130 if interrupted else snapshot.coverage.exit_code)


def _must_be_writable(output: Path) -> None:
    """Fail before the hosts are asked, not after."""
    directory = output.parent if output.suffix == ".json" else output
    if output.suffix == ".json" and output.is_dir():
        raise UsageError(f"cannot write to {output}: it is a directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".rollbook.part"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {error.strerror}") from error


def _write(output: Path, snapshot: Snapshot, now: dt.datetime, key: Path | None) -> None:
    if output.suffix == ".json":
        write_file(output, encode(snapshot))
        click.echo(f"written to {clean(output)}", err=True)
        return
    leaf = Leaf.make(output, "snapshot", now)
    leaf.write_snapshot(
        snapshot,
        {
            "benchmark_type": "snapshot",
            "run_datetime": leaf.stamp,
            "num_processes": snapshot.cluster.num_hosts,
            "parameters": {},
            "result_dir": str(leaf.path),
        },
    )
    if key is not None:
        sign_manifest(leaf.path / "manifest.json", key)
    click.echo(f"record in {clean(leaf.path)}", err=True)


def _cells(host: HostResult) -> tuple[str, ...]:
    """One line about a host, as much of it as is known."""
    known, identity = HostInfo.of(host), host.fact(Identity)
    if known is None:
        return (host.status, "", identity.kernel_release if identity else "", "", "", "", "")
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
        _disks(host),
        _network(host),
    )


def _cpu(known: HostInfo) -> str:
    if known.cpu is None:
        return ""
    sockets = f"{known.cpu.num_sockets} × " if known.cpu.num_sockets else ""
    cores = f"{known.cpu.num_cores} cores, " if known.cpu.num_cores else ""
    return f"{sockets}{known.cpu.model or known.cpu.architecture}, {cores}{known.cpu.num_logical_cores} threads"


def _disks(host: HostResult) -> str:
    disks = [block for block in host.rows(Block) if block.kind == "disk"]
    return f"{len(disks)} × {size(sum(d.capacity_bytes or 0 for d in disks) / len(disks))}" if disks else ""


def _network(host: HostResult) -> str:
    """The fastest link that is up, and its MTU."""
    links = [i for i in host.rows(Interface) if i.operstate == "up" and i.kind not in ("loopback", "bridge")]
    if not links:
        return ""
    best = max(links, key=lambda link: link.speed_mbps or 0)
    speed = f"{best.speed_mbps / 1000:g} Gb/s, " if best.speed_mbps else ""
    return f"{best.interface_name}: {speed}MTU {best.mtu}"
