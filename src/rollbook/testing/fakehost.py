"""A scripted host: its pages, which replace a file system, and its faults."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rollbook.agent.reading import page
from rollbook.errors import TransportError
from rollbook.protocol.readings import Status

__all__ = ["FakeHost", "Text", "pages_of"]

Text = str | Callable[[float], str]
"""The text of a page, or a function that returns it for a time in seconds since the agent started."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FakeHost:
    """One scripted host.

    `pages` are its files and link targets by path, the output of its programs by command line, and `environment`;
    `space` has the result of statvfs(2) by mount point. Everything else is absent. `statuses` are the paths that exist
    but cannot be read, with the status of each. `cgroups` are the directories of its control groups, the agent's own
    first.

    `delay` is the time before its first byte, `pace` that before each reading, both in seconds; its wall clock is
    `ahead` seconds ahead. If `python` (a version) is None, it behaves like the shell stand-in.

    Faults: `fails` is why it cannot be reached, `failures` the number of attempts that fail (None: all). It may be
    `silent`, send `noise` before its hello and `says` after it (frames or not), send `garbage` without end, or die
    after `dies_after` readings.
    """

    pages: Mapping[str, Text] = dataclasses.field(default_factory=dict)
    space: Mapping[str, str] = dataclasses.field(default_factory=dict)
    statuses: Mapping[str, Status] = dataclasses.field(default_factory=dict)
    cgroups: Sequence[str] = ("/sys/fs/cgroup",)
    hostname: str | None = None
    python: str | None = "3.12.0"
    delay: float = 0.0
    pace: float = 0.0
    ahead: float = 0.0
    fails: TransportError | None = None
    failures: int | None = None
    silent: bool = False
    noise: bytes = b""
    says: bytes = b""
    garbage: bool = False
    dies_after: int | None = None

    def answer(self, ask: Sequence[str], limit: int, seconds: float) -> Iterator[bytes]:
        """The pages for one order of a plan, at most `limit` bytes, at a time in seconds after the agent started."""
        op, *args = ask
        if op == "loop":
            return  # no program runs on a scripted host
        if op == "space":
            for place, numbers in self.space.items():
                yield page(place, "ok", numbers.encode())
            return
        if op == "each":
            depth, wanted = args[0].count("/") + 1, _wildcards(args[0])
            found = sorted({"/".join(path.split("/")[:depth]) for path in self._known})
            names = [posixpath.basename(path) for path in found if wanted.fullmatch(path)]
            paths = [" ".join(args[1:]).replace("{}", name) for name in names]
        else:
            paths = {"env": ["environment"], "run": [" ".join(args)]}.get(op) or self._matches(args[0])
        for path in paths:
            status, data = self._page(path, limit, seconds)
            limit -= len(data)
            yield page(path, status, data)

    def text(self, path: str, seconds: float = 0.0) -> str:
        """The text of a page, empty if there is none."""
        text = self.pages.get(path, "")
        return text if isinstance(text, str) else text(seconds)

    def _page(self, path: str, limit: int, seconds: float) -> tuple[str, bytes]:
        if path in self.statuses:
            return self.statuses[path], b""
        if path not in self.pages:
            return "absent", b""
        data = self.text(path, seconds).encode("utf-8", "surrogateescape")
        if limit <= 0:
            return "truncated", b""
        return ("truncated", data[:limit]) if len(data) >= limit else ("ok", data)

    def _matches(self, pattern: str) -> list[str]:
        """The paths that match a pattern of the agent; a pattern without a wildcard is a path."""
        for word, directories in (("{cgroup}", self.cgroups), ("{own}", self.cgroups[:1])):
            if pattern.startswith(word):
                places = [directory + pattern.removeprefix(word) for directory in directories]
                return [path for place in places for path in self._matches(place) if path in self._known]
        if "*" not in pattern:
            return [pattern]
        found, start, wanted = [], re.split(r"[*\[]", pattern)[0], _wildcards(pattern)
        for path in self._sorted[bisect.bisect_left(self._sorted, start) :]:
            if not path.startswith(start):
                break
            if wanted.fullmatch(path):
                found.append(path)
        return found

    @functools.cached_property
    def _known(self) -> set[str]:
        return {*self.pages, *self.statuses}

    @functools.cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._known)


@functools.cache
def _wildcards(pattern: str) -> re.Pattern[str]:
    """The agent's wildcards, `*`, `[0-9]` and `[!x]`: within one part of a path, and no hidden name matches."""
    parts = [(re.escape(part), "*" in part) for part in pattern.split("/")]
    text = "/".join(rf"(?!\.){part}" if wild else part for part, wild in parts)
    text = text.replace(r"\*", "[^/]*").replace(re.escape("[0-9]"), "[0-9]")
    return re.compile(re.sub(r"\\\[!(\w)\\\]", r"[^/\1]", text))


def pages_of(root: Path) -> dict[str, Text]:
    """A directory as pages: every file below it by its path from there, every symbolic link by its target."""
    found: dict[str, Text] = {}
    for path in sorted(root.rglob("*")):
        name = f"/{path.relative_to(root)}"
        if path.is_symlink():
            found[name] = os.fspath(path.readlink())
        elif path.is_file():
            found[name] = path.read_text(encoding="utf-8", errors="surrogateescape")
    return found
