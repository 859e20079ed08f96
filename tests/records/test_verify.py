"""`verify` reports each changed file of a record; signatures identify the signer."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import stat
import subprocess
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from rollbook.checks import engine
from rollbook.checks.run_data import open_run_data
from rollbook.checks.verify import Problem, verify
from rollbook.cli.report import command as report
from rollbook.cli.snapshot import command as snapshot
from rollbook.cli.verify import command
from rollbook.errors import RecordError, UsageError
from rollbook.files import write_file
from rollbook.records import layout
from rollbook.records.document import encode, read
from rollbook.records.findings import Findings
from rollbook.records.layout import RecordDirectory, list_files
from rollbook.records.record import Record, RecordHosts
from rollbook.records.signing import check_signature, sign
from rollbook.testing.journals import Script
from tests.support.records import host_results

HOSTS = {"n[1-2]": {"thp": {"enabled": "always"}, "meminfo": {"total_kib": 9, "kib": {"MemTotal": 9}, "counts": {}}}}


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A finished record with findings."""
    began = dt.datetime(2026, 8, 1, tzinfo=dt.UTC)
    leaf = RecordDirectory.create(tmp_path / "results", "training", began)
    leaf.write_snapshot(host_results(HOSTS), began)
    write_file(leaf.path / "findings.json", encode(engine.check(open_run_data(leaf.path))))
    (leaf.path / "raw").mkdir()
    (leaf.path / "raw" / "000001.seg").write_bytes(b"RBJ1" + bytes(100))
    leaf.write_manifest()
    return leaf.path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A fresh private key."""
    path = tmp_path / "id_test"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
    return path


def allowed(key: Path, name: str) -> Path:
    """A file that allows this key to sign as that name."""
    path = key.with_name("allowed_signers")
    path.write_text(f"{name} {key.with_suffix('.pub').read_text()}")
    return path


def problems_of(record: Path, signers: Path | None = None) -> list[tuple[str, str]]:
    """Kind and path of each problem."""
    return [(problem.kind, problem.path) for problem in verify(record, signers).problems]


def test_unchanged_record(record: Path) -> None:
    """There are no problems, and encoding the decoded documents gives the same bytes."""
    found = verify(record)
    assert (found.problems, found.files, found.signature) == ([], 5, None)
    kinds: dict[str, type] = {"hosts.json": RecordHosts, "findings.json": Findings}
    for name, kind in kinds.items():
        assert encode(read(record / name, kind)) == (record / name).read_bytes()


def test_flipped_bit_is_reported_with_the_file(record: Path) -> None:
    """A flipped bit is found in every file, at its start, middle and end."""
    names = [entry["path"] for entry in json.loads((record / "manifest.json").read_bytes())["files"]]
    for name in names:
        path = record / name
        data = path.read_bytes()
        for place in (0, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            assert ("changed", name) in problems_of(record), (name, place)
        path.write_bytes(data)
    assert problems_of(record) == []


def test_missing_added_and_longer_files(record: Path) -> None:
    """Each problem has its path; a symlink is an added file, even if it points to a directory."""
    (record / "raw" / "000001.seg").unlink()
    (record / "raw" / "000002.seg").write_bytes(b"")
    (record / "link").symlink_to("hosts.json")
    (record / "elsewhere").symlink_to("/etc")
    with (record / "findings.json").open("ab") as file:
        file.write(b" ")
    assert sorted(problems_of(record)) == [
        ("added", "elsewhere"),
        ("added", "link"),
        ("added", "raw/000002.seg"),
        ("changed", "findings.json"),
        ("missing", "raw/000001.seg"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("hosts.json", '{"schema": "rollbook.run/1"}', "started_ns"),
        ("findings.json", "[]", "Expected `object`"),
        ("training_20260801_000000_metadata.json", '{"benchmark_type": "training"}', "lacks run_datetime"),
        ("training_20260801_000000_metadata.json", "{", "not JSON"),
        ("training_20260801_000000_metadata.json", "[" * 100_000, "not JSON"),
        ("hosts.json", "[" * 100_000, "not a valid document"),
        ("training_20260801_000000_cluster_info.json", "{}", "total_memory_bytes"),
        ("training_20260801_000000_timeseries.json", '{"num_samples": 1}', "collection_interval_seconds"),
    ],
)
def test_documents_must_match_their_schema(record: Path, name: str, text: str, why: str) -> None:
    """A document with the right hash is still reported if it does not match its schema."""
    (record / name).write_text(text)
    RecordDirectory(record, "training", "20260801_000000").write_manifest()
    (problem,) = verify(record).problems
    assert (problem.kind, problem.path) == ("unreadable", name)
    assert why in problem.why


def test_manifest_with_a_path_outside_the_record(record: Path) -> None:
    """A file outside of the record counts as missing."""
    manifest = json.loads((record / "manifest.json").read_bytes())
    manifest["files"].append({"path": "../../../etc/passwd", "size": 1, "sha256": "0"})
    (record / "manifest.json").write_text(json.dumps(manifest))
    assert verify(record).problems == [Problem("missing", "../../../etc/passwd", "listed in the manifest")]


def test_unusual_files_in_a_record(record: Path) -> None:
    """Names that are not UTF-8, symlinks and FIFOs verify; `verify` neither follows symlinks nor blocks on FIFOs."""
    (record / os.fsdecode(b"caf\xe9")).write_text("x")
    (record / "zero").symlink_to("/dev/zero")
    (record / "hosts_timeseries.json").symlink_to("/dev/zero")
    (record / "etc").symlink_to("/etc")
    (record / "ghosts.json").write_text("[]")
    (record / "build_manifest.json").write_text("[]")
    os.mkfifo(record / "pipe")
    RecordDirectory(record, "training", record.name).write_manifest()
    assert problems_of(record) == []
    listed = {entry["path"]: entry["size"] for entry in json.loads((record / "manifest.json").read_bytes())["files"]}
    assert (listed["caf\\xe9"], listed["zero"], "pipe" in listed) == (1, len("/dev/zero"), False)
    (record / "zero").unlink()
    (record / "zero").symlink_to("/dev/null")
    (record / "ghosts.json").unlink()
    os.mkfifo(record / "ghosts.json")
    (record / "new").mkdir()
    os.mkfifo(record / "new pipe")
    assert problems_of(record) == [
        ("missing", "ghosts.json"),
        ("changed", "zero"),
        ("added", "ghosts.json"),
        ("added", "new"),
        ("added", "new pipe"),
    ]
    (record / "manifest.json").unlink()
    os.mkfifo(record / "manifest.json")
    with pytest.raises(RecordError, match=r"manifest\.json does not exist"):
        verify(record)


def test_file_that_disappears_during_listing(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of the command may still delete files: the manifest is written without them."""
    monkeypatch.setattr(layout, "list_files", lambda path: {"gone": path / "gone", **list_files(path)})
    RecordDirectory(record, "training", record.name).write_manifest()
    assert problems_of(record) == []


