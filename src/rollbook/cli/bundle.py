"""`rollbook bundle`: collect an issue report, and analyse one."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from rollbook.api.bundle import make_request, resume_request, run_bundle
from rollbook.aws.api import Account
from rollbook.bundle.archive import require_packer
from rollbook.bundle.cluster_items import ClusterOptions
from rollbook.bundle.collect import TIMEOUT
from rollbook.bundle.collect import Reach as Nodes
from rollbook.bundle.delivery import Delivery
from rollbook.bundle.directory import BundleDirectory
from rollbook.bundle.finish import require_new_archive
from rollbook.bundle.kubernetes import SECONDS as KUBECTL_SECONDS
from rollbook.bundle.reading import archive_suffix
from rollbook.bundle.request import Request
from rollbook.bundle.s3_layout import prepare
from rollbook.bundle.summary import BundleSummary, ItemResult, NodeResult
from rollbook.clean import clean
from rollbook.cli.bundle_items import item_options, print_items, print_plan, refuse_selection
from rollbook.cli.configuration import results_directory
from rollbook.cli.live import run_interruptible
from rollbook.cli.options import (
    OUTPUT,
    RECORDING,
    Command,
    Number,
    is_default,
    json_option,
    option,
    refuse_given,
    sign_option,
)
from rollbook.cli.output import ProgressView, coverage_line, print_failures, print_json, size, stderr
from rollbook.cli.reach import Reach, ReachCommand, reach_options
from rollbook.cli.record_argument import BundlePath
from rollbook.cli.uploads import (
    Upload,
    account,
    describe_deliveries,
    s3_options,
    send_archive,
    send_per_node,
    upload_options,
)
from rollbook.errors import ExitCode, UsageError
from rollbook.files import require_utf8
from rollbook.hosts import Host, fold, parse_hosts
from rollbook.records.hosts import Coverage, HostResult
from rollbook.records.signing import try_key

__all__ = ["command"]

# Defaults with --s3-path, those of the HyperPod collector: seconds for a node and for its answer, nodes in parallel.
S3_TIMEOUT, ANSWER, WORKERS = 900.0, 60.0, 16


@dataclasses.dataclass(frozen=True)
class BundleOptions:
    """How the bundle is written, obfuscated (`names` is the map), signed and uploaded, and what is read once."""

    archive: Path | None
    names: Path | None
    sign: Path | None
    cluster: ClusterOptions
    as_json: bool
    upload: Upload
    start_timeout: float | None

    def check(self, request: Request, *, resumed: bool = False) -> Delivery | None:
        """Raise an error for what cannot be done, before anything is collected; returns how nodes deliver."""
        if self.archive is not None:
            require_packer(self.archive)
        if self.sign is not None:
            try_key(self.sign)
        why = "with --obfuscate" if self.names else "with --resume" if resumed else ""
        return self.upload.check(request, self.archive, self.cluster.hyperpod, made_here=why)


class BundleCommand(ReachCommand, click.Group):
    """A command with hosts and options of its own that also has subcommands."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the subcommands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


