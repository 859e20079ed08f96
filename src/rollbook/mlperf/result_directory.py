"""Where a record goes in MLPerf Storage's layout: into the result directory that the tool made, or into one of ours.

While the command runs, the record lies in a staging directory beside the results, which readers of the results do not
enter. Then it is moved: into the only result directory that the command created, as its subdirectory `rollbook`, whose
file names no reader takes for a run; or, if the command created none and is not the tool, to a new result directory.
Otherwise it stays where it is. Files of the command are never touched.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rollbook.adapters.argv import MLPSTORAGE, arguments_of, option
from rollbook.adapters.results import DLIO_FILE
from rollbook.errors import RecordError, UsageError
from rollbook.files import BY_UMASK, sync_tree, temporary_directory, write_file
from rollbook.records.layout import RecordDirectory
from rollbook.records.locate import INSIDE, LOGS
from rollbook.records.outcome import Outcome
from rollbook.records.reading import read_target
from rollbook.times import STAMP, from_stamp

__all__ = ["Placement", "benchmark_args", "copy_results", "is_result_directory", "name_logs", "result_names"]

PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
DEPTH = 10  # directories between a results directory and its result directories, with room to spare
# Files of other benchmarks than DLIO that readers expect beside the metadata.
OTHER_FILE = re.compile(
    r"statistics\.json|enhanced_statistics\.json|vdb_multi_node_summary\.json|kvcache_.*\.json|fs_separation\.json"
)
NAMES = ("MLPSTORAGE_ORGNAME", "MLPSTORAGE_SYSTEMNAME")
CONFIGURATION = ("config.yaml", "hydra.yaml", "overrides.yaml")


class Placement:
    """Decides where the record of one run goes; made before the command starts.

    `staging` is the results directory to record in; `message` explains at the end where the record is and why it is not
    in the results directory. `problem` is why only the command can create a result directory. Raises `UsageError` if
    the command is not the tool and the type or a variable does not suffice for a result directory.
    """

    def __init__(self, results: Path, kind: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        results = results.absolute()
        self.staging, self.message, self.problem = results.with_name(f"{results.name}.rollbook"), "", ""
        self._results, self._kind = results, kind
        named = option(argv, "--results-dir", "-rd", "--output-dir")
        self._roots = list(dict.fromkeys([*([Path(named).absolute()] if named else []), results]))
        self._before = set(self._stamps())
        self._parts: tuple[str, ...] = ()
        if arguments_of(argv, *MLPSTORAGE) is None:
            self._set_parts(argv, environment)

    def place(self, record: Path) -> Path:
        """Move a record that is not finished yet to its place, and return that; it stays if there is none."""
        created = sorted(set(self._stamps()) - self._before)
        is_new = not created and bool(self._parts)
        if not is_new and len(created) != 1:
            why = (
                f"the command created {len(created)} result directories: {', '.join(map(str, created))}"
                if created
                else self.problem or "the command created no result directory"
            )
            self.message = f"the record is in {record}, not in the results directory: {why}"
            return record
        try:
            target = self._create(record) if is_new else created[0] / INSIDE
            _move(record, target)
        except (OSError, UsageError) as error:
            self.message = f"the record is in {record}, it could not be moved to its result directory: {_reason(error)}"
            return record
        for directory in (record.parent, self.staging):
            with contextlib.suppress(OSError):
                directory.rmdir()
        return target

    def _set_parts(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        from rollbook.adapters.mlpstorage import from_command_line, leaf_parts, require_place  # noqa: PLC0415 - few runs need it

        require_place(self._kind)
        first = _first_parts(argv, environment)
        try:
            self._parts = (*first, *leaf_parts(from_command_line(self._kind, argv)))
        except UsageError as error:  # the command may still be a script that calls the tool
            self.problem = str(error)

    def _create(self, record: Path) -> Path:
        began = from_stamp(record.name).replace(tzinfo=dt.UTC)
        return RecordDirectory.create(self._results, self._kind, began, self._parts).path

    def _stamps(self) -> Iterator[Path]:
        """Result directories below the roots; they are named by a time, and not entered."""
        for root in self._roots:
            level = [root]
            for _ in range(DEPTH):
                below = [path for directory in level for path in _directories(directory)]
                yield from (path for path in below if STAMP.fullmatch(path.name))
                level = [path for path in below if not STAMP.fullmatch(path.name)]


def _directories(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _first_parts(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The directories from the results to the type: mode, organisation, `results`, system.

    Raises `UsageError` for a part that is unknown or not allowed as a directory.
    """
    organisation, system = (environment.get(name, "") for name in NAMES)
    if missing := [name for name in NAMES if not environment.get(name)]:
        raise UsageError(
            f"--layout mlpstorage needs {' and '.join(missing)} in the environment, unless the command is mlpstorage"
        )
    mode = next((word for word in argv if word in ("closed", "open", "whatif")), "open")
    parts = (mode, organisation, "results", system)
    if wrong := [part for part in parts if not PART.fullmatch(part)]:
        raise UsageError(
            f"{wrong[0]!r} is not allowed as a directory of a submission: only letters, digits, '.', '_' and '-'"
        )
    return parts


