"""Obfuscation: replacements are the same in all files, networks keep their structure, a second run changes nothing."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.bundle.obfuscate import ObfuscationMap, _Work, obfuscate
from rollbook.bundle.summary import BundleSummary, File, ItemResult, NodeResult
from rollbook.errors import RecordError, UsageError
from rollbook.records.document import encode, read

NODES = ("ip-10-1-104-161", "ip-10-1-104-162", "node003")
LOG = (
    "Nov 16 05:00:00 ip-10-1-104-161 sshd[1]: Accepted publickey for alice from 10.1.104.162 port 22\n"
    "mount filer:/home/alice on node003.cluster.local from 203.0.113.7 (netmask 255.255.255.0, lo 127.0.0.1)\n"
    "link/ether 0c:42:a1:11:22:33 brd ff:ff:ff:ff:ff:ff inet6 2001:db8:1:2::5/64 fe80::1 time 05:24:29\n"
    "srun: error: node003: task 0: Exited; nodes node003,ip-10-1-104-162:8080 version 5.14.0-362 root\n"
    "    501       1 bob        Ss   0.0 trainer\nlast: \nalice    pts/0  node003  Mon Nov 16\n"
    "drained node[003,999] by alice, driver 580.65.06, ip-10-1-104-77 is down\n"
)


def make_bundle(path: Path) -> Path:
    """Write a bundle of three nodes with the same log."""
    results = []
    for node in NODES:
        relative = f"nodes/{node}/system-log/{node}.log"
        (path / relative).parent.mkdir(parents=True)
        (path / relative).write_text(LOG)
        file = File(
            path=relative, source="/var/log/syslog", size=len(LOG), sha256=hashlib.sha256(LOG.encode()).hexdigest()
        )
        item = ItemResult(id="system-log", status="complete", files=[file])
        results.append(NodeResult(node=node, status="complete", items=[item]))
    summary = BundleSummary(
        report_id="r1", timestamp=dt.datetime.now(dt.UTC), total_nodes=3, successful=3, failed=0, results=results
    )
    (path / "summary.json").write_bytes(encode(summary))
    (path / "manifest.json").write_text("{}")
    return path


def all_files(bundle: Path) -> dict[str, bytes]:
    """Path and content of every file."""
    return {str(each.relative_to(bundle)): each.read_bytes() for each in sorted(bundle.rglob("*")) if each.is_file()}


def test_all_identities_are_replaced(tmp_path: Path) -> None:
    """Names and addresses are replaced in contents and file names, equally on all nodes; other text is kept."""
    bundle, pairs = make_bundle(tmp_path / "bundle"), obfuscate(tmp_path / "bundle", tmp_path / "map.json")
    files = all_files(bundle)
    everything = "".join(files) + b"".join(files.values()).decode()
    for original in (*NODES, "alice", "bob", "10.1.104", "10-1-104", "203.0.113.7", "11:22:33", "2001:db8", "node[003"):
        assert original not in everything
    logs = {content for name, content in files.items() if name.endswith(".log")}
    assert len(logs) == 1
    log = logs.pop().decode()
    for kept in (
        "127.0.0.1",
        "255.255.255.0",
        "0c:42:a1:",
        "ff:ff:ff:ff:ff:ff",
        "05:24:29",
        "5.14.0-362",
        "580.65.06",
        "root",
    ):
        assert kept in log
    assert log.count(pairs.users["alice"]) == 4
    assert pairs.hosts["node003"] in log
    assert "manifest.json" not in files


def test_summary_describes_the_new_files(tmp_path: Path) -> None:
    """Paths, sizes and hashes in the summary are those of the obfuscated files."""
    bundle = make_bundle(tmp_path / "bundle")
    obfuscate(bundle, tmp_path / "map.json")
    for node in read(bundle / "summary.json", BundleSummary).results:
        for file in node.items[0].files:
            data = (bundle / file.path).read_bytes()
            assert (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
            assert node.node in file.path


def test_obfuscating_twice_changes_nothing(tmp_path: Path) -> None:
    """A second run changes nothing, even if the first was interrupted just before its end."""
    bundle = make_bundle(tmp_path / "bundle")
    obfuscate(bundle, tmp_path / "map.json")
    before = all_files(bundle)
    obfuscate(bundle, tmp_path / "map.json")
    assert all_files(bundle) == before
    (bundle / "obfuscated").unlink()
    obfuscate(bundle, tmp_path / "map.json")
    assert all_files(bundle) == before


def test_one_map_for_several_bundles(tmp_path: Path) -> None:
    """Equal names in two bundles have equal replacements."""
    first, second = make_bundle(tmp_path / "a"), make_bundle(tmp_path / "b")
    obfuscate(first, tmp_path / "map.json")
    document = read(second / "summary.json", BundleSummary)
    document.report_id = "r2"
    (second / "summary.json").write_bytes(encode(document))
    obfuscate(second, tmp_path / "map.json")
    logs = {
        content for bundle in (first, second) for name, content in all_files(bundle).items() if name.endswith(".log")
    }
    assert len(logs) == 1


def test_map_is_private_and_outside_the_bundle(tmp_path: Path) -> None:
    """The map has mode 0600; one inside the bundle or readable by others is refused."""
    bundle = make_bundle(tmp_path / "bundle")
    with pytest.raises(UsageError, match="inside the bundle"):
        obfuscate(bundle, bundle / "map.json")
    obfuscate(bundle, tmp_path / "map.json")
    assert (tmp_path / "map.json").stat().st_mode & 0o777 == 0o600
    (tmp_path / "map.json").chmod(0o644)
    with pytest.raises(UsageError, match="others can read it"):
        obfuscate(bundle, tmp_path / "map.json")


def shared_bits(one: str, other: str) -> int:
    """The length of the common prefix of two addresses."""
    first, second = ipaddress.ip_address(one), ipaddress.ip_address(other)
    return first.max_prefixlen - (int(first) ^ int(second)).bit_length()


@given(st.lists(st.ip_addresses(v=4).map(str), min_size=2, max_size=8, unique=True))
def test_networks_keep_their_structure(addresses: list[str]) -> None:
    """Common prefixes have the same length before and after, and different addresses stay different."""
    work = _Work(ObfuscationMap(key="ab" * 32), is_repeated=False)
    kept = [each for each in addresses if work.address(each) != each]
    for one in kept:
        for other in kept:
            assert shared_bits(one, other) == shared_bits(work.address(one), work.address(other))


def test_ipv6_keeps_its_structure() -> None:
    """Addresses of one network share the same prefix length after obfuscation."""
    work = _Work(ObfuscationMap(key="ab" * 32), is_repeated=False)
    one, other = work.word(b"2001:db8:1:2::5").decode(), work.word(b"2001:db8:1:2::9").decode()
    assert "db8" not in one
    assert shared_bits(one, other) == shared_bits("2001:db8:1:2::5", "2001:db8:1:2::9")


WORDS = ("node", "results", "complete", "items", "files", "path", "nodes", "hostname", "stat_totals", "request")


def test_words_of_our_own_files_stay(tmp_path: Path) -> None:
    """A user or host that is called like a key, a status or a file of the report does not make it unreadable."""
    bundle = make_bundle(tmp_path / "bundle")
    log = bundle / "nodes/node003/system-log/node003.log"
    log.write_text("".join(f"mount /home/{word}/data\n" for word in (*WORDS, "alice")))
    (bundle / "nodes/node003/identity").mkdir()
    (bundle / "nodes/node003/identity/hostname").write_text("summary.cluster.local\n")
    before = read(bundle / "summary.json", BundleSummary)
    pairs = obfuscate(bundle, tmp_path / "map.json")
    after = read(bundle / "summary.json", BundleSummary)
    assert list(pairs.users) == ["alice", "bob"]
    assert [node.status for node in after.results] == ["complete"] * 3
    assert [len(node.items[0].files) for node in after.results] == [1, 1, 1]
    assert all((bundle / file.path).is_file() for node in after.results for file in node.items[0].files)
    assert before.report_id == after.report_id


def test_words_of_an_older_map_stay(tmp_path: Path) -> None:
    """A map that has such a word from elsewhere does not replace it."""
    bundle, pairs = make_bundle(tmp_path / "bundle"), tmp_path / "map.json"
    pairs.write_bytes(encode(ObfuscationMap(key="ab" * 32, users={"results": "user0001", "status": "user0002"})))
    pairs.chmod(0o600)
    obfuscate(bundle, pairs)
    assert len(read(bundle / "summary.json", BundleSummary).results) == 3


def test_the_id_of_an_item_stays(tmp_path: Path) -> None:
    """A user who is called like an item of one's own does not make its files unreachable."""
    bundle = make_bundle(tmp_path / "bundle")
    text = (bundle / "summary.json").read_text().replace('"system-log"', '"alice"')
    (bundle / "summary.json").write_text(text)
    obfuscate(bundle, tmp_path / "map.json")
    assert {node.items[0].id for node in read(bundle / "summary.json", BundleSummary).results} == {"alice"}


