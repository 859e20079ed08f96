"""Every transport keeps the promises of `rollbook.testing.conformance`; and the checks can fail."""

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


def each(check: Check) -> str:
    """The name of a check, for the test's id."""
    return check.__name__


@pytest.mark.parametrize("check", CHECKS, ids=each)
@pytest.mark.parametrize("name", ["node01", "shell"])
def test_fake(check: Check, name: str) -> None:
    """The scripted agent and the scripted stand-in; none lives on."""
    fake = Fake(SCRIPT)
    run_check(check, fake, Host(name))
    assert not fake.living


def children() -> set[str]:
    """Our own children; a lab that other tests use is one of them."""
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


@pytest.mark.parametrize("check", CHECKS, ids=each)
@pytest.mark.parametrize("python", [None, "python3", "none"])
def test_local(check: Check, python: str | None) -> None:
    """The agent under our own Python, as ssh would start it, and the stand-in; no child is left."""
    before = children()
    run_check(check, Local(python), NODE)
    assert children() <= before


def test_what_cannot_be_reached() -> None:
    """Each transport says why."""
    run_check(explains_what_it_cannot_reach, Fake(SCRIPT), Host("shut"))
    run_check(explains_what_it_cannot_reach, Fake(SCRIPT), Host("unheard-of"))
    run_check(explains_what_it_cannot_reach, Ssh(ssh_config=os.devnull), Host("unheard-of.invalid"))
    check_transport(Fake(SCRIPT), NODE, broken=Host("shut"))


class Deaf(Fake):
    """Agents that do not notice that their channel was closed."""

    async def open(self, host: Host) -> FakeChannel:
        """Open a channel that cannot end."""
        channel = await super().open(host)
        channel._orders.feed_eof = lambda: None  # type: ignore[method-assign]
        return channel


class Crossed(Fake):
    """Orders on one channel go to the agent of the channel opened before it."""

    last: FakeChannel | None = None

    async def open(self, host: Host) -> FakeChannel:
        """Open a channel and cross it."""
        channel = await super().open(host)
        if self.last:
            channel.write = self.last.write  # type: ignore[method-assign]
        self.last = channel
        return channel


class Mute(Fake):
    """No words for what went wrong."""

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """Nothing to say."""
        del host, ending, heard
        return TransportError("")


@pytest.mark.parametrize(
    ("check", "wrong", "host", "complaint"),
    [
        (ends_when_closed, Deaf, "node01", "the agent had to be ended"),
        (keeps_channels_apart, Crossed, "node01", "a pong of another channel"),
        (explains_early_ends, Mute, "node01", "has no reason"),
        (explains_what_it_cannot_reach, Mute, "shut", "there is no reason"),
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
    """A transport that breaks a promise is told which."""
    monkeypatch.setattr(conformance, "SOON", 0.5)
    with pytest.raises(AssertionError, match=complaint):
        run_check(check, wrong(SCRIPT), Host(host), timeout=2 if host == "silent" else 30)
