"""The agent's child processes. They do everything that may block, each in its own process group, with a timeout."""

import os
import time

from rollbook.agent.reading import PATH, Tree, find_program, status_of, user_directories
from rollbook.agent.wire import slurp

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signal  # noqa: PLC0414 - other modules import it from here

    from rollbook.agent.loop import Agent
else:
    import _signal as signal  # the C module: the enumerations of signal cost more than all other imports here


UNSTARTED = b"no process could be started"
FEW_FILES = b"only few open files are allowed (ulimit -n)"
ENOUGH_FILES = 256  # a program that fails with fewer may have failed for that reason


def detach() -> None:
    """In a new child: start a session, close the agent's channels, reset signals.

    A child stuck in the kernel would otherwise keep the login session open after the agent has ended.
    """
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def is_stuck(pid: int) -> bool:
    """Whether a process, or one of its threads, is blocked in the kernel, where no signal ends it."""
    tasks = "/proc/%d/task" % pid
    return any(slurp(tasks + "/" + task + "/stat").rpartition(") ")[2][:1] == "D" for task in Tree().names(tasks))


class Child:
    """A process in its own group with a deadline, whose output the agent reads; `group` lists it while it runs."""

    def __init__(self, agent: "Agent", seconds: float, group: "list[Child]") -> None:
        self.agent, self.deadline, self.group = agent, time.monotonic() + seconds, group
        self.start()

    def start(self) -> None:
        """Start the process; also used to restart one that has ended."""
        self.out, self.err, self.pid, self.code = bytearray(), bytearray(), 0, 126
        self.fds: "dict[int, bytearray]" = {}
        self.group.append(self)
        pipes: "list[int]" = []
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            pid = os.fork()
        except OSError:  # too many processes or files: the loop ends this child at once, the others continue
            for fd in pipes:
                os.close(fd)
            self.err += UNSTARTED
            self.deadline = 0.0
            return
        out_read, out_write, err_read, err_write = pipes
        self.fds, self.pid = {out_read: self.out, err_read: self.err}, pid
        if pid == 0:
            try:
                detach()
                for fd in self.fds:  # as a reader of its own pipes it would never notice that the agent was killed
                    os.close(fd)
                if self.agent.reader:  # the reader ends when no process can send it requests any more
                    os.close(self.agent.reader.requests)
                self.work(out_write, err_write)
            finally:
                os._exit(127)
        os.close(out_write)
        os.close(err_write)

    def work(self, out: int, err: int) -> None:
        """The work of the child process; must not return to the agent's loop."""

    def progress(self) -> None:
        """Called after output was added to `out` or `err`."""

    def finished(self, timed_out: bool) -> None:
        """Called once when the child has ended or was given up."""

    def readable(self, fd: int) -> None:
        piece = os.read(fd, 1 << 16)
        if piece:
            self.fds[fd] += piece
            self.progress()
        else:
            self.close(fd)
            if not self.fds:
                self.output_closed()

    def output_closed(self) -> None:
        """Called when the process has closed its output, which most do when they end."""
        self.end()

    def close(self, fd: int) -> None:
        os.close(fd)
        del self.fds[fd]

    def shortage(self) -> bytes:
        """The limit of ours that may have made a program fail; empty if the failure is its own."""
        if not self.pid:
            return UNSTARTED
        return FEW_FILES if 0 <= os.sysconf("SC_OPEN_MAX") < ENOUGH_FILES else b""

    def kill(self, reaped: bool = False) -> None:
        """Kill the group; on a busy host the child may not have made its own yet, and is killed alone."""
        for kill in (os.killpg,) if reaped else (os.killpg, os.kill):
            try:
                if self.pid:
                    kill(self.pid, signal.SIGKILL)
            except OSError:
                continue
            return

    def end(self, timed_out: bool = False) -> None:
        """Take the exit code and kill the group. A child stuck in the kernel is abandoned and counted."""
        self.group.remove(self)
        for fd in list(self.fds):
            self.close(fd)
        if not self.pid:
            self.finished(False)
            return
        pid = code = 0
        until = time.monotonic() + 0.2  # its pipes are closed: a healthy child is about to exit
        while not pid and not timed_out and time.monotonic() < until:
            pid, code = os.waitpid(self.pid, os.WNOHANG)
            if not pid:
                time.sleep(0.0005)
        self.code = (code >> 8) or -(code & 127)
        self.kill(reaped=pid != 0)
        if not pid:
            self.agent.dying.append(self.pid)
        self.finished(timed_out)


def exec_program(argv: "list[str]", out: int, err: int) -> None:
    """Replace this child by a program of the host; if that fails, write the page status to stderr."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    env = dict(os.environ, PATH=os.environ.get("PATH", "") + PATH, LC_ALL="C", LANG="C")
    try:
        # Not execvpe: it imports a module in every child to search PATH.
        os.execve(find_program(argv[0], user_directories()) or argv[0], argv, env)
    except OSError as error:
        os.write(2, status_of(error).encode())
