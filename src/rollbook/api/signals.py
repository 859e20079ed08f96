"""Signals that ask to stop, from before a command starts until after its record is written.

One set of handlers stays in place for the whole time: a signal that arrives between two steps is kept for the next one
instead of ending the process.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

__all__ = ["FOR_THE_COMMAND", "STOPS", "Signals"]

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FOR_THE_COMMAND = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)


class Signals:
    """Passes signals to the current `receiver`; without one, keeps those that ask to stop for the next receiver.

    A signal that was ignored when the process started, as under nohup, stays ignored, except for SIGCHLD. Outside the
    main thread Python delivers no signals, and nothing happens. `stopped` is whether a signal asked to stop so far.
    """

    def __init__(self, *, command: bool = False) -> None:
        self._numbers = (*STOPS, *(FOR_THE_COMMAND if command else ()))
        self._before: dict[int, Any] = {}
        self._receiver: Callable[[int], None] | None = None
        self._waiting: list[int] = []
        self.stopped = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
            if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # every exit status would be lost
                self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ignore(self) -> None:
        """Ignore the handled signals from now on, even after the block: the process is about to exit."""
        for number in self._before.keys() & set(self._numbers):
            signal.signal(number, signal.SIG_IGN)
        self._before.clear()

    def receive(self, receiver: Callable[[int], None] | None) -> None:
        """Pass signals to a function, which runs in the main thread, starting with those that were kept."""
        self._receiver = receiver
        while self._receiver is not None and self._waiting:
            self._receiver(self._waiting.pop(0))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.stopped |= number in STOPS
        if self._receiver is not None:
            self._receiver(number)
        elif number in STOPS:
            self._waiting.append(number)
