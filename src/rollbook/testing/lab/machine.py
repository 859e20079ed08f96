"""What a host seems to be made of, and what can be wrong with that: files, programs, links, mounts, boots."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from rollbook.testing.lab.core import Core
from rollbook.testing.lab.errors import LabCannot
from rollbook.testing.lab.init import INSIDE

__all__ = ["Machine"]

BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/libexec")


class Machine(Core):
    """Everything here needs namespaces, and raises `LabCannot` on a host that has none."""

    def overlay(self, files: Mapping[str, str | bytes], *, mode: int = 0o644) -> None:
        """Let the host see these texts at these paths. Given again, a path changes in place, for open readers too.

        A path that exists gets a file bound over it, one that does not is added (its directory becomes an
        overlayfs). Entries cannot be added to /proc, and those of single processes (/proc/self, and with it
        /proc/mounts and /proc/net) cannot be replaced.
        """
        self._need_namespaces("overlay")
        for path, content in files.items():
            backing = self.directory / "files" / path.replace("/", "%")
            _rewrite(backing, content.encode() if isinstance(content, str) else content)
            backing.chmod(mode)
            if path not in self._standing:
                self._cover(path, backing.name)
                self._standing[path] = functools.partial(self._cover, path, backing.name)

    def programs(self, scripts: Mapping[str, str]) -> None:
        """Put programs into the host's /usr/local/bin, which comes first in the PATH of a login."""
        self.overlay({f"/usr/local/bin/{name}": text for name, text in scripts.items()}, mode=0o755)

    def hide(self, program: str) -> None:
        """Let the host have no such program, in no version (`python3` is also `python3.11`, `platform-python`)."""
        self._need_namespaces("hide")
        self._hide(program)
        self._standing[f"hide {program}"] = functools.partial(self._hide, program)

    def link(self, up: bool) -> None:
        """Plug the network cable in or pull it: the host sees the carrier go, its peers get no answer."""
        self._need_namespaces("link")
        self._link(up)
        self._standing["link"] = functools.partial(self._link, up)

    def mtu(self, size: int) -> None:
        """Set the MTU of the host's eth0."""
        self._need_namespaces("mtu")
        self._mtu(size)
        self._standing["mtu"] = functools.partial(self._mtu, size)

    def loss(self, percent: float) -> None:
        """Drop this share of the packets that reach the host; 0 ends it."""
        self._need_namespaces("loss")
        self._need_program("nft", "nftables")
        rules = "table inet lab\ndelete table inet lab\n"
        if percent:
            chance = f"numgen random mod 1000 < {round(percent * 10)} drop"
            rules += f"table inet lab {{ chain arriving {{ type filter hook input priority 0; {chance}; }}; }}\n"
        self.run(["nft", "-f", "-"], input=rules, check=True)

    def hang_mount(self, path: str) -> None:
        """Mount a file system that never answers: what touches it hangs in the kernel and cannot be killed.

        The directory is made if need be; below /mnt, /run or /tmp it is the host's own.
        """
        self._need_namespaces("hang_mount")
        if not Path("/dev/fuse").exists():
            raise LabCannot("hang_mount needs /dev/fuse: the fuse module; in a container also --device /dev/fuse")
        argv = [sys.executable, "-m", "rollbook.testing.lab.hang", str(self._init), path]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LabCannot(f"hang_mount failed: {done.stderr.strip()}")
        self._hanging[path] = int(done.stdout)
        self._servants.add(int(done.stdout))

    def unhang_mount(self, path: str) -> None:
        """End that file system: whoever waits for it gets an error (ENOTCONN) and goes on."""
        server = self._hanging.pop(path)
        os.kill(server, signal.SIGKILL)
        self._until_gone([server])
        self._servants.discard(server)
        self.run(["umount", "--lazy", path], check=True)

    def reboot(self) -> None:
        """Kill everything on the host and start it again with a new boot id. What it is made of stays."""
        self._need_namespaces("reboot")
        self._halt()
        self._boot()
        for again in self._standing.values():
            again()
        self.start_sshd()

    @functools.cached_property
    def _hanging(self) -> dict[str, int]:
        return {}

    @property
    def _port(self) -> str:
        """The switch end of the host's link, in the keeper's network namespace."""
        return f"port{self._place.index}"

    def _birth(self) -> dict[str, str]:
        """What the keeper has to know to boot the host."""
        return {
            "name": self.name,
            "address": f"{self.address}/24",
            "directory": str(self.directory),
            "port": self._port,
        }

    def _boot(self) -> None:
        self._booted(self._ground.ask("boot", hosts=[self._birth()])[self.name])

    def _booted(self, init: int) -> None:
        """The host runs: give it what makes it itself, before anything else is laid over it."""
        self._init = init
        fresh = self._standing
        self._standing = {}
        self.overlay({BOOT_ID: f"{uuid.uuid4()}\n"})
        self._standing = {**self._standing, **fresh}

    def _halt(self) -> None:
        self._ground.ask("halt", pid=self._init, port=self._port)
        self._hanging.clear()
        self._servants.clear()

    def _cover(self, path: str, name: str) -> None:
        """Bind the backing file of that name over the path, which is added first where it does not exist."""
        found = self.run(["realpath", "-e", "--", path])
        target = found.stdout.rstrip("\n")
        if found.returncode != 0:
            target = path
            self._graft(str(PurePosixPath(path).parent))
            self.run(["touch", "--", path], check=True)
        elif re.match(r"/proc/\d+/", target):
            raise LabCannot(f"{path} belongs to single processes; no file can stand in for it")
        self.run(["mount", "--bind", f"{INSIDE}/files/{name}", target], check=True)

    def _graft(self, directory: str) -> None:
        """Make the directory one where files can be added and removed without touching the machine's own."""
        existing = PurePosixPath(directory)
        while self.run(["test", "-d", str(existing)]).returncode != 0:
            existing = existing.parent
        if existing.parts[1:2] in ((), ("proc",)):
            raise LabCannot(f"nothing can be added to or removed from {existing}")
        kind = self.run(["stat", "-f", "-c", "%T", str(existing)], check=True).stdout.strip()
        if kind not in ("overlayfs", "tmpfs"):
            upper, work = (f"/run/graft/{kind}{str(existing).replace('/', '%')}" for kind in ("upper", "work"))
            self.run(["mkdir", "-p", upper, work], check=True)
            options = f"lowerdir={existing},upperdir={upper},workdir={work}"
            done = self.run(["mount", "-t", "overlay", "-o", options, "overlay", str(existing)])
            if done.returncode != 0:
                raise LabCannot(f"needs overlayfs over {existing}: {done.stderr.strip()}")
        self.run(["mkdir", "-p", directory], check=True)

    def _hide(self, program: str) -> None:
        names = rf"{re.escape(program)}(\.\d+)?" + (r"|platform-python.*" if program == "python3" else "")
        directories = self.run(["realpath", "-e", "--", *_PROGRAMS]).stdout.split()
        for directory in dict.fromkeys(directories):
            found = self.run(["ls", "-A", directory], check=True).stdout.splitlines()
            hidden = [f"{directory}/{name}" for name in found if re.fullmatch(names, name)]
            if hidden:
                self._graft(directory)
                self.run(["rm", "-f", "--", *hidden], check=True)

    def _link(self, up: bool) -> None:
        switch = ["nsenter", "--target", str(self._ground.pid), "--net"]
        subprocess.run([*switch, "ip", "link", "set", self._port, "up" if up else "down"], check=True)

    def _mtu(self, size: int) -> None:
        self.run(["ip", "link", "set", "eth0", "mtu", str(size)], check=True)
        # The switch end drops what is larger than itself: never let it be the narrow one.
        switch = ["nsenter", "--target", str(self._ground.pid), "--net"]
        subprocess.run([*switch, "ip", "link", "set", self._port, "mtu", str(max(size, 1500))], check=True)


def _rewrite(path: Path, content: bytes) -> None:
    """Change the file in place, so that those who have it open, or bound, see it."""
    path.parent.mkdir(exist_ok=True)
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(content)
        file.truncate()
