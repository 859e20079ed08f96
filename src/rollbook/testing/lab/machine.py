"""The simulated machine of a host and its faults: files, programs, links, mounts, boots."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollbook.testing.lab.core import Core, Place
from rollbook.testing.lab.init import INSIDE
from rollbook.testing.lab.resources import LabCannot
from rollbook.testing.lab.supervisor_client import SupervisorClient

__all__ = ["Machine"]

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Machine(Core):
    """Everything here needs namespaces, and raises `LabCannot` on a host that has none."""

    def __init__(self, supervisor: SupervisorClient, name: str, place: Place) -> None:
        super().__init__(supervisor, name, place)
        self._machine_id = uuid.uuid4().hex
        self._as_new()

    def overlay(self, files: Mapping[str, str | bytes], *, mode: int = 0o644) -> None:
        """Show the host these texts at these paths. A path that is given again changes in place, also for open readers.

        A path that exists gets a file bound over it, one that does not is added (its directory becomes an
        overlayfs). Entries cannot be added to /proc, and those of single processes (/proc/self, and with it
        /proc/mounts and /proc/net) cannot be replaced.
        """
        self._need_namespaces("overlay")
        new = {path: self._back(path, text, mode) for path, text in files.items() if path not in self._files}
        for path in files.keys() - new.keys():
            self._back(path, files[path], mode)
        self._within("cover", files=new)
        self._files.update(new)

    def programs(self, scripts: Mapping[str, str]) -> None:
        """Put programs where they come before the machine's own, for the agent and in the PATH of a login."""
        places = ("/usr/local/sbin", "/usr/local/bin")
        self.overlay({f"{place}/{name}": text for place in places for name, text in scripts.items()}, mode=0o755)

    def hide(self, program: str) -> None:
        """Hide a program from the host, in all versions (`python3` is also `python3.11`, `platform-python`)."""
        self._need_namespaces("hide")
        self._within("hide", program=program)
        self._hidden.append(program)

    def link(self, up: bool) -> None:
        """Plug the network cable in or pull it: the host sees the carrier go, its peers get no answer."""
        self._need_namespaces("link")
        self._up = up
        self._set_link()

    def mtu(self, size: int) -> None:
        """Set the MTU of the host's eth0."""
        self._need_namespaces("mtu")
        self._mtu = size
        self._set_link()

    def loss(self, percent: float) -> None:
        """Drop this share of the packets that reach the host, until it boots; 0 ends it."""
        self._need_namespaces("loss")
        if not shutil.which("nft"):
            raise LabCannot("needs the program nft: package nftables")
        rules = "table inet lab\ndelete table inet lab\n"
        if tenths := round(percent * 10):
            chance = f"numgen random mod 1000 <= {tenths - 1} drop"
            rules += f"table inet lab {{ chain arriving {{ type filter hook input priority 0; {chance}; }}; }}\n"
        self.run(["nft", "-f", "-"], input=rules, check=True)

    def hang_mount(self, path: str) -> None:
        """Mount a file system that never answers: what touches it hangs in the kernel and cannot be killed.

        The directory is made if need be; below /mnt, /run or /tmp it is the host's own.
        """
        self._need_namespaces("hang_mount")
        if not Path("/dev/fuse").exists():
            raise LabCannot("hang_mount needs /dev/fuse: the kernel's fuse module, in a container --device /dev/fuse")
        argv = [sys.executable, "-m", "rollbook.testing.lab.hang", str(self._init), path]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"cannot mount on {path}: {done.stderr.strip()}")
        self._hanging[path] = int(done.stdout)

    def unhang_mount(self, path: str) -> None:
        """End that file system: processes that wait for it get an error (ENOTCONN) and continue."""
        server = self._hanging.pop(path)
        os.kill(server, signal.SIGKILL)
        self._until_gone([server])
        self.run(["umount", "--lazy", path], check=True)

    def reboot(self) -> None:
        """Kill everything on the host and start it again with a new boot id. Its overlays stay."""
        self._need_namespaces("reboot")
        self._halt()
        self._boot()
        self._set_link()
        self.start_sshd()

    def _as_new(self) -> None:
        """Drop all overlays except those that give the host its identity."""
        super()._as_new()
        self._hidden: list[str] = []
        self._mtu = 1500
        self._up = True
        files = {
            "/etc/machine-id": f"{self._machine_id}\n",
            "/etc/hostname": f"{self.name}\n",
            "/etc/hosts": self._place.hosts,
            # Without PAM, sshd lets no user in whose password is locked, as root's is on some systems.
            "/etc/shadow": "root:*:1::::::\n",
        }
        self._files = {path: self._back(path, text) for path, text in files.items()}

    def _boot(self) -> None:
        self._files[_BOOT_ID] = self._back(_BOOT_ID, f"{uuid.uuid4()}\n")
        self._init = self._supervisor.ask(
            "boot",
            name=self.name,
            address=f"{self.address}/24",
            directory=str(self.directory),
            port=self._port,
            # Kept over boots, as a network card's is: peers remember it for a while.
            mac=f"02:52:42:00:00:{self._place.index:02x}",
            files=self._files,
            hidden=self._hidden,
        )

    def _halt(self) -> None:
        self._supervisor.ask("halt", pid=self._init, port=self._port)
        self._hanging.clear()

    def _back(self, path: str, content: str | bytes, mode: int = 0o644) -> str:
        """Write the file that stands for a path, in place, so that open readers see the change."""
        backing = self.directory / "files" / path.replace("/", "%")
        backing.parent.mkdir(exist_ok=True)
        with backing.open("r+b" if backing.exists() else "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.truncate()
        backing.chmod(mode)
        return f"{INSIDE}/files/{backing.name}"

    def _within(self, do: str, **arguments: Any) -> None:
        """Ask the supervisor to change the host's mount namespace."""
        try:
            self._supervisor.ask("within", pid=self._init, what=do, **arguments)
        except OSError as error:
            raise LabCannot(f"{self.name}: {error}") from None

    @property
    def _port(self) -> str:
        """The switch end of the host's link, in the supervisor's network namespace."""
        return f"port{self._place.index}"

    def _set_link(self) -> None:
        self.run(["ip", "link", "set", "eth0", "mtu", str(self._mtu)], check=True)
        # The switch end drops what is larger than itself: never let it be the narrow one.
        switch = ["nsenter", "--target", str(self._supervisor.pid), "--net", "ip", "link", "set", self._port]
        wide = str(max(self._mtu, 1500))
        subprocess.run([*switch, "mtu", wide, "up" if self._up else "down"], check=True)
