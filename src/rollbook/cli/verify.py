"""`rollbook verify`: check manifest, hashes and signature of a record."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rollbook.checks.verify import Verified, verify
from rollbook.clean import clean, count_text
from rollbook.cli.options import Command, InputFile, json_option
from rollbook.cli.output import print_json, size, stderr
from rollbook.cli.record_argument import RecordPath
from rollbook.records.locate import locate_record
from rollbook.records.signing import sign

__all__ = ["command"]


@click.command("verify", cls=Command)
@click.argument("record", type=RecordPath())
@click.option(
    "--allowed-signers",
    type=InputFile(),
    metavar="FILE",
    help="Allowed signers (see ssh-keygen(1)); an unsigned record then fails.",
)
@click.option(
    "--sign",
    "key",
    type=InputFile(),
    metavar="KEY",
    help="Sign the record with this ssh key if it has no problems.",
)
@json_option
def command(record: Path, *, allowed_signers: Path | None, key: Path | None, as_json: bool) -> None:
    """Check RECORD against its manifest: report files that are missing, changed, added or unreadable.

    Exits with 1 if there is a problem.
    """
    path = locate_record(record)
    found = verify(path, None if key else allowed_signers)
    if key and not [problem for problem in found.problems if problem.kind != "signature"]:
        sign(path, key)
        found = verify(path, allowed_signers)
    if as_json:
        print_json(found)
    else:
        _show(found)
    sys.exit(1 if found.problems else 0)


def _show(found: Verified) -> None:
    for problem in found.problems:
        click.echo(f"{problem.kind:<11}{clean(problem.path)}: {clean(problem.why)}")
    signature = found.signature
    if signature is None:
        signed = "not signed"
    elif signature.signer:
        signed = f"{'signed' if signature.good else 'wrongly signed'} by {signature.signer} ({signature.key})"
    else:
        signed = (
            f"signed by {signature.key}; {signature.note}" if signature.good else f"bad signature: {signature.note}"
        )
    judged = count_text(len(found.problems), "problem") if found.problems else "unchanged"
    stderr().print(clean(f"{judged}: {count_text(found.files, 'file')}, {size(found.bytes)}, {signed}"), soft_wrap=True)
