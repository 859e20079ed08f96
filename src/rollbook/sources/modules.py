"""/proc/modules, /sys/module: loaded kernel modules and their versions (proc_modules(5))."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, columns, same, same_set
from rollbook.sources.text import columns_of, devices, lines_of


class Modules(Facts):
    """Kernel modules. Built-in drivers may have a version but are not in `loaded`."""

    versions: Annotated[dict[str, str], columns(same())]
    loaded: Annotated[list[str] | None, same_set()] = None


def parse(pages: Pages) -> Modules:
    """`/sys/module/NAME/version`, and the first word of each line of /proc/modules if the kernel has it."""
    versions = {name: attributes["version"] for name, attributes in devices(pages, "/sys/module/")}
    if "/proc/modules" not in pages:
        return Modules(versions)
    # name, size, users, users' names, state, address
    return Modules(versions, sorted(columns_of(line, 6)[0] for line in lines_of(pages["/proc/modules"])))


SOURCE = Glob(["/proc/modules", "/sys/module/*/version"], parse)
