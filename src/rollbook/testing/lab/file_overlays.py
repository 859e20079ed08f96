"""Files laid over those of the machine, done from inside a host's mount namespace: bind mounts and overlayfs.

A file that exists gets another bound over it (mount(2), MS_BIND). To add or remove one, its directory first becomes
an overlayfs (kernel filesystems/overlayfs.rst) whose changes lie in the host's own /run; the machine's own directory
is not touched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from rollbook.testing.lab import syscalls

__all__ = ["OWN", "cover", "hide"]

OWN = {"/run": "0755", "/tmp": "1777", "/dev/shm": "1777", "/mnt": "0755"}  # noqa: S108 - not the machine's
"""Directories that are each host's own, empty at boot, with their modes."""

_GRAFTS = Path("/run/graft")
_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/libexec")


def cover(files: Mapping[str, str]) -> None:
    """Bind files over paths, given as path to file; a path that does not exist is added."""
    for path, file in files.items():
        try:
            target = os.path.realpath(path)
        except FileNotFoundError:
            target = "/proc/self"  # a link that leads nowhere for a process of another PID namespace
        if re.match(r"/proc/(\d+|self)(/|$)", target):
            raise OSError(f"{path} belongs to single processes: no file can stand in for it")
        if not Path(target).exists():
            _graft(Path(target).parent)
            Path(target).touch()
        syscalls.mount(file, target, flags=syscalls.MS_BIND)


def hide(program: str) -> None:
    """Remove a program from all usual directories, with its versions (`name3` is also `name3.11`)."""
    names = rf"{re.escape(program)}(\.\d+)?" + (r"|platform-python.*" if program == "python3" else "")
    for directory in {Path(directory).resolve() for directory in _PROGRAMS}:
        found = [path for path in directory.glob("*") if re.fullmatch(names, path.name)]
        if found:
            _graft(directory)
        for path in found:
            path.unlink()


def _graft(directory: Path) -> None:
    """Make the directory, which need not exist, one where files can be added and removed."""
    existing = directory
    while not existing.is_dir():
        existing = existing.parent
    if existing == Path("/") or existing.is_relative_to("/proc"):
        raise OSError(f"nothing can be added to {existing}")
    if not any(_writable(place) for place in (existing, *existing.parents)):
        upper, work = _upper(existing), _upper(existing).with_suffix(".work")
        upper.mkdir(parents=True)
        work.mkdir()
        options = f"lowerdir={existing},upperdir={upper},workdir={work}"
        syscalls.mount("overlay", str(existing), "overlay", data=options)
    directory.mkdir(parents=True, exist_ok=True)


def _writable(directory: Path) -> bool:
    return str(directory) in OWN or _upper(directory).exists()


def _upper(directory: Path) -> Path:
    return _GRAFTS / str(directory).replace("/", "%")
