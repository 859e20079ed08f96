"""The agent through real Slurm: a controller, and a slurmd in each of eight lab hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rollbook
from rollbook.hosts import Host
from rollbook.records.record import Record
from rollbook.testing import Lab
from rollbook.testing.lab.processes import living
from rollbook.testing.slurm import SlurmLab
from rollbook.transports.routing import Options, explain_auto, route
from rollbook.transports.slurm import Slurm
from rollbook.transports.ssh import Ssh
from tests.support.commands import ROLLBOOK
from tests.support.launchers import (
    INTERVAL,
    LONGEST_GAP,
    OPEN_MPI_5,
    HostProgress,
    build_mpi_program,
    impersonate,
    kill_agents,
    kill_children,
    read_progress,
    record,
    snapshot,
    stable_facts,
    until_no_agents,
)
from tests.support.records import is_whole
from tests.support.relay import start_relay
from tests.support.waits import READ_PAUSE, until, until_sampled


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Eight hosts whose processes stay from test to test."""
    with Lab(8) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Iterator[SlurmLab]:
    """A slurmd in every host."""
    with SlurmLab(lab.hosts) as slurm:
        yield slurm


@pytest.fixture
def job(cluster: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmLab]:
    """Run the test inside a job on all nodes."""
    environ = cluster.allocate(f"-N{len(cluster.nodes)}", "--exclusive", "--no-kill")
    for name, value in environ.items():
        if name.startswith("SLURM_"):
            monkeypatch.setenv(name, value)
    yield cluster
    cluster.ask("scancel", environ["SLURM_JOB_ID"])
    # If a node was lost, Slurm takes up to a minute to end the job; later tests do not need to wait for it.
    end = time.monotonic() + 5
    while cluster.ask("squeue", "-h") and time.monotonic() < end:
        time.sleep(0.05)


@pytest.fixture
def outside(cluster: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> SlurmLab:
    """Run the test with the cluster's configuration, outside a job."""
    monkeypatch.setenv("SLURM_CONF", cluster.environ["SLURM_CONF"])
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return cluster


def test_facts_are_equal_to_those_over_ssh(job: SlurmLab, lab: Lab) -> None:
    """Eight hosts have the same facts through srun and over ssh, field by field."""
    found = snapshot(Slurm(), job.nodes)
    expected = snapshot(Ssh(ssh_config=str(lab.ssh_config)), job.nodes)
    for name in job.nodes:
        assert (found[name].status, found[name].method) == ("complete", "slurm"), found[name].reason
        assert (found[name].hostname, found[name].machine_id) == (name, expected[name].machine_id)
        assert stable_facts(found[name].facts) == stable_facts(expected[name].facts)
        assert found[name].facts["addresses"] == expected[name].facts["addresses"]
    until_no_agents(lab.hosts)


def test_lines_on_stdout(job: SlurmLab, lab: Lab) -> None:
    """If agents cannot connect back, the same facts arrive on srun's stdout."""
    connected, lines = snapshot(Slurm(), job.nodes), snapshot(Slurm(connect_back="none"), job.nodes)
    for name in job.nodes:
        assert lines[name].status == "complete", lines[name].reason
        assert lines[name].clock is None
        assert stable_facts(lines[name].facts) == stable_facts(connected[name].facts)
    until_no_agents(lab.hosts)


def test_connect_back_address_drops_packets(job: SlurmLab, lab: Lab) -> None:
    """Agents give up connecting to an address that drops packets, and send lines instead."""
    nodes = job.nodes[:2]
    results = snapshot(Slurm(connect_back="10.255.255.1", timeout=45), nodes)
    assert [results[name].status for name in nodes] == ["complete", "complete"]
    assert [results[name].clock for name in nodes] == [None, None]
    until_no_agents(lab.hosts)


def test_auto_inside_an_allocation(job: SlurmLab) -> None:
    """Nodes of the allocation use Slurm, others the transport that they have outside; one line reports this."""
    options, hosts = Options(), [*map(Host, job.nodes), Host("elsewhere"), Host("localhost", local=True)]
    assert [route(options)(host).name for host in hosts] == ["slurm"] * 8 + ["ssh", "local"]
    number = os.environ["SLURM_JOB_ID"]
    assert explain_auto(options, hosts) == (
        f"via auto: slurm for 8 nodes of job {number}, local for this machine, ssh for 1 host"
    )


def test_hosts_default_to_the_allocation(job: SlurmLab) -> None:
    """Inside a job, the hosts are the nodes of the job, and `-w` can select some of them."""
    for extra, count in (((), 8), (("-w", "node[02-03]"), 2)):
        done = subprocess.run([*ROLLBOOK, "hosts", "--check", "--json", *extra], capture_output=True, check=False)
        answer = json.loads(done.stdout)
        assert done.returncode == 0, done.stderr
        assert [host["method"] for host in answer["hosts"]] == ["slurm"] * count
        assert b"via auto: slurm for" in done.stderr
    del job


def test_recording_does_not_block_job_steps(job: SlurmLab) -> None:
    """During a recording, steps that need all CPUs and all memory of the job start at once and run."""
    done: list[subprocess.CompletedProcess[str]] = []

    def benchmark() -> None:
        argv = ["srun", "-N8", "--ntasks-per-node=2", "--exact", "--mem=1000", "hostname"]
        done.append(subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60))

    hosts = record(Slurm(), job.nodes, 6, benchmark)
    assert done[0].returncode == 0, done[0].stderr
    assert len(done[0].stdout.split()) == 16
    for name, host in hosts.items():
        assert (host.gaps(), host.facts, host.lost) == (0, {"start": 1, "end": 1}, []), name


