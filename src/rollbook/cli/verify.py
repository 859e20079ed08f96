"""`rollbook verify`: check manifest, hashes and signature of a record."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import click

from rollbook.checks.verify import Verified, verify
from rollbook.clean import clean, count_text
from rollbook.cli.options import Command, InputFile, json_option
from rollbook.cli.output import print_json, size, stderr
from rollbook.cli.record_argument import RecordPath
from rollbook.files import write_file
from rollbook.records.locate import MANIFEST, locate_record
from rollbook.records.reading import read_regular
from rollbook.records.signing import sign, signature_file

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
    if key and not found.problems:
        found = _sign(path, key, allowed_signers)
    if as_json:
        print_json(found)
    else:
        _show(found)
    sys.exit(1 if found.problems else 0)


def _sign(record: Path, key: Path, allowed_signers: Path | None) -> Verified:
    """Sign a record and verify it again; a signature that is then not good is taken back."""
    signature = signature_file(record / MANIFEST)
    before = read_regular(signature) if signature.exists() else None
    sign(record, key)
    found = verify(record, allowed_signers)
    if found.problems:
        if before is None:
            signature.unlink()
        else:
            write_file(signature, before, mode=stat.S_IMODE(signature.stat().st_mode))
        click.echo("the new signature was not kept", err=True)
    return found


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
