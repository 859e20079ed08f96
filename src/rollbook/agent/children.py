"""The agent's children: whatever may block is done by them, in process groups of their own, within time limits."""

import os
import time

from rollbook.agent.reading import PATH, Tree, elsewhere, failed, located
from rollbook.agent.wire import slurp

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

    from rollbook.agent.loop import Agent
else:
    import _signal as signal  # what lies under signal, whose enumerations cost more than all else imported here


def detach() -> None:
    """In a fresh child: own process group, and none of the agent's channels.

    A child stuck in the kernel would otherwise hold the login session open long after the agent is gone.
    """
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def blocked(pid: int) -> bool:
    """Whether a process, or a thread of it, is stuck in the kernel, where no signal ends it."""
    tasks = "/proc/%d/task" % pid
    return any(slurp(tasks + "/" + task + "/stat").rpartition(") ")[2][:1] == "D" for task in Tree().names(tasks))


class Child:
    """A process in its own group whose output we read, with a deadline."""

    def __init__(self, agent: "Agent", seconds: float, home: "list[Child]") -> None:
        self.agent, self.deadline, self.home = agent, time.monotonic() + seconds, home
        self.start()

    def start(self) -> None:
        """Begin; also again, when it is over."""
        self.out, self.err, self.pid, self.code = bytearray(), bytearray(), 0, 126
        self.fds: "dict[int, bytearray]" = {}
        self.home.append(self)
        pipes: "list[int]" = []
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            pid = os.fork()
        except OSError:  # too many processes or files: the loop ends it at once, and it costs itself only
            for fd in pipes:
                os.close(fd)
            self.err += b"no process could be started"
            self.deadline = 0.0
            return
        out_read, out_write, err_read, err_write = pipes
        self.fds, self.pid = {out_read: self.out, err_read: self.err}, pid
        if pid == 0:
            try:
                detach()
                for fd in self.fds:  # or it would wait for itself to read what a killed agent no longer does
                    os.close(fd)
                if self.agent.reader:  # which ends when nobody can ask it any more
                    os.close(self.agent.reader.tell)
                self.work(out_write, err_write)
            finally:
                os._exit(127)
        os.close(out_write)
        os.close(err_write)

    def work(self, out: int, err: int) -> None:
        """What the child does."""

    def progress(self) -> None:
        """More output is there."""

    def finished(self, timed_out: bool) -> None:
        """The child is gone, or given up."""

    def readable(self, fd: int) -> None:
        piece = os.read(fd, 1 << 16)
        if piece:
            self.fds[fd] += piece
            self.progress()
        else:
            self.close(fd)
            if not self.fds:
                self.end()

    def close(self, fd: int) -> None:
        os.close(fd)
        del self.fds[fd]

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
        """Take the exit code and kill the group. A child stuck in the kernel is left to its fate, and counted."""
        self.home.remove(self)
        for fd in list(self.fds):
            self.close(fd)
        if not self.pid:
            self.finished(False)
            return
        pid = code = 0
        until = time.monotonic() + 0.2  # its pipes are closed: a healthy child is about to exit by itself
        while not pid and not timed_out and time.monotonic() < until:
            pid, code = os.waitpid(self.pid, os.WNOHANG)
            if not pid:
                time.sleep(0.0005)
        self.code = (code >> 8) or -(code & 127)
        self.kill(reaped=pid != 0)
        if not pid:
            self.agent.dying.append(self.pid)
        self.finished(timed_out)


def become(argv: "list[str]", out: int, err: int) -> None:
    """Turn this child into a program of the host; where that fails, stderr says how in one word."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    env = dict(os.environ, PATH=os.environ.get("PATH", "") + PATH, LC_ALL="C", LANG="C")
    try:
        # Not execvpe: it would import a module in every child to look the program up.
        os.execve(located(argv[0], PATH.split(":")[1:] + elsewhere()) or argv[0], argv, env)
    except OSError as error:
        os.write(2, failed(error).encode())
