"""Runs a command on many hosts, through the same agents and transports that read facts."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Unpack

from rollbook.collect.budget import Budget, Meter
from rollbook.collect.gather import INTERRUPTED, FanOut, conclude, fan_out, timeout_reason
from rollbook.collect.session import SILENCE, Session
from rollbook.errors import AgentFailed, TimedOut, UsageError
from rollbook.hosts import Host
from rollbook.protocol.command import command_order, output_of
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.visit import agent_name, to_int
from rollbook.records.commands import CommandResult
from rollbook.transports.base import Route, Transport
from rollbook.transports.launcher import Expecting

__all__ = ["MAX_OUTPUT", "Command", "execute"]

MAX_OUTPUT = 1 << 20
"""The default limit of a host's output, in bytes."""
LARGEST_OUTPUT = 1 << 30
LATE = 10.0  # seconds by which the end of a command that was killed may come after its timeout
LEAVING = 10.0  # seconds for the agent to end after the command

OnOutput = Callable[[Host, bool, bytes], None]
"""Called with output as it arrives: the host, whether it is of stderr, and the bytes; must not raise."""


@dataclasses.dataclass(frozen=True)
class Command:
    """What to run: a list of arguments, passed exactly, or a string for `sh -c`; raises `UsageError`.

    `timeout` is in seconds, None for no limit; `max_output` is the limit of stdout and stderr of one host together.
    """

    command: str | Sequence[str]
    timeout: float | None = None
    max_output: int = MAX_OUTPUT

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0] or (isinstance(self.command, str) and not self.command.strip()):
            raise UsageError("the command is empty")
        if any("\0" in word for word in self.argv):
            raise UsageError("an argument cannot contain a NUL byte")
        if self.timeout is not None and not 0 < self.timeout < 1e9:
            raise UsageError(f"the timeout of a command must be a positive number of seconds, not {self.timeout}")
        if not 0 <= self.max_output <= LARGEST_OUTPUT:
            raise UsageError(f"the output limit of a host must be 0 to {LARGEST_OUTPUT} bytes, not {self.max_output}")

    @property
    def argv(self) -> tuple[str, ...]:
        """The arguments of the program that runs."""
        return ("sh", "-c", self.command) if isinstance(self.command, str) else tuple(self.command)

    def order(self) -> bytes:
        """The order for the agent."""
        return command_order(self.argv, self.timeout or 0.0, self.max_output)


async def execute(
    hosts: Sequence[Host],
    route: Route,
    command: Command,
    *,
    on_output: OnOutput | None = None,
    **options: Unpack[FanOut[CommandResult]],
) -> list[CommandResult]:
    """Run the command on all hosts; returns one result per host, in order. For the options see `fan_out`.

    `timeout` is the time to reach a host and start the agent. When `stop` is set, the commands are killed. A command
    that was started on a host is never started again.
    """
    return await fan_out(hosts, route, _CommandVisitor(command, on_output), **options)


class _CommandVisitor:
    def __init__(self, command: Command, on_output: OnOutput | None) -> None:
        self._command, self._on_output = command, on_output

    async def visit(
        self, host: Host, transport: Transport, timeout: float, stop: asyncio.Event
    ) -> tuple[CommandResult, bool]:
        return await _Execution(host, transport, self._command, self._on_output).run(timeout, stop)

    def unstarted(self, host: Host, reason: str) -> CommandResult:
        return CommandResult(name=host.name, user=host.user, status="failed", reason=reason)

    def script(self) -> bytes:
        return self._command.order() + b"then\nstop\n"


