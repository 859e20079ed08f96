"""Hosts with the same cause of failure together, although messages such as those of ssh contain the host's own name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rollbook.records.hosts import HasStatus

__all__ = ["group_by_cause", "group_by_status"]

ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{1,4}:){2,7}[0-9a-f]{0,4}\b")
NUMBER = re.compile(r"\b\d+(?:\.\d+)?\b")


def group_by_status(hosts: Iterable[HasStatus]) -> Iterator[tuple[str, str, list[str]]]:
    """Status, reason and names of hosts that have the same status for the same cause; see `group_by_cause`."""
    statuses: dict[str, list[tuple[str, str]]] = {}
    for host in hosts:
        statuses.setdefault(host.status, []).append((host.name, host.reason))
    for status, reasons in statuses.items():
        for reason, names in group_by_cause(reasons):
            yield status, reason, names


def group_by_cause(reasons: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Reasons with their hosts, from pairs of host and reason.

    Reasons that differ only in the host's name, in addresses or in numbers are one cause. If several hosts share it,
    the reason names none of them: `HOST` and `ADDRESS` stand for what differs; numbers are those of the first host.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for host, reason in reasons:
        found.setdefault(NUMBER.sub("0", _without_names(host, reason)), []).append((host, reason))
    return [(_shared(members), [host for host, _ in members]) for members in found.values()]


def _shared(members: list[tuple[str, str]]) -> str:
    texts = {reason for _, reason in members}
    return texts.pop() if len(texts) == 1 else _without_names(*members[0])


def _without_names(host: str, reason: str) -> str:
    name = re.escape(host.rpartition("@")[2])
    return ADDRESS.sub("ADDRESS", re.sub(rf"(?<![\w.-]){name}(?![\w-]|\.\w)", "HOST", reason))
