"""Finishing a record: a failed part does not affect others, and the journal is deleted only after verification."""

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
OWN_KEYS = """exit_code coverage result_files notes phases phase_statistics verification_text verification_missing
    verification_round label host_names"""
NAMES = ("cpuinfo", "meminfo", "loadavg", "identity")  # few: the time to finish a record grows with its tables
MORE = (*NAMES, "diskstats", "net_dev", "vmstat", "stat")


def record_journal(raw: Path, names: tuple[str, ...]) -> Path:
    """Record this machine for eight beats, or a few more if it is busy; returns the journal."""
    record_this_machine(raw, 8, 0.1, names, type="generic", stamp="20260101_000000", args={"hosts": ["here"]})
    return raw


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal that tests share."""
    return record_journal(tmp_path_factory.mktemp("journal") / "raw", NAMES)


def beats_of(journal: Path) -> int:
    """How many beats a recording has."""
    return sum(entry.frame is not None and entry.frame.kind == "S" for entry in Reader(journal))


@pytest.fixture(scope="module")
def beats(journal: Path) -> int:
    """How many beats the shared journal has."""
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
    """The metadata has exactly the keys of MLPerf Storage and Rollbook's own, and agrees with timeseries.json."""
    record = tmp_path / "record"
    beats = beats_of(record_journal(record / "raw", MORE))
    run = finish(record, report=False)
    assert run.metadata.keys() == {*KEYS.split(), *OWN_KEYS.split()}
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


