"""Signatures of a manifest with SSH keys, made and checked by OpenSSH (ssh-keygen(1), -Y).

The manifest holds the hash of every file, so its signature covers the whole record. An allowed-signers file lists who
may sign; without one, a signature only identifies its key.
"""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path

import msgspec

from rollbook.errors import RecordError
from rollbook.files import write_file
from rollbook.records.locate import MANIFEST
from rollbook.records.reading import read_regular, require_regular

__all__ = ["Signature", "check_signature", "is_signed", "sign", "signature_file", "try_key"]

NAMESPACE = "rollbook"
SECONDS = 120.0  # a key may ask for a passphrase or a touch


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of checking a signature: whether it is good, the key, and the signer if known."""

    good: bool
    key: str = ""
    signer: str | None = None
    note: str = ""


def signature_file(manifest: Path) -> Path:
    """The path where OpenSSH puts the signature of a file."""
    return manifest.with_name(f"{manifest.name}.sig")


def is_signed(record: Path) -> bool:
    """Whether a record has a manifest with a signature."""
    manifest = record / MANIFEST
    return manifest.exists() and signature_file(manifest).exists()


def sign(record: Path, key: Path) -> None:
    """Sign the manifest of a record with a private key, or with the public half of a key that ssh-agent holds.

    If signing fails, an existing signature stays and `RecordError` is raised.
    """
    manifest = record / MANIFEST
    # Who can read the manifest can check it.
    mode = stat.S_IMODE(manifest.stat().st_mode)
    write_file(signature_file(manifest), _signed(read_regular(manifest), key), mode=mode)


def try_key(key: Path) -> None:
    """Raise `RecordError` for a key that cannot sign, before a long run instead of after it."""
    _signed(b"", key)


def _signed(data: bytes, key: Path) -> bytes:
    done = _keygen(["-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE], data)
    if done.returncode or not done.stdout:
        raise RecordError(f"cannot sign with {key}: {_last_line(done)}")
    return done.stdout


def check_signature(manifest: Path, allowed: Path | None) -> Signature:
    """Check the signature of a manifest, against the allowed signers if given."""
    signature, data = signature_file(manifest), read_regular(manifest)
    require_regular(signature)
    common = ["-n", NAMESPACE, "-s", str(signature)]
    done = _keygen(["-Y", "check-novalidate", *common], data)
    key = re.search(r"key (SHA256:\S+)", done.stdout.decode("utf-8", "replace"))
    if done.returncode or not key:
        return Signature(good=False, note=_last_line(done))
    if allowed is None:
        return Signature(good=True, key=key[1], note="no allowed signers were given: the key may belong to anyone")
    found = _keygen(["-Y", "find-principals", "-f", str(allowed), "-s", str(signature)], data)
    signer = found.stdout.decode("utf-8", "replace").strip().split("\n")[0]
    if found.returncode or not signer:
        return Signature(good=False, key=key[1], note=f"this key is not in {allowed}")
    judged = _keygen(["-Y", "verify", "-f", str(allowed), "-I", signer, *common], data)
    note = _last_line(judged) if judged.returncode else ""
    return Signature(good=not judged.returncode, key=key[1], signer=signer, note=note)


def _keygen(arguments: list[str], data: bytes | None) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", *arguments], input=data, capture_output=True, check=False, timeout=SECONDS)
    except OSError as error:
        raise RecordError(f"cannot run ssh-keygen: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise RecordError(f"ssh-keygen did not finish within {SECONDS:.0f} s") from None


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"ssh-keygen ended with code {done.returncode}"
