"""The agent: runs on a host while Rollbook looks at it, and leaves nothing behind.

The modules wire, reading, source, children, once, steady, loop and agent are sent as one text in argv and run by
`python3 -I -S -c`; `python -m rollbook.agent` prints that text, which also runs by hand as `python3 FILE CARRIER`.
Standard library only, Python 3.6 or later, no import of the rest of Rollbook; imports are few because each host pays
for them. It takes orders as lines on stdin and answers with frames on stdout; started by a launcher of many, it
connects back to the collector and uses that connection for both, or where no way leads back, it takes its orders from
argv and sends lines on the stdout that it shares with the other agents:

    orders    source ID EVERY LIMIT MILLISECONDS   begins a source of the plan; its asks follow, one a line:
                read PATH | link PATH | run ARGV | each PATH ARGV | space | env PREFIX... | loop ARGV  (parted by tabs)
              go PHASE          read every source of the plan once
              sample NANOSECONDS    read the sources with EVERY > 0 on wall-clock multiples of the interval
              clock NANOSECONDS     what to add to this host's clock to get the collector's
              mark NAME         take an extra sample now, of all sources with EVERY > 0
              ping TEXT         answer at once, with both clocks
              then              in argv: go on with the next order when every phase is done
              wait              in argv: go on with the next order on SIGUSR1
              stop              say goodbye and end

    frames    H hello   R reading   Z reading, deflated   D phase done   S sample   G gap   P pong   B beat   E end

Whatever may block is touched only by a sacrificial child in its own process group; the agent itself samples what the
kernel answers out of its memory. A child that does not die is abandoned and counted, never waited for. The agent ends
when stdin closes, on SIGTERM, on SIGHUP and with its launcher.
"""

import os
import select
import sys
import time
import zlib

from rollbook.agent.loop import Agent
from rollbook.agent.wire import Out, binary, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # what lies under signal, whose enumerations cost more than all else imported here

CONNECT = 5.0  # seconds to find a way back to the collector
AGREE = 20.0  # seconds for who answers there to prove itself; many come at once, maybe to a busy machine


def connect(port: int, addresses: "list[str]", token: bytes, who: bytes) -> bool:
    """Make stdin and stdout a connection to the collector; false where no way leads there.

    All addresses are tried at once, for some may swallow packets. Both sides prove that they know the token and
    neither sends it: whoever else answers at one of the addresses can give no orders.
    """
    import hmac
    import socket

    def proof(*words: bytes) -> bytes:
        return hmac.new(token, b" ".join(words), "sha256").hexdigest().encode()

    def agreed(sock: "socket.socket") -> bool:
        sock.settimeout(AGREE)
        file = sock.makefile("rwb", 0)  # unbuffered: what follows the last line are orders
        theirs = file.readline(100).strip()
        ours = os.urandom(16).hex().encode()
        file.write(b" ".join((b"rollbook", who, ours, proof(b"agent", theirs, ours, who))) + b"\n")
        return hmac.compare_digest(file.readline(100).strip(), proof(b"collector", theirs, ours))

    until = time.monotonic() + CONNECT
    while token and addresses and time.monotonic() < until:
        poll, tried = select.poll(), {}
        for address in addresses:
            sock = None
            try:
                sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
                sock.setblocking(False)
                sock.connect_ex((address, port))
            except OSError:  # a host without IPv6, or a name that it does not know
                if sock:
                    sock.close()
                continue
            poll.register(sock, select.POLLOUT)
            tried[sock.fileno()] = sock
        late = False
        while tried and not late:
            late = time.monotonic() > until  # looked at before it counts: on a busy machine we may sleep long
            for fd, _ in poll.poll(100):
                sock = tried.pop(fd)
                poll.unregister(fd)
                try:
                    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) and agreed(sock):
                        # Unanswered beats end an agent whose collector is gone without a word.
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30000)
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        os.dup2(fd, 0)
                        os.dup2(fd, 1)
                        return True
                except OSError:
                    pass
                sock.close()
        time.sleep(os.urandom(1)[0] / 500)  # not all at once again
    return False


def whole_lines() -> int:
    """The best of stdout and stderr for lines that must not be cut: a pipe that holds no more than one page.

    Launchers read a page at a time, so what they read then ends where a line does. Open MPI makes stdout a terminal,
    of which this cannot be asked, and stderr a pipe.
    """
    from fcntl import fcntl

    for fd in (1, 2):
        try:
            fcntl(fd, 1031, 4096)  # F_SETPIPE_SZ, which has a name since Python 3.10
        except OSError:
            continue
        return fd
    return 1


def outlive() -> None:
    """Go on in a child. What stays behind ends with it; one that was killed it outlives until SIGUSR1.

    Hydra forwards no signal, to nobody, once all its processes on one of the hosts are gone.
    """
    launcher, signals, killed = os.getppid(), {signal.SIGUSR1, signal.SIGCHLD}, False
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        return
    while os.getppid() == launcher:
        told = signal.sigtimedwait(signals, 0.9)
        if killed and told and told.si_signo == signal.SIGUSR1:
            break
        pid, status = (0, 0) if killed else os.waitpid(child, os.WNOHANG)
        if pid and not status & 127:
            os._exit(status >> 8)
        killed = killed or bool(pid)
    os._exit(0)


def launched(spec: str, orders: str) -> Agent:
    """An agent that a launcher started: `PORT/VARIABLE/VARIABLE/MILLISECONDS/ADDRESS,…`.

    The variables hold its rank and its node's name; a line leaves every so many milliseconds where it has to share
    the launcher's stdout, and its orders are then those of argv, packed like the agent itself.
    """
    from binascii import a2b_base64

    port, numbered, node, pace, addresses = spec.split("/")
    rank, node = os.environ.get(numbered) or "-", os.environ.get(node) or "-"
    who = "%s %s %s" % (rank, node, os.uname().nodename)
    about = [("rank", rank), ("node", node)]  # type: list[tuple[str, object]]
    token = os.environ.pop("ROLLBOOK_TOKEN", "").encode()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if connect(int(port), [address for address in addresses.split(",") if address], token, who.encode()):
        return Agent(Out(1, binary), b"", about)
    if numbered == "PMI_RANK":
        outlive()
    out = Out(whole_lines(), text(str(os.getpid()) if rank == "-" else rank), int(pace) / 1000)
    agent = Agent(out, zlib.decompress(a2b_base64(orders)), about + [("orders", "argv")])
    signal.signal(signal.SIGUSR1, lambda *_: setattr(agent, "called", True))
    return agent


def main(argv: "list[str]") -> None:
    """Run until told to stop: argv is the carrier (`binary`, `text`, `text:TAG`, `connect:…`) and first orders."""
    carrier, _, rest = (argv[0] if argv else "text").partition(":")
    orders = "".join(argv[1:2])
    if carrier == "connect":
        agent = launched(rest, orders)
    else:
        agent = Agent(Out(1, binary if carrier == "binary" else text(rest or "0")), orders.encode(), [])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: agent.end(said=False))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who started us may ignore it, and no child could be waited for
    try:
        agent.run()
    except ConnectionError:  # nobody listens any more
        agent.end(said=False)


if __name__ == "__main__":
    # Sent to a host, argv is `-c PAYLOAD CARRIER …`; by hand, `agent.py CARRIER …`.
    main(sys.argv[2:] if sys.argv[0] == "-c" else sys.argv[1:])
