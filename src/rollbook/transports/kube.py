"""The agent on Kubernetes nodes: one short-lived pod per node, and `kubectl exec` into it.

The pod shares the node's namespaces and has its root file system at /host. The agent runs below that root, so it reads
what it would read in a login on the node. The pod itself only sleeps. Pods are labelled with the run that made them;
each run first deletes those whose collector is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from rollbook import agent
from rollbook.errors import AgentFailed, NoHostReached, Refused, TimedOut, TransportError, Unreachable, UsageError
from rollbook.hosts import Host
from rollbook.transports.base import Channel, last_line
from rollbook.transports.collector import is_gone, this_collector
from rollbook.transports.loop_state import loop_state
from rollbook.transports.options import Option, Python, is_file, is_positive
from rollbook.transports.pipe import Ending, Pipe
from rollbook.transports.program import run_program

__all__ = ["Kube"]

IMAGE = "public.ecr.aws/docker/library/busybox:stable"
OWNER = "app.kubernetes.io/managed-by=rollbook"
RUN = "rollbook/run"
COLLECTOR = "rollbook/collector"
CONTAINER = "agent"
CALL_SECONDS = 30.0
POLL_SECONDS = 0.5
LIST_SECONDS = 10.0  # between two lists of the nodes
GATHER_SECONDS = 0.1  # requests of many nodes within this time become one call of kubectl
GIVE_UP = re.compile(r"\w*Image\w*|Create\w*Error|RunContainerError")  # reasons for which a container waits in vain
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What kubectl prints, the kind of failure, and what to do. The first match counts.
FAILURES: tuple[tuple[str, type[Exception], str], ...] = (
    (r"context .* does not exist|context was not found", UsageError, "set --kube-context or --kubeconfig"),
    (r"(?i)forbidden", UsageError, "the account needs to list nodes, and to create, list, exec into and delete pods"),
    (r"(?i)unauthorized|must be logged in|credentials|exec: executable .* not found", UsageError, "log in again"),
    (
        r"connection to the server .* refused|Unable to connect|no such host|i/o timeout|TLS handshake timeout",
        NoHostReached,
        "check --kube-context, --kubeconfig and the network",
    ),
)


def _is_toleration(given: tuple[str, ...]) -> None:
    for one in given:
        if not re.fullmatch(r"[^=:\s]+(=[^=:\s]*)?(:(NoSchedule|PreferNoSchedule|NoExecute))?", one):
            raise ValueError(f"{one} is not KEY[=VALUE][:EFFECT]")


@dataclasses.dataclass(frozen=True)
class Kube:
    """Create a pod on every node, run the agent in it below the node's root, and delete the pod."""

    kube_context: Annotated[str | None, Option("Context of the kubeconfig.", metavar="NAME")] = None
    kubeconfig: Annotated[str | None, Option("Kubeconfig file.", metavar="FILE", check=is_file)] = None
    kube_selector: Annotated[
        str | None, Option("Labels of the nodes; without -w, all that match.", metavar="SELECTOR")
    ] = None
    kube_namespace: Annotated[str, Option("Namespace of the pods.", metavar="NAME")] = "default"
    kube_image: Annotated[str, Option("Image of the pods, with sh, env, sleep and chroot.", metavar="IMAGE")] = IMAGE
    kube_tolerations: Annotated[
        tuple[str, ...],
        Option(
            "Taint that the pods tolerate; may be repeated [default: all].",
            metavar="KEY[=VALUE][:EFFECT]",
            flag="--kube-toleration",
            check=_is_toleration,
        ),
    ] = ()
    kube_privileged: Annotated[
        bool, Option("Privileged pods, which enter the node's namespaces with nsenter instead of chroot.")
    ] = False
    kube_deadline: Annotated[
        int, Option("Seconds after which Kubernetes ends a pod.", metavar="SECONDS", check=is_positive)
    ] = 14400
    python: Python = None
    name = "kube"

    def hosts(self) -> list[str]:
        """The nodes that the selector matches, those that are not ready included."""
        nodes = asyncio.run(self.nodes())
        if not nodes:
            raise UsageError(f"no node matches {self.kube_selector}" if self.kube_selector else "there are no nodes")
        return [node.name for node in nodes]

    async def nodes(self) -> list[_Node]:
        """The nodes; raises `UsageError` or `NoHostReached` with what kubectl printed."""
        selected = ["-l", self.kube_selector] if self.kube_selector else []
        listed = await self.call(["get", "nodes", "-o", "json", *selected])
        return [_Node.of(item) for item in json.loads(listed).get("items", ())]

    def kubectl(self, *words: str) -> list[str]:
        """A command line of kubectl."""
        context = ["--context", self.kube_context] if self.kube_context else []
        config = ["--kubeconfig", self.kubeconfig] if self.kubeconfig else []
        return ["kubectl", *config, *context, *words]

    async def call(self, words: Sequence[str], stdin: bytes = b"", *, check: bool = True) -> str:
        """Run kubectl to its end and return what it printed; raises `UsageError` or `NoHostReached`."""
        try:
            output, ending = await run_program(self.kubectl(*words), CALL_SECONDS, stdin)
        except AgentFailed as error:
            raise UsageError(f"{error}; --via kube needs kubectl") from error
        if ending.code < 0 or (check and ending.code != 0):  # negative: it was killed, at the latest by the timeout
            raise explain_call(words[0], ending)
        return output if check else output + ending.stderr

    async def open(self, host: Host) -> Channel:
        """Create the node's pod, wait until it runs, and start the agent in it."""
        state = loop_state(self, _State)
        try:
            node = await state.node(host.name)
            if node is None:
                raise Unreachable(f"the cluster has no node called {host.name}")
            if node.problem:
                raise Unreachable(node.problem)
            pod = await state.create(node)
            try:
                await state.running(pod)
                line = agent.remote_command(self.python).encode() + b"\n"
                return await _PodChannel.open(state, pod, self.exec_argv(pod), line)
            except BaseException:
                await asyncio.shield(state.delete(pod))
                raise
        except (UsageError, NoHostReached) as error:
            raise Refused(str(error)) from error

    def exec_argv(self, pod: str) -> list[str]:
        """`kubectl exec` of a shell below the node's root; it runs the line that it is sent first.

        The agent is too long for an argument: those of `kubectl exec` are part of a URL.
        """
        clean = ["env", "-i", f"PATH={PATH}", "HOME=/root"]
        enter = (
            ["nsenter", "-t", "1", "-m", "-u", "-i", "-n", "-p", "--"] if self.kube_privileged else ["chroot", "/host"]
        )
        shell = ["sh", "-c", 'IFS= read -r line; eval "$line"']
        where = ["-n", self.kube_namespace, pod, "-c", CONTAINER]
        return self.kubectl("exec", "-i", *where, "--", *clean, *enter, *shell)

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """What kubectl or the node printed."""
        del host
        printed = re.sub(r"(?m)^command terminated with exit code \d+$", "", ending.stderr)
        output = last_line(printed) or last_line(heard.decode("utf-8", "replace")) or f"exit code {ending.code}"
        if "chroot" in output or "nsenter" in output:
            return Refused(f"the pod may not enter the node: {output}")
        return AgentFailed(f"the agent did not start in the pod: {output}")

    def manifest(self, pod: str, node: str, run: str) -> dict[str, Any]:
        """The pod of one node."""
        mount = {"name": "host", "mountPath": "/host", "readOnly": True, "mountPropagation": "HostToContainer"}
        manager, _, value = OWNER.partition("=")
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod,
                "namespace": self.kube_namespace,
                "labels": {manager: value, RUN: run},
                "annotations": {COLLECTOR: this_collector()},
            },
            "spec": {
                "nodeName": node,  # without the scheduler: also on nodes that are cordoned or full
                "restartPolicy": "Never",
                "activeDeadlineSeconds": self.kube_deadline,
                "terminationGracePeriodSeconds": 1,
                "hostPID": True,
                "hostNetwork": True,
                "hostIPC": True,
                "enableServiceLinks": False,
                "automountServiceAccountToken": False,
                "tolerations": [_toleration(one) for one in self.kube_tolerations] or [{"operator": "Exists"}],
                "containers": [
                    {
                        "name": CONTAINER,
                        "image": self.kube_image,
                        "command": ["sleep", str(self.kube_deadline)],
                        "securityContext": {"runAsUser": 0, "privileged": self.kube_privileged},
                        "volumeMounts": [mount],
                    }
                ],
                "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
            },
        }


