"""The agent: runs on a host while Rollbook reads it, and leaves nothing behind.

The modules of this package are joined into one text, which is sent in argv and run by
`python3 -I -S -c`; `python -m rollbook.agent` prints that text, which also runs by hand as `python3 FILE CARRIER`.
Standard library only, Python 3.6 or later, no import of the rest of Rollbook; few imports, because they slow the start
on every host. It takes orders as lines on stdin and answers with frames on stdout. Started by a launcher, it
connects back to the collector and uses that connection for both; if it cannot connect, it takes its orders from argv
and writes lines to the stdout that it shares with the other agents:

    orders    source ID EVERY LIMIT MILLISECONDS   starts a source of the plan; what to read follows, one per line:
                read PATH | link PATH | run ARGV | each PATH ARGV | space | env PREFIX... | loop ARGV
                (fields are separated by tabs)
              go PHASE              read every source of the plan once
              sample NANOSECONDS [TIME ...]    read the sources with EVERY > 0 on wall-clock multiples of the interval;
                                    at each TIME on the collector's clock, the interval doubles
              clock NANOSECONDS     what to add to this host's clock to get the collector's
              mark NAME             take an extra sample now, of all sources with EVERY > 0
              key                   the same as a key frame, which needs no frame before it
              ping TEXT             answer at once, with both clocks
              then                  in argv: continue with the next order when every phase is done
              wait                  in argv: continue with the next order on SIGUSR1
              exec MILLISECONDS LIMIT ARGV   run a command, killed after this time (0: never); LIMIT bytes of output
              extend TEXT           run a further part of the agent, which takes the orders that are not listed here
              stop                  send the end frame and exit

    frames    H hello   R reading   Z deflated reading   D phase done   S sample   G gap   P pong   B keep-alive   E end
              O output of a command: `o` or `e` for its stream, then the bytes   X end of the command

Everything that may block is done by a child in its own process group, which can be abandoned; the agent itself samples
only what the kernel answers from memory. A child that does not end is abandoned and counted, never waited for. The
agent ends when stdin closes, on SIGTERM, on SIGHUP and with its launcher.
"""

import os
import select
import sys
import time

from rollbook.agent.children import signal
from rollbook.agent.loop import Agent
from rollbook.agent.secure import Seal, derive, instance_of, line_code, same
from rollbook.agent.wire import Out, binary, slurp, text, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

CONNECT = 5.0  # seconds to connect to the collector
AGREE = 20.0  # seconds for the other side to prove itself; many agents connect at once to a busy machine


def agree(sock: "socket.socket", token: bytes, claim: bytes) -> "tuple[Seal, Seal] | None":
    """Prove to the collector that the token is known, and have it prove the same; the token itself is not sent.

    All that follows is authenticated with keys from the token and both nonces, one for each direction: a program that
    only forwards the proofs can neither send orders nor change anything.
    """
    sock.settimeout(AGREE)
    file = sock.makefile("rwb", 0)  # unbuffered: orders follow the last line
    theirs = file.readline(100).strip()
    ours = os.urandom(16).hex().encode()
    words = theirs, ours, claim
    file.write(b" ".join((b"rollbook", claim, ours, derive(token, b"agent", *words).hex().encode())) + b"\n")
    if not same(file.readline(100).strip(), derive(token, b"collector", *words).hex().encode()):
        return None
    return Seal(derive(token, b"agent-key", *words)), Seal(derive(token, b"collector-key", *words))


def is_own(family: int, address: str) -> bool:
    """Whether an address belongs to this host."""
    import socket

    probe = socket.socket(family, socket.SOCK_DGRAM)
    try:
        probe.connect((address, 9))  # sends nothing
        peer = probe.getpeername()[0]
        return bool(peer == probe.getsockname()[0] or peer.startswith("127."))
    finally:
        probe.close()


def connect(port: int, addresses: "list[str]", token: bytes, claim: bytes, near: bool) -> "tuple[Seal, Seal] | None":
    """Make stdin and stdout a connection to the collector; None if no address can be reached.

    All addresses are tried at once, because some may drop packets. Those of this host are skipped unless the collector
    is `near`, on the same machine: any user of this host could listen there. Then loopback is the first choice: other
    addresses of the machine go away with their interface, such as the bridge of a container, and connections with them.
    """
    import socket

    if near and addresses:
        addresses = ["127.0.0.1"] + [address for address in addresses if address != "127.0.0.1"]
    until = time.monotonic() + CONNECT
    while token and addresses and time.monotonic() < until:
        poll, tried = select.poll(), {}
        for address in addresses:
            sock, family = None, socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                if not near and is_own(family, address):
                    continue
                sock = socket.socket(family)
                sock.setblocking(False)
                sock.connect_ex((address, port))
            except OSError:  # a host without IPv6, or a name that does not resolve
                if sock:
                    sock.close()
                continue
            poll.register(sock, select.POLLOUT)
            tried[sock.fileno()] = sock
        late = False
        while tried and not late:
            late = time.monotonic() > until  # checked before the last poll: on a busy machine a poll may take long
            for fd, _ in poll.poll(100):
                sock = tried.pop(fd)
                poll.unregister(fd)
                try:
                    failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    seals = None if failed else agree(sock, token, claim)
                    if seals:
                        # Unacknowledged keep-alive frames end an agent whose collector disappeared.
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30000)
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        os.dup2(fd, 0)
                        os.dup2(fd, 1)
                        return seals
                except OSError:
                    pass
                sock.close()
        time.sleep(os.urandom(1)[0] / 500)  # spread the next attempts
    return None


