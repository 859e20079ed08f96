"""The items of an issue report: what is read on a node, under which limits.

An item is a table of a TOML file; users add items in the same form:

    [my-service]
    title = "Log and state of my service"
    paths = ["/var/log/my-service/*.log"]
    commands = [["systemctl", "status", "my-service"], "my-service --dump | head -n 1000"]
    when = { commands = ["my-service"] }
    seconds = 5
    limit = "10 MiB"

A command is a list of arguments, or a text for `/bin/sh`. In a list, an argument with `{since}` or `{until}` gets the
start or end of the time window (`@` and seconds since 1970) and is left out without one, and `{each}` is the last part
of every path that matches `each`.
"""

from __future__ import annotations

import datetime as dt
import difflib
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from rollbook.bundle.summary import Window
from rollbook.errors import UsageError

__all__ = [
    "EACH",
    "NEVER_READ",
    "OUTPUT",
    "Item",
    "When",
    "catalogue",
    "command_argvs",
    "command_item",
    "load",
    "parse_size",
    "patterns",
    "select",
]

FILES = ("kernel", "system", "hardware", "storage", "network", "rdma", "gpu", "slurm", "kubernetes", "cloud", "job")
ClusterType = Literal["all", "slurm", "eks", "hyperpod", "bare-metal", "aws"]
Redact = Literal["text", "arguments", "none"]
EACH = "{each}"
OUTPUT = "{output}"
"""A path of an item that stands for the files of the run; without a run the item is absent."""
UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
LARGEST = 1 << 30
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
# Names of files that no item reads: keys and passwords, and compressed files, in which secrets are not found.
NEVER_READ = (
    *("*.key", "*.pem", "*.p12", "*.pfx", "*.jks", "*.jwks", "*.kdbx", "*.keytab", "jwt_hs256*"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "ssh_host_*_key", "shadow*", "gshadow*", "krb5cc_*"),
    *("kubeconfig*", "credentials", ".git-credentials", ".netrc", ".pgpass", ".my.cnf", "user-data*"),
    *("*.gz", "*.xz", "*.zst", "*.bz2", "*.lz4", "*.lzma", "*.zip", "*.tar", "*.tgz", "*.7z", "*.journal"),
)
BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
PLACEHOLDERS = re.compile(r"\{(since|until|each)\}")


def parse_size(value: object) -> int:
    """The bytes that a number or a text such as `512 KiB` means; raises `ValueError`."""
    found = re.fullmatch(r"(\d+) ?([KMG]iB|B|)", str(value))
    if not found or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a size: use a form such as 512 KiB or 20 MiB")
    return int(found[1]) * UNITS[found[2]]


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The item is read if one of these exists on the node; without any, always."""

    paths: tuple[str, ...] = ()
    """Paths; wildcards are allowed."""
    commands: tuple[str, ...] = ()
    """Programs in PATH or in a directory for system programs."""


class Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something to read on a node. Its files are regular files; links are followed once, on the node."""

    id: str = ""
    """The name of its table."""
    title: str
    paths: tuple[str, ...] = ()
    """Absolute paths. `*` matches within a directory, `**` any depth of directories, `{a,b}` each of the parts."""
    exclude: tuple[str, ...] = ()
    """Paths that are not read although they match; files that match `NEVER_READ` are not read either."""
    commands: tuple[str | tuple[str, ...], ...] = ()
    first: bool = False
    """The commands are alternatives: they are tried in order until one exits with 0 and prints something."""
    each: str = ""
    """A path with wildcards. A command with `{each}` runs once for every match, each with its own timeout."""
    when: When = When()
    seconds: float = 10.0
    """Timeout of each command, and of reading all paths."""
    limit: int = 1 << 20
    """Bytes of all files and output together."""
    keep: Literal["head", "tail"] = "tail"
    """Which part is kept of what exceeds the limit."""
    tags: tuple[str, ...] = ()
    clusters: tuple[ClusterType, ...] = ("all",)
    redact: Redact = "text"
    """`arguments`: lines are command lines; `none`: numbers and names of the kernel, which cannot hold a secret."""
    priority: int = 5
    """1 to 9; items with a low number are read first: cheap and important ones."""
    needs_root: bool = False
    """Other users get nothing or only a part."""
    has_effects: bool = False
    """Changes something on the node or stresses it. Read only if requested by its id."""
    dated: bool = False
    """Lines begin with a time: only those in the time window are kept, of files and of commands without `{since}`."""

    def __post_init__(self) -> None:
        if self.id:
            _check(self)

    @property
    def has_window(self) -> bool:
        """Whether `--since` and `--until` limit what is read."""
        in_command = any("{since}" in part or "{until}" in part for argv in self.commands for part in argv)
        return self.dated or in_command


def _check(item: Item) -> None:
    if not NAME.fullmatch(item.id):
        raise ValueError(f"{item.id!r} is not a name: use lower-case letters, digits, `-`, `_` and `.`")
    if not item.paths and not item.commands:
        raise ValueError("has neither paths nor commands")
    for path in (*item.paths, *item.exclude, *item.when.paths, *([item.each] if item.each else [])):
        if not path.startswith("/") and path != OUTPUT:
            raise ValueError(f"{path!r} is not an absolute path")
    for command in item.commands:
        _check_command(item, command)
    for name, value, least, most in (
        ("seconds", item.seconds, 0.1, 3600),
        ("limit", item.limit, 1, LARGEST),
        ("priority", item.priority, 1, 9),
    ):
        if not least <= value <= most:
            raise ValueError(f"`{name}` must be between {least} and {most}")