def _reason(error: OSError | UsageError) -> str:
    """The path that caused the error, if it is known, and the reason, without Python's `[Errno …]`."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    path = error.filename2 or error.filename
    return f"{path}: {error.strerror}" if path else error.strerror


def _move(record: Path, target: Path) -> None:
    """Rename a directory, or copy it to another file system; the target is new, or an empty directory of ours."""
    if target.name == INSIDE and target.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    try:
        record.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with temporary_directory(target.parent) as scratch:
            copy = scratch / record.name
            shutil.copytree(record, copy, symlinks=True)
            copy.rename(target)
        sync_tree(target)
        shutil.rmtree(record)


def is_result_directory(path: Path, kind: str) -> bool:
    """Whether a record is a result directory of its own: `…/results/SYSTEM/TYPE/…/STAMP`."""
    parts = path.resolve().parts
    return bool(STAMP.fullmatch(path.name)) and any(
        part == kind and parts[at - 2] == "results" for at, part in enumerate(parts) if at > 1
    )


def name_logs(path: Path, outcome: Outcome) -> dict[str, str]:
    """Rename the logs of the command as the tool calls them; returns their names by stream."""
    stem = f"{outcome.benchmark_type}_{outcome.command or 'run'}"
    names = {}
    for log in LOGS:
        name = f"{stem}.{log}"
        if (path / log).exists() and not (path / name).exists():
            (path / log).rename(path / name)
        names[log.partition(".")[0]] = name if (path / name).exists() else log
    return names


def result_names(files: Iterable[str], kind: str = "") -> dict[str, Path]:
    """The benchmark's result files by the name that they have in a result directory; other files are left out.

    With the type of the benchmark, `files` are those that its adapter read: the report of the KV cache, which
    `--output` may call anything, gets a name that readers know.
    """
    found: dict[str, Path] = {}
    for path in map(Path, files):
        if DLIO_FILE.fullmatch(path.name) or OTHER_FILE.fullmatch(path.name):
            found.setdefault(path.name, path)
        elif path.name in CONFIGURATION:
            found.setdefault(f"dlio_config/{path.name}", path)
        elif kind == "kv_cache" and not path.name.endswith("_metadata.json"):
            found.setdefault(f"kvcache_results_{path.stem}.json", path)
    return found


def copy_results(sources: Mapping[str, Path], path: Path) -> list[Path]:
    """Copy the result files that are not there yet into a result directory; returns those that were copied.

    Raises `RecordError` for a file that cannot be copied, is not a regular file or is larger than a document may be.
    """
    copied = []
    for name, source in sources.items():
        target = path / name
        if target.exists():
            continue
        try:
            target.parent.mkdir(exist_ok=True)
            write_file(target, read_target(source), mode=BY_UMASK)
            shutil.copystat(source, target)
        except OSError as error:
            raise RecordError(f"cannot copy {source} to {target}: {error.strerror}") from error
        except (RecordError, ValueError) as error:  # a path with a NUL character
            raise RecordError(f"cannot copy to {target}: {error}") from error
        copied.append(target)
    return copied


def benchmark_args(outcome: Outcome, args: Mapping[str, Any]) -> dict[str, Any]:
    """The benchmark's arguments by the tool's names; of Rollbook's own only the hosts and what was declared."""

    def value(group: str, name: str) -> Any:
        changed = outcome.override_parameters.get(f"{group}.{name}")
        inside = outcome.parameters.get(group)
        return inside.get(name) if changed is None and isinstance(inside, Mapping) else changed

    found = {
        "model": outcome.model,
        "command": outcome.command,
        "accelerator_type": outcome.accelerator,
        "num_processes": outcome.num_processes,
        "data_dir": value("dataset", "data_folder"),
        "checkpoint_folder": value("checkpoint", "checkpoint_folder"),
        "num_checkpoints_write": value("checkpoint", "num_checkpoints_write"),
        "num_checkpoints_read": value("checkpoint", "num_checkpoints_read"),
        **{name: args.get(name) for name in ("hosts", "client_host_memory_in_gb", "num_client_hosts", "exec_type")},
        "results_dir": args.get("results_dir"),
        **outcome.args,
    }
    return {name: one for name, one in found.items() if one not in (None, "")}
