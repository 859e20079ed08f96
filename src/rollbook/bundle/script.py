"""`collector_script.sh`: what runs on the nodes, as one shell script that can also be run by hand."""

from __future__ import annotations

from collections.abc import Sequence

from rollbook import agent
from rollbook.aws.objects import PART
from rollbook.bundle.items import Item
from rollbook.bundle.request import orders
from rollbook.bundle.summary import Window
from rollbook.version import __version__

__all__ = ["NAME", "collector_script"]

NAME = "collector_script.sh"
TEXT = """#!/bin/sh
# Reads the items of an issue report on this node and writes them into an archive. Made by Rollbook {version}.
#
#   INSTANCE_GROUP=worker INSTANCE_ID=i-0123456789abcdef0 CLUSTER_TYPE=slurm sh {name} [ARCHIVE]
#
# ARCHIVE is INSTANCE_GROUP_INSTANCE_ID.tar.gz in the current directory unless given. With S3_OUTPUT=s3://bucket/key the
# archive is also uploaded there by the AWS CLI, with the permissions of this node. Each item is read only on nodes that
# have what it is about; CLUSTER_TYPE is noted in the archive.
#
# Needs Python 3.6 or later; root can read more than others. Secrets are replaced before anything is written.
# The last argument of the long line below contains the items, deflated and base64-encoded.
set -u
umask 077
INSTANCE_GROUP=${{INSTANCE_GROUP:-node}}
INSTANCE_ID=${{INSTANCE_ID:-$(uname -n)}}
CLUSTER_TYPE=${{CLUSTER_TYPE:-unknown}}
safe() {{ printf %s "$1" | tr -c 'A-Za-z0-9._~-' _; }}
ROLLBOOK_DIRECTORY=nodes/$(safe "${{NODE_NAME:-$INSTANCE_ID}}")
ROLLBOOK_ARCHIVE=${{1:-$(safe "${{INSTANCE_GROUP}}_$INSTANCE_ID").tar.gz}}
export INSTANCE_GROUP INSTANCE_ID CLUSTER_TYPE ROLLBOOK_DIRECTORY ROLLBOOK_ARCHIVE
for path in "$ROLLBOOK_ARCHIVE" "$ROLLBOOK_ARCHIVE.part"; do
    if [ -e "$path" ]; then
        echo "$path exists; it is not replaced" >&2
        exit 2
    fi
done
trap 'rm -f "$ROLLBOOK_ARCHIVE.part"' EXIT
trap 'exit 1' HUP INT TERM
(
{command}
) </dev/null >/dev/null
if ! [ -f "$ROLLBOOK_ARCHIVE" ]; then
    echo "no archive was written; does this node have Python 3.6 or later?" >&2
    exit 1
fi
if [ -z "${{S3_OUTPUT:-}}" ]; then
    echo "wrote $ROLLBOOK_ARCHIVE"
    exit 0
fi
aws s3 cp --only-show-errors "$ROLLBOOK_ARCHIVE" "$S3_OUTPUT" || exit
echo "Successfully uploaded report to $S3_OUTPUT"
"""


def collector_script(items: Sequence[Item], window: Window, *, seconds: float, size: int) -> bytes:
    """The script that reads these items within `seconds` and `size` bytes. It contains no key for marks of secrets."""
    script = orders(items, window, seconds=seconds, size=size, salt="", archive=(str(PART), "", "", "", "", ""))
    command = agent.remote_command(carrier="oneway", compiled=False, script=script + b"then\nstop\n")
    return TEXT.format(version=__version__, name=NAME, command=command).encode()
