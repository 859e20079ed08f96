"""Reports are untrusted input: analysis of any bytes terminates and reads only files of the report."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import tarfile
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollbook.bundle import evidence, logs
from rollbook.bundle.analysis import analyse, open_bundle_data
from rollbook.bundle.archive import pack
from rollbook.bundle.directory import BundleDirectory
from rollbook.bundle.reading import CHUNK, Bundle, is_bundle, unpack
from rollbook.bundle.rows import rows
from rollbook.bundle.summary import File
from rollbook.errors import RecordError, RollbookError, UsageError
from tests.support.bundles import BundleCase, kernel_log, write_bundle

FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SOURCES = {
    "kernel-log": "journalctl -k",
    "journal-warnings": "journalctl -p warning",
    "gpu-memory": "nvidia-smi --query-remapped-rows=x",
    "processes": "ps -eo",
    "cgroups": "/sys/fs/cgroup/a/memory.events",
    "memory-errors": "/sys/devices/system/edac/mc/mc0/ce_count",
    "memory": "/proc/vmstat",
    "load": "/proc/pressure/memory",
    "space": "df -lPTk",
    "rdma-ports": "/sys/class/infiniband/a/ports/1/state",
    "rdma-counters": "/sys/class/infiniband/a/ports/1/counters/symbol_error",
    "time": "chronyc -n tracking",
    "boots": "last -x",
}
WORDS = [literal for row in rows().values() for literal in row.find]


def file_at(path: str) -> File:
    """A file as the summary lists it."""
    return File(path=path, source="x", size=1, sha256="")


def write_log_bundle(directory: Path, text: str = "x\n") -> Path:
    """Write a report with one kernel log."""
    directory.mkdir(exist_ok=True)
    case = BundleCase(about="", outcome="", items={"n1": {"kernel-log": {"journalctl -k": text}}})
    return write_bundle(directory, case)


@FUZZ
@given(data=st.lists(st.one_of(st.binary(max_size=200), st.sampled_from(WORDS).map(str.encode), st.just(b"\n"))))
def test_any_bytes_in_every_file(data: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Arbitrary file content never makes a rule fail."""
    directory = tmp_path_factory.mktemp("fuzz")
    items = {item: {source: "x"} for item, source in SOURCES.items()}
    cluster = {"kubectl get pods -o json": "x", "kubectl get nodes -o json": "x", "sinfo -R": "x"}
    write_bundle(directory, BundleCase(about="", outcome="", items={"n1": items}, cluster=cluster))
    for path in (*directory.glob("nodes/*/*/*"), *directory.glob("cluster/*/*")):
        path.write_bytes(b"".join(data))
    findings = analyse(directory)
    assert [rule.note for rule in findings.rules if "error in the rule" in rule.note] == []
    for rule in findings.rules:
        for finding in rule.findings:
            assert len(finding.lines) <= 20
            assert all(line.line >= 1 and len(line.text) <= 400 for line in finding.lines)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "items",
                    "status",
                    "conditions",
                    "type",
                    "metadata",
                    "spec",
                    "containerStatuses",
                    "state",
                    "waiting",
                    "reason",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@FUZZ
@given(document=JSON)
def test_any_json_from_kubernetes(document: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Arbitrary JSON documents never make a rule fail."""
    directory = tmp_path_factory.mktemp("fuzz")
    text = json.dumps(document)
    cluster = {f"kubectl get {kind} -o json": text for kind in ("pods", "nodes", "events")}
    write_bundle(directory, BundleCase(about="", outcome="", items={"n1": {"os": {"x": "y"}}}, cluster=cluster))
    findings = analyse(directory)
    assert [rule.note for rule in findings.rules if "error in the rule" in rule.note] == []


@FUZZ
@given(data=st.binary(max_size=500) | JSON.map(lambda value: json.dumps(value).encode()))
def test_broken_summary(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An invalid summary is an error with a message."""
    directory = tmp_path_factory.mktemp("fuzz")
    (directory / "summary.json").write_bytes(data)
    with pytest.raises(RecordError, match="summary"):
        Bundle(directory)


def test_a_summary_that_is_not_utf8(tmp_path: Path) -> None:
    """It is a `RecordError`, not a traceback."""
    path = write_log_bundle(tmp_path / "bundle") / "summary.json"
    path.write_bytes(path.read_bytes().replace(b'"n1"', b'"n\xff"'))
    with pytest.raises(RecordError, match="is not the summary of an issue report"):
        Bundle(path.parent)


def test_huge_line(tmp_path: Path) -> None:
    """A line of 10 MB is read in pieces; lines after it keep their numbers."""
    path = write_log_bundle(tmp_path)
    line = b"x" * (10 << 20) + b"\n" + kernel_log("nfs: server filer1 not responding, still trying").encode()
    (path / "nodes/n1/kernel-log/0").write_bytes(line)
    result = next(rule for rule in analyse(path).rules if rule.id == "nfs-not-responding")
    assert result.findings[0].lines[0].line == 2
    chunks = list(Bundle(path).chunks(file_at("nodes/n1/kernel-log/0")))
    assert b"".join(chunk.data for chunk in chunks) == line
    assert max(len(chunk.data) for chunk in chunks) <= 2 * CHUNK


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "nodes/../../secret", "../secret", "nodes", "summary.json", "nodes/n1/link",
             "nodes/n1/dir/x", "nodes/n1/fifo", "nodes/n1/\0", "nodes/n1/absent", ""],
)  # fmt: skip
def test_paths_stay_inside(path: str, tmp_path: Path) -> None:
    """Paths in the summary cannot open files outside the report, links or FIFOs."""
    (tmp_path / "secret").write_text("secret")
    bundle = write_log_bundle(tmp_path / "b")
    (bundle / "nodes/n1/link").symlink_to(tmp_path / "secret")
    (bundle / "nodes/n1/dir").symlink_to(tmp_path)
    os.mkfifo(bundle / "nodes/n1/fifo")
    with pytest.raises(RecordError):
        Bundle(bundle).text(file_at(path))


