"""`rollbook diff`: field by field, volatile fields only on request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import rollbook
from rollbook.cli.diff import command
from rollbook.errors import RecordError, UsageError
from rollbook.records.document import Snapshot, encode
from rollbook.records.record import RecordHosts
from tests.support.records import Sets, host_results

DISK = {"device": "sda", "kind": "disk", "model": "M", "interface": "sata", "scheduler": "none"}
LOAD = {"load_1min": 0.1, "load_5min": 0.1, "load_15min": 0.1, "running_processes": 1, "total_processes": 9}
FACTS: dict[str, Any] = {"thp": {"enabled": "madvise"}, "block": [DISK], "loadavg": LOAD}
CHANGED = {**FACTS, "thp": {"enabled": "always"}, "loadavg": {**LOAD, "load_1min": 9.0}}


def snapshot(path: Path, sets: Sets) -> str:
    """A snapshot file of these hosts."""
    path.write_bytes(encode(Snapshot.of("2026-08-01T00:00:00Z", host_results(sets))))
    return str(path)


def diff(*arguments: str) -> Result:
    """Run the command; exceptions other than SystemExit are raised."""
    result = CliRunner().invoke(command, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_two_records(tmp_path: Path) -> None:
    """Hosts with the same differences are printed together; hosts on one side only are named."""
    old = snapshot(tmp_path / "a.json", {"n[1-4]": FACTS})
    new = snapshot(tmp_path / "b.json", {"n1": FACTS, "n[2-3]": CHANGED, "n9": FACTS})
    result = diff(old, new)
    assert result.exit_code == 1
    assert result.stderr == "2 of 3 hosts with differences\n"
    assert result.stdout.splitlines() == [
        "n[2-3]",
        "  thp: enabled madvise -> always",
        f"only in {old}: n4",
        f"only in {new}: n9",
    ]


def test_from_python(tmp_path: Path) -> None:
    """`rollbook.diff` accepts paths and strings and returns the same differences as the command."""
    old, new = (
        snapshot(tmp_path / "a.json", {"n[1-2]": FACTS}),
        snapshot(tmp_path / "b.json", {"n1": FACTS, "n2": CHANGED}),
    )
    found = rollbook.diff(tmp_path / "a.json", tmp_path / "b.json")
    assert found.differs
    assert [(change.field, change.before, change.after) for change in found.hosts["n2"]] == [
        ("thp.enabled", "madvise", "always")
    ]
    assert encode(found).decode() == diff(old, new, "--json").stdout
    assert not rollbook.diff(tmp_path / "a.json", tmp_path / "a.json").differs
    assert rollbook.diff(f"{old}:n1", f"{new}:n2").hosts.keys() == {"n1 -> n2"}


def test_unread_sources(tmp_path: Path) -> None:
    """Unread sources are not compared; stderr and the document name them."""
    old, new = snapshot(tmp_path / "a.json", {"n[1-3]": FACTS}), str(tmp_path / "b.json")
    rest = {name: fact for name, fact in FACTS.items() if name != "thp"}
    hosts = [*host_results({"n1": FACTS}), *host_results({"n[2-3]": rest}, unread=["thp"])]
    Path(new).write_bytes(encode(Snapshot.of("2026-08-01T00:00:00Z", hosts)))
    result = diff(old, new)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "not read, so not compared: thp (n[2-3])\nno differences in what was read on 3 hosts\n"
    assert json.loads(diff(old, new, "--json").stdout)["unread"] == {"thp": ["n2", "n3"]}
    assert rollbook.diff(f"{old}:n1", f"{new}:n2").unread == {"thp": ["n1 -> n2"]}


def test_no_host_in_both(tmp_path: Path) -> None:
    """The message explains how to compare two hosts."""
    old, new = snapshot(tmp_path / "a.json", {"n1": FACTS}), snapshot(tmp_path / "b.json", {"n2": FACTS})
    result = diff(old, new)
    assert (result.exit_code, result.stderr) == (1, "no host is on both sides; compare two with A:HOST B:HOST\n")


def test_volatile_fields_only_with_option(tmp_path: Path) -> None:
    """A gauge is not a difference, except with --volatile."""
    old = snapshot(tmp_path / "a.json", {"n1": FACTS})
    new = snapshot(tmp_path / "b.json", {"n1": {**FACTS, "loadavg": {**LOAD, "load_1min": 9.0}}})
    assert (diff(old, new).exit_code, diff(old, new).stderr) == (0, "no differences on 1 host\n")
    assert "loadavg: load_1min 0.1 tasks -> 9.0 tasks" in diff(old, new, "--volatile").stdout


def test_two_hosts(tmp_path: Path) -> None:
    """Disks are matched by model; unique values are left out."""
    one = {**FACTS, "identity": {"hostname": "a", "kernel_release": "6.1"}}
    two = {**CHANGED, "identity": {"hostname": "b", "kernel_release": "6.1"}, "block": [{**DISK, "device": "sdz"}]}
    path = snapshot(tmp_path / "a.json", {"n1": one, "n2": two})
    document = json.loads(diff(f"{path}:n1", f"{path}:n2", "--json").stdout)
    assert document["hosts"] == {
        "n1 -> n2": [{"field": "thp.enabled", "before": "madvise", "after": "always"}],
    }


def test_start_against_end(tmp_path: Path) -> None:
    """For a single record, the start of the run is compared with its end."""
    run = RecordHosts(
        started_ns=0, ended_ns=1, start=host_results({"n[1-2]": FACTS}), end=host_results({"n1": CHANGED})
    )
    (tmp_path / "hosts.json").write_bytes(encode(run))
    (tmp_path / "run_1_metadata.json").write_text("{}")
    result = diff(str(tmp_path))
    assert result.stdout.splitlines() == ["n1", "  thp: enabled madvise -> always", f"only in start of {tmp_path}: n2"]


def test_hosts_without_data(tmp_path: Path) -> None:
    """Hosts without data are an error if they are the only ones, else they are named."""
    gone = {"@status": "unreachable", "@reason": "no route"}
    some = snapshot(tmp_path / "a.json", {"n1": FACTS, "n2": gone})
    none = snapshot(tmp_path / "b.json", {"n[1-2]": gone})
    for pair in ((f"{some}:n1", f"{some}:n2"), (f"{some}:n2", f"{some}:n2")):
        with pytest.raises(UsageError, match="n2 returned no data to compare: no route"):
            diff(*pair)
    with pytest.raises(UsageError, match="no host returned data"):
        diff(none, none)
    result = diff(some, some)
    assert result.exit_code == 3
    assert "nothing to compare from n2" in result.stderr
    assert json.loads(diff(some, some, "--json").stdout)["without_data"] == ["n2"]
    assert diff(some, none).exit_code == 1


def test_hosts_with_colons(tmp_path: Path) -> None:
    """The host of one side is that of both; its name may be an IPv6 address."""
    old = snapshot(tmp_path / "a:b.json", {"fd00::1": FACTS, "n2": FACTS})
    new = snapshot(tmp_path / "b.json", {"fd00::1": CHANGED, "n3": FACTS})
    for pair in ((f"{old}:fd00::1", new), (old, f"{new}:fd00::1"), (f"{old}:fd00::1", f"{new}:fd00::1")):
        result = diff(*pair)
        assert (result.exit_code, result.stdout) == (1, "fd00::1\n  thp: enabled madvise -> always\n")
    assert rollbook.diff(f"{old}:fd00::1", f"{new}:fd00::1").hosts.keys() == {"fd00::1"}


def test_invalid_arguments(tmp_path: Path) -> None:
    """A snapshot has no end to compare with; hosts and files must exist."""
    path = snapshot(tmp_path / "a.json", {"n1": FACTS})
    with pytest.raises(UsageError, match="has no end"):
        diff(path)
    with pytest.raises(UsageError, match="no host n7 among n1"):
        diff(f"{path}:n7", path)
    with pytest.raises(RecordError, match="does not exist"):
        diff("nothing", path)
