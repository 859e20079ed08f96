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
    Heard,
    built,
    heard,
    impersonate,
    kill_agents,
    kill_children,
    lasting,
    nothing_left,
    record,
    snapshot,
)
from tests.support.records import is_whole
from tests.support.relay import start_relay
from tests.support.waits import READ_PAUSE, until, until_sampled


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Eight hosts that keep what runs on them from test to test."""
    with Lab(8) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Iterator[SlurmLab]:
    """A slurmd in every host."""
    with SlurmLab(lab.hosts) as slurm:
        yield slurm


@pytest.fixture
def job(cluster: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmLab]:
    """We are inside a job on all nodes."""
    environ = cluster.allocate(f"-N{len(cluster.nodes)}", "--exclusive", "--no-kill")
    for name, value in environ.items():
        if name.startswith("SLURM_"):
            monkeypatch.setenv(name, value)
    yield cluster
    cluster.ask("scancel", environ["SLURM_JOB_ID"])
    # After the loss of a node Slurm gives its job a minute to end.
    end = time.monotonic() + 5
    while cluster.ask("squeue", "-h") and time.monotonic() < end:
        time.sleep(0.05)


@pytest.fixture
def outside(cluster: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> SlurmLab:
    """We know of the cluster and have no job."""
    monkeypatch.setenv("SLURM_CONF", cluster.environ["SLURM_CONF"])
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return cluster


def test_the_same_facts_as_over_ssh(job: SlurmLab, lab: Lab) -> None:
    """Eight hosts through srun and through ssh: the same facts, field by field."""
    through = snapshot(Slurm(), job.nodes)
    over = snapshot(Ssh(ssh_config=str(lab.ssh_config)), job.nodes)
    for name in job.nodes:
        assert (through[name].status, through[name].method) == ("complete", "slurm"), through[name].reason
        assert (through[name].hostname, through[name].machine_id) == (name, over[name].machine_id)
        assert lasting(through[name].facts) == lasting(over[name].facts)
        assert through[name].facts["addresses"] == over[name].facts["addresses"]
    nothing_left(lab.hosts)


def test_lines_on_stdout(job: SlurmLab, lab: Lab) -> None:
    """Where no agent can connect back, the same facts come on srun's stdout."""
    back, lines = snapshot(Slurm(), job.nodes), snapshot(Slurm(connect_back="none"), job.nodes)
    for name in job.nodes:
        assert lines[name].status == "complete", lines[name].reason
        assert lines[name].clock is None
        assert lasting(lines[name].facts) == lasting(back[name].facts)
    nothing_left(lab.hosts)


def test_connections_that_are_swallowed(job: SlurmLab, lab: Lab) -> None:
    """An address that drops packets costs a few seconds, then lines carry everything."""
    nodes = job.nodes[:2]
    results = snapshot(Slurm(connect_back="10.255.255.1", timeout=45), nodes)
    assert [results[name].status for name in nodes] == ["complete", "complete"]
    assert [results[name].clock for name in nodes] == [None, None]
    nothing_left(lab.hosts)


def test_auto_inside_an_allocation(job: SlurmLab) -> None:
    """The allocation's nodes go through Slurm, others as they would outside; one line says so."""
    options, hosts = Options(), [*map(Host, job.nodes), Host("elsewhere"), Host("localhost", local=True)]
    assert [route(options)(host).name for host in hosts] == ["slurm"] * 8 + ["ssh", "local"]
    number = os.environ["SLURM_JOB_ID"]
    assert explain_auto(options, hosts) == (
        f"via auto: slurm for 8 nodes of job {number}, local for this machine, ssh for 1 host"
    )


