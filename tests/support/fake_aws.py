"""A fake of the AWS services that Rollbook calls, in their real wire format, on loopback.

SageMaker, SSM and KMS answer botocore's own clients over HTTP (JSON 1.1). A session is a WebSocket on which the command
really runs. `Faults` injects faults.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import os
import pty
import random
import shlex
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from rollbook.aws import messages
from rollbook.aws.messages import Message, Payload, encode
from tests.support.ssm import NodeSide
from tests.support.waits import SECONDS

__all__ = ["FakeAws", "Faults", "Node", "fake_aws"]

NON_INTERACTIVE, INTERACTIVE = "AWS-StartNonInteractiveCommand", "AWS-StartInteractiveCommand"
CHALLENGE = b"the same key on both sides"
REORDERED, LATE = 0.02, 0.7  # seconds; both sides repeat a message after 0.2


@dataclasses.dataclass
class Faults:
    """Faults to inject. Shares are of the messages in both directions; counts are of the first calls or messages.

    A reordered message arrives after messages that were sent a moment later, a late one after it was repeated.
    `close_seconds` is how long the node waits for acknowledgements after the command has ended; the real agent waits
    two seconds. `slow_start` delays the answer to a successful StartSession.
    """

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    lateness: float = 0.0
    throttled_starts: int = 0
    throttled_ends: int = 0
    failing_starts: int = 0
    failing_resumes: int = 0
    slow_start: float = 0.0
    dropped_sockets: int = 0
    drop_after: int = 20
    empty_resume: bool = False
    refused_documents: tuple[str, ...] = ()
    refused_parameters: tuple[str, ...] = ()
    late_exit: float = 0.0
    close_seconds: float = 60.0
    banner: bytes = b""
    cut_utf8: bool = True
    encrypted: bool = False
    page: int = 100
    repeated_token: bool = False
    blocked_sockets: bool = False
    errors: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Node:
    """A HyperPod node; `environment` is added to that of its commands, `prefix` is put before them.

    `role` and `is_restricted` are those of its group. A node without an instance has a logical id.
    """

    instance: str
    group: str = "worker"
    role: str = ""
    is_restricted: bool = False
    logical: str = ""
    status: str = "Running"
    is_connected: bool = True
    dns: str = ""
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    prefix: tuple[str, ...] = ()


class FakeAws:
    """The services. `sessions` are the open sessions; `starts` counts successful StartSession calls.

    `injected` counts the injected faults by kind. `printed` is the output of the commands of each node.
    """

    def __init__(self, nodes: list[Node], faults: Faults, cluster: str = "research") -> None:
        self.nodes, self.faults, self.cluster = nodes, faults, cluster
        self.injected: Counter[str] = Counter()
        self.printed = {node.instance: bytearray() for node in nodes}
        self.cluster_id = "abcdef123456"
        self.arn = f"arn:aws:sagemaker:us-west-2:111122223333:cluster/{self.cluster_id}"
        self.orchestrator: dict[str, Any] | None = {
            "Eks": {"ClusterArn": "arn:aws:eks:us-west-2:111122223333:cluster/k"}
        }
        self.sessions: dict[str, dict[str, Any]] = {}
        self.runs: list[_Run] = []
        self.starts = self.described = 0
        self.events: list[dict[str, Any]] = []
        self.keys: dict[bytes, bytes] = {}
        self.endpoint = ""
        self.socket_port = 0
        self.dice = random.Random(20)

    def answer(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """One API call; raises `ApiError`."""
        for name in (operation, f"{operation}:{request.get('DocumentName', '')}"):
            if name in self.faults.errors:
                raise ApiError(*self.faults.errors[name])
        method = getattr(self, f"_{operation}", None)
        if method is None:
            raise ApiError("UnknownOperationException", operation)
        found: dict[str, Any] = method(request)
        return found

    def _DescribeCluster(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - AWS's name
        if request["ClusterName"] not in (self.cluster, self.arn):
            raise ApiError("ResourceNotFound", f"Cluster {request['ClusterName']} not found")
        groups: dict[str, dict[str, dict[str, Any]]] = {"InstanceGroups": {}, "RestrictedInstanceGroups": {}}
        for node in self.nodes:
            kind = "RestrictedInstanceGroups" if node.is_restricted else "InstanceGroups"
            about = {"InstanceGroupName": node.group, "InstanceType": "ml.p5.48xlarge", "CurrentCount": 1}
            groups[kind][node.group] = about | ({"SlurmConfig": {"NodeType": node.role}} if node.role else {})
        found: dict[str, Any] = {
            "ClusterArn": self.arn,
            "ClusterName": self.cluster,
            "ClusterStatus": "InService",
            **{kind: list(named.values()) for kind, named in groups.items()},
        }
        return found | ({"Orchestrator": self.orchestrator} if self.orchestrator else {})

    def _ListClusterNodes(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - AWS's name
        start = int(request.get("NextToken", "0"))
        page = self.nodes[start : start + min(self.faults.page, request.get("MaxResults", 100))]
        found: dict[str, Any] = {"ClusterNodeSummaries": [self._summary(node) for node in page]}
        end = start + len(page)
        if end < len(self.nodes):
            found["NextToken"] = request.get("NextToken", "1") if self.faults.repeated_token else str(end)
        return found

    def _summary(self, node: Node) -> dict[str, Any]:
        found: dict[str, Any] = {
            "InstanceGroupName": node.group,
            "InstanceType": "ml.p5.48xlarge",
            "LaunchTime": 1_760_000_000,
            "InstanceStatus": {"Status": node.status},
        }
        names = {"InstanceId": node.instance, "NodeLogicalId": node.logical, "PrivateDnsHostname": node.dns}
        return found | {key: name for key, name in names.items() if name}

    def _DescribeClusterNode(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - AWS's name
        self.described += 1
        for node in self.nodes:
            if node.instance == request["NodeId"]:
                details = self._summary(node) | {"PrivateDnsHostname": node.dns or f"ip-10-1-0-{self.described}"}
                return {"NodeDetails": details}
        raise ApiError("ResourceNotFound", request["NodeId"])

    def _ListClusterEvents(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - AWS's name
        after, before = request.get("EventTimeAfter", 0), request.get("EventTimeBefore", 1 << 60)
        chosen = [event for event in self.events if after <= event["EventTime"] <= before]
        chosen.sort(key=lambda event: event["EventTime"], reverse=request.get("SortOrder") == "Descending")
        start = int(request.get("NextToken", "0"))
        end = start + min(self.faults.page, request.get("MaxResults", 100))
        about = {"ClusterArn": self.arn, "ClusterName": self.cluster, "ResourceType": "Instance"}
        found: dict[str, Any] = {"Events": [about | event for event in chosen[start:end]]}
        return found | ({"NextToken": str(end)} if end < len(chosen) else {})

    def _StartSession(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - AWS's name
        if self.faults.throttled_starts:
            self.faults.throttled_starts -= 1
            raise ApiError("ThrottlingException", "Rate exceeded")
        if self.faults.failing_starts:
            self.faults.failing_starts -= 1
            raise ApiError("InternalServerError", "an error occurred")
        document, parameters = request.get("DocumentName", ""), request.get("Parameters", {})
        if document in self.faults.refused_documents or set(parameters) & set(self.faults.refused_parameters):
            raise ApiError("InvalidDocument", f"document {document} is not available")
        if any(len(value) > 65535 for values in parameters.values() for value in values):
            raise ApiError("ValidationException", "a parameter has more than 65535 characters")
        node = self._node(request["Target"])
        session = f"user-{uuid.uuid4().hex[:17]}"
        token = uuid.uuid4().hex
        self.sessions[session] = {"node": node, "request": request, "token": token}
        self.starts += 1
        time.sleep(self.faults.slow_start)
        return {"SessionId": session, "TokenValue": token, "StreamUrl": self._url(session)}

    def _ResumeSession(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - AWS's name
        if self.faults.failing_resumes:
            self.faults.failing_resumes -= 1
            raise ApiError("InternalServerError", "an error occurred")
        session = self.sessions.get(request["SessionId"])
        if session is None or self.faults.empty_resume:
            return {"SessionId": request["SessionId"], "TokenValue": ""}
        session["token"] = uuid.uuid4().hex
        stream = self._url(request["SessionId"])
        return {"SessionId": request["SessionId"], "TokenValue": session["token"], "StreamUrl": stream}

    def _DescribeSessions(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - AWS's name
        assert request["State"] == "Active"
        names, start = sorted(self.sessions), int(request.get("NextToken", "0"))
        page = names[start : start + min(self.faults.page, request.get("MaxResults", 200))]
        found: dict[str, Any] = {
            "Sessions": [
                {"SessionId": name, "Status": "Connected", "Reason": self.sessions[name]["request"].get("Reason", "")}
                for name in page
            ]
        }
        return found | ({"NextToken": str(start + len(page))} if start + len(page) < len(names) else {})

    def _TerminateSession(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - AWS's name
        if self.faults.throttled_ends:
            self.faults.throttled_ends -= 1
            raise ApiError("ThrottlingException", "Rate exceeded")
        session = self.sessions.pop(request["SessionId"], None)
        if session is not None and "run" in session:
            session["run"].kill()
        return {"SessionId": request["SessionId"]}

    def _GenerateDataKey(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - AWS's name
        plain, blob = os.urandom(request["NumberOfBytes"]), os.urandom(40)
        self.keys[blob] = plain
        return {
            "KeyId": request["KeyId"],
            "Plaintext": base64.b64encode(plain).decode(),
            "CiphertextBlob": base64.b64encode(blob).decode(),
        }

    def _url(self, session: str) -> str:
        return f"ws://127.0.0.1:{1 if self.faults.blocked_sockets else self.socket_port}/{session}"

    def _node(self, target: str) -> Node:
        for node in self.nodes:
            if target in (node.instance, f"sagemaker-cluster:{self.cluster_id}_{node.group}-{node.instance}"):
                if node.status != "Running" or not node.is_connected:
                    break
                return node
        raise ApiError("TargetNotConnected", f"{target} is not connected.")

    async def serve_session(self, socket: ServerConnection) -> None:
        """One WebSocket of a session."""
        session_id = (socket.request.path if socket.request else "").strip("/")
        session = self.sessions.get(session_id)
        hello = json.loads(await socket.recv())
        if session is None or hello["TokenValue"] != session["token"]:
            await socket.close(1008, "token")
            return
        if "run" not in session:
            session["run"] = _Run(self, session)
            self.runs.append(session["run"])
        await session["run"].carry(socket)


class ApiError(Exception):
    """An error answer: AWS's code and text."""


