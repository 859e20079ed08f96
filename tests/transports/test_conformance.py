"""Every transport passes the checks of `rollbook.testing.conformance`; and the checks can fail."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from rollbook.errors import Refused, TransportError
from rollbook.hosts import Host
from rollbook.testing import Fake, FakeHost, check_transport, conformance, linux
from rollbook.testing.conformance import (
    CHECKS,
    Check,
    ends_when_closed,
    explains_early_ends,
    explains_what_it_cannot_reach,
    greets,
    keeps_channels_apart,
    reads_a_plan,
    run_check,
)
from rollbook.testing.fake import FakeChannel
from rollbook.transports.base import Ending
from rollbook.transports.local import Local
from rollbook.transports.ssh import Ssh

NODE = Host("node01")
SCRIPT = {
    "node01": FakeHost(pages=linux("node01"), delay=0.01),
    "shell": FakeHost(pages=linux("shell"), python=None),
    "shut": FakeHost(fails=Refused("connection refused")),
    "silent": FakeHost(silent=True),
    "babbling": FakeHost(garbage=True),
    "dying": FakeHost(pages=linux("dying"), dies_after=2),
    "bare": FakeHost(),
}


def check_name(check: Check) -> str:
    """The name of a check, for the test's id."""
    return check.__name__


@pytest.mark.parametrize("check", CHECKS, ids=check_name)
@pytest.mark.parametrize("name", ["node01", "shell"])
def test_fake(check: Check, name: str) -> None:
    """The scripted agent and stand-in pass the checks, and none remains."""
    fake = Fake(SCRIPT)
    run_check(check, fake, Host(name))
    assert not fake.living


def children() -> set[str]:
    """The child processes of this process; a lab that other tests use may be one of them."""
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


@pytest.mark.parametrize("check", CHECKS, ids=check_name)
@pytest.mark.parametrize("python", [None, "python3", "none"])
def test_local(check: Check, python: str | None) -> None:
    """The agent under this Python, under `python3` and the stand-in pass the checks; no child process remains."""
    before = children()
    run_check(check, Local(python), NODE)
    assert children() <= before


def test_unreachable_hosts_have_a_reason() -> None:
    """Each transport explains why it cannot reach a host."""
    run_check(explains_what_it_cannot_reach, Fake(SCRIPT), Host("shut"))
    run_check(explains_what_it_cannot_reach, Fake(SCRIPT), Host("unheard-of"))
    run_check(explains_what_it_cannot_reach, Ssh(ssh_config=os.devnull), Host("unheard-of.invalid"))
    check_transport(Fake(SCRIPT), NODE, broken=Host("shut"))


class Unclosable(Fake):
    """Agents that do not detect that their channel was closed."""

    async def open(self, host: Host) -> FakeChannel:
        """Open a channel that cannot end."""
        channel = await super().open(host)
        channel._orders.feed_eof = lambda: None  # type: ignore[method-assign]
        return channel


class Crossed(Fake):
    """Orders on one channel go to the agent of the previous channel."""

    last: FakeChannel | None = None

    async def open(self, host: Host) -> FakeChannel:
        """Open a channel that writes to the previous one."""
        channel = await super().open(host)
        if self.last:
            channel.write = self.last.write  # type: ignore[method-assign]
        self.last = channel
        return channel


class Unexplained(Fake):
    """A transport that explains no failure."""

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """Return an error without a reason."""
        del host, ending, heard
        return TransportError("")


@pytest.mark.parametrize(
    ("check", "wrong", "host", "complaint"),
    [
        (ends_when_closed, Unclosable, "node01", "the agent had to be ended"),
        (keeps_channels_apart, Crossed, "node01", "a pong of another channel"),
        (explains_early_ends, Unexplained, "node01", "has no reason"),
        (explains_what_it_cannot_reach, Unexplained, "shut", "there is no reason"),
        (explains_what_it_cannot_reach, Fake, "node01", "the host was reached"),
        (greets, Fake, "shut", "refused, connection refused"),
        (greets, Fake, "silent", "not over after 2 s"),
        (greets, Fake, "babbling", "garbage"),
        (reads_a_plan, Fake, "dying", "ended early, after 2 of 5"),
        (reads_a_plan, Fake, "bare", "the readings are absent"),
    ],
)  # fmt: skip
def test_the_checks_can_fail(
    check: Check, wrong: type[Fake], host: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the violated requirement."""
    monkeypatch.setattr(conformance, "SOON", 0.5)
    with pytest.raises(AssertionError, match=complaint):
        run_check(check, wrong(SCRIPT), Host(host), timeout=2 if host == "silent" else 30)
