"""The lab itself: hosts are separate, faults have their effect, and nothing is left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rollbook
from rollbook.testing import Lab, LabCannot, LabHost
from rollbook.testing.lab.processes import process
from tests.support.waits import SECONDS, until

ROOT = Path(__file__).parents[2]


def ssh_argv(lab: Lab, host: LabHost, *argv: str, connect: float = SECONDS) -> list[str]:
    """The command line that runs a command on a host through ssh, with strict host key checking."""
    options = ["-oBatchMode=yes", f"-oConnectTimeout={connect:.0f}", "-oStrictHostKeyChecking=yes"]
    return ["ssh", "-F", str(lab.ssh_config), *options, "--", host.name, *argv]


def ssh(lab: Lab, host: LabHost, *argv: str, connect: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a command on a host through ssh."""
    return subprocess.run(
        ssh_argv(lab, host, *argv, connect=connect),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=2 * SECONDS,
        check=False,
    )


def links(pid: int) -> set[str]:
    """The network links on this machine that belong to labs of a process."""
    return {path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(f"rbl{pid}-")}


def state(pid: int) -> str:
    """The state letter of a process; empty if the process does not exist."""
    found = process(pid)
    return found.state if found else ""


def test_each_host_has_its_own_identity(make_lab: Callable[..., Lab]) -> None:
    """Each host is reached by ssh under its name, and has its own hostname, ids and address."""
    lab = make_lab(names=["login", "gpu-a", "gpu-b"], kind="namespaces")
    command = "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; hostname -I"
    answers = [ssh(lab, host, command).stdout.splitlines() for host in lab]
    names, machines, boots, addresses = zip(*answers, strict=True)
    assert list(names) == ["login", "gpu-a", "gpu-b"]
    assert len(set(machines)) == len(set(boots)) == 3
    assert [address.strip() for address in addresses] == [host.address for host in lab]


IMPORT_ON_HOST = """
import sys
from rollbook.testing import Lab
with Lab(1, kind="namespaces") as lab:
    print(lab.hosts[0].run([sys.executable, "-c", "import rollbook; print(rollbook.__file__)"]).stdout)
"""


def test_checkout_below_tmp(lab: Lab) -> None:
    """Hosts have their own empty /tmp, but can import the package from a checkout below /tmp."""
    del lab  # skips this test if labs cannot run here
    with tempfile.TemporaryDirectory(dir="/tmp") as checkout:
        shutil.copytree(Path(rollbook.__file__).parent, f"{checkout}/src/rollbook")
        environ = {**os.environ, "PYTHONPATH": f"{checkout}/src"}
        argv = [sys.executable, "-c", IMPORT_ON_HOST]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
        assert done.stdout.strip() == f"{checkout}/src/rollbook/__init__.py", done.stderr


def test_run_is_inside_the_host(lab: Lab) -> None:
    """`run` has the host's files, hostname and processes, and kills the command at its timeout."""
    host = lab["node02"]
    host.overlay({"/etc/only-in-the-lab": "x"})
    assert host.run(["cat", "/etc/only-in-the-lab"]).stdout == "x"
    assert host.run(["hostname"]).stdout == "node02\n"
    assert host.run(["cat"], input="text").stdout == "text"
    assert host.run(["readlink", "/proc/self"], check=True).stdout != str(os.getpid())
    with pytest.raises(subprocess.TimeoutExpired):
        host.run(["sleep", "60"], timeout=0.2)
    assert host.processes() == []
    with pytest.raises(subprocess.CalledProcessError):
        host.run(["false"], check=True)


def test_overlay_affects_only_its_host(lab: Lab) -> None:
    """Files in /proc, /sys and /etc can be replaced, even while they are open."""
    host, other = lab["node01"], lab["node02"]
    files = {
        "/proc/meminfo": "MemTotal: 1024 kB\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "[never]\n",
        "/etc/os-release": "ID=lab\n",
        "/sys/class/infiniband/lab0/node_guid": "0000\n",
    }
    host.overlay(files)
    assert ssh(lab, host, "cat", *files).stdout == "".join(files.values())
    assert "MemTotal: 1024 kB" not in other.run(["cat", "/proc/meminfo"]).stdout
    assert not Path("/sys/class/infiniband/lab0").exists()
    with Path("/proc", str(host.pid), "root", "proc/meminfo").open("rb") as held:
        host.overlay({"/proc/meminfo": "MemTotal: 2 kB\n"})
        assert os.pread(held.fileno(), 100, 0) == b"MemTotal: 2 kB\n"


