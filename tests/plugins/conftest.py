"""The plug-in package of the tests, installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.plug_ins import install_package, with_python_path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment in which the package is installed."""
    install_package(tmp_path / "site")
    return {**with_python_path(tmp_path / "site"), "COLUMNS": "200"}
