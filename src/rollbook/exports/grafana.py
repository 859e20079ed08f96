"""A Grafana dashboard for pushed metrics, generated from the metric catalogue.

It is in the classic JSON model, which all versions import. The data source is a variable, so that the file also works
when it is provisioned. The text is the same for every record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rollbook.exports.families import Gauge, gauge_of
from rollbook.metrics import catalogue
from rollbook.metrics.metric import Metric, Part

__all__ = ["dashboard"]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SELECTED = '{job=~"$job", record=~"$record", host=~"$host"}'
MAX_LINES = 20  # in a panel: the hosts or devices that stand out most, so that a thousand hosts can be shown
WIDTH, HEIGHT, COLUMNS = 8, 7, 24
UNITS = {
    "percent": "percent",
    "bytes": "bytes",
    "bytes_per_second": "binBps",
    "per_second": "cps",
    "seconds": "s",
    "watts": "watt",
    "celsius": "celsius",
    "hertz": "hertz",
}
"""The units of Grafana; others are plain numbers."""


def dashboard() -> dict[str, Any]:
    """The dashboard: a row for each part of the catalogue. Rows that not every host has are collapsed."""
    first = gauge_of(next(iter(catalogue.load().values()))).host
    panels: list[dict[str, Any]] = []
    top = 0
    for part in catalogue.parts().values():
        found = list(_panels(part, top + 1))
        if not found:
            continue
        row: dict[str, Any] = {"type": "row", "title": part.name.replace("_", " "), "collapsed": part.is_held}
        row |= {"gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1}, "panels": found if part.is_held else []}
        panels += [row] if part.is_held else [row, *found]
        top = 1 + top if part.is_held else max(one["gridPos"]["y"] for one in found) + HEIGHT
    numbered = [panel for row in panels for panel in (row, *row.get("panels", []))]
    for number, panel in enumerate(numbered, 1):
        panel["id"] = number
    return {
        "id": None,
        "uid": "rollbook-metrics",
        "title": "Rollbook",
        "tags": ["rollbook"],
        "timezone": "browser",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "annotations": {"list": []},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _variable("job", first),
                # The names of records contain their times: the newest comes first and is selected.
                _variable("record", f'{first}{{job=~"$job"}}', sort=2, multi=False, includeAll=False),
                _variable("host", f'{first}{{job=~"$job", record=~"$record"}}', sort=7),
            ]
        },
        "panels": panels,
    }


def _variable(label: str, series: str, **more: Any) -> dict[str, Any]:
    """A variable with the values of a label."""
    query = f"label_values({series}, {label})"
    found = {"name": label, "label": label.capitalize(), "type": "query", "datasource": SOURCE, "refresh": 2, "sort": 1}
    found |= {"query": {"query": query, "refId": label}, "definition": query}
    return {**found, "multi": True, "includeAll": True, "allValue": ".*", **more}


def _panels(part: Part, top: int) -> Iterator[dict[str, Any]]:
    """The panels of a part, from `top` down: each metric per host, then per device if the part has devices."""
    metrics = [metric for metric in part.metrics if metric.chart]
    wanted = [(metric, False) for metric in metrics]
    if part.shows_devices:
        wanted += [(metric, True) for metric in metrics]
    for at, (metric, per_device) in enumerate(wanted):
        across, down = at % (COLUMNS // WIDTH), at // (COLUMNS // WIDTH)
        place = {"x": across * WIDTH, "y": top + down * HEIGHT, "w": WIDTH, "h": HEIGHT}
        yield {**_panel(metric, gauge_of(metric), per_device=per_device), "gridPos": place}


def _panel(metric: Metric, gauge: Gauge, *, per_device: bool) -> dict[str, Any]:
    """One metric: the hosts or devices that stand out most in the direction that is bad, and the median of all."""
    series = f"{gauge.device if per_device else gauge.host}{SELECTED}"
    labels, legend = ("host, device", "{{host}} {{device}}") if per_device else ("host", "{{host}}")
    choose, over = ("bottomk", "avg_over_time") if metric.bad == "low" else ("topk", "max_over_time")
    # Chosen once for the whole time span: chosen at each time, the lines would come and go.
    lines = f"{series} and on (record, {labels}) {choose}({MAX_LINES}, {over}({series}[$__range] @ end()))"
    queries = {legend: lines, "median": f"quantile(0.5, {series})"}
    limits = {} if metric.ceiling is None else {"max": metric.ceiling}
    return {
        "type": "timeseries",
        "title": f"{metric.title}, per device" if per_device else metric.title,
        "description": metric.description,
        "datasource": SOURCE,
        "targets": [
            {"refId": ref, "datasource": SOURCE, "expr": query, "legendFormat": name}
            for ref, (name, query) in zip("AB", queries.items(), strict=True)
        ],
        "fieldConfig": {"defaults": {"unit": UNITS.get(gauge.unit, "short"), "min": 0, **limits}, "overrides": []},
        "options": {"legend": {"showLegend": False}, "tooltip": {"mode": "multi", "sort": "desc"}},
    }
