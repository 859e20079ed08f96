"""Settings of the user and the site override our defaults, as the real `ssh -G` reports them."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rollbook.errors import UsageError
from rollbook.hosts import Host
from rollbook.transports import ssh_config
from rollbook.transports.ssh import Ssh

DEFAULTS = {"stricthostkeychecking": "accept-new", "connecttimeout": "10", "serveraliveinterval": "5"}
STRICT = "StrictHostKeyChecking yes\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that ssh reads by default, below `.ssh` and `etc`."""
    for directory in (".ssh", "etc"):
        (tmp_path / directory).mkdir()
    monkeypatch.setattr(ssh_config, "_home", lambda: tmp_path)
    monkeypatch.setattr(ssh_config, "SYSTEM", (tmp_path / "etc" / "ssh_config",))
    return tmp_path


def effective_settings(transport: Ssh, host: str = "node1") -> dict[str, str]:
    """The settings that ssh would use with the transport's command line."""
    argv = transport.argv(Host(host))
    done = subprocess.run([*argv[:-3], "-G", host], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    """Write a file with this mode, independent of the umask."""
    path.write_text(text)
    path.chmod(mode)
    return path


def test_defaults(files: Path) -> None:
    """Without any configuration our defaults apply, together with the options on the command line."""
    del files
    found = effective_settings(Ssh())
    assert DEFAULTS.items() <= found.items()
    assert (found["batchmode"], found["clearallforwardings"], found["forwardagent"]) == ("yes", "yes", "no")


TEXTS = [
    STRICT,
    f"Host *\n  {STRICT}",
    f"Host other\n  StrictHostKeyChecking no\nHost node*\n  {STRICT}",
    f"Match final\n  {STRICT}",
    f"CanonicalizeHostname always\nMatch canonical all\n  {STRICT}",
    "Include {directory}/more\n",
    "Include {directory}/m*e {directory}/none\n",
]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        *(("etc/ssh_config", text) for text in [*TEXTS, "Include more\n"]),
        *((".ssh/config", text) for text in TEXTS),  # a relative path there is below the real home directory
    ],
)
def test_user_and_site_settings_override_defaults(files: Path, where: str, text: str) -> None:
    """A setting in any block or included file overrides our default; other defaults still apply."""
    path = files / where
    write(path.parent / "more", f"Match final\n  {STRICT}" if "m*e" in text else STRICT)
    write(path, text.replace("{directory}", str(path.parent)), 0o644)
    found = effective_settings(Ssh())
    assert found["stricthostkeychecking"] in ("yes", "true")
    assert (found["connecttimeout"], found["serveraliveinterval"]) == ("10", "5")


def test_precedence(files: Path) -> None:
    """The command line overrides the user's file, which overrides the site's, which overrides our defaults."""
    write(files / ".ssh/config", "Port 1\nConnectTimeout 2\n")
    write(files / "etc/ssh_config", "Port 3\nConnectTimeout 3\nUser ann\nServerAliveInterval 60\n")
    found = effective_settings(Ssh(ssh_options=("Port=7", "StrictHostKeyChecking=no")))
    assert (found["port"], found["connecttimeout"], found["user"]) == ("7", "2", "ann")
    assert (found["serveraliveinterval"], found["stricthostkeychecking"]) in (("60", "no"), ("60", "false"))


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o666])
@pytest.mark.parametrize("name", ["own", "with space", "with[1]*", "half"])
def test_ssh_config_option(files: Path, mode: int, name: str) -> None:
    """The file replaces both default files, as with `ssh -F`, with any name and mode; our defaults still come last."""
    write(files / ".ssh/config", "Port 1\n")
    write(files / "etc/ssh_config", "User ann\n")
    given = write(files / name, f"Host node*\n  {STRICT}Host x\n  ConnectTimeout 3", mode)
    found = effective_settings(Ssh(ssh_config=str(given)))
    assert found["stricthostkeychecking"] in ("yes", "true")
    assert (found["port"], found["connecttimeout"]) == ("22", "10")
    assert found["user"] != "ann"


def test_missing_and_unusable_files(files: Path) -> None:
    """A device, a missing file and one with bad permissions are treated as by ssh."""
    assert DEFAULTS.items() <= effective_settings(Ssh(ssh_config="/dev/null")).items()
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        Ssh(ssh_config=str(files / "nosuch")).argv(Host("node1"))
    write(files / ".ssh/config", STRICT, 0o666)
    transport = Ssh(timeout=59.0)
    argv = transport.argv(Host("node1"))
    done = subprocess.run([*argv[:-3], "-G", "node1"], capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "Bad owner or permissions" in done.stderr


def count_memfds() -> int:
    """Count open memfds of this process; the garbage collector may close other files at any time."""
    found = 0
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that this loop reads
            found += str(fd.readlink()).startswith("/memfd:")
    return found


def test_a_python_without_memfd_create(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration is in a file without a name, which no other user can read."""
    write(files / ".ssh/config", "Port 17\n")
    monkeypatch.delattr(os, "memfd_create")
    transport = Ssh()
    path = Path(transport.argv(Host("node1"))[2])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(path.readlink()).endswith(" (deleted)")


def test_configuration_is_private_and_temporary(files: Path) -> None:
    """Only the user can read the configuration; it is in memory and ends with the transport or the process."""
    write(files / ".ssh/config", "Port 1\n")
    before = count_memfds()
    transport = Ssh()
    path = Path(transport.argv(Host("node1"))[2])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(path.readlink()).startswith("/memfd:")
    del transport
    assert count_memfds() == before
    code = "from rollbook.transports.ssh_config import Configuration; c = Configuration(None, 9); print(c.path)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).exists()


def test_jump_hosts_use_the_same_configuration(files: Path) -> None:
    """The settings of the user also apply to the jump host."""
    write(files / ".ssh/config", f"Host node1\n  ProxyJump gate\nHost gate\n  {STRICT}")
    found = effective_settings(Ssh())
    assert found["proxyjump"] == "gate"
    assert effective_settings(Ssh(), "gate")["stricthostkeychecking"] in ("yes", "true")
