"""The documents: links lead to files and headings that exist, and the commands in them have the options they use."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rollbook.cli import cli

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bench/*.md")])
COMMAND = re.compile(r"^    (?:\$ )?((?:\S+/bin/)?rollbook [a-z](?:.*\\\n)*.*)$", re.MULTILINE)
ENDS = {"--", "|", "||", "&", ";", ">"}
"""Words after which the arguments are not Rollbook's."""


def headings(document: Path) -> set[str]:
    """The anchors that GitHub makes of the headings."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def options(words: list[str]) -> Iterator[tuple[str, set[str]]]:
    """Every option of a command line, and those that its command has."""
    context = click.Context(cli, info_name="rollbook")
    while isinstance(group := context.command, click.Group) and (found := group.get_command(context, words[0])):
        context = click.Context(found, parent=context, info_name=words.pop(0))
    known = {name for param in context.command.get_params(context) for name in (*param.opts, *param.secondary_opts)}
    values = iter(words)
    for word in values:
        if word in ENDS:
            return
        if word.startswith("-"):
            yield word.partition("=")[0], known
            if word in ("--slurm-args", "--mpi-args"):
                next(values)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links(document: Path) -> None:
    """Every link leads to an existing file and heading."""
    wrong = []
    for link in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", document.read_text()):
        path, _, heading = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (heading and heading not in headings(target)):
            wrong.append(link)
    assert not wrong


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands(document: Path) -> None:
    """Every option of a command in a block exists."""
    wrong = []
    for command in COMMAND.findall(document.read_text()):
        words = shlex.split(command if command.count('"') % 2 == 0 else f'{command}"', comments=True)[1:]
        wrong += [f"{name}: {command}" for name, known in options(words) if name not in known]
    assert not wrong
