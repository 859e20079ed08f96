"""The ssh transport keeps the promises of `rollbook.testing.conformance`, through real sshd."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.hosts import Host
from rollbook.testing import Lab
from rollbook.testing.conformance import CHECKS, Check, greets, run_check
from rollbook.transports.ssh import Ssh
from tests.support.waits import until


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_ssh(check: Check, lab: Lab) -> None:
    """Each conformance check passes; no process is left on the host."""
    run_check(check, Ssh(ssh_config=str(lab.ssh_config)), Host("node01"))
    until(lambda: not lab["node01"].processes())


def test_ssh_through_a_jump_host(lab: Lab, tmp_path: Path) -> None:
    """The ssh that is started for the jump host reads our configuration as well."""
    config = tmp_path / "config"
    config.write_text(f"Host node02\n  ProxyJump node01\nMatch all\nInclude {lab.ssh_config}\n")
    run_check(greets, Ssh(ssh_config=str(config)), Host("node02"))