def _toleration(text: str) -> dict[str, str]:
    """`KEY[=VALUE][:EFFECT]` as Kubernetes writes it."""
    rest, _, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    found = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
    return found | ({"effect": effect} if effect else {})


def explain_call(what: str, ending: Ending) -> Exception:
    """The error of a call of kubectl, in terms of what the user can do."""
    if ending.code < 0:
        return NoHostReached(f"kubectl {what} did not end within {CALL_SECONDS:.0f} s; check the network")
    line = last_line(ending.stderr) or f"exit status {ending.code}"
    for pattern, kind, advice in FAILURES:
        if re.search(pattern, ending.stderr):
            return kind(f"kubectl {what}: {line}; {advice}")
    return UsageError(f"kubectl {what}: {line}")


class _Node(msgspec.Struct, frozen=True):
    """A node, its names, and why no pod can run there; empty if it is ready."""

    name: str
    names: frozenset[str]
    problem: str = ""

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> _Node:
        name, status = str(item["metadata"]["name"]), item.get("status") or {}
        addresses = (str(address.get("address", "")) for address in status.get("addresses") or ())
        return cls(name, frozenset({name, name.partition(".")[0], *addresses}), _problem(item, status))


def _problem(item: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    system = (item["metadata"].get("labels") or {}).get("kubernetes.io/os", "linux")
    if system != "linux":
        return f"the node runs {system}"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            detail = condition.get("message") or condition.get("reason") or ""
            return f"the node is not ready: {detail}" if detail else "the node is not ready"
    return ""


T = TypeVar("T")


class _Batch(Generic[T]):
    """Gathers the requests of many nodes for a moment and passes them on together; an answer for each, by name."""

    def __init__(self, work: Callable[[list[T]], Coroutine[Any, Any, Mapping[str, Exception]]]) -> None:
        self._work = work
        self._waiting: dict[str, tuple[T, asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def add(self, name: str, item: T) -> None:
        """Have the item worked on; raises the error that it gets. If it is cancelled, the work is still awaited."""
        done = asyncio.get_running_loop().create_future()
        self._waiting[name] = item, done
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush())
        flush = self._task
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            # A pod can only be deleted after it was created. At the end of the event loop, the work is cancelled too.
            await asyncio.wait([done, flush], return_when=asyncio.FIRST_COMPLETED)
            raise

    async def _flush(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        waiting, self._waiting, self._task = self._waiting, {}, None
        try:
            errors = await self._work([item for item, _ in waiting.values()])
        except Exception as error:  # noqa: BLE001 - it is raised to every waiter
            errors = dict.fromkeys(waiting, error)
        for name, (_, done) in waiting.items():
            if not done.cancelled():
                if name in errors:
                    done.set_exception(errors[name])
                else:
                    done.set_result(None)


class _State:
    """What the pods of one event loop share: the run, the list of nodes, and calls of kubectl for many pods."""

    def __init__(self, transport: Kube) -> None:
        self.transport, self.run = transport, uuid.uuid4().hex[:12]
        self._count = 0
        self._turn = asyncio.Lock()
        self._nodes: list[_Node] = []
        self._list_after, self._stale_deleted = 0.0, False
        self._failure: UsageError | NoHostReached | None = None
        self._pods: dict[str, dict[str, Any]] = {}
        self._polled = 0.0
        self._polling = asyncio.Lock()
        self._creating: _Batch[dict[str, Any]] = _Batch(self._create)
        self._deleting: _Batch[str] = _Batch(self._delete)

    async def node(self, name: str) -> _Node | None:
        """The node of any of its names. The first call also deletes pods that earlier runs left behind.

        The nodes are listed again for one that is missing or not ready: a recording tries such hosts again.
        """
        async with self._turn:
            found = self._find(name)
            if (found is None or found.problem) and time.monotonic() >= self._list_after:
                await self._list_nodes()
                found = self._find(name)
            if found is None and self._failure is not None:
                raise self._failure.with_traceback(None)
            return found

    def _find(self, name: str) -> _Node | None:
        exact = next((node for node in self._nodes if node.name == name), None)
        return exact or next((node for node in self._nodes if name in node.names), None)

    async def _list_nodes(self) -> None:
        """List the nodes; if that fails, the nodes of an earlier list stay."""
        try:
            self._nodes, self._failure = await self.transport.nodes(), None
            if not self._stale_deleted:
                self._stale_deleted = True
                await self._delete_stale()
        except (UsageError, NoHostReached) as error:
            self._failure = error
        self._list_after = time.monotonic() + LIST_SECONDS

    async def create(self, node: _Node) -> str:
        """Create the pod of a node; returns its name."""
        self._count += 1
        pod = f"rollbook-{self.run}-{self._count}"
        try:
            await self._creating.add(pod, self.transport.manifest(pod, node.name, self.run))
        except BaseException:
            await asyncio.shield(self.delete(pod))  # it may exist if the call was cut short
            raise
        return pod

    async def running(self, pod: str) -> None:
        """Wait until the pod runs; raises `TransportError` if it cannot."""
        while True:
            status = (await self._poll(pod)).get("status") or {}
            if status.get("phase") == "Running":
                return
            if reason := _pod_problem(status):
                raise AgentFailed(f"the pod does not start: {reason}")

    async def delete(self, pod: str) -> None:
        """Delete a pod; never raises, because the deadline and the next run do it otherwise."""
        with contextlib.suppress(Exception):
            await self._deleting.add(pod, pod)

    async def _poll(self, pod: str) -> dict[str, Any]:
        """The pod as the next list of all pods of this run has it."""
        asked = time.monotonic()
        async with self._polling:
            if self._polled < asked:
                await asyncio.sleep(POLL_SECONDS)
                began = time.monotonic()  # pods that are created during the call may not be in the list
                listed = await self.transport.call([*self._where("get"), "-l", f"{RUN}={self.run}", "-o", "json"])
                self._pods = {str(item["metadata"]["name"]): item for item in json.loads(listed).get("items", ())}
                self._polled = began
        if pod not in self._pods:
            raise AgentFailed("the pod was deleted before it ran")
        return self._pods[pod]

    def _where(self, verb: str) -> list[str]:
        return [verb, "pods", "-n", self.transport.kube_namespace]

    async def _create(self, manifests: list[dict[str, Any]]) -> dict[str, Exception]:
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}).encode()
        printed = await self.transport.call(
            ["create", "--validate=false", "-n", self.transport.kube_namespace, "-f", "-"], document, check=False
        )
        errors: dict[str, Exception] = {}
        for manifest in manifests:
            name = manifest["metadata"]["name"]
            if f"pod/{name} created" not in printed:
                lines = printed.splitlines()
                about = [line for line in lines if re.search(rf"{name}(?!\d)", line)] or lines or ["no output"]
                kind = TimedOut if "timed out" in about[-1] else Refused
                errors[name] = kind(f"the pod cannot be created: {about[-1].strip()}")
        return errors

    async def _delete(self, pods: list[str]) -> dict[str, Exception]:
        await self.transport.call([*self._where("delete"), "--ignore-not-found", "--wait=false", *pods], check=False)
        return {}

    async def _delete_stale(self) -> None:
        """Delete pods of collectors that ended without doing so; without permission they wait for their deadline."""
        with contextlib.suppress(UsageError, NoHostReached, ValueError):
            listed = await self.transport.call([*self._where("get"), "-l", OWNER, "-o", "json"])
            stale = [item["metadata"] for item in json.loads(listed).get("items", ())]
            names = [str(one["name"]) for one in stale if is_gone((one.get("annotations") or {}).get(COLLECTOR, ""))]
            if names:
                await self._delete(names)


def _pod_problem(status: Mapping[str, Any]) -> str:
    """Why a pod will not run; empty while it may."""
    if status.get("phase") in ("Failed", "Succeeded"):
        return f"{status.get('reason') or status['phase']}: {status.get('message') or 'no message'}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if GIVE_UP.fullmatch(waiting.get("reason") or ""):
            return f"{waiting['reason']}: {waiting.get('message') or 'no message'}"
    return ""


class _PodChannel(Pipe):
    """`kubectl exec` as the channel to an agent; closing it deletes the pod."""

    def __init__(self, state: _State, pod: str, argv: Sequence[str]) -> None:
        super().__init__(argv)
        self._state, self._pod = state, pod

    @classmethod
    async def open(cls, state: _State, pod: str, argv: Sequence[str], line: bytes) -> _PodChannel:
        """Start kubectl and send the line that starts the agent."""
        channel = cls(state, pod, argv)
        try:
            await channel.write(line)  # the agent is longer than what a pipe holds: this waits for kubectl
        except BaseException:
            await asyncio.shield(Pipe.close(channel))  # the caller deletes the pod
            raise
        return channel

    async def close(self, grace: float = 0.0) -> Ending:
        """End kubectl, and with it the agent, and delete the pod."""
        try:
            return await super().close(grace)
        finally:
            await asyncio.shield(self._state.delete(self._pod))
