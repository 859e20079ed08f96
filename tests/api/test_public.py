"""The public names: they must not change; all others may change without notice."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import rollbook
from rollbook import errors
from rollbook.api.options import TransportOptions
from rollbook.api.settings import RecordingOptions, Settings

PUBLIC = {
    "rollbook": """
        AgentFailed AwsDenied AwsError AwsUnstable Bundle BundleSummary Busy CannotRun CannotTell CommandResult
        Comparison Coverage Diff Execution Finding Findings
        HostListError HostResult Limits NoHostReached NotApplicable ParseError Problem ProtocolError Record RecordError
        RecordList RecordSummary Recording Refused RollbookError Snapshot TimedOut TransportError Unreachable Uploaded
        UsageError Verified __version__ check compare describe diff execute execute_async export find_record
        list_records mark open_record query record recover run snapshot snapshot_async take_bundle
        take_bundle_async upload_bundle verify write_report
    """,
    "rollbook.errors": """
        EXIT_CODES AgentFailed AwsDenied AwsError AwsUnstable Busy CannotRun CannotTell ExitCode HostListError
        HostStatus NoHostReached NotApplicable ParseError ProtocolError RecordError Refused RollbookError TimedOut
        TransportError Unreachable UsageError
    """,
    "rollbook.hosts": "MAX_HOSTS Host expand fold from_slurm is_local natural node_lists parse_hosts",
    "rollbook.testing": "Fake FakeHost Lab LabCannot LabHost SlurmLab check_transport linux pages_of",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_names(module: str) -> None:
    """Each package exports exactly these names, and has them."""
    package = importlib.import_module(module)
    assert sorted(package.__all__) == sorted(PUBLIC[module].split())
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_every_error_is_public() -> None:
    """Each error of the tree can be caught as `rollbook.NAME`."""
    tree = {name for name, one in vars(errors).items() if is_exception(one)}
    assert tree <= set(dir(rollbook))


def test_result_types_are_public() -> None:
    """Each type of Rollbook that a public function returns can be imported from `rollbook`."""
    names, missing = PUBLIC["rollbook"].split(), set()
    for name in names:
        function = getattr(rollbook, name)
        if inspect.isfunction(function):
            returned = typing.get_type_hints(function)["return"]
            for part in (returned, *typing.get_args(returned)):
                if getattr(part, "__module__", "").startswith("rollbook."):
                    missing |= {part.__name__}.difference(names)
    assert not missing


PARTS = {
    "Change": "Diff, Finding",
    "Clock": "HostResult",
    "ClusterInformation": "Snapshot",
    "Cost": "HostResult",
    "Difference": "Finding",
    "EvidenceLine": "Finding",
    "FactChanges": "Comparison",
    "Group": "RecordSummary",
    "GroupSummary": "Findings",
    "ItemResult": "BundleSummary",
    "NodeResult": "BundleSummary",
    "ReadingStatus": "HostResult",
    "Row": "Comparison",
    "RuleResult": "Findings",
    "SideSummary": "Comparison",
    "Signature": "Verified",
    "Silenced": "Finding",
    "Window": "BundleSummary",
}
"""Types that are not exported, and the results in which they are found: only parts of documents, which users read field
by field and never create. The schemas in docs/reference describe them."""


def rollbook_types(hint: object) -> set[str]:
    """The names of the types of Rollbook in an annotation."""
    nested = set().union(*map(rollbook_types, typing.get_args(hint)))
    own = isinstance(hint, type) and hint.__module__.startswith("rollbook.") and not typing.is_typeddict(hint)
    return nested | {hint.__name__} if own and isinstance(hint, type) else nested


def test_types_of_fields_are_public() -> None:
    """Each type of a field or property of an exported result can be imported, or is listed as a part of that result."""
    names, parts = PUBLIC["rollbook"].split(), dict[str, set[str]]()
    for name in names:
        result = getattr(rollbook, name)
        if isinstance(result, type) and not is_exception(result) and result is not rollbook.Recording:
            hints = [hint for field, hint in typing.get_type_hints(result).items() if not field.startswith("_")]
            for field, member in inspect.getmembers(result, lambda one: isinstance(one, property)):
                if not field.startswith("_"):
                    hints.append(typing.get_type_hints(member.fget)["return"])
            for part in set().union(*map(rollbook_types, hints)).difference(names):
                parts.setdefault(part, set()).add(name)
    assert {part: ", ".join(sorted(results)) for part, results in parts.items()} == PARTS


def test_types_of_arguments_are_public() -> None:
    """Each type of Rollbook that an argument may have can be imported from `rollbook`."""
    names, missing = PUBLIC["rollbook"].split(), set()
    for name in names:
        function = getattr(rollbook, name)
        if inspect.isfunction(function):
            hints = typing.get_type_hints(function)
            del hints["return"]
            for options in typing.get_args(hints.get("options")):
                hints |= typing.get_type_hints(options)
            missing |= set().union(*map(rollbook_types, hints.values())).difference(names)
    assert not missing


ELSEWHERE = {
    "NewShape": "control flow inside tables/incremental, caught there",
    "LabCannot": "belongs to rollbook.testing, which exports it",
    "FileSystemError": "a name of the MLPerf Storage tool, which mlpstorage/ provides",
    "ValidationIssue": "a name of the MLPerf Storage tool, which mlpstorage/ provides",
}
"""The public exceptions outside `rollbook.errors`, and why."""


def test_errors_are_in_one_module() -> None:
    """A public exception elsewhere would be missing from the tree, from the docs and from `rollbook.NAME`."""
    classes: dict[str, set[str]] = {}
    for path in Path(rollbook.__path__[0]).rglob("*.py"):
        if path != Path(errors.__file__):
            for name, bases in re.findall(r"^ *class (\w+)\(([^)]*)\)", path.read_text(), re.MULTILINE):
                classes.setdefault(name, set()).update(re.findall(r"\w+", bases))
    known = {name for name, one in (vars(builtins) | vars(errors)).items() if is_exception(one)}
    found: set[str] = set()
    while more := {name for name, bases in classes.items() if bases & (known | found)} - found:
        found |= more
    assert {name for name in found if not name.startswith("_")} == ELSEWHERE.keys()


def test_exit_codes_are_named() -> None:
    """The table has every exit code, and no other module of the command line spells one as a number."""
    assert list(errors.EXIT_CODES) == [code for name, code in vars(errors.ExitCode).items() if name.isupper()]
    distinct = {code for code in errors.EXIT_CODES if code > errors.ExitCode.NO_HOST}
    source = Path(rollbook.__path__[0])
    for path in (source / "__main__.py", *(source / "cli").glob("*.py"), *(source / "watch").glob("*.py")):
        numbers = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not numbers & distinct, path


def is_exception(one: object) -> bool:
    """Whether an object is an exception class."""
    return isinstance(one, type) and issubclass(one, BaseException)


def test_keywords_are_those_of_the_settings() -> None:
    """Every typed keyword is a setting or a transport option, and every setting is a typed keyword."""
    internal = {"hosts", "options", "parts", "placement", "args", "label"}
    settings = {field.name for field in dataclasses.fields(Settings)} - internal | {"name", "tags", "note"}
    assert settings == RecordingOptions.__annotations__.keys() - TransportOptions.__annotations__.keys()


@pytest.mark.parametrize(
    ("module", "not_needed"),
    [
        ("rollbook", "asyncio msgspec click rollbook.api"),
        ("rollbook.testing", "rollbook.testing.lab asyncio msgspec"),
        ("rollbook.cli", "asyncio rich msgspec rollbook.sources rollbook.hosts"),
        ("rollbook.errors", "asyncio msgspec click"),
    ],
)
def test_imports_stay_cheap(module: str, not_needed: str) -> None:
    """Modules that are slow to import are imported only when they are needed."""
    code = f"import sys, {module}; print([name for name in {not_needed.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_public_names_are_listed_once() -> None:
    """A package whose names are loaded lazily lists them in its stub only."""
    source = Path(rollbook.__path__[0])
    stubs = sorted(stub.parent for stub in source.rglob("__init__.pyi"))
    assert stubs == [source, source / "testing"]
    for package in stubs:
        assert not re.findall(r"^__all__|^_\w+ = \{", (package / "__init__.py").read_text(), re.MULTILINE)
