"""Groups of the site: `@compute`, `@source:group`, resolved by ClusterShell's own program.

`nodeset` (`cluset` where another package took that name) reads the site's groups.conf with its search path and its
sources, which may be shell commands. A library of ours would not see them.
"""

from __future__ import annotations

import re
import shutil

from rollbook.errors import HostListError, UsageError
from rollbook.hosts.nodeset import expand
from rollbook.hosts.program import output_of

__all__ = ["members"]

SECONDS = 10.0

# A group's name ends up in the shell commands of its source: nothing that a shell could take for more than a name.
_GROUP = re.compile(r"@[A-Za-z0-9_.:*?\[\],-]+")


def members(group: str) -> list[str]:
    """The hosts of `@group`, which may be a nodeset of groups (`@rack[1-4]`) or a wildcard (`@gpu*`)."""
    if not _GROUP.fullmatch(group):
        raise UsageError(f"{group!a} is not a group name")
    program = shutil.which("nodeset") or shutil.which("cluset")
    if program is None:
        raise UsageError(f"{group} needs ClusterShell's nodeset or cluset; install it, or name the hosts")
    try:
        listed = output_of([program, "-e", group], SECONDS)
    except UsageError as error:
        raise UsageError(f"{group}: {error}; `nodeset -L` lists the groups of this site") from error
    # To nodeset 1.9 an unknown group is not an error but an empty line.
    if not listed.strip():
        raise UsageError(f"{group} is unknown or empty; `nodeset -L` lists the groups of this site")
    try:
        return expand(listed)
    except HostListError as error:
        raise UsageError(f"{group} holds what is no host: {error.why}") from error