def line_output() -> int:
    """Stdout or stderr, whichever is a pipe; its capacity is set to one page so that lines are not cut.

    Launchers read a page at a time, so every read then ends at the end of a line. Open MPI makes stdout a terminal,
    whose capacity cannot be set, and stderr a pipe.
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
    """Continue in a child. The parent ends with it; if the child was killed, the parent stays until SIGUSR1.

    Hydra forwards no signals to any host once all its processes on one of the hosts have ended.
    """
    launcher, signals, killed = os.getppid(), {signal.SIGUSR1, signal.SIGCHLD}, False
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        return
    while os.getppid() == launcher:
        received = signal.sigtimedwait(signals, 0.9)
        if killed and received and received.si_signo == signal.SIGUSR1:
            break
        pid, status = (0, 0) if killed else os.waitpid(child, os.WNOHANG)
        if pid and not status & 127:
            os._exit(status >> 8)
        killed = killed or bool(pid)
    os._exit(0)


def launched(spec: str, orders: str) -> Agent:
    """An agent that a launcher started: `PORT/VARIABLE/VARIABLE/MILLISECONDS/BOOT/ADDRESS,…`.

    The variables hold its rank and the name of its node; BOOT is the boot id of the collector's machine. If it cannot
    connect, it writes a line to the launcher's stdout every MILLISECONDS and takes its orders from argv, packed like
    the agent itself.
    """
    port, numbered, node, pace, boot, addresses = spec.split("/")
    rank, node = os.environ.get(numbered) or "-", os.environ.get(node) or "-"
    about = [("rank", rank), ("node", node)]  # type: list[tuple[str, object]]
    token = os.environ.pop("ROLLBOOK_TOKEN", "").encode()
    secret = os.urandom(8).hex()  # in every line, and in no connection: other hosts do not see the launcher's output
    instance = instance_of(token, secret.encode())
    claim = ("%s %s %s" % (rank, node, os.uname().nodename)).encode() + b" " + instance
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    near = boot == slurp("/proc/sys/kernel/random/boot_id")
    seals = connect(int(port), [address for address in addresses.split(",") if address], token, claim, near)
    if seals:
        send, receive = seals
        agent = Agent(Out(1, lambda *frame: send.seal(binary(*frame))), b"", about)
        agent.seal = receive
        return agent
    if numbered == "PMI_RANK":
        outlive()
    tag = "%s-%s" % (os.getpid() if rank == "-" else rank, secret)
    out = Out(line_output(), text(tag, line_code(token, tag.encode())), int(pace) / 1000)
    agent = Agent(out, unpack(orders), about + [("orders", "argv")])
    signal.signal(signal.SIGUSR1, lambda *_: setattr(agent, "signalled", True))
    return agent


def main(argv: "list[str]") -> None:
    """Run until stopped: argv is the carrier and first orders.

    Carriers are `binary`, `text`, `text:TAG`, `connect:…` and `oneway`: lines, all orders in argv, stdin is not read.
    """
    carrier, _, rest = (argv[0] if argv else "text").partition(":")
    orders = "".join(argv[1:2])
    if carrier == "connect":
        agent = launched(rest, orders)
    elif carrier == "oneway":
        agent = Agent(Out(1, text("0"), 0.001), unpack(orders), [("orders", "argv")])
    else:
        agent = Agent(Out(1, binary if carrier == "binary" else text(rest or "0")), orders.encode(), [])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: agent.end(goodbye=False))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if the parent ignores it, children cannot be waited for
    try:
        agent.run()
    except ConnectionError:  # the collector is gone
        agent.end(goodbye=False)


if __name__ == "__main__":
    # Sent to a host, argv is `-c PAYLOAD CARRIER …`; by hand, `agent.py CARRIER …`.
    main(sys.argv[2:] if sys.argv[0] == "-c" else sys.argv[1:])
