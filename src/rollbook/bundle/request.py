"""What an issue report contains: items, time window and limits, as a document and as orders for agents."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

import msgspec

from rollbook import agent
from rollbook.agent.outgoing import escaped
from rollbook.agent.redaction import MASK
from rollbook.agent.redactor import REDACTED, Redactor
from rollbook.bundle.items import NEVER_READ, Item, catalogue, command_argvs, patterns
from rollbook.bundle.summary import Window
from rollbook.protocol.redaction import mask_command_line
from rollbook.records.document import current_version

__all__ = ["GIB", "MIB", "Limits", "Request", "mask_text", "orders"]

MIB, GIB = 1 << 20, 1 << 30


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a report may cost: bytes of a node and of the whole run, bytes that stay free, seconds of the run."""

    node_bytes: int = 256 * MIB
    run_bytes: int = 16 * GIB
    free_bytes: int = GIB
    run_seconds: float = 3600.0


class Request(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.request/1"
):
    """`request.json` of a bundle, with which it is resumed. Secrets in commands are masked."""

    nodes: list[str]
    """With user and slots, as they are written on the command line."""
    items: list[Item]
    id: str = msgspec.field(default_factory=lambda: secrets.token_hex(8))
    """By which the key of the marks is found when the bundle is resumed."""
    window: Window = Window()
    limits: Limits = Limits()
    rollbook: str = msgspec.field(default_factory=current_version)

    def masked(self) -> Request:
        """The request without secrets in the commands of the user."""
        items = [item if item in catalogue() else _masked(item) for item in self.items]
        return msgspec.structs.replace(self, items=items)


def _masked(item: Item) -> Item:
    commands = tuple(
        mask_text(command) if isinstance(command, str) else tuple(mask_command_line(command))
        for command in item.commands
    )
    return msgspec.structs.replace(item, title=mask_text(item.title), commands=commands)


def mask_text(command: str) -> str:
    """A shell command without secrets. Their marks are not kept: a command has too few of them to be compared."""
    redactor = Redactor(secrets.token_bytes(16), "arguments")
    masked = " ".join(mask_command_line([command])).encode("utf-8", "surrogateescape")
    return REDACTED.sub(MASK.encode(), redactor.feed(masked) + redactor.close()).decode("utf-8", "surrogateescape")


def orders(
    items: Sequence[Item], window: Window, *, seconds: float, size: int, salt: str, archive: Sequence[str] = ()
) -> bytes:
    """The orders to read items, numbered in their order, within `seconds` and `size` bytes; see `agent/evidence.py`.

    With `archive`, the fields of that order up to the ids of items, they are read into an archive.
    """
    lines: list[Iterable[str]] = [("extend", agent.extension(archive=bool(archive))), ("never", *NEVER_READ)]
    for number, item in enumerate(items):
        flags = ("1" if item.dated else "0", "1" if item.first else "0")
        lines.append(
            ("item", str(number), str(int(item.seconds * 1000)), str(item.limit), item.keep, item.redact, *flags)
        )
        lines += [("path", path) for path in patterns(item.paths)]
        lines += [("exclude", path) for path in patterns(item.exclude)]
        lines += [("for", path) for path in patterns([item.each]) if path]
        lines += [("when", "path", path) for path in patterns(item.when.paths)]
        lines += [("when", "command", name) for name in item.when.commands]
        lines += [("command", *argv) for argv in command_argvs(item, window)]
    if archive:
        lines.append(("archive", *archive, *(item.id for item in items)))
    edges = [str(int(at.timestamp())) if at else "" for at in (window.since, window.until)]
    lines.append(("collect", str(int(seconds * 1000)), str(size), *edges, salt))
    return b"".join(b"\t".join(map(escaped, line)) + b"\n" for line in lines)
