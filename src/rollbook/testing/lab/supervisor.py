"""The supervisor: a process beside the tests that owns and removes everything a lab has created.

It reads one JSON request per line on stdin and answers each with one line. When stdin ends, because the lab was
left or because the process that built it died, even by SIGKILL, the supervisor kills every host, removes the link and
the directory, and exits. If the supervisor itself is killed, the kernel does nearly all of that: each host's init dies
with its parent and takes its PID namespace along, and a veth pair goes with the namespace of either end.

The hosts hang on a bridge in the supervisor's own network namespace; one link leads from there to the namespace of the
tests. That link is all that can be seen of the lab's network from outside.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from rollbook.testing.lab import file_overlays, syscalls
from rollbook.testing.lab.init import Boot, ip
from rollbook.testing.lab.processes import everyone, reap

SECONDS_TO_END = 20.0
"""Seconds to wait for processes at the end; one that hangs in the kernel does not block the supervisor."""


class Supervisor:
    """The requests, each a method; an `OSError` is the answer of one that failed."""

    def __init__(self) -> None:
        self.networked = False

    def open(self, link: str, address: str, caller: int) -> None:
        """Make the bridge, and the link to it, with its address, in the network namespace of process `caller`."""
        syscalls.unshare(syscalls.CLONE_NEWNET)
        ip(
            "link add lab type bridge",
            "link set lab up",
            f"link add uplink master lab type veth peer name {link} netns {caller}",
            "link set uplink up",
        )
        self.networked = True
        outside = ["nsenter", "--target", str(caller), "--net", "ip"]
        self.run([*outside, "addr", "add", address, "dev", link])
        self.run([*outside, "link", "set", link, "up"])

    def boot(self, port: str, mac: str, **settings: Any) -> int:
        """Start the init of a host and plug it into the bridge; returns its process id."""
        host = Boot(**settings)
        host.wait()
        ip(
            f"link add {port} master lab type veth peer name eth0 address {mac} netns {host.pid}",
            f"link set {port} up",
        )
        host.go_on()
        host.wait()
        return host.pid

    def halt(self, pid: int, port: str) -> None:
        """End a host; when this returns, none of its processes is left."""
        ip(f"link del {port}")
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)

    def within(self, pid: int, what: str, **arguments: Any) -> None:
        """Call a function of `file_overlays` in the mount namespace of process `pid`."""
        mine, its = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                syscalls.setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), syscalls.CLONE_NEWNS)
                getattr(file_overlays, what)(**arguments)
                os._exit(0)
            except OSError as error:
                os.write(its, str(error).encode())
            finally:
                os._exit(1)
        os.close(its)
        with open(mine, encoding="utf-8") as answer:  # noqa: PTH123 - a pipe has no path
            wrong = answer.read()
        if os.waitpid(child, 0)[1]:
            raise OSError(wrong or f"{what} failed")

    def run(self, argv: Sequence[str]) -> None:
        """Run a program to its end. What it leaves running behind becomes a child of the supervisor."""
        done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise OSError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")

    def serve(self) -> None:
        """Answer requests until stdin ends."""
        while (request := _next_request()) is not None:
            try:
                answer = {"answer": getattr(self, request.pop("do"))(**request)}
            except OSError as error:
                answer = {"error": str(error)}
            os.write(1, json.dumps(answer).encode() + b"\n")

    def take_down(self, directory: str) -> None:
        """Kill all children, and those that become children by that, until there are none; then tidy up."""
        end = time.monotonic() + SECONDS_TO_END
        while reap() and time.monotonic() < end:
            for process in everyone():
                if process.parent == os.getpid():
                    os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.005)
        if self.networked:
            ip("link del uplink")
        shutil.rmtree(directory)


def main() -> None:
    """Serve until stdin ends or SIGTERM comes, then take everything down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    syscalls.adopt_orphans()
    supervisor = Supervisor()
    try:
        supervisor.serve()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        supervisor.take_down(sys.argv[1])


def _next_request() -> dict[str, Any] | None:
    """The next line of stdin, or None at its end; adopted children that ended are reaped meanwhile."""
    text = b""
    while not text.endswith(b"\n"):
        if select.select([0], [], [], 0.5)[0]:
            if not (piece := os.read(0, 1 << 16)):
                return None
            text += piece
        reap()
    request: dict[str, Any] = json.loads(text)
    return request


if __name__ == "__main__":
    main()