class View(ProgressView):
    """Progress in nodes and items."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.items = 0  # first: the view may be drawn at once
        super().__init__(hosts)

    def item(self, node: str, item: ItemResult) -> None:
        """An item of a node is finished."""
        del node, item
        self.items += 1

    def finished(self, result: NodeResult) -> None:
        """The node is finished."""
        self._active.pop(result.node, None)
        self._done[result.status] += 1

    def _view(self) -> Any:
        return super()._view().append(f"\n{self.items} items", "dim")


@click.group("bundle", cls=BundleCommand, invoke_without_command=True)
@option(
    "-o",
    "--output",
    heading=OUTPUT,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A results directory, or the archive to write: NAME.tar.zst or NAME.tar.gz "
    "[default: the configured results directory].",
)
@option(
    "--resume",
    heading=OUTPUT,
    type=BundlePath(),
    metavar="BUNDLE",
    help="Continue an incomplete bundle: only missing nodes and items are read.",
)
@sign_option
@option(
    "--obfuscate",
    heading=OUTPUT,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="MAP",
    help="Replace host names, addresses and users; MAP is a file outside the bundle that keeps the pairs.",
)
@upload_options
@json_option
@item_options
@option(
    "--start-timeout",
    heading=RECORDING,
    type=Number(1),
    metavar="SECONDS",
    help="Timeout for the first answer of a node after its session or login was opened "
    f"[default: {ANSWER:g} with --s3-path, else --timeout].",
)
@option(
    "--kubectl-timeout",
    heading=RECORDING,
    type=Number(1),
    default=KUBECTL_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Timeout for all kubectl calls together.",
)
@option(
    "--once/--no-once",
    heading=RECORDING,
    default=True,
    show_default=True,
    help="Also read Kubernetes, Slurm's controller and the HyperPod service, once, from this machine. Kubernetes is "
    "that of --kube-context [default: kubectl's current context, if it has one of the nodes].",
)
@click.option("--debug", is_flag=True, hidden=True, expose_value=False)  # of the HyperPod collector: without effect
@click.option("--list", "list_items", is_flag=True, help="List all items.")
@click.option("--dry-run", is_flag=True, help="Show what would be read from which nodes, and read nothing.")
@functools.partial(
    reach_options,
    timeout=TIMEOUT,
    fanout_alias=["--max-workers"],
    fanout_note=f"; by default {WORKERS} with --s3-path",
    shared=["kube_context"],
)
@click.pass_context
def command(
    context: click.Context,
    reach: Reach,
    *,
    output: Path | None,
    resume: Path | None,
    sign: Path | None,
    obfuscate: Path | None,
    upload: Upload,
    as_json: bool,
    selection: dict[str, Any],
    start_timeout: float | None,
    kubectl_timeout: float,
    kube_context: str | None,
    once: bool,
    list_items: bool,
    dry_run: bool,
) -> None:
    """Collect diagnostic evidence from every node: logs, state of hardware, drivers, services and schedulers.

    Secrets are replaced on the nodes. Every requested node is in the result with its status and the reason if it is
    not complete. The bundle is also a record: check, diff and describe read it.
    """
    if context.invoked_subcommand:
        names = {param.name or "" for param in context.command.get_params(context)}
        refuse_given(names, f"write the options after {context.invoked_subcommand}")
        return
    if list_items:
        refuse_given({"as_json"}, "--list prints a table; --dry-run --json prints the items and what they read")
        print_items(selection["item_files"])
        return
    if upload.per_node_to is not None:
        start_timeout = start_timeout or ANSWER
        if is_default("fanout"):
            reach = dataclasses.replace(reach, fanout=WORKERS)
        if is_default("timeout"):
            reach = dataclasses.replace(reach, options=dataclasses.replace(reach.options, timeout=S3_TIMEOUT))
    options = BundleOptions(
        output if output and archive_suffix(output) else None,
        obfuscate,
        sign,
        ClusterOptions.of(reach.options, enabled=once, context=kube_context or "", seconds=kubectl_timeout),
        as_json,
        dataclasses.replace(upload, s3=account(upload.s3, reach.options.given)),
        start_timeout,
    )
    if resume is not None:
        refuse_selection("a bundle is resumed with the items that it was started with")
        refuse_given({"dry_run"}, "--resume reads what is missing")
        if options.archive is None:
            refuse_given({"output"}, "a bundle is resumed in its own directory; an archive can be made of it")
        _resume(resume, reach, selection["commands"], options)
        return
    request = make_request(reach.hosts, **selection)
    if dry_run:
        print_plan(request, as_json=as_json)
        return
    place = output or results_directory()
    require_utf8(place, "the path of the output")
    delivery = options.check(request)
    directory = BundleDirectory.create(place, request, reach.hosts, dt.datetime.now(dt.UTC))
    directory.cluster_name = reach.options.given.get("cluster", "")
    _collect(directory, request, reach.hosts, reach, options, delivery=delivery)


@command.command("analyse")
@click.argument("bundle", type=BundlePath())
@json_option
def analyse(bundle: Path, *, as_json: bool) -> None:
    """Apply the rules again to an existing BUNDLE.

    Writes its findings and page. BUNDLE is a directory or an archive; an archive is unpacked next to itself first.
    """
    from rollbook.bundle.analysis import analyse as apply_rules  # noqa: PLC0415 - slow to import
    from rollbook.cli.check import show_findings  # noqa: PLC0415

    findings = apply_rules(bundle)
    if as_json:
        print_json(findings)
    else:
        show_findings(findings)
    sys.exit(1 if findings.at_least("fail") else 0)


@command.command("upload", cls=Command)
@click.argument("bundle", type=BundlePath())
@click.argument("s3_path", metavar="S3-PATH")
@click.option("--per-node", is_flag=True, help="Upload an archive for each node of a HyperPod cluster, as --s3-path.")
@s3_options
@json_option
def upload_command(bundle: Path, s3_path: str, *, per_node: bool, s3: Account, as_json: bool) -> None:
    """Upload an existing BUNDLE to S3 and verify it.

    S3-PATH is s3://bucket/prefix. A directory is packed first. An existing object is not replaced. With --per-node,
    BUNDLE is a directory, and an upload that failed is continued.
    """
    try:
        if per_node:
            send_per_node(bundle, s3_path, s3, as_json=as_json)
        else:
            send_archive(bundle, s3_path, s3, as_json=as_json)
    except KeyboardInterrupt:
        click.echo("not uploaded: interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)


def _resume(path: Path, reach: Reach, commands: Sequence[str], options: BundleOptions) -> None:
    if options.archive is not None:
        require_utf8(options.archive, "the path of the output")
        require_new_archive(path, options.archive)
    directory = BundleDirectory.open(path)
    request = resume_request(directory, commands)
    hosts = parse_hosts(request.nodes)
    reach = reach.without_configured_hosts(request.nodes)
    chosen = {host.name for host in reach.hosts}
    if unknown := chosen - directory.nodes.keys():
        raise UsageError(f"not in this bundle: {fold(sorted(unknown))}")
    delivery = options.check(request, resumed=True)
    _collect(directory, request, [host for host in hosts if host.name in chosen], reach, options, delivery=delivery)


def _collect(
    directory: BundleDirectory,
    request: Request,
    hosts: Sequence[Host],
    reach: Reach,
    options: BundleOptions,
    *,
    delivery: Delivery | None,
) -> None:
    delivery = delivery and prepare(delivery, directory, request, reach.options.timeout)
    # Before the event loop: a transport may look up its hosts, with a loop of its own.
    nodes = Nodes(reach.route(), reach.fallback(), reach.options.timeout, reach.fanout, options.start_timeout)
    with View(hosts) as view:
        bundle, interrupted = run_interruptible(
            lambda stop: run_bundle(
                directory,
                request,
                hosts,
                nodes,
                cluster=options.cluster,
                delivery=delivery,
                progress=view,
                stop=stop,
                names=options.names,
                sign=options.sign,
                archive=options.archive,
            )
        )
    summary = bundle.summary
    if options.as_json:
        print_json(summary)
    elif bundle.findings is not None:
        from rollbook.cli.check import show_findings  # noqa: PLC0415 - not needed for a plan or a list

        show_findings(bundle.findings)
    _show_summary(summary, {"marks of secrets": directory.note, "not analysed": bundle.problem})
    click.echo(f"bundle in {clean(bundle.path)}", err=True)
    if (page := bundle.path / "index.html").exists():
        click.echo(f"page: {clean(page)}", err=True)
    is_complete = all(node.status == "complete" for node in summary.results)
    if not (is_complete or options.archive or options.names):
        click.echo(f"to continue it: rollbook bundle --resume {clean(bundle.path)}", err=True)
    options.upload.send(bundle.path, interrupted=interrupted)
    code = Coverage.of(_hosts(summary)).exit_code or (ExitCode.INCOMPLETE if bundle.problem else ExitCode.SUCCESS)
    sys.exit(ExitCode.INTERRUPTED if interrupted else code)


def _show_summary(summary: BundleSummary, notes: Mapping[str, str]) -> None:
    """Print the nodes that are not complete, those with the same cause together, the counts, and the notes."""
    print_failures(_hosts(summary))
    for line in describe_deliveries(summary):
        stderr().print(line, soft_wrap=True)
    files = [file for node in summary.results for item in node.items for file in item.files]
    parts = [coverage_line(Coverage.of(_hosts(summary)), "node")]
    parts.append(f"{len(files)} files, {size(sum(file.size for file in files))}")
    if redactions := sum(file.redactions for file in files):
        parts.append(f"{redactions} secrets replaced")
    click.echo(", ".join(parts), err=True)
    for about, note in notes.items():
        if note:
            click.echo(f"{about}: {clean(note)}", err=True)


def _hosts(summary: BundleSummary) -> list[HostResult]:
    return [HostResult(name=one.node, status=one.status, reason=one.reason) for one in summary.results]  # type: ignore[arg-type]
