"""The agent on Kubernetes nodes, with a real kubectl: pods are always deleted, and every failure has a reason."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import cast

import pytest

import rollbook
from rollbook.api.options import TransportOptions
from rollbook.errors import NoHostReached, UsageError
from rollbook.hosts import Host
from rollbook.transports import kube
from rollbook.transports.kube import GATHER_SECONDS, Kube, _Batch, _PodChannel, _State
from tests.support.commands import ROLLBOOK
from tests.support.fake_kube import FakeKube, fake_kube, needs_kubectl
from tests.support.mounts import lasting_mounts
from tests.support.waits import SECONDS, is_running, until, until_true

NODES = [f"hyperpod-i-0a1b2c3d4e5f6071{number}" for number in range(6)]  # 3 and 5 are not ready
READY = [NODES[number] for number in (0, 1, 2, 4)]


pytestmark = needs_kubectl


def options(config: Path) -> TransportOptions:
    """Options of the transport to the fake cluster."""
    return {"via": "kube", "kubeconfig": str(config), "timeout": 60.0}


def command(config: Path, *arguments: str) -> list[str]:
    """A command line that reaches the fake cluster."""
    return [*ROLLBOOK, arguments[0], "--via", "kube", "--kubeconfig", str(config), *arguments[1:]]


def test_kubectl_ends_if_the_start_of_the_agent_is_cancelled() -> None:
    """The agent is larger than a pipe's buffer, so its start blocks if kubectl does not read."""
    sleeping = f"sleep 6021.{os.getpid()}"

    async def main() -> None:
        state = cast("_State", None)  # the caller deletes the pod
        start = asyncio.create_task(_PodChannel.open(state, "pod", ["sh", "-c", f"exec {sleeping}"], bytes(1 << 20)))
        await until_true(lambda: is_running(sleeping))
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    asyncio.run(main())
    assert not is_running(sleeping)


@pytest.mark.parametrize("after", [0.0, 2 * GATHER_SECONDS])
def test_cancelling_a_batch_does_not_block(after: float) -> None:
    """If all tasks are cancelled before or during the work of a batch, callers do not wait for it."""

    async def work(_items: list[str]) -> dict[str, Exception]:
        await asyncio.sleep(600)
        return {}

    async def main() -> None:
        batch = _Batch[str](work)
        adding = asyncio.create_task(batch.add("a", "a"))
        await asyncio.sleep(after)
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        assert adding in (await asyncio.wait([adding], timeout=SECONDS))[0]

    asyncio.run(main())


def test_a_snapshot(tmp_path: Path) -> None:
    """Facts equal those of the local transport; nodes that are not ready have a reason; no pod remains."""
    sources = ["cpuinfo", "os_release", "version", "mounts", "meminfo"]
    with fake_kube(tmp_path) as (cluster, config):
        found = rollbook.snapshot(NODES, sources=sources, **options(config))
        assert not cluster.pods
        until(lambda: not cluster.executing)
    local = rollbook.snapshot(sources=sources).hosts[0]
    for host in found.hosts:
        if host.name in READY:
            assert (host.status, host.reason, host.method) == ("complete", "", "kube")
            for name in ("cpuinfo", "os_release", "version"):
                assert host.facts[name] == local.facts[name]
            assert lasting_mounts(host.facts["mounts"]) == lasting_mounts(local.facts["mounts"])
        else:
            assert host.status == "unreachable"
            assert host.reason.startswith("the node is not ready: ")


