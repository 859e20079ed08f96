"""Host lists: nodesets, host files, groups of the site, Slurm's node list, and which host is this machine."""

from rollbook.hosts.folding import fold, natural
from rollbook.hosts.local import is_local
from rollbook.hosts.model import Host
from rollbook.hosts.nodeset import MAX_HOSTS, expand
from rollbook.hosts.parse import parse_hosts
from rollbook.hosts.slurm import from_slurm, node_lists

__all__ = ["MAX_HOSTS", "Host", "expand", "fold", "from_slurm", "is_local", "natural", "node_lists", "parse_hosts"]
