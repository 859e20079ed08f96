"""Hosts with the same cause of failure are grouped although messages contain their names."""

from __future__ import annotations

from rollbook.records.causes import group_by_cause, group_by_status
from rollbook.records.hosts import HostResult

REFUSED = "connection refused; is sshd running? [ssh: connect to host {0} port 22: Connection refused]"


def test_messages_that_differ_in_the_host_name() -> None:
    """Messages that differ only in the host's name are one cause, which then names no host."""
    reasons = [(name, REFUSED.format(name)) for name in ("node01", "node02", "node10")]
    assert group_by_cause(reasons) == [(REFUSED.format("HOST"), ["node01", "node02", "node10"])]


def test_one_host_keeps_its_message() -> None:
    """A single host's message stays as it is; other causes are separate."""
    reasons = [("a", REFUSED.format("a")), ("b", "the host key changed"), ("c", "the host key changed")]
    assert group_by_cause(reasons) == [(REFUSED.format("a"), ["a"]), ("the host key changed", ["b", "c"])]


def test_messages_that_differ_in_addresses_and_numbers() -> None:
    """Addresses, users and numbers do not make another cause; a name inside a longer word is not the host."""
    closed = "Connection closed by {0} port {1}"
    reasons = [("ann@n1", closed.format("10.0.0.1", 40001)), ("n2", closed.format("10.0.0.2", 40002))]
    assert group_by_cause(reasons) == [("Connection closed by ADDRESS port 40001", ["ann@n1", "n2"])]
    text = "node1-ib0: no route"
    assert group_by_cause([("node1", text), ("node2", "node2-ib0: no route")]) == [
        (text, ["node1"]),
        ("node2-ib0: no route", ["node2"]),
    ]
    for first, second in (("12.5 s without samples", "13.1 s without samples"), ("fe80:0:0:1 gone", "fe80:0:0:2 gone")):
        assert len(group_by_cause([("a", first), ("b", second)])) == 1


def test_hosts_with_the_same_reason_and_another_status() -> None:
    """Statuses are kept apart, in the order of their first host."""
    hosts = [
        HostResult(name="a", status="refused", reason="no route"),
        HostResult(name="b", status="partial", reason="no route"),
        HostResult(name="c", status="refused", reason="no route"),
    ]
    assert list(group_by_status(hosts)) == [("refused", "no route", ["a", "c"]), ("partial", "no route", ["b"])]
