"""A source and a rule of another installed package are listed, documented, sampled, checked and on the page."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import plug_ins
from tests.support.commands import ROLLBOOK
from tests.support.plug_ins import ROOT, generated_docs, install, with_python_path
from tests.support.waits import until_sampled

ENTRY_POINTS = """
[rollbook.sources]
site_fabric = tests.support.plugged
[rollbook.rules]
site = tests.support.plugged_rule
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment in which the package is installed."""
    install(tmp_path / "site", "site-fabric", ENTRY_POINTS)
    return with_python_path(tmp_path / "site", ROOT)


def run(argv: list[str], environ: dict[str, str]) -> str:
    """Run a program that must succeed; returns its standard output."""
    done = plug_ins.run(argv, environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("module", "most"), [("plugged", 20), ("plugged_rule", 30)])
def test_plug_ins_are_short(module: str, most: int) -> None:
    """A source and a rule need only a few lines."""
    assert len((ROOT / "tests" / "support" / f"{module}.py").read_text().splitlines()) <= most


def test_commands_list_and_explain_plug_ins(environ: dict[str, str]) -> None:
    """Commands list and explain the source and the rule."""
    assert "site-fabric-retried             warn  The fabric of a host had to retry.\n" in run(
        [*ROLLBOOK, "check", "--list"], environ
    )
    assert "Fix: Replace the cable." in run([*ROLLBOOK, "check", "--explain", "site-fabric-retried"], environ)
    assert "site_fabric" in run([*ROLLBOOK, "snapshot", "--list-sources"], environ)


def test_generated_reference(environ: dict[str, str]) -> None:
    """The generated pages and schemas describe the source and the rule."""
    text = generated_docs('docs.sources(), docs.rules(), docs.schemas()["snapshot-1"]', environ)
    assert "## site_fabric\n\n`/proc/uptime`: a site's fabric; a source as another package declares it.\n" in text
    assert "| retries | int | events | must not rise during a run |" in text
    assert "## site-fabric-retried\n\nThe fabric of a host had to retry.\n\n- **Why:** Retries delay" in text
    assert '"#/$defs/Fabric"' in text


def test_record(environ: dict[str, str], tmp_path: Path) -> None:
    """The source is sampled, two rules find its retries, the page shows them; the record opens without the plug-ins."""
    options = ["--via", "local", "--results-dir", str(tmp_path / "out"), "--timeseries-interval", "0.2"]
    sampled = tmp_path / "sampled"
    command = ["sh", "-c", f"for n in $(seq 600); do [ -e {sampled} ] && break; sleep 0.1; done"]
    with subprocess.Popen([*ROLLBOOK, "run", *options, "--", *command], env=environ) as running:
        until_sampled(tmp_path / "out", hosts=1, samples=8)  # more than one second, so that the uptime rises
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
