"""`--hosts a b`, the form of MLPerf Storage's tool and others, works where nothing else can be meant."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rollbook.cli import cli
from rollbook.cli.bundle import command as bundle
from rollbook.cli.check import command as check
from rollbook.cli.reach import _repeat_hosts
from rollbook.cli.run import command as run
from rollbook.cli.snapshot import command as snapshot
from rollbook.errors import UsageError


@pytest.mark.parametrize(
    ("command", "given", "parsed"),
    [
        (snapshot, "--hosts a b --json", "--hosts a --hosts b --json"),
        (snapshot, "-w a b c", "-w a --hosts b --hosts c"),
        (snapshot, "--nodes a b", "--nodes a --hosts b"),
        (snapshot, "--instance-groups g h --node a", "--instance-groups g --instance-group h --node a"),
        (snapshot, "--timeout 5 --hosts a", "--timeout 5 --hosts a"),
        (run, "--hosts a b --type fio -- fio x", "--hosts a --hosts b --type fio -- fio x"),
        (run, "--hosts a b -- x --hosts c d", "--hosts a --hosts b -- x --hosts c d"),
        (run, "--hosts a fio x", "--hosts a fio x"),
        (check, "--hosts a b", "--hosts a b"),
        (bundle, "--nodes a b --json", "--nodes a --hosts b --json"),
        (bundle, "--nodes a b upload B s3://b/p", "--nodes a --hosts b upload B s3://b/p"),
        (bundle, "--nodes upload b", "--nodes upload --hosts b"),
    ],
)
def test_words_after_hosts(command: object, given: str, parsed: str) -> None:
    """They are hosts if the command takes no arguments, or before `--`; otherwise nothing changes."""
    assert _repeat_hosts(given.split(), command) == parsed.split()  # type: ignore[arg-type]


def test_the_error_says_what_to_type() -> None:
    """An ambiguous form is an error that shows how to write it."""
    refused = CliRunner().invoke(cli, ["run", "--hosts", "a", "no-such-host", "true"])
    assert isinstance(refused.exception, UsageError)
    assert "--hosts a,b or put -- before the command" in str(refused.exception)
