"""Finding records on the command line, and the configuration: real records in every state."""

from __future__ import annotations

import concurrent.futures
import errno
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rollbook
from rollbook.api import listing
from rollbook.api.listing import find_record, list_records
from rollbook.api.outputs import query as rollbook_query
from rollbook.cli import configuration
from rollbook.errors import UsageError
from rollbook.journal.entries import RUN, pack_entry
from rollbook.records.document import encode
from rollbook.records.labels import Label
from rollbook.records.summary import RecordSummary, read_summary
from tests.support.commands import Ended, Rollbook
from tests.support.records import few_sources
from tests.support.schemas import validate
from tests.support.waits import SECONDS


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with results: a run that succeeded and one that failed, an unfinished and a broken record."""
    place = tmp_path_factory.mktemp("records")
    results = place / "results"
    options: Any = {"results_dir": results, "interval": 0.2, "report": False}
    with few_sources():
        first = rollbook.run(["true"], name="base-one", tags=["night", "io"], note="a first try", **options).path
        rollbook.run(["false"], name="base-two", tags="io", **options)
    unfinished = first.with_name("20010101_000001")
    shutil.copytree(first / "raw", unfinished / "raw")
    broken = first.with_name("20010101_000000")
    shutil.copytree(first, broken)
    (broken / f"{first.parent.name}_{first.name}_metadata.json").write_text("{")
    return place


@pytest.fixture
def there(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that directory, as working directory, without any configuration."""
    shutil.copytree(made / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    return tmp_path


@pytest.mark.usefixtures("there")
def test_list_shows_every_record_with_its_state(rollbook: Rollbook) -> None:
    """Newest first; unfinished and broken records are listed with the reason, and the document fits its schema."""
    lines = rollbook("list").out.splitlines()[1:]
    assert ["base-two" in lines[0], "base-one" in lines[1], "unfinished" in lines[2], "broken" in lines[3]] == [
        True
    ] * 4
    assert "exit 1" in lines[0]
    assert "a first try" in lines[1]
    listed = json.loads(rollbook("list", "--json").out)
    validate(listed)
    assert [one["state"] for one in listed["records"]] == ["complete", "complete", "unfinished", "broken"]
    assert listed["records"][2]["name"] == "base-one", "the journal has the label of an unfinished record"
    assert "metadata.json" in listed["records"][3]["reason"]
    assert listed["records"][0]["verdict"] == "command-failed"


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--tag", "io"], 3),
        (["--tag", "io", "--tag", "night"], 2),
        (["--name", "base-two"], 1),
        (["--verdict", "command-failed"], 1),
        (["--verdict", "broken"], 1),
        (["--type", "generic"], 4),
        (["--type", "fio"], 0),
        (["--host", "no-such-host"], 0),
    ],
)
@pytest.mark.usefixtures("there")
def test_list_filters(rollbook: Rollbook, options: list[str], count: int) -> None:
    """Each filter selects the matching records."""
    assert len(json.loads(rollbook("list", "--json", *options).out)["records"]) == count


@pytest.mark.usefixtures("there")
def test_list_refuses_an_unknown_verdict(rollbook: Rollbook) -> None:
    """A misspelt one would match nothing."""
    done = rollbook("list", "--verdict", "bogus")
    assert done.code == 2
    assert "'bogus' is not a verdict or state; these are: ok, warn, fail, " in done.err
    assert rollbook("list", "--verdict", "INVALID").code == 0


