"""Pages of plain Linux machines, with parameters for the values that differ."""

from __future__ import annotations

import hashlib
import uuid

from rollbook.testing.fakehost import Text

__all__ = ["linux"]


def linux(
    name: str,
    *,
    memory_kib: int = 16 << 20,
    cpus: int = 4,
    kernel: str = "6.1.0-18-amd64",
    mtu: int = 1500,
    disk_bytes: int = 1 << 40,
) -> dict[str, Text]:
    """The pages of a server with one socket, one disk and one network interface; its ids follow from its name."""
    mark = hashlib.sha256(name.encode()).digest()
    return {
        "/etc/machine-id": mark[:16].hex() + "\n",
        "/etc/os-release": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        "/proc/sys/kernel/random/boot_id": f"{uuid.UUID(bytes=mark[16:])}\n",
        "/proc/sys/kernel/hostname": f"{name}\n",
        "/proc/sys/kernel/osrelease": f"{kernel}\n",
        "/proc/version": f"Linux version {kernel} (builder@example) (gcc 12.2.0) #1 SMP PREEMPT_DYNAMIC\n",
        "/proc/uptime": lambda seconds: f"{86400 + seconds:.2f} {cpus * (80000 + seconds):.2f}\n",
        "/proc/loadavg": f"0.10 0.20 0.30 1/{100 * cpus} 4321\n",
        "/proc/meminfo": f"MemTotal: {memory_kib} kB\nMemFree: {memory_kib // 2} kB\nMemAvailable: "
        f"{memory_kib * 3 // 4} kB\nBuffers: 1024 kB\nCached: {memory_kib // 8} kB\nHugePages_Total: 0\n",
        "/proc/cpuinfo": "".join(
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Example CPU\nphysical id\t: 0\n"
            f"siblings\t: {cpus}\ncore id\t\t: {cpu}\ncpu cores\t: {cpus}\n\n"
            for cpu in range(cpus)
        ),
        "/proc/mounts": "/dev/sda1 / ext4 rw,relatime 0 0\nproc /proc proc rw,nosuid,nodev,noexec 0 0\n",
        "/proc/diskstats": lambda seconds: (
            f"   8       0 sda 1000 10 {int(80000 + 100 * seconds)} 500 "
            f"2000 20 {int(160000 + 800 * seconds)} 900 0 1400 1400\n"
        ),
        "/proc/net/dev": lambda seconds: (
            "Inter-|   Receive                                                |  Transmit\n"
            " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls "
            "carrier compressed\n"
            f"  eth0: {int(10**6 * (1 + seconds))} {int(1000 * (1 + seconds))} 0 0 0 0 0 0 "
            f"{int(10**5 * (1 + seconds))} {int(100 * (1 + seconds))} 0 0 0 0 0 0\n"
        ),
        "/sys/class/net/eth0/mtu": f"{mtu}\n",
        "/sys/class/net/eth0/operstate": "up\n",
        "/sys/class/net/eth0/speed": "25000\n",
        "/sys/class/net/eth0/type": "1\n",
        "/sys/block/sda/size": f"{disk_bytes // 512}\n",
        "/sys/block/sda/queue/rotational": "0\n",
        "/sys/block/sda/queue/scheduler": "[mq-deadline] none\n",
    }
