"""`rollbook watch` of hosts over real sshd."""

from __future__ import annotations

from rollbook.testing import Lab
from tests.support.commands import Rollbook


def test_once_with_a_host_down(lab: Lab, rollbook: Rollbook) -> None:
    """`--once` prints a table of rates and the reason for the host that is down; exit code 3."""
    lab["node03"].stop_sshd()
    reach = ["-w", ",".join(lab.names), "--via", "ssh", "--ssh-config", str(lab.ssh_config), "--timeout", "30"]
    ended = rollbook("watch", *reach, "--once", "--interval", "1")
    assert ended.code == 3, ended.err
    rows = {line.split()[0]: line.split() for line in ended.out.splitlines()[1:]}
    assert set(rows) == set(lab.names)
    assert next(iter(rows)) == "node03", "the host that is down comes first"
    assert rows["node03"][1] == "lost"
    for name in set(lab.names) - {"node03"}:
        assert rows[name][1] == "up"
        assert rows[name][3] == "%", rows[name]
    assert "node03: " in ended.err