def test_before_the_first_record(rollbook: Rollbook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default results directory need not exist; the messages name the command that makes a record."""
    monkeypatch.chdir(tmp_path)
    expected = "no records in results yet; `rollbook run -- COMMAND` makes one\n"
    assert rollbook("list") == (0, "", expected)
    assert json.loads(rollbook("list", "--json").out)["records"] == []
    assert rollbook("check", "latest") == (2, "", f"rollbook: {expected}")
    missing = rollbook("list", "elsewhere")
    assert (missing.code, missing.err) == (2, "rollbook: elsewhere: No such file or directory\n")


@pytest.mark.usefixtures("there")
def test_a_bare_string_is_one_tag() -> None:
    """As for `run`; with several tags, a record must have all of them."""
    tags: tuple[str | Sequence[str], ...] = ("night", ["night"], ("night", "io"), ("night", "other"))
    assert [len(list_records("results", tags=one).records) for one in tags] == [2, 2, 2, 0]


@pytest.mark.usefixtures("there")
def test_list_names_what_it_omits(rollbook: Rollbook) -> None:
    """With a limit, the number of omitted records is printed, with and without a filter."""
    assert "3 more" in rollbook("list", "--limit", "1").err
    assert "2 more" in rollbook("list", "--limit", "1", "--tag", "io").err


@pytest.mark.usefixtures("there")
def test_a_record_is_found_by_name_time_and_latest(rollbook: Rollbook) -> None:
    """An unambiguous start of a name or time is enough; an ambiguous one exits with 2 and lists the candidates."""
    listed = list_records("results").records
    assert rollbook("verify", "latest").code == 0
    assert find_record("latest") == Path(listed[0].path)
    assert find_record("base-t") == Path(listed[0].path)
    assert find_record(f"generic/{Path(listed[1].path).name}") == Path(listed[1].path)
    ambiguous = rollbook("verify", "base-")
    assert ambiguous.code == 2
    assert all(one.path in ambiguous.err for one in listed[:2])
    unknown = rollbook("report", "base-three")
    assert unknown.code == 2
    assert "no record in results" in unknown.err
    assert rollbook("diff", "base-two", "latest").code == 0


ALONE = [
    ["query", "{}", "SELECT host, ts, total_kib FROM meminfo ORDER BY ALL"],
    ["report", "{}"],
    ["export", "{}", "-o", "exported", "--table", "loadavg"],
    ["watch", "{}", "--once"],
    ["recover", "{}"],
    ["verify", "{}", "--json"],
    ["check", "{}"],
    ["check", "other", "--baseline", "{}"],
    ["diff", "{}"],
    ["diff", "{}", "other"],
    ["describe", "{}"],
    ["describe", "other", "--product", "{}"],
    ["compare", "{}", "other"],
]


@pytest.mark.parametrize("argv", ALONE, ids=" ".join)
def test_a_results_directory_with_one_record_is_that_record(
    made: Path, tmp_path: Path, rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    """Every command prints, writes and returns the same for the directory as for the path of the record."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    second, first = (Path(one.path) for one in list_records(made / "results").records if one.state == "complete")
    shutil.copytree(second, "other")
    record = Path("alone", "generic", first.name)

    def outcome(path: str) -> tuple[Ended, list[Path]]:
        for made_before in ("alone", "exported"):
            shutil.rmtree(made_before, ignore_errors=True)
        shutil.copytree(first, record)
        return rollbook(*(word.format(path) for word in argv)), sorted(Path().rglob("*"))

    expected = outcome(str(record))
    assert expected[0].code != 2, expected[0].err
    assert outcome("alone") == expected


OUTPUTS = {
    "report": ["report", "base-two", "-o"],
    "check": ["check", "base-two", "--junit"],
    "describe": ["describe", "base-two", "-o"],
    "compare": ["compare", "base-one", "base-two", "-o"],
    "export": ["export", "base-two", "--format", "timeseries", "-o"],
    "snapshot": ["snapshot", "--via", "local", "--source", "uptime", "-o"],
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_that_are_no_regular_files(there: Path, rollbook: Rollbook, name: str) -> None:
    """What a user names is written into if it is a link or a pipe, and not replaced."""
    link, fifo = there / "link.json", there / "fifo.json"
    link.symlink_to("target")
    os.mkfifo(fifo)
    rollbook(*OUTPUTS[name], str(link))
    assert link.is_symlink()
    written = (there / "target").read_bytes()
    assert written
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        reading = threads.submit(fifo.read_bytes)
        rollbook(*OUTPUTS[name], str(fifo))
        assert len(reading.result(SECONDS)) > len(written) / 2
    assert fifo.is_fifo()


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name != "snapshot"])
def test_outputs_inside_a_record_are_refused(there: Path, rollbook: Rollbook, name: str) -> None:
    """They could replace its files."""
    first = next(one for one in list_records(there / "results").records if one.name == "base-two")
    hosts = Path(first.path, "hosts.json")
    before = hosts.read_bytes()
    refused = rollbook(*OUTPUTS[name], str(hosts))
    assert (refused.code, "lies inside the record" in refused.err) == (2, True), refused.err
    assert hosts.read_bytes() == before