@pytest.mark.parametrize("path", ["/proc/self/status", "/proc/net/dev", "/proc/lab", "/lab"])
def test_overlay_refuses_impossible_paths(lab: Lab, path: str) -> None:
    """Paths that cannot be replaced or added are refused; earlier overlays stay."""
    lab["node01"].overlay({"/proc/version": "Linux\n"})
    with pytest.raises(LabCannot, match=r"single processes|nothing can be added"):
        lab["node01"].overlay({path: ""})
    assert lab["node01"].run(["cat", "/proc/version"]).stdout == "Linux\n"


def test_programs_are_added_and_hidden(lab: Lab) -> None:
    """A host can have a program that the machine does not have, and lack one that it has."""
    host = lab["node03"]
    host.programs({"nvidia-smi": "#!/bin/sh\necho fake\n"})
    host.hide("python3")
    assert ssh(lab, host, "nvidia-smi").stdout == "fake\n"
    assert not Path("/usr/local/bin/nvidia-smi").exists()
    hidden = ssh(lab, host, "command -v python3 python3.11 python3.12 python3.13 || python3 -V")
    assert (hidden.returncode, hidden.stdout) == (127, "")
    assert lab["node04"].run(["sh", "-c", "command -v python3"]).returncode == 0


FAULTS = {
    "close_port": "Connection refused",
    "kill_sshd": "Connection refused",
    "reject_keys": "Permission denied",
    "change_host_key": "HOST IDENTIFICATION HAS CHANGED",
    "stop_sshd": "timed out",
}


def check_fault(lab: Lab, fault: str, message: str, *args: object) -> None:
    """Check that ssh fails with this message, another host still works, and `restore` ends the fault."""
    faulty, healthy = lab.hosts[:2]
    getattr(faulty, fault)(*args)
    failed = ssh(lab, faulty, "true", connect=4 if "timed out" in message else SECONDS)
    assert failed.returncode == 255
    assert re.search(message, failed.stderr)
    assert ssh(lab, healthy, "true").returncode == 0
    lab.restore()
    assert ssh(lab, faulty, "true").returncode == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_login_fault(lab: Lab, fault: str) -> None:
    """Faults of sshd and keys make a login fail with their message."""
    check_fault(lab, fault, FAULTS[fault])


@pytest.mark.parametrize("fault", FAULTS)
def test_login_fault_on_loopback(make_lab: Callable[..., Lab], fault: str) -> None:
    """The same faults in a lab without namespaces."""
    check_fault(make_lab(2, kind="loopback"), fault, FAULTS[fault])


@pytest.mark.parametrize(
    ("fault", "argument", "message"), [("link", False, "No route to host|timed out"), ("loss", 100, "timed out")]
)
def test_network_fault(lab: Lab, fault: str, argument: object, message: str) -> None:
    """Faults of the network make a login fail with their message."""
    check_fault(lab, fault, message, argument)


def test_packet_loss(lab: Lab) -> None:
    """About the given share of many UDP packets is dropped, counted on the host as `NoPorts` in /proc/net/snmp."""
    host = lab["node01"]
    host.loss(50)

    def arrived() -> int:
        names, values = (
            line.split() for line in host.run(["cat", "/proc/net/snmp"]).stdout.splitlines() if line.startswith("Udp:")
        )
        return int(values[names.index("NoPorts")])

    before = arrived()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(400):
            sender.sendto(b"x", (host.address, 9))
    assert 100 < arrived() - before < 300
    host.loss(0)
    assert ssh(lab, host, "true").returncode == 0


def test_mtu(lab: Lab) -> None:
    """The MTU of one host changes, and traffic still passes."""
    lab["node01"].mtu(9000)
    assert ssh(lab, lab["node01"], "cat", "/sys/class/net/eth0/mtu").stdout == "9000\n"
    assert ssh(lab, lab["node02"], "cat", "/sys/class/net/eth0/mtu").stdout == "1500\n"


