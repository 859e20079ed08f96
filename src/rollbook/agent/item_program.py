"""Runs a program and sends its output as a file of an item. Part of the agent for issue reports; see `evidence.py`."""

import os
import select
import time

from rollbook.agent.children import exec_program, is_stuck, signal
from rollbook.agent.log_window import BLOCK, TimeWindow
from rollbook.agent.outgoing import Sink, Tail, quoted
from rollbook.agent.reading import find_program, user_directories
from rollbook.agent.wire import slurp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from rollbook.agent.item_reader import ItemReader


def kill_session(session: int, *spared: int) -> None:
    """Kill every process of a session; repeated, because they may start others meanwhile."""
    for _ in range(3):
        found = 0
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in spared:
                continue
            fields = slurp("/proc/" + name + "/stat").rpartition(") ")[2].split()
            if len(fields) > 3 and fields[3] == str(session) and fields[0] not in "ZX":
                found += 1
                try:
                    os.kill(int(name), signal.SIGKILL)
                except OSError:
                    pass
        if not found:
            return


def run_program(reader: "ItemReader", argv: "list[str]", allowed: int) -> bool:
    """Send a program's output, stdout and stderr together; returns whether it succeeded and printed something."""
    if not find_program(argv[0], user_directories()):
        reader.note("absent", "%s: not installed" % argv[0])
        return False
    is_shell = argv[:2] == ["/bin/sh", "-c"]
    source = argv[2] if is_shell else " ".join(quoted(word) for word in argv)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            exec_program(argv, write, write)
        finally:
            os._exit(127)
    os.close(write)
    reader.pid = pid
    sink, tail, size, code = Sink(reader, source), Tail(allowed), 0, None  # type: Sink, Tail, int, int | None
    for block in program_output(reader, read, pid):
        size += len(block)
        if reader.item.keep == "tail":
            tail.add(block)
        else:
            sink.write(block[: max(0, allowed - size + len(block))])
            if size > allowed:
                break
    os.close(read)
    late, cut = reader.late(), reader.item.keep == "head" and size > allowed
    until = time.monotonic() + (0.0 if late or cut else 0.2)
    code = exit_status(pid)
    while code is None and time.monotonic() < until:
        time.sleep(0.001)
        code = exit_status(pid)
    timed_out, reader.pid = late and code is None, 0
    if code is None or is_shell:  # a shell may have started others
        kill_session(os.getpid(), os.getpid())
    before = tail.pour(sink)
    reader.left -= min(size, allowed)
    if timed_out:
        time.sleep(0.05)
        stuck = exit_status(pid) is None and is_stuck(pid)
        why = ": stuck in the kernel, abandoned" if stuck else reader.late_note(": killed")
        reader.note("timed-out", source[:80] + why)
    elif before or cut:
        reader.found.append("truncated")
    sink.end(before, -1 if cut or timed_out else 0, code)
    return code == 0 and size > 0


def program_output(reader: "ItemReader", read: int, pid: int) -> "Iterator[bytes]":
    """The output of a program until it ends or its time is over; programs in the background may keep it open."""
    window = TimeWindow(reader.since, reader.before) if reader.item.dated and (reader.since or reader.before) else None
    poll = select.poll()
    poll.register(read, select.POLLIN)
    poll.register(reader.out, 0)  # reports that the agent is gone
    ended = 0.0
    while not reader.late() and not (ended and time.monotonic() - ended > 0.3):
        for fd, _ in poll.poll(min(reader.timeout.left(), 0.2) * 1000):
            if fd == reader.out:
                kill_session(os.getpid(), os.getpid())
                os._exit(1)
            block = os.read(read, BLOCK)
            more = window.filter(block) if window else block
            if more:
                yield more
            if not block:
                return
        if not ended and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            ended = time.monotonic()


def exit_status(pid: int) -> "int | None":
    """The exit status of a program, negative for a signal; None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return None if not found else (status >> 8) or -(status & 127)
