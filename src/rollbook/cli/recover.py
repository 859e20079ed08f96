"""`rollbook recover`: finish a record whose collector died."""

from __future__ import annotations

from pathlib import Path

import click

from rollbook.api.finish import finish
from rollbook.cli.options import sign_option
from rollbook.cli.output import coverage_line, stderr

__all__ = ["command"]


@click.command("recover")
@click.argument("record", type=click.Path(path_type=Path))
@sign_option
def command(record: Path, sign: Path | None) -> None:
    """Make everything in RECORD that follows from its raw log: tables, hosts, metadata, page, manifest.

    For a record whose collector died, and for any other to have it made anew by this version; one that is signed, only
    with a key to sign it again.
    """
    run = finish(record, sign=sign)
    samples = sum(host.samples for host in run.hosts.series)
    stderr().print(f"{samples} samples recovered; {coverage_line(run.coverage)}; record in {record}", soft_wrap=True)
