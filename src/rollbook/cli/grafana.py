"""`rollbook grafana`: a dashboard for pushed metrics."""

from __future__ import annotations

import json

import click

from rollbook.exports.grafana import dashboard

__all__ = ["command"]


@click.command("grafana")
def command() -> None:
    """Print a Grafana dashboard for metrics that `run` and `record` send with --push, as JSON for its import dialog.

    It has a panel for each metric that the page shows, including those of plug-ins. Grafana asks for the data source.
    """
    click.echo(json.dumps(dashboard(), indent=1, ensure_ascii=False))
