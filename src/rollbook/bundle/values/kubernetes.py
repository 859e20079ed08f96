"""Nodes, pods and events of Kubernetes, as `kubectl get -o json` prints them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import msgspec

from rollbook.bundle.evidence import BundleData, Text, node_finding
from rollbook.records.findings import EvidenceLine, Finding

__all__ = ["not_ready", "pods_failing", "pressure", "ready_unknown"]

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
WAITING = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
EVENTS = frozenset({"FailedMount", "FailedAttachVolume", "FailedScheduling", "FailedCreatePodSandBox", "Evicted"})
NODES, PODS, EVENT_LIST = "*get*nodes*json*", "*get*pods*json*", "*get*events*json*"


def not_ready(run: BundleData) -> Iterator[Finding]:
    """Nodes whose condition Ready is False."""
    yield from _conditions(run, {"Ready": "False"}, "the node is not ready")


def ready_unknown(run: BundleData) -> Iterator[Finding]:
    """Nodes whose condition Ready is Unknown."""
    yield from _conditions(run, {"Ready": "Unknown"}, "no status from the kubelet")


def pressure(run: BundleData) -> Iterator[Finding]:
    """Nodes with a condition of pressure."""
    for name in PRESSURES:
        yield from _conditions(run, {name: "True"}, name)


def _conditions(run: BundleData, wanted: dict[str, str], what: str) -> Iterator[Finding]:
    for text, node in _objects(run, NODES):
        for condition in _list(node.get("status"), "conditions"):
            name = str(condition.get("type"))
            if wanted.get(name) == condition.get("status"):
                reason = str(condition.get("message") or condition.get("reason") or "")
                at = _time(condition.get("lastTransitionTime"))
                yield node_finding(_name(node), f"{what}: {reason}", device=name, lines=_quote(text, reason), at=at)


def pods_failing(run: BundleData) -> Iterator[Finding]:
    """Containers that cannot start or were killed, and events of pods that cannot be placed or mounted."""
    for text, pod in _objects(run, PODS):
        where, node = f"{_namespace(pod)}/{_name(pod)}", str(_dict(pod.get("spec")).get("nodeName") or "")
        status = _dict(pod.get("status"))
        for container in [*_list(status, "initContainerStatuses"), *_list(status, "containerStatuses")]:
            states = [_dict(container.get("state")), _dict(container.get("lastState"))]
            waiting = str(_dict(states[0].get("waiting")).get("reason") or "")
            ended = [str(_dict(state.get("terminated")).get("reason") or "") for state in states]
            reason = "OOMKilled" if "OOMKilled" in ended else waiting if waiting in WAITING else ""
            if reason:
                ended_at = [_time(_dict(state.get("terminated")).get("finishedAt")) for state in states]
                at = next((time for time in ended_at if time), None)
                yield node_finding(node, f"pod {where}: {reason}", device=where, lines=_quote(text, reason), at=at)
    for text, event in _objects(run, EVENT_LIST):
        reason, about = str(event.get("reason")), _dict(event.get("involvedObject"))
        if reason not in EVENTS or event.get("type") == "Normal":
            continue
        message, count = str(event.get("message") or ""), event.get("count")
        where = f"{about.get('namespace')}/{about.get('name')}"
        times = int(count) if isinstance(count, int) and count > 0 else 1
        at = _time(event.get("lastTimestamp") or event.get("eventTime"))
        host = str(_dict(event.get("source")).get("host") or "")
        text_of_event = f"pod {where}: {reason}: {message[:160]}"
        yield node_finding(host, text_of_event, device=where, lines=_quote(text, message), count=times, at=at)


def _objects(run: BundleData, source: str) -> Iterator[tuple[Text, dict[str, Any]]]:
    """The objects of a list; raises `NotApplicable` or `CannotTell` without one."""
    found = list(run.cluster_texts(source))
    if not found:
        run.require_cluster("kubernetes")
    for text in found:
        try:
            document = msgspec.json.decode(text.text)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            run.unreadable[text.file.path] = f"{text.file.path} is not valid JSON"
            continue
        for one in _list(document, "items"):
            yield text, one


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any, key: str) -> list[dict[str, Any]]:
    found = _dict(value).get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _name(thing: dict[str, Any]) -> str:
    return str(_dict(thing.get("metadata")).get("name") or "")


def _namespace(thing: dict[str, Any]) -> str:
    return str(_dict(thing.get("metadata")).get("namespace") or "default")


def _time(value: Any) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(str(value)).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None


def _quote(text: Text, content: str) -> tuple[EvidenceLine, ...]:
    """The first line with this text."""
    wanted = msgspec.json.encode(content).decode()[1:-1][:60]
    number = next((number for number, line in text.lines() if wanted and wanted in line), 1)
    return text.quote(number)
