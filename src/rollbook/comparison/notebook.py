"""A comparison as HTML for notebooks: its tables, and the charts that its page shows first."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

from rollbook.comparison.model import Comparison
from rollbook.comparison.page import build
from rollbook.comparison.sides import Side
from rollbook.comparison.text import html_text
from rollbook.errors import RecordError
from rollbook.records.record import Record
from rollbook.report.notebook import COLOURS, figure, side_by_side

__all__ = ["comparison_html"]

CHARTS = 6
RUNS = 3  # of a side that are drawn


def comparison_html(found: Comparison) -> str:
    """The tables, then the first charts with a line for each run; without charts if a record cannot be read."""
    try:
        sides = [Side(one.label, [Record.open(Path(path)) for path in one.records[:RUNS]]) for one in found.sides]
        page = build(found, sides)
    except RecordError:
        return html_text(found)
    colours = [COLOURS[run.side % len(COLOURS)] for run in page.runs]
    figures = []
    for chart in page.charts[:CHARTS]:
        length = max(map(len, chart.lines))
        lines = [[math.nan if one is None else one for one in line] for line in chart.lines]
        padded = [line + [math.nan] * (length - len(line)) for line in lines]
        seconds = page.bucket * length
        figures.append(figure(chart.title, chart.unit, seconds, list(zip(padded, colours, strict=True))))
    if not figures:
        return html_text(found)
    keys = (
        f'<span style="color:{COLOURS[at % len(COLOURS)]}">■</span> {escape(side)}'
        for at, side in enumerate(page.sides)
    )
    return f"{html_text(found)}<p>{' &nbsp; '.join(keys)}</p>{side_by_side(figures)}"