def test_pod_specification(tmp_path: Path) -> None:
    """The pod shares the node's namespaces, mounts its root, has a deadline, and follows the options."""
    with fake_kube(tmp_path) as (cluster, config):
        first, second = options(config), options(config)
        first["kube_deadline"], first["kube_image"] = 77, "registry/busybox:1"
        second["kube_privileged"], second["kube_namespace"] = True, "tools"
        second["kube_tolerations"] = ["gpu=yes:NoSchedule", "spot"]
        rollbook.execute("true", NODES[0], **first)
        rollbook.execute("true", NODES[0], **second)
    plain, privileged = cluster.created
    spec = plain["spec"]
    assert plain["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "rollbook"
    assert (spec["nodeName"], spec["activeDeadlineSeconds"], spec["restartPolicy"]) == (NODES[0], 77, "Never")
    assert spec["hostPID"] is spec["hostNetwork"] is spec["hostIPC"] is True
    assert spec["automountServiceAccountToken"] is False
    assert spec["tolerations"] == [{"operator": "Exists"}]
    (container,) = spec["containers"]
    assert container["image"] == "registry/busybox:1"
    assert container["securityContext"]["privileged"] is False
    assert spec["volumes"][0]["hostPath"]["path"] == "/"
    assert container["volumeMounts"][0]["readOnly"] is True
    assert privileged["metadata"]["namespace"] == "tools"
    assert privileged["spec"]["containers"][0]["securityContext"]["privileged"] is True
    assert privileged["spec"]["tolerations"] == [
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]


def test_commands_and_node_names(tmp_path: Path) -> None:
    """A node can be named by its address; output and exit status are returned; an unknown node is unreachable."""
    with fake_kube(tmp_path) as (cluster, config):
        address = next(one["address"] for one in cluster.nodes[1]["status"]["addresses"] if one["type"] == "InternalIP")
        done = rollbook.execute("seq 20000; exit 3", [NODES[0], address, "nosuch"], **options(config))
    text = "".join(f"{number}\n" for number in range(1, 20001))
    assert [(host.status, host.exit_status) for host in done.hosts] == [
        ("complete", 3),
        ("complete", 3),
        ("unreachable", None),
    ]
    assert done.hosts[0].stdout == done.hosts[1].stdout == text
    assert "no node called nosuch" in done.hosts[2].reason
    assert {pod["spec"]["nodeName"] for pod in cluster.created} == set(NODES[:2])


def test_nodes_by_label(tmp_path: Path) -> None:
    """Without -w, all nodes that the label selector matches are used."""
    with fake_kube(tmp_path) as (cluster, config):
        label = f"kubernetes.io/hostname={NODES[2]}"
        assert Kube(kubeconfig=str(config)).hosts() == NODES
        assert Kube(kubeconfig=str(config), kube_selector=label).hosts() == [NODES[2]]
        done = subprocess.run(
            command(config, "hosts", "--kube-selector", label), capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{NODES[2]}\n"
        with pytest.raises(UsageError, match="no node matches pool=none"):
            Kube(kubeconfig=str(config), kube_selector="pool=none").hosts()
        assert not cluster.created


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ({"pull_error": "no such image"}, "failed", "the pod does not start: ImagePullBackOff: no such image"),
        ({"forbidden": "violates PodSecurity"}, "refused", "the pod cannot be created: .*violates PodSecurity"),
        ({"unlisted": "not a viewer"}, "refused", "kubectl get: .*pods is forbidden: not a viewer; the account needs"),
        ({"slow": 1000}, "timed-out", "no answer within 3 s"),
    ],
    ids=["image", "forbidden", "unlisted", "slow"],
)
def test_pods_that_do_not_start(tmp_path: Path, fault: dict[str, str], status: str, reason: str) -> None:
    """The reason is the message of Kubernetes, and the pod is deleted."""
    with fake_kube(tmp_path, **fault) as (cluster, config):
        given = options(config)
        given["timeout"] = 3.0 if status == "timed-out" else 60.0
        done = rollbook.execute("true", NODES[:2], **given)
        until(lambda: not cluster.pods)
    for host in done.hosts:
        assert host.status == status
        assert re.match(reason, host.reason), host.reason
    assert done.exit_code == 4