def test_hosts_default_to_the_allocation(job: SlurmLab) -> None:
    """The command line needs no host option inside a job, also as a subset."""
    for extra, count in (((), 8), (("-w", "node[02-03]"), 2)):
        done = subprocess.run([*ROLLBOOK, "hosts", "--check", "--json", *extra], capture_output=True, check=False)
        answer = json.loads(done.stdout)
        assert done.returncode == 0, done.stderr
        assert [host["method"] for host in answer["hosts"]] == ["slurm"] * count
        assert b"via auto: slurm for" in done.stderr
    del job


def test_beside_the_jobs_own_steps(job: SlurmLab) -> None:
    """While we sample, steps that take all CPUs and all memory of the job start at once and run."""
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
def test_a_batch_script(outside: SlurmLab, lab: Lab) -> None:
    """A job runs a real MPI program with `rollbook run`: all its nodes are recorded, and no beat is lost."""
    script, out = outside.directory / "job.sh", outside.directory / "job.out"
    script.write_text(BATCH.format(bin=OPEN_MPI_5, directory=outside.directory, program=built(outside.directory)))
    outside.ask("sbatch", "--nodes=4", "--ntasks-per-node=1", f"--output={out}", str(script))
    until(lambda: not outside.ask("squeue", "-h"), 90, 0.2)
    said = out.read_text()
    (path,) = outside.directory.glob("results/generic/*")
    run = Record.open(path)
    assert "via auto: slurm for 4 nodes of job" in said
    ranks, seconds, _ = map(float, said.splitlines()[1].split())
    assert (ranks, seconds >= 6) == (4, True), said
    assert [(host.status, host.method) for host in run.hosts.start + run.hosts.end] == [("complete", "slurm")] * 8
    for host in run.hosts.series:
        assert host.samples + host.missed >= 10
        assert is_whole(host)
    nothing_left(lab.hosts)


