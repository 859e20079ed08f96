"""The agent through Session Manager: the same facts as locally, and a reason for every failure."""

from __future__ import annotations

import dataclasses
import subprocess
import time
from pathlib import Path

import pytest

from rollbook import execute, open_record, record, snapshot
from rollbook.api.options import TransportOptions
from rollbook.errors import UsageError
from rollbook.journal.reader import Reader
from rollbook.journal.survey import survey
from rollbook.protocol.frames import Decoder
from rollbook.sources.meminfo import MemInfo
from rollbook.transports.ssm import Ssm
from tests.support.commands import ROLLBOOK, Rollbook
from tests.support.fake_aws import Faults, Node, fake_aws
from tests.support.records import is_whole
from tests.support.waits import SECONDS, is_alive, until, until_sampled
from tests.tables.test_seal import parsed, sealed_rows

NODES = [
    Node("i-0000000000000001a", dns="ip-10-1-0-7.ec2.internal"),
    Node("i-0000000000000001b"),
    Node("i-0000000000000001c", status="Pending"),
]
# Network faults that must not change any result.
FAULTY = Faults(loss=0.05, duplication=0.05, reordering=0.05)


@pytest.mark.parametrize(
    "faults",
    [
        Faults(),
        Faults(banner=b"Welcome # to $ the node\r\n"),
        FAULTY,
        Faults(dropped_sockets=2, drop_after=5),
        Faults(throttled_starts=2),
        Faults(encrypted=True),
    ],
    ids=["clean", "banner", "faulty", "dropped sockets", "throttled", "KMS"],
)
def test_a_snapshot(faults: Faults) -> None:
    """Facts equal those of the local transport; a node that is not up is unreachable, with its status."""
    sources = ["meminfo", "cpuinfo", "os_release", "version", "mounts"]
    with fake_aws(NODES, faults) as service:
        options: TransportOptions = {
            "via": "ssm",
            "timeout": 60.0,
            "cluster": "research",
            "endpoint_url": service.endpoint,
            "start_rate": 50.0,
        }
        names = [node.instance for node in NODES]
        found = snapshot(names, sources=sources, **options)
        assert not service.sessions
    local = snapshot(sources=sources).hosts[0]
    first, second, third = found.hosts
    for host in (first, second):
        assert (host.status, host.reason, host.method) == ("complete", "", "ssm")
        assert host.facts["cpuinfo"] == local.facts["cpuinfo"]
        assert host.facts["os_release"] == local.facts["os_release"]
        memory, here = host.fact(MemInfo), local.fact(MemInfo)
        assert memory is not None
        assert here is not None
        assert memory.total_kib == here.total_kib
    assert (third.status, third.reason) == ("unreachable", "the node is Pending")


def test_node_names() -> None:
    """A node can be named by its EKS or Slurm name; an unknown node is unreachable."""
    with fake_aws(NODES) as service:
        options: TransportOptions = {
            "via": "ssm",
            "timeout": 60.0,
            "cluster": "research",
            "endpoint_url": service.endpoint,
            "start_rate": 50.0,
        }
        names = ["hyperpod-i-0000000000000001b", "ip-10-1-0-7", "ip-10-9-9-9"]
        found = snapshot(names, sources=["version"], **options)
        assert [host.status for host in found.hosts] == ["complete", "complete", "unreachable"]
        assert "has no node called ip-10-9-9-9" in found.hosts[2].reason
        assert Ssm(cluster="research", endpoint_url=service.endpoint).hosts() == [node.instance for node in NODES]
    with pytest.raises(UsageError, match="--cluster"):
        Ssm().hosts()


def test_all_nodes_of_a_cluster(rollbook: Rollbook) -> None:
    """Without -w every node is used; nodes that are not up cause exit status 3."""
    with fake_aws(NODES) as service:
        argv = ["hosts", "--check", "--via", "ssm", "--cluster", "research"]
        done = rollbook(*argv, "--endpoint-url", service.endpoint, "--start-rate", "50")
        assert not service.sessions
    assert done.code == 3
    assert "the node is Pending" in done.err
    assert "2 of 3 hosts complete" in done.err


@pytest.mark.parametrize("faults", [Faults(), FAULTY], ids=["", "faulty"])
def test_commands(faults: Faults) -> None:
    """Output and exit status are returned exactly; a node that is not up is unreachable."""
    with fake_aws(NODES, faults) as service:
        options: TransportOptions = {
            "via": "ssm",
            "timeout": 60.0,
            "cluster": "research",
            "endpoint_url": service.endpoint,
            "start_rate": 50.0,
        }
        names = [node.instance for node in NODES]
        done = execute("seq 20000; printf 'a\\303'; exit 3", names, **options)
        assert not service.sessions
    text = "".join(f"{number}\n" for number in range(1, 20001)) + "a\\xc3"
    assert [(host.status, host.exit_status) for host in done.hosts] == [
        ("complete", 3),
        ("complete", 3),
        ("unreachable", None),
    ]
    assert done.hosts[0].stdout == done.hosts[1].stdout == text
    assert done.exit_code == 3


