"""`rollbook bundle` on this machine: selection, plan, limits, archives, resuming, exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import rollbook
from rollbook.bundle.reading import unpack
from rollbook.cli import cli
from rollbook.errors import RecordError
from tests.support.commands import ROLLBOOK

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `rollbook bundle` with arguments in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> Result:
        reach = [] if arguments[:1] in (("analyse",), ("upload",)) else ["--via", "local"]
        return CliRunner().invoke(cli, ["bundle", *reach, *arguments])

    return invoke


def read_summary(path: Path) -> dict[str, Any]:
    """Read the summary of the only bundle below a results directory."""
    [found] = path.glob("bundle/*/summary.json")
    document: dict[str, Any] = json.loads(found.read_bytes())
    return document


def test_list_and_dry_run_collect_nothing(run: Run, tmp_path: Path) -> None:
    """No directory is created, and secrets in commands are not printed."""
    listed = run("--list")
    assert listed.exit_code == 0
    assert "kernel-log" in listed.output
    assert not [line for line in listed.output.splitlines() if line.endswith(" ")]
    planned = run(
        "--dry-run", "-w", "node[1-3]", "--item", "os", "--command", "curl -H 'Authorization: Bearer abcdef123456' x"
    )
    assert planned.exit_code == 0, planned.output
    assert "/etc/os-release" in planned.output
    assert "3 nodes (node[1-3])" in planned.output
    assert "abcdef123456" not in planned.output
    document = json.loads(run("--dry-run", "--item", "os", "--json").output)
    assert document["schema"] == "rollbook.request/1"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--item", "kernel-lgo"], "did you mean kernel-log"),
        (["--since", "yesterday-ish"], "is not a time"),
        (["--since", "9999999d"], "is not a time"),
        (["--since", "9999999999999d"], "is not a time"),
        (["--since", "1h", "--until", "2h"], "time window is empty"),
        (["--node-limit", "lots"], "is not a size"),
        (["--item-file", "nothing.toml"], "does not exist"),
        (["--output", "case.zip"], "cannot write case.zip: the name of an archive ends in .tar.zst, .tar.gz, .tgz"),
        (["--list", "--json"], "--json would have no effect"),
        (["--resume", "/absent"], "/absent does not exist"),
        (["analyse", "/absent"], "/absent does not exist"),
        (["analyse", "/absent.tar.gz"], "/absent.tar.gz does not exist"),
        (["analyse", "absent"], "no record in results has a name or time"),
        (["analyse", "/etc/passwd"], "/etc/passwd is neither an issue report nor an archive of one"),
        (["--s3-endpoint-url", "http://s", "upload", "/", "s3://b/p"], "effect: write the options after upload"),
        (["--json", "analyse", "/"], "effect: write the options after analyse"),
        (["upload", "/etc", "s3://bucket/prefix"], "/etc is neither an issue report nor an archive of one"),
    ],
)
def test_usage_errors(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    """A usage error ends the command, with a message, before anything is collected."""
    result = run(*arguments)
    assert getattr(result.exception, "exit_code", result.exit_code) == 2
    assert message in (result.output + str(result.exception))
    assert not list(tmp_path.iterdir())


def test_a_command_with_pipes_and_a_secret(run: Run, tmp_path: Path) -> None:
    """The shell runs the command unchanged; neither the output nor the bundle contains the secret."""
    result = run(
        "-w", "n1", "--item", "os", "--command", "printf '%s %s\\n' 'a  b' --password=hunter2hunter2 | tr b y", "--json"
    )
    assert result.exit_code == 0, result.output
    [path] = tmp_path.glob("results/bundle/*")
    [file] = (path / "nodes/n1/command-1").iterdir()
    assert file.read_text().startswith("a  y --password=***")
    assert not [one for one in path.rglob("*") if one.is_file() and b"hunter2hunter2" in one.read_bytes()]
    assert "hunter2hunter2" not in result.output
    again = run("--resume", str(path))
    assert again.exit_code != 0
    assert "give all --command options again" in str(again.exception)


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.zst"])
def test_archives(run: Run, tmp_path: Path, suffix: str) -> None:
    """The archive replaces the directory, only its owner can read it, and it contains a valid bundle."""
    if suffix == ".tar.zst" and shutil.which("zstd") is None:
        pytest.skip("needs zstd")
    result = run("-w", "n1", "--item", "os", "-o", f"case{suffix}")
    assert result.exit_code == 0, result.output
    archive = tmp_path / f"case{suffix}"
    assert [one.name for one in tmp_path.iterdir()] == [archive.name]
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    path = unpack(archive, tmp_path / "unpacked")
    assert not rollbook.verify(path).problems
    assert {"summary.json", "findings.json", "index.html", "manifest.json"} <= {one.name for one in path.iterdir()}
    if suffix == ".tar.gz":
        with tarfile.open(archive) as tar:
            assert {(member.uid, member.uname) for member in tar} == {(0, "")}
    refused = run("-w", "n1", "--item", "os", "-o", f"case{suffix}")
    assert "exists" in str(refused.exception)
    analysed = CliRunner().invoke(cli, ["bundle", "analyse", str(archive), "--json"])
    findings = json.loads(analysed.output)
    assert findings["schema"] == "rollbook.findings/1"
    assert analysed.exit_code == any(rule["outcome"] == "fail" for rule in findings["rules"]), analysed.output


def test_limits_of_the_run(run: Run, tmp_path: Path) -> None:
    """At a limit of the run, collection stops, data so far is kept, and nodes have the reason."""
    result = run("-w", "n[1-2]", "--skip", "log", "--limit", "20 KiB", "--command", "seq 100000", "--run-timeout", "60")
    assert result.exit_code == 3, result.output
    summary = read_summary(tmp_path / "results")
    assert all(node["status"] in {"partial", "not-tried"} for node in summary["results"])
    assert any("limit of this run" in node["reason"] for node in summary["results"])
    late = run("-w", "n1", "--item", "os", "--command", "sleep 30", "--run-timeout", "2", "-o", "late")
    [node] = read_summary(tmp_path / "late")["results"]
    # On a busy machine there may be no facts in time.
    assert (late.exit_code, node["status"]) in {(3, "partial"), (4, "timed-out"), (4, "not-tried")}, late.output
    assert "time limit of this run, 2 s, is reached" in node["reason"]
    full = run("-w", "n1", "--item", "os", "--keep-free", "100000 GiB", "-o", "other")
    assert "is free on the disk" in read_summary(tmp_path / "other")["results"][0]["reason"], full.output


@pytest.mark.parametrize("is_key_kept", [True, False])
def test_marks_of_a_resumed_bundle(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_key_kept: bool
) -> None:
    """Resuming keeps the marks of equal secrets; the key is outside the bundle and deleted when it is complete."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "settings").write_text("password=canary-1\n")
    commands = {"reads": f"cat {tmp_path}/settings", "waits": f"cd {tmp_path}; test -e go || sleep 30; cat settings"}
    tables = [f"[{name}]\ntitle = ''\nseconds = 0.5\ncommands = ['{text}']\n" for name, text in commands.items()]
    (tmp_path / "items.toml").write_text("".join(tables))
    first = run("--item-file", "items.toml", "--item", "reads", "--item", "waits")
    assert first.exit_code == 3, first.output
    [path] = (tmp_path / "results/bundle").iterdir()
    [key] = (tmp_path / "state/rollbook/bundle-keys").iterdir()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert not [one for one in path.rglob("*") if one.is_file() and key.read_bytes() in one.read_bytes()]
    if not is_key_kept:
        key.unlink()
    (tmp_path / "go").touch()
    done = run("--resume", str(path))
    assert done.exit_code == 0, done.output
    assert not list(key.parent.iterdir())
    [listed] = path.glob("nodes/*/redactions.json")
    redactions = json.loads(listed.read_bytes())
    assert [entry["path"].split("/")[2] for entry in redactions["redactions"]] == ["reads", "waits"]
    assert len({entry["mark"] for entry in redactions["redactions"]}) == (1 if is_key_kept else 2)
    assert ("cannot be compared" in redactions.get("note", "")) == (not is_key_kept)
    assert ("cannot be compared" in done.output) == (not is_key_kept)


