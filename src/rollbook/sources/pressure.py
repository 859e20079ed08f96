"""/proc/pressure: pressure stall information for CPU, memory and I/O (accounting/psi)."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Files, Pages, counter, gauge, key
from rollbook.sources.text import integer, lines_of, number


class Pressure(Facts):
    """One resource. `some` is the time in which at least one task waited, `full` that in which all tasks waited.

    Values that the kernel does not have are left out: `full` of cpu exists since 5.13, irq (6.1) has no `some`.
    """

    resource: Annotated[str, key()]
    some_avg10: Annotated[float | None, gauge("%")] = None
    some_avg60: Annotated[float | None, gauge("%")] = None
    some_avg300: Annotated[float | None, gauge("%")] = None
    some_total_us: Annotated[int | None, counter("µs")] = None
    full_avg10: Annotated[float | None, gauge("%")] = None
    full_avg60: Annotated[float | None, gauge("%")] = None
    full_avg300: Annotated[float | None, gauge("%")] = None
    full_total_us: Annotated[int | None, counter("µs")] = None


def parse(pages: Pages) -> list[Pressure]:
    """`some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same with `full`."""
    rows = []
    for resource, text in pages.items():
        row = Pressure(resource)
        for line in lines_of(text):
            kind, *words = line.split()
            if kind not in ("some", "full"):
                raise ParseError(f"neither some nor full: {line[:80]!r}")
            values = dict(word.split("=", 1) for word in words)
            for span in ("avg10", "avg60", "avg300"):
                setattr(row, f"{kind}_{span}", number(values[span]))
            setattr(row, f"{kind}_total_us", integer(values["total"]))
        rows.append(row)
    return rows


SOURCE = Files(
    {name: f"/proc/pressure/{name}" for name in ("cpu", "io", "memory", "irq")}, parse, every=1, plain_numbers=True
)
