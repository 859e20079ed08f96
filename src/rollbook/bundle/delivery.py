"""How a node's archive gets to S3 while an issue report is collected.

`presigned`: the agent makes the archive and uploads it with presigned requests, which expire soon and are only valid
for the bytes of this archive. It gets them through its input, never as arguments. If S3 cannot be reached from the
node, the archive comes through the session. The collector downloads what arrived, and compares it with the size and
hash that the agent announced.

`node`: the node downloads `collector_script.sh` with the AWS CLI, runs it and uploads the archive with its own
permissions. The collector downloads what arrived, up to the limit of the node; there is no announced hash to compare.

`session`: items come through the session one by one, and the archive is made here; see `s3_layout.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import re
import secrets
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rollbook.agent.redactor import Redactor
from rollbook.aws.api import Account
from rollbook.aws.clusters import Cluster
from rollbook.aws.objects import PART, Bucket, Grant, S3Path
from rollbook.bundle.items import Item
from rollbook.bundle.node_archive import read_archive
from rollbook.bundle.receive import NodeFiles, file_name
from rollbook.bundle.request import MIB
from rollbook.bundle.script import NAME
from rollbook.bundle.summary import Archive
from rollbook.bundle.summary import Delivery as Mode
from rollbook.collect.session import Session
from rollbook.errors import AgentFailed, RollbookError
from rollbook.protocol.command import command_order, output_of
from rollbook.protocol.frames import Frame
from rollbook.protocol.visit import to_int

__all__ = ["Delivery", "Parcel", "Sender", "archive_name", "reserved"]

MAX_PARTS = 1000
LEAST_SECONDS = 10.0  # for an upload
MAX_OUTPUT = 1 << 20  # bytes of the script's output
SLACK = 30.0  # seconds by which presigned requests outlive the time for them
HASH = re.compile(r"[0-9a-f]{64}")
TAIL = 15  # lines of it that are kept if it fails
LONGEST_LINE = 500
ERRORS = (RollbookError, ValueError)
"""A call of S3 failed, or the node sent what does not fit: its archive can still come through the session."""


class Sender(NamedTuple):
    """A node, its instance group and instance id if they are known, and its directory in the bundle."""

    name: str
    group: str
    instance: str
    directory: str


@dataclasses.dataclass(frozen=True)
class Delivery:
    """The way, and where the archives go: below `where` of the target. With `keep`, copies stay in that directory."""

    mode: Mode
    target: S3Path
    account: Account
    cluster: Cluster
    where: str = ""
    keep: Path | None = None

    def key(self, name: str) -> str:
        """The key of an object of this report."""
        return self.target.key(f"{self.where}/{name}")

    @property
    def bucket(self) -> Bucket:
        """The bucket of the target."""
        return Bucket(self.account, self.target.bucket)

    def copy_of(self, sender: Sender) -> Path | None:
        """The file for the copy of a node's archive, if copies are kept. Raises `OSError`."""
        if self.keep is None or self.mode == "session":
            return None
        path = self.keep / self.where / archive_name(sender.name, sender.group, sender.instance)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path


def archive_name(node: str, group: str, instance: str) -> str:
    """The name of a node's archive in the layout of the HyperPod collector."""
    return f"instances/{file_name(f'{group}_{instance}' if group else node)}.tar.gz"


def reserved(timeout: float) -> float:
    """The seconds of a node's timeout that are left for its archive: to upload it, or to send it if that fails."""
    return min(timeout / 3, 180.0)


