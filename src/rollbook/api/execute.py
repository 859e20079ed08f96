"""Commands on all hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Unpack

from rollbook.api.options import TransportOptions, check_fanout, hosts_of, require_no_event_loop, transport_keywords
from rollbook.collect.execute import MAX_OUTPUT, Command
from rollbook.collect.execute import execute as execute_on
from rollbook.records.commands import Execution
from rollbook.records.hosts import Coverage
from rollbook.times import iso_now
from rollbook.transports.base import FANOUT
from rollbook.transports.routing import Options, fallback_route, route

__all__ = ["execute", "execute_async"]


class ExecuteOptions(TransportOptions, total=False):
    """Options of `execute`.

    `command_timeout` is the time after which the command is killed, in seconds (default: none), `max_output` the most
    bytes of output kept of each host (default: 1 MiB), `fanout` the number of hosts contacted in parallel (default:
    64). `timeout` is the time to reach a host.
    """

    command_timeout: float | None
    max_output: int
    fanout: int


async def execute_async(
    command: str | Sequence[str], hosts: str | Sequence[str] = (), **options: Unpack[ExecuteOptions]
) -> Execution:
    """Run a command on every host; without hosts, on this machine.

    `command` is a list of arguments, which are passed exactly, or a string, which `sh -c` runs. For the options see
    `ExecuteOptions`. A host that fails is in the result with its reason; `UsageError` is raised for values that cannot
    be used. If the caller is cancelled, the commands are killed.
    """
    requested, reach = hosts_of(hosts), Options.of(**transport_keywords(options, ExecuteOptions))
    what = Command(command, options.get("command_timeout"), options.get("max_output", MAX_OUTPUT))
    fanout, created = check_fanout(options.get("fanout", FANOUT)), iso_now()
    results = await execute_on(
        requested, route(reach), what, timeout=reach.timeout, fanout=fanout, fallback=fallback_route(reach)
    )
    kept = command if isinstance(command, str) else list(command)
    return Execution(created=created, command=kept, coverage=Coverage.of(results), hosts=results)


def execute(
    command: str | Sequence[str], hosts: str | Sequence[str] = (), **options: Unpack[ExecuteOptions]
) -> Execution:
    """As `execute_async`, for code without an event loop."""
    require_no_event_loop("rollbook.execute", "await rollbook.execute_async(...)")
    return asyncio.run(execute_async(command, hosts, **options))
