"""From host options and from Slurm to hosts."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollbook.errors import UsageError
from rollbook.hosts import MAX_HOSTS, Host, from_slurm, parse_hosts, slurm


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH on which nothing is found but what a test puts there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def scontrol(folder: Path, script: str) -> None:
    """A stand-in for Slurm's program."""
    (folder / "scontrol").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "scontrol").chmod(0o755)


def test_lists_then_files_less_excluded(tmp_path: Path) -> None:
    """Order is that of the options; a host named again keeps its place and adds its slots."""
    (tmp_path / "a").write_text("n9 slots=2\nn1 slots=4\n")
    (tmp_path / "b").write_text("n8\nn3\n")
    found = parse_hosts(["n[1-3]:2", "root@n5 localhost"], [tmp_path / "a", str(tmp_path / "b")], ["n[2-3]", "n8:7,x"])
    assert found == [Host("n1", None, 6), Host("n5", "root"), Host("localhost", local=True), Host("n9", None, 2)]


def test_caret_names_a_file(tmp_path: Path) -> None:
    """As pdsh has it, for hosts and for exclusions; the path may hold anything."""
    (tmp_path / "a, b!").write_text("n[1-3]\n")
    (tmp_path / "down").write_text("n2 # broken\n")
    assert parse_hosts([f"^{tmp_path}/a, b!"], exclude=[f"^{tmp_path}/down"]) == [Host("n1"), Host("n3")]
    with pytest.raises(UsageError, match="cannot read host file"):
        parse_hosts(["^"])


@pytest.mark.parametrize(
    ("hostname", "name"),
    [("node7", "node7"), ("", "localhost"), ("a,b", "localhost"), ("-v", "localhost"), ("n[1-2]", "localhost")],
)
def test_no_option_is_this_machine(monkeypatch: pytest.MonkeyPatch, hostname: str, name: str) -> None:
    """This machine by its host name, unless that is not a host name."""
    monkeypatch.setattr(socket, "gethostname", lambda: hostname)
    assert parse_hosts() == [Host(name, local=True)]


@pytest.mark.parametrize(
    ("hosts", "exclude", "why"),
    [
        ([""], [], "no host is named"),
        (["n1"], [""], "no host is named"),
        (["n[1-3]"], ["n[1-9]"], "all hosts were excluded"),
        (["n1!n1"], [], "all hosts were excluded"),
        (["ann@n1", "bob@n1"], [], "n1 is given with user ann and with user bob"),
        ([f"n[1-{MAX_HOSTS}]", "m1"], [], "more than 100,000 hosts in all"),
    ],
)
def test_unusable(hosts: list[str], exclude: list[str], why: str) -> None:
    """No host, two users, too many: said, not guessed."""
    with pytest.raises(UsageError, match=why):
        parse_hosts(hosts, exclude=exclude)


def test_a_misspelt_host_to_exclude(tmp_path: Path) -> None:
    """A list that excludes none of the hosts is refused where it was typed; files and groups serve other lists, too."""
    (tmp_path / "down").write_text("n7\n")
    assert len(parse_hosts(["n[1-3]"], exclude=["n7"])) == 3
    assert len(parse_hosts(["n[1-3]"], exclude=["n[3-9]", f"^{tmp_path}/down"], each_excludes=True)) == 2
    with pytest.raises(UsageError, match="-x n7 excludes none of the hosts"):
        parse_hosts(["n[1-3]"], exclude=["n1", "n7"], each_excludes=True)


@given(text=st.text(st.sampled_from("un10-[],:/!&@%. =\té\0") | st.characters(exclude_characters="^")))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("empty_path")
def test_any_text_is_read_or_refused(text: str, tmp_path: Path) -> None:
    """As a list and as a host file: hosts, or a `UsageError`."""
    (tmp_path / "hosts").write_text(text, "utf-8", "surrogatepass")
    options: list[tuple[list[str], list[Path]]] = [([text], []), ([], [tmp_path / "hosts"])]
    for hosts, hostfiles in options:
        with contextlib.suppress(UsageError):
            found = parse_hosts(hosts, hostfiles)
            assert found
            assert len({host.name for host in found}) == len(found)


def test_slurm_by_our_own_parser(empty_path: Path) -> None:
    """Without scontrol, and where it fails, Slurm's list is read here."""
    environ = {"SLURM_JOB_NODELIST": "node[1-2,04],other"}
    hosts = [Host("node1"), Host("node2"), Host("node04"), Host("other")]
    assert from_slurm(environ) == hosts
    scontrol(empty_path, "echo 'Could not establish a configuration source' >&2; exit 1")
    assert from_slurm(environ) == hosts


def test_slurm_by_scontrol(empty_path: Path) -> None:
    """Where scontrol is, its word counts."""
    scontrol(empty_path, '[ "$*" = "show hostnames bg[000x001]" ] && printf "bg000\\nbg001\\nlocalhost\\n"')
    found = from_slurm({"SLURM_JOB_NODELIST": "bg[000x001]"})
    assert found == [Host("bg000"), Host("bg001"), Host("localhost", local=True)]


@pytest.mark.parametrize("environ", [{}, {"SLURM_JOB_NODELIST": ""}, {"SLURM_NODELIST": "n1"}])
def test_outside_slurm(environ: dict[str, str]) -> None:
    """Without an allocation there are no nodes to ask."""
    with pytest.raises(UsageError, match=f"{slurm.VARIABLE} is not set"):
        from_slurm(environ)