def test_nothing_is_written_if_the_summary_would_be_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that is not known to be part of the structure is found before a file is changed."""
    bundle, pairs = make_bundle(tmp_path / "bundle"), tmp_path / "map.json"
    monkeypatch.setattr("rollbook.bundle.obfuscate.structural_words", frozenset[str])
    (bundle / "nodes/node003/system-log/node003.log").write_text("/home/items/x")
    before = all_files(bundle)
    with pytest.raises(RecordError, match="cannot be obfuscated: its summary would lose items"):
        obfuscate(bundle, pairs)
    assert all_files(bundle) == before
    assert not pairs.exists()


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("slurmd.node003.log", "slurmd.host0001.log"),
        ("node003-ib0", "host0001-ib0"),
        ("node003_results", "host0001_results"),
        ("NODE003", "host0001"),
        ("a.b.c.Node003.log", "a.b.c.host0001.log"),
        ("ip-10-1-104-161-ib0", "host0002-ib0"),
        ("job_alice.log", "job_user0001.log"),
        ("krb5cc_alice", "krb5cc_user0001"),
        ("core.mary-ann.1", "core.user0002.1"),
        ("node0031-ib0", "node0031-ib0"),
        ("malice_x", "malice_x"),
        ("ALICE_x", "ALICE_x"),
        ("gpu-login-1", "gpu-login-1"),
        ("not-read", "not-read"),
        ("bundle_20261116_050000_metadata.json", "bundle_20261116_050000_metadata.json"),
    ],
)
def test_names_inside_of_words(text: str, replaced: str) -> None:
    """Names that are joined to other words are replaced, those of hosts in any case; parts of parts are not."""
    hosts = {"node003": "host0001", "ip-10-1-104-161": "host0002", "login": "host0003"}
    users = {"alice": "user0001", "mary-ann": "user0002", "read": "user0003", "metadata": "user0004"}
    work = _Work(ObfuscationMap(key="ab" * 32, hosts=hosts, users=users), is_repeated=False)
    assert work.word(text.encode()).decode() == replaced
    work = _Work(work.map, is_repeated=True)
    assert work.word(replaced.encode()).decode() == replaced


def test_files_that_would_get_the_same_name(tmp_path: Path) -> None:
    """Of two files whose names differ only in case, none is lost: nothing is changed."""
    bundle = make_bundle(tmp_path / "bundle")
    (bundle / "nodes/node003/system-log/NODE003.log").write_text("other")
    before = all_files(bundle)
    with pytest.raises(RecordError, match="would get the same name"):
        obfuscate(bundle, tmp_path / "map.json")
    assert all_files(bundle) == before
