"""Keys and configuration files of OpenSSH, for both sides (ssh_config(5), sshd_config(5))."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["client_config", "known_host", "make_keys", "server_config"]

_AT_ONCE = 16


def make_keys(paths: Sequence[Path]) -> None:
    """Make an ed25519 key pair at each path: the cheapest kind, known to every OpenSSH since 6.5."""
    for first in range(0, len(paths), _AT_ONCE):
        makers = [
            subprocess.Popen(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.parent.name, "-f", path])
            for path in paths[first : first + _AT_ONCE]
        ]
        codes = [maker.wait() for maker in makers]
        if any(codes):
            raise OSError("ssh-keygen failed")


def known_host(address: str, port: int, key: Path) -> str:
    """The known_hosts line of a host with this key."""
    kind, blob, *_ = key.with_suffix(".pub").read_text().split()
    return f"{address if port == 22 else f'[{address}]:{port}'} {kind} {blob}\n"


def client_config(directory: Path, hosts: Iterable[tuple[str, str, int]]) -> str:
    """A client configuration for hosts given as name, address and port; each is also known by its address."""
    user = pwd.getpwuid(os.getuid()).pw_name
    shared = (
        f"Host *\n  User {user}\n  IdentityFile {directory}/id_lab\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {directory}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
    )
    blocks = [f"Host {name} {address}\n  HostName {address}\n  Port {port}\n" for name, address, port in hosts]
    # What a host adds for itself comes first: of a setting that is given twice, the first counts.
    return "".join([f"Include {directory}/hosts/*/client_config\n", *blocks, shared])


def server_config(directory: str, address: str, port: int, max_startups: str, variables: dict[str, str]) -> str:
    """A server configuration whose files all lie in `directory`, as the server sees it.

    The login shell gets `variables`. HOME among them makes the start-up files those of the lab, without touching
    the user's own.
    """
    settings = "".join(f' {name}="{value}"' for name, value in variables.items())
    return f"""\
ListenAddress {address}
Port {port}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
PidFile {directory}/sshd.pid
Banner {directory}/banner
MaxStartups {max_startups}
SetEnv{settings}
AcceptEnv LANG LC_*
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
PrintLastLog no
UseDNS no
X11Forwarding no
LogLevel VERBOSE
Subsystem sftp internal-sftp
"""
