"""System calls that the lab needs and Python 3.11 does not offer: unshare(2), setns(2), mount(2), prctl(2)."""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = [
    "CLONE_NEWNET",
    "CLONE_NEWNS",
    "CLONE_NEWPID",
    "CLONE_NEWUTS",
    "MNT_DETACH",
    "MS_BIND",
    "MS_MOVE",
    "MS_PRIVATE",
    "MS_REC",
    "adopt_orphans",
    "die_with_parent",
    "mount",
    "setns",
    "umount",
    "unshare",
]

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_BIND = 4096
MS_MOVE = 8192
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)
# Without the types, ctypes would pass the flags and the pointers of mount(2) as 32-bit integers.
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    """Leave the caller's namespaces of these kinds for new ones; a new PID namespace is for the next child."""
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Enter the namespace an open `/proc/PID/ns/*` file stands for."""
    _check(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Attach a file system, or with flags bind, move or change one."""
    result = _libc.mount(source.encode(), target.encode(), kind.encode(), flags, data.encode())
    _check(result, f"mount {kind or source} on {target}")


def umount(target: str, flags: int = 0) -> None:
    """Detach the file system mounted last on `target`."""
    _check(_libc.umount2(target.encode(), flags), f"umount {target}")


def die_with_parent() -> None:
    """Get SIGKILL when the parent thread ends. A PID namespace's init takes the whole namespace with it."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none of them can get lost."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
