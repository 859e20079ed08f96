"""The end of a record: every part is made, one that fails costs no other, and the raw log goes only when proven."""

from __future__ import annotations

import json
import shutil
import subprocess
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
from rollbook.errors import RecordError, UsageError
from rollbook.journal.reader import Reader
from rollbook.journal.state import is_unfinished
from rollbook.journal.writer import Journal
from rollbook.protocol.plan import Plan
from rollbook.records import signing
from rollbook.records.layout import list_files
from rollbook.records.metadata import snapshots
from rollbook.records.record import Record
from rollbook.sql import connection, grids
from rollbook.tables.derive import derive
from rollbook.testing.journals import Script, begin_of, body_of, record_this_machine
from tests.support.records import host_results

KEYS = """benchmark_type model command run_datetime num_processes accelerator result_dir parameters override_parameters
    system_info cluster_information cluster_snapshots timeseries_data runtime verification executed_command
    command_output_files args invocation_start_time invocation_end_time end_datetime provenance_file metrics"""
OURS = """exit_code coverage result_files notes phases phase_statistics verification_text verification_missing
    verification_round label host_names"""
NAMES = ("cpuinfo", "meminfo", "loadavg", "identity")  # few: the time to finish a record grows with its tables
MORE = (*NAMES, "diskstats", "net_dev", "vmstat", "stat")


def recorded(raw: Path, names: tuple[str, ...]) -> Path:
    """The journal of a short recording of this machine, of eight beats or, if that is busy, a few more."""
    record_this_machine(raw, 8, 0.1, names, type="generic", stamp="20260101_000000", args={"hosts": ["here"]})
    return raw


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal for all tests that need no other."""
    return recorded(tmp_path_factory.mktemp("journal") / "raw", NAMES)


def beats_of(journal: Path) -> int:
    """How many beats a recording has."""
    return sum(entry.frame is not None and entry.frame.kind == "S" for entry in Reader(journal))


@pytest.fixture(scope="module")
def beats(journal: Path) -> int:
    """How many beats the journal for all tests has."""
    return beats_of(journal)


@pytest.fixture
def record(journal: Path, tmp_path: Path) -> Path:
    """An unfinished record."""
    shutil.copytree(journal, tmp_path / "record" / "raw")
    return tmp_path / "record"


def table_rows(path: Path) -> int:
    """Rows of a table on disk."""
    [[count]] = duckdb.execute("SELECT count(*) FROM read_parquet(?)", [str(path)]).fetchall()
    return int(count)


def test_metadata_keys(tmp_path: Path) -> None:
    """The keys that MLPerf Storage's readers know, ours beside them, and nothing that is not true."""
    record = tmp_path / "record"
    beats = beats_of(recorded(record / "raw", MORE))
    run = finish(record, report=False)
    assert run.metadata.keys() == {*KEYS.split(), *OURS.split()}
    assert run.metadata == Record.open(record).metadata
    about = run.metadata["timeseries_data"]
    written = json.loads((record / about["file"]).read_bytes())
    assert about["num_samples"] == written["num_samples"] == len(written["samples_by_host"]["here"]) == beats
    assert about["interval_seconds"] == written["collection_interval_seconds"] == 0.1
    assert run.metadata["notes"] == []
    assert {"benchmark_type", "run_datetime", "num_processes", "parameters"} <= run.metadata.keys()


