"""The agent through the site's OpenSSH, with the user's own configuration.

One connection per host carries everything. Jump hosts, Kerberos, certificates, hardware keys and `Match` rules work
because it is the user's `ssh` that runs; algorithms are never overridden.
"""

from __future__ import annotations

import dataclasses
import re

from rollbook import agent
from rollbook.errors import AgentFailed, Busy, Refused, TimedOut, TransportError, Unreachable
from rollbook.hosts import Host
from rollbook.transports.base import PipeTransport, last_line
from rollbook.transports.pipe import Ending

__all__ = ["Ssh"]


# What ssh writes to stderr (OpenSSH 7.4 to 10), what it is called here, and what to do. The first match counts.
MEANINGS: tuple[tuple[str, type[TransportError], str], ...] = (
    (
        r"Could not resolve hostname|Name or service not known|nodename nor servname",
        Unreachable,
        "the name does not resolve; check the spelling, DNS and ~/.ssh/config",
    ),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        Refused,
        "host key changed; if the host was reinstalled, remove the old key with: ssh-keygen -R {host}",
    ),
    (
        r"Host key verification failed|No \S+ host key is known for",
        Refused,
        "host key not accepted; log in once by hand, or give --ssh-option StrictHostKeyChecking=accept-new",
    ),
    (
        r"Permission denied|Too many authentication failures|no mutual signature",
        Refused,
        "key rejected; check that your public key is in the host's authorized_keys, and the user name",
    ),
    (r"Connection refused", Refused, "connection refused; is sshd running there, on that port?"),
    (r"No route to host|Network is unreachable|Host is down", Unreachable, "no route to the host"),
    (
        r"[Tt]imed out|Timeout, server .* not responding",
        TimedOut,
        "the connection timed out; is the host up, does a firewall drop packets?",
    ),
    # After the others: where a jump host is what failed, ssh says this as well.
    (
        r"Not allowed at this time|MaxStartups|exchange_identification: |Connection (closed|reset) by \S+ port",
        Busy,
        "sshd closed the connection before login; too many logins at once (MaxStartups), a firewall, or hosts.deny",
    ),
    (r"Bad configuration option|Bad owner or permissions|line \d+: ", AgentFailed, "ssh rejects its configuration"),
)

# What the host says after the login, in place of the agent's greeting (nologin(8), sshd(8)).
SENT_AWAY: tuple[tuple[str, str], ...] = (
    (r"account is currently not available", "the account may not log in"),
    (r"password (has|is) expired|Password change required", "the account's password has expired; log in once by hand"),
)


@dataclasses.dataclass(frozen=True)
class Ssh(PipeTransport):
    """Runs `ssh HOST AGENT`; `options` are `-o` values and win over ours, because OpenSSH takes the first."""

    user: str | None = None
    config: str | None = None
    options: tuple[str, ...] = ()
    python: str | None = None
    connect_timeout: int = 10
    name = "ssh"

    def argv(self, host: Host) -> list[str]:
        """No terminal, no prompt, no forwarding; nothing of the host's name can become an option."""
        user = host.user or self.user
        ours = (
            "BatchMode=yes",
            f"ConnectTimeout={self.connect_timeout}",
            "StrictHostKeyChecking=accept-new",
            "ClearAllForwardings=yes",
            "RemoteCommand=none",
            "PermitLocalCommand=no",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
        )
        return [
            "ssh",
            *(["-F", self.config] if self.config else []),
            *(word for option in (*self.options, *ours) for word in ("-o", option)),
            "-T", "-x", "-a",
            *(["-l", user] if user else []),
            "--",
            host.name,
            agent.remote_command(self.python),
        ]  # fmt: skip

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """What ssh said on stderr, in words a person can act on."""
        if ending.code != 255:
            said = ending.stderr + heard.decode("utf-8", "replace")
            reason = next((words for pattern, words in SENT_AWAY if re.search(pattern, said)), None)
            return Refused(reason) if reason else super().explain(host, ending, heard)
        for pattern, kind, meaning in MEANINGS:
            if found := re.search(pattern, ending.stderr):
                said = ending.stderr[ending.stderr.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0].strip()
                words = meaning.format(host=host.name)
                return kind(words if found[0].startswith("REMOTE HOST") else f"{words} [{said[:200]}]")
        return AgentFailed(f"ssh failed: {last_line(ending.stderr) or 'it said nothing'}")
