"""/sys/kernel/mm/ksm: kernel same-page merging, which uses CPU time in the background (admin-guide/mm/ksm)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Files, Pages, gauge, same
from rollbook.sources.text import integer

ROOT = "/sys/kernel/mm/ksm"


class Ksm(Facts):
    """Same-page merging. `run` is 0 (stopped), 1 (running) or 2 (stopped and unmerged)."""

    run: Annotated[int, same()]
    merge_across_nodes: Annotated[int | None, same()] = None
    pages_shared: Annotated[int | None, gauge("pages")] = None


def parse(pages: Pages) -> Ksm:
    """One number per file."""
    found = {name: integer(text) for name, text in pages.items()}
    return Ksm(found["run"], found.get("merge_across_nodes"), found.get("pages_shared"))


SOURCE = Files({name: f"{ROOT}/{name}" for name in ("run", "merge_across_nodes", "pages_shared")}, parse)
