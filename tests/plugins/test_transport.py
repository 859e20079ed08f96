"""A transport of another installed package: its option is in the help, in checks, in Python and in the reference."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rollbook.transports.registry import BUILT_IN, options_of
from tests.support.commands import ROLLBOOK

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "tests" / "support" / "plugged_transport.py"
DOCS = f"""
from importlib.machinery import SourceFileLoader
docs = SourceFileLoader("docs", {str(ROOT / "scripts" / "docs")!r}).load_module()
print(docs.transports(), docs.commands())
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment in which the package is installed."""
    site, information = tmp_path / "site", tmp_path / "site" / "site_transport-1.0.dist-info"
    information.mkdir(parents=True)
    shutil.copy(MODULE, site / "site_transport.py")
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: site-transport\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[rollbook.transports]\nsite = site_transport:Site\n")
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}


def run(argv: list[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def test_length() -> None:
    """A transport with an option of its own is a short module."""
    assert len(MODULE.read_text().splitlines()) <= 60


def test_help(environ: dict[str, str]) -> None:
    """The option is listed with its default, and `--python` as an option of this transport, too."""
    text = " ".join(run([*ROLLBOOK, "snapshot", "--help"], environ).stdout.split())
    assert "--site-zone ZONE Zone of the hosts. [site] [default: main]" in text
    assert f"[{', '.join(name for name in BUILT_IN if 'python' in options_of(name))}, site]" in text
    assert "--site-zone" not in run([*ROLLBOOK, "snapshot", "--help"], dict(os.environ)).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--via", "site", "--site-zone", "5"], "--site-zone '5': a zone has letters only"),
        (["--via=site", "--ssh-user", "ann"], "--ssh-user has no effect: it is an option of ssh, and --via is site"),
        (["--site-zone", "north"], "no such option: --site-zone"),
        (["--via", "sites"], f"there are: auto, {', '.join(BUILT_IN)}, site"),
    ],
)
def test_refused(environ: dict[str, str], arguments: list[str], message: str) -> None:
    """Its values are checked; options of others, and its own without it, are refused."""
    done = run([*ROLLBOOK, "snapshot", *arguments], environ)
    assert done.returncode == 2
    assert message in done.stderr


def test_used(environ: dict[str, str], tmp_path: Path) -> None:
    """The option reaches the agent, from the command line, from Python and in `run`, whose record names it."""
    sources = ["--source", "environment", "--source", "loadavg"]
    arguments = ["snapshot", *sources, "--json", "--via", "site", "--site-zone", "north"]
    (host,) = json.loads(run([*ROLLBOOK, *arguments], environ).stdout)["hosts"]
    assert (host["status"], host["method"]) == ("complete", "site")
    code = "import rollbook; print(rollbook.snapshot(via='site', site_zone='north', sources='loadavg').hosts[0].method)"
    assert run([sys.executable, "-c", code], environ).stdout == "site\n"
    arguments = ["run", "--via", "site", "--site-zone", "north", "--results-dir", str(tmp_path / "out"), "--no-report"]
    assert run([*ROLLBOOK, *arguments, "--skip-timeseries", "--", "true"], environ).returncode == 0
    (metadata,) = (tmp_path / "out").glob("*/*/*_metadata.json")
    assert json.loads(metadata.read_text())["args"]["site_zone"] == "north"


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--site-zone=north", "--fallback=site"], {}),
        (["--site-zone", "north"], {"ROLLBOOK_FALLBACK": "site"}),
    ],
    ids=["typed", "configured"],
)
def test_used_as_fallback(environ: dict[str, str], arguments: list[str], variables: dict[str, str]) -> None:
    """The option is accepted if the transport is the fallback, and a host that ssh cannot reach is read through it."""
    unreachable = ["-w", "127.0.0.1", "--via", "ssh", "--ssh-option", "Port=1"]
    done = run([*ROLLBOOK, "snapshot", "--source", "loadavg", "--json", *unreachable, *arguments], environ | variables)
    assert done.returncode == 0, done.stderr
    (host,) = json.loads(done.stdout)["hosts"]
    assert (host["status"], host["method"]) == ("complete", "site")


def test_two(environ: dict[str, str], tmp_path: Path) -> None:
    """One plug-in as transport and another as fallback: both have their options."""
    second = MODULE.read_text().replace("site_zone", "annex_zone").replace('"site"', '"annex"').replace("Site", "Annex")
    (tmp_path / "site" / "annex_transport.py").write_text(second)
    entries = "[rollbook.transports]\nsite = site_transport:Site\nannex = annex_transport:Annex\n"
    (tmp_path / "site" / "site_transport-1.0.dist-info" / "entry_points.txt").write_text(entries)
    arguments = ["--via", "site", "--site-zone", "north", "--fallback", "annex", "--annex-zone"]
    snapshot = [*ROLLBOOK, "snapshot", "--source", "loadavg", "--json", *arguments]
    (host,) = json.loads(run([*snapshot, "south"], environ).stdout)["hosts"]
    assert (host["status"], host["method"]) == ("complete", "site")
    assert "--annex-zone '5': a zone has letters only" in run([*snapshot, "5"], environ).stderr


def test_reference(environ: dict[str, str]) -> None:
    """The generated pages describe it."""
    text = run([sys.executable, "-W", "ignore", "-c", DOCS], environ).stdout
    assert "## site\n\nStart the agent in a zone of the site.\n" in text
    assert "| `--site-zone` | `site_zone` | str | `'main'` | Zone of the hosts. |" in text


def test_broken(environ: dict[str, str], tmp_path: Path) -> None:
    """One that cannot be loaded is named in a warning and breaks no help; one that changes an option is refused."""
    module = tmp_path / "site" / "site_transport.py"
    module.write_text(MODULE.read_text().replace("site_zone: Annotated", "ssh_user: Annotated"))
    done = run([*ROLLBOOK, "hosts", "--help"], environ)
    assert done.returncode == 0
    assert "--hostfile" in done.stdout
    assert "warning: the transport 'site' cannot be loaded" in done.stderr
    assert "declares --ssh-user, which ssh declares differently" in done.stderr
    module.write_text("raise RuntimeError('no licence')")
    done = run([*ROLLBOOK, "snapshot", "--via", "site"], environ)
    assert done.returncode == 2
    assert "the transport 'site' cannot be loaded: RuntimeError('no licence')" in done.stderr
