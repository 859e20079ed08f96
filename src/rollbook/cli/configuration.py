"""Defaults of options from variables and configuration files.

A value comes from the first of these that has it: the command line, the variable `ROLLBOOK_<KEY>`, the project's
`rollbook.toml` (in the working directory or the nearest directory above it, or the file that `ROLLBOOK_CONFIG` names),
the user's `rollbook/rollbook.toml` in `$XDG_CONFIG_HOME` or `~/.config`, the built-in default.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import shlex
import stat
import tomllib
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from rollbook.clean import clean
from rollbook.errors import UsageError
from rollbook.transports.options import Declared
from rollbook.transports.registry import BUILT_IN, options_of, plug_ins

__all__ = [
    "OWN",
    "ConfigFile",
    "Value",
    "config_files",
    "configured",
    "results_directory",
    "transport_keys",
    "unknown_variables",
]

FILE = "rollbook.toml"
MAX_FILE_BYTES = 1 << 20  # bytes of a configuration file
PREFIX = "ROLLBOOK_"
CONFIG_VARIABLE = "ROLLBOOK_CONFIG"
OTHER_VARIABLES = (CONFIG_VARIABLE, "ROLLBOOK_PUSH_TOKEN", "ROLLBOOK_RECORD", "ROLLBOOK_SOCKET", "ROLLBOOK_TOKEN")

OWN: Mapping[str, type] = {
    "hosts": list,
    "hostfile": list,
    "exclude": list,
    "via": str,
    "fallback": str,
    "fanout": int,
    "timeout": float,
    "interval": float,
    "results_dir": str,
    "push": str,
}
"""The keys besides options of transports, and their types. `list` also accepts one text."""
TYPE_NAMES = {list: "a list of strings", str: "a string", int: "an integer", float: "a number", bool: "true or false"}
PATHS = ("hostfile", "results_dir", "ssh_config")
"""Keys whose values are paths: relative ones in a file count from the directory of the file."""


class Value(msgspec.Struct, frozen=True):
    """The effective value of a key; `origin` is `default`, the name of a variable, or the path of a file."""

    value: Any
    origin: str


@dataclasses.dataclass(frozen=True)
class ConfigFile:
    """A place for a configuration file; `ignored` is why a file that is there is not used.

    `nearby` says that no one named the file: it was found in the working directory or above.
    """

    path: Path
    scope: str
    ignored: str = ""
    nearby: bool = False


def configured(*, quiet: bool = False) -> dict[str, Value]:
    """All values that variables and files set, by key. Raises `UsageError` for unknown keys and unusable values."""
    found: dict[str, Value] = {}
    for file in reversed(list(config_files())):
        if file.ignored:
            if not quiet:
                click.echo(clean(f"rollbook: {file.path} is not used: {file.ignored}"), err=True)
        else:
            found |= _read(file)
    for key in (*OWN, *transport_keys()):
        variable = PREFIX + key.upper()
        if value := os.environ.get(variable):
            found[key] = Value(_from_text(key, value), variable)
    return found


def results_directory() -> Path:
    """The results directory for commands that read records."""
    if chosen := os.environ.get("ROLLBOOK_RESULTS_DIR"):
        return Path(chosen)
    setting = configured().get("results_dir")
    return Path(setting.value if setting else "results")


def unknown_variables() -> Iterator[tuple[str, str]]:
    """Variables that start with `ROLLBOOK_` but are not used, each with a similar name that is, or an empty text."""
    known = {PREFIX + key.upper() for key in (*OWN, *transport_keys())} | set(OTHER_VARIABLES)
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in known:
            yield name, next(iter(difflib.get_close_matches(name, known, n=1)), "")


def transport_keys(*, all_plug_ins: bool = False) -> dict[str, Declared]:
    """The options of transports by key; those of plug-ins only if they are wanted, because the search is slow."""
    names = (*BUILT_IN, *plug_ins()) if all_plug_ins else tuple(BUILT_IN)
    return {key: declared for name in names for key, declared in options_of(name).items()}


def config_files() -> Iterator[ConfigFile]:
    """The configuration files to read if they are there: the project's first, then the user's."""
    if chosen := os.environ.get(CONFIG_VARIABLE):
        if not _is_file(chosen):
            raise UsageError(f"{chosen} (from {CONFIG_VARIABLE}) is not a file")
        yield ConfigFile(Path(chosen).absolute(), "project")
    elif (project := _project_file()) is not None:
        yield ConfigFile(project, "project", _distrust_path(project), nearby=True)
    try:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    except RuntimeError:  # a user without a home directory
        return
    if _is_file(user := base / "rollbook" / FILE):
        yield ConfigFile(user, "user")


def _is_file(path: Path | str) -> bool:
    """Whether a file is there; not one in a directory that may not be searched."""
    return os.path.isfile(path)  # noqa: PTH113 - `Path.is_file` raises PermissionError


def _project_file() -> Path | None:
    try:
        here = Path.cwd()
    except OSError:  # the working directory was removed
        return None
    return next((path for above in (here, *here.parents) if _is_file(path := above / FILE)), None)


def _distrust_path(path: Path) -> str:
    """Why a file that was only found nearby is not used: its options could start programs of another user.

    A symlink must be ours as well: relative paths in the file count from where the link is.
    """
    try:
        return _distrust(path, path.lstat()) or _distrust(path, path.stat())
    except OSError as error:
        return error.strerror or str(error)


def _distrust(path: Path, status: os.stat_result) -> str:
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to uid {status.st_uid}; to use it anyway, set {CONFIG_VARIABLE}={path}"
    if status.st_mode & 0o002 and not stat.S_ISLNK(status.st_mode):
        return f"every user can write to it; to use it anyway, set {CONFIG_VARIABLE}={path}"
    return ""


def _read(file: ConfigFile) -> dict[str, Value]:
    path = file.path
    try:
        # The file may have been replaced since it was found, even by a FIFO.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            if file.nearby and (reason := _distrust(path, os.fstat(opened.fileno()))):
                raise UsageError(f"{path} is not used: {reason}")
            text = opened.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise UsageError(f"{path} is larger than {MAX_FILE_BYTES >> 10} KiB")
        values = tomllib.loads(text.decode())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: {error}") from error
    keys = {*OWN, *transport_keys()}
    if not values.keys() <= keys:
        keys |= transport_keys(all_plug_ins=True).keys()
    found = {}
    for key, value in values.items():
        if key not in keys:
            close = difflib.get_close_matches(key.replace("-", "_"), keys, n=1)
            hint = f"did you mean {close[0]}?" if close else "`rollbook config` lists all keys"
            raise UsageError(f"{path}: unknown key {key}; {hint}")
        found[key] = Value(_checked(path, key, value), str(path))
    return found


def _checked(path: Path, key: str, value: Any) -> Any:
    """The value in the form that the option takes; raises `UsageError` for another type."""
    kind = _kind(key)
    if kind is list and isinstance(value, str):
        value = [value]
    fits = {
        list: isinstance(value, list) and all(isinstance(one, str) for one in value),
        str: isinstance(value, str),
        int: isinstance(value, int) and not isinstance(value, bool),
        float: isinstance(value, int | float) and not isinstance(value, bool),
        bool: isinstance(value, bool),
    }
    if not fits[kind]:
        raise UsageError(f"{path}: {key} must be {TYPE_NAMES[kind]}, not {value!r}")
    if key not in PATHS:
        return value
    paths = [str(path.parent / Path(one).expanduser()) for one in (value if kind is list else [value])]
    return paths if kind is list else paths[0]


def _from_text(key: str, value: str) -> Any:
    """The value of a variable: hosts are a list as on the command line, other lists are words quoted as in a shell."""
    if (kind := _kind(key)) is not list:
        if kind in (int, float):
            try:
                kind(value)
            except ValueError as error:
                raise UsageError(f"{PREFIX}{key.upper()} must be {TYPE_NAMES[kind]}, not {value!r}") from error
        return value
    if key in ("hosts", "exclude"):
        return [value]
    try:
        return shlex.split(value)
    except ValueError as error:
        raise UsageError(f"{PREFIX}{key.upper()}: {error}") from error


def _kind(key: str) -> type:
    if key in OWN:
        return OWN[key]
    declared = transport_keys().get(key) or transport_keys(all_plug_ins=True)[key]
    origin = typing.get_origin(declared.type)
    if origin is tuple:
        return list
    return declared.type if declared.type in (bool, int, float) else str