def test_the_tables_are_opened_and_read_once(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics, timeseries.json, outliers and page share one connection and one computation of the metrics."""
    calls: list[str] = []

    def count(module: Any, name: str) -> None:
        real = getattr(module, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return real(*arguments, **options)

        monkeypatch.setattr(module, name, counted)

    for module, name in ((connection, "connect"), (grids, "_grids_of")):
        count(module, name)
    assert finish(record).metadata["notes"] == []
    assert (record / "report.html").exists()
    assert calls == ["connect", "_grids_of"]


def test_a_long_series_is_not_written_twice(record: Path, beats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If timeseries.json would be too large, the metadata name no file."""
    monkeypatch.setattr(api, "MOST_SAMPLES", 7)
    about = finish(record, report=False).metadata["timeseries_data"]
    assert (about["file"], about["num_samples"]) == (None, beats)
    assert not list(record.glob("*_timeseries.json"))


def test_the_raw_log_goes_when_the_tables_are_proven(record: Path, beats: int) -> None:
    """And what reads the record needs it no more."""
    finish(record, drop_raw=True, report=False)
    assert not (record / "raw").exists()
    assert not (record / ".again").exists()
    assert open_record(record).metadata["notes"] == []
    assert '"raw/' not in (record / "manifest.json").read_text()
    assert table_rows(record / "series" / "loadavg.parquet") == beats


def _row_missing(path: Path) -> None:
    _rewritten(path, "SELECT * FROM '{path}' WHERE ts > (SELECT min(ts) FROM '{path}') ORDER BY ts")


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


def test_the_raw_log_with_facts_that_no_parser_knows_stays(tmp_path: Path) -> None:
    """Their text is nowhere else."""
    script = Script(tmp_path / "raw", ["a"], ["loadavg", "uptime"])
    script.connect()
    for number, text in ((0, "1.5 0.1 0.2 1/2 3\n"), (1, "a new form\n")):
        pages = body_of({("/proc/loadavg", "/proc/uptime")[number]: text})
        script.frame("R", b"%d start - 5 \n" % number + pages, 10**18, 0)
    script.close()
    notes = finish(tmp_path, drop_raw=True, report=False).metadata["notes"]
    assert notes[-1] == "raw: kept: facts that could not be read: 1"
    assert (tmp_path / "raw" / "000001.seg").exists()


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
    assert {entry["phase"] for entry in run.metadata["phase_statistics"]} == {"run"}
    assert (record / "manifest.json").exists()


QUERY = ["query", "{record}", "SELECT count(*) AS samples FROM loadavg"]
READERS = [
    QUERY,
    ["export", "{record}", "-o", "{out}", "--table", "loadavg"],
    ["report", "{record}", "-o", "{out}"],
    ["recover", "{record}"],
    ["check", "{record}"],
    ["diff", "{record}", "{record}"],
    ["describe", "{record}", "-o", "{out}"],
]


@pytest.mark.parametrize(
    ("killed", "argv"),
    [
        *(("while recording", argv) for argv in READERS),
        # What readers share finds out how far the collector came.
        *(
            (killed, argv)
            for killed in ("while finishing", "before the manifest")
            for argv in (QUERY, ["recover", "{record}"])
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_an_unfinished_record_is_finished_by_who_reads_it(
    record: Path, tmp_path: Path, argv: list[str], killed: str, beats: int
) -> None:
    """Also where the collector died between the tables and the metadata, or between those and the manifest."""
    if killed == "while finishing":
        derive(record)
    if killed == "before the manifest":
        finish(record, report=False)
        (record / "manifest.json").unlink()
    assert is_unfinished(record)
    words = [word.format(record=record, out=tmp_path / "out") for word in argv]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert not is_unfinished(record)
    assert (record / "manifest.json").exists()
    assert table_rows(record / "series" / "loadavg.parquet") == beats


def test_a_record_that_cannot_be_finished_says_why(tmp_path: Path) -> None:
    """A journal without an entry, and a directory that is none."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "000001.seg").write_bytes(b"RBJ1 not really")
    with pytest.raises(RecordError, match="no journal that can be read"):
        open_record(tmp_path)
    with pytest.raises(RecordError, match="not a record"):
        open_record(tmp_path / "raw")


def test_a_signed_record_stays_signed(record: Path, tmp_path: Path) -> None:
    """It is rebuilt only with a key that can sign it again; otherwise nothing is changed."""
    key, other = tmp_path / "key", tmp_path / "other"
    for path in (key, other):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
    finish(record, report=False, sign=key)
    before = {path: path.read_bytes() for path in list_files(record).values()}
    with pytest.raises(UsageError, match="is signed"):
        CliRunner().invoke(cli, ["recover", str(record)], catch_exceptions=False)
    with pytest.raises(RecordError, match="cannot sign with"):
        finish(record, sign=tmp_path / "nokey")
    assert {path: path.read_bytes() for path in list_files(record).values()} == before
    done = CliRunner().invoke(cli, ["recover", str(record), "--sign", str(other)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    signature = signing.check_signature(record / "manifest.json", None)
    assert signature.good
    assert (record / "manifest.json.sig").read_bytes() != before[record / "manifest.json.sig"]


@pytest.mark.parametrize("text", ["[1]", "[" * 100_000, "{"])
def test_metadata_that_are_none(tmp_path: Path, text: str) -> None:
    """A record that is damaged says so."""
    (tmp_path / "generic_metadata.json").write_text(text)
    with pytest.raises(RecordError, match=r"generic_metadata\.json"):
        Record.open(tmp_path)


def test_what_was_asked_for_is_kept(tmp_path: Path) -> None:
    """Slots and users are in the journal, also of hosts that gave nothing; one without them is read too."""
    more: list[dict[str, Any]] = [{"slots": {"a": 8}, "users": {"b": "ada"}}, {}]
    for number, said in enumerate(more):
        begin = begin_of(["a", "b"], Plan(()), 0, stamp="20260101_000000", argv=[], **said)
        with Journal(tmp_path / str(number) / "raw", begin) as journal:
            journal.event({"event": "end"})
    first, second = (finish(tmp_path / name, report=False).hosts.start for name in ("0", "1"))
    assert [(host.user, host.slots) for host in first] == [(None, 8), ("ada", None)]
    assert [(host.user, host.slots) for host in second] == [(None, None)] * 2


def test_words_that_are_no_text_are_kept_as_far_as_they_go(tmp_path: Path) -> None:
    """A path among the arguments may be any bytes; the record is finished all the same."""
    begin = begin_of([], Plan(()), 0, type="generic", stamp="20260101_000000", args={"hostfile": ["hosts\udcff"]})
    with Journal(tmp_path / "raw", begin) as journal:
        journal.event({"event": "end"})
    assert finish(tmp_path, report=False).metadata["args"] == {"hostfile": ["hosts\ufffd"]}


@pytest.mark.parametrize(("wanted", "told"), [(True, True), (False, False), (None, False)])
def test_end_facts_that_were_wanted_and_are_not_there(tmp_path: Path, wanted: bool | None, told: bool) -> None:
    """Missing end facts make the host partial; end facts that were skipped on request are a note."""
    script = Script(tmp_path / "raw", ["a"], ["loadavg"], type="generic", stamp="20260101_000000")
    script.connect()
    script.frame("R", b"0 start ok 0 \n" + body_of({"/proc/loadavg": "0.5 0.4 0.3 2/100 7\n"}), 10**18, 1)
    for second in range(3):
        script.sample(10**18 + second * 10**9, {"loadavg": {"/proc/loadavg": "0.5 0.4 0.3 2/100 7\n"}})
    if wanted is not None:
        script.journal.event({"event": "end facts", "wanted": wanted})
    script.close()
    run = finish(tmp_path, report=False)
    assert [host.status for host in run.hosts.end] == (["failed"] if told else [])
    assert any("skipped" in note for note in run.metadata["notes"]) == (wanted is False)
    assert [(host.status, host.reason[:11]) for host in run.hosts.outcome] == (
        [("partial", "at the end:")] if told else [("complete", "")]
    )


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


def test_a_command_whose_end_is_lost(tmp_path: Path) -> None:
    """It has neither an exit status nor a run time among its results."""
    with Journal(tmp_path / "raw", begin_of([], Plan(()), 0, type="generic", stamp="20260101_000000")) as journal:
        journal.event({"event": "command", "state": "started"})
    metadata = finish(tmp_path, report=False).metadata
    assert (metadata["exit_code"], metadata["metrics"]) == (None, {})


def test_a_command_whose_start_is_lost(tmp_path: Path) -> None:
    """It ran since the recording began, as far as anybody knows."""
    with Journal(tmp_path / "raw", begin_of([], Plan(()), 0, type="generic", stamp="20260101_000000")) as journal:
        journal.event({"event": "command", "state": "ended", "code": 3})
        journal.event({"event": "end"})
    metadata = finish(tmp_path, report=False).metadata
    assert (metadata["exit_code"], 0 < metadata["runtime"] < 5) == (3, True)


def test_each_way_is_named_once() -> None:
    """Hosts that were reached in two ways at the start, and in one of them at the end."""
    memory = {"meminfo": {"total_kib": 9, "kib": {"MemTotal": 9}, "counts": {}}}
    start = host_results({"a": {**memory, "@method": "local"}, "b": {**memory, "@method": "ssh"}})
    assert snapshots(start, start[:1])["collection_method"] == "local+ssh"
