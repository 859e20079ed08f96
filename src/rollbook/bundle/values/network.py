"""Ports and counters of network cards, EFA, clocks."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping

from rollbook.bundle.evidence import BundleData, Text, node_finding
from rollbook.records.findings import Finding

__all__ = ["allowance_exceeded", "clock_offset", "efa_missing", "efa_trouble", "link_errors", "ports_down"]

LINK_ERRORS = frozenset({"symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors"})
EFA_ERRORS = frozenset(
    {"retrans_timeout_events", "impaired_remote_conn_events", "unresponsive_remote_events", "rx_drops"}
)
COUNTER = re.compile(r"/sys/class/infiniband/([^/]+)/(?:ports/(\d+)/)?(?:hw_)?counters/(\w+)$")
LEAST = 100  # events since boot that are more than those of a cable being plugged in
WARN, FAIL, SPREAD = 0.1, 1.0, 0.05  # seconds


def ports_down(run: BundleData) -> Iterator[Finding]:
    """InfiniBand ports that are not active; Ethernet ports without a link only if the peers have one."""
    ports: dict[tuple[str, str], dict[str, Text]] = {}
    for text in run.texts("rdma-ports", "/sys/class/infiniband/*"):
        found = re.search(r"/infiniband/([^/]+)/ports/(\d+)/(state|phys_state|link_layer)$", text.source)
        if found:
            ports.setdefault((text.node, f"{found[1]} port {found[2]}"), {})[found[3]] = text
    active = {key: "ACTIVE" in files["state"].text for key, files in ports.items() if "state" in files}
    for (node, port), files in ports.items():
        if active.get((node, port), True):
            continue
        peers = [active[peer, port] for peer in run.peers_of(node) if (peer, port) in active]
        if peers and sum(peers) * 2 <= len(peers):  # an unused port: not cabled on the peers either
            continue
        states = [files[name].text.partition(":")[2].strip() for name in ("state", "phys_state") if name in files]
        if not peers and "Disabled" in states:
            continue
        lines = [line for name in ("state", "phys_state") if name in files for line in files[name].quote(1)]
        yield node_finding(node, f"{port} is {', '.join(states)}", device=port, lines=lines)


def link_errors(run: BundleData) -> Iterator[Finding]:
    """Counters of link errors, compared with the same port of the peers."""
    yield from _counters(run, LINK_ERRORS)


def efa_trouble(run: BundleData) -> Iterator[Finding]:
    """Counters of EFA's timeouts and drops, compared with the peers."""
    yield from _counters(run, EFA_ERRORS)


def _counters(run: BundleData, names: frozenset[str]) -> Iterator[Finding]:
    values: dict[str, dict[str, tuple[int, Text, int]]] = {}
    for text in run.texts("rdma-counters", "/sys/class/infiniband/*"):
        found = COUNTER.search(text.source)
        if found and found[3] in names and text.text.strip().isdigit():
            port = f"{found[1]} port {found[2]}" if found[2] else found[1]
            values.setdefault(f"{port}: {found[3]}", {})[text.node] = (int(text.text), text, 1)
    yield from _above_peers(run, values)


def allowance_exceeded(run: BundleData) -> Iterator[Finding]:
    """ENA's counters of exceeded instance limits."""
    values: dict[str, dict[str, tuple[int, Text, int]]] = {}
    for text in run.texts("network-counters", "ethtool -S *"):
        card = text.source.split()[-1]
        for number, line in text.lines():
            found = re.match(r" *(\w+_allowance_exceeded): (\d+)$", line)
            if found:
                values.setdefault(f"{card}: {found[1]}", {})[text.node] = (int(found[2]), text, number)
    yield from _above_peers(run, values)


def _above_peers(run: BundleData, values: Mapping[str, Mapping[str, tuple[int, Text, int]]]) -> Iterator[Finding]:
    for name, nodes in values.items():
        counts = {node: float(count) for node, (count, _, _) in nodes.items()}
        for node, (count, text, number) in nodes.items():
            median = run.peer_median(node, counts)
            if count >= LEAST and count > 5 * (median or 0.0):
                beside = "" if median is None else f", median of its peers {median:g}"
                message = f"{name} {count} since boot{beside}"
                yield node_finding(node, message, device=name.partition(":")[0], lines=text.quote(number), count=count)


def efa_missing(run: BundleData) -> Iterator[Finding]:
    """Nodes with EFA's software on which the provider finds no device."""
    for text in run.texts("efa", "fi_info -p efa"):
        if text.file.exit_status == 127 or "provider: efa" in text.text:
            continue
        number, reason = text.first_line()
        message = f"libfabric has no provider efa: {reason or 'fi_info lists none'}"
        yield node_finding(text.node, message, device="efa", lines=text.quote(number))


def clock_offset(run: BundleData) -> Iterator[Finding]:
    """Offsets that chrony reports, and nodes whose offset is far from that of the others."""
    offsets: dict[str, tuple[float, Text, int]] = {}
    for text in run.texts("time", "chronyc *tracking"):
        for number, line in text.lines():
            found = re.match(r"System time +: ([\d.]+) seconds (fast|slow) of NTP time", line)
            if found:
                offsets[text.node] = (float(found[1]) * (1 if found[2] == "fast" else -1), text, number)
            if re.match(r"Leap status +: Not synchronised", line):
                yield node_finding(text.node, "the clock is not synchronised", lines=text.quote(number))
    middle = statistics.median(offset for offset, _, _ in offsets.values()) if len(offsets) > 2 else 0.0
    for node, (offset, text, number) in offsets.items():
        side = "ahead of" if offset > 0 else "behind"
        if abs(offset) > WARN:
            severity = "fail" if abs(offset) > FAIL else "warn"
            message = f"the clock is {abs(offset):g} s {side} its time server"
            yield node_finding(node, message, severity=severity, lines=text.quote(number))  # type: ignore[arg-type]
        elif len(offsets) > 2 and abs(offset - middle) > SPREAD:
            distance = abs(offset - middle)
            message = f"the clock is {abs(offset):g} s {side} its time server, {distance:g} s from the other nodes"
            yield node_finding(node, message, lines=text.quote(number))
