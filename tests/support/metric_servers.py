"""Prometheus and VictoriaMetrics from Debian, started on loopback."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rollbook.testing.ports import free_ports
from tests.support.waits import until

__all__ = ["Series", "Server", "ask", "prometheus", "victoria"]

Series = dict[tuple[tuple[str, str], ...], list[tuple[int, float]]]
"""By sorted labels: milliseconds and values."""


@dataclasses.dataclass(frozen=True)
class Server:
    """A running server: its address, and a function that returns the stored series of a metric."""

    address: str
    series: Callable[[str], Series]


def ask(url: str, body: bytes | None = None) -> str:
    """Send one request without a proxy; returns the body of the answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, body, timeout=30) as answer:
        return str(answer.read().decode())


@contextlib.contextmanager
def prometheus(scratch: Path) -> Iterator[Server]:
    """A Prometheus that scrapes nothing and accepts remote write."""
    config = scratch / "prometheus.yml"
    config.write_text("")
    argv = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={scratch / 'prometheus'}"]
    argv += ["--web.enable-remote-write-receiver", "--web.listen-address={}"]
    with _running(argv, "/-/ready") as address:

        def stored_series(name: str) -> Series:
            """The stored samples of the last day."""
            query = urllib.parse.urlencode({"query": f"{name}[1d]"})
            found = json.loads(ask(f"{address}/api/v1/query?{query}"))["data"]["result"]
            return {_key(one["metric"]): [(round(1000 * at), float(v)) for at, v in one["values"]] for one in found}

        yield Server(address, stored_series)


@contextlib.contextmanager
def victoria(scratch: Path) -> Iterator[Server]:
    """A VictoriaMetrics."""
    argv = ["victoria-metrics", "-httpListenAddr={}", f"-storageDataPath={scratch / 'vm'}", "-retentionPeriod=100y"]
    with _running(argv, "/health") as address:

        def stored_series(name: str) -> Series:
            ask(f"{address}/internal/force_flush")
            found: Series = {}
            for line in ask(f"{address}/api/v1/export?{urllib.parse.urlencode({'match[]': name})}").splitlines():
                one = json.loads(line)
                pairs = zip(one["timestamps"], one["values"], strict=True)
                found[_key(one["metric"])] = [(at, value) for at, value in pairs if value is not None]
            return found

        yield Server(address, stored_series)


@contextlib.contextmanager
def _running(argv: list[str], health: str) -> Iterator[str]:
    """Start a server on a free port; yields its address once it answers."""
    address = f"127.0.0.1:{free_ports(1)[0]}"

    def answers() -> bool:
        try:
            ask(f"http://{address}{health}")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    with subprocess.Popen([word.replace("{}", address) for word in argv], stderr=subprocess.DEVNULL) as server:
        try:
            until(answers)
            yield f"http://{address}"
        finally:
            server.terminate()


def _key(labels: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((label, text) for label, text in labels.items() if label != "__name__"))
