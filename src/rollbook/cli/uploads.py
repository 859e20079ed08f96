"""Uploads of issue reports: what the options ask for, and what is printed about it."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import click

from rollbook.aws.api import Account
from rollbook.aws.clusters import discover
from rollbook.bundle.delivery import Delivery
from rollbook.bundle.hyperpod import HyperPod
from rollbook.bundle.request import Request
from rollbook.bundle.s3_layout import parse_layout_path, require_layout_path, upload_layout
from rollbook.bundle.summary import BundleSummary
from rollbook.bundle.summary import Delivery as Mode
from rollbook.bundle.upload import require_target, upload_bundle
from rollbook.clean import clean
from rollbook.cli.options import OUTPUT, add_options, option
from rollbook.cli.output import print_json, size
from rollbook.errors import ExitCode, RollbookError, UsageError
from rollbook.hosts import fold
from rollbook.records.causes import group_by_cause

__all__ = ["Upload", "account", "describe_deliveries", "s3_options", "send_archive", "send_per_node", "upload_options"]

DELIVERIES = {
    "presigned": "uploaded by the node with presigned requests",
    "session": "through the session",
    "node": "uploaded by the node with its own permissions",
}

S3_OPTIONS = (
    option("--s3-endpoint-url", heading=OUTPUT, metavar="URL", help="S3 server [default: Amazon's]."),
    option("--s3-region", heading=OUTPUT, metavar="REGION", help="Region of the S3 server [default: as configured]."),
    option("--s3-profile", heading=OUTPUT, metavar="NAME", help="Profile of ~/.aws/config for S3."),
)


def s3_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as `s3`, an `Account`."""

    @functools.wraps(command)
    def with_account(*, s3_endpoint_url: str | None, s3_region: str | None, s3_profile: str | None, **rest: Any) -> Any:
        if "@" in (s3_endpoint_url or ""):  # it would be in messages
            raise UsageError("--s3-endpoint-url must not contain credentials; use --s3-profile or the environment")
        return command(s3=Account(s3_region, s3_profile, s3_endpoint_url), **rest)

    return add_options(with_account, S3_OPTIONS)


def account(s3: Account, transport: Mapping[str, Any]) -> Account:
    """The account for S3: region and profile are those of the transport unless given; its endpoint is never used."""
    return Account(s3.region or transport.get("region"), s3.profile or transport.get("profile"), s3.endpoint_url)


def s3_arguments(s3: Account) -> list[str]:
    """The options as they are typed."""
    given = {"--s3-endpoint-url": s3.endpoint_url, "--s3-region": s3.region, "--s3-profile": s3.profile}
    return [word for flag, value in given.items() if value for word in (flag, value)]


