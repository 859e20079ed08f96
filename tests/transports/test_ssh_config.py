"""Settings of the user and the site win over our defaults, as the real `ssh -G` reports them."""

from __future__ import annotations

import contextlib
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


def effective(transport: Ssh, host: str = "node1") -> dict[str, str]:
    """The settings that ssh would use with the transport's command line."""
    argv = transport.argv(Host(host))
    done = subprocess.run([*argv[:-3], "-G", host], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    """A file with this mode, whatever the umask."""
    path.write_text(text)
    path.chmod(mode)
    return path


def test_defaults(files: Path) -> None:
    """Without any configuration ours applies, and what the agent needs is on the command line."""
    del files
    found = effective(Ssh())
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
def test_a_stricter_setting_wins(files: Path, where: str, text: str) -> None:
    """Of the user or the site, in any block or included file; other defaults still apply."""
    path = files / where
    write(path.parent / "more", f"Match final\n  {STRICT}" if "m*e" in text else STRICT)
    write(path, text.replace("{directory}", str(path.parent)), 0o644)
    found = effective(Ssh())
    assert found["stricthostkeychecking"] in ("yes", "true")
    assert (found["connecttimeout"], found["serveraliveinterval"]) == ("10", "5")


def test_order(files: Path) -> None:
    """The command line wins over the user's file, that over the site's, and all of them over ours."""
    write(files / ".ssh/config", "Port 1\nConnectTimeout 2\n")
    write(files / "etc/ssh_config", "Port 3\nConnectTimeout 3\nUser ann\nServerAliveInterval 60\n")
    found = effective(Ssh(ssh_options=("Port=7", "StrictHostKeyChecking=no")))
    assert (found["port"], found["connecttimeout"], found["user"]) == ("7", "2", "ann")
    assert (found["serveraliveinterval"], found["stricthostkeychecking"]) in (("60", "no"), ("60", "false"))


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o666])
@pytest.mark.parametrize("name", ["own", "with space", "with[1]*", "half"])
def test_a_file_that_the_user_names(files: Path, mode: int, name: str) -> None:
    """It replaces both default files, as with `ssh -F`, whatever its name and mode; ours still come last."""
    write(files / ".ssh/config", "Port 1\n")
    write(files / "etc/ssh_config", "User ann\n")
    given = write(files / name, f"Host node*\n  {STRICT}Host x\n  ConnectTimeout 3", mode)
    found = effective(Ssh(ssh_config=str(given)))
    assert found["stricthostkeychecking"] in ("yes", "true")
    assert (found["port"], found["connecttimeout"]) == ("22", "10")
    assert found["user"] != "ann"


def test_files_that_are_not_there_or_not_usable(files: Path) -> None:
    """Nothing, a device, a file that cannot be read: as ssh itself treats them."""
    assert DEFAULTS.items() <= effective(Ssh(ssh_config="/dev/null")).items()
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        Ssh(ssh_config=str(files / "nosuch")).argv(Host("node1"))
    write(files / ".ssh/config", STRICT, 0o666)
    transport = Ssh(timeout=59.0)
    argv = transport.argv(Host("node1"))
    done = subprocess.run([*argv[:-3], "-G", "node1"], capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "Bad owner or permissions" in done.stderr


def files_in_memory() -> int:
    """How many this process has open; other files may be closed by the garbage collector at any time."""
    found = 0
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that this loop reads
            found += str(fd.readlink()).startswith("/memfd:")
    return found


def test_what_is_left(files: Path) -> None:
    """The configuration is readable by its user alone, on no disk, and gone with the transport or the process."""
    write(files / ".ssh/config", "Port 1\n")
    before = files_in_memory()
    transport = Ssh()
    path = Path(transport.argv(Host("node1"))[2])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(path.readlink()).startswith("/memfd:")
    del transport
    assert files_in_memory() == before
    code = "from rollbook.transports.ssh_config import Configuration; c = Configuration(None, 9); print(c.path)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).exists()


def test_a_jump_host_reads_the_same(files: Path) -> None:
    """The ssh that is started for the jump host gets our configuration, and so the same settings."""
    write(files / ".ssh/config", f"Host node1\n  ProxyJump gate\nHost gate\n  {STRICT}")
    found = effective(Ssh())
    assert found["proxyjump"] == "gate"
    assert effective(Ssh(), "gate")["stricthostkeychecking"] in ("yes", "true")