def test_slow_pattern_matching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that take too long to match are reported; rules still find lines of other nodes."""
    texts = {"n1": 9 * "x Stale file handle\n", "n2": kernel_log("nfs: server filer1 not responding")}
    items = {name: {"kernel-log": {"journalctl -k": text}} for name, text in texts.items()}
    bundle = write_bundle(tmp_path, BundleCase(about="", outcome="", items=items))
    seconds = itertools.count(0, logs.GRACE / 5)  # of CPU time, for each line
    monkeypatch.setattr(time, "process_time", lambda: next(seconds))
    found = {rule.id: rule for rule in analyse(bundle).rules}
    assert "takes too long" in found["report-incomplete"].findings[0].message
    assert found["nfs-not-responding"].findings[0].hosts == ["n2"]


def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    """A missing or damaged file makes the report incomplete, and rules that need it could not tell."""
    items = {"n1": {"kernel-log": {"journalctl -k": "x\n"}}}
    broken = {"kubectl get nodes -o json": '{"items": ['}
    path = write_bundle(tmp_path, BundleCase(about="", outcome="", items=items, cluster=broken))
    (path / "nodes/n1/kernel-log/0").unlink()
    found = {rule.id: rule for rule in analyse(path).rules}
    incomplete = {finding.message: finding.hosts for finding in found["report-incomplete"].findings}
    assert [hosts for message, hosts in incomplete.items() if "nodes/n1/kernel-log/0" in message] == [["n1"]]
    assert [hosts for message, hosts in incomplete.items() if "is not valid JSON" in message] == [[]]
    for rule in ("nfs-not-responding", "kubernetes-node-not-ready"):
        assert found[rule].outcome == "could-not-tell", rule


def test_overlong_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules compare only the start of the text, and report that they could not tell."""
    monkeypatch.setattr(evidence, "LARGEST_TEXT", 10)
    nodes = {"kubectl get nodes -o json": '{"items": []}'}
    path = write_bundle(tmp_path, BundleCase(about="", outcome="", items={"n1": {}}, cluster=nodes))
    found = {rule.id: rule for rule in analyse(path).rules}["kubernetes-node-not-ready"]
    assert found.outcome == "could-not-tell"
    assert "only the first" in found.note


def write_archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """Write an archive with these entries."""
    with tarfile.open(path, "w:gz") as tar:
        for member, data in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """An entry of an archive."""
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found


@pytest.mark.parametrize(
    "entry",
    [member("../outside"), member("/tmp/outside-of-bundle"), member("b/link", tarfile.SYMTYPE, "/etc/passwd"),
     member("b/hard", tarfile.LNKTYPE, "b/summary.json"), member("b/fifo", tarfile.FIFOTYPE),
     member("b/device", tarfile.CHRTYPE)],
    ids=lambda entry: entry.name,
)  # fmt: skip
def test_hostile_archives(entry: tarfile.TarInfo, tmp_path: Path) -> None:
    """Archives with links, devices or paths outside the target are refused."""
    path = write_archive(tmp_path / "b.tar.gz", (entry, b""))
    with pytest.raises(RecordError, match="cannot unpack"):
        unpack(path, tmp_path / "out" / "b")
    assert not (tmp_path / "outside").exists()
    assert not list((tmp_path / "out").iterdir())


def test_a_target_that_cannot_be_created(tmp_path: Path) -> None:
    """The message names the target, which is at fault, and has the reason, not Python's form of it."""
    path = write_archive(tmp_path / "b.tar.gz")
    with pytest.raises(RecordError, match=r"cannot unpack .*/b\.tar\.gz to .*/below/out: Not a directory$"):
        unpack(path, path / "below" / "out")


