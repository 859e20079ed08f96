"""A relay on a host: a program of any user between an agent of another host and the collector."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from rollbook.testing import LabHost
from tests.support.commands import SOURCE

__all__ = ["start_relay"]

# It reads the port from the command line of the agent on its host, and forwards the proofs of agent and collector, so
# that both believe that they are connected to each other.
RELAY = """
import os, re, select, socket, sys, time
sys.path.insert(0, {source!r})
from rollbook.agent.secure import Seal
port, end = None, time.monotonic() + 60
while not port and time.monotonic() < end:
    time.sleep(0.02)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            port = port or re.search(rb"connect:(\\d+)/", open(f"/proc/{{pid}}/cmdline", "rb").read())
        except OSError:
            pass
server = socket.create_server(("0.0.0.0", int(port[1])))
server.settimeout(60)
agent, _ = server.accept()
collector = socket.create_connection(({collector!r}, int(port[1])))
for source, target in ((collector, agent), (agent, collector), (collector, agent)):
    while target.send(source.recv(1)) and source.recv(1, socket.MSG_PEEK) != b"\\n":
        pass
    target.send(source.recv(1))
orders = {orders!r}
while True:
    for source in select.select([agent, collector], [], [])[0]:
        try:
            data = source.recv(65536)
            if not data:
                sys.exit()
            if source is collector:
                data += orders if {raw} else Seal(bytes(32)).seal(orders)
            (collector if source is agent else agent).sendall(data)
        except ConnectionError:
            sys.exit()
"""


def start_relay(host: LabHost, owned: Path, log: Path, *, raw: bool) -> None:
    """Start a program on the host that relays the next agent and inserts orders to create the file `owned`.

    The orders have no authentication code (`raw`), or one of another key. Errors of the relay itself are in `log`.
    """
    collector = host.address.rpartition(".")[0] + ".254"
    orders = f"source\t0\t0\t100\t5000\nrun\ttouch\t{owned}\ngo\tnow\n".encode()
    code = RELAY.format(source=str(SOURCE), collector=collector, orders=orders, raw=raw)
    argv = shlex.join([sys.executable, "-c", code])
    host.run(["sh", "-c", f"{argv} >{shlex.quote(str(log))} 2>&1 </dev/null &"])
