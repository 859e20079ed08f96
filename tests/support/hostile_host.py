"""A hostile host: a program that replaces the agent, `hostile_host.py BEHAVIOUR`, and never stops by itself."""

from __future__ import annotations

import itertools
import os
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rollbook.agent.wire import MAGIC, binary
from rollbook.protocol.varint import put_varint

__all__ = ["ATTACK", "BEHAVIOURS", "STARTED", "fake_ssh"]

STARTED = "HOSTILE_STARTED"
"""The variable with a directory in which a host creates a file with its name after it has sent its hello."""
ATTACK = "\x1b]52;c;aGk=\x07\x1b[2J\rroot# \u202egnp.exe\x9b31m"
"""Text that sets the clipboard, clears the screen, overwrites a line, and reverses the direction of writing."""
MIB = 1 << 20
DISKS = 3  # the position of diskstats in the plan of the live view
GIVES_UP = 60.0  # seconds in which the collector should have closed the connection
numbers = itertools.count(1)


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """A valid frame."""
    return binary(kind, next(numbers), time.monotonic_ns(), time.time_ns(), payload)


def item(file: int, word: str, body: bytes = b"") -> bytes:
    """A frame about the first item of an issue report."""
    return frame(b"I", f"0\t{file}\t{word}".encode() + body)


def sample(text: bytes) -> bytes:
    """The payload of a sample of diskstats in the live view, with this text as its only page."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = b"ok %d /proc/diskstats\n%s" % (len(text), text)
    data = (stream.compress(body) + stream.flush(zlib.Z_SYNC_FLUSH))[:-4]
    payload = bytearray()
    for value in (DISKS, 1, 0, 0, len(data)):
        put_varint(payload, value)
    return bytes(payload) + data


def _frames() -> Iterator[bytes]:
    while True:
        yield b"".join(frame(b"B") for _ in range(2000))


def _bytes() -> Iterator[bytes]:
    while True:
        yield frame(b"B", bytes(MIB))


def _output() -> Iterator[bytes]:
    while True:
        yield frame(b"O", b"o" + b"\n" * MIB)


def _garbage() -> Iterator[bytes]:
    while True:
        yield os.urandom(1 << 16)


def _line() -> Iterator[bytes]:
    yield b"@rb1 0 1 "
    while True:
        yield b"x" * (1 << 16)


def _declared() -> Iterator[bytes]:
    while True:
        yield MAGIC + struct.pack(">II", 3 << 30, 0) + b"B" + bytes(1 << 16)


def _bombs() -> Iterator[bytes]:
    bomb = zlib.compress(b"0 now ok 0 \n" + bytes(15 * MIB), 9)
    while True:
        yield frame(b"Z", bomb)


def _samples() -> Iterator[bytes]:
    lines = b"".join(b"8 0 d%d 1 1 1 1 1 1 1 1 1 1 1\n" % number for number in range(30_000))
    content = sample(lines)
    while True:
        yield frame(b"S", content)


def _files() -> Iterator[bytes]:
    for number in itertools.count():
        yield item(number % 2000, f"open\t../../{number}{ATTACK}")


def _logs() -> Iterator[bytes]:
    yield item(0, "open\t/a")
    bomb = zlib.compress(b"\n" * (2 * MIB - 1), 9)
    while True:
        yield item(0, "log", b"\n" + bomb)


def _message() -> Iterator[bytes]:
    """Print a message for the terminal of the collector, and end."""
    os.write(2, f"{ATTACK} bye\n".encode())
    yield from ()


def _drip() -> Iterator[bytes]:
    while True:
        time.sleep(0.1)
        yield frame(b"B")


def _unfinished() -> Iterator[bytes]:
    """Announce a frame and never send it."""
    yield MAGIC + struct.pack(">II", 4 * MIB, 0) + b"B"
    while True:
        time.sleep(1)


def _stays() -> Iterator[bytes]:
    """Send the end of a command with `ATTACK` as its output, but keep the connection open."""
    yield frame(b"O", b"o" + ATTACK.encode()) + frame(b"X", b"status=0\ndropped=0\ntimed_out=0\n")
    end = time.monotonic() + GIVES_UP
    while time.monotonic() < end:
        time.sleep(0.1)
        yield frame(b"B")
    Path(os.environ[STARTED], "gave up").touch()


BEHAVIOURS: dict[str, Callable[[], Iterator[bytes]]] = {
    name.__name__[1:]: name
    for name in (
        _frames, _bytes, _output, _garbage, _line, _declared, _bombs, _samples, _files, _logs, _message, _drip,
        _unfinished, _stays,
    )
}  # fmt: skip


def fake_ssh(directory: Path) -> None:
    """Create a program `ssh` that runs commands on this machine; hosts named evil-BEHAVIOUR are hostile."""
    program = directory / "ssh"
    program.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != -- ]; do shift; done\n'
        f'case $2 in evil-*) exec {sys.executable} -P {__file__} "${{2#evil-}}" ;; esac\n'
        'exec sh -c "$3"\n'
    )
    program.chmod(0o755)


def main() -> None:
    """Greet as the host called `fine`, then misbehave."""
    hello = f"agent=1\nkind=python\npython=3.11\npid=1\nuid=0\nhostname=fine{ATTACK}\nmachine_id=1\n"
    out = sys.stdout.buffer
    out.write(binary(b"H", 0, 1, 1, hello.encode()))
    out.flush()
    if STARTED in os.environ:
        Path(os.environ[STARTED], sys.argv[1]).touch()
    for data in BEHAVIOURS[sys.argv[1]]():
        out.write(data)
        out.flush()


if __name__ == "__main__":
    main()
