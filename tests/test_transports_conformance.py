"""Every transport keeps the promises of `rollbook.testing.conformance`; and the checks can fail."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from rollbook.errors import Refused, TransportError
from rollbook.hosts import Host
from rollbook.testing import Fake, FakeHost, Lab, check_transport, linux
from rollbook.testing.conformance import (
    CHECKS,
    Check,
    ends_when_closed,
    explains_what_it_cannot_reach,
    greets,
    keeps_channels_apart,
    run_check,
)
from rollbook.transports.base import Ending, Transport
from rollbook.transports.local import Local
from rollbook.transports.ssh import Ssh

NODE = Host("node01")
SCRIPT = {
    "node01": FakeHost(pages=linux("node01"), delay=0.01),
    "shell": FakeHost(pages=linux("shell"), python=None),
    "shut": FakeHost(fails=Refused("connection refused")),
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


@pytest.mark.parametrize("check", CHECKS, ids=each)
@pytest.mark.parametrize("python", [None, "python3", "none"])
def test_local(check: Check, python: str | None) -> None:
    """The agent under our own Python, as ssh would start it, and the stand-in; no child is left."""
    run_check(check, Local(python), NODE)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize("check", CHECKS, ids=each)
def test_ssh(check: Check, lab: Lab) -> None:
    """Through real sshd; nothing runs on the host afterwards."""
    run_check(check, Ssh(config=str(lab.ssh_config)), NODE)
    until = time.monotonic() + 5
    while (left := lab["node01"].processes()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left


def test_what_cannot_be_reached(lab: Lab) -> None:
    """Each transport says why."""
    run_check(explains_what_it_cannot_reach, Fake(SCRIPT), Host("shut"))
    run_check(explains_what_it_cannot_reach, Fake(SCRIPT), Host("unheard-of"))
    run_check(explains_what_it_cannot_reach, Ssh(config=str(lab.ssh_config)), Host("unheard-of.invalid"))
    check_transport(Fake(SCRIPT), NODE, broken=Host("shut"))


class Deaf(Fake):
    """A transport whose agents do not notice that their channel was closed."""

    async def open(self, host: Host) -> Transport:  # type: ignore[override] # a channel that is wrong on purpose
        channel = await super().open(host)
        channel._orders.feed_eof = lambda: None  # type: ignore[method-assign]
        return channel  # type: ignore[return-value]


class Shared(Fake):
    """A transport that gives one channel to all who ask."""

    async def open(self, host: Host) -> Transport:  # type: ignore[override] # a channel that is wrong on purpose
        self.one = getattr(self, "one", None) or await super().open(host)
        return self.one  # type: ignore[return-value]


class Mute(Fake):
    """A transport that finds no words."""

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        del host, ending, heard
        return TransportError("")