def test_a_pod_created_while_pods_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod is searched only in lists that were requested after its creation."""
    pods, listing, answer = {"first"}, asyncio.Event(), asyncio.Event()

    async def call(_: Kube, arguments: list[str]) -> str:
        items = [{"metadata": {"name": name}, "status": {"phase": "Running"}} for name in pods]
        listing.set()
        await answer.wait()
        return json.dumps({"items": items}) if arguments[0] == "get" else ""

    async def main() -> None:
        state = _State(Kube())
        first = asyncio.create_task(state.running("first"))
        await listing.wait()
        pods.add("second")
        second = asyncio.create_task(state.running("second"))
        await asyncio.sleep(0.01)
        answer.set()
        await asyncio.gather(first, second)

    monkeypatch.setattr(Kube, "call", call)
    asyncio.run(main())


def test_a_pod_whose_creation_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubectl that hangs is ended, and the reason says so."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\nexec sleep 60\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(kube, "CALL_SECONDS", 0.2)
    with pytest.raises(NoHostReached, match="kubectl create did not end"):
        asyncio.run(Kube().call(["create", "-f", "-"], check=False))


def test_nodes_are_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is not ready, and a failed list, are not remembered for the whole recording."""
    ready, lists = False, 0

    async def call(_: Kube, arguments: list[str], *__: object, **___: object) -> str:
        nonlocal lists
        if arguments[1] != "nodes":
            return '{"items": []}'
        lists += 1
        if lists == 1:
            raise NoHostReached("kubectl get: refused")
        status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
        return json.dumps({"items": [{"metadata": {"name": "n1"}, "status": status}]})

    async def main() -> None:
        nonlocal ready
        state = _State(Kube())
        for _ in range(2):
            with pytest.raises(NoHostReached, match="refused"):
                await state.node("n1")
        assert lists == 1
        state._list_after = 0.0
        node = await state.node("n1")
        assert node is not None
        assert node.problem
        ready, state._list_after = True, 0.0
        node = await state.node("n1")
        assert node is not None
        assert not node.problem
        state._list_after = 0.0
        await state.node("n1")
        assert lists == 3

    monkeypatch.setattr(Kube, "call", call)
    asyncio.run(main())


def test_reasons_of_pods_with_similar_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod that cannot be created has its own message, although its name is a prefix of other names."""
    names = [f"rollbook-0123-{number}" for number in range(1, 13)]

    async def call(*_: object, **__: object) -> str:
        return "".join(f'Error: pods "{name}" is forbidden: quota of {name} exceeded\n' for name in names)

    monkeypatch.setattr(Kube, "call", call)
    errors = asyncio.run(_State(Kube())._create([{"metadata": {"name": name}} for name in names]))
    for name in names:
        assert str(errors[name]).endswith(f"quota of {name} exceeded")


def start_command(cluster: FakeKube, config: Path) -> subprocess.Popen[str]:
    """Start a command on the ready nodes, and wait for the first line from each."""
    argv = command(config, "exec", "-w", ",".join(READY), "--live", "--", "echo up; sleep 600")
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in READY:
        assert process.stdout.readline().endswith(": up\n")
    assert len(cluster.pods) == cluster.executing == len(READY)
    return process


def test_cancelled_while_the_pod_is_created(tmp_path: Path) -> None:
    """A pod that is created after the caller was cancelled is deleted."""

    async def start(cluster: FakeKube, config: Path) -> None:
        opening = asyncio.create_task(Kube(kubeconfig=str(config)).open(Host(NODES[0])))
        await asyncio.to_thread(until, lambda: cluster.creating)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    with fake_kube(tmp_path, slow_create=2) as (cluster, config):
        asyncio.run(start(cluster, config))
        assert cluster.created
        assert not cluster.pods


def test_killed_collector(tmp_path: Path) -> None:
    """After SIGKILL the agents end, and the next run deletes the pods, but no pods of other collectors."""
    with fake_kube(tmp_path) as (cluster, config):
        with start_command(cluster, config) as process:
            process.kill()
        until(lambda: not cluster.executing)
        assert len(cluster.pods) == len(READY)
        for name, collector in (("of-another-machine", "other-boot-id/1/1"), ("of-another-program", "")):
            labels, notes = {"app.kubernetes.io/managed-by": "rollbook"}, {"rollbook/collector": collector}
            cluster.pods[name] = {"metadata": {"name": name, "labels": labels, "annotations": notes}, "spec": {}}
        assert rollbook.execute("true", NODES[0], **options(config)).exit_code == 0
        assert set(cluster.pods) == {"of-another-machine", "of-another-program"}


def test_failing_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without kubectl, with a wrong context or without a server, the error has one line with the cause."""
    with fake_kube(tmp_path) as (_, config):
        with pytest.raises(UsageError, match=r"kubectl get: .*context.*; set --kube-context"):
            Kube(kubeconfig=str(config), kube_context="nosuch").hosts()
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(UsageError, match="cannot run kubectl: No such file or directory; --via kube needs kubectl"):
            Kube(kubeconfig=str(config)).hosts()
        monkeypatch.undo()
    with pytest.raises(NoHostReached, match=r"refused.*check --kube-context"):
        Kube(kubeconfig=str(config)).hosts()
    done = subprocess.run(command(config, "snapshot", "-w", NODES[0]), capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "check --kube-context, --kubeconfig and the network" in done.stderr
    assert "Traceback" not in done.stderr