def test_large_timeseries_is_not_written(record: Path, beats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If timeseries.json would be too large, the metadata name no file."""
    monkeypatch.setattr(api, "MAX_SAMPLES", 7)
    about = finish(record, report=False).metadata["timeseries_data"]
    assert (about["file"], about["num_samples"]) == (None, beats)
    assert not list(record.glob("*_timeseries.json"))


def test_journal_is_deleted_after_verification(record: Path, beats: int) -> None:
    """The record can be opened without the journal."""
    finish(record, drop_raw=True, report=False)
    assert not (record / "raw").exists()
    assert not (record / ".again").exists()
    assert open_record(record).metadata["notes"] == []
    assert '"raw/' not in (record / "manifest.json").read_text()
    assert table_rows(record / "series" / "loadavg.parquet") == beats


def test_killed_while_the_journal_is_removed(record: Path, beats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the journal does not replace the tables that were made of all of it."""
    remove = shutil.rmtree

    def interrupted(path: Path, **more: Any) -> None:
        if path.is_dir() and path.name.endswith("raw"):
            min(path.iterdir()).unlink()
            raise KeyboardInterrupt
        remove(path, **more)

    (record / "raw" / "000002.seg").write_bytes((record / "raw" / "000001.seg").read_bytes())
    monkeypatch.setattr(shutil, "rmtree", interrupted)
    monkeypatch.setattr("rollbook.tables.proof.reasons_to_keep", lambda *_: [])
    with pytest.raises(KeyboardInterrupt):
        finish(record, drop_raw=True, report=False)
    monkeypatch.undo()
    assert table_rows(record / "series" / "loadavg.parquet") == beats
    assert not is_unfinished(record)
    assert open_record(record).hosts.series[0].samples == beats
    assert table_rows(record / "series" / "loadavg.parquet") == beats


def test_columns_left_out_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More names than a table may have columns are in the journal only, which is kept."""
    monkeypatch.setattr("rollbook.tables.parquet.MAX_COLUMNS", 2)
    script = Script(tmp_path / "raw", ["a"], ["vmstat"], started_ns=10**18)
    script.connect()
    script.sample(10**18, {"vmstat": {"/proc/vmstat": "nr_dirty 1\npgfault 2\npgmajfault 3\n"}})
    script.close()
    notes = finish(tmp_path, drop_raw=True, report=False).metadata["notes"]
    assert "the table vmstat lacks 1 column: hosts have more names than it may hold" in notes
    assert "raw: kept: vmstat lacks 1 column" in notes


def test_a_record_in_progress_stays_as_it_is(tmp_path: Path) -> None:
    """Finishing is refused before anything is removed."""
    script = Script(tmp_path / "raw", ["a"], ["loadavg"])
    kept = [tmp_path / "raw" / "failure", tmp_path / "stdout.log.0123.part"]
    for path in kept:
        path.write_text("")
    with pytest.raises(RecordError, match="is still being recorded"):
        open_record(tmp_path)
    assert all(path.exists() for path in kept)
    script.close()


def test_what_a_journal_lacks_is_noted(tmp_path: Path) -> None:
    """Marks and the end of the command may have been in damaged entries and in segments that are missing."""
    script = Script(tmp_path / "raw", ["a"], ["loadavg"])
    script.connect()
    script.close()
    (tmp_path / "raw" / "000001.seg").rename(tmp_path / "raw" / "000003.seg")
    notes = finish(tmp_path, report=False).metadata["notes"]
    assert any(note.startswith("the journal is not whole (damaged entries: 0, missing segments: 2)") for note in notes)


def _row_missing(path: Path) -> None:
    _rewritten(path, "SELECT * FROM '{path}' WHERE ts > (SELECT min(ts) FROM '{path}') ORDER BY ts")


def _value_changed(path: Path) -> None:
    _rewritten(path, "SELECT * REPLACE (load_1min + 1 AS load_1min) FROM '{path}'")


def _rewritten(path: Path, sql: str) -> None:
    new = path.with_suffix(".new")
    duckdb.execute(f"COPY ({sql.format(path=path)}) TO '{new}' (FORMAT parquet)")
    new.replace(path)


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def _deleted(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "damage", [_row_missing, _value_changed, _truncated, _deleted], ids=lambda damage: damage.__name__[1:]
)
def test_journal_is_kept_if_a_table_is_wrong(
    record: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    """If a table changed after it was written, the journal is kept, and finishing again repairs the table."""

    def derive_and_damage(path: Path) -> Any:
        made = derive(path)
        damage(path / "series" / "loadavg.parquet")
        return made

    monkeypatch.setattr(api, "derive", derive_and_damage)
    notes = finish(record, drop_raw=True, report=False).metadata["notes"]
    assert any(note.startswith("raw: kept") and "back" in note for note in notes)
    monkeypatch.undo()
    assert (record / "raw" / "000001.seg").exists()
    finish(record, drop_raw=True, report=False)
    assert not (record / "raw").exists()


def test_journal_is_kept_if_facts_cannot_be_parsed(tmp_path: Path) -> None:
    """Only the journal has their text."""
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
def test_damaged_journal_is_kept(record: Path, end: int, why: str) -> None:
    """Only a damaged or truncated journal itself shows what it lacks."""
    segment = record / "raw" / "000001.seg"
    segment.write_bytes(segment.read_bytes()[:end])
    notes = finish(record, drop_raw=True, report=False).metadata["notes"]
    assert any(note.startswith("raw: kept") and why in note for note in notes), notes
    assert segment.exists()


def test_failed_part_does_not_affect_others(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the checks fail, the other parts are written, and a note has the error."""

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
        # All readers share the code that detects this state, so two of them are enough.
        *(
            (killed, argv)
            for killed in ("while finishing", "before the manifest")
            for argv in (QUERY, ["recover", "{record}"])
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_reading_finishes_an_unfinished_record(
    record: Path, tmp_path: Path, argv: list[str], killed: str, beats: int
) -> None:
    """This includes a recorder that was killed before it wrote the metadata, or before the manifest."""
    if killed == "while finishing":
        derive(record)
    if killed == "before the manifest":
        finish(record, report=False)
        (record / "manifest.json").unlink()
    assert is_unfinished(record)
    arguments = [argument.format(record=record, out=tmp_path / "out") for argument in argv]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert not is_unfinished(record)
    assert (record / "manifest.json").exists()
    assert table_rows(record / "series" / "loadavg.parquet") == beats


def test_record_that_cannot_be_finished(tmp_path: Path) -> None:
    """The error reports an unreadable journal, or a directory that is not a record."""
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
def test_invalid_metadata(tmp_path: Path, text: str) -> None:
    """The error names the damaged file."""
    (tmp_path / "generic_metadata.json").write_text(text)
    with pytest.raises(RecordError, match=r"generic_metadata\.json"):
        Record.open(tmp_path)


def test_slots_and_users_are_kept(tmp_path: Path) -> None:
    """Slots and users come from the journal, even for hosts without data; journals without them can be read."""
    more: list[dict[str, Any]] = [{"slots": {"a": 8}, "users": {"b": "ada"}}, {}]
    for number, options in enumerate(more):
        begin = begin_of(["a", "b"], Plan(()), 0, stamp="20260101_000000", argv=[], **options)
        with Journal(tmp_path / str(number) / "raw", begin) as journal:
            journal.event({"event": "end"})
    first, second = (finish(tmp_path / name, report=False).hosts.start for name in ("0", "1"))
    assert [(host.user, host.slots) for host in first] == [(None, 8), ("ada", None)]
    assert [(host.user, host.slots) for host in second] == [(None, None)] * 2


def test_arguments_that_are_not_utf_8(tmp_path: Path) -> None:
    """A path in the arguments may be any bytes: invalid ones are replaced, and the record is finished."""
    begin = begin_of([], Plan(()), 0, type="generic", stamp="20260101_000000", args={"hostfile": ["hosts\udcff"]})
    with Journal(tmp_path / "raw", begin) as journal:
        journal.event({"event": "end"})
    assert finish(tmp_path, report=False).metadata["args"] == {"hostfile": ["hosts\ufffd"]}


@pytest.mark.parametrize(("wanted", "is_partial"), [(True, True), (False, False), (None, False)])
def test_missing_end_facts(tmp_path: Path, wanted: bool | None, is_partial: bool) -> None:
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
    assert [host.status for host in run.hosts.end] == (["failed"] if is_partial else [])
    assert any("skipped" in note for note in run.metadata["notes"]) == (wanted is False)
    assert [(host.status, host.reason[:11]) for host in run.hosts.outcome] == (
        [("partial", "at the end:")] if is_partial else [("complete", "")]
    )


def test_runtime_is_that_of_the_command(tmp_path: Path) -> None:
    """The runtime is the time of the command alone, and the command line is quoted for a shell."""
    begin = begin_of([], Plan(()), 0, type="generic", stamp="20260101_000000", argv=["sh", "-c", "exit 3"])
    with Journal(tmp_path / "raw", begin) as journal:
        journal.event({"event": "command", "state": "started"})
        journal.event({"event": "command", "state": "ended", "code": 3})
        journal.event({"event": "end"})
    metadata = finish(tmp_path, report=False).metadata
    assert metadata["executed_command"] == "sh -c 'exit 3'"
    assert metadata["exit_code"] == 3
    assert 0 < metadata["runtime"] < 5


def test_command_without_an_end(tmp_path: Path) -> None:
    """The metadata has neither an exit status nor metrics."""
    with Journal(tmp_path / "raw", begin_of([], Plan(()), 0, type="generic", stamp="20260101_000000")) as journal:
        journal.event({"event": "command", "state": "started"})
    metadata = finish(tmp_path, report=False).metadata
    assert (metadata["exit_code"], metadata["metrics"]) == (None, {})


def test_command_without_a_start(tmp_path: Path) -> None:
    """The runtime counts from the start of the recording."""
    with Journal(tmp_path / "raw", begin_of([], Plan(()), 0, type="generic", stamp="20260101_000000")) as journal:
        journal.event({"event": "command", "state": "ended", "code": 3})
        journal.event({"event": "end"})
    metadata = finish(tmp_path, report=False).metadata
    assert (metadata["exit_code"], 0 < metadata["runtime"] < 5) == (3, True)


def test_each_transport_is_named_once() -> None:
    """Hosts were reached by two transports at the start, and by one of them at the end."""
    memory = {"meminfo": {"total_kib": 9, "kib": {"MemTotal": 9}, "counts": {}}}
    start = host_results({"a": {**memory, "@method": "local"}, "b": {**memory, "@method": "ssh"}})
    assert snapshots(start, start[:1])["collection_method"] == "local+ssh"
