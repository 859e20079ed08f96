"""A FUSE file system that never answers: a process that touches it waits in the kernel forever (state D).

Run as a program with a host's init and a path, it enters the host, mounts itself there with /dev/fuse and mount(2)
(kernel filesystems/fuse.rst), prints the process id of its server and leaves it running. The server reads every
request, which makes the waiting task unkillable, and replies to none. When the server ends the kernel aborts the
connection and every waiter gets ENOTCONN.
"""

from __future__ import annotations

import errno
import os
import signal
import struct
import sys
from pathlib import Path

from rollbook.testing.lab import syscalls

_IN_HEADER = struct.Struct("=IIQQIIIHH")  # len, opcode, unique, nodeid, uid, gid, pid, extensions, padding
_OUT_HEADER = struct.Struct("=IiQ")  # len, error, unique
_INIT_IN = struct.Struct("=IIII")  # major, minor, max_readahead, flags
_INIT_OUT = struct.Struct("=IIIIHHIIHHI28x")  # as _INIT_IN, then queue and write limits, time granularity
_INIT, _INTERRUPT = 26, 36
_MINOR = 31
"""The protocol minor this reply has the shape of; the kernel takes the lower of both (7.23 and later: 64 bytes)."""
_REQUEST = 1 << 17


def main() -> None:
    """Enter the host, start the server there, print its process id once the file system hangs."""
    init, path = sys.argv[1:]
    for kind, name in ((syscalls.CLONE_NEWPID, "pid"), (syscalls.CLONE_NEWNS, "mnt")):
        syscalls.setns(os.open(f"/proc/{init}/ns/{name}", os.O_RDONLY), kind)
    Path(path).mkdir(parents=True, exist_ok=True)
    fuse = os.open("/dev/fuse", os.O_RDWR)
    syscalls.mount("hang", path, "fuse", data=f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other")
    listen, tell = os.pipe()
    server = os.fork()
    if server:
        os.close(tell)
        if not os.read(listen, 1):
            sys.exit("the server of the file system died")
        print(server)  # noqa: T201 - the answer of this program
        return
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    _begin(fuse, path)
    os.write(tell, b".")
    os.close(tell)
    while os.read(fuse, _REQUEST):
        pass


def _begin(fuse: int, path: str) -> None:
    """Do the handshake, and make the kernel give up interrupts, so that waiters are in state D from the start.

    A waiter can be interrupted until the server has answered one FUSE_INTERRUPT with ENOSYS. To receive that request,
    a child waits on the file system and is killed; then its own request fails.
    """
    child = os.fork()
    if child == 0:
        try:
            os.statvfs(path)
        finally:
            os._exit(0)
    waiting = 0
    while True:
        request = os.read(fuse, _REQUEST)
        _, opcode, unique, *_ = _IN_HEADER.unpack_from(request)
        if opcode == _INIT:
            major, minor, readahead, _ = _INIT_IN.unpack_from(request, _IN_HEADER.size)
            body = _INIT_OUT.pack(major, min(minor, _MINOR), readahead, 0, 12, 9, 4096, 1, 0, 0, 0)
            os.write(fuse, _OUT_HEADER.pack(_OUT_HEADER.size + len(body), 0, unique) + body)
        elif opcode == _INTERRUPT:
            os.write(fuse, _OUT_HEADER.pack(_OUT_HEADER.size, -errno.ENOSYS, unique))
            os.write(fuse, _OUT_HEADER.pack(_OUT_HEADER.size, -errno.EIO, waiting))
            os.waitpid(child, 0)
            return
        else:
            waiting = unique
            os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
