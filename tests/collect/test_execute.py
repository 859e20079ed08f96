"""Commands on hosts: never twice on one host."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from rollbook.collect.execute import Command, execute
from rollbook.errors import AgentFailed
from rollbook.hosts import Host
from rollbook.records.commands import CommandResult
from rollbook.testing import Fake


class Silent(Fake):
    """A transport whose agents do not answer."""

    async def open(self, host: Host) -> NoReturn:
        """Wait for ever."""
        del host
        await asyncio.Event().wait()
        raise AssertionError


class Launched(Silent):
    """One that may have started them, with the command in their arguments."""

    def expect(self, hosts: Sequence[Host], script: bytes) -> None:
        """Start agents that are not heard."""


class Second(Fake):
    """The fallback."""

    async def open(self, host: Host) -> NoReturn:
        """Say that it was used."""
        raise AgentFailed(f"used for {host.name}")


def result_of(transport: Fake) -> CommandResult:
    """Run a command through a transport, with a fallback."""
    second = Second({})
    found = execute([Host("x")], lambda _: transport, Command("true"), timeout=0.1, fallback=lambda _: second)
    [result] = asyncio.run(found)
    return result


def test_a_command_that_may_run_is_not_repeated() -> None:
    """If the agents of a launcher are not heard in time, the fallback is not used; those of ssh got no command."""
    assert (result_of(Silent({})).reason, result_of(Silent({})).started) == ("used for x", False)
    launched = result_of(Launched({}))
    assert (launched.status, launched.started) == ("timed-out", True)