@pytest.mark.parametrize(
    "argv",
    [
        ["export", "base-two", "-o", "out\udcff"],
        ["snapshot", "--via", "local", "-o", "out\udcff"],
        ["bundle", "--via", "local", "--item", "os", "-o", "out\udcff"],
        ["bundle", "--via", "local", "--item", "os", "-o", "out\udcff.tar.gz"],
        ["bundle", "--via", "local", "--item", "os", "--command", "echo \udcff"],
        ["query", "base-two", "SELECT '\udcff'"],
        ["query", "--all", "SELECT '\udcff'"],
        ["compare", "base-one", "base-two", "--query", "SELECT '\udcff'"],
        ["run", "--results-dir", "out\udcff", "--", "touch", "out"],
    ],
)
def test_arguments_that_are_not_utf_8(there: Path, rollbook: Rollbook, argv: list[str]) -> None:
    """Neither documents nor SQL can contain them: they are refused before anything is done."""
    refused = rollbook(*argv)
    assert (refused.code, "is not UTF-8: " in refused.err) == (2, True), refused.err
    assert not [path for path in there.iterdir() if path.name.startswith("out")]
    if argv[0] == "query":
        with pytest.raises(UsageError, match="not UTF-8"):
            rollbook_query(find_record("base-two"), argv[-1])


