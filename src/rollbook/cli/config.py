"""`rollbook config`: the effective defaults of options, and where each comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from rollbook.clean import clean
from rollbook.cli.configuration import OWN, Value, config_files, configured, transport_keys, unknown_variables
from rollbook.cli.options import Command, json_option
from rollbook.cli.output import print_json, print_table, stderr
from rollbook.cli.run import command as run
from rollbook.protocol.redaction import mask_command_line
from rollbook.records.document import current_version

__all__ = ["Config", "command"]


class File(msgspec.Struct, frozen=True, omit_defaults=True):
    """A configuration file that was found; `ignored` is why it is not used."""

    path: str
    scope: str
    ignored: str = ""


class Config(msgspec.Struct, kw_only=True, tag_field="schema", tag="rollbook.config/1"):
    """The document of `rollbook config --json`."""

    rollbook: str = msgspec.field(default_factory=current_version)
    files: list[File]
    values: dict[str, Value]
    unknown_variables: list[str] = []


@click.command("config", cls=Command)
@json_option
def command(*, as_json: bool) -> None:
    """Show the default of every option that can be configured, and where it comes from.

    The first of these that is set is used: the command line, the variable ROLLBOOK_KEY, the project's rollbook.toml (in
    the working directory or above, or the file in ROLLBOOK_CONFIG), the user's rollbook/rollbook.toml in
    $XDG_CONFIG_HOME or ~/.config, the built-in default.
    """
    found = _config()
    if as_json:
        print_json(found)
        return
    rows = [(key, _text(one.value), one.origin) for key, one in found.values.items()]
    print_table(("KEY", "VALUE", "ORIGIN"), rows, wrap=True)
    for file in found.files:
        if file.ignored:
            stderr().print(clean(f"{file.path} is not used: {file.ignored}"), soft_wrap=True)
    for name, close in unknown_variables():
        hint = f"; did you mean {close}?" if close else ""
        stderr().print(clean(f"warning: {name} is not a Rollbook variable{hint}"), soft_wrap=True)


def _config() -> Config:
    files = [File(str(file.path), file.scope, file.ignored) for file in config_files()]
    params = {param.name: param for param in run.params}
    defaults = {key: Value(_default(params[key]), "default") for key in OWN}
    defaults |= {key: Value(declared.default, "default") for key, declared in transport_keys(all_plug_ins=True).items()}
    given = configured(quiet=True)
    if "push" in given:  # an address may contain a password
        given["push"] = Value(mask_command_line([given["push"].value])[0], given["push"].origin)
    names = [name for name, _ in unknown_variables()]
    return Config(files=files, values={**defaults, **given}, unknown_variables=names)


def _default(param: click.Parameter) -> Any:
    """The default of an option of `run`."""
    if param.multiple:
        return []
    value = param.get_default(click.get_current_context())
    # click has an object of its own for "no default".
    return str(value) if isinstance(value, Path) else value if isinstance(value, str | int | float) else None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return "" if value is None else str(value)
