"""Replaces host names, addresses and users in a finished bundle by others, the same ones in all files of all nodes.

Addresses keep the structure of their networks: two that share a prefix share a prefix of the same length afterwards.
The key and the pairs are in a map file outside the bundle; with it, further bundles get the same names, and only its
owner can reverse them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import ipaddress
import itertools
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from rollbook.bundle.items import catalogue
from rollbook.bundle.reading import PARTS
from rollbook.bundle.receive import Redactions
from rollbook.bundle.request import Request
from rollbook.bundle.summary import BundleSummary, File, ItemResult
from rollbook.errors import RecordError, UsageError
from rollbook.files import write_file
from rollbook.hosts import expand, fold
from rollbook.records.document import Snapshot, encode, read
from rollbook.records.layout import size_and_hash
from rollbook.records.locate import MANIFEST
from rollbook.records.reading import UNDECODABLE, read_regular
from rollbook.records.record import RecordHosts
from rollbook.sources import catalogue as sources

__all__ = ["MARKER", "ObfuscationMap", "obfuscate"]

MARKER = "obfuscated"
"""The file that marks a bundle as obfuscated."""
REBUILT = (MANIFEST, "index.html")
"""Files that the caller rebuilds."""
BLOCK = 1 << 22
SHORTEST = 4
"""Letters of a host name that is replaced in front of a domain, and of a name that is replaced in a longer word."""
# Accounts of systems and services, and words that follow `user` in messages.
KEPT_USERS = {
    *("root", "daemon", "bin", "sys", "sync", "games", "man", "mail", "news", "uucp", "proxy", "www-data", "backup"),
    *("list", "irc", "gnats", "systemd-network", "systemd-resolve", "systemd-timesync", "systemd-oom", "messagebus"),
    *("syslog", "sshd", "ubuntu", "ec2-user", "centos", "debian", "rocky", "almalinux", "admin", "user", "users"),
    *("adm", "slurm", "munge", "dbus", "chrony", "ntp", "polkitd", "tss", "_apt", "landscape", "rpc", "rpcuser"),
    *("statd", "postfix", "invalid", "unknown", "the", "for", "from", "with", "uid", "gid", "none", "null", "true"),
    *("false", "and"),
}
# Words of our own files that no schema has: names of files, and keys of the metadata.
OUR_WORDS = (
    *(
        "summary",
        "hosts",
        "request",
        "redactions",
        "manifest",
        "findings",
        "index",
        "bundle",
        "json",
        "html",
        "metadata",
    ),
    *("benchmark_type", "run_datetime", "num_processes", "parameters", "result_dir", "system_info"),
    *("cluster_information", "true", "false", "null"),
)
LISTED = re.compile(rb'"(?:InstanceId|NodeLogicalId|PrivateDnsHostname)": "([\w.-]+)"')
USERS = re.compile(
    rb"/home/([a-z_][a-z0-9_\-]{2,31})\b|\b(?:for|of) (?:invalid )?[Uu]ser ([a-z_][a-z0-9_\-]{2,31})\b"
    rb"|\bAccepted \w+ for ([a-z_][a-z0-9_\-]{2,31}) from\b|\bUser(?:Id|Name)?=([a-z_][a-z0-9_\-]{2,31})\b"
    rb"|\b(?:user|USER|username|logname)=[\"']?([a-z_][a-z0-9_\-]{2,31})\b|\bsudo: +([a-z_][a-z0-9_\-]{2,31}) :"
    # Columns of ps and of last.
    rb"|^ *\d+ +\d+ ([a-z_][a-z0-9_\-]{2,31}) +[RSDZTI]|^([a-z_][a-z0-9_\-]{2,31}) +(?:pts/|tty)",
    re.MULTILINE,
)
# One word at a time: a name, an address with or without a port, a hardware address, a folded set of hosts.
WORD = re.compile(
    rb"[0-9A-Za-z_][0-9A-Za-z_.\-]*\[[0-9,\-]+\][0-9A-Za-z_.\-]*|:?:?[0-9A-Za-z_](?:[0-9A-Za-z_.:\-]*[0-9A-Za-z_])?"
)
JOINTS = re.compile(r"([._-])")
IPV4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.]*\.?\d)")
DASHED = re.compile(r"(?<![\w-])ip-(\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3})(?![\w-])")
HARDWARE = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}(?:(?:[0-9A-Fa-f]{2}:){14})?[0-9A-Fa-f]{2}")
PINNED = [ipaddress.ip_network(each) for each in ("172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15")]
KEPT = [
    ipaddress.ip_network(each)
    for each in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/127", "ff00::/8", "fe80::/128")
]


class ObfuscationMap(msgspec.Struct, kw_only=True, tag_field="schema", tag="rollbook.obfuscation/1"):
    """The key, and every pair of an original and its replacement."""

    key: str
    hosts: dict[str, str] = {}
    users: dict[str, str] = {}
    addresses: dict[str, str] = {}
    hardware: dict[str, str] = {}
    bundles: list[str] = []
    """Reports that are obfuscated, or were being when the program ended."""


def obfuscate(bundle: Path, map_path: Path) -> ObfuscationMap:
    """Replace names and addresses in all files of a bundle, and in their names.

    The map is created, or extended if it exists. A bundle that is obfuscated already stays as it is. The manifest and
    the page are removed, because they describe the files as they were. A name that is also a word of Rollbook's own
    files, such as `node`, stays. Raises `UsageError` if the map is inside the bundle or readable by others, and
    `RecordError` if a file cannot be read or written; nothing is changed if the summary would become invalid.
    """
    if map_path.resolve().is_relative_to(bundle.resolve()):
        raise UsageError(f"{map_path} is inside the bundle; keep the map elsewhere")
    known = _load(map_path)
    if (bundle / MARKER).exists():
        return known
    summary = read(bundle / "summary.json", BundleSummary)
    items = {item.id for items in (*(node.items for node in summary.results), summary.cluster) for item in items}
    work = _Work(known, items, is_repeated=summary.report_id in known.bundles)
    try:
        files = [path for path in sorted(bundle.rglob("*")) if path.is_file() and not path.is_symlink()]
        work.learn([*(node.node for node in summary.results), *_listed(bundle, summary)], files)
        if summary.report_id not in known.bundles:
            known.bundles.append(summary.report_id)
        work.learn_words(files)
        work.check(bundle, summary, files)
        write_file(map_path, encode(known))
        for path in files:
            if path.relative_to(bundle).as_posix() in REBUILT:
                path.unlink()
            else:
                work.replace(path)
        work.rename(bundle)
        _update_summary(bundle)
        write_file(bundle / MARKER, b"Host names, addresses and users are replaced.\n")
    except OSError as error:
        raise RecordError(f"{error.filename or bundle}: {error.strerror}") from error
    return known


def _listed(bundle: Path, summary: BundleSummary) -> Iterator[str]:
    """Names of nodes that a cloud's service lists, including nodes that are not in the report."""
    for item in summary.cluster:
        for file in item.files if item.id.startswith("hyperpod-") else ():
            for found in LISTED.finditer(read_regular(bundle / file.path)):
                yield found[1].decode()


