"""All kinds of fault of the campaign, by name."""

from __future__ import annotations

import os
import signal
import time

from tests.support.faults import KINDS, Run, kind
from tests.support.waits import until

__all__ = ["KINDS"]


@kind("connection cut", "network")
def _connection_cut(run: Run) -> None:
    with run.recording(codes=(3,)):
        run.host.kill_sshd()
        run.wait_for_loss()
        run.host.start_sshd()
        run.wait_for_return()


@kind("agent killed", "agent")
def _agent_killed(run: Run) -> None:
    with run.recording(codes=(3,)):
        run.signal_agents(signal.SIGKILL)
        run.wait_for_return()


@kind("agent stopped", "agent")
def _agent_stopped(run: Run) -> None:
    with run.recording(codes=(3,)):
        run.signal_agents(signal.SIGSTOP)
        time.sleep(2 + run.random.random())
        run.signal_agents(signal.SIGCONT)
        run.wait_for_beats()


@kind("collector killed", "collector")
def _collector_killed(run: Run) -> None:
    process = run.start()
    run.wait()
    process.kill()
    process.wait()
    run.expect_code(run.command("recover", run.path).returncode, (0,))
    run.check(code=False)
