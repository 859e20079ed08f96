"""`rollbook recover`: finish a record whose collector died."""

from __future__ import annotations

from pathlib import Path

import click

from rollbook.api.finish import recover
from rollbook.clean import count_text
from rollbook.cli.options import sign_option
from rollbook.cli.output import coverage_line, stderr
from rollbook.cli.record_argument import RecordPath

__all__ = ["command"]


@click.command("recover")
@click.argument("record", type=RecordPath())
@sign_option
def command(record: Path, sign: Path | None) -> None:
    """Rebuild everything in RECORD that is derived from its journal: tables, hosts, metadata, page, manifest.

    For a record whose collector died, or to rebuild any record with this version. A signed record needs --sign with a
    key to sign it again.
    """
    recovered = recover(record, sign=sign)
    samples = count_text(sum(host.samples for host in recovered.hosts.series), "sample")
    stderr().print(
        f"{samples} recovered; {coverage_line(recovered.coverage)}; record in {recovered.path}",
        soft_wrap=True,
    )
