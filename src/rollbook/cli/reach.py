"""The options that name hosts and choose a transport, shared by every command that reaches hosts.

Options of transports come from their declarations. Those of a plug-in are added when `--via` or `--fallback` names it,
and all of them in `--help`: the search for plug-ins takes longer than most commands.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from rollbook.api.options import MAX_FANOUT
from rollbook.cli.configuration import Value, configured
from rollbook.cli.options import (
    HOSTS,
    RECORDING,
    TRANSPORT,
    Command,
    Number,
    Option,
    add_options,
    complete,
    is_default,
    is_typed,
    option,
    refuse_given,
)
from rollbook.errors import UsageError
from rollbook.hosts import Host, fold, from_slurm, node_lists, parse_hosts
from rollbook.transports.base import FANOUT, TIMEOUT, Route
from rollbook.transports.options import Declared
from rollbook.transports.registry import AUTO, BUILT_IN, options_of, plug_ins
from rollbook.transports.routing import (
    GENERAL_OPTIONS,
    Options,
    explain_auto,
    fallback_route,
    known_hosts,
    route,
    usable_options,
)

if TYPE_CHECKING:
    from rollbook.records.hosts import HostResult

__all__ = ["Reach", "ReachCommand", "reach_options"]

HOST_PARAMETERS = ("hosts", "hostfile", "exclude")


class TransportOption(Option):
    """An option that transports declare, and their names."""

    def __init__(self, declared: Declared, transports: Sequence[str]) -> None:
        declaration, kind = declared.option, declared.type
        attributes: dict[str, Any] = {}
        if kind is bool:
            attributes["is_flag"] = True
        elif typing.get_origin(kind) is tuple:
            attributes["multiple"] = True
        elif typing.get_origin(kind) is Literal:
            attributes["type"] = click.Choice(typing.get_args(kind))
        else:
            attributes |= {
                "type": {int: click.INT, float: Number()}.get(kind, click.STRING),
                "default": declared.default,
            }
        super().__init__(
            [declared.flag, *declaration.aliases, declared.name],
            heading=TRANSPORT,
            metavar=declaration.metavar or None,
            show_default=bool(declared.default),
            help=f"{declaration.help} [{', '.join(transports)}]",
            **attributes,
        )


@functools.cache
def transport_options(transports: tuple[str, ...]) -> tuple[TransportOption, ...]:
    """The options of these transports; those that several declare once."""
    found: dict[str, tuple[Declared, list[str]]] = {}
    for transport in transports:
        for declared in options_of(transport).values():
            found.setdefault(declared.name, (declared, []))[1].append(transport)
    return tuple(TransportOption(declared, owners) for declared, owners in found.values())


LIST_OPTIONS = {
    **dict.fromkeys(("-w", "--hosts", "--node", "--nodes"), "--hosts"),
    **dict.fromkeys(("--instance-group", "--instance-groups"), "--instance-group"),
}
"""Options after which several words may follow, and with which each of them is repeated."""
CONFIGURED = (HOSTS, TRANSPORT, RECORDING)
"""The headings of options whose defaults can be configured."""
SETTINGS = f"{__name__}.settings"


class ReachCommand(Command):
    """A command with `reach_options`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take defaults from the configuration, add the options of the plug-ins that are named, then parse."""
        settings = ctx.meta[SETTINGS] = _settings(args)
        named = [*_typed_transports(args), *(settings[key].value for key in ("via", "fallback") if key in settings)]
        others = [name for name in dict.fromkeys(named) if name != AUTO and name not in BUILT_IN]
        ctx.meta[__name__] = (*BUILT_IN, *(name for name in others if name in plug_ins()))
        own = {param.name for param in self.get_params(ctx) if getattr(param, "heading", "") in CONFIGURED}
        ctx.default_map = {key: one.value for key, one in settings.items() if key in own}
        try:
            return super().parse_args(ctx, _repeat_hosts(args, self))
        except click.BadParameter as error:
            name = (error.param.name if error.param else None) or ""
            if ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
                message = f"{error.message.rstrip('.')} (from {settings[name].origin})"
                raise click.BadParameter(message, ctx, error.param) from error
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters of the command, with the options of the transports that may be used."""
        params = super().get_params(ctx)
        options = transport_options(ctx.meta.get(__name__, tuple(BUILT_IN)))
        taken = {flag: param for param in params for flag in param.opts}
        if clash := [flag for added in options for flag in added.opts if flag in taken]:
            raise UsageError(f"a transport declares {clash[0]}, which `{ctx.command_path}` has already")
        after = (
            max((at for at, param in enumerate(params) if param.name in GENERAL_OPTIONS), default=len(params) - 1) + 1
        )
        return [*params[:after], *options, *params[after:]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, with those of all plug-ins that can be loaded."""
        usable = []
        for name in plug_ins():
            try:
                options_of(name)
            except UsageError as error:
                click.echo(f"warning: {error}", err=True)
            else:
                usable.append(name)
        ctx.meta[__name__] = (*BUILT_IN, *usable)
        super().format_options(ctx, formatter)


def _settings(args: list[str]) -> dict[str, Value]:
    """The configuration; a mistake in it does not keep the user from reading the help."""
    try:
        return configured()
    except UsageError:
        if args[:1] in (["-h"], ["--help"]):
            return {}
        raise


def _typed_transports(args: list[str]) -> Iterator[str]:
    """The values of `--via` and `--fallback`, which decide which options there are to parse."""
    for word, following in itertools.pairwise([*itertools.takewhile(lambda word: word != "--", args), ""]):
        flag, equals, value = word.partition("=")
        if flag in ("--via", "--fallback"):
            yield value if equals else following


def _repeat_hosts(args: list[str], command: click.Command) -> list[str]:
    """Turn `--hosts a b` into `--hosts a --hosts b` where no argument can be meant instead.

    MLPerf Storage has this form, and so has the HyperPod collector (`--nodes a b`, `--instance-groups a b`). No
    argument can be meant if the command has none, or before a `--` that separates them. The name of a subcommand ends
    the hosts.
    """
    subcommands = command.commands if isinstance(command, click.Group) else {}
    takes_arguments = any(isinstance(param, click.Argument) for param in command.params)
    end = args.index("--") if "--" in args else len(args)
    if takes_arguments and end == len(args):
        return args
    found: list[str] = []
    flag = ""
    for at, word in enumerate(args[:end]):
        if word.startswith("-"):
            flag = ""
        elif at and args[at - 1] in LIST_OPTIONS:
            flag = LIST_OPTIONS[args[at - 1]]
        elif flag and word in subcommands:
            return found + args[at:]
        elif flag:
            found.append(flag)
        found.append(word)
    return found + args[end:]


@dataclasses.dataclass(frozen=True)
class Reach:
    """The hosts named with -w, --hostfile and -x, and the transport to each.

    With `each_excludes`, every -x must exclude a host: one that does not is a misspelt name.
    """

    named: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
    options: Options
    fanout: int
    each_excludes: bool = False

    @functools.cached_property
    def hosts(self) -> list[Host]:
        """The hosts named; if none is, those that the transport lists or the Slurm allocation has, else this machine.

        They are looked up when they are needed: a command that reads a record does not depend on any.
        """
        hosts, files, exclude = self.named
        if not hosts and not files:
            hosts = tuple(known_hosts(self.options))
            if not hosts and node_lists(os.environ):
                hosts = tuple(host.name for host in from_slurm(os.environ))
        return parse_hosts(hosts, files, exclude, each_excludes=self.each_excludes)

    def without_configured_hosts(self, default: Sequence[str]) -> Reach:
        """The same for the hosts that were typed, else those of `default`, without those of a typed -x."""
        hosts, files, exclude = (
            values if is_typed(name) else () for name, values in zip(HOST_PARAMETERS, self.named, strict=True)
        )
        return dataclasses.replace(self, named=(hosts if hosts or files else tuple(default), files, exclude))

    def refuse(self) -> None:
        """Raise `UsageError` if hosts or a transport were given to a command that reads a record."""
        context = click.get_current_context()
        if any(map(is_typed, HOST_PARAMETERS)):
            raise UsageError(
                "a record has its own hosts; name hosts or a record, not both (several hosts: --hosts a,b)"
            )
        names = {param.name for param in context.command.get_params(context) if isinstance(param, TransportOption)}
        refuse_given({"fanout", *GENERAL_OPTIONS, *filter(None, names)}, "a record is read, so no host is contacted")

    def explain(self) -> None:
        """Print on stderr which transports `auto` chose. An unusable stderr stops nothing."""
        if why := explain_auto(self.options, self.hosts):
            with contextlib.suppress(OSError):
                click.echo(why, err=True)

    def route(self) -> Route:
        """The transport for each host, explained on stderr."""
        self.explain()
        return route(self.options)

    def report_stand_ins(self, results: Sequence[HostResult]) -> None:
        """Print on stderr the hosts on which the requested Python did not run."""
        stand_ins = [result.name for result in results if result.agent == "sh"]
        python = self.options.given.get("python", "none")
        if stand_ins and python != "none":
            with contextlib.suppress(OSError):
                click.echo(f"{fold(stand_ins)}: {python} did not run; the shell stand-in was used", err=True)

    def fallback(self) -> Route | None:
        """The transport for hosts that returned no data through the first one."""
        return fallback_route(self.options)


_complete_via = complete(lambda: (AUTO, *BUILT_IN, *plug_ins()))


OPTIONS = (
    option("-w", "--hosts", "--node", "--nodes", heading=HOSTS, multiple=True, metavar="HOSTS",
           help="Hosts, separated by commas or spaces: node[01-16,20], user@host, host:slots, [IPv6], @group, ^file; "
           "may be repeated [default: the configured hosts; else, with --via kube or --cluster, all nodes of the "
           "cluster; else the Slurm job's nodes; else this machine]."),
    option("--hostfile", heading=HOSTS, multiple=True, metavar="FILE",
           help="File with one or more hosts per line, or an MPI host file."),
    option("-x", "--exclude", heading=HOSTS, multiple=True, metavar="HOSTS",
           help="Hosts to exclude; a list that matches none of the hosts is an error."),
    option("--via", heading=TRANSPORT, metavar="NAME", default=AUTO, show_default=True, shell_complete=_complete_via,
           help=f"Transport: {', '.join(BUILT_IN)}, a plug-in's, or auto: slurm inside an allocation, else local "
           "for this machine and ssh for the rest."),
    option("--fallback", heading=TRANSPORT, metavar="NAME", shell_complete=_complete_via,
           help="Transport to retry hosts that returned no data, such as ssh."),
)  # fmt: skip


def _options(context: click.Context, choice: dict[str, Any], values: dict[str, Any]) -> Options:
    """The transport and its options. Configured options of other transports than the chosen one are left out.

    An error about a configured value names its origin.
    """
    settings: dict[str, Value] = context.meta.get(SETTINGS, {})
    given = {name: value for name, value in values.items() if is_typed(name)}
    try:
        usable = usable_options(choice["via"], choice["fallback"])
    except UsageError as error:
        origins = [settings[name].origin for name in ("via", "fallback") if name in settings and not is_typed(name)]
        raise UsageError(f"{error} (from {', '.join(origins)})" if origins else str(error)) from error
    for name, value in values.items():
        if name in given or name not in usable:
            continue
        try:
            given[name] = usable[name].validate(value)
        except UsageError as error:
            raise UsageError(f"{error} (from {settings[name].origin})") from error
    return Options.of(**choice, **given)


def reach_options(
    command: Callable[..., Any],
    *,
    timeout: float = TIMEOUT,
    fanout_alias: Sequence[str] = (),
    fanout_note: str = "",
    shared: Collection[str] = (),
) -> Callable[..., Any]:
    """Add the options to a `ReachCommand`, which gets them as one `reach`; `timeout` is the default for each host.

    `fanout_alias` are further names of `--fanout`, `fanout_note` is added to its help. `shared` are options of
    transports that the command uses as well: it also gets those that were typed, with any transport.
    """

    @functools.wraps(command)
    def with_reach(
        *,
        hosts: tuple[str, ...],
        hostfile: tuple[str, ...],
        exclude: tuple[str, ...],
        fanout: int,
        **rest: Any,
    ) -> Any:
        context = click.get_current_context()
        choice = {name: rest.pop(name) for name in GENERAL_OPTIONS}
        values = {}
        for param in context.command.get_params(context):
            if isinstance(param, TransportOption) and param.name is not None:
                value = rest.pop(param.name)
                if not is_default(param.name):
                    values[param.name] = value
        for name in shared:
            rest[name] = values[name] if is_typed(name) else None
            if is_typed(name) and name not in usable_options(choice["via"], choice["fallback"]):
                del values[name]
        if not is_typed("hosts") and is_typed("hostfile"):
            hosts = ()
        if not is_typed("hostfile") and is_typed("hosts"):
            hostfile = ()
        # A configured list is made for all jobs: some of them have none of its hosts.
        chosen = _options(context, choice, values)
        reach = Reach((hosts, hostfile, exclude), chosen, fanout, each_excludes=is_typed("exclude"))
        return command(reach=reach, **rest)

    in_parallel = option("--fanout", *fanout_alias, "fanout", heading=TRANSPORT, type=click.IntRange(1, MAX_FANOUT),
                         default=FANOUT, show_default=True, metavar="N",
                         help=f"Hosts contacted in parallel{fanout_note}.")  # fmt: skip
    per_host = option("--timeout", heading=TRANSPORT, type=Number(0.1), default=timeout, show_default=True,
                      metavar="SECONDS", help="Per-host timeout.")  # fmt: skip
    return add_options(with_reach, (*OPTIONS, in_parallel, per_host))