BATCH = """\
#!/bin/sh
export PATH={bin}:$PATH
rollbook run --timeseries-interval 0.5 --no-report --results-dir {directory}/results -- \
    mpirun --allow-run-as-root --bind-to none --map-by node --mca mpi_yield_when_idle 1 {program} 1 6
"""


@pytest.mark.alone
@pytest.mark.needs("cc")
def test_batch_script(outside: SlurmLab, lab: Lab) -> None:
    """A batch job runs an MPI program with `rollbook run`: all its nodes are recorded, and no beat is lost."""
    script, out = outside.directory / "job.sh", outside.directory / "job.out"
    script.write_text(
        BATCH.format(bin=OPEN_MPI_5, directory=outside.directory, program=build_mpi_program(outside.directory))
    )
    outside.ask("sbatch", "--nodes=4", "--ntasks-per-node=1", f"--output={out}", str(script))
    until(lambda: not outside.ask("squeue", "-h"), 90, 0.2)
    messages = out.read_text()
    (path,) = outside.directory.glob("results/generic/*")
    run = Record.open(path)
    assert "via auto: slurm for 4 nodes of job" in messages
    ranks, seconds, _ = map(float, messages.splitlines()[1].split())
    assert (ranks, seconds >= 6) == (4, True), messages
    assert [(host.status, host.method) for host in run.hosts.start + run.hosts.end] == [("complete", "slurm")] * 8
    for host in run.hosts.series:
        assert host.samples + host.missed >= 10
        assert is_whole(host)
    until_no_agents(lab.hosts)


