"""A small Kubernetes API server on loopback for a real kubectl.

Nodes are as they were recorded, pods can be created, listed and deleted, and `exec` speaks the real WebSocket protocol
(v5.channel.k8s.io) and really runs the command.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import select
import socket
import struct
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

__all__ = ["RECORD", "FakeKube", "fake_kube", "needs_kubectl", "recorded"]

RECORD = Path(__file__).parents[1] / "data" / "kube-api-record.json"
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
GROUPS = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def _has_websockets() -> bool:
    """Whether kubectl is installed and uses WebSockets for exec, as it does since 1.31."""
    try:
        done = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, check=False)
        return int(json.loads(done.stdout)["clientVersion"]["minor"].rstrip("+")) >= 31
    except (OSError, ValueError, KeyError):
        return False


needs_kubectl = pytest.mark.skipif(not _has_websockets(), reason="needs kubectl 1.31 or later: scripts/kubectl")


def recorded(path: str, accept: str = "") -> str:
    """The recorded answer to a request: the one for this `Accept` header, else the first."""
    answers = json.loads(RECORD.read_text())[path]
    return str(next((one["body"] for one in answers if one["accept"] == accept), answers[0]["body"]))


@dataclasses.dataclass
class FakeKube:
    """The cluster. `prefixes` are put before the commands of a node, for example to enter a lab host.

    `pull_error` keeps pods from starting, `forbidden` refuses to create them, `unlisted` to list them, `slow` is the
    number of lists in which a new pod is still pending, and `slow_create` how long it takes to create one.
    """

    nodes: list[dict[str, Any]]
    prefixes: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    created: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    pull_error: str = ""
    forbidden: str = ""
    unlisted: str = ""
    slow: int = 1
    slow_create: float = 0.0
    creating: int = 0
    executing: int = 0
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def list_pods(self, selector: dict[str, str]) -> list[dict[str, Any]]:
        """The pods with these labels; a pod runs after it was listed `slow` times."""
        with self.lock:
            for pod in self.pods.values():
                self._advance(pod)
            return [
                json.loads(json.dumps(pod))
                for pod in self.pods.values()
                if selector.items() <= pod["metadata"].get("labels", {}).items()
            ]

    def _advance(self, pod: dict[str, Any]) -> None:
        pod["seen"] = pod.get("seen", 0) + 1
        if pod["seen"] <= self.slow:
            pod["status"] = {"phase": "Pending"}
        elif self.pull_error:
            waiting = {"reason": "ImagePullBackOff", "message": self.pull_error}
            pod["status"] = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
        else:
            pod["status"] = {"phase": "Running"}

    def create(self, manifest: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and answer of a POST."""
        name = manifest["metadata"]["name"]
        if self.forbidden:
            return 403, failure(403, "Forbidden", f'pods "{name}" is forbidden: {self.forbidden}')
        self.creating += 1
        time.sleep(self.slow_create)
        with self.lock:
            self.created.append(json.loads(json.dumps(manifest)))
            self.pods[name] = manifest | {"status": {"phase": "Pending"}}
        return 201, manifest

    def command(self, pod: dict[str, Any], argv: list[str]) -> list[str]:
        """The command line on this machine for a command in a pod, in which /host is the root of the node."""
        prefix = self.prefixes.get(pod["spec"]["nodeName"], [])
        return [*prefix, *("/" if word == "/host" else word for word in argv)]


