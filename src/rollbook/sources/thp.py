"""/sys/kernel/mm/transparent_hugepage: which mode, and how hard the kernel tries (admin-guide/mm/transhuge)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Files, Pages, same
from rollbook.sources.text import chosen

ROOT = "/sys/kernel/mm/transparent_hugepage"


class HugePages(Facts):
    """Transparent huge pages."""

    enabled: Annotated[str, same()]
    defrag: Annotated[str | None, same()] = None


def parse(pages: Pages) -> HugePages:
    """Each file lists the choices with the current one in brackets."""
    return HugePages(chosen(pages["enabled"]), chosen(pages["defrag"]) if "defrag" in pages else None)


SOURCE = Files({"enabled": f"{ROOT}/enabled", "defrag": f"{ROOT}/defrag"}, parse)
