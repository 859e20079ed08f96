"""A distant host: delays the data between ssh and its server, in order and without limiting the rate.

    relay.py ADDRESS PORT SECONDS

runs as a ProxyCommand (ssh_config(5)). It needs nothing but Python and its standard library.
"""

from __future__ import annotations

import asyncio
import os
import sys

SIZE = 1 << 16


async def carry(reading: asyncio.StreamReader, writing: asyncio.StreamWriter, seconds: float) -> None:
    """Forward each piece of data after a delay in seconds, and the end of the stream after the last piece."""
    loop, late = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def deliver() -> None:
        while True:
            due, data = await late.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                return
            writing.write(data)
            await writing.drain()

    delivering = asyncio.create_task(deliver())
    data = b"-"
    while data:
        data = await reading.read(SIZE)
        late.put_nowait((loop.time() + seconds, data))
    await delivering


async def main(address: str, port: int, seconds: float) -> None:
    """Relay in both directions until one side ends."""
    loop = asyncio.get_running_loop()
    here = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(here), sys.stdin)
    pipe, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    there, out = await asyncio.open_connection(address, port)
    back = asyncio.StreamWriter(pipe, protocol, None, loop)
    ways = [asyncio.create_task(carry(here, out, seconds)), asyncio.create_task(carry(there, back, seconds))]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
