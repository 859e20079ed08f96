"""`rollbook hosts`: list the selected hosts, and check that they can be reached."""

from __future__ import annotations

import sys

import click

from rollbook.cli.options import OUTPUT, json_option, option
from rollbook.cli.reach import Reach, ReachCommand, reach_options
from rollbook.errors import ExitCode, UsageError
from rollbook.hosts import Host, fold

__all__ = ["command"]


@click.command("hosts", cls=ReachCommand)
@click.option("--check", is_flag=True, help="Log in to every host in parallel and check that it can be used.")
@option("--fold", "folded", heading=OUTPUT, is_flag=True, help="Print the hosts as one folded nodeset.")
@json_option
@reach_options
def command(reach: Reach, *, check: bool, folded: bool, as_json: bool) -> None:
    """List the hosts that the host options select, one per line; with --check, whether each can be used.

    A check logs in, starts the agent and measures round trip and clock offset; it reads no facts.
    """
    if folded and (check or as_json):
        raise UsageError("--fold cannot be combined with --check or --json")
    if check:
        sys.exit(_check(reach, as_json=as_json))
    if as_json:
        from rollbook.cli.output import print_json  # noqa: PLC0415 - a plain list does not need it
        from rollbook.records.host_lists import HostList  # noqa: PLC0415

        print_json(HostList(reach.hosts))
    elif folded:
        users = dict.fromkeys(host.user for host in reach.hosts)
        click.echo(",".join(fold(_login(host) for host in reach.hosts if host.user == user) for user in users))
    else:
        for host in reach.hosts:
            click.echo(_login(host))


def _login(host: Host) -> str:
    """The host as `-w` takes it, with the user if one was given."""
    return f"{host.user}@{host.name}" if host.user else host.name


def _check(reach: Reach, *, as_json: bool) -> int:
    from rollbook.cli.live import gather_live  # noqa: PLC0415 - a plain list does not need it
    from rollbook.cli.output import coverage_line, print_failures, print_hosts, print_json  # noqa: PLC0415
    from rollbook.protocol.plan import Plan  # noqa: PLC0415
    from rollbook.records.host_lists import HostCheck  # noqa: PLC0415
    from rollbook.records.hosts import Coverage  # noqa: PLC0415

    results, interrupted = gather_live(reach, Plan(()))
    coverage = Coverage.of(results)
    if as_json:
        print_json(HostCheck(coverage, results))
    else:
        rows = []
        for result in results:
            clock = result.clock
            trip = f"{clock.round_trip_ns / 1e6:.1f} ms" if clock else ""
            offset = f"{clock.offset_ns / 1e6:+.1f} ms ± {clock.bound_ns / 1e6:.1f}" if clock else ""
            rows.append((result.name, (result.status, result.method, result.agent, trip, offset)))
        print_hosts(("host", "status", "via", "agent", "round trip", "clock offset"), rows)
    print_failures(results)
    click.echo(coverage_line(coverage), err=True)
    return ExitCode.INTERRUPTED if interrupted else coverage.exit_code