class _Run:
    """The command of one session; a session may use several sockets."""

    def __init__(self, service: FakeAws, session: dict[str, Any]) -> None:
        self._faults, self._dice, self._service = service.faults, service.dice, service
        request = session["request"]
        self.document, parameters = request.get("DocumentName", ""), request.get("Parameters", {})
        command = (parameters.get("command") or ["true"])[0]
        self._separate = parameters.get("separateOutputStream") == ["true"]
        self._environment = {**os.environ, **session["node"].environment}
        self._prefix = session["node"].prefix
        self._printed = service.printed[session["node"].instance]
        has_handshake = self.document == NON_INTERACTIVE or self._faults.encrypted
        self._node = NodeSide(handshake=self._handshake() if has_handshake else None)
        self._cipher: tuple[AESGCM, AESGCM] | None = None
        if self._faults.banner:
            self._node.say(self._faults.banner)
        self._command, self._master, self._input_sent = command, -1, 0
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: list[int] = []
        self._open: set[int] = set()
        self._tail: dict[int, bytes] = {}
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        self._delayed: list[bytes] = []
        self._ended_at: float | None = None
        self._done = self._closed = False
        if self._node.takes_input:  # else after the handshake
            self._begin()

    def _begin(self) -> None:
        if self._closed:
            return
        self._process = process = self._start(self._command)
        ends = [process.stdout, process.stderr] if self._master < 0 else []
        self._pipes = [self._master] if self._master >= 0 else [end.fileno() for end in ends if end is not None]
        self._open = set(self._pipes)
        for fd in self._pipes:
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._read, fd)

    def _handshake(self) -> dict[str, Any]:
        name = "NonInteractiveCommands" if self.document == NON_INTERACTIVE else "InteractiveCommands"
        kind = {"SessionType": name, "Properties": {}}
        actions: list[dict[str, Any]] = [{"ActionType": "SessionType", "ActionParameters": kind}]
        if self._faults.encrypted:
            actions.append({"ActionType": "KMSEncryption", "ActionParameters": {"KMSKeyId": "alias/session"}})
        return {"AgentVersion": "3.3.987.0", "RequestedClientActions": actions}

    def _start(self, command: str) -> subprocess.Popen[bytes]:
        if self.document == NON_INTERACTIVE:
            error = subprocess.PIPE if self._separate else subprocess.STDOUT
            return subprocess.Popen(
                [*self._prefix, *shlex.split(command)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=error,
                env=self._environment,
                start_new_session=True,
            )
        self._master, slave = pty.openpty()
        try:
            return subprocess.Popen(
                [*self._prefix, "sh", "-c", command],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=self._environment,
                start_new_session=True,
            )
        finally:
            os.close(slave)

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._wake.set()
        if data:
            self._printed += data
            kind = Payload.STDERR if self._separate and fd != self._pipes[0] else Payload.OUTPUT
            self._say(self._whole_characters(fd, data), kind)
        else:
            self._loop.remove_reader(fd)
            self._open.discard(fd)
            self._close(fd)

    def _close(self, fd: int) -> None:
        if fd == self._master:
            os.close(fd)
            self._master = -1
        assert self._process is not None
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None and not pipe.closed and pipe.fileno() == fd:
                pipe.close()

    def _whole_characters(self, fd: int, data: bytes) -> bytes:
        """The data up to the last complete UTF-8 character; the real agent delays the rest, and drops it at the end."""
        if not self._faults.cut_utf8:
            return data
        data = self._tail.pop(fd, b"") + data
        for back in range(1, min(4, len(data) + 1)):
            byte = data[-back]
            if byte >= 0xC0:
                need = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                if back < need:
                    self._tail[fd] = data[-back:]
                    return data[:-back]
                break
            if byte < 0x80:
                break
        return data

    def _say(self, data: bytes, kind: int) -> None:
        if self._cipher is not None:
            for start in range(0, len(data), 900):
                nonce = os.urandom(12)
                self._node.say(nonce + self._cipher[0].encrypt(nonce, data[start : start + 900], None), kind)
        else:
            self._node.say(data, kind)

    def kill(self) -> None:
        """End the command, as the agent does for a session that was terminated."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        """Stop reading the command's output; no command is started afterwards."""
        self._closed = True
        for fd in self._open:
            self._loop.remove_reader(fd)
            self._close(fd)
        self._open.clear()

    async def carry(self, socket: ServerConnection) -> None:
        """Move messages over one socket until the session or the socket ends."""
        receiving = asyncio.create_task(self._receive(socket))
        count = 0
        try:
            while True:
                now = self._loop.time()
                self._after_input()  # a terminal accepts little input at a time
                delayed, self._delayed = self._delayed, []
                for data in delayed:
                    await socket.send(data)
                for data in self._node.outgoing(now) + self._node.tick(now):
                    count += 1
                    for delay in self._deliveries():
                        if delay:
                            self._loop.call_later(delay, self._send_late, data)
                        else:
                            await socket.send(data)
                if self._faults.dropped_sockets and count > self._faults.drop_after:
                    self._faults.dropped_sockets -= 1
                    self._service.injected["dropped"] += 1
                    socket.transport.abort()
                    return
                if self._finished(now):
                    await socket.send(encode(Message(kind=messages.CLOSED, payload=b'{"Output": ""}')))
                    return
                if receiving.done():
                    return
                busy = self._node.outstanding or (self._process is not None and not self._open)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02 if busy else 0.5):
                        await self._wake.wait()
                self._wake.clear()
        except ConnectionClosed:
            return
        finally:
            receiving.cancel()

    async def _receive(self, socket: ServerConnection) -> None:
        """Take the client's messages until the socket is closed."""
        with suppress(ConnectionClosed):
            async for data in socket:
                for delay in self._deliveries():
                    if delay:
                        self._loop.call_later(delay, self._take, data)
                    else:
                        self._take(data)
        self._wake.set()

    def _deliveries(self) -> list[float]:
        """The delays in seconds with which a message arrives: none if it is lost, two if it is duplicated."""
        faults, injected, roll = self._faults, self._service.injected, self._dice.random
        if roll() < faults.loss:
            injected["lost"] += 1
            return []
        delay = 0.0
        if roll() < faults.reordering:
            injected["reordered"] += 1
            delay = REORDERED
        elif roll() < faults.lateness:
            injected["late"] += 1
            delay = LATE
        if roll() < faults.duplication:
            injected["duplicated"] += 1
            return [delay, 0.0]
        return [delay]

    def _send_late(self, data: bytes) -> None:
        self._delayed.append(data)
        self._wake.set()

    def _take(self, data: bytes | str) -> None:
        """Take one message of the client."""
        assert isinstance(data, bytes)
        self._node.receive(data)
        self._after_input()
        self._wake.set()

    def _after_input(self) -> None:
        if self._node.response is not None and self._faults.encrypted and self._cipher is None:
            result = self._node.response["ProcessedClientActions"][-1]["ActionResult"]
            plain = self._service.keys[base64.b64decode(result["KMSCipherTextKey"])]
            self._cipher = ours, theirs = AESGCM(plain[:32]), AESGCM(plain[32:])
            self._node.decrypt = lambda data: theirs.decrypt(data[:12], data[12:], None)
            nonce = os.urandom(12)
            challenge = base64.b64encode(nonce + ours.encrypt(nonce, CHALLENGE, None)).decode()
            self._node.say(json.dumps({"Challenge": challenge}).encode(), Payload.CHALLENGE_REQUEST)
        if self._node.challenged is not None and self._process is None:
            answer = self._node.decrypt(base64.b64decode(self._node.challenged["Challenge"]))
            assert answer == CHALLENGE
        if self._node.takes_input and self._process is None:
            self._begin()
        if self._master >= 0 and len(self._node.input) > self._input_sent:
            with suppress(OSError):
                self._input_sent += os.write(self._master, bytes(self._node.input[self._input_sent :]))
        if self._node.terminated:
            self.kill()

    def _finished(self, now: float) -> bool:
        if self._process is None or self._open or self._process.poll() is None:
            return False
        if self._ended_at is None:
            self._ended_at = now
            if self._separate:
                self._loop.call_later(self._faults.late_exit, self._exit)
            else:
                self._done = True
        if not self._done:
            return False
        return not self._node.outstanding or now - self._ended_at > self._faults.close_seconds + self._faults.late_exit

    def _exit(self) -> None:
        assert self._process is not None
        code = self._process.returncode
        self._say(f"EXIT_CODE: {code}".encode(), Payload.EXIT_CODE)
        self._done = True