def test_documents_with_paths_that_are_not_utf_8(
    there: Path, rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have a replacement."""
    odd = there / "odd\udcff"
    (there / "results").rename(odd)
    assert json.loads(rollbook("list", str(odd), "--json").out)["results_dir"] == str(there / "odd\ufffd")
    monkeypatch.setenv("ROLLBOOK_RESULTS_DIR", str(odd))
    values = json.loads(rollbook("config", "--json").out)["values"]
    assert values["results_dir"] == {"value": str(there / "odd\ufffd"), "origin": "ROLLBOOK_RESULTS_DIR"}


@pytest.mark.parametrize(
    ("change", "verdict"),
    [({"exit_code": 0}, "ok"), ({"exit_code": 5}, "command-failed"), ({"exit_code": None}, "unknown"),
     ({"exit_code": None, "executed_command": ""}, "ok")],
)  # fmt: skip
def test_verdicts(made: Path, tmp_path: Path, change: dict[str, Any], verdict: str) -> None:
    """A command whose exit status is not known did not succeed; a recording without a command has none."""
    first = next(one for one in list_records(made / "results").records if one.name == "base-one")
    path = tmp_path / "generic" / Path(first.path).name
    shutil.copytree(first.path, path)
    [metadata] = path.glob("*_metadata.json")
    metadata.write_text(json.dumps({**json.loads(metadata.read_bytes()), **change}))
    (path / "findings.json").write_text('{"counts": {}}')
    assert read_summary(path).verdict == verdict


@pytest.mark.usefixtures("there")
def test_query_over_all_records(rollbook: Rollbook) -> None:
    """Every record is in `runs`; the other tables have the rows of all complete records, by run."""
    rows = [
        json.loads(line)
        for line in rollbook(
            "query", "--all", "--format", "json", "SELECT run, state, name, tags FROM runs"
        ).out.splitlines()
    ]
    assert [row["state"] for row in rows] == ["complete", "complete", "unfinished", "broken"]
    assert rows[1]["tags"] == ["night", "io"]
    sql = "SELECT count(DISTINCT run) AS runs, count(*) FROM meminfo JOIN runs USING (run) WHERE name LIKE 'base-%'"
    assert json.loads(rollbook("query", "--all", "--format", "json", "results", sql).out)["runs"] == 2
    sql = "SELECT run, value FROM results WHERE metric = 'wall_seconds'"
    assert len(rollbook("query", "--all", "--format", "json", sql).out.splitlines()) == 2
    files = rollbook("query", "--all", "SELECT * FROM read_text('/etc/hostname')")
    assert files.code == 2, "no other file can be read"


HOSTILE: dict[str, dict[str, Any]] = {
    "an integer of 31 digits": {"exit_code": 10**30},
    "an endless run": {"runtime": 1e300},
    "an invalid label": {"label": [1]},
    "an invalid time": {"invocation_start_time": "9999-99-99T00:00:00Z"},
    "invalid statistics": {"phase_statistics": [{"phase": {}, "metric": 1}]},
    "a metric without a float": {"metrics": {"x": 10**400, "y": {"z": 1}}},
    "control characters": {"label": {"name": "\x1b]0;title\x07", "note": "\x1b[31m"}, "executed_command": "\x1b[2J"},
}


def test_one_hostile_record_affects_only_itself(there: Path, rollbook: Rollbook) -> None:
    """Lists and queries over all records show the others, whatever one of them contains."""
    first = Path(next(one.path for one in list_records(there / "results").records if one.state == "complete"))
    rows = json.loads(rollbook("query", str(first), "SELECT count(*) AS n FROM loadavg", "--format", "json").out)["n"]
    results = there / "hostile"
    shutil.copytree(first, results / "good" / first.name)
    for number, change in enumerate(HOSTILE.values()):
        path = results / "bad" / f"20020101_00000{number}"
        shutil.copytree(first, path)
        [metadata] = path.glob("*_metadata.json")
        metadata.write_text(json.dumps(json.loads(metadata.read_text()) | change))
    shutil.copytree(first, results / "bad" / os.fsdecode(b"\xff"))
    for name in ("loadavg", "RUNS"):
        shutil.copytree(first, results / name / first.name)
        (results / name / first.name / "series" / f"{name}.parquet").write_bytes(b"PAR1")
    for event in (b"[" * 200_000, b'{"event": "begin", "argv": ["\\ud800"], "label": {"name": "\\ud800"}, "type": 1}'):
        raw = results / "journal" / f"2003010{len(event) % 7}_000000" / "raw"
        raw.mkdir(parents=True)
        (raw / "000001.seg").write_bytes(pack_entry(RUN, 1, b"J" + event))
    listed = rollbook("list", str(results))
    assert listed.code == 0
    assert "\x1b" not in listed.out + listed.err
    found = json.loads(rollbook("list", "--json", str(results)).out)["records"]
    assert sum(one["state"] == "complete" for one in found) == len(HOSTILE) + 2
    assert len(found) == len(HOSTILE) + 6
    for table, code in (("runs", 0), ("results", 3), ("phase_stats", 3)):
        assert rollbook("query", "--all", str(results), f"SELECT * FROM {table}").code == code
    read = rollbook("query", "--all", str(results), "SELECT count(*) AS n FROM loadavg WHERE run LIKE 'good%'")
    assert (read.code, read.out.split()) == (3, ["n", str(rows)])
    assert f"loadavg/{first.name}" in read.err
    compared = [rollbook("compare", str(path), str(first)) for path in sorted((results / "bad").iterdir())]
    assert {one.code for one in compared} <= {0, 2}
    assert not any("\x1b" in one.out + one.err for one in compared)


@pytest.fixture
def three(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three complete records in the results directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    found = list_records(made / "results", name="base-one").records
    first = next(Path(one.path) for one in found if one.state == "complete")
    paths = [tmp_path / "results" / "generic" / f"2026010{day}_000000" for day in (1, 2, 3)]
    for path in paths:
        shutil.copytree(first, path, ignore=shutil.ignore_patterns("raw"))
    return paths


def values(found: Ended) -> list[dict[str, Any]]:
    """The rows that `--format json` printed."""
    return [json.loads(line) for line in found.out.splitlines()]


@pytest.mark.parametrize("view", ["rates", "disks", "stat_rates", "facts", "stat"])
def test_views_over_all_records(three: list[Path], rollbook: Rollbook, view: str) -> None:
    """Each has the rows of every record, as a query of that record gives them, with the column `run`."""
    sql = f"SELECT * FROM {view} ORDER BY ALL"
    everything = rollbook("query", "--all", "--format", "json", sql)
    alone = values(rollbook("query", str(three[1]), "--format", "json", sql))
    rows = values(everything)
    assert (everything.code, everything.err) == (0, "")
    assert [row for row in rows if row.pop("run") == "generic/20260102_000000"] == alone
    assert len(rows) == 3 * len(alone)
    assert set(map(tuple, rows)) == set(map(tuple, alone)), "the same columns"


@pytest.mark.parametrize("table", ["findings", "results"])
def test_documents_of_all_records_have_the_same_columns(three: list[Path], rollbook: Rollbook, table: str) -> None:
    """A query of one record works over all of them."""
    sql = f"SELECT * FROM (DESCRIBE {table})"
    everything = values(rollbook("query", "--all", "--format", "json", sql))
    alone = values(rollbook("query", str(three[1]), "--format", "json", sql))
    assert everything[0]["column_name"] == "run"
    assert everything[1:] == alone


def test_only_tables_of_the_query_are_opened(three: list[Path], rollbook: Rollbook) -> None:
    """A damaged table is left out for its record, with a warning and exit code 3, and affects no other query."""
    damaged, cut, gone = three
    content = bytearray((damaged / "series" / "meminfo.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (damaged / "series" / "meminfo.parquet").write_bytes(content)
    (cut / "series" / "meminfo.parquet").write_bytes(content[:100])
    (cut / "manifest.json").unlink()
    count = "SELECT run, count({}) AS n FROM {} GROUP BY run ORDER BY run"
    for column, table in (("mem_available", "rates"), ("total_kib", "meminfo"), ("mem_free", "host_meminfo")):
        found = rollbook("query", "--all", "--format", "json", count.format(column, table))
        rows = [row for row in values(found) if row["n"]]
        assert [row["run"] for row in rows] == ["generic/20260103_000000"], table
        assert found.code == 3
        lines = found.err.splitlines()
        assert [line.split(":")[1].strip() for line in lines] == ["generic/20260102_000000", "generic/20260101_000000"]
        assert all("meminfo" in line for line in lines)
    for sql in ("SELECT count(DISTINCT run) AS n FROM stat", "SELECT count(DISTINCT run) AS n FROM hosts"):
        clean = rollbook("query", "--all", "--format", "json", sql)
        assert (clean.code, clean.err, values(clean)) == (0, "", [{"n": 3}])
    (gone / "hosts.json").write_text("{")
    broken = rollbook("query", "--all", "--format", "json", "SELECT DISTINCT run FROM hosts ORDER BY run")
    assert [row["run"] for row in values(broken)] == ["generic/20260101_000000", "generic/20260102_000000"]
    assert broken.code == 3
    assert "generic/20260103_000000" in broken.err
    listed = rollbook("query", "--all", "SHOW TABLES")
    assert listed.code == 0
    assert {"rates", "runs", "disks", "meminfo", "facts"} <= set(listed.out.split())


def test_a_record_with_strange_tables_affects_no_other(three: list[Path], rollbook: Rollbook) -> None:
    """Tables named like ours are not read, links are rejected, and a foreign table can be queried."""
    series = three[0] / "series"
    for name in ("RUNS", "rates", "some thing'"):
        shutil.copy(series / "meminfo.parquet", series / f"{name}.parquet")
    (three[0] / "manifest.json").unlink()
    assert len(values(rollbook("query", "--all", "--format", "json", "SELECT * FROM runs"))) == 3
    assert values(rollbook("query", "--all", "--format", "json", "SELECT count(DISTINCT run) AS n FROM rates")) == [
        {"n": 3}
    ]
    (foreign,) = values(rollbook("query", "--all", "--format", "json", 'SELECT DISTINCT run FROM "some thing\'"'))
    assert foreign["run"] == "generic/20260101_000000"
    (three[1] / "series" / "stat.parquet").unlink()
    (three[1] / "series" / "stat.parquet").symlink_to(series / "stat.parquet")
    linked = rollbook("query", "--all", "--format", "json", "SELECT DISTINCT run FROM stat ORDER BY run")
    assert [row["run"] for row in values(linked)] == ["generic/20260101_000000", "generic/20260103_000000"]
    assert linked.code == 3
    assert "symlink" in linked.err


def test_a_limited_list_reads_only_what_it_shows(
    tmp_path: Path, rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest are read and the others only counted, so that thousands of records list fast; a filter reads all."""
    document = {"benchmark_type": "fio", "label": {"name": "x"}, "coverage": {"requested": 1, "by_status": {}}}
    for number in range(600):
        path = tmp_path / "fio" / f"20260101_00{number // 60:02}{number % 60:02}"
        path.mkdir(parents=True)
        (path / "hosts.json").touch()
        (path / f"fio_{path.name}_metadata.json").write_bytes(encode(document))
    calls: list[Path] = []

    def counted(path: Path) -> RecordSummary:
        calls.append(path)
        return read_summary(path)

    monkeypatch.setattr(listing, "read_summary", counted)
    assert "550 more" in rollbook("list", str(tmp_path)).err
    assert len(calls) == 50
    assert calls[0].name == "20260101_000959"
    listed = json.loads(rollbook("list", str(tmp_path), "--name", "x", "--limit", "0", "--json").out)
    assert len(listed["records"]) == 600


@pytest.mark.parametrize(
    "bad",
    [
        {"name": "latest"},
        {"name": "a/b"},
        {"name": "a\x1b"},
        {"name": ".5ms"},
        {"name": "~x"},
        {"tags": [""]},
        {"note": "\x07"},
    ],
)
def test_labels_that_could_not_be_used_later_are_refused(bad: dict[str, Any]) -> None:
    """Names contain no special characters, and no label contains control characters."""
    with pytest.raises(UsageError):
        Label.of(**bad)


def test_configuration_takes_the_nearest_value(
    there: Path, rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command line, variable, project file, user's file, default: in this order, and `config` names the origin."""
    (there / "user" / "rollbook").mkdir(parents=True)
    (there / "user" / "rollbook" / "rollbook.toml").write_text('hosts = "u[1-2]"\nssh_user = "ann"\nfanout = 7\n')
    (there / "rollbook.toml").write_text('hosts = ["p[1-3]"]\nresults_dir = "results"\n')
    below = there / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    monkeypatch.setenv("ROLLBOOK_FANOUT", "9")
    shown = json.loads(rollbook("config", "--json").out)
    validate(shown)
    values = shown["values"]
    assert values["hosts"] == {"value": ["p[1-3]"], "origin": str(there / "rollbook.toml")}
    assert values["results_dir"]["value"] == str(there / "results"), "paths count from the file"
    assert values["ssh_user"]["origin"] == str(there / "user" / "rollbook" / "rollbook.toml")
    assert values["fanout"] == {"value": "9", "origin": "ROLLBOOK_FANOUT"}
    assert values["timeout"] == {"value": 60.0, "origin": "default"}
    assert rollbook("hosts", "--fold").out == "p[1-3]\n"
    assert rollbook("hosts", "--fold", "-w", "c[1-4]").out == "c[1-4]\n"
    monkeypatch.setenv("ROLLBOOK_HOSTS", "v1,v2")
    assert rollbook("hosts", "--fold").out == "v[1-2]\n"
    assert rollbook("hosts", "--fold", "--via", "mpi").code == 0, "a configured option of another transport is left out"
    assert "base-two" in rollbook("list").out, "records are listed from the configured directory"
    checked = rollbook("check", "latest", "--json")
    outcomes = {rule["outcome"] for rule in json.loads(checked.out)["rules"]}
    assert checked.code == int("fail" in outcomes), "configured hosts do not clash with a record"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("intervall = 1", "unknown key intervall; did you mean interval?"),
        ("results-dir = 'x'", "did you mean results_dir?"),
        ("fanout = 'many'", "fanout must be an integer"),
        ("interval = 0.0001", "(from "),
        ("via = 'teleport'", "(from "),
        ("ssh_config = 'none-such'", "no such file (from "),
        ("interval = ", "rollbook.toml: "),
        (f"interval = {'[' * 5000}", "rollbook.toml: "),
        (f"#{'#' * (1 << 20)}", "is larger than 1024 KiB"),
    ],
)
def test_mistakes_in_the_configuration_name_the_file(there: Path, rollbook: Rollbook, text: str, message: str) -> None:
    """An unknown key or an unusable value exits with 2; the message names the file. The help can still be read."""
    (there / "rollbook.toml").write_text(text)
    failed = rollbook("record", "--duration", "0.2", "--results-dir", "elsewhere", "--no-report")
    assert failed.code == 2
    assert message in failed.err
    assert str(there / "rollbook.toml") in failed.err
    assert rollbook("record", "--help").code == 0


