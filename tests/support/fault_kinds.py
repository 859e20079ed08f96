"""All kinds of fault of the campaign that happen to a recording, by name; importing this module registers all kinds."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollbook.collect.budget import Budget
from rollbook.protocol.plan import Plan
from rollbook.records.record import Record
from rollbook.sources import catalogue
from rollbook.testing.lab.processes import living
from tests.support import fault_records
from tests.support.commands import SOURCE
from tests.support.faults import INTERVAL, KINDS, MPI_RUN, PATIENCE, ROLLBOOK, Run, kind
from tests.support.launchers import agents, send_signal
from tests.support.relay import start_relay
from tests.support.waits import until

__all__ = ["KINDS", "fault_records"]

OTHER_FILES = 16 << 20  # bytes of a record besides the data of a hostile host
# The agent's command line is -I -S -c CODE ...; {} is code that runs before it.
FIRST = """#!/bin/sh
shift 3
code=$1
shift
exec /usr/bin/python3 -I -S -c "{}
$code" "$@"
"""
SHIFTED = "import time; real = time.time; time.time = lambda: real() + 3 + {} * time.monotonic()"
STEPPED = """import time
real = time.time
time.time = lambda: real() + float(open('{}').read())"""
STEPPED_COLLECTOR = """import os, time
real, real_ns, path = time.time, time.time_ns, os.environ["CLOCK"]
by = lambda: int(open(path).read())
time.time, time.time_ns = lambda: real() + by(), lambda: real_ns() + by() * 10**9
from rollbook.cli import main; main()
"""
# The program of a GPU. It opens many files, as the loader of a large program does.
GPU = """#!/usr/bin/python3 -IS
import os, sys, time
try:
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
except OSError as error:
    print(error, file=sys.{stream})
    sys.exit({code})
while "-lms" in sys.argv:
    print("0, 7, 1, 1000, 70.5, 40, 1000, 2000, 0x0", flush=True)
    time.sleep(int(sys.argv[-1]) / 1000)
print("0, GPU-1, H200, 1, 1, 1, 00000000:01:00.0, 5, 5, 16, 16, 1, 1, a, b, c, d, 700, 70, 1980, 1000, 40, 7, 0")
"""
FLIPPER = """#!/bin/sh
/usr/bin/python3 "$@" | /usr/bin/python3 -S -c '
import os, random
rng = random.Random({seed})
left = 60000
while True:
    data = bytearray(os.read(0, 65536))
    if not data:
        break
    left -= len(data)
    if left < 0:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        left = rng.randrange(5000, 20000)
    os.write(1, data)
