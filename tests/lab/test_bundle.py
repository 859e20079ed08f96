"""`rollbook bundle` over real sshd: everything readable is collected, every node has a status and a reason."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import json
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollbook.bundle.archive import pack
from rollbook.bundle.directory import read_summary
from rollbook.testing import Lab, LabHost
from tests.support.bundles import read_cases
from tests.support.commands import ROLLBOOK, over_ssh
from tests.support.kube_record import KubeRecord, canary_container, kube_record, write_kubeconfig
from tests.support.launchers import read_progress
from tests.support.waits import READ_PAUSE, until, until_no_processes, until_sampled

ITEMS = """
[lab-hang]
title = "A command that hangs and ignores SIGTERM"
commands = ["trap '' TERM INT HUP; echo begun; sleep 1000 & wait; sleep 1000"]
when = { paths = ["/etc/lab-hang"] }
seconds = 2

[lab-drop]
title = "The session is killed halfway"
commands = ["kill -9 $(ps -o ppid= $(ps -o ppid= $PPID)); sleep 30"]
when = { paths = ["/etc/lab-drop"] }
priority = 4
"""
LINE = "2026-11-16T05:00:00.000000+00:00 node kernel: line {} of a long log\n"
LOG = 2 << 30
DATA = Path(__file__).parents[1] / "data" / "bundle"


def summary_of(path: Path) -> dict[str, Any]:
    """The summary of a bundle, after every file in it was compared with its hash."""
    summary: dict[str, Any] = json.loads((path / "summary.json").read_bytes())
    for node in summary["results"]:
        for item in node.get("items", []):
            for file in item.get("files", []):
                data = (path / file["path"]).read_bytes()
                assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"]), file
    return summary


def items_of(node: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The items of a node by id."""
    return {item["id"]: item for item in node["items"]}


def journal(*lines: str) -> str:
    """A `journalctl` that prints these lines as the kernel log of this boot, and has no other logs."""
    text = "\n".join(lines)
    return f"""#!/bin/sh
case "$*" in *-1*) exit 0 ;; *-k*) cat <<'END'
{text}
END
;; esac
"""


def journal_lines(lines: Iterable[str]) -> list[str]:
    """Lines in the format of the journal, one per second."""
    now = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(minutes=10)
    return [
        f"{(now + dt.timedelta(seconds=at)).strftime('%Y-%m-%dT%H:%M:%S.000000+0000')} node kernel: {line}"
        for at, line in enumerate(lines)
    ]


def plant_canaries(host: LabHost, kubernetes: KubeRecord) -> list[str]:
    """Put every secret into a file, a log, or a process of the host, or into a pod; returns the secrets."""
    canaries = tomllib.loads((DATA / "canaries.toml").read_text())["canary"]
    kubernetes.add_to_pod("trainer-4", *canary_container([one for one in canaries if one["place"].startswith("pod-")]))
    files: dict[str, str] = {}
    for one in canaries:
        if one["place"] in {"file", "log"}:
            files[one["path"]] = files.get(one["path"], "") + one["text"] + "\n"
        elif one["place"] == "argument":
            waiting = 'setsid sh -c "sleep 300; :" "$0" "$@" </dev/null >/dev/null 2>&1 &'
            host.run(["sh", "-c", waiting, *one["text"].split()], check=True)
        elif one["place"] == "environment":
            host.run(["env", one["text"], "sh", "-c", "setsid sleep 300 >/dev/null 2>&1 &"], check=True)
    log = files.pop("/var/log/syslog")
    host.run(["mount", "-t", "tmpfs", "none", "/var/log"], check=True)
    host.run(["sh", "-c", "cat > /var/log/syslog"], input=log, check=True)
    host.overlay(files)
    return [*(one["secret"] for one in canaries), "canary-after-option"]


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeRecord]:
    """The recorded cluster, as the context `lab` of kubectl."""
    with kube_record() as (record, address):
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "kubeconfig", address)))
        yield record


