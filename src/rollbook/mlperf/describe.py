"""The description of the system under test, drafted from a record.

The fields and their order are data (`system.toml`). Each value has an origin: measured on the hosts, inferred from what
was measured, kept from an existing file, or to be filled in by a person.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from rollbook.adapters.results import rows
from rollbook.checks.mlperf_values import cluster_of
from rollbook.checks.run_data import RunData
from rollbook.mlperf.node import STACKED, Entry, Roles, collected_node, deployment_of, node_of
from rollbook.mlperf.yaml_text import yaml_text
from rollbook.records.locate import locate_record
from rollbook.sources.mountinfo import MountInfo
from rollbook.sources.net_class import Interface
from rollbook.sources.space import Space
from rollbook.tables.quoting import parquet
from rollbook.version import __version__

__all__ = ["Tree", "draft", "merge_existing", "roles_of", "text_of", "to_do"]

Tree = Any
"""Nested dicts and lists with `Entry` leaves."""

HEADING = """Written by rollbook {version} from {record}.
measured: read on the hosts. inferred: follows from what was read, check it. kept: from the existing file.
ask: a person must fill it in."""
TIB = 1024**4
# Client software by file system: its licence, and whether the operating system includes it.
CLIENTS = {
    "nfs": ("open_source", "in_box"),
    "nfs4": ("open_source", "in_box"),
    "cifs": ("open_source", "in_box"),
    "ceph": ("open_source", "in_box"),
    "lustre": ("open_source", "installable"),
    "beegfs": ("open_source", "installable"),
    "gpfs": ("closed_source", "installable"),
    "wekafs": ("closed_source", "installable"),
    "panfs": ("closed_source", "installable"),
}
# The largest share of each interface in the traffic of a host. Interfaces that stand for others would count it twice.
SHARES = """
SELECT interface_name, max(share) FROM (
    SELECT interface_name, moved / nullif(sum(moved) OVER (PARTITION BY host), 0) AS share FROM (
        SELECT host, interface_name, max(rx_bytes + tx_bytes) - min(rx_bytes + tx_bytes) AS moved
        FROM {table} WHERE interface_name != 'lo' AND NOT list_contains($without::VARCHAR[][], [host, interface_name])
        GROUP BY ALL
    )
) GROUP BY ALL HAVING max(share) IS NOT NULL
"""
DATA_SHARE = 0.1  # of a host's traffic: an interface with less did not carry the data


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One field of the description."""

    path: str
    ask: str
    one_of: list[str] = []
    only: str = ""
    optional: bool = False

    @property
    def question(self) -> Entry:
        """The entry for a value that is unknown."""
        return Entry(None, "ask", self.ask + (f" ({', '.join(self.one_of)})" if self.one_of else ""))


class _Schema(msgspec.Struct, frozen=True):
    field: list[Field]
    node: list[Field]