def test_killed_collector() -> None:
    """The next run ends only the sessions of the killed collector; the command on the node ends."""
    with fake_aws(NODES[:1], Faults(page=1)) as service:
        argv = [*ROLLBOOK, "exec", "--via", "ssm", "--live", "--cluster", "research"]
        argv += ["--endpoint-url", service.endpoint, "--start-rate", "50", "--", "echo $$; sleep 600"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            pid = process.stdout.readline().split()[1]
            process.kill()
        (left,) = service.sessions
        others = {"a": "rollbook other-boot-id/1/1", "b": "rollbook", "c": "a shell"}
        for name, reason in others.items():
            service.sessions[name] = {"node": NODES[0], "request": {"Reason": reason}, "token": ""}
        done = execute("true", NODES[0].instance, via="ssm", endpoint_url=service.endpoint)
        assert done.exit_code == 0
        assert service.sessions.keys() == others.keys()
        assert left not in service.sessions
        until(lambda: not is_alive(pid))


@pytest.mark.parametrize(
    ("faults", "more", "without", "sentence"),
    [
        (
            Faults(errors={"DescribeCluster": ("ExpiredTokenException", "The security token has expired")}),
            [],
            (2, "AWS does not accept the credentials (ExpiredTokenException): The security token has expired"),
            "log in again or set --profile",
        ),
        (
            Faults(),
            ["--cluster", "nosuch"],
            (2, "describe_cluster: Cluster nosuch not found"),
            "check the name and --region",
        ),
        (
            Faults(),
            ["--endpoint-url", "http://127.0.0.1:1"],
            (4, "cannot reach AWS to describe_cluster"),
            "check --region and the network",
        ),
        (
            Faults(blocked_sockets=True),
            [],
            (4, "cannot open the session's WebSocket"),
            "does a proxy or firewall block wss to ssmmessages?",
        ),
        (
            Faults(refused_documents=("AWS-StartInteractiveCommand", "AWS-StartNonInteractiveCommand")),
            [],
            (4, "the document cannot be used"),
            "AWS-StartNonInteractiveCommand is not available",
        ),
    ],
    ids=["credentials", "cluster", "region", "websocket", "document"],
)
def test_failures(rollbook: Rollbook, faults: Faults, more: list[str], without: tuple[int, str], sentence: str) -> None:
    """One line has the cause and what to do, and the exit status is not 0, with and without -w."""
    code, cause = without
    with fake_aws(NODES[:1], faults) as service:
        argv = ["snapshot", "--source", "version", "--via", "ssm", "--start-rate", "50"]
        argv += ["--cluster", "research", "--endpoint-url", service.endpoint, *more]
        for names, expected in (([], code), (["-w", NODES[0].instance], 4)):
            done = rollbook(*argv, *names)
            assert done.code == expected, done.err
            (line,) = [line for line in done.err.splitlines() if cause in line]
            assert sentence in line
            assert "unexpected" not in done.err
        assert not service.sessions


@pytest.mark.parametrize(
    "faults",
    [
        Faults(refused_documents=("AWS-StartInteractiveCommand",)),
        Faults(refused_documents=("AWS-StartInteractiveCommand",), refused_parameters=("separateOutputStream",)),
        dataclasses.replace(FAULTY, refused_documents=("AWS-StartInteractiveCommand",)),
        Faults(errors={"StartSession:AWS-StartInteractiveCommand": ("AccessDeniedException", "on document/AWS-Start")}),
    ],
    ids=["separate", "merged", "faulty", "denied"],
)
def test_documents_without_input(faults: Faults) -> None:
    """If the interactive document is refused, agents execute the orders from their command line."""
    sources = ["meminfo", "cpuinfo", "os_release", "version", "mounts"]
    with fake_aws(NODES, faults) as service:
        options: TransportOptions = {"via": "ssm", "endpoint_url": service.endpoint, "start_rate": 50.0}
        names = [node.instance for node in NODES[:2]]
        found = snapshot(names, sources=sources, **options)
        done = execute("seq 2000; exit 3", names, **options)
        assert not service.sessions
    local = snapshot(sources=sources).hosts[0]
    for host in found.hosts:
        assert (host.status, host.reason, host.lost_frames) == ("complete", "", 0)
        assert host.facts["cpuinfo"] == local.facts["cpuinfo"]
    text = "".join(f"{number}\n" for number in range(1, 2001))
    assert [(host.status, host.exit_status, host.stdout) for host in done.hosts] == 2 * [("complete", 3, text)]


def test_an_agent_that_does_not_start(tmp_path: Path) -> None:
    """The reason is the last line that the node printed, even if standard error is a separate stream."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho starting >&2\necho no modules >&2\nexit 1\n")
    python.chmod(0o755)
    with fake_aws(NODES, Faults(refused_documents=("AWS-StartInteractiveCommand",))) as service:
        options: TransportOptions = {"via": "ssm", "endpoint_url": service.endpoint, "python": str(python)}
        (host,) = snapshot(NODES[0].instance, sources=["version"], **options).hosts
    assert (host.status, host.reason) == ("failed", "the agent did not start: no modules")


def test_a_chosen_document_has_no_fallback() -> None:
    """If a document other than the default is refused, no other document is tried."""
    with fake_aws(NODES, Faults(refused_documents=("Custom",))) as service:
        options: TransportOptions = {"via": "ssm", "endpoint_url": service.endpoint, "ssm_document": "Custom"}
        found = snapshot(NODES[0].instance, sources=["version"], **options)
    assert (found.hosts[0].status, found.hosts[0].reason) == (
        "refused",
        "the document cannot be used: document Custom is not available",
    )


@pytest.mark.parametrize(
    "faults",
    [Faults(loss=0.05, duplication=0.05, reordering=0.05, lateness=0.02), Faults(dropped_sockets=3, drop_after=60)],
    ids=["messages", "sockets"],
)
def test_a_series_over_a_faulty_network(tmp_path: Path, faults: Faults) -> None:
    """The record has every frame that the nodes sent, and its tables have every value of every sample."""
    names = [node.instance for node in NODES[:2]]
    with fake_aws(NODES, faults) as service:
        options: TransportOptions = {"via": "ssm", "endpoint_url": service.endpoint, "start_rate": 50.0}
        with record(names, results_dir=tmp_path, interval=0.2, report=False, **options):
            until_sampled(tmp_path, 2, 12)
        assert not service.sessions
    assert set(service.injected) >= ({"lost", "duplicated", "reordered", "late"} if faults.loss else {"dropped"})
    [path] = tmp_path.glob("record/*")
    for number, name in enumerate(names):
        entries = [entry for entry in Reader(path / "raw") if entry.host == number]
        sent = [
            (frame.kind, frame.seq, frame.mono, frame.wall, frame.payload)
            for frame in Decoder().feed(bytes(service.printed[name]), end=True)
        ]
        assert [
            (frame.kind, frame.seq, frame.mono, frame.wall, frame.payload)
            for entry in entries
            if (frame := entry.frame)
        ] == sent
        assert [frame[1] for frame in sent] == list(range(len(sent)))
        assert {"H", "S", "P", "E"} <= {frame[0] for frame in sent}
        assert "lost" not in [entry.event["event"] for entry in entries if entry.event]
    expected, tables = parsed(survey(path / "raw")), sealed_rows(path / "series")
    assert tables == expected
    assert len({key[1] for key in tables["loadavg"] if key[0] == names[0]}) >= 12
    assert sum(len(row) for rows in tables.values() for row in rows.values()) > 5000
    opened = open_record(path)
    assert {host.status for host in opened.hosts.start + opened.hosts.end} == {"complete"}
    assert all(is_whole(host) for host in opened.hosts.series)
    assert not any(loss.affected() for host in opened.hosts.series for loss in host.sources)


def test_incomplete_output() -> None:
    """A node that closes the session before all output is acknowledged is not complete, and has a reason."""
    faults = Faults(
        refused_documents=("AWS-StartInteractiveCommand",),
        refused_parameters=("separateOutputStream",),
        loss=0.3,
        close_seconds=0.05,
    )
    with fake_aws(NODES, faults) as service:
        options: TransportOptions = {"via": "ssm", "endpoint_url": service.endpoint, "start_rate": 50.0}
        found = snapshot(NODES[0].instance, **options)
        done = execute("seq 20000", NODES[0].instance, **options)
        assert not service.sessions
    (host,), (ran,) = found.hosts, done.hosts
    assert (host.status != "complete", bool(host.reason)) == (True, True)
    assert (ran.status != "complete", bool(ran.reason)) == (True, True)


def test_a_recording_without_input(tmp_path: Path) -> None:
    """Samples arrive; the host is partial without end facts, and the recording does not wait for them."""
    with fake_aws(NODES, Faults(refused_documents=("AWS-StartInteractiveCommand",))) as service:
        options: TransportOptions = {"via": "ssm", "endpoint_url": service.endpoint, "start_rate": 50.0}
        name = NODES[0].instance
        with record(name, results_dir=tmp_path, interval=0.5, report=False, **options) as recording:
            until_sampled(tmp_path, 1, 2)
            left = time.monotonic()
        assert time.monotonic() - left < SECONDS
        assert not service.sessions
    (host,) = recording.record.hosts.series
    assert host.samples >= 2
    assert host.status == "partial"
