"""Sources, rules and transports that another installed package brings, in real runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROLLBOOK = [sys.executable, "-c", "from rollbook.cli import main; main()"]
FILES = {
    "site_plugs/__init__.py": "",
    "site_plugs/uptimes.py": '''"""/proc/uptime, as a site wants it."""
from typing import Annotated
from rollbook.sources.base import File, Facts, gauge

class Uptimes(Facts):
    up: Annotated[float, gauge("s")]

def parse(text: str) -> Uptimes:
    return Uptimes(float(text.split()[0]))

SOURCE = File("/proc/uptime", parse, every=1)
''',
    "site_plugs/way.py": """import dataclasses
from rollbook.transports.local import Local

@dataclasses.dataclass(frozen=True)
class Way(Local):
    name = "site"
""",
    "site_plugs/rules.py": """from rollbook.records.findings import Finding
from rollbook.checks.rule import Manual, Rule
from site_plugs.uptimes import Uptimes

def check(run):
    for host, found in run.each(Uptimes):
        yield Finding(message=f"up for {found.up > 0}", hosts=[host.name])

RULE = Rule("site-uptime", "warn", (Uptimes,), check, Manual("What.", "Why.", "Example.", "Fix.", "Reference."))
""",
    "site_plugs-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: site-plugs\nVersion: 1.0\n",
    "site_plugs-1.0.dist-info/entry_points.txt": (
        "[rollbook.sources]\nuptimes = site_plugs.uptimes\n"
        "[rollbook.transports]\nsite = site_plugs.way:Way\n"
        "[rollbook.rules]\nsite = site_plugs.rules:RULE\n"
    ),
}


@pytest.fixture
def package(tmp_path: Path) -> dict[str, str]:
    """The package, installed as a directory on the path; gives the environment in which it is."""
    for name, text in FILES.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    paths = os.pathsep.join(filter(None, (str(tmp_path / "site"), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": paths}


def test_a_package_with_all_of_them(tmp_path: Path, package: dict[str, str]) -> None:
    """Its source is sampled, queried and checked by its rule, over its transport; without it the record still opens."""

    def rollbook(*argv: str, environment: dict[str, str] = package) -> str:
        done = subprocess.run(
            [*ROLLBOOK, *argv], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    options = ("--via", "site", "--results-dir", "out", "--timeseries-interval", "0.2", "--no-report")
    rollbook("run", *options, "--", "sleep", "1")
    [record] = (tmp_path / "out").glob("*/*")
    host = json.loads((record / "hosts.json").read_text())["start"][0]
    assert host["method"] == "site"
    assert host["facts"]["uptimes"]["up"] > 0
    asked = ("query", str(record), "SELECT count(*) AS n, min(up) AS up FROM uptimes", "--format", "json")
    row = json.loads(rollbook(*asked))
    assert row["n"] >= 4
    assert row["up"] > 0
    found = json.loads((record / "findings.json").read_text())
    assert [rule["outcome"] for rule in found["rules"] if rule["id"] == "site-uptime"] == ["warn"]
    without = ("query", str(record), "SELECT count(*) AS n FROM loadavg", "--format", "json")
    assert json.loads(rollbook(*without, environment=dict(os.environ)))["n"] >= 4
