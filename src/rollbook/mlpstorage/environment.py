"""Checks of the environment by the names of MLPerf Storage's module: ssh connectivity, and how to install programs."""

from __future__ import annotations

import dataclasses
import platform
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

__all__ = [
    "INSTALL_INSTRUCTIONS",
    "OSInfo",
    "ValidationIssue",
    "collect_validation_issues",
    "detect_os",
    "get_install_instruction",
    "validate_ssh_connectivity",
]

MORE_SECONDS = 5  # for ssh to end after its own ConnectTimeout
MAX_AT_ONCE = 64
_APT, _DNF, _YUM = "sudo apt-get install", "sudo dnf install", "sudo yum install"
INSTALL_INSTRUCTIONS: dict[tuple[str, str | None, str | None], str] = {
    **{("mpi", "Linux", name): f"{_APT} openmpi-bin libopenmpi-dev" for name in ("ubuntu", "debian")},
    **{("mpi", "Linux", name): f"{_DNF} openmpi openmpi-devel" for name in ("rhel", "fedora", "rocky", "almalinux")},
    ("mpi", "Linux", "centos"): f"{_YUM} openmpi openmpi-devel",
    ("mpi", "Linux", "arch"): "sudo pacman -S openmpi",
    ("mpi", "Linux", None): "Install Open MPI with the package manager of the distribution",
    ("mpi", "Darwin", None): "brew install open-mpi",
    **{("ssh", "Linux", name): f"{_APT} openssh-client" for name in ("ubuntu", "debian")},
    **{("ssh", "Linux", name): f"{_DNF} openssh-clients" for name in ("rhel", "fedora", "rocky", "almalinux")},
    ("ssh", "Linux", "centos"): f"{_YUM} openssh-clients",
    ("ssh", "Linux", None): "Install the OpenSSH client with the package manager of the distribution",
    ("ssh", "Darwin", None): "macOS has an ssh client",
    ("dlio", None, None): "pip install dlio-benchmark",
}
"""Commands by program, system and distribution; None stands for any."""


@dataclasses.dataclass
class ValidationIssue(Exception):
    """A problem of the environment, to raise or to collect."""

    severity: str
    category: str
    message: str
    suggestion: str
    install_cmd: str | None = None
    host: str | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        lines = [f"[{self.severity.upper()}] {self.message}", f"Suggestion: {self.suggestion}"]
        lines += [f"Install command: {self.install_cmd}"] if self.install_cmd else []
        lines += [f"Host: {self.host}"] if self.host else []
        return "\n".join(lines)


@dataclasses.dataclass
class OSInfo:
    """The operating system, and the distribution where there is one."""

    system: str
    release: str
    machine: str
    distro_id: str | None = None
    distro_name: str | None = None
    distro_version: str | None = None


def detect_os() -> OSInfo:
    """Return the operating system of this machine."""
    info = OSInfo(platform.system(), platform.release(), platform.machine())
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return info
    info.distro_id = release.get("ID", "").lower() or None
    info.distro_name, info.distro_version = release.get("NAME") or None, release.get("VERSION_ID") or None
    return info


def get_install_instruction(dependency: str, os_info: OSInfo) -> str:
    """Return how to install a program: for this distribution, else for this system, else in general."""
    keys = [
        (dependency, os_info.system, os_info.distro_id),
        (dependency, os_info.system, None),
        (dependency, None, None),
    ]
    general = f"Install {dependency} with the package manager of the system"
    return next((INSTALL_INSTRUCTIONS[key] for key in keys if key in INSTALL_INSTRUCTIONS), general)


def collect_validation_issues(
    issues: Iterable[ValidationIssue],
) -> tuple[list[ValidationIssue], list[ValidationIssue]]:
    """Return errors and warnings."""
    found = list(issues)
    return [one for one in found if one.severity == "error"], [one for one in found if one.severity == "warning"]


def validate_ssh_connectivity(
    hosts: Sequence[str], timeout: int = 5, *, ssh_options: Sequence[str] = ()
) -> list[tuple[str, bool, str]]:
    """Return for each entry, in order, the host, whether ssh reaches it, and a message.

    Hosts are tried in parallel. `ssh_options` go to ssh as they are. Raises `ValidationIssue` without an ssh client.
    """
    if shutil.which("ssh") is None:
        command = get_install_instruction("ssh", detect_os())
        raise ValidationIssue(
            "error", "dependency", "SSH client not found", "Install an ssh client and try again", command
        )
    with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
        return list(pool.map(lambda entry: _reached(str(entry), timeout, ssh_options), hosts))


def _reached(entry: str, timeout: int, options: Sequence[str]) -> tuple[str, bool, str]:
    name = entry.partition(":")[0].strip()
    if not name or name.split() != [name] or name.startswith("-"):
        return entry, False, f"Invalid host token {entry!r}"
    if name.lower() in ("localhost", "127.0.0.1"):
        return name, True, "localhost (skipped)"
    command = [
        "ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout}", "-o", "StrictHostKeyChecking=accept-new",
        *options, name, "echo", "ok",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout + MORE_SECONDS, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return name, False, f"Connection timed out after {timeout}s"
    except OSError as error:
        return name, False, str(error)
    if done.returncode == 0:
        return name, True, "connected"
    return name, False, done.stderr.strip() or f"SSH failed with code {done.returncode}"
