"""The configuration that ssh is given: that of the user and the site first, then our defaults.

OpenSSH uses the first value that it finds, so a default applies only where neither the user nor the site has a setting;
on the command line it would override both. The configuration lies in memory: ssh, and the ssh that it starts for a
jump host, read it through /proc. Nothing has to be removed from a disk, even if the collector is killed.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

from rollbook.errors import UsageError

__all__ = ["Configuration"]

# The system-wide file of distributions; openSUSE keeps its own below /usr/etc.
SYSTEM = (Path("/etc/ssh/ssh_config"), Path("/usr/etc/ssh/ssh_config"))
DEEPEST = 16  # levels of Include, as in OpenSSH
PLAIN_PATH = re.compile(r"[\w./@+=,:-]+")  # no glob, quote, token or variable, which Include would expand
INCLUDE = re.compile(r"^\s*include[\s=]+(.*)", re.IGNORECASE)
SECOND_PASS = re.compile(r"^\s*(?:match\b.*\b(?:final|canonical)\b|canonicalizehostname\b(?!\W+no\b))", re.IGNORECASE)


class Configuration:
    """The configuration for `ssh -F`; this user can read it at `path` for as long as the object lives.

    `user_file` replaces the files that ssh reads by default, as `ssh -F` does. Raises `UsageError` if it is unreadable.
    """

    def __init__(self, user_file: str | None, connect_timeout: int) -> None:
        memory = _nameless_file()
        weakref.finalize(self, os.close, memory)
        os.fchmod(memory, 0o600)
        text = _compose(user_file, connect_timeout)
        while text:
            text = text[os.write(memory, text) :]
        self.path = f"/proc/{os.getpid()}/fd/{memory}"


def _nameless_file() -> int:
    """The descriptor of a file without a name. Pythons built with an old glibc, such as conda's, lack memfd_create."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rollbook-ssh-config")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _compose(user_file: str | None, connect_timeout: int) -> bytes:
    """The text of the configuration: the files in the order in which ssh reads them, then the defaults."""
    own, system = _home() / ".ssh", _system_file()
    if user_file is not None:
        parts = [_file_of_user(Path(user_file).absolute())]
        lines = _lines(Path(user_file), own)
    else:
        parts = [_default_file(own / "config"), _system(system)]
        lines = (line for path in (own / "config", system) for line in _lines(path, path.parent))
    # A block for the second pass is read after all of the first one, so the defaults have to wait for it.
    second_pass = any(SECOND_PASS.search(line) for line in lines) and _supports_final()
    defaults = (
        "Match final all" if second_pass else "Match all",
        "StrictHostKeyChecking accept-new",
        f"ConnectTimeout {connect_timeout}",
        "ServerAliveInterval 5",
        "ServerAliveCountMax 3",
    )
    return b"\n".join([*parts, *(line.encode() for line in defaults), b""])


def _file_of_user(path: Path) -> bytes:
    """A file that the user named: included, or its text if Include would refuse it, which `ssh -F` would not."""
    try:
        return b"Include " + os.fsencode(path) if _can_be_included(path) else path.read_bytes() + b"\nMatch all"
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _default_file(path: Path) -> bytes:
    """The user's default file, which ssh ignores if it cannot read it, and refuses if others can write to it."""
    if not os.access(path, os.R_OK):
        return b""
    return b"Include " + (os.fsencode(path) if PLAIN_PATH.fullmatch(str(path)) else b"~/.ssh/config")


def _system(path: Path) -> bytes:
    """The system-wide file, which ssh ignores if it cannot read it.

    In an included file a relative Include would be taken from the user's directory.
    """
    try:
        text = path.read_text("utf-8", "surrogateescape")
        relative = [
            found[1] for line in text.splitlines() if (found := INCLUDE.match(line)) and found[1][:1] not in '/"~'
        ]
        if not relative and _can_be_included(path):
            return b"Include " + os.fsencode(path)
    except OSError:
        return b""
    for names in relative:
        text = text.replace(names, " ".join(str(path.parent / name) for name in names.split()))
    return text.encode("utf-8", "surrogateescape") + b"\nMatch all"


def _can_be_included(path: Path) -> bool:
    """Whether OpenSSH accepts the file in an Include: of the user or root, and not writable by others."""
    found = path.stat()
    trusted = found.st_uid in (0, os.getuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return trusted and stat.S_ISREG(found.st_mode) and PLAIN_PATH.fullmatch(str(path)) is not None


def _lines(path: Path, base: Path, depth: int = 0) -> Iterator[str]:
    """The lines of a file and of those that it includes; relative ones are below `base`."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        yield line
        found = INCLUDE.match(line)
        for pattern in found[1].replace('"', " ").split() if found and depth < DEEPEST else ():
            wanted = base / pattern.replace("~", str(_home()), 1) if pattern.startswith("~/") else base / pattern
            for included in sorted(Path("/").glob(str(wanted).lstrip("/"))):
                yield from _lines(included, base, depth + 1)


def _home() -> Path:
    """The home directory that ssh uses; it does not look at HOME."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # as in some containers, where ssh refuses to run
        return Path("/nonexistent")


def _system_file() -> Path:
    """The system-wide file of the ssh in PATH, which may have been built with a prefix of its own."""
    program = shutil.which("ssh")
    prefix = Path(program).resolve().parent.parent if program else Path("/usr")
    own = () if prefix in (Path("/"), Path("/usr")) else (prefix / "etc/ssh/ssh_config", prefix / "etc/ssh_config")
    return next((path for path in (*own, *SYSTEM) if path.exists()), SYSTEM[0])


def _supports_final() -> bool:
    """Whether the ssh in PATH has `Match final`, as OpenSSH does since 8.0."""
    try:
        done = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = re.search(r"OpenSSH_(\d+)", done.stderr)
    return found is not None and int(found[1]) >= 8
