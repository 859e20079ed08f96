"""Values that NVIDIA's tools report."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator

from rollbook.bundle.evidence import BundleData, Text, node_finding
from rollbook.records.findings import Finding

__all__ = ["fabric_manager_down", "memory_worn", "missing", "repair_pending", "throttled"]

REASONS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of the clock event reasons that mean heat or power; the others are normal."""


def repair_pending(run: BundleData) -> Iterator[Finding]:
    """GPUs with a row remap or page retirement that waits for a reset."""
    yield from _marked(run, "gpu-memory", "remapped_rows.pending", "a row repair is pending")
    yield from _marked(run, "gpu", "retired_pages.pending", "a page retirement is pending")


def memory_worn(run: BundleData) -> Iterator[Finding]:
    """GPUs on which a row could not be remapped."""
    yield from _marked(run, "gpu-memory", "remapped_rows.failure", "row replacement failed")


def _marked(run: BundleData, item: str, column: str, message: str) -> Iterator[Finding]:
    for text, number, row in _rows(run, item, column):
        if row[column].lower() in ("1", "yes"):
            yield _finding(text, number, row, message)


def throttled(run: BundleData) -> Iterator[Finding]:
    """GPUs whose clocks are lowered by heat or a lack of power at the moment of the report."""
    for text, number, row in _rows(run, "gpu", "clocks_throttle_reasons.active", "clocks_event_reasons.active"):
        bits = row.get("clocks_throttle_reasons.active") or row.get("clocks_event_reasons.active", "")
        if not re.fullmatch(r"0x[0-9a-fA-F]+", bits):
            continue
        reasons = [name for bit, name in REASONS.items() if int(bits, 16) & bit]
        if reasons:
            yield _finding(text, number, row, f"clocks lowered: {', '.join(reasons)}")


def missing(run: BundleData) -> Iterator[Finding]:
    """Nodes on which nvidia-smi failed, or lists fewer GPUs than are on the PCI bus or than the majority has."""
    listed: dict[str, tuple[int, Text]] = {}
    for text in run.texts("gpu", "nvidia-smi"):
        if text.file.exit_status:
            number, reason = text.first_line()
            message = f"nvidia-smi failed with exit status {text.file.exit_status}: {reason}"
            yield node_finding(text.node, message, lines=text.quote(number))
    for text in run.texts("gpu", "nvidia-smi -L"):
        if not text.file.exit_status:
            listed[text.node] = (sum(line.startswith("GPU ") for _, line in text.lines()), text)
    on_bus = {
        text.node: sum(bool(re.search(r" 0x030[02]00 ?$", line)) for _, line in text.lines())
        for text in run.texts("gpu-driver", "*0x10de*")
    }
    for node, (count, text) in listed.items():
        peers = Counter(listed[peer][0] for peer in run.peers_of(node) if peer in listed)
        usual, nodes = peers.most_common(1)[0] if peers else (0, 0)
        expected = max(on_bus.get(node, 0), usual if nodes > 1 and nodes * 2 > peers.total() else 0)
        if count < expected:
            yield node_finding(node, f"{count} GPUs instead of {expected}", lines=text.quote(1))


def fabric_manager_down(run: BundleData) -> Iterator[Finding]:
    """Nodes with NVSwitches whose fabric manager is not active."""
    switches = {text.node for text in run.texts("gpu-driver", "/proc/driver/nvidia-nvswitch/*")}
    for text in run.texts("gpu-services", "systemctl status*"):
        if text.node not in switches:
            continue
        unit = ""
        for number, line in text.lines():
            if found := re.match(r"\S? ?(nvidia-fabricmanager\.service)|\S? ?(\S+\.service)", line):
                unit = found[1] or ""
            state = re.match(r" +Active: (\w+)", line)
            if unit and state and state[1] not in ("active", "activating", "reloading"):
                yield node_finding(text.node, f"{unit} is {state[1]}", device=unit, lines=text.quote(number))


def _rows(run: BundleData, item: str, *columns: str) -> Iterator[tuple[Text, int, dict[str, str]]]:
    """Rows of the CSV queries of nvidia-smi that have one of the columns, with their line numbers."""
    for text in run.texts(item, "nvidia-smi --query*"):
        reader = csv.reader(io.StringIO(text.text), skipinitialspace=True)
        try:
            # A heading may have its unit: `power.draw [W]`.
            names = [name.partition(" [")[0].strip() for name in next(reader, [])]
            if not set(columns) & set(names):
                continue
            for row in filter(None, reader):
                if len(row) < len(names):  # a message in place of a GPU
                    run.unreadable[text.file.path] = f"{text.file.path}: line {reader.line_num} is not a row"
                    continue
                yield text, reader.line_num, dict(zip(names, map(str.strip, row), strict=False))
        except csv.Error as error:
            run.unreadable[text.file.path] = f"{text.file.path}: line {reader.line_num}: {error}"


def _finding(text: Text, number: int, row: dict[str, str], message: str) -> Finding:
    device = row.get("gpu_bus_id") or row.get("pci.bus_id") or row.get("index") or row.get("gpu_uuid", "")
    return node_finding(text.node, f"GPU {device}: {message}", device=device, lines=text.quote(number))