def test_no_manifest(tmp_path: Path) -> None:
    """The error names the missing manifest, or the reason: the record is still being recorded or is not finished."""
    with pytest.raises(RecordError, match="is not a record"):
        verify(tmp_path)
    (tmp_path / "x_metadata.json").write_text("{}")
    with pytest.raises(RecordError, match=r"manifest\.json does not exist"):
        verify(tmp_path)
    script = Script(tmp_path / "raw", ["a"], ["loadavg"])
    with pytest.raises(RecordError, match="is still being recorded"):
        verify(tmp_path)
    script.close()
    with pytest.raises(RecordError, match=f"is not finished; run `rollbook recover {tmp_path}`"):
        verify(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("hosts.json", '{"a', "hosts.json is not a valid document: "),
        ("hosts.json", '{"schema": "rollbook.run/1", "rollbook": "\udcff"}', "hosts.json is not a valid document: "),
        ("hosts.json", None, "hosts.json: No such file"),
        ("*_metadata.json", "[", "_metadata.json: "),
        ("*_metadata.json", '{"a": "\udcff"}', "_metadata.json: "),
        ("*_metadata.json", None, " has no file named "),
    ],
)
def test_damage_is_reported_with_the_command_to_run(record: Path, name: str, text: str | None, reason: str) -> None:
    """The error suggests `rollbook recover`, or `rollbook verify` for a record without a journal."""
    [file] = record.glob(name)
    file.unlink() if text is None else file.write_text(text, errors="surrogateescape")
    with pytest.raises(RecordError, match=re.escape(reason) + f".*; `rollbook recover {record}` rebuilds it"):
        Record.open(record)
    (record / "raw" / "000001.seg").unlink()
    with pytest.raises(RecordError, match=f"; `rollbook verify {record}` lists"):
        Record.open(record)


