"""What a source is: what the agent shall read, how the text becomes a typed record, how its values compare.

A source module declares a `Facts` (or several), a pure `parse`, and `SOURCE`. Everything else (snapshot, series,
checks, diff, docs) follows from that declaration. `parse` gets text that came from a host and is therefore
untrusted: it may raise `ParseError`, `ValueError`, `KeyError` or `IndexError` for text it does not know, nothing
else; `Source.parse` turns them all into `ParseError`.
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
    "Ask",
    "Command",
    "Compare",
    "Facts",
    "File",
    "Files",
    "Glob",
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
    "same",
    "same_set",
    "unique",
]

Pages = Mapping[str, str]
"""What was read: path (or command line) to text. A file that is absent or unreadable has no entry."""

Mode = Literal["key", "same", "band", "set", "unique", "expected", "delta", "gauge", "counter", "info"]
KIB = 1024
U32 = 1 << 32
"""Where the kernel's 32-bit counters wrap."""
SELDOM = 10.0  # seconds, as the agent has it


class Facts(msgspec.Struct, kw_only=False, omit_defaults=True):
    """Typed values of one source, or one row of a source that is a table."""


@dataclasses.dataclass(frozen=True)
class Compare:
    """How the values of one field relate between hosts and over time.

    `same`, `band`, `set`, `unique` and `expected` are compared between the hosts of a group; `delta` must not rise
    between start and end of a run; `gauge` and `counter` are volatile and never make two hosts differ; `info` is
    shown only. `key` names the row. `wraps` says at which value a counter starts again from zero, or which column of
    its row holds that value; a counter without it that falls was reset.
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
    """Hosts of one group must agree."""
    return Compare("same", unit)


def band(tolerance: float, unit: str = "") -> Compare:
    """Hosts of one group agree within this fraction of the median."""
    return Compare("band", unit, tolerance)


def same_set() -> Compare:
    """Hosts of one group have the same members, in any order."""
    return Compare("set")


def unique() -> Compare:
    """No two hosts may share the value."""
    return Compare("unique")


def expected(unit: str = "") -> Compare:
    """Compared with what the site expects, not with the peers."""
    return Compare("expected", unit)


def delta(unit: str = "events") -> Compare:
    """An error count: the rise over the run is the signal."""
    return Compare("delta", unit)


def gauge(unit: str) -> Compare:
    """A level that goes up and down: volatile."""
    return Compare("gauge", unit)


def counter(unit: str, wraps: int | str = 0) -> Compare:
    """A total that only rises until it wraps or the host boots: volatile, shown as a rate."""
    return Compare("counter", unit, wraps=wraps)


def info() -> Compare:
    """Shown, never compared."""
    return Compare("info")


def columns(how: Compare) -> Compare:
    """A `dict` field that holds many columns by name, each compared as `how` says."""
    return dataclasses.replace(how, columns=True)


@functools.cache
def compare_of(record: type[Facts]) -> Mapping[str, Compare]:
    """How each field of a record compares; fields without a note are `info`."""
    hints = typing.get_type_hints(record, include_extras=True)
    found = {}
    for name, hint in hints.items():
        notes = getattr(hint, "__metadata__", ())
        found[name] = next((note for note in notes if isinstance(note, Compare)), info())
    return found


@dataclasses.dataclass(frozen=True)
class Ask:
    """One thing the agent does for a source.

    `read PATH` and `link PATH` take shell wildcards and give one page per match (the file's text, the link's
    target). `run ARGV…` runs a program, looked up in PATH and the sbin directories, and gives its standard output;
    `each PATH ARGV…` runs it once for every match, whose last part stands for `{}` in the arguments.
    `loop ARGV…` keeps a program running while the host is sampled and gives what it wrote since the beat before; `{ms}`
    in its arguments is the interval. `space` gives one page per mounted file system. `env PREFIX…` gives the
    environment by allow-list, secrets masked on the host. In paths, `{own}` stands for the agent's own cgroup directory
    in each hierarchy, under Slurm that of the job, and `{cgroup}` for the agent's own and all above.

    While a host is sampled, the agent itself reads only what lies in /proc and in cgroups, which the kernel answers out
    of its memory; a child reads all other paths, so that a device that hangs costs no other source.
    """

    op: Literal["read", "link", "run", "each", "space", "env", "loop"]
    args: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """Something readable on a host, with its limits and its parser.

    `every` is 0 for a fact, read at the start and at the end of a run, and n for a source sampled on every n-th
    beat, and at least every ten seconds where there are beats; the edges of phases are sampled whatever it says.
    `limit` caps the bytes, `seconds` the time; what exceeds them is truncated or timed out and says so.

    `plain_numbers` says that no number of the text means anything but itself (as 0 may mean unknown): what `parse`
    does with one it does with any. Samples of such a source are parsed only where they changed. `lines` says of a
    single file that its lines also stand for themselves: parsing some of them gives the rows, or the names in the
    dicts, of just those. It holds the beginnings of lines that must come with them: headings, and those that give
    values of the record itself.
    """

    asks: tuple[Ask, ...]
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
        """Turn pages into the typed record (or list of records); raises nothing but `ParseError`."""
        try:
            return self.pages_to_facts(pages)
        except ParseError as error:
            raise ParseError(f"{self.name}: {error}") from error
        except (ValueError, KeyError, IndexError, OverflowError, msgspec.MsgspecError) as error:
            raise ParseError(f"{self.name}: not in a form this version knows ({error!r})") from error

    @property
    def row_type(self) -> type[Facts]:
        """The record type, or the row type of a table."""
        args = typing.get_args(self.produces)
        return typing.cast("type[Facts]", args[0] if args else self.produces)

    @property
    def table(self) -> bool:
        """Whether the source gives rows, one per device, rather than one record."""
        return typing.get_origin(self.produces) is list

    def beats(self, interval: float) -> int:
        """The beats from one sample to the next, at so many seconds a beat."""
        return min(self.every, max(1, int(SELDOM / interval)))

    @property
    def runs_program(self) -> bool:
        """Whether reading it starts a program on the host, or may block: such sources are read last."""
        return any(ask.op in ("run", "each", "space") for ask in self.asks)


def _produces(parse: Callable[..., Any]) -> Any:
    return typing.get_type_hints(parse)["return"]


def File(  # noqa: N802 - reads as a declaration: SOURCE = File(...)
    path: str, parse: Callable[[str], Any], **limits: Any
) -> Source:
    """A source that is one file."""
    return Source((Ask("read", (path,)),), lambda pages: parse(pages[path]), _produces(parse), **limits)


def Files(  # noqa: N802
    paths: Mapping[str, str], parse: Callable[[Pages], Any], **limits: Any
) -> Source:
    """A source that is a few files; `parse` gets them by the given names, stripped, the absent ones left out."""

    def by_name(pages: Pages) -> Any:
        return parse({name: pages[path].strip() for name, path in paths.items() if path in pages})

    return Source(tuple(Ask("read", (path,)) for path in paths.values()), by_name, _produces(parse), **limits)


def Glob(  # noqa: N802
    patterns: Sequence[str], parse: Callable[[Pages], Any], links: Sequence[str] = (), **limits: Any
) -> Source:
    """A source that is all files matching patterns, and the targets of links; `parse` gets them by full path."""
    asks = tuple(Ask("read", (p,)) for p in patterns) + tuple(Ask("link", (p,)) for p in links)
    return Source(asks, parse, _produces(parse), **limits)


def Command(  # noqa: N802
    argv: Sequence[str], parse: Callable[[str], Any], **limits: Any
) -> Source:
    """A source that is a program's output, absent where the program is."""
    shown = " ".join(argv)
    return Source((Ask("run", tuple(argv)),), lambda pages: parse(pages[shown]), _produces(parse), **limits)
