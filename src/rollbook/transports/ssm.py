"""The agent through AWS Session Manager: SageMaker HyperPod nodes and plain instances, without ssh or a plug-in.

The agent runs under `AWS-StartInteractiveCommand`, the document whose command can be sent input. Its terminal is set to
raw mode, and frames travel as lines with checksums, so banners and lost bytes are detected. Where that document is
refused, the agent runs under `AWS-StartNonInteractiveCommand`, with all its orders in the command line, and with
separate output streams if they are allowed. Where `sudo` needs no password the agent runs as root, because most of what
support asks for is readable by root only.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shlex
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec

from rollbook import agent
from rollbook.aws.api import Account
from rollbook.aws.clusters import Cluster, ClusterNode, discover, with_hostnames
from rollbook.aws.rate import StartRate
from rollbook.aws.session import Session
from rollbook.errors import AgentFailed, AwsError, NoHostReached, Refused, TransportError, Unreachable, UsageError
from rollbook.hosts import Host
from rollbook.transports.base import Channel, last_line
from rollbook.transports.collector import is_gone, this_collector
from rollbook.transports.loop_state import loop_state
from rollbook.transports.options import Option, Python, is_positive
from rollbook.transports.pipe import Ending

__all__ = ["Ssm"]

DOCUMENT = "AWS-StartInteractiveCommand"
ONE_WAY_DOCUMENT = "AWS-StartNonInteractiveCommand"
LINGER = 30  # seconds for the last output of an agent that takes no input
REASON = "rollbook "  # of a session, followed by its collector
MAX_PAGES = 20  # of active sessions, to look for those of killed collectors


@dataclasses.dataclass(frozen=True)
class Ssm:
    """Start a Session Manager session for every node and run the agent in it."""

    cluster: Annotated[
        str | None, Option("SageMaker HyperPod cluster; without -w, all of its nodes.", metavar="NAME-or-ARN")
    ] = None
    instance_groups: Annotated[
        tuple[str, ...],
        Option(
            "Only nodes of this instance group; may be repeated.",
            metavar="NAME",
            flag="--instance-group",
            aliases=("--instance-groups",),
        ),
    ] = ()
    region: Annotated[str | None, Option("AWS region.", metavar="REGION")] = None
    profile: Annotated[str | None, Option("Profile of ~/.aws/config.", metavar="NAME")] = None
    endpoint_url: Annotated[str | None, Option("Endpoint of the AWS services.", metavar="URL")] = None
    start_rate: Annotated[
        float, Option("Sessions started per second; AWS allows 3 by default.", metavar="N", check=is_positive)
    ] = 3.0
    ssm_document: Annotated[str, Option("Session document that runs a command and takes input.", metavar="NAME")] = (
        DOCUMENT
    )
    python: Python = None
    name = "ssm"

    def hosts(self) -> list[str]:
        """The nodes of the cluster, by instance id, those that are not running included."""
        if self.cluster is None:
            raise UsageError("name the nodes with -w, or their cluster with --cluster")
        found = asyncio.run(discover(self.account, self.cluster, groups=self.instance_groups))
        if not found.nodes:
            raise UsageError(f"cluster {found.name} has no nodes")
        return [node.name for node in found.nodes]

    async def open(self, host: Host) -> Channel:
        """Start a session on the node; waits for the start rate."""
        try:
            target = await self._target(host.name)
            return await self._start(target)
        except (AwsError, NoHostReached) as error:
            raise Refused(str(error)) from error

    async def _start(self, target: str) -> Channel:
        state = loop_state(self, _State)
        await state.end_stale(self)
        while True:
            document, more = state.documents[0]
            one_way = document == ONE_WAY_DOCUMENT
            command = self.command(state.script if one_way else b"", streams=bool(more))
            parameters = {"command": [command], **more}
            reason = f"{REASON}{this_collector()}"
            session = Session(self.account, target, document, parameters, rate=state.rate, reason=reason)
            try:
                await session.__aenter__()
            except (Refused, AwsError) as error:
                if (document, more) == state.documents[-1] or not _is_about_document(error):
                    raise
                if (document, more) in state.documents:  # unless another node was refused first
                    state.documents.remove((document, more))
                continue
            return _SessionChannel(session, one_way=one_way)

    def command(self, script: bytes, *, streams: bool = False) -> str:
        """The command that starts the agent, as root if possible; with a script it takes no input.

        It does not end with the agent, but when we terminate the session: Session Manager drops output that is not
        acknowledged two seconds after the end. Without separate `streams` it has to end, as output comes only then.
        The agent is sent once and without byte code, because AWS limits the length.
        """
        sudo = 's=; if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then s="sudo -n"; fi'
        start = agent.remote_command(self.python, "oneway" if script else "text", compiled=False, script=script)
        start = f"{sudo}; $s {start.removeprefix('exec ')}"
        if not script:
            return f"stty raw -echo; {start} && cat >/dev/null"
        return f"sh -c {shlex.quote(f'{start} && sleep {LINGER}' if streams else start)}"

    def expect(self, hosts: Sequence[Host], script: bytes) -> None:
        """Keep the orders for agents that cannot be sent any."""
        del hosts
        loop_state(self, _State).script = script

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """The reason that the session or the node gave."""
        del host
        output = last_line(ending.stderr) or last_line(heard.decode("utf-8", "replace")) or "no output"
        return AgentFailed(f"the agent did not start: {output}")

    @property
    def account(self) -> Account:
        """Where and as whom AWS is called."""
        return Account(self.region, self.profile, self.endpoint_url)

    async def _target(self, name: str) -> str:
        """The target of a session; raises `TransportError` for a node that cannot have one."""
        if self.cluster is None:
            return name
        node = await loop_state(self, _State).node(self, name)
        if node is None:
            raise Unreachable(f"cluster {self.cluster} has no node called {name}")
        if not node.is_reachable:
            message = f": {node.message}" if node.message else ""
            raise Unreachable(f"the node is {node.status or 'without an instance'}{message}")
        if self.instance_groups and node.group.lower() not in {group.lower() for group in self.instance_groups}:
            raise Refused(f"the node belongs to instance group {node.group}")
        return node.target


class _State:
    """What the sessions of one event loop share: the start rate, and the list of nodes, which is fetched once."""

    def __init__(self, transport: Ssm) -> None:
        self.rate = StartRate(transport.start_rate)
        self._turn, self._ending = asyncio.Lock(), asyncio.Lock()
        self._ended_stale = False
        self.script = b"stop\n"
        self.documents: list[tuple[str, dict[str, list[str]]]] = [(transport.ssm_document, {})]
        if transport.ssm_document == DOCUMENT:
            self.documents += [(ONE_WAY_DOCUMENT, {"separateOutputStream": ["true"]}), (ONE_WAY_DOCUMENT, {})]
        self._cluster: Cluster | None = None
        self._named = False

    async def end_stale(self, transport: Ssm) -> None:
        """End sessions of collectors of this machine that were killed; without permission they end by themselves."""
        async with self._ending:
            if not self._ended_stale:
                self._ended_stale = True
                with contextlib.suppress(AwsError, NoHostReached, TransportError):
                    await _end_stale(transport.account)

    async def node(self, transport: Ssm, name: str) -> ClusterNode | None:
        """The node of any of its names; host names that the list lacks are fetched once, if a name is unknown."""
        assert transport.cluster is not None
        async with self._turn:
            if self._cluster is None:
                self._cluster = await discover(transport.account, transport.cluster)
            found = _find(self._cluster.nodes, name)
            if found is None and not self._named:
                self._named = True
                nodes = await with_hostnames(transport.account, transport.cluster, self._cluster.nodes)
                self._cluster = msgspec.structs.replace(self._cluster, nodes=tuple(nodes))
                found = _find(self._cluster.nodes, name)
            return found


def _is_about_document(error: Exception) -> bool:
    """Whether another document may be accepted."""
    return isinstance(error, Refused) or "document/" in str(error)


async def _end_stale(account: Account) -> None:
    parameters: dict[str, Any] = {"State": "Active", "MaxResults": 200}
    for _ in range(MAX_PAGES):
        page = await account.call("ssm", "describe_sessions", **parameters)
        for session in page.get("Sessions", ()):
            reason = str(session.get("Reason") or "")
            if reason.startswith(REASON) and is_gone(reason.removeprefix(REASON)):
                await account.call("ssm", "terminate_session", SessionId=session["SessionId"])
        parameters["NextToken"] = page.get("NextToken")
        if not parameters["NextToken"]:
            return


def _find(nodes: Iterable[ClusterNode], name: str) -> ClusterNode | None:
    return next((node for node in nodes if name in node.names), None)


class _SessionChannel:
    """A session as the channel to an agent."""

    def __init__(self, session: Session, *, one_way: bool) -> None:
        self._session, self._one_way = session, one_way

    async def read(self) -> bytes:
        """The next bytes; empty when the session has ended."""
        return await self._session.read()

    async def write(self, data: bytes) -> None:
        """Send orders; an agent that takes no input has those that it was started with.

        It cannot be told that a recording ends: its session is closed, so that nothing waits for its end facts.
        """
        if not self._one_way:
            await self._session.write(data)
        elif data.startswith(b"go\tend"):
            await self._session.close()

    async def close(self, grace: float = 0.0) -> Ending:
        """End the session on the node and at the service; the agent's last frame has arrived or will not."""
        del grace
        await self._session.close()
        session = self._session
        return Ending(session.exit_code or 0, session.error or session.stderr.decode("utf-8", "replace"))