def test_signature(record: Path, key: Path) -> None:
    """A signature is good if an allowed signer made it and nothing changed since; a missing one is a problem."""
    assert problems_of(record, allowed(key, "ada@example.org")) == [("signature", "manifest.json")]
    sign(record, key)
    found = verify(record, allowed(key, "ada@example.org"))
    assert found.problems == []
    assert found.signature is not None
    assert (found.signature.good, found.signature.signer) == (True, "ada@example.org")
    unknown = check_signature(record / "manifest.json", None)
    assert unknown.good
    assert "anyone" in unknown.note

    other = key.with_name("other")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    assert problems_of(record, allowed(other, "eve@example.org")) == [("signature", "manifest.json")]

    data = (record / "manifest.json").read_bytes()
    (record / "manifest.json").write_bytes(data.replace(b'"rollbook"', b'"rollBook"', 1))
    assert ("signature", "manifest.json") in problems_of(record, allowed(key, "ada@example.org"))
    assert not check_signature(record / "manifest.json", None).good


def test_key_for_another_namespace(record: Path, key: Path) -> None:
    """The signature is not good, and the note is one short message."""
    sign(record, key)
    key.with_name("signers").write_text(f'ada namespaces="file" {key.with_suffix(".pub").read_text()}')
    judged = check_signature(record / "manifest.json", key.with_name("signers"))
    assert not judged.good
    assert 10 < len(judged.note) < 200


@pytest.mark.parametrize(
    ("columns", "problems"),
    [
        ("'n1' AS host, TIMESTAMP_NS '2026-08-01' AS ts, 1::BIGINT AS mono, 2 AS more", []),
        ("'n1' AS host, TIMESTAMP '2026-08-01' AS ts, 1::BIGINT AS mono", [("unreadable", "series/stat.parquet")]),
        ("2 AS more", [("unreadable", "series/stat.parquet")]),
        ("", [("unreadable", "series/stat.parquet")]),
    ],
)
def test_tables_of_the_series(record: Path, columns: str, problems: list[tuple[str, str]]) -> None:
    """A file that is not Parquet, or not a table of a series, is reported although its hash is right."""
    (record / "series").mkdir()
    table = record / "series" / "stat.parquet"
    table.write_bytes(b"PAR1")
    if columns:
        duckdb.sql(f"COPY (SELECT {columns}) TO '{table}' (FORMAT parquet)")
    RecordDirectory(record, "training", record.name).write_manifest()
    assert problems_of(record) == problems


def test_new_manifest_removes_the_signature(record: Path, key: Path) -> None:
    """The record can be signed again; a manifest in a subdirectory is an ordinary file."""
    sign(record, key)
    (record / "raw" / "manifest.json").write_text("{}")
    RecordDirectory(record, "training", record.name).write_manifest()
    assert problems_of(record) == []
    assert problems_of(record, allowed(key, "ada@example.org")) == [("signature", "manifest.json")]
    sign(record, key)
    assert problems_of(record, allowed(key, "ada@example.org")) == []


def test_a_snapshot_is_signed_like_a_run(key: Path, tmp_path: Path) -> None:
    """`snapshot --sign` makes a signed record; a single file or none at all cannot be signed."""
    options = ["-w", "localhost", "--source", "uptime", "--sign", str(key)]
    done = CliRunner().invoke(snapshot, [*options, "-o", str(tmp_path / "results")])
    assert done.exit_code == 0, done.output
    (path,) = (tmp_path / "results" / "snapshot").iterdir()
    assert problems_of(path, allowed(key, "ada@example.org")) == []
    for output in ([], ["-o", str(tmp_path / "one.json")]):
        refused = CliRunner().invoke(snapshot, [*options, *output])
        assert isinstance(refused.exception, UsageError)
    key.write_text("nothing")
    refused = CliRunner().invoke(snapshot, [*options, "-o", str(tmp_path / "never")])
    assert isinstance(refused.exception, RecordError)
    assert not (tmp_path / "never").exists()


