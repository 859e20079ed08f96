"""A source and a rule of another installed package: listed, documented, sampled, checked and on the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROLLBOOK
from tests.support.waits import until_sampled

ROOT = Path(__file__).parents[2]
DOCS = f"""
from importlib.machinery import SourceFileLoader
docs = SourceFileLoader("docs", {str(ROOT / "scripts" / "docs")!r}).load_module()
print(docs.sources(), docs.rules(), docs.schemas()["snapshot-1"])
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment in which the package is installed."""
    information = tmp_path / "site" / "site_fabric-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: site-fabric\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[rollbook.sources]\nsite_fabric = tests.support.plugged\n[rollbook.rules]\nsite = tests.support.plugged_rule\n"
    )
    path = os.pathsep.join(filter(None, (str(tmp_path / "site"), str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def run(argv: list[str], environ: dict[str, str]) -> str:
    """The standard output of a program that succeeds."""
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("module", "most"), [("plugged", 20), ("plugged_rule", 30)])
def test_length(module: str, most: int) -> None:
    """Both are short modules."""
    assert len((ROOT / "tests" / "support" / f"{module}.py").read_text().splitlines()) <= most


def test_lists(environ: dict[str, str]) -> None:
    """The commands list and explain them."""
    assert "site-fabric-retried             warn  The fabric of a host had to retry.\n" in run(
        [*ROLLBOOK, "check", "--list"], environ
    )
    assert "Fix: Replace the cable." in run([*ROLLBOOK, "check", "--explain", "site-fabric-retried"], environ)
    assert "site_fabric" in run([*ROLLBOOK, "snapshot", "--list-sources"], environ)


def test_reference(environ: dict[str, str]) -> None:
    """The generated pages and schemas describe them."""
    text = run([sys.executable, "-W", "ignore", "-c", DOCS], environ)
    assert "## site_fabric\n\n`/proc/uptime`: a site's fabric; a source as another package declares it.\n" in text
    assert "| retries | int | events | must not rise during a run |" in text
    assert "## site-fabric-retried\n\nThe fabric of a host had to retry.\n\n- **Why:** Retries delay" in text
    assert '"#/$defs/Fabric"' in text


def test_record(environ: dict[str, str], tmp_path: Path) -> None:
    """The source is sampled and queried, both rules find its retries, the page shows it; others can open the record."""
    options = ["--via", "local", "--results-dir", str(tmp_path / "out"), "--timeseries-interval", "0.2"]
    sampled = tmp_path / "sampled"
    command = ["sh", "-c", f"for n in $(seq 600); do [ -e {sampled} ] && break; sleep 0.1; done"]
    with subprocess.Popen([*ROLLBOOK, "run", *options, "--", *command], env=environ) as running:
        until_sampled(tmp_path / "out", hosts=1, samples=8)  # they take more than a second: the uptime rises
        sampled.touch()
    assert running.returncode == 0
    (record,) = (tmp_path / "out").glob("*/*")
    (host,) = json.loads((record / "hosts.json").read_text())["start"]
    assert host["facts"]["site_fabric"]["version"] == "1.0"
    query = [*ROLLBOOK, "query", str(record), "--format", "json"]
    row = json.loads(run([*query, "SELECT count(*) AS n, min(retries) AS retries FROM site_fabric"], environ))
    assert row["n"] >= 4
    assert row["retries"] >= host["facts"]["site_fabric"]["retries"] > 0
    rules = {rule["id"]: rule for rule in json.loads((record / "findings.json").read_text())["rules"]}
    message = f"site_fabric: retries {host['facts']['site_fabric']['retries']} ({host['name']})"
    assert [finding["message"] for finding in rules["site-fabric-retried"]["findings"]] == [message]
    assert rules["error-count-rose"]["outcome"] == "warn"
    page = (record / "report.html").read_text()
    assert message in page
    assert '"site-fabric-retried"' in page
    without = dict(os.environ)
    assert json.loads(run([*query, "SELECT count(*) AS n FROM loadavg"], without))["n"] >= 4
