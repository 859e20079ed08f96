"""Source declarations: what the agent reads, how the text becomes facts, and how the values compare.

A source module declares one or more `Facts` types, a pure `parse` and `SOURCE`. Snapshots, tables, checks, diff and
docs follow from that declaration. `parse` gets untrusted text from a host and may raise anything for text that it does
not understand; `Source.parse` turns every error into `ParseError`.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from rollbook.errors import ParseError

__all__ = [
    "KIB",
    "U32",
    "Command",
    "Compare",
    "Facts",
    "File",
    "Files",
    "Glob",
    "Mode",
    "Order",
    "Pages",
    "Source",
    "band",
    "columns",
    "compare_of",
    "counter",
    "delta",
    "expected",
    "gauge",
    "info",
    "key",
    "key_of",
    "keys_of",
    "most_beats",
    "same",
    "same_set",
    "unique",
]

Pages = Mapping[str, str]
"""Text by path or command line. A file that is absent or unreadable has no entry."""

Mode = Literal["key", "same", "band", "set", "unique", "expected", "delta", "gauge", "counter", "info"]
KIB = 1024
U32 = 1 << 32
"""Where the kernel's 32-bit counters wrap."""
SELDOM = 10.0  # seconds, as the agent has it


def most_beats(interval: float) -> int:
    """The longest distance of two samples of a source in beats, with `interval` seconds between beats."""
    return max(1, int(SELDOM / interval))


class Facts(msgspec.Struct, omit_defaults=True):
    """Typed values of one source, or one row of a source that gives a table."""


@dataclasses.dataclass(frozen=True)
class Compare:
    """How the values of one field compare between hosts and over time.

    `same`, `band`, `set` and `unique` are compared between the hosts of a group, `expected` with the site's own
    values. `delta` must not rise between start and end of a run. `gauge` and `counter` are volatile and `info` is for
    display: none of them makes two hosts differ. `key` names the row. `wraps` is the value at which a counter starts
    again from zero, or the column of its row with that value; any other counter that falls was reset.
    """

    mode: Mode
    unit: str = ""
    tolerance: float = 0.0
    columns: bool = False
    wraps: int | str = 0


def key() -> Compare:
    """The field that names the row: a device, a CPU, a mount point."""
    return Compare("key")


def same(unit: str = "") -> Compare:
    """Hosts of one group have the same value."""
    return Compare("same", unit)


def band(tolerance: float, unit: str = "") -> Compare:
    """Hosts of one group are within this fraction of the median."""
    return Compare("band", unit, tolerance)


def same_set() -> Compare:
    """Hosts of one group have the same members, in any order."""
    return Compare("set")


def unique() -> Compare:
    """No two hosts have the same value."""
    return Compare("unique")


def expected(unit: str = "") -> Compare:
    """Compared with the site's expectation, not with other hosts."""
    return Compare("expected", unit)


def delta(unit: str = "events") -> Compare:
    """An error counter that must not rise during a run."""
    return Compare("delta", unit)


def gauge(unit: str) -> Compare:
    """A value that goes up and down: volatile."""
    return Compare("gauge", unit)


def counter(unit: str, wraps: int | str = 0) -> Compare:
    """A total that rises until it wraps or the host boots: volatile, displayed as a rate."""
    return Compare("counter", unit, wraps=wraps)


def info() -> Compare:
    """Displayed, never compared."""
    return Compare("info")


def columns(how: Compare) -> Compare:
    """A `dict` field whose entries are columns, each compared by `how`."""
    return dataclasses.replace(how, columns=True)


@functools.cache
def compare_of(facts: type[Facts]) -> Mapping[str, Compare]:
    """How each field of a `Facts` type compares; fields without a `Compare` annotation are `info`."""
    hints = typing.get_type_hints(facts, include_extras=True)
    found = {}
    for name, hint in hints.items():
        notes = getattr(hint, "__metadata__", ())
        found[name] = next((note for note in notes if isinstance(note, Compare)), info())
    return found


@functools.cache
def keys_of(facts: type[Facts]) -> tuple[str, ...]:
    """The fields that name a row."""
    return tuple(name for name, how in compare_of(facts).items() if how.mode == "key")


def key_of(row: Facts) -> str:
    """The name of a row: the values of its key fields."""
    return " ".join(str(getattr(row, name)) for name in keys_of(type(row)))