'
"""
HOSTILE = """#!{python}
import itertools, os, random, sys, time, zlib
sys.path.insert(0, "{source}")
from rollbook.agent.wire import binary
os.write(1, binary(b"H", 0, 1, 1, b"agent=1\\nkind=python\\npython=3.11\\npid=1\\nhostname=x\\n"))
numbers = itertools.count(1)
zeros = zlib.compress(bytes(12 << 20), 9)[2:-4]
bomb = bytes([2, 1, 0, 0, len(zeros) % 128 + 128, len(zeros) // 128]) + zeros
assert 128 <= len(zeros) < 16384
while True:
    os.write(1, {send})
"""
FILTER = """#!{python}
import random, signal, subprocess, sys
rng, keep = random.Random({seed}), "--version" in sys.argv
child = subprocess.Popen(["{real}", *sys.argv[1:]], stdout=subprocess.PIPE)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
    signal.signal(number, lambda number, _: child.send_signal(number))
for line in child.stdout:
    if keep or rng.random() > {lose}:
        sys.stdout.buffer.write(line)
    if not keep and rng.random() < {noise}:
        sys.stdout.buffer.write(b"@rb1 0 \\xff\\x00 noise of another program" + bytes(rng.randrange(2) * [10]))
    sys.stdout.buffer.flush()
sys.exit(child.wait())
"""

# Connects to every port that the collector listens on, again and again, and sends noise.
CONNECT = """
import os, socket, sys, time
links, fds = [], f"/proc/{sys.argv[1]}/fd"
while True:
    time.sleep(0.05)
    try:
        inodes = {os.readlink(f"{fds}/{fd}")[8:-1] for fd in os.listdir(fds)}
    except OSError:
        continue
    for line in open("/proc/net/tcp").read().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            for number in range(20):
                try:
                    link = socket.create_connection(("127.0.0.1", int(fields[1].split(":")[1], 16)), 1)
                    link.sendall([b"", b"rollbook 0 - vm 00 ff\\n", b"\\xff" * 5000][number % 3])
                    links.append(link)
                except OSError:
                    pass
    del links[:-500]
"""

# Finds the agent of its own host, takes the token from it, and writes a greeting for another rank to its output.
IMPERSONATE = """
import os, sys
sys.path.insert(0, {source!r})
from rollbook.agent.secure import line_code
from rollbook.agent.wire import text
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        environ = open(f"/proc/{{pid}}/environ", "rb").read().split(b"\\0")
        command = open(f"/proc/{{pid}}/cmdline", "rb").read()
    except OSError:
        continue
    for token in [word[15:] for word in environ if word.startswith(b"ROLLBOOK_TOKEN=") and b"binascii" in command]:
        try:
            output = next(fd for fd in (f"/proc/{{pid}}/fd/{{n}}" for n in "12") if "pipe:" in os.readlink(fd))
        except (OSError, StopIteration):
            continue  # a child of the agent, which writes elsewhere and may have ended
        tag = "{rank}-" + os.urandom(8).hex()
        hello = b"agent=1\\nkind=python\\nrank={rank}\\nnode=-\\nhostname={name}\\n"
        os.write(os.open(output, os.O_WRONLY), text(tag, line_code(token, tag.encode()))(b"H", 0, 1, 1, hello))
        sys.exit()
sys.exit("no agent")
"""


# Network


@kind("connection cut", "network")
def _connection_cut(run: Run) -> None:
    with run.recording(codes=(3,)):
        run.host.kill_sshd()
        run.wait_for_loss()
        run.host.start_sshd()
        run.wait_for_return()


@kind("cable pulled", "network")
def _cable_pulled(run: Run) -> None:
    with run.recording(codes=(3,)):
        run.host.link(up=False)
        run.wait_for_loss()
        run.host.link(up=True)
        run.wait_for_return()


@kind("cable pulled until the end", "network")
def _cable_stays_pulled(run: Run) -> None:
    process = run.start("--timeout", "10")
    run.wait()
    run.host.link(up=False)
    time.sleep(run.random.uniform(1, 8))
    run.stop(process, (3,))
    run.host.link(up=True)  # only now can the host notice that the connection is closed
    run.check(partial=True)


@kind("link down briefly", "network")
def _link_down_briefly(run: Run) -> None:
    with run.recording():
        run.host.link(up=False)
        time.sleep(run.random.uniform(0.2, 1.5))
        run.host.link(up=True)
        run.wait_for_beats()


@kind("packets lost", "network")
def _packets_lost(run: Run) -> None:
    with run.recording():
        run.host.loss(30)
        time.sleep(run.random.uniform(1, 3))
        run.host.loss(0)
        run.wait_for_beats()


@kind("slow link", "network")
def _slow_link(run: Run) -> None:
    run.host.delay(run.random.uniform(0.1, 0.3))
    with run.recording():
        run.wait_for_beats()


@kind("port closed", "network")
def _port_closed(run: Run) -> None:
    run.host.close_port()
    process = run.start()
    run.wait(hosts=1)
    run.stop(process, (3,))
    run.check(partial=True)


@kind("bits flipped in transit", "network")
def _bits_flipped(run: Run) -> None:
    run.host.programs({"python3": FLIPPER.format(seed=run.random.randrange(1 << 30))})
    with run.recording():
        run.wait_for_beats(20)


# Host


@kind("reboot", "host")
def _reboot(run: Run) -> None:
    with run.recording(codes=(3,)):
        run.host.reboot()
        run.wait_for_return()


@kind("sshd stopped", "host")
def _sshd_stopped(run: Run) -> None:
    with run.recording():
        run.host.stop_sshd()
        time.sleep(run.random.uniform(0.5, 2))
        run.host.cont_sshd()
        run.wait_for_beats()


@kind("login noise", "host")
def _login_noise(run: Run) -> None:
    run.host.login_noise(run.random.randbytes(5000), b"noise\n")
    with run.recording():
        run.wait_for_beats()


@kind("no Python", "host")
def _no_python(run: Run) -> None:
    run.host.hide("python3")
    process = run.start()
    run.wait(hosts=1)
    time.sleep(run.random.uniform(2, 5))
    run.stop(process, (3,))
    run.check(partial=True)


@kind("few file descriptors", "host")
def _few_descriptors(run: Run) -> None:
    """Both hosts have a GPU, whose program needs more descriptors than the agent has."""
    number = run.random.choice((8, 10, 12, 16))
    limited = f'#!/bin/sh\nulimit -n {number}\nexec /usr/bin/python3 "$@"\n'
    gpu = GPU.format(stream=run.random.choice(("stderr", "stdout")), code=run.random.choice((1, 12, 127)))
    run.host.programs({"python3": limited, "nvidia-smi": gpu})
    run.other.programs({"nvidia-smi": gpu})
    process = run.start()
    run.wait(hosts=1, samples=6)
    run.stop(process, (3,))
    run.check(partial=True)


@kind("hung mount", "host")
def _hung_mount(run: Run) -> None:
    process = run.start("--timeout", "10")
    run.wait()
    run.host.hang_mount("/mnt/hung")
    run.wait_for_beats()
    run.stop(process, (0, 3))
    run.host.unhang_mount("/mnt/hung")
    run.check()


@kind("file with an unknown format", "host")
def _unknown_format(run: Run) -> None:
    text = Path("/proc/loadavg").read_text()
    run.host.overlay({"/proc/loadavg": text})
    with run.recording(codes=(3,)):
        run.host.overlay({"/proc/loadavg": "0.1 none of this is a number\n"})
        run.wait_for_beats(run.random.randrange(2, 8))
        run.host.overlay({"/proc/loadavg": text})
        run.wait_for_beats()


# Agent


@kind("agent killed", "agent")
def _agent_killed(run: Run) -> None:
    with run.recording(codes=(3,)):
        run.signal_agents(signal.SIGKILL)
        run.wait_for_return()


@kind("agent terminated", "agent")
def _agent_terminated(run: Run) -> None:
    with run.recording():
        run.signal_agents(signal.SIGTERM)
        time.sleep(run.random.uniform(0, 2))


@kind("agent stopped", "agent")
def _agent_stopped(run: Run) -> None:
    with run.recording(codes=(3,)):
        run.signal_agents(signal.SIGSTOP)
        time.sleep(2 + run.random.random())
        run.signal_agents(signal.SIGCONT)
        run.wait_for_beats()


@kind("agent's child killed", "agent")
def _child_killed(run: Run) -> None:
    with run.recording():
        parents = {one.pid: one.parent for one in living()}
        found = agents(run.host)
        send_signal([pid for pid in found if parents.get(pid) in found])
        run.wait_for_beats()


@kind("agent out of memory", "agent")
def _out_of_memory(run: Run) -> None:
    with run.recording():
        for pid in agents(run.host):
            subprocess.run(["prlimit", "--pid", str(pid), "--as=1048576"], check=False, capture_output=True)
        time.sleep(run.random.uniform(0.5, 2))


# Launcher


def _mpi(run: Run, binary: Path = MPI_RUN, *more: str) -> list[str]:
    """The options that record both hosts through a launcher."""
    agent = shlex.join(["--prtemca", "plm_ssh_agent", f"ssh -F {run.lab.ssh_config}"])
    run.foreign_files = False  # a launcher that is killed leaves its own files
    return ["--via", "mpi", "--mpi-bin", str(binary), "--allow-run-as-root", "--mpi-args", agent, *more]


def _launchers(run: Run) -> list[int]:
    return [one.pid for one in living() if one.name == "prterun" and one.has_environment(run.mark)]


@kind("launcher killed", "launcher")
def _launcher_killed(run: Run) -> None:
    with run.recording(codes=(3,), transport=_mpi(run)):
        send_signal(_launchers(run))
        run.wait_for_return(*run.names)


@kind("launcher stopped", "launcher")
def _launcher_stopped(run: Run) -> None:
    with run.recording(transport=_mpi(run)):
        for number in (signal.SIGSTOP, signal.SIGCONT):
            send_signal(_launchers(run), number)
            time.sleep(run.random.uniform(0.5, 2))
        run.wait_for_beats()


@kind("launched agent killed", "launcher")
def _launched_agent_killed(run: Run) -> None:
    with run.recording(codes=(3,), transport=_mpi(run)):
        run.signal_agents(signal.SIGKILL)
        run.wait_for_loss()
        time.sleep(run.random.random())


def _filtered(run: Run, lose: float, noise: float) -> list[str]:
    """Options for a launcher whose standard output loses lines or has noise; agents cannot connect back."""
    path = run.directory / "mpirun"
    seed = run.random.randrange(1 << 30)
    path.write_text(FILTER.format(python=sys.executable, seed=seed, real=MPI_RUN, lose=lose, noise=noise))
    path.chmod(0o755)
    return _mpi(run, path, "--connect-back", "none")


@kind("launcher loses lines", "launcher")
def _lines_lost(run: Run) -> None:
    with run.recording(transport=_filtered(run, 0.02, 0)):
        run.wait_for_beats(20)


@kind("noise between lines", "launcher")
def _noisy_lines(run: Run) -> None:
    with run.recording(transport=_filtered(run, 0, 0.05)):
        run.wait_for_beats(10)


# Collector


def _clean_up(run: Run) -> None:
    """Run another recording, which cleans up the temporary directory."""
    for abandoned in run.temporary.glob("rollbook-run-*"):
        os.utime(abandoned, (0, 0))  # a new one may belong to a process that starts
    results = run.directory / "later"
    later = run.command("run", "--results-dir", results, "--no-report", "--skip-timeseries", "--", "true")
    run.expect_code(later.returncode, (0,), later.stderr)


def _recover(run: Run) -> Record:
    """Finish the record with `rollbook recover`, after another recording has cleaned up the temporary directory."""
    _clean_up(run)
    done = run.command("recover", run.path)
    run.expect_code(done.returncode, (0,), done.stderr)
    return run.check(code=False)


@kind("collector killed", "collector")
def _collector_killed(run: Run) -> None:
    process = run.start()
    run.wait()
    process.kill()
    process.wait()
    _recover(run)


@kind("collector killed while it starts", "collector")
def _collector_killed_early(run: Run) -> None:
    process = run.start()
    time.sleep(run.random.uniform(0.1, 3))
    process.kill()
    process.wait()
    records = list(run.results.glob("*/*"))
    if records and list(records[0].glob("raw/*.seg")):
        _recover(run)
    else:
        _clean_up(run)
        run.check_leftovers()


def _until_writing(run: Run, process: subprocess.Popen[bytes]) -> None:
    run.wait()
    run.stopped_ns = time.time_ns()
    process.send_signal(signal.SIGTERM)
    until(lambda: "writing the record" in run.messages())


@kind("collector killed while it writes", "collector")
def _collector_killed_writing(run: Run) -> None:
    process = run.start()
    _until_writing(run, process)
    time.sleep(run.random.uniform(0, 1.5))
    process.kill()
    process.wait()
    _recover(run)


@kind("one Ctrl-C while it writes", "collector")
def _interrupted_once(run: Run) -> None:
    process = run.start()
    _until_writing(run, process)
    time.sleep(run.random.uniform(0, 0.5))
    run.interrupt(process)
    run.expect_code(process.wait(PATIENCE), (0, 3))
    run.check()


@kind("Ctrl-C until it ends", "collector")
def _interrupted_twice(run: Run) -> None:
    process = run.start()
    _until_writing(run, process)
    while process.poll() is None:
        run.interrupt(process)
        time.sleep(run.random.uniform(0, 0.3))
    run.expect_code(process.wait(PATIENCE), (0, 3, 130))
    if process.returncode == 130:
        _recover(run)
    else:
        run.check()


@kind("Ctrl-C", "collector")
def _interrupted(run: Run) -> None:
    process = run.start()
    run.wait()
    run.stop(process, (0, 3), signal.SIGINT)
    run.check()


@kind("collector stopped", "collector")
def _collector_stopped(run: Run) -> None:
    process = run.start()
    run.wait()
    process.send_signal(signal.SIGSTOP)
    time.sleep(run.random.uniform(0.5, 3))
    process.send_signal(signal.SIGCONT)
    run.wait_for_beats()
    run.stop(process, (0, 3))
    run.check()


@kind("signals reach the command", "collector")
def _signals_to_the_command(run: Run) -> None:
    script = "trap 'exit 5' TERM; while :; do sleep 0.1; done"
    process = run.start(command=["sh", "-c", script])
    run.wait()
    run.stop(process, (5,))
    run.check(code=False)


# Disk


@contextmanager
def _small_disk(run: Run) -> Iterator[Path]:
    run.results.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=68m", "tmpfs", run.results], check=True)
    try:
        yield run.results / "filler"
    finally:
        subprocess.run(["umount", "--lazy", run.results], check=True)


@kind("disk full for a while", "disk")
def _full_for_a_while(run: Run) -> None:
    with _small_disk(run) as filler:
        noticed = f"for n in $(seq 100); do grep -qs space {run.results}/*/*/raw/failure && break; sleep 0.1; done"
        script = f"sleep {run.random.uniform(0.5, 2)}; head -c 80m /dev/zero > {filler}; {noticed}; rm {filler}; exit 9"
        process = run.start(command=["sh", "-c", script])
        run.expect_code(process.wait(PATIENCE), (9,))
        if "recording ended early" not in run.messages():
            run.result.unreported_losses.append("the full disk is not reported")
        run.check(code=False)


@kind("disk full until the end", "disk")
def _full_until_the_end(run: Run) -> None:
    with _small_disk(run) as filler:
        script = f"sleep {run.random.uniform(0.5, 2)}; head -c 80m /dev/zero > {filler}; sleep 1; exit 9"
        process = run.start(command=["sh", "-c", script])
        run.expect_code(process.wait(PATIENCE), (9,))
        if "the record is not finished" not in run.messages():
            run.result.unreported_losses.append("the full disk is not reported")
        filler.unlink()
        _recover(run)


@kind("file size limit", "disk")
def _file_size_limit(run: Run) -> None:
    limit = run.random.randrange(40_000, 100_000)
    process = run.start(program=["prlimit", f"--fsize={limit}", *ROLLBOOK], command=["sh", "-c", "sleep 6; exit 9"])
    run.expect_code(process.wait(PATIENCE), (9,))
    if not {"recording ended early", "the record is not finished"} & set(_known_messages(run)):
        run.result.unreported_losses.append(f"the limit is not reported: {run.messages()[-500:]}")
    _recover(run)


def _known_messages(run: Run) -> list[str]:
    return [text for text in ("recording ended early", "the record is not finished") if text in run.messages()]


@kind("record removed", "disk")
def _record_removed(run: Run) -> None:
    process = run.start(command=["sh", "-c", f"sleep 2; rm -r {shlex.quote(str(run.results))}/*/*; sleep 1; exit 9"])
    run.expect_code(process.wait(PATIENCE), (9,))
    if not _known_messages(run):
        run.result.unreported_losses.append(f"the loss is not reported: {run.messages()[-500:]}")
    run.check_leftovers()


# Clock


@kind("clock off and drifting", "clock")
def _clock_off(run: Run) -> None:
    drift = run.random.uniform(-0.001, 0.001)
    run.host.programs({"python3": FIRST.format(SHIFTED.format(drift))})
    with run.recording():
        run.wait_for_beats(10)


@kind("clock of a host set", "clock")
def _clock_set(run: Run) -> None:
    clock = run.directory / "clock"
    clock.write_text("0")
    run.host.programs({"python3": FIRST.format(STEPPED.format(clock))})
    with run.recording():
        new = run.directory / "new"
        new.write_text(str(run.random.choice((-1, 1)) * run.random.uniform(2, 3600)))
        new.replace(clock)
        run.wait_for_beats(10)
    _check_clock_step(run, run.host.name)


@kind("clock of the collector set", "clock")
def _collector_clock_set(run: Run) -> None:
    clock, new = run.directory / "clock", run.directory / "new"
    clock.write_text("0")
    run.environ["CLOCK"] = str(clock)
    with run.recording(program=[sys.executable, "-c", STEPPED_COLLECTOR]):
        new.write_text(str(run.random.choice((-1, 1)) * run.random.randrange(2, 600)))
        new.replace(clock)
        run.wait_for_beats(10)
    _check_clock_step(run, "")


def _check_clock_step(run: Run, host: str) -> None:
    """Record a problem if the record does not report the step of the clock, of a host or of the collector."""
    hosts = Record.open(run.path).hosts
    series = {one.name: one for one in hosts.series}
    if not (series[host].clock_steps if host else hosts.clock_steps):
        run.result.unreported_losses.append("the step of the clock is not reported")


# Hostile host


def _hostile(run: Run, send: str) -> None:
    """Run with a host that sends this endlessly: it is disconnected with a reason, and the other host loses nothing."""
    script = HOSTILE.format(python=sys.executable, source=SOURCE, send=send)
    run.host.programs({"python3": script})
    began = time.monotonic()
    process = run.start("--timeout", "8")
    run.wait(hosts=1, samples=8)
    run.stop(process, (3,))
    record = run.check(partial=True, skip=[run.host.name])
    size = sum(path.stat().st_size for path in record.path.rglob("*") if path.is_file())
    budget = Budget.of(Plan.of(catalogue.load()), INTERVAL)
    limit = budget.total_bytes + budget.total_bytes_per_second * (time.monotonic() - began) + OTHER_FILES
    if size > limit:
        run.result.leftovers.append(f"the record has {size / 2**20:.0f} MiB, more than {limit / 2**20:.0f} MiB")


@kind("flood of frames", "hostile host")
def _flood_of_frames(run: Run) -> None:
    _hostile(run, 'b"".join(binary(b"B", next(numbers), 1, 1, b"") for _ in range(2000))')


@kind("flood of bytes", "hostile host")
def _flood_of_bytes(run: Run) -> None:
    _hostile(run, 'binary(b"B", next(numbers), 1, 1, bytes(1 << 20))')


@kind("deflate bombs", "hostile host")
def _bombs(run: Run) -> None:
    _hostile(run, '(time.sleep(0.03), binary(b"S", next(numbers), 1, 1, bomb))[1]')


@kind("random bytes", "hostile host")
def _random_bytes(run: Run) -> None:
    _hostile(run, "random.randbytes(65536)")


@kind("random frames", "hostile host")
def _random_frames(run: Run) -> None:
    kinds = "bytes([random.choice(b'HSRZPBDE')])"
    _hostile(
        run,
        f"(time.sleep(0.01), binary({kinds}, next(numbers), 1, 1, random.randbytes(random.randrange(200))))[1]",
    )


@kind("silent host", "hostile host")
def _silent(run: Run) -> None:
    _hostile(run, "b'' if sys.stdin.buffer.read(1) else sys.exit()")


@kind("impersonation", "hostile host")
def _impersonation(run: Run) -> None:
    """A host writes lines for the other one, with the token that both have: both fail, with the reason."""
    code = IMPERSONATE.format(source=str(SOURCE), rank=1, name=run.other.name)
    with run.recording(codes=(3,), transport=_mpi(run, MPI_RUN, "--connect-back", "none")):
        run.host.run([sys.executable, "-c", code])
        run.wait_for_loss(*run.names)
    for host in Record.open(run.path).hosts.outcome:
        if "conflicting claims" not in host.reason:
            run.result.unreported_losses.append(f"the false claim is not reported: {host.name} {host.reason}")


@kind("invented names", "hostile host")
def _invented_names(run: Run) -> None:
    text = Path("/proc/vmstat").read_text()
    more = "".join(f"name_{run.random.randrange(1 << 60):x} {number}\n" for number in range(5000))
    run.host.overlay({"/proc/vmstat": text + text.upper() + more})
    process = run.start()
    run.wait()
    run.stop(process, (0, 3))
    run.check(skip=[run.host.name])


# Hostile local user


@kind("connections to the agents' port", "hostile local user")
def _unknown_connections(run: Run) -> None:
    process = run.start(transport=_mpi(run))
    with subprocess.Popen([sys.executable, "-c", CONNECT, str(process.pid)]) as flood:
        try:
            run.wait()
            run.wait_for_beats()
            run.stop(process, (0, 3))
        finally:
            flood.kill()
    run.check()


@kind("relay", "hostile local user")
def _relay(run: Run) -> None:
    """A program between an agent and the collector inserts orders: the agent does not obey, and the host fails."""
    owned, log = run.directory / "owned", run.directory / "relay"
    start_relay(run.other, owned, log, raw=run.random.choice((True, False)))
    process = run.start(transport=_mpi(run, MPI_RUN, "--connect-back", run.other.address))
    run.wait(hosts=1)
    run.wait_for_loss()
    run.stop(process, (3,))
    run.check(partial=True)
    if owned.exists():
        run.result.wrong_values.append("the agent obeyed an inserted order")
    if problem := log.read_text():
        run.result.unreported_losses.append(f"the relay failed: {problem[-500:]}")


@kind("connections to the socket for marks", "hostile local user")
def _marks_of_others(run: Run) -> None:
    with run.recording():
        (path,) = run.temporary.rglob("marks")
        program = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
        for user in ("65534", "0"):
            run.temporary.chmod(0o755)
            argv = ["setpriv", f"--reuid={user}", "--clear-groups", sys.executable, "-c", program]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if (done.returncode == 0) != (user == "0"):
                run.result.wrong_exit_codes.append(f"user {user}: {done.stderr[-300:]}")


@kind("links in the temporary directory", "hostile local user")
def _planted_links(run: Run) -> None:
    outside = run.directory / "outside"
    outside.mkdir()
    (outside / "marks").write_text("keep")
    for number in range(5):
        (run.temporary / f"rollbook-run-{number}{run.random.randrange(1 << 30):08x}").symlink_to(outside)
    process = run.start()
    run.wait()
    run.stop(process, (0, 3))
    if [path.name for path in outside.iterdir()] != ["marks"]:
        run.result.leftovers.append("something outside the temporary directory was changed")
    for path in run.temporary.iterdir():
        if path.is_symlink():
            path.unlink()
    run.check()


@kind("links in the results directory", "hostile local user")
def _planted_records(run: Run) -> None:
    outside = run.directory / "outside"
    outside.mkdir()
    (run.results / "record").mkdir(parents=True)
    planted = []
    for second in range(30):
        stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime(time.time() + second))
        planted.append(run.results / "record" / stamp)
        planted[-1].symlink_to(outside)
    process = run.start()
    run.wait()
    for path in planted:
        path.unlink()
    if list(outside.iterdir()):
        run.result.leftovers.append("a link in the results directory was followed")
    run.stop(process, (0, 3))
    run.check()
