"""`rollbook verify`: manifest, hashes and signature of a record."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rollbook.checks.verify import Verified, verify
from rollbook.clean import clean
from rollbook.cli.output import size, stderr
from rollbook.records.document import encode
from rollbook.records.signing import sign

__all__ = ["command"]


@click.command("verify")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--allowed-signers",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Who may sign (ssh-keygen(1), ALLOWED SIGNERS); a record without a signature then fails.",
)
@click.option(
    "--sign", "key", type=click.Path(exists=True, path_type=Path), metavar="KEY", help="Sign it, if it is whole."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(path: Path, *, allowed_signers: Path | None, key: Path | None, as_json: bool) -> None:
    """Check that the record in PATH is what its manifest says: every file there, unchanged, none added, all readable.

    Exits with 1 where anything is not.
    """
    found = verify(path, None if key else allowed_signers)
    if key and not [problem for problem in found.problems if problem.kind != "signature"]:
        sign(path / "manifest.json", key)
        found = verify(path, allowed_signers)
    if as_json:
        click.echo(encode(found), nl=False)
    else:
        _show(found)
    sys.exit(1 if found.problems else 0)


def _show(found: Verified) -> None:
    for problem in found.problems:
        click.echo(f"{problem.kind:<11}{clean(problem.path)}: {clean(problem.why)}")
    signature = found.signature
    if signature is None:
        said = "not signed"
    elif signature.signer:
        said = f"{'signed' if signature.good else 'wrongly signed'} by {signature.signer} ({signature.key})"
    else:
        said = f"signed by {signature.key}; {signature.note}" if signature.good else f"bad signature: {signature.note}"
    count = len(found.problems)
    judged = f"{count} problem{'s' if count > 1 else ''}" if count else "whole"
    stderr().print(clean(f"{judged}: {found.files} files, {size(found.bytes)}, {said}"), soft_wrap=True)
