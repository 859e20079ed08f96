"""Groups of the site: `@compute`, `@source:group`, resolved by ClusterShell's own program.

`nodeset` (`cluset` where another package took that name) reads the site's groups.conf with its search path and its
sources, which may be shell commands.
"""

from __future__ import annotations

import re
import shutil

from rollbook.errors import HostListError, UsageError
from rollbook.hosts.nodeset import expand
from rollbook.hosts.program import output_of

__all__ = ["members"]

SECONDS = 10.0

# A group's name becomes part of the shell commands of its source: no character that a shell would interpret.
_GROUP = re.compile(r"@[A-Za-z0-9_.:*?\[\],-]+")


def members(group: str) -> list[str]:
    """The hosts of `@group`, which may be a nodeset of groups (`@rack[1-4]`) or a wildcard (`@gpu*`)."""
    if not _GROUP.fullmatch(group):
        raise UsageError(f"{group!a} is not a group name")
    program = shutil.which("nodeset") or shutil.which("cluset")
    if program is None:
        raise UsageError(f"{group} needs ClusterShell's nodeset or cluset; install it, or name the hosts")
    try:
        output = output_of([program, "-e", group], SECONDS)
    except UsageError as error:
        raise UsageError(f"{group}: {error}; `nodeset -L` lists the groups of this site") from error
    # nodeset 1.9 prints an empty line for an unknown group.
    if not output.strip():
        raise UsageError(f"{group} is unknown or empty; `nodeset -L` lists the groups of this site")
    try:
        return expand(output)
    except HostListError as error:
        raise UsageError(f"{group} has a member that is not a host name: {error.why}") from error
