"""A server on loopback that replays recorded answers of a Kubernetes API server to a real kubectl."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

__all__ = ["KubeRecord", "canary_container", "kube_record", "write_kubeconfig"]

RECORD = Path(__file__).parents[1] / "data" / "kube-api-record.json"
CLUSTER = "arn:aws:eks:us-west-2:123456789012:cluster/training"


class KubeRecord:
    """The answers of the server. `replace` changes texts in all answers; paths in `hang` are not answered."""

    def __init__(self) -> None:
        self.answers: dict[str, list[dict[str, Any]]] = {
            _normal(path): found for path, found in json.loads(RECORD.read_text()).items()
        }
        self.logs: dict[str, bytes] = {}
        self.replace: dict[str, str] = {}
        self.hang: set[str] = set()
        self.requests: list[tuple[str, str]] = []

    def add_to_pod(self, name: str, container: dict[str, Any], annotations: dict[str, str]) -> None:
        """Change the first container and the annotations of a pod in all answers that contain it."""
        for answer in (one for answers in self.answers.values() for one in answers):
            body = json.loads(answer["body"]) if '"Pod' in answer["body"] else {}
            for pod in body.get("items", [body]):
                if pod.get("metadata", {}).get("name") == name and "containers" in pod.get("spec", {}):
                    pod["spec"]["containers"][0].update(container)
                    pod["metadata"].setdefault("annotations", {}).update(annotations)
                    answer["body"] = json.dumps(body)

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Status, type and body."""
        found = self.answers.get(_normal(path))
        if not found:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": f"no {path}", "code": 404}
            return 404, "application/json", json.dumps(status).encode()
        is_table = "as=Table" in accept
        best = next((each for each in found if ("as=Table" in each["accept"]) == is_table), found[0])
        body = best["body"]
        for old, new in self.replace.items():
            body = body.replace(old, new)
        return best["status"], best["content_type"], body.encode()


def canary_container(canaries: list[dict[str, str]]) -> tuple[dict[str, Any], dict[str, str]]:
    """A container with every canary of a pod in its place, and the annotations of its pod."""
    by_place: dict[str, list[str]] = {}
    for each in canaries:
        by_place.setdefault(each["place"], []).append(each["text"])
    variables = [dict(zip(("name", "value"), text.split("=", 1), strict=True)) for text in by_place["pod-env"]]
    container = {
        "env": [*variables, {"name": "NCCL_DEBUG", "value": "INFO"}],
        "args": [*by_place["pod-argument"], "--password", "canary-after-option"],
    }
    return container, {"kubectl.kubernetes.io/last-applied-configuration": by_place["pod-annotation"][0]}


def _normal(path: str) -> str:
    """A path with sorted selectors: kubectl writes them in random order."""
    parts = urllib.parse.urlsplit(path)
    query = sorted(
        (name, ",".join(sorted(value.split(","))))
        for name, value in urllib.parse.parse_qsl(parts.query)
        if name != "timeout"
    )
    return f"{parts.path}?{query}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    record: KubeRecord

    def do_GET(self) -> None:
        """Send the recorded answer."""
        path = self.path.partition("?")[0]
        self.record.requests.append((self.path, self.headers["Accept"] or ""))
        if path in self.record.hang:
            time.sleep(30)
            return
        log = self.record.logs.get(path + (".previous" if "previous=true" in self.path else ""))
        if log is not None:
            status, kind, body = 200, "text/plain", log
        else:
            status, kind, body = self.record.answer(self.path, self.headers["Accept"] or "")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Print nothing."""


@contextmanager
def kube_record() -> Iterator[tuple[KubeRecord, str]]:
    """Start the server; yields the record and the address."""
    record = KubeRecord()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"record": record}))
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield record, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_kubeconfig(path: Path, server: str, *, context: str = "lab", cluster: str = CLUSTER) -> Path:
    """A kubeconfig with one context, and another that must not be used."""
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": context,
                "clusters": [
                    {"name": cluster, "cluster": {"server": server}},
                    {"name": "other", "cluster": {"server": "http://127.0.0.1:9"}},
                ],
                "users": [{"name": "me", "user": {"token": "kubeconfig-canary-token"}}],
                "contexts": [
                    {"name": context, "context": {"cluster": cluster, "user": "me"}},
                    {"name": "other", "context": {"cluster": "other", "user": "me"}},
                ],
            }
        )
    )
    path.chmod(0o600)
    return path
