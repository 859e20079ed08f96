"""Shared fixtures; tests that could not run are listed at the end, and with `CI=true` they fail the run."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from rollbook.api.signals import FOR_THE_COMMAND, STOPS
from rollbook.testing import Fake, FakeHost, LabCannot
from tests.support.commands import Ended, Rollbook

# A slow example is not a failure, as the machine may be busy. The examples are the same in every run;
# `--hypothesis-profile=random` tries others.
slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("random", slow)
settings.register_profile("rollbook", slow, derandomize=True)
settings.load_profile("rollbook")


# The directory in which scripts/kubectl installs kubectl if the system has none.
os.environ["PATH"] = f"{Path(sys.prefix) / 'tools'}{os.pathsep}{os.environ['PATH']}"

DEFAULT_HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
}


@pytest.fixture(scope="session", autouse=True)
def _private_state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a temporary state directory instead of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _restore_signal_handlers() -> Iterator[None]:
    """Restore handlers after a test: commands in this process ignore signals, which later programs would inherit."""
    before = {number: signal.getsignal(number) for number in (*STOPS, *FOR_THE_COMMAND)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture
def rollbook(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rollbook:
    """Run a command in this process; `hosts` are fake hosts that it reaches."""
    from rollbook import cli
    from rollbook.cli.reach import Reach

    def run(*argv: str, hosts: dict[str, FakeHost] | None = None) -> Ended:
        command_line = ["rollbook", *argv]
        if hosts is not None:
            fake = Fake(hosts)
            monkeypatch.setattr(Reach, "route", lambda _: lambda _: fake)
            command_line += ["-w", ",".join(hosts)]
        monkeypatch.setattr(sys, "argv", command_line)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Ended(int(ended.value.code or 0), out, err)

    return run


class NotRun:
    """Lists tests that were not run and what they need; with `CI=true` the run fails."""

    def __init__(self) -> None:
        self.needs: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that was skipped, also in a worker process."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that was skipped."""
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self.needs[report.nodeid] = report.longrepr[2].removeprefix("Skipped: ")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the list."""
        if self.needs:
            terminalreporter.section("not run, and what is needed")
            for name, need in self.needs.items():
                terminalreporter.line(f"{name}: {need}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if tests were not run although `CI=true` requires all."""
        if os.environ.get("CI") == "true" and self.needs and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers and register the list of tests that were not run."""
    config.addinivalue_line("markers", "needs(*programs): programs without which the test cannot run")
    config.addinivalue_line("markers", "alone: has the machine to itself: keeps processors busy, or measures rates")
    config.pluginmanager.register(NotRun())
    # Under nohup and in the background of a script some signals are ignored, which programs under test would inherit.
    for number, handler in DEFAULT_HANDLERS.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests whose programs are not installed."""
    for marker in item.iter_markers("needs"):
        if absent := [program for program in marker.args if not shutil.which(program)]:
            pytest.skip(f"needs {', '.join(absent)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a test as skipped if the lab cannot provide what it needs."""
    report = yield
    if call.excinfo and isinstance(call.excinfo.value, LabCannot):
        path, line, _ = item.location
        report.outcome = "skipped"
        report.longrepr = (path, line or 0, str(call.excinfo.value))
    return report