def failure(code: int, reason: str, message: str) -> dict[str, Any]:
    """A `Status` document with an error."""
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason,
            "code": code}  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: FakeKube

    def _path(self) -> tuple[str, dict[str, list[str]]]:
        parts = urllib.parse.urlsplit(self.path)
        return parts.path, urllib.parse.parse_qs(parts.query)

    def do_GET(self) -> None:
        """Discovery, nodes, pods, and exec."""
        path, query = self._path()
        selector = dict(item.split("=", 1) for item in "".join(query.get("labelSelector", ())).split(",") if item)
        words = path.strip("/").split("/")
        if path in ("/api", "/apis"):
            self._answer(200, json.loads(recorded(path)), GROUPS)
        elif path == "/version":
            self._answer(200, json.loads(recorded(path)))
        elif path == "/api/v1/nodes":
            items = [n for n in self.cluster.nodes if selector.items() <= n["metadata"].get("labels", {}).items()]
            self._answer(200, {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items})
        elif words[-1] == "pods" and self.cluster.unlisted:
            self._answer(403, failure(403, "Forbidden", f"pods is forbidden: {self.cluster.unlisted}"))
        elif words[-1] == "pods":
            items = self.cluster.list_pods(selector)
            self._answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
        elif words[-1] == "exec":
            self._exec(words[-2], query)
        elif words[-2:-1] == ["pods"] and words[-1] in self.cluster.pods:
            self._answer(200, {"kind": "Pod", "apiVersion": "v1"} | self.cluster.pods[words[-1]])
        else:
            self._answer(404, failure(404, "NotFound", f"{path} not found"))

    def do_POST(self) -> None:
        """Create a pod. kubectl also tries exec with POST, over a protocol that is not implemented here."""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self._path()[0].endswith("/pods"):
            self._answer(*self.cluster.create(json.loads(body)))
        else:
            self._answer(400, failure(400, "BadRequest", "only WebSockets are supported"))

    def do_DELETE(self) -> None:
        """Delete a pod."""
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        with self.cluster.lock:
            pod = self.cluster.pods.pop(self._path()[0].rpartition("/")[2], None)
        if pod is None:
            self._answer(404, failure(404, "NotFound", "pod not found"))
        else:
            self._answer(200, {"kind": "Pod", "apiVersion": "v1"} | pod)

    def _answer(self, code: int, document: dict[str, Any], kind: str = "application/json") -> None:
        data = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _exec(self, name: str, query: dict[str, list[str]]) -> None:
        pod = self.cluster.pods.get(name)
        offered = [word.strip() for word in self.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        if pod is None or PROTOCOL not in offered:
            self._answer(404 if pod is None else 400, failure(404, "NotFound", f'pods "{name}" not found'))
            return
        accept = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + GUID).encode()).digest())
        self.send_response(101)
        for header, value in (
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", accept.decode()),
            ("Sec-WebSocket-Protocol", PROTOCOL),
        ):
            self.send_header(header, value)
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        self.cluster.executing += 1
        try:
            _Exec(self.connection, self.cluster.command(pod, query["command"])).carry()
        finally:
            self.cluster.executing -= 1

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _Exec:
    """One command over one WebSocket: the first byte of each message is its channel."""

    def __init__(self, connection: socket.socket, argv: list[str]) -> None:
        self._socket, self._received = connection, bytearray()
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, bufsize=0)

    def carry(self) -> None:
        """Move data until the command ends; a lost client closes its stdin, as the container runtime does."""
        with self._process as process:
            code = self._carry(process)
        status: dict[str, Any] = {"metadata": {}, "status": "Success"}
        if code:
            causes = [{"reason": "ExitCode", "message": str(code)}]
            status = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes},
                      "message": f"command terminated with non-zero exit code: {code}"}  # fmt: skip
        self._send(ERROR, json.dumps(status).encode())
        self._frame(8, struct.pack(">H", 1000))

    def _carry(self, process: subprocess.Popen[bytes]) -> int:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        channels = {process.stdout.fileno(): STDOUT, process.stderr.fileno(): STDERR}
        watched: list[int] = [*channels, self._socket.fileno()]
        while channels:
            for fd in select.select(watched, [], [], 1.0)[0]:
                if fd == self._socket.fileno():
                    if not self._input():
                        watched.remove(fd)
                        process.stdin.close()
                elif data := os.read(fd, 1 << 15):
                    self._send(channels[fd], data)
                else:
                    del channels[fd]
                    watched.remove(fd)
        return process.wait()

    def _send(self, channel: int, data: bytes) -> None:
        self._frame(2, bytes([channel]) + data)

    def _frame(self, code: int, data: bytes) -> None:
        length = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
        with suppress(OSError):
            self._socket.sendall(bytes([0x80 | code]) + length + data)

    def _input(self) -> bool:
        """Receive data of the client; False if it has disconnected."""
        try:
            data = self._socket.recv(1 << 16)
        except OSError:
            data = b""
        self._received += data
        while (message := self._message()) is not None:
            code, payload = message
            if code == 8:
                return False
            if code == 9:
                self._frame(10, payload)
            elif code in (0, 2) and payload[:1] == bytes([STDIN]):
                assert self._process.stdin is not None
                with suppress(OSError, ValueError):
                    self._process.stdin.write(payload[1:])
            elif code in (0, 2) and payload[:2] == bytes([CLOSE, STDIN]):
                assert self._process.stdin is not None
                self._process.stdin.close()
        return bool(data)

    def _message(self) -> tuple[int, bytes] | None:
        """The next frame of the client, unmasked; None if it is incomplete."""
        have = self._received
        if len(have) < 2:
            return None
        size, at = have[1] & 127, 2
        if size == 126:
            at = 4
            size = int.from_bytes(have[2:4], "big") if len(have) >= at else 1 << 62
        elif size == 127:
            at = 10
            size = int.from_bytes(have[2:10], "big") if len(have) >= at else 1 << 62
        if len(have) < at + 4 + size:
            return None
        mask = have[at : at + 4]
        body = bytes(byte ^ mask[index % 4] for index, byte in enumerate(have[at + 4 : at + 4 + size]))
        code = have[0] & 15
        del have[: at + 4 + size]
        return code, body


@contextmanager
def fake_kube(directory: Path, **options: Any) -> Iterator[tuple[FakeKube, Path]]:
    """Serve a cluster with the recorded nodes; yields the cluster and its kubeconfig."""
    cluster = FakeKube(json.loads(recorded("/api/v1/nodes?limit=500", "application/json"))["items"], **options)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"cluster": cluster}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "users": [{"name": "lab", "user": {}}],
        "current-context": "lab",
    }
    path = directory / "kubeconfig"
    path.write_text(json.dumps(config))
    try:
        yield cluster, path
    finally:
        server.shutdown()
        server.server_close()
