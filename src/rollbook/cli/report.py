"""`rollbook report`: write the offline HTML page of a record."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import click

from rollbook.cli.options import Command, file_option
from rollbook.cli.output import size, stderr
from rollbook.cli.record_argument import RecordPath
from rollbook.errors import UsageError

__all__ = ["command"]


@click.command("report", cls=Command)
@click.argument("record", type=RecordPath())
@file_option("-o", "--output", help="File to write [default: report.html in the record].")
@click.option("--serve", is_flag=True, help="Serve the page on 127.0.0.1 until Ctrl-C, and print its address.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Port of --serve [default: any free one].")
def command(record: Path, output: Path | None, port: int | None, *, serve: bool) -> None:
    """Write the page of RECORD: one HTML file that works without a network.

    Works for partial and recovered records too: missing data is shown as missing. The page inside a signed record
    cannot be replaced; write it elsewhere with -o.
    """
    from rollbook.api.outputs import write_report  # noqa: PLC0415 - DuckDB is slow to import

    if port is not None and not serve:
        raise UsageError("--port needs --serve")
    path = write_report(record, output)
    stderr().print(f"written to {path} ({size(path.stat().st_size)})", soft_wrap=True)
    if serve:
        _serve(path, port or 0)


def _serve(page: Path, port: int) -> None:
    """Serve the page until Ctrl-C."""
    from rollbook.report.serve import PageServer  # noqa: PLC0415 - rarely used

    try:
        server = PageServer(page, port)
    except OSError as error:
        raise UsageError(f"cannot serve on port {port}: {error.strerror}") from error
    with server, contextlib.suppress(KeyboardInterrupt):
        click.echo(server.url)
        tunnel = f"ssh -L {server.server_port}:127.0.0.1:{server.server_port} {socket.gethostname()}"
        stderr().print(f"from another machine: {tunnel}; press Ctrl-C to stop", soft_wrap=True)
        server.serve_forever()
