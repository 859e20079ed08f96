"""The end of a record: every part is made, one that fails costs no other, and the raw log goes only when proven."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from rollbook.api import finish as api
from rollbook.api.finish import finish, open_record
from rollbook.checks import engine
from rollbook.cli import cli
from rollbook.collect.plan import Plan
from rollbook.errors import RecordError
from rollbook.records.run import Run
from rollbook.series.finish import derive, unfinished
from rollbook.series.journal import Journal
from rollbook.testing.journals import begin_of, record_this_machine

KEYS = """benchmark_type model command run_datetime num_processes accelerator result_dir parameters override_parameters
    system_info cluster_information cluster_snapshots timeseries_data runtime verification executed_command
    command_output_files args invocation_start_time invocation_end_time end_datetime provenance_file metrics"""
OURS = "exit_code result_files notes phases phase_statistics"
NAMES = ("cpuinfo", "meminfo", "loadavg", "diskstats", "net_dev", "vmstat", "stat", "identity")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a short recording of this machine."""
    path = tmp_path_factory.mktemp("journal")
    record_this_machine(path / "raw", 8, 0.1, NAMES, type="generic", stamp="20260101_000000", args={"hosts": ["here"]})
    return path / "raw"


@pytest.fixture
def record(journal: Path, tmp_path: Path) -> Path:
    """A record that nobody finished."""
    shutil.copytree(journal, tmp_path / "record" / "raw")
    return tmp_path / "record"


def table_rows(path: Path) -> int:
    """Rows of a table on disk."""
    [[count]] = duckdb.execute("SELECT count(*) FROM read_parquet(?)", [str(path)]).fetchall()
    return int(count)


def test_metadata_keys(record: Path) -> None:
    """The keys that MLPerf Storage's readers know, ours beside them, and nothing that is not true."""
    run = finish(record, report=False)
    assert run.metadata.keys() == {*KEYS.split(), *OURS.split()}
    assert run.metadata == Run.open(record).metadata
    about = run.metadata["timeseries_data"]
    written = json.loads((record / about["file"]).read_bytes())
    assert about["num_samples"] == written["num_samples"] == len(written["samples_by_host"]["here"]) == 8
    assert about["interval_seconds"] == written["collection_interval_seconds"] == 0.1
    assert run.metadata["notes"] == []
    assert {"benchmark_type", "run_datetime", "num_processes", "parameters"} <= run.metadata.keys()


def test_a_long_series_is_not_written_twice(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the seeds' JSON would be too large, the metadata name no file."""
    monkeypatch.setattr(api, "MOST_SAMPLES", 7)
    about = finish(record, report=False).metadata["timeseries_data"]
    assert (about["file"], about["num_samples"]) == (None, 8)
    assert not list(record.glob("*_timeseries.json"))


def test_the_raw_log_goes_when_the_tables_are_proven(record: Path) -> None:
    """And what reads the record needs it no more."""
    finish(record, drop_raw=True, report=False)
    assert not (record / "raw").exists()
    assert not (record / ".again").exists()
    assert open_record(record).metadata["notes"] == []
    assert "raw" not in (record / "manifest.json").read_text()
    assert table_rows(record / "series" / "loadavg.parquet") == 8


def _row_missing(path: Path) -> None:
    _rewritten(path, "SELECT * FROM '{path}' ORDER BY ts LIMIT 7")


def _value_changed(path: Path) -> None:
    _rewritten(path, "SELECT * REPLACE (load_1min + 1 AS load_1min) FROM '{path}'")


def _rewritten(path: Path, sql: str) -> None:
    new = path.with_suffix(".new")
    duckdb.execute(f"COPY ({sql.format(path=path)}) TO '{new}' (FORMAT parquet)")
    new.replace(path)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def _gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [_row_missing, _value_changed, _cut, _gone], ids=lambda harm: harm.__name__[1:])
def test_the_raw_log_stays_when_a_table_is_not_right(
    record: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None]
) -> None:
    """Whatever happened to a table between its making and the end."""

    def harmed(path: Path) -> Any:
        made = derive(path)
        harm(path / "series" / "loadavg.parquet")
        return made

    monkeypatch.setattr(api, "derive", harmed)
    notes = finish(record, drop_raw=True, report=False).metadata["notes"]
    assert any(note.startswith("raw: kept") and "back" in note for note in notes)
    monkeypatch.undo()
    assert (record / "raw" / "000001.seg").exists()
    finish(record, drop_raw=True, report=False)
    assert not (record / "raw").exists()


@pytest.mark.parametrize(("end", "why"), [(-1, "damaged"), (-200, "the collector died")])
def test_the_raw_log_of_a_death_stays(record: Path, end: int, why: str) -> None:
    """What is missing from a cut or damaged journal is to be seen there alone."""
    segment = record / "raw" / "000001.seg"
    segment.write_bytes(segment.read_bytes()[:end])
    notes = finish(record, drop_raw=True, report=False).metadata["notes"]
    assert any(note.startswith("raw: kept") and why in note for note in notes), notes
    assert segment.exists()


def test_a_part_that_fails_costs_no_other(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with the rules, the rest is there, and a note says so."""

    def fail(_: Any) -> None:
        raise ZeroDivisionError("no rule divides by nothing")

    monkeypatch.setattr(engine, "check", fail)
    run = finish(record, report=False)
    assert run.metadata["notes"] == ["checks: no rule divides by nothing"]
    assert run.metadata["phase_statistics"] == []
    assert (record / "manifest.json").exists()


@pytest.mark.parametrize(
    "argv",
    [
        ["query", "{record}", "SELECT count(*) AS samples FROM loadavg"],
        ["export", "{record}", "-o", "{out}", "--table", "loadavg"],
        ["report", "{record}", "-o", "{out}"],
        ["recover", "{record}"],
    ],
    ids=lambda argv: argv[0],
)
@pytest.mark.parametrize("killed", ["while recording", "while finishing"])
def test_an_unfinished_record_is_finished_by_who_reads_it(
    record: Path, tmp_path: Path, argv: list[str], killed: str
) -> None:
    """Also where the collector died between the tables and the metadata."""
    if killed == "while finishing":
        derive(record)
    assert unfinished(record)
    words = [word.format(record=record, out=tmp_path / "out") for word in argv]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert not unfinished(record)
    assert (record / "manifest.json").exists()
    assert table_rows(record / "series" / "loadavg.parquet") == 8


def test_a_record_that_cannot_be_finished_says_why(tmp_path: Path) -> None:
    """A journal without an entry, and a directory that is none."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "000001.seg").write_bytes(b"RBJ1 not really")
    with pytest.raises(RecordError, match="no journal that can be read"):
        open_record(tmp_path)
    with pytest.raises(RecordError, match="not a record"):
        open_record(tmp_path / "raw")


def test_a_run_time_is_the_commands(tmp_path: Path) -> None:
    """Not that of the snapshots around it; and words are quoted so that a shell reads them again."""
    begin = begin_of([], Plan(()), 0, type="generic", stamp="20260101_000000", argv=["sh", "-c", "exit 3"])
    with Journal(tmp_path / "raw", begin) as journal:
        journal.event({"event": "command", "state": "started"})
        journal.event({"event": "command", "state": "ended", "code": 3})
        journal.event({"event": "end"})
    metadata = finish(tmp_path, report=False).metadata
    assert metadata["executed_command"] == "sh -c 'exit 3'"
    assert metadata["exit_code"] == 3
    assert 0 < metadata["runtime"] < 5
