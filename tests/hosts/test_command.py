"""The output of `rollbook hosts`, which can be passed to `-w`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rollbook.cli.hosts import command
from rollbook.hosts import parse_hosts


@pytest.mark.parametrize(
    ("hosts", "lines", "folded"),
    [
        ("ann@login", "ann@login\n", "ann@login\n"),
        ("n[1-2],ann@n3", "n1\nn2\nann@n3\n", "n[1-2],ann@n3\n"),
        ("a1@n[1-2],a2@n[3-4],a1@x", "a1@n1\na1@n2\na2@n3\na2@n4\na1@x\n", "a1@n[1-2],a1@x,a2@n[3-4]\n"),
    ],
)
def test_users_are_kept(hosts: str, lines: str, folded: str) -> None:
    """Users are kept in both formats: one host per line, and folded."""
    assert CliRunner().invoke(command, ["-w", hosts]).stdout == lines
    assert CliRunner().invoke(command, ["-w", hosts, "--fold"]).stdout == folded
    assert {(host.user, host.name) for host in parse_hosts([folded.strip()])} == {
        (host.user, host.name) for host in parse_hosts([hosts])
    }