def test_stopped_sshd_continues(lab: Lab) -> None:
    """A login to a stopped sshd succeeds after SIGCONT."""
    host = lab["node01"]
    host.stop_sshd()
    client = subprocess.Popen(ssh_argv(lab, host, "echo", "late"), stdout=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        client.communicate(timeout=0.5)
    host.cont_sshd()
    assert client.communicate(timeout=SECONDS)[0] == "late\n"


@pytest.mark.parametrize(("fault", "survives"), [("close_port", True), ("kill_sshd", False)])
def test_faults_and_open_sessions(lab: Lab, fault: str, survives: bool) -> None:
    """`close_port` does not affect open sessions, `kill_sshd` ends them."""
    host = lab["node01"]
    client = subprocess.Popen(
        ssh_argv(lab, host, "echo begun; cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert client.stdout
    assert client.stdout.readline() == "begun\n"
    getattr(host, fault)()
    out, _ = client.communicate("still here", timeout=SECONDS)
    assert (client.returncode, out) == ((0, "still here") if survives else (255, ""))


def test_banner_and_noise(lab: Lab) -> None:
    """Banner and start-up file print to stderr; stdout of the start-up file comes before that of the command."""
    host = lab["node01"]
    host.banner("Authorised use only\n" * 100)
    host.login_noise(stdout="module loaded\n", stderr="bash: warning\n")
    done = ssh(lab, host, "echo", "data")
    assert done.stdout == "module loaded\ndata\n"
    assert done.stderr.count("Authorised use only") == 100
    assert "bash: warning" in done.stderr


def test_endless_noise(lab: Lab) -> None:
    """Endless login noise stops when the client ends."""
    host = lab["node01"]
    host.login_noise(stdout=b"\xff\x00 garbage\n", forever=True)
    client = subprocess.Popen(ssh_argv(lab, host, "echo", "data"), stdout=subprocess.PIPE)
    assert client.stdout
    got = client.stdout.read(5_000_000)
    assert b"garbage" in got
    assert b"data" not in got
    client.kill()
    client.communicate()
    until(lambda: not host.processes())


def test_processes_lists_leftovers(lab: Lab) -> None:
    """A process that outlives its session is listed, only for its host, and `restore` ends it."""
    host = lab["node01"]
    ssh(lab, host, "setsid sleep 1234 >/dev/null 2>&1 </dev/null &")
    until(lambda: [line for _, line in host.processes()] == ["sleep 1234"])
    (pid, _), *_ = host.processes()
    assert lab["node02"].processes() == []
    lab.restore()
    assert host.processes() == []
    assert state(pid) == ""


def test_reboot(lab: Lab) -> None:
    """The boot id changes and all processes end; machine id, overlays and hidden programs stay."""
    host = lab["node01"]
    host.overlay({"/proc/version": "Linux version 3.10\n"})
    host.hide("python3")
    ids = ["cat", "/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/proc/version"]
    client = subprocess.Popen(ssh_argv(lab, host, "sleep", "60"), stderr=subprocess.DEVNULL)
    until(host.processes)
    before = ssh(lab, host, *ids).stdout.splitlines()
    host.reboot()
    client.kill()
    client.wait()
    after = ssh(lab, host, *ids).stdout.splitlines()
    assert (after[0], after[2]) == (before[0], "Linux version 3.10")
    assert after[1] != before[1]
    assert ssh(lab, host, "python3").returncode == 127
    until(lambda: not host.processes())


def start_hung_process(host: LabHost, path: str) -> int:
    """Start a `stat` that hangs on a dead mount; returns its process id.

    It is in state D at once, but can still be killed until the server of the mount has read its request.
    """
    host.hang_mount(path)
    before = reads(host._hanging[path])
    host.run(["sh", "-c", f"setsid stat -f {path} >/dev/null 2>&1 </dev/null &"])
    until(lambda: reads(host._hanging[path]) > before and [state(pid) for pid, _ in host.processes()] == ["D"])
    return host.processes()[0][0]


def reads(pid: int) -> int:
    """How many reads of a process have returned."""
    return int(Path(f"/proc/{pid}/io").read_text().split("syscr: ")[1].split()[0])


def test_hung_mount(lab: Lab) -> None:
    """A process that uses the mount cannot be killed, others still work, and `unhang_mount` releases it."""
    host = lab["node01"]
    stuck = start_hung_process(host, "/mnt/dead")
    os.kill(stuck, signal.SIGKILL)
    assert ssh(lab, host, "stat -f / && grep -c ' /mnt/dead fuse' /proc/mounts").stdout.endswith("\n1\n")
    time.sleep(0.2)
    assert state(stuck) == "D"
    host.unhang_mount("/mnt/dead")
    until(lambda: not host.processes())
    assert ssh(lab, host, "ls", "/mnt/dead").returncode == 0


def test_max_startups(make_lab: Callable[..., Lab]) -> None:
    """More unauthenticated connections than allowed are closed."""
    lab = make_lab(1, max_startups="1:100:1", kind="loopback")
    port = int(re.findall(r"Port (\d+)", lab.ssh_config.read_text())[0])
    with socket.create_connection((lab.hosts[0].address, port)) as first:
        assert first.recv(4) == b"SSH-"
        with socket.create_connection((lab.hosts[0].address, port)) as second:
            assert second.recv(4) != b"SSH-"


def test_loopback_reports_what_needs_namespaces(make_lab: Callable[..., Lab]) -> None:
    """Methods that need namespaces say so; processes are still listed by host."""
    lab = make_lab(2, kind="loopback")
    first, second = lab.hosts
    with pytest.raises(LabCannot, match=r"overlay needs .* namespaces"):
        first.overlay({"/proc/meminfo": ""})
    ssh(lab, first, "setsid sleep 1235 >/dev/null 2>&1 </dev/null &")
    until(lambda: [line for _, line in first.processes()] == ["sleep 1235"])
    assert second.processes() == []


@pytest.mark.parametrize("count", [0, 251])
def test_number_of_hosts_is_limited(count: int) -> None:
    """A lab has at least one host, and no more than its network has addresses."""
    with pytest.raises(ValueError, match="1 to 250 hosts"):
        Lab(count)


OWNER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background processes with SIGINT ignored
from rollbook.testing import Lab
with Lab(2, kind=sys.argv[1]) as lab:
    if lab.kind == "namespaces":
        lab.hosts[0].hang_mount("/mnt/dead")
        lab.hosts[0].run(["sh", "-c", "setsid stat -f /mnt/dead >/dev/null 2>&1 </dev/null &"])
    print(lab.ssh_config.parent, *(host.pid for host in lab), flush=True)
    sys.stdin.read()
    if sys.argv[2] == "raise":
        raise RuntimeError
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["namespaces", "loopback"])
@pytest.mark.parametrize("end", ["raise", "SIGINT", "SIGTERM", "SIGKILL"])
def test_nothing_is_left_after_the_owner_ends(end: str, kind: str) -> None:
    """A lab leaves no process, link or file, however its owner ends, even if a host hangs."""
    if lacking := [need for need in Lab.missing() if need.startswith(kind)]:
        raise LabCannot(*lacking)
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    owner = subprocess.Popen([sys.executable, "-c", OWNER, kind, end], stdin=pipe, stdout=pipe, stderr=null, text=True)
    assert owner.stdout
    directory, *pids = owner.stdout.readline().split()
    assert Path(directory).is_dir()
    if kind == "namespaces":
        assert links(owner.pid)
    if end != "raise":
        owner.send_signal(signal.Signals[end])
    owner.communicate(timeout=SECONDS)
    until(lambda: not Path(directory).exists())
    until(lambda: not any(state(int(pid)) for pid in pids))
    until(lambda: not links(owner.pid))
    assert directory not in Path("/proc/mounts").read_text()


def test_hosts_die_with_the_supervisor() -> None:
    """If the process that cleans up is killed, the kernel ends the hosts and removes the link."""
    before = links(os.getpid())
    lab = Lab(2, kind="namespaces").__enter__()
    init = process(lab.hosts[0].pid)
    assert init
    os.kill(init.parent, signal.SIGKILL)
    until(lambda: not any(state(host.pid) for host in lab))
    until(lambda: links(os.getpid()) == before)
    with pytest.raises(OSError, match="not taken down"):
        lab.__exit__(None, None, None)


@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("", 0)])
def test_skipped_tests_are_listed(tmp_path: Path, ci: str, code: int) -> None:
    """A test that cannot run is listed with what it needs; with `CI=true` the run fails."""
    test = """
        import pytest
        from rollbook.testing import LabCannot
        def test_fine(): pass
        def test_lab(): raise LabCannot("moonlight")
        @pytest.mark.needs("no-such-program")
        def test_program(): raise AssertionError
    """
    (tmp_path / "test_some.py").write_text(textwrap.dedent(test))
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = {**os.environ, "CI": ci}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
    assert "test_lab: moonlight" in done.stdout
    assert "test_program: needs no-such-program" in done.stdout