def test_who_can_read_a_manifest_can_check_it(record: Path, key: Path) -> None:
    """The signature of a shared record has the mode of its manifest."""
    manifest = record / "manifest.json"
    for mode in (0o644, 0o600):
        manifest.chmod(mode)
        sign(record, key)
        assert stat.S_IMODE((record / "manifest.json.sig").stat().st_mode) == mode


def test_signing_needs_a_key_that_works(record: Path, key: Path, tmp_path: Path) -> None:
    """Signing with an invalid key is an error, and the existing signature stays."""
    sign(record, key)
    (tmp_path / "nokey").write_text("nothing")
    with pytest.raises(RecordError, match="cannot sign"):
        sign(record, tmp_path / "nokey")
    assert problems_of(record, allowed(key, "ada@example.org")) == []


def test_new_report_is_added_to_the_manifest(record: Path, key: Path, tmp_path: Path) -> None:
    """Other changes are still found, and the page of a signed record is not replaced."""
    run = CliRunner().invoke
    for _ in range(2):
        assert run(report, [str(record)]).exit_code == 0
        assert problems_of(record) == []
    with (record / "findings.json").open("ab") as file:
        file.write(b" ")
    assert run(report, [str(record)]).exit_code == 0
    assert problems_of(record) == [("changed", "findings.json")]
    RecordDirectory(record, "training", record.name).write_manifest()
    sign(record, key)
    page = (record / "report.html").read_bytes()
    for output in ([], ["-o", str(record / "report.html")]):
        refused = run(report, [str(record), *output])
        assert isinstance(refused.exception, UsageError)
    assert (record / "report.html").read_bytes() == page
    assert run(report, [str(record), "-o", str(tmp_path / "other.html")]).exit_code == 0
    assert problems_of(record, allowed(key, "ada@example.org")) == []


def test_command(record: Path, key: Path) -> None:
    """Exit status 0 for an unchanged record, else 1; `--sign` signs only an unchanged record."""
    signers = str(allowed(key, "ada@example.org"))
    run = CliRunner().invoke
    assert run(command, [str(record)]).exit_code == 0
    assert run(command, [str(record), "--sign", str(key), "--allowed-signers", signers]).exit_code == 0
    result = run(command, [str(record), "--json", "--allowed-signers", signers])
    assert json.loads(result.stdout)["signature"]["signer"] == "ada@example.org"
    (record / "hosts.json").write_text("x")
    (record / "manifest.json.sig").unlink()
    result = run(command, [str(record), "--sign", str(key)])
    assert result.exit_code == 1
    assert "changed    hosts.json" in result.stdout
    assert not (record / "manifest.json.sig").exists()


def test_signing_keeps_a_signature_that_it_must_not_replace(record: Path, key: Path, tmp_path: Path) -> None:
    """A bad one is evidence, and a key that is not allowed replaces no signature and adds none."""
    run, signature = CliRunner().invoke, record / "manifest.json.sig"
    signers, other = str(allowed(key, "ada@example.org")), tmp_path / "id_other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", other], check=True)
    not_allowed = [str(record), "--sign", str(other), "--allowed-signers", signers]
    assert run(command, not_allowed).exit_code == 1
    assert not signature.exists()
    sign(record, key)
    good = signature.read_bytes()
    refused = run(command, not_allowed)
    assert (refused.exit_code, "is not in" in refused.output) == (1, True)
    assert signature.read_bytes() == good
    assert run(command, [str(record), "--sign", str(other)]).exit_code == 0
    assert signature.read_bytes() != good
    signature.write_bytes(bad := good.replace(b"A", b"B"))
    assert run(command, [str(record), "--sign", str(key)]).exit_code == 1
    assert signature.read_bytes() == bad