@pytest.mark.needs("kubectl")
def test_nodes_with_different_faults(lab: Lab, kubernetes: KubeRecord, tmp_path: Path) -> None:
    """Eight nodes, seven with a fault: everything readable is collected, and each fault is found with its line."""
    healthy, hanging, full, large, unreachable, dropping, faulty, secret = lab.hosts
    for host in (healthy, hanging, full, large, dropping, secret):
        host.programs({"journalctl": journal(*journal_lines(["usb 1-1: new high-speed USB device number 2"]))})
    hanging.overlay({"/etc/lab-hang": ""})
    full.run(["sh", "-c", "mount -t tmpfs -o size=64k none /tmp; cat /dev/zero > /tmp/full"])
    large.run(["mount", "-t", "tmpfs", "none", "/var/log"], check=True)
    end = "".join(LINE.format(number) for number in range(500_000))
    large.run(["sh", "-c", f"truncate -s {LOG} /var/log/syslog; cat >> /var/log/syslog"], input=end, check=True)
    unreachable.close_port()
    dropping.overlay({"/etc/lab-drop": ""})
    cases = {path.stem: read_cases(path).hits for path in sorted((DATA / "rules").glob("*.toml"))}
    planted = {rule: list(dict.fromkeys((hits[0], hits[-1]))) for rule, hits in cases.items() if hits}
    assert len(planted) > 20
    faulty.programs({"journalctl": journal(*journal_lines(line for lines in planted.values() for line in lines))})
    secrets = plant_canaries(secret, kubernetes)
    assert len(secrets) > 60
    (tmp_path / "items.toml").write_text(ITEMS)
    output = tmp_path / "results"
    done = subprocess.run(
        over_ssh(lab, "bundle", [host.name for host in lab.hosts], "-o", str(output), "--item-file",
                  str(tmp_path / "items.toml"), "--command", "printf '%s\\n' 'a  \"b\"' | tr a c", "--timeout", "120",
                  "--kube-context", "lab"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    [path] = (output / "bundle").iterdir()
    nodes = {node["node"]: node for node in summary_of(path)["results"]}
    assert {name: node["status"] for name, node in nodes.items()} == {
        healthy.name: "complete",
        hanging.name: "partial",
        full.name: "complete",
        large.name: "complete",
        unreachable.name: "refused",
        dropping.name: "partial",
        faulty.name: "complete",
        secret.name: "complete",
    }, done.stderr
    assert all(node["status"] == "complete" or node["reason"] for node in nodes.values())
    assert (path / items_of(nodes[healthy.name])["command-1"]["files"][0]["path"]).read_text() == 'c  "b"\n'
    hang = items_of(nodes[hanging.name])["lab-hang"]
    assert hang["status"] == "timed-out"
    assert (path / hang["files"][0]["path"]).read_text() == "begun\n"
    log = items_of(nodes[large.name])["system-log"]
    assert log["status"] == "truncated"
    text = (path / log["files"][0]["path"]).read_text()
    assert text.endswith(LINE.format(499_999))
    assert text.startswith("2026-11-16")
    dropped = items_of(nodes[dropping.name])
    assert sum(item["status"] in {"complete", "absent"} for item in dropped.values()) > 10
    check_findings(path, planted, faulty.name, healthy.name)
    for name in ("describe.txt", "pods.json"):
        assert b"NCCL_DEBUG" in (path / "cluster/kubernetes-pods" / name).read_bytes()
    pack(path, tmp_path / "case.tar.gz")
    archive = gzip.decompress((tmp_path / "case.tar.gz").read_bytes())
    everything = [archive, *(one.read_bytes() for one in path.rglob("*") if one.is_file())]
    assert not {word for word in secrets for data in everything if word.encode() in data}
    assert len(json.loads((path / f"nodes/{secret.name}/redactions.json").read_bytes())["redactions"]) > 40
    assert not [word for word in secrets if word in done.stdout + done.stderr]
    until_no_processes([host for host in lab.hosts if host is not secret])


def check_findings(path: Path, planted: dict[str, list[str]], faulty: str, healthy: str) -> None:
    """Every planted fault is found on its node with its line, and no failure on the healthy node."""
    findings = json.loads((path / "findings.json").read_bytes())
    failures = [(rule["id"], one) for rule in findings["rules"] for one in rule.get("findings", [])
                if one["severity"] == "fail"]  # fmt: skip
    assert not [one for one in failures if one[1].get("hosts") == [healthy]]
    for rule in (one for one in findings["rules"] if one["id"] in planted):
        found = [one for one in rule.get("findings", []) if faulty in one.get("hosts", [])]
        assert found, rule
        assert not [one for one in rule["findings"] if healthy in one.get("hosts", [])], rule
        shown = [line for one in found for line in one.get("lines", [])]
        assert shown, rule
        for line in shown:
            text = (path / line["path"]).read_text().splitlines()[line["line"] - 1]
            assert line["text"] in text or text in line["text"], (rule["id"], line, text)
        assert any(hit in line["text"] for hit in planted[rule["id"]] for line in shown), (rule["id"], shown)


@pytest.mark.parametrize("victim", ["collector", "agent", "node"])
@pytest.mark.parametrize("read", [0, 4])
def test_killed_over_ssh(lab: Lab, tmp_path: Path, victim: str, read: int) -> None:
    """Killed after this many items: the bundle is valid, no process is left, and resuming reads the missing items."""
    host = lab.hosts[0]
    names = [f"item-{number}" for number in range(8)]
    (tmp_path / "items.toml").write_text(
        "".join(f"[{name}]\ntitle = ''\ncommands = ['sleep 0.3; seq 20000; echo {name}']\n" for name in names)
    )
    chosen = [word for name in names for word in ("--item", name)]
    argv = over_ssh(
        lab, "bundle", [host.name], "-o", str(tmp_path), "--item-file", str(tmp_path / "items.toml"), *chosen
    )

    def items_read() -> int:
        return sum(path.read_bytes().count(b'{"item":') for path in tmp_path.glob("bundle/*/nodes/*/state.jsonl"))

    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        until(lambda: items_read() >= read and (host.processes() or read))
        if victim == "collector":
            run.kill()
        elif victim == "agent":
            host.run(["pkill", "-KILL", "-f", "binascii"])
        else:
            host.reset()
    [path] = (tmp_path / "bundle").iterdir()
    before = {item.id: item for item in read_summary(path).results[0].items if item.status == "complete"}
    assert len(before) >= read
    until_no_processes([host])
    done = subprocess.run(
        over_ssh(lab, "bundle", [host.name], "--resume", str(path)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [after] = summary_of(path)["results"]
    assert after["status"] == "complete"
    assert set(items_of(after)) == set(names)
    assert all(items_of(after)[name]["files"][0]["sha256"] == item.files[0].sha256 for name, item in before.items())


def test_bundle_after_a_run_that_lost_hosts(lab: Lab, tmp_path: Path) -> None:
    """Only lost hosts are collected: one can still be read, the other is refused with a reason."""
    gone, broken, fine = lab.hosts[:3]
    argv = over_ssh(
        lab, "run", [host.name for host in (gone, broken, fine)], "--results-dir", str(tmp_path), "--interval", "1",
        "--bundle-on-failure", "--", "sh", "-c", f"while [ ! -e {tmp_path}/lost ]; do sleep 0.1; done",
    )  # fmt: skip
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        until_sampled(tmp_path, 3, 1)
        gone.close_port()
        gone.kill_sshd()
        broken.run(["pkill", "-KILL", "-f", "binascii"])
        [raw] = tmp_path.glob("*/*/raw")
        names = [host.name for host in (gone, broken, fine)]
        until(lambda: all(read_progress(raw, names)[host.name].lost for host in (gone, broken)), pause=READ_PAUSE)
        (tmp_path / "lost").touch()
        output = run.communicate()[0]
    [path] = tmp_path.glob("*/*/bundle")
    nodes = {node["node"]: node for node in summary_of(path)["results"]}
    assert {name: node["status"] for name, node in nodes.items()} == {gone.name: "refused", broken.name: "complete"}
    assert nodes[gone.name]["reason"]
    assert items_of(nodes[broken.name])["os"]["files"]
    assert "bundle" in output
    page = (path.parent / "report.html").read_text()
    assert '"page":"bundle/index.html"' in page


def test_dropped_node_is_resumed(lab: Lab, tmp_path: Path) -> None:
    """A node whose session is killed is partial; resuming reads only the missing items."""
    host = lab.hosts[0]
    host.overlay({"/etc/lab-drop": ""})
    (tmp_path / "items.toml").write_text(ITEMS)
    more = ["--item-file", str(tmp_path / "items.toml"), "--tag", "system", "--item", "lab-drop", "--item", "packages"]
    argv = over_ssh(lab, "bundle", [host.name], "-o", str(tmp_path), *more)
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 3
    [path] = (tmp_path / "bundle").iterdir()
    [before] = summary_of(path)["results"]
    assert before["status"] == "partial"
    host.reset()
    argv = over_ssh(lab, "bundle", [host.name], "--resume", str(path))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [after] = summary_of(path)["results"]
    assert after["status"] == "complete"
    read = {name: item for name, item in items_of(before).items() if item["status"] in {"complete", "absent"}}
    assert read
    assert all(items_of(after)[name] == item for name, item in read.items())


def test_hung_file_system(lab: Lab, tmp_path: Path) -> None:
    """A path on a hung file server affects only its item, and the session ends."""
    host = lab.hosts[0]
    host.hang_mount("/mnt/hang")
    (tmp_path / "items.toml").write_text(
        '[stuck]\ntitle = "a file that hangs"\npaths = ["/mnt/hang/file"]\nseconds = 1\npriority = 1\n'
    )
    argv = over_ssh(
        lab, "bundle", [host.name], "-o", str(tmp_path), "--item-file", str(tmp_path / "items.toml"), "--item", "stuck",
        "--item", "os", "--timeout", "60",
    )  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    [path] = (tmp_path / "bundle").iterdir()
    [node] = summary_of(path)["results"]
    assert items_of(node)["stuck"]["status"] == "timed-out"
    assert items_of(node)["os"]["status"] == "complete"
    assert node["ElapsedTime"] < 30


def test_bundle_is_read_like_a_snapshot(lab: Lab, tmp_path: Path) -> None:
    """`diff`, `check`, `describe` and `verify` read a bundle; its files are private to the owner."""
    names = [host.name for host in lab.hosts[:2]]
    argv = over_ssh(lab, "bundle", names, "-o", str(tmp_path), "--item", "os")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [path] = (tmp_path / "bundle").iterdir()
    assert {oct(one.stat().st_mode & 0o777) for one in path.rglob("*") if one.is_file()} == {"0o600"}
    assert {oct(one.stat().st_mode & 0o777) for one in [path, *path.rglob("*")] if one.is_dir()} == {"0o700"}
    for command in ("verify", "describe"):
        ran = subprocess.run([*ROLLBOOK, command, str(path)], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, (command, ran.stderr)
    ran = subprocess.run([*ROLLBOOK, "check", str(path), "--json"], capture_output=True, text=True, check=False)
    outcomes = {rule["outcome"] for rule in json.loads(ran.stdout)["rules"]}
    assert ran.returncode == int("fail" in outcomes), ran.stderr
    one, other = (f"{path}:{name}" for name in names)
    ran = subprocess.run([*ROLLBOOK, "diff", one, other], capture_output=True, text=True, check=False)
    assert ran.returncode == int("no differences on 1 host" not in ran.stdout + ran.stderr), ran.stderr
    assert "Traceback" not in ran.stderr
