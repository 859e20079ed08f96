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
    defaults = {key: Value(None, "default") for key in OWN}
    defaults |= {key: Value(declared.default, "default") for key, declared in transport_keys(all_plug_ins=True).items()}
    defaults |= {name: Value(default, "default") for name, default in _own_defaults()}
    given = configured(quiet=True)
    if "push" in given:  # an address may contain a password
        given["push"] = Value(mask_command_line([given["push"].value])[0], given["push"].origin)
    names = [name for name, _ in unknown_variables()]
    return Config(files=files, values={**defaults, **given}, unknown_variables=names)


def _own_defaults() -> list[tuple[str, Any]]:
    """The defaults of the options of `run` that are not of a transport."""
    context = click.get_current_context()
    found: list[tuple[str, Any]] = []
    for param in run.params:
        if param.name in OWN:
            value = param.get_default(context)
            # click has an object of its own for "no default".
            plain = str(value) if isinstance(value, Path) else value if isinstance(value, str | int | float) else None
            found.append((param.name, [] if OWN[param.name] is list else plain))
    return found


def _text(value: Any) -> str:
    if value is None or not (value or isinstance(value, bool | int | float)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
