"""Options of transports: declared once, and the same on the command line, in Python, in validation and in the help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import click
import pytest

from rollbook.api.options import TransportOptions
from rollbook.cli import cli
from rollbook.cli.options import HEADINGS
from rollbook.errors import UsageError
from rollbook.transports.registry import BUILT_IN, load, options_of
from rollbook.transports.routing import Options, route
from tests.support.commands import Rollbook

COMMANDS = ["hosts", "snapshot", "exec", "run", "record", "watch", "check"]


@pytest.fixture(autouse=True)
def outside_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset Slurm's variables: the tests may run in a job."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("SLURM_JOBID", raising=False)


def help_of(name: str) -> str:
    """The output of `rollbook NAME --help` for a wide terminal."""
    context = click.Context(cli, info_name="rollbook")
    command = cli.get_command(context, name)
    assert command is not None
    return command.get_help(click.Context(command, context, name, terminal_width=200))


def test_python_keywords_match_declared_options() -> None:
    """The typed keywords name every option of every built-in transport, with its type."""
    hints = get_type_hints(TransportOptions)
    general = {"via", "fallback", "timeout"}
    declared = {name: option for transport in BUILT_IN for name, option in options_of(transport).items()}
    assert set(hints) - general == set(declared)
    for name, option in declared.items():
        if option.type != tuple[str, ...]:  # a single string is accepted as well
            assert hints[name] == option.type, name
        assert option.validate(option.default) == option.default


@pytest.mark.parametrize("name", BUILT_IN)
def test_transport_names(name: str) -> None:
    """Each transport has its registered name and a description."""
    assert vars(load(name))["name"] == name
    assert load(name).__doc__


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str) -> None:
    """Every declared option is listed once below `Transport`, with the transports that have it."""
    text = help_of(command)
    listed = [heading for heading in HEADINGS if f"\n{heading}:\n" in text]
    assert listed[:2] == ["Hosts", "Transport"]
    section = text.partition("\nTransport:\n")[2].partition("\n\n")[0]
    for transport in BUILT_IN:
        for option in options_of(transport).values():
            assert section.count(f"  {option.flag}") == 1
    assert "[slurm, mpi]" in section
    assert "--hostfile" not in section


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"via": "ssh", "slurm_args": "-p x"},
            "--slurm-args has no effect: it is an option of slurm, and --via is ssh",
        ),
        ({"via": "ssh", "connect_back": "none"}, "--connect-back .* an option of slurm and mpi, and --via is ssh"),
        ({"connect_back": "none"}, "--connect-back .* here --via auto uses local and ssh"),
        ({"via": "slurm", "oversubscribe": True}, "--oversubscribe .* an option of mpi"),
        ({"via": "local", "ssh_user": "ann"}, "--ssh-user .* an option of ssh"),
        ({"via": "slurm", "ssh_option": "x"}, "no transport has an option 'ssh_option'"),
        ({"via": "nosuch"}, "no transport is called 'nosuch'; available: auto, local, ssh, slurm, mpi"),
        ({"via": "ssh", "ssh_user": 5}, "--ssh-user 5: Expected `str"),
        ({"via": "ssh", "ssh_config": "/no/such"}, "--ssh-config '/no/such': no such file"),
        ({"via": "ssh", "ssh_config": Path("/")}, "--ssh-config '/': it is a directory"),
        ({"via": "mpi", "mpi_args": "--output file=x"}, "--output changes the output of the launcher"),
        ({"via": "mpi", "mpi_args": "-outfile-pattern x"}, "-outfile-pattern changes the output of the launcher"),
        ({"via": "mpi", "mpi_args": "'"}, "--mpi-args .* No closing quotation"),
        ({"via": "slurm", "slurm_args": "-ox"}, "-ox changes the output of the launcher"),
        ({"via": "slurm", "slurm_args": "--error=x"}, "--error=x changes the output of the launcher"),
        ({"fallback": "mpi"}, "the fallback must reach single hosts: mpi does not"),
        ({"timeout": float("inf")}, "--timeout must be a positive number of seconds, not inf"),
    ],
)
def test_refused_options(given: dict[str, object], message: str) -> None:
    """Options that do not exist, are invalid or would have no effect are refused by name."""
    with pytest.raises(UsageError, match=message):
        Options.of(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"via": "ssh", "slurm_args": "", "connect_back": None, "mpi_bin": "mpirun"},  # as a caller passes defaults on
        {"via": "mpi", "fallback": "ssh", "ssh_user": "ann"},
        {"via": "mpi", "mpi_args": "-x A --mca plm_rsh_agent 'ssh -o X'", "oversubscribe": True},
        {"via": "slurm", "slurm_args": "--export=ALL --overlap"},
        {"ssh_user": "ann"},
    ],
)
def test_accepted_options(given: dict[str, object]) -> None:
    """Defaults of other transports, options of the fallback, and options of transports that `auto` may choose."""
    route(Options.of(**given))  # type: ignore[arg-type]


def test_auto_inside_an_allocation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Inside an allocation `auto` uses slurm, so options of slurm are accepted."""
    (tmp_path / "srun").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    assert Options.of(slurm_args="--partition x").given == {"slurm_args": "--partition x"}


def test_command_line_option_without_effect(rollbook: Rollbook) -> None:
    """The command line refuses an option without effect, as the Python API does."""
    done = rollbook("snapshot", "-w", "localhost", "--via", "local", "--slurm-args", "-p x")
    assert done.code == 2
    assert done.err == "rollbook: --slurm-args has no effect: it is an option of slurm, and --via is local\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_of_all_commands_imports_no_transport(arguments: list[str]) -> None:
    """Importing transports would slow down `--help` and `--version`."""
    code = (
        "import sys\nfrom rollbook.cli import cli\n"
        f"try: cli.main({arguments})\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('rollbook.transports')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
