"""Lenient readers of /proc that need only Python 3.6: lines that do not fit are skipped, nothing is raised.

The text of this module is also what `SSH_COLLECTOR_SCRIPT` and its siblings consist of, so it imports nothing else of
Rollbook. Rollbook's own collectors use the agent and strict parsers instead.
"""

import json
import os
import socket
import sys
import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

DISK = (
    "device_name reads_completed reads_merged sectors_read time_reading_ms writes_completed writes_merged "
    "sectors_written time_writing_ms ios_in_progress time_doing_ios_ms weighted_time_doing_ios_ms discards_completed "
    "discards_merged sectors_discarded time_discarding_ms flush_requests_completed time_flushing_ms"
).split()
NETWORK = (
    "interface_name rx_bytes rx_packets rx_errors rx_dropped rx_fifo rx_frame rx_compressed rx_multicast tx_bytes "
    "tx_packets tx_errors tx_dropped tx_fifo tx_collisions tx_carrier tx_compressed"
).split()
LOAD = ("load_1min", "load_5min", "load_15min", "running_processes", "total_processes")
FACTS = "meminfo cpuinfo diskstats netdev version loadavg uptime_seconds os_release vmstat mounts cgroups".split()
SAMPLED = ("diskstats", "vmstat", "loadavg", "meminfo", "netdev")


def whole(word: str) -> "int | None":
    """Return the word as a whole number, or None."""
    try:
        return int(word)
    except ValueError:
        return None


def parse_proc_meminfo(content: str) -> "dict[str, int]":
    """Return every line's number by name: kB, and plain counts for `HugePages_*`."""
    found = {}
    for line in content.splitlines():
        parts = line.split(":")
        words = parts[1].split() if len(parts) == 2 else []
        if words and whole(words[0]) is not None:
            found[parts[0].strip()] = int(words[0])
    return found


def parse_proc_cpuinfo(content: str) -> "list[dict[str, Any]]":
    """Return a dict for each logical CPU; numbers as such."""
    blocks = []
    for block in content.strip().split("\n\n"):
        found = {}
        for line in block.splitlines():
            name, colon, value = line.partition(":")
            if colon and name.strip():
                found[name.strip()] = number_or_text(value.strip())
        if found:
            blocks.append(found)
    return blocks


def number_or_text(value: str) -> "float | int | str":
    """Return a float if there is a point in it, else an int, else the text."""
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        return value


def diskstats(text: str) -> "list[dict[str, Any]]":
    """Return a dict for each device; columns that the kernel does not have are left out."""
    rows: "List[Dict[str, Any]]" = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 14:
            continue
        count = 17 if len(words) >= 20 else 15 if len(words) >= 18 else 11
        numbers = [whole(word) for word in words[3 : 3 + count]]
        if None not in numbers:
            rows.append(dict(zip(DISK[1:], numbers), device_name=words[2]))
    return rows


def net_dev(text: str) -> "list[dict[str, Any]]":
    """Return a dict for each interface."""
    rows: "List[Dict[str, Any]]" = []
    for line in text.splitlines()[2:]:
        parts = line.split(":")
        words = parts[1].split() if len(parts) == 2 else []
        numbers = [whole(word) for word in words[:16]]
        if len(numbers) == 16 and None not in numbers:
            rows.append(dict(zip(NETWORK[1:], numbers), interface_name=parts[0].strip()))
    return rows


def parse_proc_version(content: str) -> str:
    """Return the kernel's banner."""
    return content.strip()


def loadavg(text: str) -> "dict[str, Any]":
    """Return averages and task counts by name; zeros for text that does not fit."""
    words = text.split()
    try:
        running, total = words[3].split("/")
        values = [float(word) for word in words[:3]] + [int(running), int(total)]
    except (IndexError, ValueError):
        values = [0.0, 0.0, 0.0, 0, 0]
    return dict(zip(LOAD, values))


def parse_proc_uptime(content: str) -> float:
    """Return seconds since boot; 0.0 for text that does not fit."""
    try:
        return float(content.split()[0])
    except (IndexError, ValueError):
        return 0.0


