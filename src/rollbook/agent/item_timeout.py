"""The timeout of an item. Part of the agent for issue reports; see `evidence.py`.

The agent has the lowest priority, so on a busy host a harmless command may take many times its usual time. Time in
which an item waits for a processor is therefore not counted, up to a limit.
"""

import os
import time

from rollbook.agent.wire import slurp

BUSY = "the processors of this node are busy"
MOST = 20  # times its timeout that an item gets at most
LOOK_AGAIN = 0.2  # seconds until a program that waits for a processor is looked at again
LOOKS = 3  # a program that is not ready to run that many times in a row waits for something else


class ItemTimeout:
    """The time of one item, or of one of its commands: `seconds`, but not longer than `until`."""

    def __init__(self, seconds: float, until: float) -> None:
        self.seconds, self.until = seconds, until
        self.restart()

    def restart(self) -> None:
        """Begin again, for the next command."""
        self.began = time.monotonic()
        self.deadline = min(self.began + self.seconds, self.until)
        self.last = min(self.began + MOST * self.seconds, self.until)
        self.delay, self.is_extended, self.looks, self.ended = run_delay(), False, 0, False

    def left(self) -> float:
        """Seconds to the deadline."""
        return max(0.0, self.deadline - time.monotonic())

    def is_over(self, pid: int) -> bool:
        """Whether the time is over; it is extended while this process, or the program, waits for a processor.

        Once over, it stays over: the program is killed then.
        """
        moment = time.monotonic()
        if self.ended or moment < self.deadline:
            return self.ended
        before, delay = self.deadline, run_delay()
        self.deadline, self.delay = self.deadline + delay - self.delay, delay
        if self.deadline <= moment and pid and is_busy():
            self.looks = 0 if is_starved(pid, self.seconds) else self.looks + 1
            if self.looks < LOOKS:
                self.deadline = moment + LOOK_AGAIN
        self.deadline = min(self.deadline, self.last)
        self.is_extended = self.is_extended or self.deadline > before + 0.01
        self.ended = moment >= self.deadline
        return self.ended


def run_delay() -> float:
    """Seconds that this process was ready to run, but waited for a processor (proc_pid_schedstat(5))."""
    fields = slurp("/proc/self/schedstat").split()
    return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0


def is_busy() -> bool:
    """Whether more processes are ready to run than there are processors."""
    running = slurp("/proc/loadavg").partition("/")[0].split()
    return bool(running) and int(running[-1]) > (os.cpu_count() or 1)


def is_starved(pid: int, seconds: float) -> bool:
    """Whether a program, or one that it started, is ready to run, and all used less than these seconds."""
    ticks, is_ready, pids = 0, False, [pid]
    for one in pids:  # the list grows
        fields = slurp("/proc/%d/stat" % one).rpartition(") ")[2].split()
        if len(fields) > 14:
            is_ready = is_ready or fields[0] == "R"
            ticks += sum(int(field) for field in fields[11:15])
            pids += [int(child) for child in slurp("/proc/%d/task/%d/children" % (one, one), 1 << 16).split()]
    return is_ready and ticks < seconds * os.sysconf("SC_CLK_TCK")
