"""The verdict matrix: for each rule of a round, a run that passes, one that violates it, one that lacks an input."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from rollbook.checks import engine
from rollbook.checks.run_data import RunData
from rollbook.mlperf import rounds
from rollbook.records.findings import Findings
from tests.support.records import RunCase

DATA = json.loads((Path(__file__).parents[1] / "data" / "mlperf" / "verdicts.json").read_bytes())
ROWS = [pytest.param(row, id=f"{row['base']}-{row['rule']}") for row in DATA["rows"]]


def patched(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the run with values set by path (`metadata/args/hosts`), or removed."""
    changed = copy.deepcopy(base)
    for path, value in patch.items():
        *parents, last = path.split("/")
        at = changed
        for parent in parents:
            at = at.setdefault(parent, {})
        if value == "@remove":
            at.pop(last, None)
        else:
            at[last] = value
    return changed


def judge_run(run: dict[str, Any], directory: Path) -> Findings:
    """Check a run in a directory, with its summary and the runs beside it."""
    fields = {name: value for name, value in run.items() if name != "verdict"}
    case = RunCase(about="", outcome="", **fields)
    data: RunData = case.run_data()
    data.path = directory / "20260801_120000"
    data.path.mkdir()
    case.write_files(data.path)
    for stamp, metadata in run.get("beside", {}).items():
        (directory / stamp).mkdir()
        (directory / stamp / f"checkpointing_{stamp}_metadata.json").write_text(json.dumps(metadata))
    return engine.check(data)


@pytest.mark.parametrize("name", DATA["bases"])
def test_a_run_that_passes(name: str, tmp_path: Path) -> None:
    """It has the verdict of its division; every rule that the round needs was evaluated, and shows its values."""
    base = DATA["bases"][name]
    found = judge_run(base, tmp_path)
    assert found.verdict == base["verdict"], found.verdict_text
    assert found.round == base["round"]
    needed = rounds.load(base["round"]).needs[base["metadata"]["benchmark_type"]]
    results = {result.id: result for result in found.rules}
    if base["verdict"] == "CLOSED":
        assert {results[rule].outcome for rule in needed} <= {"pass", "not-applicable"}
    for rule in needed:
        assert results[rule].values or results[rule].outcome == "not-applicable", rule


@pytest.mark.parametrize("row", ROWS)
def test_a_run_that_violates_a_rule(row: dict[str, Any], tmp_path: Path) -> None:
    """It is OPEN or INVALID, or not judged if the same fault also hides an input; it is never CLOSED."""
    found = judge_run(patched(DATA["bases"][row["base"]], row["violates"]), tmp_path)
    result = next(result for result in found.rules if result.id == row["rule"])
    assert result.outcome in ("warn", "fail"), result.note
    assert found.verdict == row["verdict"], found.verdict_text
    assert found.verdict != "CLOSED"


@pytest.mark.parametrize("row", ROWS)
def test_a_run_where_a_rule_cannot_be_evaluated(row: dict[str, Any], tmp_path: Path) -> None:
    """It is not judged, and the missing input is named."""
    found = judge_run(patched(DATA["bases"][row["base"]], row["unknown"]), tmp_path)
    result = next(result for result in found.rules if result.id == row["rule"])
    assert result.is_incomplete, result.outcome
    assert found.verdict is None
    assert any(missing.startswith(f"{row['rule']}: ") for missing in found.not_judged)
    assert found.verdict_text.startswith("MLPerf Storage: not judged; missing: ")


def test_the_matrix_is_complete() -> None:
    """Each rule of each round and benchmark type has its row."""
    covered = {(DATA["bases"][row["base"]]["round"], _type(row["base"]), row["rule"]) for row in DATA["rows"]}
    needed = {
        (name, kind, rule) for name in rounds.NAMES for kind, rules in rounds.load(name).needs.items() for rule in rules
    }
    assert covered == needed


def _type(base: str) -> str:
    kind: str = DATA["bases"][base]["metadata"]["benchmark_type"]
    return kind


def test_a_benchmark_without_published_rules_is_not_judged(tmp_path: Path) -> None:
    """KV cache in the newest round: the text names the missing rules."""
    text = judge_run(DATA["bases"]["kv_cache"], tmp_path).verdict_text
    assert text == (
        "MLPerf Storage: not judged; missing: rules for kv_cache: Rules.md of round 2026-07 has none, only the limits "
        "of the tool were checked"
    )


def test_preparation_is_not_judged(tmp_path: Path) -> None:
    """Data generation has no verdict and no missing input."""
    found = judge_run(patched(DATA["bases"]["training"], {"metadata/command": "datagen"}), tmp_path)
    assert (found.verdict, found.not_judged, found.verdict_text) == (None, [], "")
    assert "MLPerf Storage: datagen is not a measured run and is not judged" in found.notes


@pytest.mark.parametrize("name", rounds.NAMES)
def test_rounds_name_source_and_date(name: str) -> None:
    """Each round names its source and date, and only rules that exist."""
    found = rounds.load(name)
    assert found.name == name
    assert "commit" in found.source
    assert found.date.year == 2026
    ids = {rule.id for rule in engine.rules()}
    assert {rule for rules in found.needs.values() for rule in rules} <= ids
