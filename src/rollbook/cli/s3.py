"""Options that say where and as whom S3 is called, shared by the commands that upload."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from rollbook.aws.api import Account
from rollbook.cli.options import OUTPUT, add_options, option
from rollbook.errors import UsageError

__all__ = ["account", "s3_arguments", "s3_options"]

OPTIONS = (
    option("--s3-endpoint-url", heading=OUTPUT, metavar="URL", help="S3 server [default: Amazon's]."),
    option("--s3-region", heading=OUTPUT, metavar="REGION", help="Region of the S3 server [default: as configured]."),
    option("--s3-profile", heading=OUTPUT, metavar="NAME", help="Profile of ~/.aws/config for S3."),
)


def s3_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as `s3`, an `Account`."""

    @functools.wraps(command)
    def with_account(
        *arguments: Any, s3_endpoint_url: str | None, s3_region: str | None, s3_profile: str | None, **rest: Any
    ) -> Any:
        if "@" in (s3_endpoint_url or ""):  # it would be in messages
            raise UsageError("--s3-endpoint-url must not contain credentials; use --s3-profile or the environment")
        return command(*arguments, s3=Account(s3_region, s3_profile, s3_endpoint_url), **rest)

    return add_options(with_account, OPTIONS)


def account(s3: Account, transport: Mapping[str, Any]) -> Account:
    """The account for S3: region and profile are those of the transport unless given; its endpoint is never used."""
    return Account(s3.region or transport.get("region"), s3.profile or transport.get("profile"), s3.endpoint_url)


def s3_arguments(s3: Account) -> list[str]:
    """The options as they are typed."""
    given = {"--s3-endpoint-url": s3.endpoint_url, "--s3-region": s3.region, "--s3-profile": s3.profile}
    return [word for flag, value in given.items() if value for word in (flag, value)]