class _Handler(BaseHTTPRequestHandler):
    service: FakeAws

    def do_POST(self) -> None:
        """One API call of botocore."""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        try:
            status, answer = 200, self.service.answer(operation, json.loads(body or b"{}"))
        except ApiError as error:
            code, text = error.args
            status, answer = 400, {"__type": code, "message": text}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # many sessions end at the same time


@contextmanager
def fake_aws(nodes: list[Node], faults: Faults | None = None) -> Iterator[FakeAws]:
    """Start the services, and set the credentials and the region for botocore."""
    service = FakeAws(nodes, faults or Faults())
    handler = type("Handler", (_Handler,), {"service": service})
    server = _Server(("127.0.0.1", 0), handler)
    service.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def sockets() -> None:
        async with serve(service.serve_session, "127.0.0.1", 0, compression=None, max_size=1 << 22) as listening:
            service.socket_port = next(iter(listening.sockets)).getsockname()[1]
            ready.set()
            await stop.wait()
            for run in service.runs:
                run.kill()
                run.close()

    threads = [
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True),
        threading.Thread(target=lambda: loop.run_until_complete(sockets()), daemon=True),
    ]
    for thread in threads:
        thread.start()
    assert ready.wait(SECONDS)
    known = {
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "example",
        "AWS_DEFAULT_REGION": "us-west-2",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = {name: os.environ.get(name) for name in known}
    os.environ.update(known)
    try:
        yield service
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        loop.call_soon_threadsafe(stop.set)
        server.shutdown()
        server.server_close()
        threads[1].join(SECONDS)
        loop.close()
