"""A real S3 server for all tests of issue reports that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.s3 import OWNER, S3, s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """One server for all tests, because it takes seconds to start."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the credentials of the bucket's owner in this process."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", OWNER[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", OWNER[1])
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