@functools.cache
def _schema() -> _Schema:
    text = resources.files("rollbook.mlperf").joinpath("system.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Schema)


def draft(run: RunData, product: RunData | None = None) -> Tree:
    """Draft the description from the record of a run and, if given, from one of the storage nodes."""
    hosts = run.hosts_with_data
    deployment = deployment_of(hosts[0]) if hosts else Entry(None, "ask")
    roles = roles_of(run)
    found: dict[str, Any] = {**_storage(run), "deployment": deployment}
    where = deployment.value or ""
    nodes = [node_of(host, roles) for host in hosts]
    if not nodes:  # a result that was written without a record
        nodes = [collected_node(host) for host in rows(cluster_of(run.metadata).get("hosts"))]
    found["clients"] = _grouped("client", nodes, where)
    if len(nodes) > 1:
        found["solution.capabilities.multi_host"] = Entry(True, "inferred", f"{len(nodes)} hosts took part")
    if product is not None:
        used = roles_of(product)
        found["product_nodes"] = _grouped(
            "storage node", [node_of(host, used) for host in product.hosts_with_data], where
        )
    return {"system_under_test": _nested(_schema().field, found, where)}


def _grouped(kind: str, nodes: Sequence[dict[str, Any]], where: str) -> list[dict[str, Any]]:
    """Group equal nodes, with their number; the largest group first."""
    alike: dict[bytes, list[dict[str, Any]]] = {}
    for node in nodes:
        alike.setdefault(msgspec.json.encode(node), []).append(node)
    return [
        _nested(_schema().node, {**same[0], "quantity": Entry(len(same), "measured"), **_named(kind, same[0])}, where)
        for same in sorted(alike.values(), key=lambda same: -len(same))
    ]


def _named(kind: str, node: dict[str, Any]) -> dict[str, Entry]:
    parts = [node[path].value for path in ("chassis.model_name", "chassis.cpu_model") if path in node]
    text = ", ".join(part for part in parts if part)
    return {"friendly_description": Entry(f"{kind}: {text}", "inferred", "a draft")} if text else {}


def _nested(fields: Sequence[Field], found: dict[str, Any], deployment: str) -> dict[str, Any]:
    """Nest the values in the order of the schema; unknown fields become questions, those of other deployments go."""
    tree: dict[str, Any] = {}
    for field in fields:
        value = found.get(field.path)
        if (field.only and deployment not in ("", field.only)) or (field.optional and not value):
            continue
        *parents, name = field.path.split(".")
        at = functools.reduce(lambda node, parent: node.setdefault(parent, {}), parents, tree)
        empty = value is None or value == [] or (isinstance(value, Entry) and value.value is None)
        at[name] = field.question if empty else value
    return tree


def _storage(run: RunData) -> dict[str, Entry]:
    """Infer storage fields from the mounts; the largest shared file system counts as the tested one."""
    sizes = {(host.name, space.mount_point): space.total_bytes for host, space in run.each(Space)}
    shared = [
        (sizes.get((host.name, mount.mount_point), 0), mount.fs_type, mount.mount_point)
        for host, mount in run.each(MountInfo)
        if mount.remote
    ]
    if not shared:
        return {}
    size, kind, place = max(shared)
    found = {
        "solution.architecture.storage_location": Entry("remote", "inferred", f"{kind} on {place}"),
        "solution.architecture.product_API": Entry("file", "inferred", f"{kind} on {place}"),
    }
    if size:
        capacity = round(size / TIB, 2)
        found["solution.usable_capacity_tib"] = Entry(capacity, "inferred", f"the size of {place}")
    if kind in CLIENTS:
        footprint, installation = CLIENTS[kind]
        found["solution.architecture.client_footprint"] = Entry(footprint, "inferred", f"a client of {kind}")
        found["solution.architecture.client_installation"] = Entry(installation, "inferred", f"a client of {kind}")
    return found


def roles_of(run: RunData) -> Roles:
    """Infer from the series which interfaces carried the data of a run; the others are for management.

    An interface carried data if it has its share of the traffic on any host that uses it.
    """
    table = run.path / "series" / "net_dev.parquet" if run.path else None
    if table is None or not table.exists():
        return {}
    import duckdb  # noqa: PLC0415 - only a record with a series needs it

    from rollbook.tables.reasons import UNREADABLE  # noqa: PLC0415

    without = [[host.name, row.interface_name] for host, row in run.each(Interface) if row.kind in STACKED]
    try:
        rows = duckdb.execute(SHARES.format(table=parquet(table)), {"without": without}).fetchall()
    except UNREADABLE:  # an unreadable table allows no inference
        return {}
    shares = {str(name): float(share) for name, share in rows}
    data = {name for name, share in shares.items() if share > DATA_SHARE}
    alone = data == set(shares)
    return {name: ["data", "management"] if alone else ["data"] if name in data else ["management"] for name in shares}


def merge_existing(existing: Any, tree: Tree, at: str = "") -> tuple[Tree, list[str]]:
    """Fill in what an existing description lacks; also returns a line for each value that differs from the record.

    Existing values stay. Nodes are matched by position, and only if the numbers of nodes are equal.
    """
    if isinstance(existing, dict) and isinstance(tree, dict):
        merged: dict[str, Any] = {}
        lines: list[str] = []
        for name in (*tree, *(name for name in existing if name not in tree)):
            here = f"{at}.{name}".lstrip(".")
            merged[name], more = merge_existing(existing.get(name), tree.get(name), here)
            lines += more
        return merged, lines
    if isinstance(existing, list) and isinstance(tree, list):
        if len(existing) != len(tree):
            return Entry(existing, "kept"), [f"{at}: {len(existing)} in the file, {len(tree)} found"]
        both = [merge_existing(old, new, f"{at}[{n}]") for n, (old, new) in enumerate(zip(existing, tree, strict=True))]
        return [one for one, _ in both], [line for _, more in both for line in more]
    if existing in (None, "", [], {}):
        return tree, []
    found = tree.value if isinstance(tree, Entry) else None
    differs = found is not None and found != existing
    note = f"found {found}" if differs else ""
    return Entry(existing, "kept", note), [f"{at}: {existing} in the file, {found} found"] if differs else []


def text_of(tree: Tree, record: Path) -> str:
    """The description as YAML, each value with its origin as a comment; the heading names the record."""
    return yaml_text(tree, HEADING.format(version=__version__, record=locate_record(record)))


def to_do(tree: Tree, at: str = "") -> Iterator[str]:
    """A line for each value that a person must fill in."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from to_do(value, f"{at}.{name}".lstrip("."))
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from to_do(value, f"{at}[{number}]")
    elif isinstance(tree, Entry) and tree.origin == "ask":
        yield f"{at.removeprefix('system_under_test.')}: {tree.note}"
