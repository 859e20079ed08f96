"""A source, a rule, a metric and a transport of one installed package: listed, documented, recorded and shown."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import plug_ins
from tests.support.commands import ROLLBOOK
from tests.support.plug_ins import PACKAGE, generated_docs
from tests.support.waits import until_sampled

OVER_IT = ["--via", "site", "--site-zone", "north"]


def run(argv: list[str], environ: dict[str, str]) -> str:
    """Run a program that must succeed; returns its standard output."""
    done = plug_ins.run(argv, environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("module", "most"), [("source", 20), ("rule", 30), ("metric", 20), ("transport", 60)])
def test_plug_ins_are_short(module: str, most: int) -> None:
    """Each needs only a few lines, also a transport with its own option."""
    assert len((PACKAGE / f"{module}.py").read_text().splitlines()) <= most


def test_a_metric_is_one_declaration() -> None:
    """Apart from its docstring and imports, its module has one statement."""
    statements = ast.parse((PACKAGE / "metric.py").read_text()).body[1:]
    assert [type(one) for one in statements if not isinstance(one, ast.ImportFrom)] == [ast.Assign]


def test_commands_list_and_explain_plug_ins(environ: dict[str, str]) -> None:
    """Commands list the source, and list and explain the rule; the help has the option of the transport."""
    assert "site-fabric-retried             warn  The fabric of a host had to retry.\n" in run(
        [*ROLLBOOK, "check", "--list"], environ
    )
    assert "Fix: Replace the cable." in run([*ROLLBOOK, "check", "--explain", "site-fabric-retried"], environ)
    assert "site_fabric" in run([*ROLLBOOK, "snapshot", "--list-sources"], environ)
    for command in ("run", "snapshot", "watch", "check"):
        assert "--site-zone ZONE" in run([*ROLLBOOK, command, "--help"], environ)


def test_generated_reference(environ: dict[str, str]) -> None:
    """The generated pages describe all four, and a schema the facts of the source."""
    pages = "docs.sources(), docs.rules(), docs.metrics_page(), docs.transports()"
    text = generated_docs(f'{pages}, docs.schemas()["snapshot-1"]', environ)
    assert "## site_fabric\n\n`/proc/uptime`: a site's fabric; a source as another package declares it.\n" in text
    assert "| retries | int | events | must not rise during a run |" in text
    assert "## site-fabric-retried\n\nThe fabric of a host had to retry.\n\n- **Why:** Retries delay" in text
    assert "## site_retries\n\nFabric retries, 1/s: Transfers that the fabric repeated.\n" in text
    assert "## site\n\nStart the agent in a zone of the site.\n" in text
    assert '"#/$defs/Fabric"' in text


def test_live_view(environ: dict[str, str]) -> None:
    """The metric has a column in the table of a host that is sampled over the transport."""
    shown = run([*ROLLBOOK, "watch", "--once", "--interval", "0.2", *OVER_IT], environ)
    assert "retries" in shown.splitlines()[0].lower().split()


def test_record(environ: dict[str, str], tmp_path: Path) -> None:
    """One run over the transport: the source is sampled, two rules find its retries, SQL and page have the metric.

    The record opens without the plug-ins.
    """
    options = [*OVER_IT, "--results-dir", str(tmp_path / "out"), "--timeseries-interval", "0.2"]
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
    row = json.loads(run([*query, "SELECT count(site_retries) AS n, max(site_retries) AS most FROM rates"], environ))
    assert row["n"] >= 4
    assert row["most"] > 0
    assert host["method"] == "site"
    rules = {rule["id"]: rule for rule in json.loads((record / "findings.json").read_text())["rules"]}
    message = f"site_fabric: retries {host['facts']['site_fabric']['retries']} ({host['name']})"
    assert [finding["message"] for finding in rules["site-fabric-retried"]["findings"]] == [message]
    assert rules["error-count-rose"]["outcome"] == "warn"
    page = (record / "report.html").read_text()
    assert message in page
    assert '"site-fabric-retried"' in page
    assert '"id":"site_retries"' in page
    assert '"title":"Fabric retries"' in page
    without = dict(os.environ)
    assert json.loads(run([*query, "SELECT count(*) AS n FROM loadavg"], without))["n"] >= 4
