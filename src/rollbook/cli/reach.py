"""The options that say which hosts to reach and how, shared by every command that reaches hosts."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from rollbook.api.options import MOST_AT_ONCE, ways
from rollbook.cli.options import Number, Words, refuse_given
from rollbook.errors import UsageError
from rollbook.hosts import Host, fold, from_slurm, node_lists, parse_hosts
from rollbook.transports import NAMES, Options, fallback, reason, route
from rollbook.transports.base import Transport

if TYPE_CHECKING:
    from rollbook.records.hosts import HostResult

__all__ = ["Reach", "reach_options"]

FIELDS = [field.name for field in dataclasses.fields(Options)]  # options of the command line have the same names


@dataclasses.dataclass(frozen=True)
class Reach:
    """The hosts asked for (by -w, --hostfile and -x), and the way to each."""

    asked: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
    options: Options
    fanout: int

    @functools.cached_property
    def hosts(self) -> list[Host]:
        """The hosts named; with none named, those of the Slurm allocation we are in, else this machine.

        They are looked up when they are needed: what reads a record does not depend on any.
        """
        hosts, files, exclude = self.asked
        if not hosts and not files and node_lists(os.environ):
            hosts = tuple(host.name for host in from_slurm(os.environ))
        return parse_hosts(hosts, files, exclude)

    def refuse(self) -> None:
        """For a command that was given a record: it has its own hosts, and no way to others can be named."""
        if any(self.asked):
            raise UsageError("a record has its own hosts; name hosts or a record, not both")
        refuse_given({"fanout", *FIELDS}, "a record is read, no host is reached")

    def explain(self) -> None:
        """Say on stderr why hosts are reached the way they are, where it was not the user's choice.

        That nobody can read it stops nothing.
        """
        if why := reason(self.options, self.hosts):
            with contextlib.suppress(OSError):
                click.echo(why, err=True)

    def route(self) -> Callable[[Host], Transport]:
        """The transport for each host, explained."""
        self.explain()
        return route(self.options)

    def tell_stand_ins(self, records: Sequence[HostResult]) -> None:
        """Say on stderr on which hosts the Python that was named did not run, and how they were read instead."""
        stand_ins = [record.name for record in records if record.agent == "sh"]
        if stand_ins and self.options.python not in (None, "none"):
            with contextlib.suppress(OSError):
                click.echo(
                    f"{fold(stand_ins)}: {self.options.python} did not run; read by the shell stand-in", err=True
                )

    def fallback(self) -> Callable[[Host], Transport] | None:
        """The transport for hosts that the first gave nothing of."""
        return fallback(self.options)


OPTIONS = (
    click.option("-w", "--hosts", multiple=True, metavar="HOSTS", help="Hosts: node[01-16,20], user@host, host:slots, "
                 "[IPv6], @group, ^file; comma or space lists; may be repeated."),
    click.option("--hostfile", multiple=True, metavar="FILE", help="File of hosts, plain or in MPI style."),
    click.option("-x", "--exclude", multiple=True, metavar="HOSTS", help="Hosts to leave out."),
    click.option("--via", metavar="WAY", default="auto", show_default=True,
                 help="Way to the hosts; auto is slurm inside an allocation, else local for this machine and ssh for "
                 "the rest."),
    click.option("--fallback", type=click.Choice(["ssh"]), help="Way to hosts that the first way gave nothing of."),
    click.option("--fanout", type=click.IntRange(1, MOST_AT_ONCE), default=64, show_default=True, metavar="N",
                 help="Hosts under way at once."),
    click.option("--timeout", type=Number(0.1), default=60.0, show_default=True, metavar="SECONDS",
                 help="Time for each host, from its turn on."),
    click.option("--ssh-user", "--ssh-username", metavar="USER", help="User to log in as."),
    click.option("--ssh-config", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
                 help="OpenSSH client configuration to use instead of your own."),
    click.option("--ssh-option", "ssh_options", multiple=True, metavar="KEY=VALUE", help="Option for ssh -o."),
    click.option("--python", metavar="PROGRAM", help="Python on the hosts [default: python3, 3.6 or later; a shell "
                 "stand-in where there is none; `none` for the stand-in]."),
    click.option("--slurm-args", type=Words(), default="", metavar="ARGS", help="Arguments for srun; outside a job "
                 "they make an allocation."),
    click.option("--mpi-bin", default="mpirun", show_default=True, metavar="PROGRAM", help="MPI launcher: Open MPI 4 "
                 "or 5, MPICH, PALS."),
    click.option("--mpi-args", type=Words(), default="", metavar="ARGS", help="Arguments for the MPI launcher."),
    click.option("--allow-run-as-root", is_flag=True, help="Let Open MPI run as root."),
    click.option("--oversubscribe", is_flag=True, help="Let Open MPI use more than a host's slots."),
    click.option("--connect-back", metavar="ADDRESS", help="Address of this machine that agents of a launcher connect "
                 "to [default: any that they reach]; `none`: lines on its stdout."),
)  # fmt: skip


def reach_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command; it gets them as one `reach`."""

    @functools.wraps(command)
    def with_reach(
        *,
        hosts: tuple[str, ...],
        hostfile: tuple[str, ...],
        exclude: tuple[str, ...],
        fanout: int,
        **rest: Any,
    ) -> Any:
        options = ways(**{name: rest.pop(name) for name in FIELDS})
        if options.via not in NAMES:
            route(options)  # a word that nobody knows is said before anything else
        return command(reach=Reach((hosts, hostfile, exclude), options, fanout), **rest)

    for option in reversed(OPTIONS):
        with_reach = option(with_reach)
    return with_reach
