"""What is read once for the whole cluster, with programs on the collector's machine: their limits, their files.

Everything that these programs print is redacted before it is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import math
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rollbook.agent.item_reader import WORST_FIRST
from rollbook.agent.redactor import Redactor
from rollbook.bundle.receive import Redaction
from rollbook.bundle.summary import File, ItemResult, ItemStatus
from rollbook.errors import AgentFailed
from rollbook.files import write_file
from rollbook.protocol.redaction import mask_command_line
from rollbook.transports.base import last_line
from rollbook.transports.pipe import Pipe

__all__ = ["ClusterPart", "Output", "Query"]

DIRECTORY = "cluster"
LARGEST = 64 << 20
PARALLEL = 4

Change = Callable[[bytes, Redactor], bytes]


@dataclasses.dataclass(frozen=True)
class Query:
    """A command whose output becomes a file of an item."""

    item: str
    file: str
    argv: tuple[str, ...]
    seconds: float = 120.0
    limit: int = LARGEST
    change: Change | None = None
    """Masks what the redactor cannot see in the text; raises `ValueError` if the output cannot be read."""


class Output(NamedTuple):
    """What a program prints, and why it failed; `status` is absent if the program is not installed."""

    data: bytes
    status: ItemStatus = "complete"
    reason: str = ""
    code: int | None = None
    """Its exit status; None if it was not started, or ended by us."""


@dataclasses.dataclass(frozen=True)
class _Answer:
    status: ItemStatus
    reason: str = ""
    file: File | None = None


class ClusterPart:
    """Runs queries, a few in parallel, and writes their output below `cluster/`. `redactions` has what was replaced."""

    def __init__(self, bundle: Path, salt: bytes, environ: Mapping[str, str] | None = None) -> None:
        self.bundle, self.salt, self.environ = bundle, salt, environ
        self.redactions: list[Redaction] = []
        self._deadline = math.inf
        self._free = asyncio.Semaphore(PARALLEL)

    def limit(self, seconds: float) -> None:
        """Limit all programs from now on to these seconds in total."""
        self._deadline = time.monotonic() + seconds

    async def run(self, queries: Sequence[Query]) -> list[ItemResult]:
        """The items of the queries, in their order; a query that fails affects only its own file."""
        began = time.monotonic()
        answers = await asyncio.gather(*(self._answer(query) for query in queries))
        items: dict[str, list[_Answer]] = {}
        for query, answer in zip(queries, answers, strict=True):
            items.setdefault(query.item, []).append(answer)
        return [_item(name, found, time.monotonic() - began) for name, found in items.items()]

    async def output(self, argv: Sequence[str], seconds: float, limit: int = LARGEST) -> Output:
        """Run a program; more output than `limit` ends it."""
        if shutil.which(argv[0], path=(self.environ or {}).get("PATH")) is None:
            return Output(b"", "absent", f"{argv[0]} is not in PATH")
        left = min(seconds, self._deadline - time.monotonic())
        if left <= 0:
            return Output(b"", "timed-out", "the timeout for this part expired")
        try:
            pipe = Pipe(argv, self.environ)
        except AgentFailed as error:
            return Output(b"", "failed", str(error))
        data, timed_out = bytearray(), True
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    while len(data) <= limit and (piece := await pipe.read()):
                        data += piece
                    timed_out = False
        finally:
            ending = await pipe.close(grace=0.0 if timed_out or len(data) > limit else 1.0)
        if timed_out:
            return Output(bytes(data), "timed-out", f"no answer within {left:.0f} s")
        if ending.code and len(data) <= limit:
            reason = self.last_line(ending.stderr) or f"exit status {ending.code}"
            return Output(bytes(data), "failed", reason, ending.code)
        return Output(bytes(data), code=ending.code)

    def last_line(self, text: str) -> str:
        """The last line of what a program wrote to stderr, redacted."""
        return self.redact(last_line(text).encode()).decode("utf-8", "replace")

    def redact(self, data: bytes, path: str = "") -> bytes:
        """The data without secrets; what was replaced is noted for the file."""
        redactor = Redactor(self.salt)
        redacted = redactor.feed(data) + redactor.close()
        self.redactions += [Redaction(path, *entry) for entry in redactor.log if path]
        return redacted

    def write(
        self, path: str, data: bytes, source: str, *, truncated: str = "", exit_status: int | None = None
    ) -> File:
        """Write a file of the bundle, which is redacted already, and describe it."""
        target = self.bundle / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(target, data)
        return File(
            path=path,
            source=source,
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            truncated=truncated,
            exit_status=exit_status,
            redactions=sum(one.count for one in self.redactions if one.path == path),
        )

    async def _answer(self, query: Query) -> _Answer:
        async with self._free:
            data, status, reason, code = await self.output(query.argv, query.seconds, query.limit)
        if reason and not data:
            return _Answer(status, reason)
        is_cut = len(data) > query.limit
        is_short = is_cut or (bool(reason) and code is None)
        path = f"{DIRECTORY}/{query.item}/{query.file}"
        try:
            data = await asyncio.to_thread(self._clean, query, data[: query.limit], path)
        except ValueError as error:
            return _Answer("failed", f"{query.file}: {reason or error}")
        missing = f"after the first {query.limit >> 20} MiB" if is_cut else "the rest" if is_short else ""
        file = self.write(path, data, shlex.join(mask_command_line(query.argv)), truncated=missing, exit_status=code)
        return _Answer("truncated" if is_short else "failed" if reason else "complete", reason, file)

    def _clean(self, query: Query, data: bytes, path: str) -> bytes:
        if query.change:
            redactor = Redactor(self.salt)
            data = query.change(data, redactor)
            self.redactions += [Redaction(path, *entry) for entry in redactor.log]
        return self.redact(data, path)


def _item(name: str, answers: Sequence[_Answer], seconds: float) -> ItemResult:
    status = min((answer.status for answer in answers), key=WORST_FIRST.index)
    reasons = dict.fromkeys(answer.reason for answer in answers if answer.reason)
    files = [answer.file for answer in answers if answer.file]
    if files and status == "absent":
        status = "complete"
    return ItemResult(id=name, status=status, reason="; ".join(reasons), seconds=round(seconds, 3), files=files)
