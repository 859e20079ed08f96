"""Every public name of MLPerf Storage's modules: importable, with the tool's signature, members and return types."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rollbook import mlpstorage
from rollbook.mlpstorage import standalone
from rollbook.records import timeseries

NAMES = json.loads((Path(__file__).parents[1] / "data" / "mlpstorage" / "names.json").read_bytes())
OF_KIND = {kind: [entry for entry in NAMES if entry["kind"] == kind] for kind in ("class", "function", "enum")}
LOGGER = logging.getLogger(__name__)


def parameters(signature: str) -> list[tuple[str, str]]:
    """Return names and defaults of a signature in the table."""
    inside = signature[1:-1]
    pairs = (part.partition("=") for part in inside.split(", ") if part and part != "self")
    return [(name, default) for name, _, default in pairs]


def assert_same_signature(ours: Any, expected: str) -> None:
    """Assert that ours has the tool's parameters in order, with their defaults; additional ones are optional."""
    found = [
        parameter
        for parameter in inspect.signature(ours).parameters.values()
        if parameter.name != "self" and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    wanted = parameters(expected)
    assert [parameter.name for parameter in found[: len(wanted)]] == [name for name, _ in wanted]
    for parameter, (name, default) in zip(found, wanted, strict=False):
        if default:
            assert repr(parameter.default) == default, name
    assert all(parameter.default is not parameter.empty for parameter in found[len(wanted) :])


@pytest.mark.parametrize("entry", NAMES, ids=lambda entry: entry["name"])
def test_names_can_be_imported(entry: dict[str, Any]) -> None:
    """Every public name of the tool exists and is listed."""
    assert hasattr(mlpstorage, entry["name"])
    assert entry["name"] in dir(mlpstorage)


@pytest.mark.parametrize("entry", OF_KIND["class"], ids=lambda entry: entry["name"])
def test_classes(entry: dict[str, Any]) -> None:
    """Constructor and methods take the tool's arguments; None in the table marks a property."""
    found = getattr(mlpstorage, entry["name"])
    assert_same_signature(found, entry["signature"])
    for name, signature in entry["methods"].items():
        member = inspect.getattr_static(found, name)
        if signature is None:
            assert isinstance(member, property), name
        else:
            assert_same_signature(getattr(found, name), signature)


@pytest.mark.parametrize("entry", OF_KIND["function"], ids=lambda entry: entry["name"])
def test_functions(entry: dict[str, Any]) -> None:
    """Functions take the tool's arguments and return its types, for bad input too."""
    found = getattr(mlpstorage, entry["name"])
    assert_same_signature(found, entry["signature"])
    if "call" in entry:
        kinds = [kind.__name__ for kind in type(found(*entry["call"])).__mro__]
        assert entry["returns"] in kinds


@pytest.mark.parametrize("entry", OF_KIND["enum"], ids=lambda entry: entry["name"])
def test_enums(entry: dict[str, Any]) -> None:
    """Enums have the tool's members and values."""
    assert {one.name: one.value for one in getattr(mlpstorage, entry["name"])} == entry["members"]


def test_constants() -> None:
    """Constants have the tool's types."""
    for entry in NAMES:
        if entry["kind"] == "constant":
            assert type(getattr(mlpstorage, entry["name"])).__name__ == entry["type"], entry["name"]


def test_unknown_name() -> None:
    """It raises an attribute error, as for any module."""
    with pytest.raises(AttributeError, match="Nothing"):
        _ = mlpstorage.Nothing


@pytest.mark.parametrize("name", ["SSH_COLLECTOR_SCRIPT", "TIMESERIES_SSH_SCRIPT"])
def test_scripts_run_standalone(name: str) -> None:
    """They print one JSON object with the keys of the collectors, and need only the standard library."""
    text = getattr(mlpstorage, name)
    done = subprocess.run([sys.executable, "-I", "-"], input=text, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["meminfo"]["MemTotal"] > 0
    assert found["hostname"]
    assert found["diskstats"] == [] or "device_name" in found["diskstats"][0]


def test_scripts_need_python_3_6() -> None:
    """Hosts may not have a later version."""
    vermin = Path(sys.executable).with_name("vermin")
    subprocess.run([vermin, "--no-tips", "--violations", "-t=3.6-", standalone.__file__], check=True)


def test_keys_of_samples_are_equal() -> None:
    """What is sent to hosts, what the export writes and what the dataclass holds have the same keys."""
    others = {"timestamp", "hostname", "errors"}
    fields = {field.name for field in dataclasses.fields(timeseries.TimeSeriesSample)} - others
    assert set(standalone.SAMPLED) == timeseries.SAMPLED.keys() == fields
