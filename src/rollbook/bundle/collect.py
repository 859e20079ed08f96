"""Collects an issue report: one connection per node for facts and items, every item written as it arrives."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import re
import time
from collections.abc import Sequence
from typing import Protocol, TypedDict, Unpack

from rollbook.agent.item_timeout import BUSY
from rollbook.bundle.cluster_items import DEFECTS, PARTS, ClusterOptions, merge_items, read_cluster
from rollbook.bundle.delivery import Delivery, Parcel, Sender, reserved
from rollbook.bundle.directory import BundleDirectory, NodeState
from rollbook.bundle.items import Item
from rollbook.bundle.mark_key import forget_key
from rollbook.bundle.receive import NodeFiles, Redaction, Space
from rollbook.bundle.request import MIB, orders
from rollbook.bundle.summary import BundleSummary, ItemResult, ItemStatus, NodeResult, NodeStatus
from rollbook.collect.budget import Budget, Meter
from rollbook.collect.file_limit import raise_limit
from rollbook.collect.gather import Conclusion, conclude, fan_out, greet_and_read, result_of
from rollbook.collect.session import Listener, Session
from rollbook.errors import RecordError, RollbookError
from rollbook.files import temporary_directory
from rollbook.hosts import Host
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.visit import cost_of, to_int
from rollbook.records.hosts import HostResult
from rollbook.sources import catalogue
from rollbook.times import iso_time
from rollbook.transports.base import FANOUT, Route, Transport

__all__ = ["TIMEOUT", "CollectOptions", "Reach", "collect"]

TIMEOUT = 300.0  # default seconds for each node
LEAVING = 5.0  # seconds before the timeout of a node at which its agent stops and sends what it has
SUMMARY_EVERY = 5.0  # seconds between two versions of the summary, and at least 20 times what writing it takes
INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")


@dataclasses.dataclass(frozen=True)
class Reach:
    """How nodes are reached; `timeout` is the time for each in seconds, `start_timeout` for its agent to answer."""

    route: Route
    fallback: Route | None = None
    timeout: float = TIMEOUT
    fanout: int = FANOUT
    start_timeout: float | None = None


class Progress(Protocol):
    """Called while nodes are read; must not raise."""

    def begun(self, host: Host) -> None:
        """The collector starts to connect to the node."""

    def item(self, node: str, item: ItemResult) -> None:
        """An item of a node is finished."""

    def finished(self, result: NodeResult) -> None:
        """The node is finished, with or without success."""


class _Quiet:
    def begun(self, host: Host) -> None: ...
    def item(self, node: str, item: ItemResult) -> None: ...
    def finished(self, result: NodeResult) -> None: ...


class CollectOptions(TypedDict, total=False):
    """Options of `collect`.

    `cluster` selects what is read once (default: nothing), and `delivery` is how archives of nodes get into S3. When
    `stop` is set, nodes end with what they have.
    """

    cluster: ClusterOptions
    delivery: Delivery | None
    progress: Progress
    stop: asyncio.Event


async def collect(
    directory: BundleDirectory,
    items: Sequence[Item],
    hosts: Sequence[Host],
    reach: Reach,
    **options: Unpack[CollectOptions],
) -> BundleSummary:
    """Read what is missing in the bundle from the hosts; returns the summary, which is also written.

    `items` are those of the request with their commands unmasked. Raises `RecordError` if the bundle cannot be written.
    """
    return await _Run(directory, items, reach, options).all(hosts)


class _Run:
    """One run of the collector."""

    def __init__(
        self, directory: BundleDirectory, items: Sequence[Item], reach: Reach, options: CollectOptions
    ) -> None:
        self._directory, self._items, self._reach = directory, items, reach
        self._cluster = options.get("cluster", ClusterOptions(enabled=False))
        self._delivery = options.get("delivery")
        self._progress, self._stop = options.get("progress", _Quiet()), options.get("stop", asyncio.Event())
        self._limits = directory.request.limits
        self._plan = Plan.of(catalogue.load())
        self._salt = directory.mark_key()
        self._space = Space(directory.path, self._limits.run_bytes, self._limits.free_bytes)
        self._why_stopped = ""
        self._changed = False

    async def all(self, hosts: Sequence[Host]) -> BundleSummary:
        pending = [host for host in hosts if self._needs(self._directory.nodes[host.name])]
        raise_limit(2 * min(self._reach.fanout, len(pending)))
        writer = asyncio.create_task(self._write_summaries())
        once = asyncio.create_task(self._read_cluster())
        timer = asyncio.get_running_loop().call_later(
            self._limits.run_seconds,
            self._halt,
            f"the time limit of this run, {self._limits.run_seconds:g} s, is reached",
        )
        try:
            self._check_space()
            await fan_out(
                pending,
                self._reach.route,
                self,
                timeout=self._reach.timeout,
                fanout=self._reach.fanout,
                progress=self,
                stop=self._stop,
                fallback=self._reach.fallback,
            )
            stopped = asyncio.create_task(self._stop.wait())
            await asyncio.wait([once, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
        finally:
            timer.cancel()
            once.cancel()
            writer.cancel()
            await asyncio.wait([writer, once])
            for node in self._directory.nodes.values():
                if node.result.status == "not-tried":
                    node.result.reason = self._why_stopped or "interrupted before it was started"
            summary = self._directory.write_summary(interrupted=self._stop.is_set())
            unread = any(item.status in DEFECTS for item in self._directory.cluster)
            if not unread and not any(map(self._needs, self._directory.nodes.values())):
                forget_key(self._directory.request.id)
        return summary

    async def _read_cluster(self) -> None:
        """Read what is read once, unless an earlier run did; what that had read and this one cannot read stays."""
        known = self._directory.cluster
        if not self._cluster.enabled or (known and all(item.status not in DEFECTS for item in known)):
            return
        window, salt = self._directory.request.window, self._salt.encode()
        try:
            found, cluster = await read_cluster(
                self._directory.path, list(self._directory.nodes), self._cluster, salt=salt, window=window
            )
        except asyncio.CancelledError:
            self._miss_cluster("not-read", self._why_stopped or "interrupted")
            raise
        except (RecordError, OSError) as error:
            self._halt(str(error))
            self._miss_cluster("failed", str(error))
            return
        except Exception as error:  # noqa: BLE001 - any error affects only this part
            self._miss_cluster("failed", f"unexpected: {error!r}")
            return
        self._directory.cluster, self._changed = merge_items(known, found), True
        kinds = [kind for kind in PARTS for item in self._directory.cluster if item.files and item.id.startswith(kind)]
        if kinds and not self._directory.cluster_id:  # a cluster's service knows its type better
            self._directory.cluster_type = kinds[0]
        if cluster is not None:
            self._directory.identify(cluster)

    def _miss_cluster(self, status: ItemStatus, reason: str) -> None:
        """Report the cluster as not read, unless an earlier run read a part: it must not look as if there were none."""
        if not self._directory.cluster:
            self._directory.cluster = [ItemResult(id=part, status=status, reason=reason) for part in PARTS]
            self._changed = True

    def _needs(self, node: NodeState) -> bool:
        """Whether the node must be read, even if only its regular end is missing."""
        return node.facts is None or node.result.status != "complete" or bool(self._directory.missing_items(node))

    def _halt(self, reason: str) -> None:
        """End the run: nodes keep what they have."""
        self._why_stopped = self._why_stopped or reason
        self._stop.set()

    def _check_space(self) -> None:
        try:
            self._space.check()
        except RecordError as error:
            self._halt(str(error))

    async def _write_summaries(self) -> None:
        """Write the summary regularly, so that a killed run leaves a recent one."""
        pause = SUMMARY_EVERY
        while True:
            await asyncio.sleep(pause)
            if self._changed:
                self._changed, began = False, time.monotonic()
                with contextlib.suppress(RecordError):  # the disk is full: the last version stays
                    self._directory.write_summary(interrupted=True)
                pause = max(SUMMARY_EVERY, 20 * (time.monotonic() - began))

    def _orders(self, items: Sequence[Item], seconds: float, archive: Sequence[str] = ()) -> bytes:
        seconds = max(1.0, seconds - LEAVING - (reserved(seconds) if archive else 0.0))
        window, size = self._directory.request.window, self._limits.node_bytes
        return orders(items, window, seconds=seconds, size=size, salt=self._salt, archive=archive)

    def unstarted(self, host: Host, reason: str) -> HostResult:
        """The result of a node that was not contacted."""
        return HostResult(name=host.name, status="failed", reason=reason)

    def script(self) -> bytes:
        """The orders for agents that cannot be sent any."""
        return (
            self._plan.orders() + b"go\tnow\nthen\n" + self._orders(self._items, self._reach.timeout) + b"then\nstop\n"
        )

    async def visit(
        self, host: Host, transport: Transport, timeout: float, stop: asyncio.Event
    ) -> tuple[HostResult, bool]:
        """Read facts and missing items of one node. Returns its facts, and whether a retry makes sense."""
        node = self._directory.nodes[host.name]
        wanted = set(self._directory.missing_items(node))
        items = [item for item in self._items if item.id in wanted]
        began, at = time.monotonic(), dt.datetime.now(dt.UTC)
        files = NodeFiles(
            self._directory.node_path(node),
            node.relative,
            items,
            space=self._space,
            node_bytes=self._limits.node_bytes,
            on_item=lambda item, redactions: self._keep(node, item, redactions),
        )
        plan = self._plan if node.facts is None else Plan(())
        with contextlib.ExitStack() as stack:
            parcel = self._parcel(node, stack)
            session = Session(host, transport, plan, self._listener(files, parcel), Meter(self._budget(plan)))

            async def visit() -> None:
                async with session:
                    await greet_and_read(session, self._reach.start_timeout)
                    if plan.sources:
                        await self._keep_facts(node, session, at, began)
                    if items:
                        await self._read(session, items, parcel, began + timeout)
                    await session.stop()

            ended = await conclude(session, visit(), timeout, stop)
            if parcel is not None and parcel.exists:
                ended = await self._unpack(parcel, items, files) or ended
        if self._why_stopped and stop.is_set():
            ended = Conclusion("failed", self._why_stopped)
        if node.facts is None and session.visit.readings:
            await self._keep_facts(node, session, at, began, ended)
        if not ended.busy:  # otherwise the node is tried again
            files.finish(ended.reason or "lost in transit")
            node.unlisted += files.unlisted
            self._end(node, ended, session, at, began, parcel=parcel)
        return node.facts or await result_of(session.visit, "now", ended.status, ended.reason), ended.busy

    def _parcel(self, node: NodeState, stack: contextlib.ExitStack) -> Parcel | None:
        """The archive that the node will make; it is removed with the stack unless a copy is to be kept."""
        if self._delivery is None:
            return None
        instance, group = self._directory.member(node.host.name)
        sender = Sender(node.host.name, group, instance, node.relative)
        try:
            path = self._delivery.copy_of(sender)
            if path is None:
                path = stack.enter_context(temporary_directory(self._directory.path.resolve().parent)) / "archive"
        except OSError as error:
            self._halt(f"cannot create a file for the archive of a node: {error.strerror}")
            return None
        return Parcel(self._delivery, sender, path, self._limits.node_bytes)

    async def _unpack(self, parcel: Parcel, items: Sequence[Item], files: NodeFiles) -> Conclusion | None:
        """Take the items from the archive of a node; returns why that fails."""
        try:
            self._space.check()
            await parcel.unpack(items, files)
        except (RollbookError, OSError) as error:
            if isinstance(error, RecordError):  # ours, not the node's
                self._halt(str(error))
            return Conclusion("failed", str(error))
        return None

    async def _read(self, session: Session, items: Sequence[Item], parcel: Parcel | None, until: float) -> None:
        """Read the items in the way that their delivery needs."""

        def make(archive: Sequence[str] = ()) -> bytes:
            return self._orders(items, until - time.monotonic(), archive)

        if parcel is None:
            await session.read_items(make())
        else:
            await parcel.read(session, make, until - LEAVING)

    def _listener(self, files: NodeFiles, parcel: Parcel | None) -> Listener:
        def listen(_arrived: int, frame: Frame) -> None:
            if (parcel is not None and parcel.listen(frame)) or frame.kind != "I" or self._why_stopped:
                return
            try:
                files.take(frame.payload)
            except RecordError as error:  # ours, not the node's
                self._halt(str(error))

        return listen

    def begun(self, host: Host) -> None:
        """A node is started."""
        self._progress.begun(host)

    def done(self, result: HostResult) -> None:
        """A host is done; one that was always busy has no result of its own yet."""
        node = self._directory.nodes[result.name]
        if node.result.status == "not-tried" and not self._stop.is_set():
            node.result = NodeResult(node=result.name, status=result.status, reason=result.reason, error=result.reason)
        self._progress.finished(node.result)

    def _keep(self, node: NodeState, item: ItemResult, redactions: list[Redaction]) -> None:
        self._changed = True
        before = node.items.get(item.id)
        if item.status == "not-read" and before is not None and before.files:
            return  # what an earlier run read stays
        with contextlib.suppress(RecordError):  # the disk is full: the summary has it
            self._directory.keep(node, item=item, redactions=redactions)
        self._progress.item(node.host.name, item)

    async def _keep_facts(
        self, node: NodeState, session: Session, at: dt.datetime, began: float, ended: Conclusion | None = None
    ) -> None:
        session.visit.lost = session.decoder.lost
        ended = ended or Conclusion("complete")
        result = await result_of(session.visit, "now", ended.status, ended.reason)
        result.seconds = round(time.monotonic() - began, 4)
        result.collected_at = iso_time(at)
        if result.gave_data:
            self._directory.keep(node, host=result)

    def _end(
        self,
        node: NodeState,
        ended: Conclusion,
        session: Session,
        at: dt.datetime,
        began: float,
        *,
        parcel: Parcel | None,
    ) -> None:
        status, reason = _verdict(node, ended, len(self._items))
        if stuck := to_int(session.visit.goodbye.get("stuck")):
            processes = "process is" if stuck == 1 else "processes are"
            reason = "; ".join(filter(None, [reason, f"{stuck} {processes} stuck in the kernel of the node"]))
        if node.facts is not None and session.visit.goodbye:
            node.facts.cost = cost_of(session.visit.goodbye)
        answered = not self._items or any(item.status not in DEFECTS for item in node.items.values())
        success = status in ("complete", "partial") and answered
        result = NodeResult(
            node=node.host.name,
            status=status,
            reason=reason,
            started=at,
            ended=dt.datetime.now(dt.UTC),
            instance_id=node.host.name if INSTANCE.fullmatch(node.host.name) else "",
            success=success,
            output=parcel.tail if parcel else "",
            error="" if status == "complete" else (parcel.tail if parcel else "") or reason,
            elapsed=round(time.monotonic() - began, 3),
            archive=parcel.archive if parcel and parcel.is_delivered else None,
        )
        self._changed = True
        with contextlib.suppress(RecordError):
            self._directory.end(node, result)

    def _budget(self, plan: Plan) -> Budget:
        """What a node may send: facts, and the items within the limit of the node, even as base64."""
        facts, size = Budget.of(plan, 0), self._limits.node_bytes
        return dataclasses.replace(
            facts,
            bytes_per_second=facts.bytes_per_second + MIB,
            burst_bytes=facts.burst_bytes + 1.5 * size + 16 * MIB,
            frames_per_second=2000.0,
            burst_frames=50_000.0,
            total_bytes=facts.total_bytes + 1.5 * size + 16 * MIB,
        )


def _verdict(node: NodeState, ended: Conclusion, requested: int) -> tuple[NodeStatus, str]:
    """Status and reason of a node: partial if some of its items were not read, or facts only."""
    defects = [item for item in node.items.values() if item.status in DEFECTS]
    read = [item for item in node.items.values() if item.files]
    missing = requested - len(node.items)
    if ended.status == "complete" and not defects and not missing:
        return "complete", ""
    if not read and node.facts is None:
        return ended.status, ended.reason
    named = ", ".join(f"{item.id} {item.status}" for item in defects[:5]) + (", …" if len(defects) > 5 else "")
    count = f"{len(defects) + missing} of {requested} items: {named}" if named else ""
    busy = BUSY if any(BUSY in item.reason for item in defects) else ""
    return "partial", "; ".join(filter(None, [ended.reason, count, busy]))
