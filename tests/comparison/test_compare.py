"""Comparisons of records: groups, verdicts, changed facts, limits and the page."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

import rollbook
from rollbook.comparison.model import ChangedFact, Comparison, FactChanges, Row
from rollbook.comparison.page import CHARTS
from rollbook.comparison.sides import _control_discoveries
from rollbook.comparison.statistics import Change, Verdict
from rollbook.comparison.text import fact_lines, fact_text, folded_rows, verdict_cell
from rollbook.errors import UsageError
from rollbook.report.summary import summarise
from tests.support.browser import browser
from tests.support.commands import Rollbook
from tests.support.records import few_sources
from tests.support.schemas import validate

Make = Callable[..., None]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of a short run."""
    results = tmp_path_factory.mktemp("real")
    with few_sources():
        return rollbook.run(["sleep", "1.5"], results_dir=results, interval=0.2, report=False).path


@pytest.fixture
def make(real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Write groups of copies of that record, each with its own wall time and, if given, another fact or command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    second = 0

    def group(
        name: str,
        seconds: Sequence[float],
        facts: dict[str, Any] | None = None,
        *,
        command: str = "",
        repeat: bool = True,
        failed: Collection[int] = (),
    ) -> None:
        nonlocal second
        for index, value in enumerate(seconds, 1):
            second += 1
            path = tmp_path / "results" / "generic" / f"20260101_0000{second:02}"
            shutil.copytree(real, path, ignore=shutil.ignore_patterns("raw"))
            (old,) = path.glob("*_metadata.json")
            metadata = json.loads(old.read_text())
            old.unlink()
            metadata["metrics"]["wall_seconds"] = value
            metadata["label"] = {"name": name}
            metadata["exit_code"] = 7 if index in failed else 0
            if repeat:
                metadata["label"]["group"] = {"id": f"g-{name}", "index": index, "size": len(seconds)}
            metadata["executed_command"] = command or metadata["executed_command"]
            (path / f"generic_{path.name}_metadata.json").write_text(json.dumps(metadata))
            hosts = json.loads((path / "hosts.json").read_text())
            hosts["started_ns"] += second
            for host in hosts["start"]:
                for source, fact in (facts or {}).items():
                    host["facts"][source] |= fact
            (path / "hosts.json").write_text(json.dumps(hosts))

    return group


@pytest.fixture
def compare(rollbook: Rollbook) -> Rollbook:
    """The command, in this process."""
    return functools.partial(rollbook, "compare")


def test_groups_with_a_known_difference(make: Make, compare: Rollbook) -> None:
    """The difference is found, its interval contains it, and the changed fact that explains it is listed first."""
    make("old", [1.00, 1.01, 1.02, 1.00, 1.01], {"thp": {"enabled": "always"}})
    make("new", [1.20, 1.21, 1.19, 1.22, 1.20], {"thp": {"enabled": "never"}})
    ran = compare("old", "new", "--json", "--fail-on", "slower:5%")
    found = json.loads(ran.out)
    validate(found)
    (row,) = [row for row in found["rows"] if row["name"] == "wall_seconds"]
    (change,) = row["changes"]
    assert change["verdict"] == "worse"
    assert change["low"] < 0.195 < change["high"]
    assert found["facts"][0]["facts"][0]["field"] == "thp.enabled"
    assert ran.code == 1
    assert "wall_seconds is 19" in ran.err
    assert compare("new", "old", "--fail-on", "slower:5%").code == 0, "faster is not slower"
    assert compare("old", "new", "--phase", "warmup").code == 2, "no run has this phase"
    text = compare("old", "new")
    assert "\n\nnew against old: 1 result worse: wall_seconds +19" in text.out, "the answer comes first"
    assert "always -> never" in text.out
    assert "alternate the runs" in text.err


def test_equal_groups_are_within_noise(make: Make) -> None:
    """The verdict of equal groups is "within noise", and no fact changed."""
    make("one", [1.00, 1.01, 1.02, 1.00, 1.01])
    make("two", [1.01, 1.00, 1.01, 1.02, 1.00])
    found = rollbook.compare("one", "two")
    (row,) = [row for row in found.rows if row.name == "wall_seconds"]
    assert row.changes[0].verdict == "within noise"
    assert not found.facts[0].facts
    assert "kernel" in found.facts[0].unchanged


def test_single_runs_are_not_tested_without_history(make: Make, compare: Rollbook) -> None:
    """With one run each, noise is known only from earlier runs of the command. A limit still catches large changes."""
    make("a", [1.0])
    make("b", [1.3])
    alone = rollbook.compare("a", "b")
    assert alone.rows[0].changes[0].verdict == "cannot tell"
    assert "noise unknown" in alone.rows[0].changes[0].reason
    assert any("run --repeat 5" in note for note in alone.notes)
    limited = compare("a", "b", "--fail-on", "slower:5%")
    assert limited.code == 1
    assert "too few runs to test it" in limited.err
    make("earlier", [1.00, 1.01, 1.02, 1.00, 1.01])
    assert rollbook.compare("a", "b").rows[0].changes[0].verdict == "worse"


def test_runs_without_an_exit_status(make: Make, tmp_path: Path) -> None:
    """They are not counted, and a note says why; metadata of MLPerf Storage's own tool never have one and count."""
    make("old", [1.000, 1.001, 1.002])
    make("new", [1.001, 0.2, 0.2, 0.2, 1.000, 1.002], failed=[4])
    for run, without in ((5, []), (6, ["exit_code"]), (9, ["exit_code", "coverage"])):
        (path,) = tmp_path.glob(f"results/generic/20260101_00000{run}/*_metadata.json")
        metadata = json.loads(path.read_text()) | {"exit_code": None}
        path.write_text(json.dumps({key: value for key, value in metadata.items() if key not in without}))
    found = rollbook.compare("old", "new")
    (row,) = [row for row in found.rows if row.name == "wall_seconds"]
    assert row.values[1] == [1.001, 1.000, 1.002]
    assert found.sides[1].failed == 3
    assert "1 of 6 runs of new failed: 20260101_000007; not counted" in found.notes
    reason = "have no exit status because the collector died"
    assert f"2 of 6 runs of new {reason}: 20260101_000005, 20260101_000006; not counted" in found.notes


def test_failed_runs_are_not_counted(make: Make, compare: Rollbook) -> None:
    """Only successful runs are compared, a note names the failed ones, and a limit does not pass."""
    make("old", [1.000, 1.001, 1.002, 1.000, 1.001])
    make("new", [1.001, 0.2, 1.000, 1.002], failed=[2])
    found = rollbook.compare("old", "new")
    (row,) = [row for row in found.rows if row.name == "wall_seconds"]
    assert [len(values) for values in row.values] == [5, 3]
    assert row.changes[0].verdict == "within noise"
    assert any("1 of 4 runs of new failed" in note and "not counted" in note for note in found.notes)
    limited = compare("old", "new", "--fail-on", "slower:5%")
    assert limited.code == 3
    assert "cannot tell: new: 1 of 4 runs failed" in limited.err
    make("broken", [0.2, 0.2, 0.2], failed=[1, 2, 3])
    assert compare("old", "broken", "--fail-on", "slower:5%").code == 3
    changes = [change for row in rollbook.compare("old", "broken").rows for change in row.changes]
    assert {(change.verdict, change.reason) for change in changes} == {("cannot tell", "every run of broken failed")}


def test_sql_over_a_comparison(make: Make, compare: Rollbook) -> None:
    """SQL has the verdicts and the tables of the compared records only, by side."""
    make("other", [5.0])
    make("old", [1.00, 1.01, 1.02], {"thp": {"enabled": "always"}})
    make("new", [1.20, 1.21, 1.19], {"thp": {"enabled": "never"}})

    def rows(sql: str) -> list[dict[str, Any]]:
        ran = compare("old", "new", "--query", sql, "--format", "json")
        assert (ran.code, ran.err) == (0, "")
        return [json.loads(line) for line in ran.out.splitlines()]

    (worse,) = rows("SELECT * FROM comparison WHERE name = 'wall_seconds' AND kind = 'result'")
    assert (worse["side"], worse["verdict"]) == ("B", "worse")
    assert worse["after"] / worse["before"] - 1 == pytest.approx(worse["change"])
    assert rows('SELECT field, "before", "after" FROM changed_facts') == [
        {"field": "thp.enabled", "before": "always", "after": "never"}
    ]
    by_side = "GROUP BY side ORDER BY side"
    assert rows(f"SELECT side, count(*) AS runs FROM sides JOIN runs USING (run) {by_side}") == [
        {"side": "A", "runs": 3},
        {"side": "B", "runs": 3},
    ]
    values = rows(f"SELECT side, max(value) AS slowest FROM sides JOIN results USING (run) {by_side}")
    assert [row["slowest"] for row in values] == [1.02, 1.21]
    where = "WHERE phase = 'start' AND source = 'thp' AND field = 'enabled'"
    facts = rows(f"SELECT DISTINCT side, value FROM sides JOIN facts USING (run) {where} ORDER BY side")
    assert [row["value"] for row in facts] == ["always", "never"]
    (rates,) = rows("SELECT count(DISTINCT run) AS runs, count(cpu_user) AS samples FROM rates")
    assert rates["runs"] == 6
    assert rates["samples"] > 6
    assert len(rows("SELECT DISTINCT run FROM phases WHERE name = 'command'")) == 6
    assert compare("old", "new", "--query", "SELECT * FROM read_text('/etc/hostname')").code == 2
    assert compare("old", "new", "--format", "csv").code == 2
    assert compare("old", "new", "--json", "--query", "SELECT 1").code == 2


def test_a_result_that_one_of_three_sides_lacks(make: Make, compare: Rollbook, tmp_path: Path) -> None:
    """The regression of another side is still found; the side without the result cannot pass a limit."""
    make("good", [1.00, 1.01, 1.00])
    make("slow", [2.00, 2.01, 2.00])
    make("none", [1.00, 1.01, 1.00])
    for path in (tmp_path / "results" / "generic").glob("*/*_metadata.json"):
        metadata = json.loads(path.read_text())
        if metadata["label"]["name"] == "none":
            del metadata["metrics"]["wall_seconds"], metadata["runtime"]
            path.write_text(json.dumps(metadata))
    ran = compare("good", "none", "slow", "--fail-on", "slower:5%")
    assert ran.code == 1
    assert "slow: wall_seconds is 9" in ran.err
    assert ran.err.count("none: ") == 1
    assert "none: there is no wall_seconds" in ran.err
    assert "cannot tell (no value)" in ran.out
    found = json.loads(compare("good", "none", "slow", "--json").out)
    validate(found)
    (row,) = [row for row in found["rows"] if row["name"] == "wall_seconds"]
    assert row["values"][1] == []
    assert [change["verdict"] for change in row["changes"]] == ["cannot tell", "worse"]
    sql = "SELECT after FROM comparison WHERE name = 'wall_seconds' AND side = 'B'"
    assert json.loads(compare("good", "none", "slow", "--query", sql, "--format", "json").out) == {"after": None}


def test_each_side_has_its_own_verdicts() -> None:
    """The line about the values that are not printed counts the verdicts of its side."""
    changes = [Change(change=0.0, verdict="identical"), Change(change=0.1, verdict="cannot tell")]
    row = Row(kind="metric", name="cpu_busy", title="CPU busy", unit="%", values=[[1.0]] * 3, changes=changes)
    found = Comparison(sides=[], phase="", rows=[row], facts=[], notes=[])
    assert [folded_rows(found, at, everything=False) for at in (0, 1)] == [
        ([], "1 more value: 1 identical"),
        ([], "1 more value: 1 cannot tell"),
    ]


def test_many_times_as_one_side(make: Make, tmp_path: Path) -> None:
    """A side of records separated by commas may be longer than a file name."""
    make("many", [1.0 + index / 100 for index in range(20)])
    names = ",".join(path.name for path in (tmp_path / "results" / "generic").iterdir())
    make("one", [1.0])
    assert len(rollbook.compare(names, "one").sides[0].records) == 20
    with pytest.raises(UsageError, match="the floor must be a share from 0 to 1, not -1"):
        rollbook.compare(names, "one", floor=-1)


def test_labels_are_the_same_everywhere(make: Make, compare: Rollbook, tmp_path: Path) -> None:
    """A directory of runs with different names has one label in the sides, the facts and the notes."""
    make("one", [1.0, 1.1])
    make("two", [1.0, 1.1])
    (tmp_path / "results").rename(tmp_path / "earlier")
    make("new", [1.0, 1.1])
    found = json.loads(compare("new", "earlier", "--json").out)
    assert [side["label"] for side in found["sides"]] == ["new", "earlier"]
    assert [one["side"] for one in found["facts"]] == ["earlier"]
    assert any("(new, earlier)" in note for note in found["notes"])


def test_runs_with_and_without_phases(make: Make, compare: Rollbook, tmp_path: Path) -> None:
    """Results, facts and the metrics of the whole runs are compared; control characters and markup are escaped."""
    make("old", [1.00, 1.01])
    make("\x1b[31m</script>[red]new", [1.00, 1.01])
    others = sorted((tmp_path / "results" / "generic").iterdir())[2:]
    for path in others:
        (file,) = path.glob("*_metadata.json")
        metadata = json.loads(file.read_text())
        del metadata["phase_statistics"]
        file.write_text(json.dumps(metadata))
        hosts = json.loads((path / "hosts.json").read_text())
        del hosts["phases"]
        (path / "hosts.json").write_text(json.dumps(hosts))
    page = tmp_path / "page.html"
    ran = compare("old", ",".join(map(str, others)), "--all", "-o", str(page))
    assert ran.code == 0
    assert "Memory available" in ran.out, "metrics of the whole runs"
    assert "\x1b" not in ran.out + ran.err
    assert "</script>[red]" not in page.read_text()
    assert compare("old", ",".join(map(str, others)), "--query", "SELECT label FROM sides").code == 0


def test_marked_runs_are_compared_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics are those of the summary, over the whole command and not only until its first mark; or of one phase."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    mark = f"{sys.executable} -m rollbook mark"
    script = f"sleep 0.5; {mark} work; sleep 0.8; {mark} rest; sleep 0.5"
    with few_sources():
        runs = [
            rollbook.run(["sh", "-c", script], results_dir=tmp_path, interval=0.1, report=False).record
            for _ in range(2)
        ]
    assert [phase.name for phase in runs[0].hosts.phases] == ["command", "work", "rest", "after"]
    for number, run in enumerate(runs):
        for row in run.metadata["phase_statistics"]:
            if row["metric"] == "cpu_busy":  # that of a sleeping command on many CPUs may be negligible
                row["mean"] = row["max"] = (
                    number + {"command": 10.0, "work": 90.0, "rest": 20.0, "after": 50.0}[row["phase"]]
                )

    def values(phase: str = "") -> dict[str, list[float]]:
        rows = rollbook.compare(*runs, results_dir=tmp_path, phase=phase).rows
        return {row.name: [value for (value,) in row.values] for row in rows if row.kind == "metric"}

    wanted = [{one.name: one.mean for one in summarise(run).metrics} for run in runs]
    found = values()
    shared = [name for name in found if all(name in means for means in wanted)]
    assert "cpu_busy" in shared
    for name in shared:
        assert found[name] == pytest.approx([means[name] for means in wanted])
    assert values("work")["cpu_busy"] == [90.0, 91.0]


def test_sides_can_be_given_in_every_form(make: Make, compare: Rollbook, tmp_path: Path) -> None:
    """A side is a group's ID or name, a directory, comma-separated paths or a list of paths."""
    make("one", [1.0, 1.1, 1.2])
    make("two", [2.0, 2.1, 2.2])
    paths = [str(path) for path in sorted((tmp_path / "results" / "generic").iterdir())]
    wanted = [side.records for side in rollbook.compare("one", "two").sides]
    assert [len(records) for records in wanted] == [3, 3]
    shutil.copytree(tmp_path / "results" / "generic", tmp_path / "elsewhere")
    for sides in (("g-one", "g-two"), (",".join(paths[:3]), paths[3:])):
        found = [[Path(path).name for path in side.records] for side in rollbook.compare(*sides).sides]
        assert found == [[Path(path).name for path in records] for records in wanted]
    assert len(rollbook.compare("elsewhere", "two").sides[0].records) == 6
    assert compare("elsewhere", "two").out.splitlines()[0].split()[:5] == ["A", "elsewhere", "6", "runs", "generic"]
    make("alternated", [1.0, 1.1], repeat=False)
    assert len(rollbook.compare("alternated", "two").sides[0].records) == 2
    with pytest.raises(UsageError, match="on two sides"):
        rollbook.compare("one", paths[0])
    assert compare("one").code == 2


def test_a_directory_is_compared_completely(make: Make, real: Path, compare: Rollbook, tmp_path: Path) -> None:
    """Unfinished records are finished first, as for a name; a broken one is an error."""
    make("one", [1.0, 1.1])
    results = tmp_path / "results" / "generic"
    shutil.copytree(real / "raw", results / "20250101_000001" / "raw")
    make("two", [2.0])
    shutil.move(results / "20260101_000003", tmp_path / "other")
    found = rollbook.compare("results", "other")
    names = {Path(path).name for path in found.sides[0].records}
    assert names == {"20250101_000001", "20260101_000001", "20260101_000002"}
    (metadata,) = (results / "20260101_000001").glob("*_metadata.json")
    metadata.write_text("{")
    refused = compare("results", "other", "--fail-on", "slower:5%")
    assert refused.code == 2
    assert "20260101_000001 cannot be compared: " in refused.err


def test_negligible_differences(make: Make, compare: Rollbook, tmp_path: Path) -> None:
    """Small differences are negligible even if the noise is unknown; percentages differ by percentage points."""
    make("old", [1.0])
    make("new", [1.0])
    make("busy", [1.0])
    for path, mean in zip(sorted((tmp_path / "results" / "generic").iterdir()), (9.0, 6.0, 60.0), strict=True):
        (file,) = path.glob("*_metadata.json")
        metadata = json.loads(file.read_text())
        for row in metadata["phase_statistics"]:
            if row["metric"] == "cpu_busy":
                row["mean"] = mean
        file.write_text(json.dumps(metadata))
    ran = compare("old", "new", "--json")
    validate(json.loads(ran.out))
    (row,) = [row for row in rollbook.compare("old", "new").rows if (row.kind, row.name) == ("metric", "cpu_busy")]
    assert verdict_cell(row.changes[0]) == "negligible (differs by less than 5 percentage points)"
    # A further side changes nothing between the first two.
    found = rollbook.compare("old", "new", "busy").rows
    (row,) = [row for row in found if (row.kind, row.name) == ("metric", "cpu_busy")]
    assert [change.verdict for change in row.changes] == ["negligible", "cannot tell"]


def test_runs_without_a_result(make: Make, compare: Rollbook, tmp_path: Path) -> None:
    """A run that ended well but has no main result is not left out in silence: the limit is not kept."""
    make("old", [1.0, 1.0, 1.0])
    make("new", [1.0, 1.0, 1.0])
    records = sorted((tmp_path / "results" / "generic").iterdir())
    for path in records:
        (file,) = path.glob("*_metadata.json")
        metadata = json.loads(file.read_text())
        if path != records[-1]:
            metadata["metrics"]["read_bytes_per_second"] = 1e9
        file.write_text(json.dumps(metadata))
    found = rollbook.compare("old", "new")
    ((title, count),) = found.sides[1].lacking_runs.items()
    assert count == 1
    assert f"{title}: 1 run of new without it" in found.notes
    ran = compare("old", "new", "--fail-on", "slower:50%")
    assert ran.code == 3
    assert f"new: 1 run without {title}" in ran.err


def test_negligible_metrics_do_not_make_others_differ() -> None:
    """The control of false discoveries counts only metrics that may be called different."""

    def row(p: float, verdict: Verdict) -> Row:
        change = Change(change=0.1, verdict=verdict, p=p)
        return Row(kind="metric", name="x", title="x", values=[[1.0], [2.0]], changes=[change])

    rows = [row(0.02, "worse"), row(0.9, "cannot tell"), row(0.9, "cannot tell")]
    rows += [row(0.0001, "negligible") for _ in range(5)]
    _control_discoveries(rows, 0)
    assert (rows[0].changes[0].verdict, rows[-1].changes[0].verdict) == ("cannot tell", "negligible")


def test_long_commands_are_shortened() -> None:
    """Both commands are printed from shortly before their first difference, in less than a line."""
    start = "sh -c 'for i in 1 2 3; do " + "fio --name=job --size=1g; " * 10
    one = ChangedFact(field="command", before=f"{start}sync; done'", after=f"{start}true; done'", score=3.0)
    assert fact_text(one) == "command: …name=job --size=1g; sync; done' -> …name=job --size=1g; true; done'"
    longer = ChangedFact(field="command", before="true", after=f"{start}true; done'", score=3.0)
    assert len(fact_text(longer)) < 80


def test_singular_and_plural_of_ignored_facts() -> None:
    """One ignored fact is in the singular, two are in the plural."""
    assert list(fact_lines(FactChanges(side="b", facts=[], ignored=1)))[1] == "1 identity or counter also differs"
    assert list(fact_lines(FactChanges(side="b", facts=[], ignored=2)))[1] == "2 identities and counters also differ"


def test_changed_command_ranks_first(make: Make, compare: Rollbook) -> None:
    """A changed command ranks above changed facts; whitespace in a command is printed as one space."""
    make("old", [1.00, 1.01, 1.02])
    make("new", [1.20, 1.21, 1.19], {"thp": {"enabled": "never"}}, command="sleep 0.7")
    facts = rollbook.compare("old", "new").facts[0].facts
    assert fact_text(facts[0]).startswith("command: sleep 1.5 -> sleep 0.7")
    assert len(facts) >= 2
    make("lines", [1.20], command="sleep\n\t0.7")
    assert compare("old", "lines").out.splitlines()[1].endswith("  sleep 0.7")


def test_page_aligns_runs(make: Make, compare: Rollbook, tmp_path: Path) -> None:
    """The page shows the verdict and charts, aligns runs at a phase, logs nothing and fits a narrow window."""
    make("old", [1.00, 1.01, 1.02])
    make("new", [1.20, 1.21, 1.19])
    page = tmp_path / "page.html"
    assert compare("old", "new", "-o", str(page)).code == 0
    with browser() as one:
        one.open(page)
        assert one.wait("document.documentElement.dataset.drawn").startswith("start of the run")
        assert one.script("return document.querySelector('.judged.worse').textContent") == "worse"
        assert "1 result worse: wall_seconds" in one.script("return document.querySelector('.headline').textContent")
        metrics = sum(row.kind == "metric" for row in rollbook.compare("old", "new").rows)
        drawn = one.script("return document.querySelectorAll('.overlays canvas').length")
        assert drawn == min(metrics, CHARTS) > 0, "the number of metrics depends on the machine"
        one.script(
            "const s = document.getElementById('align'); s.value = 'command'; s.dispatchEvent(new Event('change'))"
        )
        assert one.wait("document.documentElement.dataset.drawn").startswith("command")
        assert one.script("return location.hash") == "#align=command"
        assert not one.console()
        one.resize(390, 900)
        assert one.script("return document.documentElement.scrollWidth") <= 390


def test_repeats_are_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each repeat is a record of the group; the first failed repeat ends the group with its exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    script = 'n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) >count; [ "$n" -lt 2 ] || exit 7'
    options = ["--repeat", "5", "--name", "again", "--no-report", "--skip-timeseries"]
    command = [sys.executable, "-m", "rollbook", "run", *options, "--", "sh", "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 7
    assert "3 of 5 runs, 1 failed; rollbook compare" in ran.stderr
    listed = rollbook.list_records("results").records
    assert [one.group.index for one in listed if one.group] == [3, 2, 1]
    assert len({one.group.id for one in listed if one.group}) == 1
    assert [one.exit_code for one in listed] == [7, 0, 0]


def test_an_interrupted_group_stays_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the third repeat ends the group; runs without all hosts are counted, and the runs can be compared."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    script = 'n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) >count; [ "$n" -lt 2 ] || kill -INT $PPID; {}'
    options = [
        "--repeat",
        "5",
        "--no-report",
        "--skip-timeseries",
        "--quiet",
        "--hosts",
        "localhost,no-such-host.invalid",
    ]
    cases = (
        ("ended", "[ $n -lt 2 ] || exec sleep 30", "2 without all hosts, 1 interrupted"),
        ("handled", "exit 0", "3 without all hosts"),
    )
    for name, last, counts in cases:
        (tmp_path / "count").unlink(missing_ok=True)
        command = [sys.executable, "-m", "rollbook", "run", "--name", name, *options, "--"]
        command += ["sh", "-c", f"trap : INT; {script.format(last)}" if name == "handled" else script.format(last)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 130, name
        assert f"3 of 5 runs, {counts}; stopped by Ctrl-C or a signal; rollbook compare" in ran.stderr
        assert "run 3 of 5" not in ran.stderr, "--quiet prints only what went wrong, and the group"
        assert ran.stderr.count("  no-such-host.invalid: ") == 3, "once in each run"
    found = rollbook.compare("ended", "handled")
    assert [side.failed for side in found.sides] == [1, 0]
    (row,) = [row for row in found.rows if row.name == "wall_seconds"]
    assert [len(values) for values in row.values] == [2, 3]


# In the second repeat, kill the agent, which has the same parent process.
KILL_AGENT = """
import os, pathlib
count = pathlib.Path("count")
count.write_text(count.read_text() + "x" if count.exists() else "x")
for pid in filter(str.isdigit, os.listdir("/proc") if count.read_text() == "xx" else []):
    try:
        arguments = pathlib.Path("/proc", pid, "cmdline").read_bytes().split(b"\\0")
        parent = pathlib.Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        continue
    if int(parent) == os.getppid() and b"-I" in arguments:
        os.kill(int(pid), 9)
"""


def test_a_host_lost_in_one_repeat(tmp_path: Path, rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other repeats run; the end of the group, the list and the comparison report the run without its host."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    argv = ("--repeat", "3", "--no-report", "--skip-timeseries", "--", sys.executable, "-c", KILL_AGENT)
    ran = rollbook("run", "--name", "again", *argv)
    assert ran.code == 0, "the command succeeded"
    assert "3 of 3 runs, 1 without all hosts; rollbook compare again OTHER" in ran.err
    listed = rollbook("list").out.splitlines()
    hosts = listed[0].index("HOSTS")
    assert [line[hosts : hosts + 6].strip() for line in listed[1:]] == ["1", "0 of 1", "1"]
    lost = listed[2].split()[0].rpartition("/")[2]
    (tmp_path / "count").unlink()
    strict = rollbook("run", "--name", "strict", "--strict", *argv)
    assert strict.code == 3
    assert "2 of 3 runs, 1 without all hosts; rollbook compare strict OTHER" in strict.err, "no command failed"
    notes = rollbook("compare", "again", "strict").err
    assert f"note: 1 of 3 runs of again lack hosts: {lost}" in notes
    assert "note: 1 of 2 runs of strict lack hosts: " in notes
