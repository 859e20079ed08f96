"""The options that select the items of an issue report, and what `--list` and `--dry-run` print about items."""

from __future__ import annotations

import functools
import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from rollbook.bundle.items import Item, catalogue, command_argvs, load
from rollbook.bundle.request import Limits, Request
from rollbook.bundle.summary import Window
from rollbook.clean import clean, count_text
from rollbook.cli.options import RECORDING, Number, SizeType, add_options, option, refuse_given
from rollbook.cli.output import print_json, print_table, size
from rollbook.hosts import fold

__all__ = ["item_options", "print_items", "print_plan", "refuse_selection"]

DEFAULTS = Limits()
OPTIONS = (
    option("--item", "items", heading=RECORDING, multiple=True, metavar="ID", help="Read this item; may be repeated."),
    option("--tag", "tags", heading=RECORDING, multiple=True, metavar="TAG",
           help="Read the items with this tag; may be repeated."),
    option("--skip", heading=RECORDING, multiple=True, metavar="ID|TAG",
           help="Skip this item, or the items with this tag; may be repeated."),
    option("--item-file", "item_files", heading=RECORDING, multiple=True, metavar="FILE",
           type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML file with more items."),
    option("--command", "commands", heading=RECORDING, multiple=True, metavar="COMMAND",
           help="Also run this shell command on every node; may be repeated."),
    option("--since", heading=RECORDING, metavar="TIME",
           help="Read logs from this time: 2h (ago), or 2026-11-16T05:00."),
    option("--until", heading=RECORDING, metavar="TIME", help="Read logs up to this time."),
    option("--node-limit", heading=RECORDING, type=SizeType(), default=size(DEFAULTS.node_bytes), show_default=True,
           metavar="SIZE", help="Maximum size of the data from a node."),
    option("--limit", heading=RECORDING, type=SizeType(), default=size(DEFAULTS.run_bytes), show_default=True,
           metavar="SIZE", help="Maximum size of the bundle."),
    option("--keep-free", heading=RECORDING, type=SizeType(), default=size(DEFAULTS.free_bytes), show_default=True,
           metavar="SIZE", help="Free space to keep on this machine's disk."),
    option("--run-timeout", heading=RECORDING, type=Number(1), default=DEFAULTS.run_seconds, show_default=True,
           metavar="SECONDS", help="Timeout for all nodes together."),
)  # fmt: skip
KEYWORDS = ("items", "tags", "skip", "item_files", "commands", "since", "until")
LIMITS = {"node_limit": "node_bytes", "limit": "run_bytes", "keep_free": "free_bytes", "run_timeout": "run_seconds"}


def item_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as `selection`: the keywords of `make_request`."""

    @functools.wraps(command)
    def with_selection(**rest: Any) -> Any:
        selection = {name: rest.pop(name) for name in KEYWORDS}
        selection["limits"] = Limits(**{field: rest.pop(name) for name, field in LIMITS.items()})
        return command(selection=selection, **rest)

    return add_options(with_selection, OPTIONS)


def refuse_selection(why: str) -> None:
    """Raise `UsageError` if one of the options was typed, except `--command`; `why` says why it has no effect."""
    refuse_given({*KEYWORDS, *LIMITS} - {"commands"}, why)


def print_items(files: Sequence[Path]) -> None:
    """Print all items with their limits, including those in the user's TOML files."""
    items = [*catalogue(), *(item for file in files for item in load(file))]
    rows = [
        (item.id, f"{item.seconds:g} s", size(item.limit), ",".join(item.tags), item.title + _remarks(item))
        for item in sorted(items, key=lambda item: item.id)
    ]
    print_table(("item", "timeout", "limit", "tags", "what"), rows, wrap=True)


def _remarks(item: Item) -> str:
    remarks = [
        *(["needs root"] if item.needs_root else []),
        *(["changes or stresses the node: only with --item"] if item.has_effects else []),
    ]
    return f" ({', '.join(remarks)})" if remarks else ""


def print_plan(request: Request, *, as_json: bool) -> None:
    """Print what would be read from which nodes."""
    request = request.masked()
    if as_json:
        print_json(request)
        return
    rows = []
    for item in request.items:
        for at, what in enumerate((*item.paths, *_commands(item, request.window))):
            rows.append((item.id, f"{item.seconds:g} s", size(item.limit), what) if not at else ("", "", "", what))
    print_table(("item", "timeout", "limit", "what is read"), rows, wrap=True)
    total = min(request.limits.node_bytes, sum(item.limit for item in request.items))
    items, nodes = count_text(len(request.items), "item"), count_text(len(request.nodes), "node")
    click.echo(
        f"{items} from {nodes} ({clean(fold(request.nodes))}), at most {size(total)} each; nothing was read",
        err=True,
    )


def _commands(item: Item, window: Window) -> Iterator[str]:
    """The commands of an item as they would run in the time window, every line of a script by itself."""
    for argv in command_argvs(item, window):
        is_script = argv[:2] == ("/bin/sh", "-c")
        yield from textwrap.dedent(argv[2]).strip("\n").splitlines() if is_script else [shlex.join(argv)]
