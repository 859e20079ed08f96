"""The agent through the site's OpenSSH, with the user's own configuration.

One connection per host carries everything. Jump hosts, Kerberos, certificates, hardware keys and `Match` rules work
because it is the user's `ssh` that runs; algorithms are never overridden.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Annotated

from rollbook import agent
from rollbook.errors import AgentFailed, Busy, Refused, TimedOut, TransportError, Unreachable
from rollbook.hosts import Host
from rollbook.transports.base import TIMEOUT, PipeTransport, last_line
from rollbook.transports.options import Option, Python, is_file
from rollbook.transports.pipe import Ending
from rollbook.transports.ssh_config import Configuration

__all__ = ["FAILURES", "Ssh"]


# What ssh writes to stderr (OpenSSH 7.4 to 10), the kind of failure, and what to do. The first match counts.
FAILURES: tuple[tuple[str, type[TransportError], str], ...] = (
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
    # Last: ssh prints this as well if a jump host failed.
    (
        r"Not allowed at this time|MaxStartups|exchange_identification: |Connection (closed|reset) by \S+ port",
        Busy,
        "sshd closed the connection before login; too many logins at once (MaxStartups), a firewall, or hosts.deny",
    ),
    (r"Bad configuration option|Bad owner or permissions|line \d+: ", AgentFailed, "ssh rejects its configuration"),
)

# What the host prints after the login instead of starting the agent (nologin(8), sshd(8)).
LOGIN_REFUSALS: tuple[tuple[str, str], ...] = (
    (r"account is currently not available", "the account may not log in"),
    (r"password (has|is) expired|Password change required", "the account's password has expired; log in once by hand"),
)


@dataclasses.dataclass(frozen=True)
class Ssh(PipeTransport):
    """Run `ssh HOST AGENT` with the user's own OpenSSH configuration."""

    ssh_user: Annotated[str | None, Option("User to log in as.", metavar="USER", aliases=("--ssh-username",))] = None
    ssh_config: Annotated[
        str | None, Option("OpenSSH client configuration to use instead of yours.", metavar="FILE", check=is_file)
    ] = None
    ssh_options: Annotated[
        tuple[str, ...],
        Option("Option for `ssh -o`; overrides every configuration.", metavar="KEY=VALUE", flag="--ssh-option"),
    ] = ()
    python: Python = None
    timeout: float = TIMEOUT
    name = "ssh"

    @functools.cached_property
    def _configuration(self) -> Configuration:
        # The timeout of ssh is below that of the host, so that ssh gives the reason.
        return Configuration(self.ssh_config, max(1, min(10, int(self.timeout * 2 / 3))))

    def argv(self, host: Host) -> list[str]:
        """No terminal, no prompt, no forwarding, which the agent needs; a host name cannot become an option."""
        user = host.user or self.ssh_user
        needed = ("BatchMode=yes", "ClearAllForwardings=yes", "RemoteCommand=none", "PermitLocalCommand=no")
        return [
            "ssh",
            "-F", self._configuration.path,
            *(argument for option in (*self.ssh_options, *needed) for argument in ("-o", option)),
            "-T", "-x", "-a",
            *(["-l", user] if user else []),
            "--",
            host.name,
            agent.remote_command(self.python),
        ]  # fmt: skip

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """What ssh printed on stderr, and what to do about it."""
        if ending.code != 255:
            output = ending.stderr + heard.decode("utf-8", "replace")
            refusal = next((reason for pattern, reason in LOGIN_REFUSALS if re.search(pattern, output)), None)
            return Refused(refusal) if refusal else super().explain(host, ending, heard)
        for pattern, kind, advice in FAILURES:
            if found := re.search(pattern, ending.stderr):
                line = ending.stderr[ending.stderr.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0].strip()
                reason = advice.format(host=host.name)
                return kind(reason if found[0].startswith("REMOTE HOST") else f"{reason} [{line[:200]}]")
        return AgentFailed(f"ssh failed: {last_line(ending.stderr) or 'it printed nothing'}")