def _check_command(item: Item, command: str | tuple[str, ...]) -> None:
    if not (command if isinstance(command, str) else "".join(command[:1])).strip():
        raise ValueError("has an empty command")
    if isinstance(command, str) and PLACEHOLDERS.search(command):
        raise ValueError(f"{command!r} is a shell command: placeholders need a list of arguments")
    if EACH in "".join(command) and not item.each:
        raise ValueError(f"{' '.join(command)!r} needs `each`")


def command_argvs(item: Item, window: Window) -> Iterator[tuple[str, ...]]:
    """The argument lists of an item's commands for a time window; `{each}` is left for the node.

    An argument that names an end of the window which is not set is left out.
    """
    values = {"{since}": window.since, "{until}": window.until}
    for command in item.commands:
        if isinstance(command, str):
            yield "/bin/sh", "-c", command
            continue
        argv: list[str] = []
        for part in command:
            named = {name: when for name, when in values.items() if name in part}
            if None not in named.values():
                argv.append(_filled(part, named))
        yield tuple(argv)


def _filled(part: str, times: Mapping[str, dt.datetime | None]) -> str:
    """An argument with each placeholder replaced by its time."""
    for name, when in times.items():
        part = part.replace(name, f"@{int(when.timestamp())}") if when else part
    return part


def patterns(paths: Iterable[str]) -> Iterator[str]:
    """Paths with every `{a,b}` replaced by each of its parts."""
    for path in paths:
        found = BRACES.search(path)
        if found:
            yield from patterns(f"{path[: found.start()]}{part}{path[found.end() :]}" for part in found[1].split(","))
        else:
            yield path


@functools.cache
def catalogue() -> tuple[Item, ...]:
    """The items that come with Rollbook, in the order in which they are read."""
    directory = resources.files("rollbook.bundle").joinpath("items")
    found = [item for file in FILES for item in _parse(directory.joinpath(f"{file}.toml").read_bytes())]
    return _in_order(found)


def load(path: Path) -> tuple[Item, ...]:
    """The items of a user's file; raises `UsageError` that names the file, the item and the mistake."""
    try:
        return _in_order(_parse(path.read_bytes()))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {error}") from error


def command_item(number: int, command: str) -> Item:
    """A shell command that the user gave as an item: `command-1` for the first."""
    return Item(id=f"command-{number}", title=command, commands=(command,), seconds=60.0, tags=("command",), priority=6)


def _parse(text: bytes) -> list[Item]:
    tables = msgspec.toml.decode(text)
    found = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise msgspec.ValidationError(f"`{name}` is not a table: write [{name}]")
        try:
            found.append(msgspec.convert({**table, **_limit(table), "id": name}, Item))
        except ValueError as error:
            raise ValueError(f"[{name}] {_plain(str(error))}") from error
    return found


def _limit(table: dict[str, Any]) -> dict[str, int]:
    """The limit of an item in bytes, if it has one; raises `ValueError`."""
    try:
        return {"limit": parse_size(table["limit"])} if "limit" in table else {}
    except ValueError as error:
        raise ValueError(f"limit: {error}") from error


def _plain(message: str) -> str:
    """The message of msgspec with the key as users write it: `seconds: Expected …` instead of `… - at $.seconds`."""
    text, _, where = message.partition(" - at `$")
    key = where.rstrip("`").lstrip(".")
    return f"{key}: {text}" if key else text


def _in_order(items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(sorted(items, key=lambda item: item.priority))


def select(
    items: Iterable[Item],
    *,
    ids: Collection[str] = (),
    tags: Collection[str] = (),
    skip: Collection[str] = (),
) -> tuple[Item, ...]:
    """The items to read, in order; of two with the same id the later one, so that users can replace an item.

    `ids` and `tags` add up; without both, everything is selected. Items with effects are selected only by id. `skip`
    has ids and tags. Raises `UsageError` for a name that does not exist, and if nothing is left.
    """
    by_id = {item.id: item for item in items}
    all_tags = {tag for item in by_id.values() for tag in item.tags}
    _require("item", ids, by_id)
    _require("tag", tags, all_tags)
    _require("item or tag", skip, {*by_id, *all_tags})
    chosen = [item for item in by_id.values() if item.id in ids or (not item.has_effects and _tagged(item, ids, tags))]
    left = [item for item in chosen if item.id not in skip and not set(item.tags) & set(skip)]
    if not left:
        raise UsageError("all items were excluded")
    return _in_order(left)


def _tagged(item: Item, ids: Collection[str], tags: Collection[str]) -> bool:
    return bool(set(item.tags) & set(tags)) if ids or tags else True


def _require(kind: str, names: Collection[str], existing: Collection[str]) -> None:
    for name in names:
        if name not in existing:
            near = difflib.get_close_matches(name, existing, n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; --list shows all"
            raise UsageError(f"no {kind} {name!r}{hint}")