def test_named_statuses(job: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that are down, drained, unknown or another job's: each says so in Slurm's words; the rest are complete."""
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
        while job.ask("squeue", "-h"):
            time.sleep(0.05)
        outside = snapshot(Slurm(slurm_args="--partition=all"), [*job.nodes, "nosuch"])
    finally:
        job.start_slurmd(down)
        job.ask("scontrol", "update", f"nodename={drained}", "state=resume")
    assert {inside[name].status for name in (drained, *fine)} == {"complete"}
    assert (inside[down].status, "bad disk" in inside[down].reason) == ("unreachable", True)
    assert inside["nosuch"].reason in ("Slurm knows no node with this name", "not one of the nodes of job 1")
    assert {outside[name].status for name in fine} == {"complete"}
    assert (outside[down].status, "bad disk" in outside[down].reason) == ("unreachable", True)
    assert (outside[drained].status, "to be moved" in outside[drained].reason) == ("refused", True)
    assert (outside["nosuch"].status, outside["nosuch"].reason) == ("unreachable", "Slurm knows no node with this name")


@pytest.mark.parametrize("back", [None, "none"])
def test_a_host_that_claims_to_be_another(
    job: SlurmLab, lab: Lab, monkeypatch: pytest.MonkeyPatch, back: str | None
) -> None:
    """By connection and by lines, both hosts are incomplete, with the reason."""
    assert job.nodes[:3] == [host.name for host in lab.hosts[:3]]
    impersonate(lab, lambda python: Slurm(connect_back=back, python=python), monkeypatch)


def test_a_relay_between_agent_and_collector(job: SlurmLab, lab: Lab) -> None:
    """An agent does not obey orders that a user of another node inserts: its host is lost, and no other."""
    victim, other = lab.hosts[:2]
    owned, log = Path("/tmp/owned"), Path("/tmp/relay")
    start_relay(other, owned, log, raw=False)
    hosts = record(Slurm(connect_back=other.address), [victim.name, other.name], 6)
    assert (bool(hosts[victim.name].lost), hosts[other.name].lost, hosts[other.name].gaps()) == (True, [], 0)
    assert other.run(["cat", str(log)], check=True).stdout == ""
    assert victim.run(["ls", str(owned)]).returncode != 0
    nothing_left(lab.hosts)
    del job


def test_an_allocation_that_is_not_granted(outside: SlurmLab) -> None:
    """Slurm's own words are the reason, and nothing is left in its queue."""
    results = snapshot(Slurm(slurm_args="--partition=nosuch"), outside.nodes)
    assert {result.status for result in results.values()} == {"refused"}
    assert all("invalid partition" in result.reason for result in results.values())
    results = snapshot(Slurm(slurm_args="--mem=999999", timeout=7.5), outside.nodes[:1])
    assert [result.status in ("refused", "timed-out") for result in results.values()] == [True]
    until(lambda: not outside.ask("squeue", "-h"))


@pytest.mark.parametrize("back", [[], ["--connect-back", "none"]], ids=["connections", "lines"])
def test_heterogeneous_job(outside: SlurmLab, monkeypatch: pytest.MonkeyPatch, back: list[str]) -> None:
    """All groups of a heterogeneous job are reached by one srun, which labels lines with ranks of the whole job."""
    argv = ["salloc", "--immediate=60", "-N1", "-w", "node01", ":", "-N2", "-w", "node[02-03]", *ROLLBOOK]
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    done = subprocess.run(
        [*argv, "hosts", "--check", "--json", *back],
        env=outside.environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    said = {host["name"]: (host["status"], host.get("reason", "")) for host in answer["hosts"]}
    assert said == {f"node0{n}": ("complete", "") for n in (1, 2, 3)}, done.stderr


def test_srun_is_killed(job: SlurmLab, lab: Lab) -> None:
    """The recording starts it again; every host has its start and its end."""
    hosts = record(Slurm(), job.nodes, 4, lambda: kill_children("srun"), again=job.nodes)
    for name, host in hosts.items():
        assert host.facts == {"start": 1, "end": 1}, name
        assert host.gaps() * INTERVAL <= LONGEST_GAP, name
    nothing_left(lab.hosts)


def test_interrupted(job: SlurmLab, lab: Lab) -> None:
    """Ctrl-C ends the step and every agent."""
    # Keeps this snapshot waiting, and no other: the second time it has nothing to say.
    lab["node01"].programs({"nvidia-smi": "#!/bin/sh\nmkdir /run/waited && sleep 30\n"})
    running = subprocess.Popen([*ROLLBOOK, "snapshot", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: "sleep 30" in [command for _, command in lab["node01"].processes()])
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert len(json.loads(out)["hosts"]) == 8
    nothing_left(lab.hosts)
    variable = f"SLURM_CONF={job.environ['SLURM_CONF']}"
    until(lambda: not [one for one in living() if one.name == "srun" and one.has_environment(variable)])
    del job


def went_on_without(found: dict[str, Heard], name: str) -> bool:
    """Whether a host was lost, and each of the others has given a few beats since then."""
    lost, others = found[name], [host for other, host in found.items() if other != name]
    return bool(lost.lost) and all(sum(beat > lost.lost_ns for beat in host.beats) >= 3 for host in others)


@pytest.mark.parametrize("stopped", [False, True])
def test_the_record(job: SlurmLab, lab: Lab, tmp_path: Path, stopped: bool) -> None:
    """A node that was lost is partial, and the exit code says so; SIGTERM ends all nodes well, and so does the code."""
    argv = ["record", "--timeseries-interval", "1", "--no-report", "--results-dir", str(tmp_path)]
    argv += ["--duration", "180"]  # only if this test fails before it sends the signal
    with subprocess.Popen([*ROLLBOOK, *argv], stderr=subprocess.PIPE, text=True) as running:
        until_sampled(tmp_path, hosts=8, samples=3)
        (path,) = tmp_path.glob("record/*")
        if not stopped:
            kill_agents(lab["node03"])
            until(lambda: went_on_without(heard(path / "raw", job.nodes), "node03"), pause=READ_PAUSE)
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
    run = Record.open(path)
    lost = [host.name for host in run.hosts.end if host.status != "complete"]
    assert "via auto: slurm for 8 nodes" in said
    assert "Traceback" not in said
    assert {host.status for host in run.hosts.start} == {"complete"}
    assert lost == ([] if stopped else ["node03"]), said
    partial = [host.name for host in run.hosts.series if host.status != "complete"]  # some may have been too busy
    assert [host.name for host in run.hosts.series if not is_whole(host)] == lost
    assert running.returncode == (3 if partial else 0), said
    assert ("partial  node03: " in said) == ("node03" in partial)
    assert all(host.samples >= 2 for host in run.hosts.series)
    nothing_left(lab.hosts)


def test_nodes_that_share_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several slurmd on one machine are told apart by their node names, and show that they are one machine."""
    del tmp_path
    with SlurmLab([f"n{number}" for number in range(1, 9)]) as slurm:
        for name, value in slurm.allocate("-N8").items():
            monkeypatch.setenv(name, value)
        results = snapshot(Slurm(), slurm.nodes)
    assert [result.status for result in results.values()] == ["complete"] * 8
    assert len({result.machine_id for result in results.values()}) == 1
    assert not [one.cmdline for one in living() if one.has_environment(f"SLURM_CONF={slurm.environ['SLURM_CONF']}")]


@pytest.mark.parametrize("connect_back", [None, "none"])
def test_commands(job: SlurmLab, lab: Lab, connect_back: str | None) -> None:
    """A command on all nodes, through connections and through the output of srun; an unknown node has its reason."""
    done = rollbook.execute("uname -n; exit 5", [*job.nodes, "nosuch"], via="slurm", connect_back=connect_back)
    assert [(host.status, host.exit_status, host.stdout) for host in done.hosts[:-1]] == [
        ("complete", 5, f"{name}\n") for name in job.nodes
    ]
    assert (done.hosts[-1].status, bool(done.hosts[-1].reason), done.exit_code) == ("unreachable", True, 3)
    nothing_left(lab.hosts)


@pytest.mark.parametrize("connect_back", [None, "none"])
def test_bundle(job: SlurmLab, lab: Lab, tmp_path: Path, connect_back: str | None) -> None:
    """Items of every node, through connections and through the output of srun; an unknown node has its reason."""
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
    nothing_left(lab.hosts)


def test_an_interrupted_command(job: SlurmLab, lab: Lab) -> None:
    """Ctrl-C ends it on all nodes."""
    argv = [*ROLLBOOK, "exec", "--via", "slurm", "-w", ",".join(job.nodes), "--live", "--", "echo up; sleep 4321"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in job.nodes:
            assert process.stdout.readline().endswith(": up\n")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    until(lambda: not any("sleep 4321" in command for host in lab.hosts for _, command in host.processes()))
    nothing_left(lab.hosts)


# Last: slurmd is not started again.
def _kill_slurmd(job: SlurmLab, _lab: Lab) -> None:
    job.kill_slurmd("node03")


def _kill_agent(_job: SlurmLab, lab: Lab) -> None:
    kill_agents(lab["node03"])


@pytest.mark.parametrize("kill", [_kill_agent, _kill_slurmd])
def test_one_is_lost(job: SlurmLab, lab: Lab, kill: Callable[[SlurmLab, Lab], None]) -> None:
    """A node, or the agent on it, dies halfway: it keeps what it gave, the rest are complete."""
    hosts = record(Slurm(), job.nodes, 6, lambda: kill(job, lab))
    lost = hosts.pop("node03")
    assert len(lost.beats) >= 2
    assert lost.facts == {"start": 1}
    assert lost.lost
    for name, host in hosts.items():
        assert (host.gaps(), host.facts, host.lost, host.goodbye) == (0, {"start": 1, "end": 1}, [], True), name
    nothing_left(lab.hosts)