class Parcel:
    """The archive of one node on its way to `path`. `archive` is how it was delivered.

    `tail` is the end of what the script printed.
    """

    def __init__(self, delivery: Delivery, sender: Sender, path: Path, node_bytes: int) -> None:
        self._delivery, self._bucket, self._sender, self._path = delivery, delivery.bucket, sender, path
        self._most = 2 * node_bytes + 16 * MIB  # what cannot be deflated becomes longer, and marks longer than secrets
        self._key = delivery.key(archive_name(sender.name, sender.group, sender.instance))
        self.archive, self.tail = Archive(delivery=delivery.mode), ""
        self._arrived = False
        self._size, self._sha256, self._digests = 0, "", list[str]()
        self._tags, self._problem, self._received, self._output = list[str](), "", 0, b""

    @property
    def _about(self) -> tuple[str, str, str]:
        """The group, the instance and the type of cluster, as the archive notes them."""
        sender = self._sender
        return sender.group or "node", sender.instance or sender.name, self._delivery.cluster.orchestrator

    @property
    def exists(self) -> bool:
        """Whether the node made an archive that can be read, in S3 or here."""
        return self._arrived or 0 < self._received == self._size

    @property
    def is_delivered(self) -> bool:
        """Whether what the node read is in S3 or came here."""
        return self.exists or self.archive.delivery == "session"

    def listen(self, frame: Frame) -> bool:
        """Take a frame; returns whether it is about the archive."""
        if frame.kind == "O":
            self._output = (self._output + output_of(frame)[1])[-MAX_OUTPUT:]
            return True
        if frame.kind != "I" or not frame.payload.startswith(b"-\t-\t"):
            return False
        head, _, body = frame.payload.partition(b"\n")
        word, *fields = head[:65536].decode("utf-8", "backslashreplace").split("\t")[2:]
        if word == "part":
            self._receive(body)
        elif word == "archive" and len(fields) == 3 and HASH.fullmatch(fields[1]) and not self._sha256:
            self._size, self._sha256, self._digests = to_int(fields[0]) or 0, fields[1], fields[2].split(",")
            if self._size > self._most:
                raise AgentFailed("disconnected: the archive of the node is larger than its limit allows")
        elif word == "put" and fields:
            self._tags.append(fields[0][:100])
        elif word == "failed" and fields:
            self._problem = _masked(fields[0][:LONGEST_LINE].encode())
        else:
            raise AgentFailed("disconnected: the node sent a frame about its archive that no agent sends")
        return True

    async def read(self, session: Session, orders: Callable[[Sequence[str]], bytes], until: float) -> None:
        """Have the node read its items; `orders` makes the orders for that, with the fields of an archive.

        `until` is the moment, of the monotonic clock, at which the node must have ended. Raises `TransportError`.
        """
        mode = self.archive.delivery
        if not session.takes_orders and mode != "session":
            self._by_session("the session takes no input")
        if self.archive.delivery == "session":
            await session.read_items(orders(()))
        elif mode == "presigned":
            await self._read_presigned(session, orders, until)
        else:
            await self._run_script(session, max(1.0, until - time.monotonic()))

    async def unpack(self, items: Sequence[Item], files: NodeFiles) -> None:
        """Download the archive if it is in S3, check it, and pass its files on; raises `RollbookError`, `OSError`."""
        await asyncio.to_thread(self._fetch)
        for _ in read_archive(self._path, self._sender.directory, items, files, most=self._most + 64 * MIB):
            await asyncio.sleep(0)

    async def _read_presigned(self, session: Session, orders: Callable[[Sequence[str]], bytes], until: float) -> None:
        part = max(PART, -(-self._most // MAX_PARTS))
        await session.read_items(orders((str(part), "", self._sender.directory, *self._about)))
        if not self._sha256:  # no space for an archive
            self._by_session(self._problem)
            await session.read_items(orders(()))
            return
        await self._upload(session, part, max(LEAST_SECONDS, (until - time.monotonic()) / 2))
        if not self._arrived:
            self._by_session(self._problem)
            await session.read_items(b"send\n", b"sent")
            if self._received != self._size:
                raise AgentFailed(f"{self._received} of {self._size} bytes of the archive came through the session")

    async def _upload(self, session: Session, part: int, seconds: float) -> None:
        """Have the agent upload its archive within `seconds`; if that fails, `_problem` is the reason."""
        try:
            about = self._key, self._size, self._digests, part, seconds + SLACK
            grant = await asyncio.to_thread(self._bucket.grant, *about)
        except ERRORS as error:
            self._problem = str(error)
            return
        try:
            await session.read_items(_put_orders(grant, seconds), b"put")
            if not self._problem:
                await self._accept(grant)
        finally:
            if not self._arrived:
                await asyncio.shield(asyncio.to_thread(self._bucket.withdraw, grant))

    async def _accept(self, grant: Grant) -> None:
        try:
            await asyncio.to_thread(self._bucket.accept, grant, self._tags)
        except ERRORS as error:
            self._problem = str(error)
        else:
            self._arrive(len(grant.urls) if grant.upload else 0)

    async def _run_script(self, session: Session, seconds: float) -> None:
        """Have the node run the script and upload its archive; raises `AgentFailed` with its last line of output."""
        group, instance, kind = self._about
        values = {
            "INSTANCE_GROUP": group,
            "INSTANCE_ID": instance,
            "CLUSTER_TYPE": kind,
            "NODE_NAME": self._sender.directory.removeprefix("nodes/"),
            "S3_OUTPUT": self._bucket.url(self._key),
        }
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
        script = shlex.quote(self._bucket.url(self._delivery.key(NAME)))
        command = (
            'umask 077; d=$(mktemp -d) || exit; trap \'rm -rf "$d"\' EXIT; cd "$d" && '
            f"aws s3 cp --only-show-errors {script} {NAME} && {settings} sh {NAME}"
        )
        await session.execute(command_order(("sh", "-c", command), seconds, MAX_OUTPUT))
        status, timed_out = session.command_end.get("status", ""), session.command_end.get("timed_out") == "1"
        lines = [line[:LONGEST_LINE] for line in _masked(self._output).splitlines()]
        self.tail = "\n".join(lines[-TAIL:])
        if status == "0" and not timed_out:
            self._arrive(0)
            return
        how = "timed out" if timed_out else f"ended with exit status {status}"
        raise AgentFailed(f"{NAME} {how}" + (f": {lines[-1]}" if lines else ""))

    def _arrive(self, parts: int) -> None:
        self._arrived = True
        url = self._bucket.url(self._key)
        self.archive = Archive(delivery=self._delivery.mode, url=url, size=self._size, sha256=self._sha256, parts=parts)

    def _by_session(self, reason: str) -> None:
        self.archive = Archive(delivery="session", reason=reason)

    def _receive(self, data: bytes) -> None:
        """Write a part of the archive that comes through the session."""
        self._received += len(data)
        if self._received > self._size:
            raise AgentFailed("disconnected: the node sends more than the archive that it announced")
        with self._path.open("ab") as file:
            file.write(data)

    def _fetch(self) -> None:
        if self._arrived:
            self._bucket.download(self._key, self._path, self._most)
        size = self._path.stat().st_size
        with self._path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if self._sha256 and (size, found) != (self._size, self._sha256):
            raise AgentFailed("the archive of the node was changed in transit")
        if self._arrived:
            self.archive = msgspec.structs.replace(self.archive, size=size, sha256=found)


def _put_orders(grant: Grant, seconds: float) -> bytes:
    lines = [
        f"put\t{start}\t{min(grant.part, grant.size - start)}\t{digest}\t{url}"
        for start, digest, url in zip(range(0, grant.size, grant.part), grant.digests, grant.urls, strict=True)
    ]
    return "\n".join([*lines, f"upload\t{int(seconds * 1000)}", ""]).encode()


def _masked(text: bytes) -> str:
    """What a node printed, without secrets."""
    redactor = Redactor(secrets.token_bytes(16))
    return (redactor.feed(text) + redactor.close()).decode("utf-8", "replace")