def _load(path: Path) -> ObfuscationMap:
    if not path.exists():
        return ObfuscationMap(key=secrets.token_hex(32))
    if path.stat().st_mode & 0o077:
        raise UsageError(f"{path} can reverse the obfuscation, but others can read it: run chmod 600 {path}")
    return read(path, ObfuscationMap)


@functools.cache
def structural_words() -> frozenset[str]:
    """Words that our own files consist of whatever was read: keys, values of enumerations, ids, names of files.

    A file in which they are replaced cannot be read any more, or lacks what it had.
    """
    kinds = [BundleSummary, RecordHosts, Request, Redactions, Snapshot, *(source.produces for source in sources.load())]
    found = {str(word) for kind in kinds for word in _keys_and_values(msgspec.json.schema(kind))}
    found |= {source.name for source in sources.load()} | {item.id for item in catalogue()}
    return frozenset(found.union(PARTS, OUR_WORDS))


def _keys_and_values(schema: Any) -> Iterator[Any]:
    """The keys and the values of enumerations in a JSON schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        yield from schema.get("enum", ())
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from _keys_and_values(part)


class _Work:
    """One pass over a bundle with these items. `memo` has every word that was seen, with its replacement."""

    def __init__(self, known: ObfuscationMap, items: Iterable[str] = (), *, is_repeated: bool) -> None:
        self.map, self.key = known, bytes.fromhex(known.key)
        self.memo: dict[bytes, bytes] = {}
        self.kept = structural_words().union(items)
        values = (known.hosts, known.users, known.addresses, known.hardware)
        # After an interruption some files are done: what is in them already must stay.
        self.done = {value for pairs in values for value in pairs.values()} if is_repeated else set()

    def learn(self, nodes: Iterable[str], files: list[Path]) -> None:
        """Names of hosts and users that occur in the bundle."""
        names = set(nodes)
        for path in files:
            if path.name in {"hostname", "etc_hostname"} and path.stat().st_size < 300:
                names.add(path.read_text("utf-8", "replace").strip())
        names |= {name.partition(".")[0] for name in names}
        for name in sorted(names):
            if re.fullmatch(r"[A-Za-z0-9][\w.\-]*[A-Za-z][\w.\-]*|[A-Za-z][\w.\-]*", name) and name != "localhost":
                self._pair(self.map.hosts, name, "host")
        for block in itertools.chain.from_iterable(map(_blocks, files)):
            for found in USERS.finditer(block):
                user = next(group for group in found.groups() if group).decode()
                if user not in KEPT_USERS and user not in self.map.hosts:
                    self._pair(self.map.users, user, "user")

    def _pair(self, pairs: dict[str, str], name: str, kind: str) -> None:
        if name not in pairs and name not in self.done and name not in self.kept:
            pairs[name] = f"{kind}{len(pairs) + 1:04d}"

    def learn_words(self, files: list[Path]) -> None:
        """Find every word once, so that the map is complete before a file is changed."""
        for block in itertools.chain.from_iterable(map(_blocks, files)):
            for word in set(WORD.findall(block)).difference(self.memo):
                self.memo[word] = self.word(word)

    def check(self, bundle: Path, summary: BundleSummary, files: Iterable[Path]) -> None:
        """Raise `RecordError` unless the summary stays valid and complete, and every file gets a name of its own."""
        problem = f"{bundle} cannot be obfuscated"
        try:
            after = msgspec.json.decode(self.text(read_regular(bundle / "summary.json")), type=BundleSummary)
        except UNDECODABLE as error:
            raise RecordError(f"{problem}: its summary would become invalid: {error}") from error
        if _items(after) != _items(summary):
            raise RecordError(f"{problem}: its summary would lose items")
        taken: dict[bytes, Path] = {}
        for path in files:
            name = self.text(os.fsencode(path.relative_to(bundle)))
            if (other := taken.setdefault(name, path)) != path:
                raise RecordError(f"{problem}: {other} and {path} would get the same name")

    def replace(self, path: Path) -> None:
        """Replace the words of a file."""
        write_file(path, b"".join(map(self.text, _blocks(path))))

    def text(self, data: bytes) -> bytes:
        """A text with its words replaced."""
        return WORD.sub(lambda found: self.memo.get(found[0]) or self.word(found[0]), data)

    def word(self, data: bytes) -> bytes:
        """One word replaced; itself if it is neither a name nor an address."""
        text = data.decode("ascii")
        if text in self.done or text in self.kept:  # a map may have a word that is part of the structure only now
            return data
        if "[" in text:
            return self._folded(text).encode()
        direct = self.map.hosts.get(text) or self.map.users.get(text)
        if direct:
            return direct.encode()
        if ":" in text:
            return self._colons(text).encode()
        return self._plain(text).encode()

    def _plain(self, text: str) -> str:
        """A name, perhaps with a domain, or addresses."""
        if "-" in text:
            text = DASHED.sub(lambda found: "ip-" + self.address(found[1].replace("-", ".")).replace(".", "-"), text)
        if text.count(".") >= 3:
            text = IPV4.sub(lambda found: self.address(found[0]), text)
        short, dot, domain = text.partition(".")
        # `vm.swappiness` is not a machine that is called `vm`.
        if dot and len(short) >= SHORTEST and short in self.map.hosts:
            return f"{self.map.hosts[short]}.{domain}"
        return "".join(self._joined(JOINTS.split(text)))

    def _joined(self, parts: list[str]) -> Iterator[str]:
        """The parts of a word and their joints, with names replaced, the longest first, as in `slurmd.node003.log`."""
        hosts, users, most = self._inside
        at = 0
        while at < len(parts):
            for end in range(min(len(parts), at + most), at, -1):
                name = "".join(parts[at:end])
                if replaced := name not in self.done and (hosts.get(name.lower()) or users.get(name)):
                    yield replaced
                    at = end
                    break
            else:
                yield parts[at]
                at += 1

    @functools.cached_property
    def _inside(self) -> tuple[dict[str, str], dict[str, str], int]:
        """Hosts in lower case and users that are replaced inside of words, and the most parts that one has.

        A name that is short, and that of a host without a digit, is more often a word.
        """
        users = {name: pair for name, pair in self.map.users.items() if len(name) >= SHORTEST and name not in self.kept}
        hosts = {
            name.lower(): pair
            for name, pair in self.map.hosts.items()
            if len(name) >= SHORTEST and name not in self.kept and any(map(str.isdigit, name))
        }
        return hosts, users, max((len(JOINTS.split(name)) for name in (*hosts, *users)), default=0)

    def _colons(self, text: str) -> str:
        """An IPv6 or hardware address, or several words with colons between them."""
        if HARDWARE.fullmatch(text):
            return self._hardware(text)
        if text.count(":") >= 2 and not text.strip("0123456789abcdefABCDEF:."):
            with contextlib.suppress(ValueError):
                return self.address(str(ipaddress.IPv6Address(text)), text)
        return ":".join(self.word(part.encode()).decode() if part else "" for part in text.split(":"))

    def _folded(self, text: str) -> str:
        """A folded set of hosts; replaced if one of its hosts is known."""
        with contextlib.suppress(UsageError):
            names = expand(text)
            if len(names) <= 10_000 and any(name in self.map.hosts for name in names):
                return fold([self.map.hosts.get(name, name) for name in names])
        return text

    def address(self, text: str, written: str = "") -> str:
        """An IP address whose bits are changed depending on the bits before them."""
        written = written or text
        if text in self.done or written in self.done:
            return written
        if text in self.map.addresses:
            return self.map.addresses[text]
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return written
        if any(address in network for network in KEPT if network.version == address.version):
            return written
        width, bits, result = address.max_prefixlen, int(address), 0
        fixed = 16 if address.version == 6 else 8  # bits that stay in all addresses
        special = [(int(each[0]), each.prefixlen) for each in (*KEPT, *PINNED) if each.version == address.version]
        for index in range(width):
            bit, prefix = bits >> (width - 1 - index) & 1, bits >> (width - index)
            # A bit also stays if it tells a special network from its neighbours: both must keep their places.
            is_kept = any(index < length and network >> (width - index) == prefix for network, length in special)
            if index >= fixed and not is_kept:
                bit ^= hmac.digest(self.key, f"{width}:{index}:{prefix}".encode(), hashlib.sha256)[0] & 1
            result = result << 1 | bit
        replaced = str(ipaddress.ip_address(result) if width == 32 else ipaddress.IPv6Address(result))
        self.map.addresses[text] = replaced
        return replaced

    def _hardware(self, text: str) -> str:
        """The vendor's half of a hardware address stays."""
        plain = text.lower()
        head, tail = plain[:-8], plain[-8:]
        if text in self.done or tail in {"ff:ff:ff", "00:00:00"}:
            return text
        taken = set(self.map.hardware.values())
        for attempt in range(256):
            if plain in self.map.hardware:
                break
            digest = hmac.digest(self.key, f"{plain}/{attempt}".encode(), hashlib.sha256)
            candidate = head + ":".join(f"{byte:02x}" for byte in digest[:3])
            if candidate not in taken:
                self.map.hardware[plain] = candidate
        return self.map.hardware[plain]

    def rename(self, bundle: Path) -> None:
        """Give files and directories with a name in them their new names, the deepest first."""
        for path in sorted(bundle.rglob("*"), key=lambda each: len(each.parts), reverse=True):
            name = os.fsdecode(self.text(os.fsencode(path.name)))
            if name != path.name:
                path.rename(path.with_name(name))


def _blocks(path: Path) -> Iterator[bytes]:
    """The content of a file in parts that end at a line, as far as lines are not too long."""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block + file.readline(BLOCK)


def _items(summary: BundleSummary) -> list[list[tuple[str, str, int]]]:
    """Id, status and number of files of every item, by node and for the cluster."""
    groups = [*(node.items for node in summary.results), summary.cluster]
    return [[(item.id, item.status, len(item.files)) for item in items] for items in groups]


def _update_summary(bundle: Path) -> None:
    """Paths were replaced with the rest of the text; sizes and hashes are those of the files as they are now."""
    summary = read(bundle / "summary.json", BundleSummary)

    def updated(items: list[ItemResult]) -> list[ItemResult]:
        return [msgspec.structs.replace(item, files=[_now(bundle, file) for file in item.files]) for item in items]

    for node in summary.results:
        node.items = updated(node.items)
    summary.cluster = updated(summary.cluster)
    write_file(bundle / "summary.json", encode(summary))


def _now(bundle: Path, file: File) -> File:
    path = bundle / file.path
    if not path.is_file():
        return file
    size, digest = size_and_hash(path)
    return msgspec.structs.replace(file, size=size, sha256=digest)
