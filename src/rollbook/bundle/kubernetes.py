"""Kubernetes, read once with `kubectl` on the collector's machine.

Every call names the context that was verified first. Values of secrets and config maps are not fetched: the server
sends tables with their names. Literal values of environment variables, secret arguments and annotations that repeat a
whole object are masked, in text and in JSON.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from rollbook.agent.redactor import Redactor
from rollbook.agent.secret_names import is_secret_name
from rollbook.bundle.cluster import ClusterPart, Output, Query
from rollbook.bundle.summary import ItemResult, Window
from rollbook.protocol.redaction import mask_command_line
from rollbook.records.document import encode
from rollbook.records.reading import UNDECODABLE
from rollbook.times import iso_time

__all__ = ["ITEM", "VERIFY_SECONDS", "Kubectl", "collect"]

ITEM = "kubernetes"
"""The item that stands for all if kubectl cannot be used."""
LOGS = "kubernetes-logs"
SECONDS = 600.0
"""The time for all calls of kubectl together."""
VERIFY_SECONDS = 20.0
REQUEST_SECONDS = 60
MAX_LOGS = 40
LOG_LINES = 10_000
LOG_BYTES = 2 << 20
# Item, what kubectl calls the kind, and how it is read. `-A`: of all namespaces.
KINDS = (
    ("nodes", "nodes", ("describe", "wide", "json")),
    ("pods", "pods -A", ("wide", "describe", "json")),
    ("events", "events -A", ("sorted", "json")),
    ("persistent-volume-claims", "pvc -A", ("wide", "describe", "json")),
    ("services", "svc -A", ("wide", "describe", "json")),
    ("deployments", "deployments -A", ("wide", "json")),
    ("stateful-sets", "statefulsets -A", ("wide", "json")),
    ("daemon-sets", "daemonsets -A", ("wide", "json")),
    ("config-maps", "configmaps -A", ("names", "names-json")),
    ("secrets", "secrets -A", ("names", "names-json")),
    ("resource-quotas", "resourcequota -A", ("names", "json")),
    ("network-policies", "networkpolicies -A", ("names", "json")),
    ("namespaces", "namespaces", ("json",)),
    ("persistent-volumes", "persistentvolumes", ("json",)),
    ("storage-classes", "storageclasses", ("json",)),
    ("jobs", "jobs -A", ("json",)),
)
# Names of variables whose values are kept: settings of communication libraries.
KEPT_VARIABLES = ("NCCL_", "FI_", "OMP_", "UCX_", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
# Annotations that repeat the object with all its values.
WHOLE_OBJECT = ("last-applied-configuration", "objectset.rio.cattle.io/applied")
# Reasons of containers that wait after they ran; those whose image is missing have no log.
FAILING = {"CrashLoopBackOff", "Error", "RunContainerError"}
Failing = tuple[str, str, str, bool]
"""Namespace, pod and name of a failing container, and whether an earlier one has ended."""


@dataclasses.dataclass(frozen=True)
class Kubectl:
    """How kubectl is called. Without `context` the current one is used; `cluster` is the one that it must belong to."""

    context: str = ""
    kubeconfig: str = ""
    cluster: str = ""
    """Name or ARN of the EKS cluster; empty if it is not known. Compared if the configuration has an ARN, too."""
    program: str = "kubectl"

    def current(self, *words: str) -> tuple[str, ...]:
        """A command line for the current context."""
        return self.program, *([f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []), *words

    def argv(self, *words: str) -> tuple[str, ...]:
        """A command line that names the context."""
        return self.current(f"--context={self.context}", f"--request-timeout={REQUEST_SECONDS}s", *words)


async def collect(part: ClusterPart, kubectl: Kubectl, window: Window) -> list[ItemResult]:
    """Read the cluster; what cannot be read is an item with the reason.

    Raises `RecordError` and `OSError` if files cannot be written.
    """
    kubectl, tried = await _verified(part, kubectl)
    if tried.reason:
        return [unusable(kubectl, tried)]
    results = await part.run(list(_queries(kubectl)))
    pods = [file.path for item in results for file in item.files if file.path.endswith("/pods.json")]
    try:
        failing = list(failing_containers((part.bundle / pods[0]).read_bytes())) if pods else []
    except ValueError as error:
        results.append(ItemResult(id=LOGS, status="failed", reason=f"the list of pods cannot be read: {error}"))
        return results
    logs = await part.run(list(_log_queries(kubectl, failing[:MAX_LOGS], window)))
    return [*results, *(_with_missing(item, len(failing)) for item in logs)]


def unusable(kubectl: Kubectl, tried: Output) -> ItemResult:
    """The item that stands for all, with the reason; a cluster that is known to use Kubernetes cannot lack it."""
    status = "failed" if kubectl.cluster and tried.status == "absent" else tried.status
    return ItemResult(id=ITEM, status=status, reason=tried.reason)


def _with_missing(logs: ItemResult, failing: int) -> ItemResult:
    """The item of logs, truncated if more containers fail than logs are read."""
    if failing <= MAX_LOGS:
        return logs
    reason = "; ".join(filter(None, [logs.reason, f"logs of {MAX_LOGS} of {failing} failing containers"]))
    return msgspec.structs.replace(
        logs, status="truncated" if logs.status == "complete" else logs.status, reason=reason
    )


async def _verified(part: ClusterPart, kubectl: Kubectl) -> tuple[Kubectl, Output]:
    """With the context filled in, and whether it can be used; if not, the reason is not empty."""
    if not kubectl.context:
        found = await part.output(kubectl.current("config", "current-context"), VERIFY_SECONDS)
        if found.reason:
            return kubectl, found
        kubectl = dataclasses.replace(kubectl, context=found.data.decode("utf-8", "replace").strip())
    view = await part.output(kubectl.argv("config", "view", "--minify", "-o", "json"), VERIFY_SECONDS)
    if view.reason:
        return kubectl, view
    try:
        contexts = msgspec.json.decode(view.data)["contexts"]
        actual = str(contexts[0]["context"]["cluster"])
    except (*UNDECODABLE, LookupError, TypeError):
        return kubectl, Output(b"", "failed", f"kubectl has no context {kubectl.context}")
    wanted = kubectl.cluster
    if wanted and actual.startswith("arn:") and actual.rpartition("/")[2] != wanted.rpartition("/")[2]:
        reason = f"context {kubectl.context} is for cluster {actual}, not for {wanted}; name another context"
        return kubectl, Output(b"", "failed", reason)
    return kubectl, await part.output(kubectl.argv("get", "--raw", "/version"), VERIFY_SECONDS)


def _queries(kubectl: Kubectl) -> Iterator[Query]:
    for name, words, forms in KINDS:
        kind, item = words.split(), f"kubernetes-{name}"
        for form in forms:
            if form == "describe":
                yield Query(item, "describe.txt", kubectl.argv("describe", *kind), change=mask_description)
            elif form == "json":
                yield Query(item, f"{name}.json", kubectl.argv("get", *kind, "-o", "json"), change=mask_json)
            elif form == "names-json":
                yield Query(item, f"{name}.json", kubectl.argv("get", *kind), change=names_json)
            elif form == "sorted":
                yield Query(item, f"{name}.txt", kubectl.argv("get", *kind, "--sort-by=.lastTimestamp"))
            else:
                wide = ("-o", "wide") if form == "wide" else ()
                yield Query(item, f"{name}.txt", kubectl.argv("get", *kind, *wide))


def _log_queries(kubectl: Kubectl, failing: Iterable[Failing], window: Window) -> Iterator[Query]:
    """Logs of containers that fail or failed before, the current and the previous one."""
    since = (f"--since-time={iso_time(window.since.astimezone(dt.UTC))}",) if window.since else ()
    limits = (f"--tail={LOG_LINES}", f"--limit-bytes={LOG_BYTES}", "--timestamps")
    for namespace, pod, container, has_ended in failing:
        name = f"{namespace}_{pod}_{container}"
        words = kubectl.argv("logs", "-n", namespace, pod, "-c", container, *limits)
        yield Query(LOGS, f"{name}.log", (*words, *since), limit=LOG_BYTES)
        if has_ended:
            yield Query(LOGS, f"{name}.previous.log", (*words, "--previous"), limit=LOG_BYTES)


def failing_containers(pods: bytes) -> Iterator[Failing]:
    """Namespace, pod and container of each container that fails, and whether an earlier one has ended.

    Raises `ValueError` if this is not a list of pods.
    """
    try:
        for pod in msgspec.json.decode(pods)["items"]:
            where = pod["metadata"]
            status = pod.get("status") or {}
            for one in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
                state, last = one.get("state") or {}, (one.get("lastState") or {}).get("terminated")
                waiting = (state.get("waiting") or {}).get("reason")
                ended = state.get("terminated") or {}
                if waiting in FAILING or ended.get("exitCode") or last or status.get("phase") == "Failed":
                    yield where["namespace"], where["name"], one["name"], bool(last)
    except (*UNDECODABLE, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def mask_json(data: bytes, redactor: Redactor) -> bytes:
    """A list of objects without literal values of variables, secret arguments, and copies of the object.

    Raises `ValueError` if it is not valid JSON.
    """
    try:
        document = msgspec.json.decode(data)
    except UNDECODABLE as error:
        raise ValueError(f"not valid JSON: {error}") from error
    return encode(_masked(document, redactor))


def names_json(data: bytes, _redactor: Redactor) -> bytes:
    """A table of `kubectl get` as JSON, a dictionary for each row."""
    lines = data.decode("utf-8", "replace").splitlines()
    columns = lines[0].lower().split() if lines else []
    rows = [dict(zip(columns, line.split(), strict=False)) for line in lines[1:]]
    return encode({"items": rows})


def _masked(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, list):
        return [_masked(each, redactor) for each in value]
    if not isinstance(value, dict):
        return value
    if str(value.get("kind")).removesuffix("List") in {"Secret", "ConfigMap"} or "stringData" in value:
        value = {key: each for key, each in value.items() if key not in {"data", "stringData", "binaryData"}}
    found: dict[str, Any] = {}
    for key, each in value.items():
        if key == "managedFields":
            continue
        if key == "env" and isinstance(each, list):
            found[key] = [_masked_variable(one, redactor) for one in each]
        elif key in {"args", "command"} and isinstance(each, list) and all(isinstance(one, str) for one in each):
            found[key] = mask_command_line(each)
        elif key == "annotations" and isinstance(each, dict):
            found[key] = {
                name: _mark(redactor, str(one)) if name.endswith(WHOLE_OBJECT) else str(one)
                for name, one in each.items()
            }
        else:
            found[key] = _masked(each, redactor)
    return found


def _masked_variable(variable: Any, redactor: Redactor) -> Any:
    if not isinstance(variable, dict) or not variable.get("value"):
        return variable
    if _is_kept(str(variable.get("name"))):
        return variable
    return {**variable, "value": _mark(redactor, str(variable["value"]))}


def _is_kept(name: str) -> bool:
    return name.startswith(KEPT_VARIABLES) and not is_secret_name(name)


def _mark(redactor: Redactor, value: str) -> str:
    return redactor.mark("kubernetes", value.encode()).decode()


# Sections of `kubectl describe` whose lines hold values, and the lines that only refer to them.
SECTION = re.compile(r"^( +)(Environment|Args|Command|Annotations):[ \t]*(.*)$")
VARIABLE = re.compile(r"^( +)([^\s:]+):([ \t]*)(.*)$")
REFERS = ("<set to the key", "<none>", "(v1:", "<Unknown>", "<error")


def mask_description(data: bytes, redactor: Redactor) -> bytes:
    """What `kubectl describe` prints, without literal values of variables and secret arguments."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    index = 0
    while index < len(lines):
        header = SECTION.match(lines[index])
        index += 1
        if not header:
            if any(f"{name}:" in lines[index - 1] for name in WHOLE_OBJECT):
                lines[index - 1] = re.sub(
                    r"(: *).*", lambda found: found[1] + _mark(redactor, found[0]), lines[index - 1]
                )
            continue
        end = index
        while end < len(lines) and lines[end].startswith(header[1] + " "):
            end += 1
        if header[2] == "Environment":
            lines[index:end] = [_masked_line(line, redactor) for line in lines[index:end]]
        elif header[2] in {"Args", "Command"}:
            lines[index:end] = _masked_arguments(lines[index:end])
        index = end
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _masked_line(line: str, redactor: Redactor) -> str:
    """A variable; a line without a name continues the value above it."""
    found = VARIABLE.match(line)
    if not found or len(found[1]) > 12:  # names are indented by six, values are aligned further right
        return re.sub(r"\S.*", lambda value: _mark(redactor, value[0]), line)
    if not found[4] or found[4].startswith(REFERS) or _is_kept(found[2]):
        return line
    return f"{found[1]}{found[2]}:{found[3]}{_mark(redactor, found[4])}"


def _masked_arguments(lines: list[str]) -> list[str]:
    """One argument per line, each with its indent."""
    texts = [line.strip() for line in lines]
    masked = mask_command_line(texts)
    return [line.replace(text, each) if text else line for line, text, each in zip(lines, texts, masked, strict=True)]
