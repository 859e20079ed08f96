"""A command of the user: run once, its output sent as it comes."""

import os
import select
import time

from rollbook.agent.children import Child, signal
from rollbook.agent.wire import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rollbook.agent.loop import Agent

PIECE = 1 << 16  # bytes of output that are sent at once
LARGEST_PIPE = 1 << 20  # bytes that a pipe can hold, unless root enlarged the system's limit
# Seconds for which output is gathered: a command that prints line by line does not send a frame for each.
GATHERED = 0.05
FIRST_CHECK = 0.002  # seconds until the command is expected to end after it closed its output
CHECKED = 0.2  # seconds between two checks whether the command has ended while others hold its output open
LINGER = 2.0  # seconds for which output of processes that outlive the command is taken


def decode_word(word: str) -> bytes:
    """An argument as it was given: in orders, tab, newline and backslash are escaped by a backslash."""
    parts = [part.replace("\\t", "\t").replace("\\n", "\n") for part in word.split("\\\\")]
    return "\\".join(parts).encode("utf-8", "surrogateescape")


class Command(Child):
    """A process group with the command, and a guard that ends the group if the agent is killed.

    Output beyond `limit` bytes is read, counted and dropped, so that the command is not blocked. When the command has
    ended, the rest of its group is killed.
    """

    def __init__(self, agent: "Agent", milliseconds: str, limit: str, *words: str) -> None:
        self.argv = [decode_word(word) for word in words]
        self.left, self.dropped, self.ended, self.pause = int(limit), 0, 0.0, FIRST_CHECK
        self.due = time.monotonic() + CHECKED
        self.alive, self.life = os.pipe()  # only the agent can write to it: it closes when the agent ends
        Child.__init__(self, agent, int(milliseconds) / 1000 or float("inf"), agent.children)
        os.close(self.alive)

    def work(self, out: int, err: int) -> None:
        os.close(self.life)
        helper = os.fork()
        if not helper:
            if not os.fork():  # its parent ends, so the command does not find a child that it did not start
                os.close(out)
                os.close(err)
                os.read(self.alive, 1)
                os.killpg(0, signal.SIGKILL)
            os._exit(0)
        os.waitpid(helper, 0)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        os.dup2(out, 1)
        os.dup2(err, 2)
        try:
            os.execvp(self.argv[0], self.argv)
        except OSError as error:
            os.write(2, b"cannot run %s: %s\n" % (self.argv[0], (error.strerror or "").encode()))
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)

    def output_closed(self) -> None:
        self.due = 0.0  # it has ended or goes on without output

    def progress(self) -> None:
        self.due = min(self.due, time.monotonic() + GATHERED)
        if len(self.out) + len(self.err) >= PIECE:
            self.send()

    def send(self) -> None:
        """Send the output so far, as far as the limit allows."""
        for stream, data in ((b"o", self.out), (b"e", self.err)):
            kept = bytes(data[: self.left])
            self.left -= len(kept)
            self.dropped += len(data) - len(kept)
            del data[:]
            if kept:
                self.agent.out.frame(b"O", stream + kept)

    def check(self) -> None:
        """Send the output, and end if the command has: a process that it left behind may hold its output open."""
        moment, silent = time.monotonic(), not self.out and not self.err
        self.send()
        if not self.fds:
            self.pause = min(2 * self.pause, CHECKED)
        self.due = moment + (CHECKED if self.fds else self.pause)
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            self.ended = self.ended or moment
            if silent or not self.fds or moment - self.ended > LINGER:
                self.end()

    def end(self, timed_out: bool = False) -> None:
        for fd in list(self.fds):  # the agent may not have been able to read all that the command wrote
            for _ in range(LARGEST_PIPE // PIECE):
                if fd in self.fds and select.select([fd], [], [], 0)[0]:
                    self.readable(fd)
        Child.end(self, timed_out)

    def finished(self, timed_out: bool) -> None:
        os.close(self.life)
        self.send()
        facts = [("status", self.code), ("dropped", self.dropped), ("timed_out", int(timed_out))]
        self.agent.out.frame(b"X", lines_of(facts))  # type: ignore[arg-type] # list is invariant
        self.agent.command = None
