"""Kubernetes through a real kubectl, with recorded responses of a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.agent.redactor import Redactor
from rollbook.bundle import kubernetes
from rollbook.bundle.cluster import ClusterPart
from rollbook.bundle.cluster_items import ClusterOptions, read_cluster
from rollbook.bundle.kubernetes import Kubectl, failing_containers, mask_description, mask_json
from rollbook.bundle.summary import ItemResult, Window
from tests.support.fake_kube import needs_kubectl
from tests.support.kube_record import CLUSTER, KubeRecord, canary_container, kube_record, write_kubeconfig

pytestmark = needs_kubectl
CANARIES = [
    each
    for each in tomllib.loads((Path(__file__).parents[1] / "data/bundle/canaries.toml").read_text())["canary"]
    if each["place"].startswith("pod-")
]
LOG = "/api/v1/namespaces/training/pods/trainer-4/log"


@contextlib.contextmanager
def recorded_cluster() -> Iterator[tuple[KubeRecord, str]]:
    """Serve the recorded cluster, with logs."""
    with kube_record() as (record, address):
        record.logs[LOG] = b"2026-11-15T01:45:29Z step 1 api_key=canary-in-a-log\n"
        record.logs[f"{LOG}.previous"] = b"2026-11-15T01:40:00Z out of memory\n"
        yield record, address


@pytest.fixture
def server() -> Iterator[tuple[KubeRecord, str]]:
    """A recorded cluster, for tests that change it."""
    with recorded_cluster() as found:
        yield found


@dataclasses.dataclass
class Collected:
    """The result of a collection, and the requests that the server received."""

    directory: Path
    items: dict[str, ItemResult]
    part: ClusterPart
    requests: list[tuple[str, str]]


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """A collection of all kinds, for tests that only read it."""
    directory = tmp_path_factory.mktemp("collected")
    with recorded_cluster() as (record, address):
        return Collected(directory, *collect(directory, address), record.requests)


def collect(tmp_path: Path, address: str, **options: str) -> tuple[dict[str, ItemResult], ClusterPart]:
    """Collect all items, and return them by id."""
    config = write_kubeconfig(tmp_path / "config", address)
    environ = {**os.environ, "HOME": str(tmp_path)}
    kubectl = Kubectl(**{"kubeconfig": str(config), **options})
    part = ClusterPart(tmp_path / "bundle", b"salt", environ)
    part.limit(60)
    results = asyncio.run(kubernetes.collect(part, kubectl, Window()))
    return {item.id: item for item in results}, part


def everything(tmp_path: Path) -> str:
    """All text of the bundle."""
    return "".join(path.read_text() for path in sorted((tmp_path / "bundle").rglob("*")) if path.is_file())


def test_all_kinds_as_text_and_json(collected: Collected) -> None:
    """Each item is complete, its files match the summary, and they contain no secrets."""
    items = collected.items
    assert {item.status for item in items.values()} == {"complete"}, items
    for name in ("nodes", "pods", "events", "persistent-volume-claims", "services", "deployments", "stateful-sets"):
        kinds = {Path(file.path).suffix for file in items[f"kubernetes-{name}"].files}
        assert kinds == {".txt", ".json"}
    for item in items.values():
        for file in item.files:
            path = collected.directory / "bundle" / file.path
            assert path.stat().st_size == file.size
            assert path.stat().st_mode & 0o777 == 0o600
            assert "--context=lab" in file.source
    text = everything(collected.directory)
    assert "canary" not in text
    assert "trainer-4" in text
    assert "OOMKilled" in text
    assert any(one.rule == "kubernetes" for one in collected.part.redactions)


def test_values_of_secrets_are_not_fetched(collected: Collected) -> None:
    """Only tables of secrets and config maps are requested, not the objects."""
    requests = [accept for path, accept in collected.requests if re.search("/(secrets|configmaps)", path)]
    assert requests
    assert all(accept.startswith("application/json;as=Table") for accept in requests)
    [path] = collected.directory.glob("bundle/cluster/kubernetes-secrets/secrets.json")
    names = json.loads(path.read_text())["items"]
    assert {"namespace": "training", "name": "hf-token", "type": "Opaque", "data": "1"}.items() <= names[1].items()


def test_logs_of_failing_containers(collected: Collected) -> None:
    """The current and previous logs of the failing container are collected and redacted; logs of others are not."""
    files = {Path(file.path).name: file for file in collected.items["kubernetes-logs"].files}
    assert list(files) == ["training_trainer-4_trainer.log", "training_trainer-4_trainer.previous.log"]
    assert "limit-bytes" in files["training_trainer-4_trainer.log"].source
    log = collected.directory / "bundle" / files["training_trainer-4_trainer.log"].path
    assert "api_key=***" in log.read_text()


def test_more_failing_containers_than_the_limit() -> None:
    """The item is truncated and has the number of logs."""
    logs, most = ItemResult(id="kubernetes-logs", status="complete"), kubernetes.MAX_LOGS
    assert kubernetes._with_missing(logs, most) == logs
    found = kubernetes._with_missing(logs, most + 1)
    assert (found.status, found.reason) == ("truncated", f"logs of {most} of {most + 1} failing containers")


@pytest.fixture
def few_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read only two kinds, because each takes kubectl a second."""
    chosen = [kind for kind in kubernetes.KINDS if kind[0] in {"pods", "resource-quotas"}]
    assert len(chosen) == 2
    monkeypatch.setattr(kubernetes, "KINDS", chosen)


