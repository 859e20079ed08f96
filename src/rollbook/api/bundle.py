"""Issue reports: diagnostic evidence from every node."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import msgspec

from rollbook.agent.redaction import MASK
from rollbook.api.options import (
    TransportOptions,
    as_list,
    check_fanout,
    hosts_of,
    require_no_event_loop,
    transport_keywords,
)
from rollbook.bundle.archive import require_packer
from rollbook.bundle.cluster_items import ClusterOptions
from rollbook.bundle.collect import TIMEOUT, CollectOptions, Reach, collect
from rollbook.bundle.directory import BundleDirectory
from rollbook.bundle.finish import finish
from rollbook.bundle.items import Item, catalogue, command_item, load, select
from rollbook.bundle.kubernetes import SECONDS as KUBECTL_SECONDS
from rollbook.bundle.reading import archive_suffix
from rollbook.bundle.request import Limits, Request
from rollbook.bundle.summary import BundleSummary, Window
from rollbook.errors import UsageError
from rollbook.files import require_utf8
from rollbook.hosts import Host
from rollbook.records.findings import Findings
from rollbook.records.signing import try_key
from rollbook.transports.base import FANOUT
from rollbook.transports.registry import AUTO, options_of
from rollbook.transports.routing import Options, fallback_route, route, usable_options

__all__ = [
    "Bundle",
    "BundleOptions",
    "make_request",
    "parse_time",
    "resume_request",
    "run_bundle",
    "take_bundle",
    "take_bundle_async",
]

AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Bundle(NamedTuple):
    """An issue report: its directory or archive, what it contains, and its findings or why there are none.

    Names in `summary` and `findings` are those in the report, replaced if it is obfuscated.
    """

    path: Path
    summary: BundleSummary
    findings: Findings | None
    problem: str = ""


class BundleOptions(TransportOptions, total=False):
    """Options of `take_bundle`.

    `output` is a results directory (default: `results`) or an archive (`.tar.zst`, `.tar.gz`). `items`, `tags` and
    `skip` select items by id and tag, `item_files` are TOML files with more items, `commands` are shell commands to
    run. `since` and `until` limit logs to a time window. `limits` are those of a node and of the run. `sign` is an ssh
    key for the manifest, `fanout` the number of nodes read in parallel (default: 64). `obfuscate` is the file for the
    map of names and addresses that are replaced, and `once=False` leaves out what is read once for the cluster.
    `kube_context` is the context of kubectl that is read for the cluster, with any transport. `start_timeout` is the
    time for the first answer of a node in seconds (default: `timeout`), `kubectl_timeout` that for all kubectl calls.
    """

    output: Path | str
    items: str | Sequence[str]
    tags: str | Sequence[str]
    skip: str | Sequence[str]
    item_files: str | Path | Sequence[str | Path]
    commands: str | Sequence[str]
    since: dt.datetime | str | None
    until: dt.datetime | str | None
    limits: Limits | None
    sign: Path | str | None
    obfuscate: Path | str | None
    start_timeout: float | None
    kubectl_timeout: float
    once: bool
    fanout: int


def parse_time(value: dt.datetime | str | None, now: dt.datetime) -> dt.datetime | None:
    """A time: `2h` (ago; s, m, h, d), or ISO 8601, local without a zone. Raises `UsageError`."""
    if value is None or isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC) if value else None
    try:
        if found := AGO.fullmatch(value.strip()):
            return now - dt.timedelta(seconds=float(found[1]) * UNITS[found[2]])
        return dt.datetime.fromisoformat(value.strip()).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{value!r} is not a time: write 2h for two hours ago, or 2026-11-16T05:00") from None


def make_request(
    hosts: Sequence[Host],
    *,
    items: Sequence[str] = (),
    tags: Sequence[str] = (),
    skip: Sequence[str] = (),
    item_files: Sequence[Path] = (),
    commands: Sequence[str] = (),
    since: dt.datetime | str | None = None,
    until: dt.datetime | str | None = None,
    limits: Limits | None = None,
) -> Request:
    """What is to be collected, checked; raises `UsageError`."""
    now = dt.datetime.now(dt.UTC)
    window = Window(parse_time(since, now), parse_time(until, now))
    if window.since and window.until and window.since >= window.until:
        raise UsageError("the time window is empty: --since is not before --until")
    known: list[Item] = [*catalogue(), *(item for file in item_files for item in load(file))]
    chosen = select(known, ids=items, tags=tags, skip=skip)
    ordered = sorted([*chosen, *_command_items(commands)], key=lambda item: item.priority)
    names = [f"{host.user}@{host.name}" if host.user else host.name for host in hosts]
    return Request(nodes=names, items=ordered, window=window, limits=limits or Limits())


def _command_items(commands: Sequence[str]) -> list[Item]:
    for command in commands:
        require_utf8(command, "a command")
    return [command_item(number, command) for number, command in enumerate(commands, 1)]


def resume_request(directory: BundleDirectory, commands: Sequence[str] = ()) -> Request:
    """The request of a bundle with its commands; those that contained secrets must be given again (`UsageError`)."""
    given = {item.id: item for item in _command_items(commands)}
    items = [given.get(item.id, item) for item in directory.request.items]
    masked = [item.id for item in items if item not in catalogue() and MASK in "".join(map(str, item.commands))]
    if masked:
        instead = "give all --command options again" if masked[0].startswith("command-") else "start a new bundle"
        raise UsageError(f"{masked[0]} contained a secret, which is not stored in a bundle: {instead}")
    return msgspec.structs.replace(directory.request, items=items)


async def run_bundle(
    directory: BundleDirectory,
    request: Request,
    hosts: Sequence[Host],
    reach: Reach,
    *,
    names: Path | None = None,
    sign: Path | None = None,
    archive: Path | None = None,
    **options: Unpack[CollectOptions],
) -> Bundle:
    """Collect into a directory, and complete it; `names` is the map of obfuscated names."""
    await collect(directory, request.items, hosts, reach, **options)
    path, summary, findings, problem = finish(directory, names=names, key=sign, archive=archive)
    return Bundle(path, summary, findings, problem)


async def take_bundle_async(hosts: str | Sequence[str] = (), **options: Unpack[BundleOptions]) -> Bundle:
    """Collect an issue report from every host; without hosts, from this machine.

    A node that fails is in the summary with its reason. Raises `UsageError` for values that cannot be used, and
    `RecordError` if the bundle cannot be written.
    """
    transport = {"timeout": TIMEOUT, **transport_keywords(options, BundleOptions)}
    context, kubectl = _kube_context(transport), options.get("kubectl_timeout", KUBECTL_SECONDS)
    start = options.get("start_timeout")
    for name, seconds in (("start_timeout", start), ("kubectl_timeout", kubectl)):
        if seconds is not None and not 1 <= seconds < math.inf:
            raise UsageError(f"{name} must be at least 1 second, not {seconds}")
    requested, reach = hosts_of(hosts), Options.of(**transport)
    files = options.get("item_files", ())
    request = make_request(
        requested,
        items=as_list(options.get("items", ())),
        tags=as_list(options.get("tags", ())),
        skip=as_list(options.get("skip", ())),
        item_files=[Path(file) for file in ([files] if isinstance(files, str | Path) else files)],
        commands=as_list(options.get("commands", ())),
        since=options.get("since"),
        until=options.get("until"),
        limits=options.get("limits"),
    )
    output, key = Path(options.get("output", "results")), options.get("sign")
    require_utf8(output, "the path of the output")
    require_packer(output)
    if key is not None:
        try_key(Path(key))
    directory = BundleDirectory.create(output, request, requested, dt.datetime.now(dt.UTC))
    return await run_bundle(
        directory,
        request,
        requested,
        Reach(route(reach), fallback_route(reach), reach.timeout, check_fanout(options.get("fanout", FANOUT)), start),
        cluster=ClusterOptions.of(reach, enabled=options.get("once", True), context=context, seconds=kubectl),
        names=Path(names) if (names := options.get("obfuscate")) else None,
        sign=Path(key) if key else None,
        archive=output if archive_suffix(output) else None,
    )


def _kube_context(transport: dict[str, Any]) -> str:
    """The context of kubectl to read, which is left among the options of a transport only if it is one of its own."""
    if not (given := transport.get("kube_context")):
        return ""
    if "kube_context" not in usable_options(transport.get("via", AUTO), transport.get("fallback")):
        del transport["kube_context"]
    return str(options_of("kube")["kube_context"].validate(given))


def take_bundle(hosts: str | Sequence[str] = (), **options: Unpack[BundleOptions]) -> Bundle:
    """As `take_bundle_async`, for code without an event loop."""
    require_no_event_loop("rollbook.take_bundle", "await rollbook.take_bundle_async(...)")
    return asyncio.run(take_bundle_async(hosts, **options))