def parse_os_release(content: str) -> "dict[str, str]":
    """Return assignments by name, without quotes."""
    found = {}
    for line in content.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            found[name] = value.strip("\"'")
    return found


def parse_proc_vmstat(content: str) -> "dict[str, int]":
    """Return every line's number by name."""
    rows = (line.split() for line in content.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and whole(row[1]) is not None}


def mounts(text: str) -> "list[dict[str, Any]]":
    """Return a dict for each mount; octal escapes stay as they are."""
    rows: "List[Dict[str, Any]]" = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4:
            frequency, number = [whole(word) or 0 for word in (words[4:6] + ["0", "0"])[:2]]
            named = dict(zip(("device", "mount_point", "fs_type", "options"), words))
            rows.append(dict(named, dump_freq=frequency, pass_num=number))
    return rows


def cgroups(text: str) -> "list[dict[str, Any]]":
    """Return a dict for each control group subsystem."""
    rows: "List[Dict[str, Any]]" = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 4 or words[0].startswith("#") or words[0] == "subsys_name":
            continue
        hierarchy, number = whole(words[1]), whole(words[2])
        if hierarchy is not None and number is not None:
            rows.append(dict(subsys_name=words[0], hierarchy=hierarchy, num_cgroups=number, enabled=words[3] == "1"))
    return rows


READERS: "Dict[str, Tuple[str, Callable[[str], Any], Any]]" = {
    "meminfo": ("/proc/meminfo", parse_proc_meminfo, {}),
    "cpuinfo": ("/proc/cpuinfo", parse_proc_cpuinfo, []),
    "diskstats": ("/proc/diskstats", diskstats, []),
    "netdev": ("/proc/net/dev", net_dev, []),
    "version": ("/proc/version", parse_proc_version, ""),
    "loadavg": ("/proc/loadavg", loadavg, {}),
    "uptime_seconds": ("/proc/uptime", parse_proc_uptime, 0.0),
    "os_release": ("/etc/os-release", parse_os_release, {}),
    "vmstat": ("/proc/vmstat", parse_proc_vmstat, {}),
    "mounts": ("/proc/mounts", mounts, []),
    "cgroups": ("/proc/cgroups", cgroups, []),
}


def collect(keys: "Sequence[str]", empty: bool = True) -> "dict[str, Any]":
    """Return these keys; one that cannot be read has the empty value, if wanted, and is named in `errors`."""
    found: "Dict[str, Any]" = {}
    errors: "Dict[str, str]" = {}
    for key in keys:
        path, parse, nothing = READERS[key]
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                found[key] = parse(file.read())
        except OSError as error:
            errors["uptime" if key == "uptime_seconds" else key] = error.strerror or str(error)
            if empty:
                found[key] = nothing
    return dict(found, errors=errors) if errors else found


def now() -> str:
    """Return the time as `YYYY-MM-DDTHH:MM:SSZ`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def collect_timeseries_sample() -> "dict[str, Any]":
    """Return one sample of this machine; a metric that cannot be read is left out and named in `errors`."""
    return dict(collect(SAMPLED, empty=False), timestamp=now(), hostname=socket.gethostname())


def facts() -> "dict[str, Any]":
    """Return everything, of this machine."""
    return dict(collect(FACTS), collection_timestamp=now(), hostname=socket.gethostname())


def print_json(value: "dict[str, Any]") -> None:
    """Print one line of JSON."""
    sys.stdout.write(json.dumps(value) + "\n")


def gather(path: str) -> None:
    """Gather the facts of all MPI ranks, and write them by host name from rank 0."""
    from mpi4py import MPI  # type: ignore[import-not-found]

    communicator = MPI.COMM_WORLD
    mine = dict(facts(), mpi_rank=communicator.Get_rank())
    every = communicator.gather(mine, root=0)
    if every is not None:
        # As rollbook.files does, which this module cannot import on a host.
        part = "%s.%s.part" % (path, os.urandom(8).hex())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(part, flags, 0o600), "w") as file:
            json.dump({one["hostname"]: one for one in reversed(every)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
