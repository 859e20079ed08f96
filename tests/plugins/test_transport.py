"""A transport of another installed package: its option works in the help, in checks, in Python and in the reference."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from rollbook.transports.registry import BUILT_IN, options_of
from tests.support.commands import ROLLBOOK
from tests.support.plug_ins import PACKAGE, generated_docs, install, run

MODULE = PACKAGE / "transport.py"


def test_help(environ: dict[str, str]) -> None:
    """The help lists the option with its default, and the transport among those that have `--python`."""
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
        (["--via", "sites"], f"available: auto, {', '.join(BUILT_IN)}, site"),
    ],
)
def test_invalid_options_are_refused(environ: dict[str, str], arguments: list[str], message: str) -> None:
    """Values of the option are checked; options of another transport, or of an unused one, are refused."""
    done = run([*ROLLBOOK, "snapshot", *arguments], environ)
    assert done.returncode == 2
    assert message in done.stderr


def test_option_reaches_the_agent(environ: dict[str, str], tmp_path: Path) -> None:
    """The option can be given on the command line, in Python and to `run`, whose record contains it."""
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
def test_plug_in_as_fallback(environ: dict[str, str], arguments: list[str], variables: dict[str, str]) -> None:
    """The option is accepted if the transport is the fallback, and a host that ssh cannot reach is read through it."""
    unreachable = ["-w", "127.0.0.1", "--via", "ssh", "--ssh-option", "Port=1"]
    done = run([*ROLLBOOK, "snapshot", "--source", "loadavg", "--json", *unreachable, *arguments], environ | variables)
    assert done.returncode == 0, done.stderr
    (host,) = json.loads(done.stdout)["hosts"]
    assert (host["status"], host["method"]) == ("complete", "site")


def test_two_plug_ins(environ: dict[str, str], tmp_path: Path) -> None:
    """One plug-in is the transport and another the fallback: the options of both are accepted and checked."""
    second = MODULE.read_text().replace("site_zone", "annex_zone").replace('"site"', '"annex"').replace("Site", "Annex")
    (tmp_path / "site" / "annex_transport.py").write_text(second)
    install(tmp_path / "site", "annex", "[rollbook.transports]\nannex = annex_transport:Annex\n")
    arguments = ["--via", "site", "--site-zone", "north", "--fallback", "annex", "--annex-zone"]
    snapshot = [*ROLLBOOK, "snapshot", "--source", "loadavg", "--json", *arguments]
    (host,) = json.loads(run([*snapshot, "south"], environ).stdout)["hosts"]
    assert (host["status"], host["method"]) == ("complete", "site")
    assert "--annex-zone '5': a zone has letters only" in run([*snapshot, "5"], environ).stderr


def test_generated_reference(environ: dict[str, str]) -> None:
    """The generated pages describe the transport and its option."""
    text = generated_docs("docs.transports(), docs.commands()", environ)
    assert "## site\n\nStart the agent in a zone of the site.\n" in text
    assert "| `--site-zone` | `site_zone` | str | `'main'` | Zone of the hosts. |" in text


def test_broken_plug_in(environ: dict[str, str], tmp_path: Path) -> None:
    """A plug-in that redeclares an option is named in a warning and does not break the help; using it is an error."""
    module = tmp_path / "site" / "site_fabric" / "transport.py"
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
