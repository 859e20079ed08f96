"""Public names of a package that are loaded when they are first used, so that importing the package is fast."""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose `__init__.pyi` lists its public names, for type checkers too.

    The stub has one line `from MODULE import NAME as PUBLIC` for each.
    """
    module: Any = sys.modules[package]
    found: dict[str, tuple[str, str]] = {}

    def origins() -> dict[str, tuple[str, str]]:
        if not found:
            stub = module.__loader__.get_data(f"{module.__path__[0]}/__init__.pyi")  # also inside a zip file
            for line in stub.decode().splitlines():
                if line.startswith("from "):
                    _, origin, _, name, _, public = line.split()
                    found[public] = (origin, name)
        return found

    def getattr_(name: str) -> object:
        if name == "__all__":
            return sorted(origins())
        if (name.startswith("_") and name != "__version__") or name not in origins():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        origin, attribute = origins()[name]
        return getattr(importlib.import_module(origin), attribute)

    return getattr_, lambda: sorted({*vars(module), *origins()})
