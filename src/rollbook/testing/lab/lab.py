r"""The lab: hosts with real sshd on one Linux machine.

    with Lab(8) as lab:
        lab["node03"].overlay({"/proc/meminfo": "MemTotal: 1024 kB\n"})
        lab["node05"].stop_sshd()
        subprocess.run(["ssh", "-F", lab.ssh_config, "node03", "cat", "/proc/meminfo"])

As root each host is a set of network, mount, UTS and PID namespaces with its own address, hostname, machine id and
boot id. Where the machine forbids that, the hosts are sshd processes of the calling user on loopback addresses
(`lab.kind` says which), and what needs namespaces raises `LabCannot`. Whatever happens to the process that built it,
the lab is taken down: processes, mounts, links and files.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rollbook.testing.lab import resources
from rollbook.testing.lab.core import Kind, Place
from rollbook.testing.lab.host import LabHost
from rollbook.testing.lab.keys import client_config, known_host, make_keys
from rollbook.testing.lab.resources import LabCannot
from rollbook.testing.lab.supervisor_client import SupervisorClient
from rollbook.testing.ports import free_ports

__all__ = ["Lab"]

_MOST = 250
_number = itertools.count()


class Lab:
    """Hosts `node01`, `node02`, … or those named, from `__enter__` to `__exit__`.

    `kind` asks for one kind of hosts instead of the best this machine offers. `max_startups` is that of every sshd
    (sshd_config(5)); its own default is the default.
    """

    def __init__(
        self,
        count: int = 0,
        *,
        names: Sequence[str] = (),
        max_startups: str = "10:30:100",
        kind: Kind | None = None,
    ) -> None:
        self.names = list(names) or [f"node{number:02}" for number in range(1, count + 1)]
        if not 0 < len(self.names) <= _MOST:
            raise ValueError(f"a lab has 1 to {_MOST} hosts, not {len(self.names)}")
        self.hosts: list[LabHost] = []
        self.kind: Kind = kind or ("loopback" if resources.missing_namespaces() else "namespaces")
        self._max_startups = max_startups

    @staticmethod
    def missing() -> list[str]:
        """What a complete lab needs and this machine lacks, each with how to provide it."""
        lacking = resources.missing_programs() + resources.missing_namespaces()
        if not Path("/dev/fuse").exists():
            lacking.append("/dev/fuse: the kernel's fuse module, in a container --device /dev/fuse")
        if not shutil.which("nft"):
            lacking.append("nft: package nftables")
        return lacking

    def __enter__(self) -> Self:
        if lacking := resources.missing_programs():
            raise LabCannot(f"no lab without {', '.join(lacking)}")
        if self.kind == "namespaces" and (lacking := resources.missing_namespaces()):
            raise LabCannot(f"no hosts without {', '.join(lacking)}")
        self._supervisor = SupervisorClient()
        try:
            self._build()
        except BaseException:
            self._supervisor.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._supervisor.close()

    def __getitem__(self, name: str) -> LabHost:
        return self.hosts[self.names.index(name)]

    def __iter__(self) -> Iterator[LabHost]:
        return iter(self.hosts)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def ssh_config(self) -> Path:
        """The configuration for `ssh -F`: addresses, ports, key, and its own known_hosts."""
        return self._supervisor.directory / "ssh_config"

    def restore(self) -> None:
        """Reset every host that was changed."""
        for host in self.hosts:
            if host.changed:
                host.reset()

    def _build(self) -> None:
        directory = self._supervisor.directory
        number = next(_number)
        make_keys([directory / "id_lab"])
        if self.kind == "namespaces":
            port, link = 22, f"rbl{os.getpid()}-{number}"
            with resources.free_network(os.getpid() + number) as network:
                self._supervisor.ask("open", link=link, address=f"{network}.254/24", caller=os.getpid())
        else:
            network = f"127.0.{(os.getpid() + number) % 255 + 1}"
            [port] = free_ports(1, f"{network}.1")
        self._make_hosts(network, port)
        make_keys([host.directory / "host_key" for host in self.hosts])
        known = [known_host(host.address, port, host.directory / "host_key") for host in self.hosts]
        (directory / "known_hosts").write_text("".join(known))
        self.ssh_config.write_text(client_config(directory, [(h.name, h.address, port) for h in self.hosts]))
        for host in self.hosts:
            host.start()

    def _make_hosts(self, network: str, port: int) -> None:
        addresses = [f"{network}.{number}" for number in range(1, len(self.names) + 1)]
        lines = [f"{address} {name}\n" for address, name in zip(addresses, self.names, strict=True)]
        hosts = "127.0.0.1 localhost\n::1 localhost\n" + "".join(lines)
        key = (self._supervisor.directory / "id_lab.pub").read_text()
        for index, (name, address) in enumerate(zip(self.names, addresses, strict=True)):
            place = Place(self.kind, index, address, port, self._max_startups, key, hosts)
            self.hosts.append(LabHost(self._supervisor, name, place))