@dataclasses.dataclass(frozen=True)
class Order:
    """One step that the agent takes to read a source.

    - `read PATH`, `link PATH`: one page per match of the shell pattern, with the file's text or the link's target.
    - `run ARGV…`: the standard output of a program, which is searched in PATH and the sbin directories.
    - `each PATH ARGV…`: runs the program once per match; `{}` in the arguments is the last part of the match.
    - `loop ARGV…`: keeps a program running while the host is sampled and gives its output since the last beat; `{ms}`
      in the arguments is the interval.
    - `space`: one page per mounted file system.
    - `env PREFIX…`: environment variables with these prefixes, secrets masked on the host.

    In paths, `{own}` is the agent's cgroup directory in each hierarchy (under Slurm that of the job) and `{cgroup}`
    is that directory and each of its ancestors.

    While a host is sampled, the agent itself reads only /proc and cgroups, which the kernel serves from memory. A
    child process reads all other paths, so that a hanging device delays no other source.
    """

    op: Literal["read", "link", "run", "each", "space", "env", "loop"]
    args: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """Something that can be read on a host, with its limits and its parser.

    `every` is 0 for facts, which are read at the start and at the end of a run. With n, the source is also sampled on
    every n-th beat, but at least every ten seconds if the interval allows, and at each phase boundary. `limit` caps
    the bytes and `seconds` the time; a reading beyond them gets the status truncated or timed-out.

    `plain_numbers` declares that `parse` treats all numbers alike: none has a special meaning, such as 0 for unknown.
    Samples of such a source are parsed only where they changed. `lines` declares for a single file that each line can
    be parsed alone and then gives just its own row, or its own entries of the dicts. It lists the prefixes of lines
    that must always be included: headings, and lines with values of the record itself.
    """

    orders: tuple[Order, ...]
    pages_to_facts: Callable[[Pages], Any]
    produces: Any
    every: int = 0
    limit: int = 256 * KIB
    seconds: float = 2.0
    root: bool = False
    plain_numbers: bool = False
    lines: tuple[str, ...] | None = None
    name: str = ""
    summary: str = ""

    def parse(self, pages: Pages) -> Any:
        """Turn pages into facts, or into a list of rows; raises only `ParseError`."""
        try:
            return self.pages_to_facts(pages)
        except ParseError as error:
            raise ParseError(f"{self.name}: {error}") from error
        except Exception as error:  # parsers of plug-ins may raise anything; only this source fails
            raise ParseError(f"{self.name}: unknown format ({error!r})") from error

    @property
    def row_type(self) -> type[Facts]:
        """The `Facts` type of the source; of a table, that of its rows."""
        args = typing.get_args(self.produces)
        return typing.cast("type[Facts]", args[0] if args else self.produces)

    @property
    def is_table(self) -> bool:
        """Whether the source gives rows, such as one per device."""
        return typing.get_origin(self.produces) is list

    def beats(self, interval: float) -> int:
        """Beats between two samples of this source, with `interval` seconds between beats."""
        return min(self.every, most_beats(interval))

    @property
    def runs_program(self) -> bool:
        """Whether reading it starts a program or may block; such sources are read last."""
        return any(order.op in ("run", "each", "space") for order in self.orders)


def _produces(parse: Callable[..., Any]) -> Any:
    return typing.get_type_hints(parse)["return"]


def File(  # noqa: N802 - used as a declaration: SOURCE = File(...)
    path: str, parse: Callable[[str], Any], **limits: Any
) -> Source:
    """A source that reads one file."""
    return Source((Order("read", (path,)),), lambda pages: parse(pages[path]), _produces(parse), **limits)


def Files(  # noqa: N802
    paths: Mapping[str, str], parse: Callable[[Pages], Any], **limits: Any
) -> Source:
    """A source that reads a few files; `parse` gets the stripped texts by the given names, without absent files."""

    def by_name(pages: Pages) -> Any:
        return parse({name: pages[path].strip() for name, path in paths.items() if path in pages})

    return Source(tuple(Order("read", (path,)) for path in paths.values()), by_name, _produces(parse), **limits)


def Glob(  # noqa: N802
    patterns: Sequence[str], parse: Callable[[Pages], Any], links: Sequence[str] = (), **limits: Any
) -> Source:
    """A source that reads all files matching patterns and the targets of links; `parse` gets them by full path."""
    orders = tuple(Order("read", (p,)) for p in patterns) + tuple(Order("link", (p,)) for p in links)
    return Source(orders, parse, _produces(parse), **limits)


def Command(  # noqa: N802
    argv: Sequence[str], parse: Callable[[str], Any], **limits: Any
) -> Source:
    """A source that reads a program's output; absent on hosts without the program."""
    command = " ".join(argv)
    return Source((Order("run", tuple(argv)),), lambda pages: parse(pages[command]), _produces(parse), **limits)
