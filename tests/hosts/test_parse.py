"""Hosts from the options of the command line and from Slurm."""

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
    """The only directory in PATH, initially empty."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def write_scontrol(folder: Path, script: str) -> None:
    """Write a fake `scontrol`."""
    (folder / "scontrol").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "scontrol").chmod(0o755)


def test_order_of_lists_files_and_exclusions(tmp_path: Path) -> None:
    """Hosts are in the order of the options; a repeated host keeps its place and adds its slots."""
    (tmp_path / "a").write_text("n9 slots=2\nn1 slots=4\n")
    (tmp_path / "b").write_text("n8\nn3\n")
    found = parse_hosts(["n[1-3]:2", "root@n5 localhost"], [tmp_path / "a", str(tmp_path / "b")], ["n[2-3]", "n8:7,x"])
    assert found == [Host("n1", None, 6), Host("n5", "root"), Host("localhost", local=True), Host("n9", None, 2)]


def test_caret_names_a_file(tmp_path: Path) -> None:
    """As in pdsh, `^PATH` reads hosts or exclusions from a file; the path may contain special characters."""
    (tmp_path / "a, b!").write_text("n[1-3]\n")
    (tmp_path / "down").write_text("n2 # broken\n")
    assert parse_hosts([f"^{tmp_path}/a, b!"], exclude=[f"^{tmp_path}/down"]) == [Host("n1"), Host("n3")]
    with pytest.raises(UsageError, match="cannot read host file"):
        parse_hosts(["^"])


@pytest.mark.parametrize(
    ("hostname", "name"),
    [("node7", "node7"), ("", "localhost"), ("a,b", "localhost"), ("-v", "localhost"), ("n[1-2]", "localhost")],
)
def test_default_is_this_machine(monkeypatch: pytest.MonkeyPatch, hostname: str, name: str) -> None:
    """This machine is named by its host name, or `localhost` if that is invalid."""
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
        ([f"n[1-{MAX_HOSTS}]", "m1"], [], "more than 100,000 hosts in total"),
    ],
)
def test_invalid_options(hosts: list[str], exclude: list[str], why: str) -> None:
    """No host, conflicting users and too many hosts are errors."""
    with pytest.raises(UsageError, match=why):
        parse_hosts(hosts, exclude=exclude)


def test_exclusions_without_effect(tmp_path: Path) -> None:
    """With `each_excludes`, a list that excludes no host is refused; a file may exclude none, because it is shared."""
    (tmp_path / "down").write_text("n7\n")
    assert len(parse_hosts(["n[1-3]"], exclude=["n7"])) == 3
    assert len(parse_hosts(["n[1-3]"], exclude=["n[3-9]", f"^{tmp_path}/down"], each_excludes=True)) == 2
    with pytest.raises(UsageError, match="-x n7 excludes none of the hosts"):
        parse_hosts(["n[1-3]"], exclude=["n1", "n7"], each_excludes=True)


@given(text=st.text(st.sampled_from("un10-[],:/!&@%. =\té\0") | st.characters(exclude_characters="^")))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("empty_path")
def test_arbitrary_text(text: str, tmp_path: Path) -> None:
    """Any text, as a list or a host file, results in hosts or a `UsageError`."""
    (tmp_path / "hosts").write_text(text, "utf-8", "surrogatepass")
    options: list[tuple[list[str], list[Path]]] = [([text], []), ([], [tmp_path / "hosts"])]
    for hosts, hostfiles in options:
        with contextlib.suppress(UsageError):
            found = parse_hosts(hosts, hostfiles)
            assert found
            assert len({host.name for host in found}) == len(found)


def test_slurm_list_without_scontrol(empty_path: Path) -> None:
    """If scontrol is missing or fails, Slurm's list is parsed by Rollbook."""
    environ = {"SLURM_JOB_NODELIST": "node[1-2,04],other"}
    hosts = [Host("node1"), Host("node2"), Host("node04"), Host("other")]
    assert from_slurm(environ) == hosts
    write_scontrol(empty_path, "echo 'Could not establish a configuration source' >&2; exit 1")
    assert from_slurm(environ) == hosts


def test_slurm_list_from_scontrol(empty_path: Path) -> None:
    """If scontrol works, its output is used."""
    write_scontrol(empty_path, '[ "$*" = "show hostnames bg[000x001]" ] && printf "bg000\\nbg001\\nlocalhost\\n"')
    found = from_slurm({"SLURM_JOB_NODELIST": "bg[000x001]"})
    assert found == [Host("bg000"), Host("bg001"), Host("localhost", local=True)]


@pytest.mark.parametrize("environ", [{}, {"SLURM_JOB_NODELIST": ""}, {"SLURM_NODELIST": "n1"}])
def test_outside_slurm(environ: dict[str, str]) -> None:
    """Without an allocation there are no nodes."""
    with pytest.raises(UsageError, match=f"{slurm.VARIABLE} is not set"):
        from_slurm(environ)
