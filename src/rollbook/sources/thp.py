"""/sys/kernel/mm/transparent_hugepage: transparent huge page mode and defrag setting (admin-guide/mm/transhuge)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Files, Pages, same
from rollbook.sources.text import choice

ROOT = "/sys/kernel/mm/transparent_hugepage"


class HugePages(Facts):
    """Transparent huge pages."""

    enabled: Annotated[str, same()]
    defrag: Annotated[str | None, same()] = None


def parse(pages: Pages) -> HugePages:
    """Each file lists the choices with the current one in brackets."""
    return HugePages(choice(pages["enabled"]), choice(pages["defrag"]) if "defrag" in pages else None)


SOURCE = Files({"enabled": f"{ROOT}/enabled", "defrag": f"{ROOT}/defrag"}, parse)
