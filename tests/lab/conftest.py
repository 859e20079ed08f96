"""Lab hosts, for the tests of this directory only: these tests mostly wait, and run in a stage of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from rollbook.testing import Lab


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
    """Create labs for one test, such as `make_lab(2, max_startups="2:90:4")`; they end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(Lab(*args, **options))
