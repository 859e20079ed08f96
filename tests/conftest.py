"""Shared fixtures, and the rule that what was not run is said: with `CI=true` it is a failure."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Generator, Iterator

import pytest

from rollbook.testing import Lab, LabCannot

NOT_RUN = pytest.StashKey[dict[str, str]]()


@pytest.fixture(scope="session")
def session_lab() -> Iterator[Lab]:
    """Eight hosts for the whole session; tests take `lab`."""
    with Lab(8) as lab:
        yield lab


@pytest.fixture
def lab(session_lab: Lab) -> Iterator[Lab]:
    """Eight fresh hosts: those that a test has changed are reset after it."""
    yield session_lab
    session_lab.restore()


@pytest.fixture
def make_lab() -> Iterator[Callable[..., Lab]]:
    """Make labs of one's own, `make_lab(2, max_startups="2:90:4")`; they end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(Lab(*args, **options))


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; begin the list of what was not run."""
    config.addinivalue_line("markers", "needs(*programs): programs without which the test cannot run")
    config.stash[NOT_RUN] = {}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out tests whose programs are not there."""
    for marker in item.iter_markers("needs"):
        if absent := [program for program in marker.args if not shutil.which(program)]:
            pytest.skip(f"needs {', '.join(absent)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a test whose lab cannot do what it asks for as not run, and keep the list."""
    report = yield
    if call.excinfo and isinstance(call.excinfo.value, LabCannot):
        path, line, _ = item.location
        report.outcome = "skipped"
        report.longrepr = (path, line or 0, str(call.excinfo.value))
    if report.skipped and isinstance(report.longrepr, tuple):
        item.config.stash[NOT_RUN][item.nodeid] = report.longrepr[2].removeprefix("Skipped: ")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that is skipped as a whole was not run either."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        collector.config.stash[NOT_RUN][collector.nodeid] = report.longrepr[2].removeprefix("Skipped: ")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was not run, with what it would need."""
    not_run = terminalreporter.config.stash[NOT_RUN]
    if not_run:
        terminalreporter.section("not run, and what it would need")
        for name, need in not_run.items():
            terminalreporter.line(f"{name}: {need}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where everything is expected to be there, nothing may be left out."""
    if os.environ.get("CI") == "true" and session.config.stash[NOT_RUN] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
