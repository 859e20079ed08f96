"""Options of the command line and keywords of the Python functions have the same names."""

from __future__ import annotations

import inspect
import typing

import click
import pytest

import rollbook
from rollbook.cli import cli

COMMON = {
    "--json": "what is printed; functions return objects",
    "--hostfile": "part of a nodeset: ^file",
    "--exclude": "part of a nodeset: a!b",
    "--help": "that of Python",
}
EXCEPTIONS = {
    "record": {**COMMON, "--quiet": "what is printed", "--duration": "the length of the block"},
    "run": {
        **COMMON,
        "--quiet": "what is printed",
        "--skip-timeseries": "of MLPerf Storage's tool; interval=0",
        "--strict": "decides the exit code; Recording has exit_code, coverage and record",
        "--repeat": "a loop; `compare` takes a list of records, or those of one name",
        "--layout": "where MLPerf Storage's tool places its results",
        "--collect-cluster-info": "of MLPerf Storage's tool",
        "--cluster-collection-timeout": "of MLPerf Storage's tool; timeout",
        "--client-host-memory-in-gb": "of MLPerf Storage's tool",
        "--num-client-hosts": "of MLPerf Storage's tool",
        "--exec-type": "of MLPerf Storage's tool",
    },
    "bundle": {
        **COMMON,
        "--list": "what is printed",
        "--dry-run": "what is printed",
        "--resume": "continues a bundle that the command line started",
        "--upload": "the function upload_bundle",
        **dict.fromkeys(
            ("--s3-path", "--delivery", "--download", "--s3-endpoint-url", "--s3-region", "--s3-profile"),
            "of the HyperPod collector; upload_bundle uploads an archive",
        ),
        "--node-limit": "a field of `limits`",
        "--limit": "a field of `limits`",
        "--keep-free": "a field of `limits`",
        "--run-timeout": "a field of `limits`",
    },
}
"""The options without a keyword, and why."""


def keywords(function: str) -> set[str]:
    """The names of the parameters and options of a function."""
    hints = typing.get_type_hints(getattr(rollbook, function))
    [options] = typing.get_args(hints["options"])
    return set(inspect.signature(getattr(rollbook, function)).parameters) | set(typing.get_type_hints(options))


@pytest.mark.parametrize(("command", "function"), [("record", "record"), ("run", "run"), ("bundle", "take_bundle")])
def test_each_option_is_a_keyword(command: str, function: str) -> None:
    """A keyword is named like the option; one that takes several values is its plural."""
    parameters = cli.get_command(click.Context(cli), command)
    assert parameters is not None
    context, names, without = click.Context(parameters, info_name=command), keywords(function), set()
    for option in parameters.get_params(context):
        if isinstance(option, click.Option) and not option.hidden:
            flag = next(flag for flag in option.opts if flag.startswith("--"))
            keyword = flag[2:].replace("-", "_")
            if keyword not in names and not (option.multiple and f"{keyword}s" in names):
                without.add(flag)
    assert without == EXCEPTIONS[command].keys()
