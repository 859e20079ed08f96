"""Groups of the site through the real `nodeset`, and its error messages."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rollbook.errors import HostListError, UsageError
from rollbook.hosts import groups
from rollbook.hosts.lists import read_list

CONF = """\
[Main]
default: site
[site]
map: sed -n 's/^$GROUP: //p' {groups}
list: sed -n 's/: .*//p' {groups}
[rack]
map: echo rack$GROUP-n[1-2]
[odd]
map: echo 'bad;name'
[slow]
map: echo x > {fifo}; exec sleep 60 > {fifo}
"""
GROUPS = """\
compute: node[01-03]
gpu: gpu[1-2],node03
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with groups; `nodeset` is that of the system or of this environment."""
    (tmp_path / "groups").write_text(GROUPS)
    (tmp_path / "groups.conf").write_text(CONF.format(groups=tmp_path / "groups", fifo=tmp_path / "fifo"))
    monkeypatch.setenv("CLUSTERSHELL_CFGDIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{Path(sys.executable).parent}")
    return tmp_path


def write_program(folder: Path, name: str, script: str) -> None:
    """Write an executable shell script."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("@compute", "node01 node02 node03"),
        ("@site:gpu", "gpu1 gpu2 node03"),
        ("@rack:7", "rack7-n1 rack7-n2"),
        ("login,@compute!@gpu", "login node01 node02"),
        ("@compute&@gpu", "node03"),
        ("@*", "gpu1 gpu2 node01 node02 node03"),
    ],
)
@pytest.mark.usefixtures("site")
def test_group(text: str, hosts: str) -> None:
    """A group has the members that `nodeset` prints, and can be combined with other names."""
    assert list(read_list(text)) == hosts.split()


@pytest.mark.parametrize(
    ("text", "position", "why"),
    [
        ("n1,@nosuch", 3, "@nosuch.*nodeset -L"),
        ("@nosource:x", 0, "@nosource:x: .*nosource.*nodeset -L"),
        ("n1 @odd:x", 3, "@odd:x has a member that is not a host name: a host name cannot contain ';'"),
    ],
)
@pytest.mark.usefixtures("site")
def test_invalid_groups(text: str, position: int, why: str) -> None:
    """The error points at the group and says what to do."""
    with pytest.raises(HostListError, match=why) as caught:
        read_list(text)
    assert caught.value.position == position


def test_timeout(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group source that hangs is killed with its child processes."""
    monkeypatch.setattr(groups, "SECONDS", 0.2)
    communicate = subprocess.Popen[str].communicate
    os.mkfifo(site / "fifo")
    end = os.open(site / "fifo", os.O_RDONLY | os.O_NONBLOCK)

    def once_reached(program: subprocess.Popen[str], *args: Any, **options: Any) -> tuple[str, str]:
        assert select.select([end], [], [], 60)[0], "the source was not reached"
        return communicate(program, *args, **options)

    monkeypatch.setattr(subprocess.Popen, "communicate", once_reached)
    try:
        with pytest.raises(UsageError, match=r"@slow:x: .*did not answer within 0.2 s"):
            groups.members("@slow:x")
        assert os.read(end, 10) == b"x\n"
        assert select.select([end], [], [], 60)[0], "the source's command was not killed"
        assert os.read(end, 10) == b""
    finally:
        os.close(end)


def test_nodeset_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ClusterShell the error names it; `cluset` is used if there is no `nodeset`."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="@gpu needs ClusterShell's nodeset or cluset"):
        groups.members("@gpu")
    write_program(tmp_path, "cluset", 'echo "$1-$2" | /bin/tr -d @')
    with pytest.raises(UsageError, match="begin with '-'"):
        groups.members("@gpu")
    write_program(tmp_path, "nodeset", '[ "$*" = "-e @gpu" ] && echo g1 g2')
    assert groups.members("@gpu") == ["g1", "g2"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 3", "@gpu: .*nodeset failed: exit status 3"),
        (r"printf 'first\nno \033[31m luck\n' >&2; exit 1", r"@gpu: .*nodeset failed: no \?\[31m luck;"),
        ("echo", "@gpu is unknown or empty"),
        (r"printf 'g1 \377'", "@gpu has a member that is not a host name"),
    ],
)
def test_nodeset_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str) -> None:
    """The error has the last line of its output, without control characters."""
    write_program(tmp_path, "nodeset", script)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=why):
        groups.members("@gpu")


def test_nodeset_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program whose interpreter does not exist is a usage error."""
    (tmp_path / "nodeset").write_text("#!/nonexistent\n")
    (tmp_path / "nodeset").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"@gpu: cannot run .*nodeset: No such file"):
        groups.members("@gpu")