@pytest.mark.usefixtures("few_kinds")
def test_context_must_belong_to_the_cluster(server: tuple[KubeRecord, str], tmp_path: Path) -> None:
    """Nothing is read from the context of another cluster."""
    items, _ = collect(tmp_path, server[1], cluster="another")
    assert items["kubernetes"].status == "failed"
    assert items["kubernetes"].reason == f"context lab is for cluster {CLUSTER}, not for another; name another context"
    # Debian's kubectl requests the version first.
    assert [path for path, _ in server[0].requests if not path.startswith("/version")] == []
    items, _ = collect(tmp_path, server[1], cluster="training")
    assert "kubernetes-pods" in items


def test_broken_kubectl_affects_only_this_part(tmp_path: Path) -> None:
    """Without kubectl, the context or the server there is one item, with the reason."""
    items, _ = collect(tmp_path, "http://127.0.0.1:9", program="kubectl-none")
    assert items["kubernetes"].status == "absent"
    items, _ = collect(tmp_path, "http://127.0.0.1:9", context="none")
    assert (items["kubernetes"].status, list(items)) == ("failed", ["kubernetes"])
    assert "none" in items["kubernetes"].reason
    items, _ = collect(tmp_path, "http://127.0.0.1:9")
    assert "refused" in items["kubernetes"].reason


@pytest.mark.parametrize(
    ("program", "address", "status"),
    [("kubectl-none", "", "absent"), ("kubectl", "", "absent"), ("kubectl", "http://127.0.0.1:9", "failed")],
)
def test_status_of_the_kubernetes_item(tmp_path: Path, program: str, address: str, status: str) -> None:
    """Without kubectl or a context the item is absent; with a server that cannot be reached it failed."""
    config = tmp_path / "config"
    config.touch()
    if address:
        write_kubeconfig(config, address)
    options = ClusterOptions(kubectl=Kubectl(kubeconfig=str(config), program=program))
    items, _ = asyncio.run(read_cluster(tmp_path, ["n1"], options, salt=b"s", window=Window()))
    assert {item.status for item in items if item.id == "kubernetes"} == {status}


@pytest.mark.parametrize(
    "pods", [b"", b"[]", b'{"items": null}', b'{"items": [{}]}', b'{"items": [{"metadata": {}', b'["\xff"]']
)
def test_malformed_list_of_pods(pods: bytes) -> None:
    """It raises `ValueError`, which the collection handles."""
    with pytest.raises(ValueError, match=r"^\w+: "):
        list(failing_containers(pods))


@pytest.mark.parametrize("word", ["current-context", "view"])
def test_kubectl_output_that_is_not_utf8(tmp_path: Path, word: str) -> None:
    """Neither a context nor a configuration in another encoding ends the collection."""
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\ncase \"$*\" in *{word}*) printf '[\"\\377\"]';; *) echo '{{}}';; esac\n")
    program.chmod(0o700)
    items, _ = collect(tmp_path, "http://127.0.0.1:9", program=str(program), context="")
    assert items["kubernetes"].status == "failed"
    assert "kubectl has no context" in items["kubernetes"].reason


@pytest.mark.usefixtures("few_kinds")
def test_a_query_that_hangs_affects_only_itself(
    server: tuple[KubeRecord, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The item of the hanging query fails with a reason; the other one is complete."""
    monkeypatch.setattr(kubernetes, "REQUEST_SECONDS", 6)
    server[0].hang.add("/api/v1/resourcequotas")
    items, _ = collect(tmp_path, server[1])
    assert items["kubernetes-resource-quotas"].status == "failed"  # kubectl itself ends its request
    assert "exceeded" in items["kubernetes-resource-quotas"].reason
    assert items["kubernetes-pods"].status == "complete"


def test_masking_of_json() -> None:
    """All canaries of a pod are removed; other values are kept."""
    container, annotations = canary_container(CANARIES)
    pod = {"kind": "Pod", "metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
    redacted = mask_json(json.dumps({"items": [pod]}).encode(), Redactor(b"s")).decode()
    for each in CANARIES:
        assert each["secret"] not in redacted
    assert "canary" not in redacted
    assert "NCCL_DEBUG" in redacted
    assert "INFO" in redacted


def test_masking_of_descriptions() -> None:
    """Values of variables on one or several lines and secret arguments are masked; other text is kept."""
    text = (
        "Annotations:  kubectl.kubernetes.io/last-applied-configuration: {canary}\n"
        "Containers:\n  c:\n    Args:\n      --admin-password\n      canary1\n      --fast\n    Environment:\n"
        "      A:           canary2\n                   canary3: x\n      NCCL_DEBUG:  INFO\n"
        "      B:           <set to the key 'k' in secret 's'>  Optional: false\n    Mounts:  <none>\n"
    )
    redacted = mask_description(text.encode(), Redactor(b"s")).decode()
    assert "canary" not in redacted
    for kept in ("      --fast\n", "NCCL_DEBUG:  INFO\n", "secret 's'>  Optional", "    Mounts:  <none>\n"):
        assert kept in redacted