def test_a_missing_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the program, which is missing, and not the archive, which is there."""
    (tmp_path / "b.tar.zst").write_bytes(b"x")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"b\.tar\.zst needs the program zstd, which is not installed"):
        unpack(tmp_path / "b.tar.zst", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar.zst"]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_huge_archive_headers(form: int, tmp_path: Path) -> None:
    """A few compressed KiB can expand to a header of gigabytes: it is refused."""
    entry = member("b/" + "x" * (3 << 20))
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz", format=form) as tar:
        tar.addfile(entry)
    with pytest.raises(RecordError, match="a header of more than 1 MiB"):
        unpack(tmp_path / "b.tar.gz", tmp_path / "out")


def test_negative_member_size(tmp_path: Path) -> None:
    """A negative size would raise the limit for unpacked data; it is refused."""
    entry = member("b/x")
    entry.size = -512
    header = entry.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "b.tar.gz").write_bytes(gzip.compress(header + bytes(1024)))
    with pytest.raises(RecordError, match="cannot unpack"):
        unpack(tmp_path / "b.tar.gz", tmp_path / "out")


def test_duplicate_names_in_an_archive(tmp_path: Path) -> None:
    """An archive with two entries of the same name is refused."""
    path = write_archive(tmp_path / "b.tar.gz", (member("b/x"), b"1"), (member("b/x"), b"2"))
    with pytest.raises(RecordError):
        unpack(path, tmp_path / "out")


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b", gzip.compress(b"x" * 1000, mtime=0), b"not an archive"])
def test_damaged_archives(data: bytes, tmp_path: Path) -> None:
    """An invalid archive is an error, and no partial report is left behind."""
    path = tmp_path / "b.tar.gz"
    path.write_bytes(data)
    with pytest.raises(RollbookError):
        analyse(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_truncated_archive(tmp_path: Path) -> None:
    """The files before the truncation, among them the summary, are not left behind as if they were the report."""
    bundle = write_log_bundle(tmp_path / "b", kernel_log("nfs: server filer1 not responding, still trying"))
    with tarfile.open(tmp_path / "c.tar", "w") as tar:
        tar.add(bundle / "summary.json", arcname="c/summary.json")
        tar.add(bundle / "nodes", arcname="c/nodes")
    data = (tmp_path / "c.tar").read_bytes()
    (tmp_path / "c.tar.gz").write_bytes(gzip.compress(data)[:-200])
    with pytest.raises(RecordError, match="cannot unpack"):
        analyse(tmp_path / "c.tar.gz")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("suffix", [".tar.gz", pytest.param(".tar.zst", marks=pytest.mark.needs("zstd"))])
def test_an_archive_with_a_wrong_checksum(tmp_path: Path, suffix: str) -> None:
    """The checksum at the end of the file is verified, although no entry follows it."""
    bundle = write_log_bundle(tmp_path / "b", kernel_log("nfs: server filer1 not responding, still trying"))
    path = tmp_path / f"c{suffix}"
    pack(bundle, path)
    unpack(path, tmp_path / "good")
    data = bytearray(path.read_bytes())
    data[-1 if suffix == ".tar.zst" else -5] ^= 1  # the last bytes of gzip are the size
    path.write_bytes(data)
    with pytest.raises(RecordError, match="cannot unpack"):
        unpack(path, tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


def test_analyse_an_archive(tmp_path: Path) -> None:
    """The archive is unpacked into its directory, readable by the owner only, and analysed there."""
    bundle = write_log_bundle(tmp_path / "b", kernel_log("nfs: server filer1 not responding, still trying"))
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as tar:
        tar.add(bundle, arcname="report")
    findings = analyse(tmp_path / "c.tar.gz")
    assert findings.failures
    assert is_bundle(tmp_path / "c" / "report")
    assert (tmp_path / "c" / "report" / "index.html").exists()
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "c").rglob("*")}
    assert modes == {0o600, 0o700}
    with pytest.raises(RecordError, match="already exists"):
        analyse(tmp_path / "c.tar.gz")


def test_a_report_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is neither analysed nor resumed: its request has commands that would run with our permissions."""
    path = write_log_bundle(tmp_path / "b", kernel_log("x"))
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    for function in (analyse, BundleDirectory.open):
        with pytest.raises(RecordError, match="belongs to uid"):
            function(path)


def test_findings_round_trip(tmp_path: Path) -> None:
    """`findings.json` has the findings with their lines, and a second analysis finds the same."""
    path = write_log_bundle(tmp_path, kernel_log("nfs: server filer1 not responding, still trying"))
    first = msgspec.to_builtins(analyse(path).rules)
    stored = json.loads((path / "findings.json").read_bytes())["rules"]
    again = msgspec.to_builtins(analyse(path).rules)
    assert stored == first == again
    found = next(rule for rule in stored if rule["id"] == "nfs-not-responding")["findings"][0]
    assert found["lines"][0]["path"] == "nodes/n1/kernel-log/0"
    assert found["device"] == "filer1"


def test_hosts_come_from_the_snapshot(tmp_path: Path) -> None:
    """The hosts of a report are those of its snapshot, with or without items."""
    case = BundleCase(
        about="", outcome="", items={"n1": {"os": {"x": "y"}}}, start={"n[1-2]": {"thp": {"enabled": "madvise"}},
                                                                      "n3": {"thp": {"enabled": "always"}}},
    )  # fmt: skip
    run = open_bundle_data(write_bundle(tmp_path, case))
    assert [host.name for host in run.start] == ["n1", "n2", "n3"]
