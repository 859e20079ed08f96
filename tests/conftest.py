"""Shared fixtures, and the rule that what was not run is said: with `CI=true` it is a failure."""

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

# How long an example takes depends on what else the machine does: that is not a failure. The examples are the same in
# every run; `--hypothesis-profile=random` tries others.
slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("random", slow)
settings.register_profile("rollbook", slow, derandomize=True)
settings.load_profile("rollbook")


# Where scripts/kubectl puts the kubectl that the system lacks.
os.environ["PATH"] = f"{Path(sys.prefix) / 'tools'}{os.pathsep}{os.environ['PATH']}"

IGNORED: dict[signal.Signals, Any] = {
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
}


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is written into the state directory of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """A command that ran in this process ignores signals at its end; programs of later tests must not inherit that."""
    before = {number: signal.getsignal(number) for number in (*STOPS, *FOR_THE_COMMAND)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture
def rollbook(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rollbook:
    """Run a command in this process; hosts given as a script are reached through it."""
    from rollbook import cli
    from rollbook.cli.reach import Reach

    def run(*argv: str, hosts: dict[str, FakeHost] | None = None) -> Ended:
        words = ["rollbook", *argv]
        if hosts is not None:
            fake = Fake(hosts)
            monkeypatch.setattr(Reach, "route", lambda _: lambda _: fake)
            words += ["-w", ",".join(hosts)]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Ended(int(ended.value.code or 0), out, err)

    return run


class NotRun:
    """What was not run, and what it would need: listed at the end and, with `CI=true`, a failure."""

    def __init__(self) -> None:
        self.needs: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that was skipped; from workers, too."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that was skipped as a whole."""
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self.needs[report.nodeid] = report.longrepr[2].removeprefix("Skipped: ")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The list."""
        if self.needs:
            terminalreporter.section("not run, and what it would need")
            for name, need in self.needs.items():
                terminalreporter.line(f"{name}: {need}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Where everything is expected to be there, nothing may be left out."""
        if os.environ.get("CI") == "true" and self.needs and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers; begin the list of what was not run."""
    config.addinivalue_line("markers", "needs(*programs): programs without which the test cannot run")
    config.addinivalue_line("markers", "alone: has the machine to itself: keeps processors busy, or measures rates")
    config.pluginmanager.register(NotRun())
    # Under nohup, and in the background of a script, signals are ignored, and programs under test would inherit that.
    for number, handler in IGNORED.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out tests whose programs are not there."""
    for marker in item.iter_markers("needs"):
        if absent := [program for program in marker.args if not shutil.which(program)]:
            pytest.skip(f"needs {', '.join(absent)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a test whose lab cannot do what it asks for as not run."""
    report = yield
    if call.excinfo and isinstance(call.excinfo.value, LabCannot):
        path, line, _ = item.location
        report.outcome = "skipped"
        report.longrepr = (path, line or 0, str(call.excinfo.value))
    return report