class _Execution:
    """The command on one host."""

    def __init__(self, host: Host, transport: Transport, command: Command, on_output: OnOutput | None) -> None:
        self._host, self._command, self._on_output = host, command, on_output
        self._output: list[tuple[int, bool, bytes]] = []
        self._size = 0
        meter = Meter(Budget.of_output(command.max_output))
        self._session = Session(host, transport, Plan(()), self._receive, meter)
        self.result = CommandResult(name=host.name, user=host.user, status="complete")

    async def run(self, timeout: float, stop: asyncio.Event) -> tuple[CommandResult, bool]:
        """Run it; returns the result, and whether the host was busy and a retry makes sense."""
        began, result = time.monotonic(), self.result
        ended = await conclude(self._session, self._visit(timeout), None, stop)
        result.status, result.reason = ended.status, ended.reason
        if ended.status == "timed-out" and isinstance(self._session.transport, Expecting):
            result.started = True  # an agent that is not heard may have the command in its arguments, and run it
        if ended is INTERRUPTED and result.started:
            result.reason += ": the command was killed"
        self._finish()
        result.seconds = round(time.monotonic() - began, 4)
        return result, ended.busy

    async def _visit(self, timeout: float) -> None:
        session, result = self._session, self.result
        try:
            async with asyncio.timeout(max(0.0, timeout)) as limit, session:
                await session.greet()
                limit.reschedule(None)
                if session.visit.hello.get("kind") != "python":
                    raise AgentFailed("commands need Python 3.6 or later on the host; set --python")
                result.started = True
                await self._watch(asyncio.create_task(session.execute(self._command.order())))
                limit.reschedule(asyncio.get_running_loop().time() + LEAVING)
                await session.stop()
        except TimeoutError:
            raise TimedOut(timeout_reason(session, timeout)) from None

    async def _watch(self, work: asyncio.Task[None]) -> None:
        """Wait for the command; raises `TimedOut` if the agent is silent or does not keep the time."""
        timeout = self._command.timeout
        latest = time.monotonic() + timeout + LATE if timeout else float("inf")
        try:
            while not work.done():
                await asyncio.wait([work], timeout=1.0)
                if time.monotonic() - self._session.heard_at > SILENCE:
                    raise TimedOut(f"no message from the agent for {SILENCE:.0f} s; the command may still be running")
                if time.monotonic() > latest:
                    raise TimedOut(f"the agent did not end the command after {timeout:g} s")
            work.result()
        finally:
            work.cancel()

    def _receive(self, _arrived: int, frame: Frame) -> None:
        if frame.kind != "O":
            return
        is_stderr, data = output_of(frame)
        data = data[: self._command.max_output - self._size]  # whatever the host sends
        if not data:
            return
        self._size += len(data)
        self._output.append((frame.seq, is_stderr, data))
        if self._on_output is not None:
            self._on_output(self._host, is_stderr, data)

    def _finish(self) -> None:
        """Add output, exit status and identity to the result."""
        result, session = self.result, self._session
        hello, end = session.visit.hello, session.command_end
        if hello:
            result.method = session.transport.name
            result.agent = agent_name(hello)
            result.hostname = hello.get("hostname") or None
        self._output.sort(key=lambda piece: piece[0])  # repeated frames may come late
        result.stdout, result.stderr = (
            b"".join(data for _, is_stderr, data in self._output if is_stderr == wanted).decode(
                "utf-8", "backslashreplace"
            )
            for wanted in (False, True)
        )
        result.lost_frames = session.decoder.lost
        if not end:
            return
        result.dropped_bytes = to_int(end.get("dropped")) or 0
        if end.get("timed_out") == "1":
            result.status = "timed-out"
            result.reason = f"the command was killed after {self._command.timeout or 0:g} s"
            return
        result.exit_status = _status(end.get("status", ""))
        if result.exit_status is None:
            result.status, result.reason = "failed", "the agent sent no exit status"
        elif result.lost_frames:
            result.status = "partial"
            result.reason = f"{result.lost_frames} frames were lost in transit; output may be missing"
        elif result.status != "complete":  # the connection broke after the command had ended
            result.status, result.reason = "complete", ""


def _status(text: str) -> int | None:
    number = to_int(text.removeprefix("-"))
    return None if number is None or number > 255 else -number if text.startswith("-") else number