def test_unusable_nodes(job: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that are down, drained or unknown have Slurm's reason; the others are complete."""
    down, drained, *fine = job.nodes
    job.kill_slurmd(down)
    job.ask("scontrol", "update", f"nodename={down}", "state=down", "reason=bad disk")
    job.ask("scontrol", "update", f"nodename={drained}", "state=drain", "reason=to be moved")
    try:
        inside = snapshot(Slurm(), [*job.nodes, "nosuch"])
        monkeypatch.delenv("SLURM_JOB_ID")
        monkeypatch.delenv("SLURM_JOBID")
        monkeypatch.delenv("SLURM_JOB_NODELIST")
        job.ask("scancel", "--user=root")
        until(lambda: not job.ask("squeue", "-h"))
        outside = snapshot(Slurm(slurm_args="--partition=all"), [*job.nodes, "nosuch"])
    finally:
        job.start_slurmd(down)
        job.ask("scontrol", "update", f"nodename={drained}", "state=resume")
    assert {inside[name].status for name in (drained, *fine)} == {"complete"}
    assert (inside[down].status, "bad disk" in inside[down].reason) == ("unreachable", True)
    assert inside["nosuch"].reason == "Slurm knows no node with this name"
    assert {outside[name].status for name in fine} == {"complete"}
    assert (outside[down].status, "bad disk" in outside[down].reason) == ("unreachable", True)
    assert (outside[drained].status, "to be moved" in outside[drained].reason) == ("refused", True)
    assert (outside["nosuch"].status, outside["nosuch"].reason) == ("unreachable", "Slurm knows no node with this name")


@pytest.mark.parametrize("connect_back", [None, "none"])
def test_impersonation(job: SlurmLab, lab: Lab, monkeypatch: pytest.MonkeyPatch, connect_back: str | None) -> None:
    """If a host claims to be another, by connection or by lines, both are incomplete with the reason."""
    assert job.nodes[:3] == [host.name for host in lab.hosts[:3]]
    impersonate(lab, lambda python: Slurm(connect_back=connect_back, python=python), monkeypatch)


def test_relay_between_agent_and_collector(job: SlurmLab, lab: Lab) -> None:
    """An agent does not obey orders that a user of another node inserts; only its host is lost."""
    victim, other = lab.hosts[:2]
    owned, log = Path("/tmp/owned"), Path("/tmp/relay")
    start_relay(other, owned, log, raw=False)
    hosts = record(Slurm(connect_back=other.address), [victim.name, other.name], 6)
    assert (bool(hosts[victim.name].lost), hosts[other.name].lost, hosts[other.name].gaps()) == (True, [], 0)
    assert other.run(["cat", str(log)], check=True).stdout == ""
    assert victim.run(["ls", str(owned)]).returncode != 0
    until_no_agents(lab.hosts)
    del job


def test_allocation_is_not_granted(outside: SlurmLab) -> None:
    """The reason is Slurm's message, and no job is left in the queue."""
    results = snapshot(Slurm(slurm_args="--partition=nosuch"), outside.nodes)
    assert {result.status for result in results.values()} == {"refused"}
    assert all("invalid partition" in result.reason for result in results.values())
    [result] = snapshot(Slurm(slurm_args="--mem=999999"), outside.nodes[:1]).values()
    assert result.status == "refused"
    assert "Requested node configuration is not available" in result.reason
    until(lambda: not outside.ask("squeue", "-h"))


@pytest.mark.parametrize("options", [[], ["--connect-back", "none"]], ids=["connections", "lines"])
def test_heterogeneous_job(outside: SlurmLab, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    """One srun reaches all groups of a heterogeneous job; it labels lines with the ranks of the whole job."""
    argv = ["salloc", "--immediate=60", "-N1", "-w", "node01", ":", "-N2", "-w", "node[02-03]", *ROLLBOOK]
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    done = subprocess.run(
        [*argv, "hosts", "--check", "--json", *options],
        env=outside.environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    messages = {host["name"]: (host["status"], host.get("reason", "")) for host in answer["hosts"]}
    assert messages == {f"node0{n}": ("complete", "") for n in (1, 2, 3)}, done.stderr


def test_srun_is_killed(job: SlurmLab, lab: Lab) -> None:
    """The recording restarts srun; every host has start and end facts.

    Start facts may come twice: an agent that cannot connect in time, on a very busy machine, follows the orders in its
    arguments, which begin with them.
    """
    hosts = record(Slurm(), job.nodes, 4, lambda: kill_children("srun"), returning=job.nodes)
    for name, host in hosts.items():
        assert host.facts.keys() == {"start", "end"}, (name, host)
        assert host.gaps() * INTERVAL <= LONGEST_GAP, name
    until_no_agents(lab.hosts)


def test_interrupted(job: SlurmLab, lab: Lab) -> None:
    """Ctrl-C ends the step and every agent."""
    # Delays only the first snapshot: later calls fail at once.
    lab["node01"].programs({"nvidia-smi": "#!/bin/sh\nmkdir /run/waited && sleep 30\n"})
    running = subprocess.Popen([*ROLLBOOK, "snapshot", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: "sleep 30" in [command for _, command in lab["node01"].processes()])
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert len(json.loads(out)["hosts"]) == 8
    until_no_agents(lab.hosts)
    variable = f"SLURM_CONF={job.environ['SLURM_CONF']}"
    until(lambda: not [one for one in living() if one.name == "srun" and one.has_environment(variable)])
    del job


def continued_without(found: dict[str, HostProgress], name: str) -> bool:
    """Whether a host was lost, and each of the others has a few beats since then."""
    lost, others = found[name], [host for other, host in found.items() if other != name]
    return bool(lost.lost) and all(sum(beat > lost.lost_ns for beat in host.beats) >= 3 for host in others)


@pytest.mark.parametrize("stopped", [False, True])
def test_record_status_and_exit_code(job: SlurmLab, lab: Lab, tmp_path: Path, stopped: bool) -> None:
    """A lost node is partial, with exit code 3; after SIGTERM alone all nodes have their end facts."""
    argv = ["record", "--timeseries-interval", "1", "--no-report", "--results-dir", str(tmp_path)]
    argv += ["--duration", "180"]  # only if this test fails before it sends the signal
    with subprocess.Popen([*ROLLBOOK, *argv], stderr=subprocess.PIPE, text=True) as running:
        until_sampled(tmp_path, hosts=8, samples=3)
        (path,) = tmp_path.glob("record/*")
        if not stopped:
            kill_agents(lab["node03"])
            until(lambda: continued_without(read_progress(path / "raw", job.nodes), "node03"), pause=READ_PAUSE)
        running.send_signal(signal.SIGTERM)
        _, messages = running.communicate(timeout=60)
    run = Record.open(path)
    lost = [host.name for host in run.hosts.end if host.status != "complete"]
    assert "via auto: slurm for 8 nodes" in messages
    assert "Traceback" not in messages
    assert {host.status for host in run.hosts.start} == {"complete"}
    assert lost == ([] if stopped else ["node03"]), messages
    partial = [host.name for host in run.hosts.series if host.status != "complete"]  # some may have been too busy
    assert [host.name for host in run.hosts.series if not is_whole(host)] == lost
    assert running.returncode == (3 if partial else 0), messages
    assert ("partial  node03: " in messages) == ("node03" in partial)
    assert all(host.samples >= 2 for host in run.hosts.series)
    until_no_agents(lab.hosts)


def test_nodes_on_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several slurmd on one machine are distinguished by node name, and have the same machine id."""
    del tmp_path
    with SlurmLab([f"n{number}" for number in range(1, 9)]) as slurm:
        for name, value in slurm.allocate("-N8").items():
            monkeypatch.setenv(name, value)
        results = snapshot(Slurm(), slurm.nodes)
    assert [result.status for result in results.values()] == ["complete"] * 8
    assert len({result.machine_id for result in results.values()}) == 1
    assert not [one.cmdline for one in living() if one.has_environment(f"SLURM_CONF={slurm.environ['SLURM_CONF']}")]


@pytest.mark.parametrize("connect_back", [None, "none"])
def test_exec(job: SlurmLab, lab: Lab, connect_back: str | None) -> None:
    """A command runs on all nodes, through connections or the output of srun; an unknown node has a reason."""
    done = rollbook.execute("uname -n; exit 5", [*job.nodes, "nosuch"], via="slurm", connect_back=connect_back)
    assert [(host.status, host.exit_status, host.stdout) for host in done.hosts[:-1]] == [
        ("complete", 5, f"{name}\n") for name in job.nodes
    ]
    assert (done.hosts[-1].status, bool(done.hosts[-1].reason), done.exit_code) == ("unreachable", True, 3)
    until_no_agents(lab.hosts)


@pytest.mark.parametrize("connect_back", [None, "none"])
def test_bundle(job: SlurmLab, lab: Lab, tmp_path: Path, connect_back: str | None) -> None:
    """Items of every node are read, through connections or the output of srun; an unknown node has a reason."""
    names = [*job.nodes[:3], "nosuch"]
    taken = rollbook.take_bundle(
        names,
        via="slurm",
        connect_back=connect_back,
        items=["os"],
        commands=["uname -n; seq 3000"],
        once=False,
        output=tmp_path,
    )
    assert [(node.node, node.status, node.reason) for node in taken.summary.results] == [
        *((name, "complete", "") for name in names[:3]),
        ("nosuch", "unreachable", "Slurm knows no node with this name"),
    ]
    for name in names[:3]:
        [file] = taken.path.glob(f"nodes/{name}/command-1/*")
        assert file.read_text() == "\n".join([name, *map(str, range(1, 3001)), ""])
    until_no_agents(lab.hosts)


def test_interrupted_exec(job: SlurmLab, lab: Lab) -> None:
    """Ctrl-C ends the command on all nodes."""
    argv = [*ROLLBOOK, "exec", "--via", "slurm", "-w", ",".join(job.nodes), "--live", "--", "echo up; sleep 4321"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in job.nodes:
            assert process.stdout.readline().endswith(": up\n")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    until(lambda: not any("sleep 4321" in command for host in lab.hosts for _, command in host.processes()))
    until_no_agents(lab.hosts)


# These run last: slurmd is not restarted.
def _kill_slurmd(job: SlurmLab, _lab: Lab) -> None:
    job.kill_slurmd("node03")


def _kill_agent(_job: SlurmLab, lab: Lab) -> None:
    kill_agents(lab["node03"])


@pytest.mark.parametrize("kill", [_kill_agent, _kill_slurmd])
def test_node_or_agent_is_lost(job: SlurmLab, lab: Lab, kill: Callable[[SlurmLab, Lab], None]) -> None:
    """If a node or its agent dies halfway, its samples are kept; the other nodes are complete."""
    hosts = record(Slurm(), job.nodes, 6, lambda: kill(job, lab), losing=["node03"])
    lost = hosts.pop("node03")
    assert len(lost.beats) >= 2
    assert lost.facts == {"start": 1}
    assert lost.lost
    for name, host in hosts.items():
        assert (host.gaps(), host.facts, host.lost, host.goodbye) == (0, {"start": 1, "end": 1}, [], True), name
    until_no_agents(lab.hosts)