OPTIONS = (
    option("--upload", "archive_to", heading=OUTPUT, metavar="S3-PATH",
           help="Upload the bundle as one archive below s3://bucket/prefix, and verify it; the local bundle stays."),
    option("--s3-path", "per_node_to", heading=OUTPUT, metavar="S3-PATH",
           help="Upload an archive for each node of a HyperPod cluster below s3://bucket/prefix, and verify them."),
    option("--delivery", heading=OUTPUT, type=click.Choice(get_args(Mode)), metavar="MODE",
           help="How the nodes' archives get to --s3-path: presigned (nodes upload them with presigned requests and "
           "need no permissions), session (sent through the session, uploaded from this machine) or node (nodes run "
           "the AWS CLI) [default: presigned; with --resume or --obfuscate: session]."),
    option("--download", heading=OUTPUT, type=click.Path(file_okay=False, path_type=Path), metavar="DIRECTORY",
           help="Also keep the uploaded files in this directory (with --s3-path)."),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Upload:
    """The options --upload, --s3-path, --delivery and --download, and the account for S3."""

    archive_to: str | None
    per_node_to: str | None
    delivery: Mode | None
    download: Path | None
    s3: Account

    def check(
        self, request: Request, archive: Path | None, hyperpod: HyperPod | None, *, made_here: str
    ) -> Delivery | None:
        """Raise an error if the upload cannot succeed, before anything is collected; returns how nodes deliver.

        `archive` is the bundle if it is one file. `made_here` says when archives cannot be made on the nodes.
        """
        if self.archive_to is not None:
            require_target(self.archive_to, archive, self.s3)
        if self.per_node_to is None:
            if self.download is not None or self.delivery is not None:
                option = "--delivery" if self.download is None else "--download"
                raise UsageError(f"{option} has no effect without --s3-path")
            return None
        if hyperpod is None:
            raise UsageError("--s3-path is for HyperPod clusters (--via ssm --cluster NAME); otherwise use --upload")
        if archive is not None:
            raise UsageError("--s3-path needs a results directory as --output")
        mode = self._mode(request, made_here)
        require_layout_path(self.per_node_to, self.s3)
        if self.download is not None:
            try:
                self.download.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot create {self.download}: {error.strerror}") from error
        found = asyncio.run(discover(hyperpod.account, hyperpod.cluster))
        return Delivery(mode, parse_layout_path(self.per_node_to), self.s3, found, keep=self.download)

    def send(self, bundle: Path, *, interrupted: bool) -> None:
        """Upload the bundle if that is wanted; if it fails, print how to try again, and raise the error."""
        for to, per_node in ((self.archive_to, False), (self.per_node_to, True)):
            if to is None:
                continue
            argv = ["rollbook", "bundle", "upload", str(bundle), to, *(["--per-node"] if per_node else [])]
            again = f"to upload it: {clean(shlex.join([*argv, *s3_arguments(self.s3)]))}"
            if interrupted:
                click.echo(f"not uploaded: interrupted; {again}", err=True)
                continue
            try:
                if per_node:
                    send_per_node(bundle, to, self.s3, keep=self.download)
                else:
                    send_archive(bundle, to, self.s3)
            except KeyboardInterrupt:
                click.echo(f"not uploaded: interrupted; {again}", err=True)
                sys.exit(ExitCode.INTERRUPTED)
            except RollbookError:
                click.echo(f"not uploaded; {again}", err=True)
                raise

    def _mode(self, request: Request, made_here: str) -> Mode:
        mode: Mode = self.delivery or ("session" if made_here else "presigned")
        if made_here and mode != "session":
            raise UsageError(f"--delivery {mode} is not possible {made_here}: archives are made here, not on the nodes")
        if mode == "node" and request.masked() != request:
            raise UsageError(
                "--delivery node would store a command with a secret in S3: use --delivery presigned or session"
            )
        return mode


def upload_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as `upload`, an `Upload`."""

    @s3_options
    @functools.wraps(command)
    def with_upload(**rest: Any) -> Any:
        own = {field.name: rest.pop(field.name) for field in dataclasses.fields(Upload)}
        return command(upload=Upload(**own), **rest)

    return add_options(with_upload, OPTIONS)


def send_archive(bundle: Path, to: str, s3: Account, *, as_json: bool = False) -> None:
    """Upload the bundle as one archive, and print where it is."""
    done = upload_bundle(bundle, to, region=s3.region, profile=s3.profile, endpoint_url=s3.endpoint_url)
    if as_json:
        print_json(done)
    verified = {"sha256": "SHA-256", "md5": "MD5"}[done.verified]
    click.echo(f"uploaded to {clean(done.url)}: {size(done.size)}, size and {verified} verified", err=True)


def send_per_node(bundle: Path, to: str, s3: Account, *, keep: Path | None = None, as_json: bool = False) -> None:
    """Upload the archives that nodes have not uploaded themselves, and print where all of them are."""
    done = upload_layout(bundle, to, s3, keep)
    if as_json:
        print_json(done)
    where = done[-1].url.rpartition("/")[0]
    total = size(sum(one.size for one in done))
    click.echo(
        f"uploaded to {clean(where)}/: {len(done)} objects, {total}, size and checksum of each verified", err=True
    )
    if keep is not None:
        click.echo(f"the same files are in {clean(keep)}", err=True)


def describe_deliveries(summary: BundleSummary) -> list[str]:
    """A line for each delivery that was used, with its nodes, and the cause if it is not the requested one."""
    deliveries: dict[str, list[tuple[str, str]]] = {}
    for node in summary.results:
        if node.archive is not None:
            deliveries.setdefault(node.archive.delivery, []).append((node.node, node.archive.reason))
    return [
        f"{DELIVERIES[delivery]}{f' ({clean(reason)})' if reason else ''}: {clean(fold(names))}"
        for delivery, reasons in deliveries.items()
        for reason, names in group_by_cause(reasons)
    ]