def test_an_unexpected_error_of_the_cluster_part(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is in the summary and in a finding; nodes are collected."""

    async def broken(*_arguments: object, **_options: object) -> None:
        raise KeyError("metadata")

    monkeypatch.setattr("rollbook.bundle.collect.read_cluster", broken)
    assert run("-w", "n1", "--item", "os").exit_code == 0
    summary = read_summary(tmp_path / "results")
    assert {item["id"]: item["status"] for item in summary["cluster"]} == {"kubernetes": "failed", "slurm": "failed"}
    [path] = tmp_path.glob("results/bundle/*")
    findings = json.loads((path / "findings.json").read_bytes())
    [incomplete] = [rule for rule in findings["rules"] if rule["id"] == "report-incomplete"]
    assert "metadata" in str(incomplete["findings"])


def test_rules_that_cannot_be_applied(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the analysis fails, the exit status is 3."""

    def broken(_directory: Path) -> None:
        raise RecordError("no rules today")

    monkeypatch.setattr("rollbook.bundle.finish.apply_rules", broken)
    done = run("-w", "n1", "--item", "os", "--no-once")
    assert done.exit_code == 3
    assert "not analysed: no rules today" in done.output


def test_bundles_are_found_like_records(run: Run, tmp_path: Path) -> None:
    """A bundle is named by `latest`, the start of its time stamp, or a results directory that has only this bundle."""
    done = run("-w", "n1", "--item", "os")
    assert done.exit_code == 0
    [path] = tmp_path.glob("results/bundle/*")
    assert "1 of 1 node complete, " in done.output
    assert f"bundle in {path.relative_to(tmp_path)}\npage: {path.relative_to(tmp_path)}/index.html\n" in done.output
    for name in ("latest", path.name[:8], "results"):
        (path / "findings.json").unlink()
        assert run("analyse", name).exit_code == 0
        assert (path / "findings.json").exists(), name


def test_resume_failed_nodes(run: Run, tmp_path: Path) -> None:
    """Nodes that failed are collected when the bundle is resumed, all of them or only some."""
    first = run("-w", "n1,n2", "--item", "os", "--python", "/bin/false")
    assert first.exit_code == 4, first.output
    [path] = tmp_path.glob("results/bundle/*")
    assert {node["status"] for node in read_summary(tmp_path / "results")["results"]} == {"failed"}
    assert "--resume" in first.output
    half = run("--resume", str(path), "-w", "n1")
    assert half.exit_code == 3, half.output
    done = run("--resume", str(path))
    assert done.exit_code == 0, done.output
    assert {node["status"] for node in read_summary(tmp_path / "results")["results"]} == {"complete"}
    assert not rollbook.verify(path).problems
    other = run("--resume", str(path), "-w", "n9")
    assert "not in this bundle: n9" in str(other.exception)


def test_configured_hosts_are_those_of_new_bundles(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle is resumed with its own nodes, without those that are typed after -x."""
    assert run("-w", "n1,n2", "--item", "os", "--python", "/bin/false").exit_code == 4
    [path] = tmp_path.glob("results/bundle/*")
    monkeypatch.setenv("ROLLBOOK_HOSTS", "other[1-3]")
    monkeypatch.setenv("ROLLBOOK_EXCLUDE", "n1")
    assert run("--resume", str(path), "-x", "n2").exit_code == 3
    statuses = {node["node"]: node["status"] for node in read_summary(tmp_path / "results")["results"]}
    assert statuses == {"n1": "complete", "n2": "failed"}
    assert run("--resume", str(path)).exit_code == 0
    assert "-x n9 excludes none" in str(run("--resume", str(path), "-x", "n9").exception)


def test_progress_on_a_terminal(tmp_path: Path) -> None:
    """The numbers of nodes and items are shown while nodes are read."""
    shown_all = tmp_path / "shown"
    waits = f"for n in $(seq 600); do [ -e {shown_all} ] && break; sleep 0.1; done"
    argv = [*ROLLBOOK, "bundle", "--via", "local", "-w", "n1", "--item", "os", "--command", waits, "-o", str(tmp_path)]
    master, slave = pty.openpty()
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=slave) as process:
        os.close(slave)
        shown = b""
        with contextlib.suppress(OSError):  # reading a closed terminal fails
            while piece := os.read(master, 4096):
                shown += piece
                if b"0 of 1 host" in shown and b"1 items" in shown:
                    shown_all.touch()
    os.close(master)
    assert process.returncode == 0, shown
    assert b"0 of 1 host" in shown
    assert b"1 items" in shown


@pytest.mark.parametrize("interface", ["command line", "Python"])
def test_context_of_kubectl(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interface: str) -> None:
    """The option of `--via kube` names the context that is read for the cluster, with any transport."""
    kubectl, log = tmp_path / "bin" / "kubectl", tmp_path / "calls"
    kubectl.parent.mkdir()
    kubectl.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexit 1\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(kubectl.parent), prepend=os.pathsep)
    if interface == "Python":
        rollbook.take_bundle("n1", via="local", items="os", output=tmp_path, kube_context="lab")
    else:
        assert run("--item", "os", "--kube-context", "lab").exit_code == 0
    assert "lab" in log.read_text()
    assert "current-context" not in log.read_text()


def test_python_api(tmp_path: Path) -> None:
    """`take_bundle` returns path, summary and findings."""
    bundle = rollbook.take_bundle("n1", via="local", items="os", output=tmp_path)
    assert bundle.path.parent == tmp_path / "bundle"
    assert bundle.summary.results[0].status == "complete"
    assert bundle.findings is not None
    assert rollbook.open_record(bundle.path).hosts.start[0].hostname


def test_an_obfuscated_report_is_printed_as_it_was_written(run: Run, tmp_path: Path) -> None:
    """`--json` prints the names that are in the report, and not the originals."""
    result = run("-w", "secretnode01", "--item", "os", "--obfuscate", "map.json", "--json", "-o", "case.tar.gz")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [node["node"] for node in document["results"]] == ["host0001"]
    assert "secretnode01" not in result.stdout
    assert document == json.loads((unpack(tmp_path / "case.tar.gz", tmp_path / "x") / "summary.json").read_bytes())


def test_resuming_refuses_what_it_would_ignore(run: Run, tmp_path: Path) -> None:
    """`--dry-run` does not collect, and a directory in which nothing would be written is refused."""
    assert run("-w", "n1", "--item", "os").exit_code == 0
    [path] = tmp_path.glob("results/bundle/*")
    before = (path / "summary.json").read_bytes()
    for arguments, message in ((["--dry-run"], "--dry-run would have"), (["-o", "other"], "-o would have")):
        refused = run("--resume", str(path), *arguments)
        assert getattr(refused.exception, "exit_code", None) == 2
        assert f"{message} no effect" in str(refused.exception)
    assert (path / "summary.json").read_bytes() == before
    assert not (tmp_path / "other").exists()


def test_a_resumed_bundle_replaces_no_archive_and_is_not_packed_into_itself(run: Run, tmp_path: Path) -> None:
    """Before anything is read: the directory is removed once it is packed."""
    assert run("-w", "n1", "--item", "os").exit_code == 0
    [path] = tmp_path.glob("results/bundle/*")
    before = (path / "summary.json").read_bytes()
    (tmp_path / "kept.tar.gz").write_text("an older report")
    for archive, message in ((str(path / "case.tar.gz"), "inside the record"), ("kept.tar.gz", "is not replaced")):
        refused = run("--resume", str(path), "-o", archive)
        assert getattr(refused.exception, "exit_code", None) == 2
        assert message in str(refused.exception)
    assert (path / "summary.json").read_bytes() == before
    assert (tmp_path / "kept.tar.gz").read_text() == "an older report"
    assert run("--resume", str(path), "-o", "new.tar.gz").exit_code == 0
    assert (tmp_path / "new.tar.gz").exists()
    assert not path.exists()


def test_the_configured_results_directory_is_the_default(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without -o, a bundle is where other commands look for it."""
    monkeypatch.setenv("ROLLBOOK_RESULTS_DIR", "elsewhere")
    assert run("-w", "n1", "--item", "os").exit_code == 0
    assert len(list(tmp_path.glob("elsewhere/bundle/*/summary.json"))) == 1
    assert not (tmp_path / "results").exists()