def test_numbers_in_variables(there: Path, rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text is an error in every command, as in a file; a number out of range where it is used, with its origin."""
    del there
    monkeypatch.setenv("ROLLBOOK_INTERVAL", "abc")
    assert rollbook("config") == (2, "", "rollbook: ROLLBOOK_INTERVAL must be a number, not 'abc'\n")
    monkeypatch.setenv("ROLLBOOK_INTERVAL", "0.01")
    assert "not 0.01 (from ROLLBOOK_INTERVAL)" in rollbook("run", "--", "true").err


def test_a_project_file_of_another_user_is_not_used(
    there: Path, rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its options could start programs: it is named and ignored unless ROLLBOOK_CONFIG names it."""
    path = there / "rollbook.toml"
    path.write_text('hosts = "evil"\n')
    path.chmod(0o666)
    found = rollbook("hosts", "--fold")
    assert "evil" not in found.out
    assert "every user can write to it" in found.err
    path.chmod(0o644)
    _disown(path, monkeypatch)
    found = rollbook("hosts", "--fold")
    assert "evil" not in found.out
    assert "it belongs to uid" in found.err


def test_a_link_of_another_user_is_not_used(there: Path, rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths in our own file would count from the directory of the link."""
    (there / "own.toml").write_text('hosts = "evil"\n')
    (there / "rollbook.toml").symlink_to("own.toml")
    assert rollbook("hosts", "--fold").out == "evil\n", "a link of our own is used"
    _disown(there / "rollbook.toml", monkeypatch)
    found = rollbook("hosts", "--fold")
    assert "evil" not in found.out
    assert "it belongs to uid" in found.err


def test_a_project_file_that_is_replaced_while_it_is_read(
    there: Path, rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner is checked again when the file is open."""
    path = there / "rollbook.toml"
    path.write_text('hosts = "evil"\n')
    monkeypatch.setattr(configuration, "_distrust_path", lambda _: "")
    _disown(path, monkeypatch)
    found = rollbook("hosts", "--fold")
    assert (found.code, found.out) == (2, "")
    assert "it belongs to uid" in found.err


def _disown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a file to another user."""
    if os.geteuid() == 0:
        os.chown(path, 65534, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 1 << 20)


def test_a_directory_that_may_not_be_searched(there: Path, rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no configuration for us; one that is named there is an error."""
    closed, real = there / "closed", os.stat

    def stat_of(path: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(f"{closed}/"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, **options)

    closed.mkdir()
    monkeypatch.chdir(closed)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(closed))
    monkeypatch.setattr(os, "stat", stat_of)
    assert rollbook("hosts", "-w", "n1").out == "n1\n"
    monkeypatch.setenv("ROLLBOOK_CONFIG", str(closed / "rollbook.toml"))
    refused = rollbook("hosts", "-w", "n1")
    assert (refused.code, "is not a file" in refused.err) == (2, True)


def test_a_chosen_configuration_is_used(there: Path, rollbook: Rollbook, monkeypatch: pytest.MonkeyPatch) -> None:
    """ROLLBOOK_CONFIG names the project's file, whoever owns it; a misspelt variable is reported."""
    path = there / "other.toml"
    path.write_text('hosts = "chosen"\n')
    path.chmod(0o666)
    monkeypatch.setenv("ROLLBOOK_CONFIG", str(path))
    assert rollbook("hosts").out == "chosen\n"
    monkeypatch.setenv("ROLLBOOK_INTERVALL", "3")
    shown = rollbook("config")
    assert "did you mean ROLLBOOK_INTERVAL?" in shown.err
    assert msgspec.json.decode(rollbook("config", "--json").out)["unknown_variables"] == ["ROLLBOOK_INTERVALL"]
