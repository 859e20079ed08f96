"""Secrets over several lines, except private keys: where they begin and end. Part of the agent for issue reports.

Block scalars and lists of YAML and JSON below the name of a secret, quoted text and here-documents about secrets, the
data of a Kubernetes Secret, and private keys in base64.
"""

import re

from rollbook.agent.secret_names import is_secret_name, is_vague

TYPE_CHECKING = False
if TYPE_CHECKING:
    Part = tuple[int, int, bool]
    Manifest = tuple[bytes, int, int]

LONGEST_MANIFEST = 1000  # lines of a Secret in front of its data
LEAD = re.compile(rb"(?:[ \t]|-[ \t])*")
OPENING = re.compile(
    rb"((?:[ \t]|-[ \t])*)(?:export[ \t]+|set[ \t]+|env[ \t]+)?[\"']?([A-Za-z0-9_.\-]{1,120})[\"']?"
    rb"[ \t]*(?:=>|:=|[:=])[ \t]*([^\r\n]*?)[ \t\r]*\Z"
)
BLOCK_SCALAR = re.compile(rb"(?:[!&]\S+[ \t]+)*[|>][+\-0-9]*(?:[ \t]+#.*)?")
UNCLOSED = re.compile(rb"\"(?:\\.|[^\"\\])*\\?\Z|'[^']*\Z")
HERE_DOCUMENT = re.compile(rb"<<[\-~]?[ \t]?[\"'\\]?([A-Z_][A-Z0-9_]*|eof|eot|end)\b")
ABOUT_SECRETS = re.compile(rb"(?i)pass|pwd|secret|token|key|cred|auth|netrc|kinit|luks|login")
# Private keys in base64; redacting again must find the same lines. What is shorter is only the end of the last line.
BASE64_KEY = re.compile(rb"LS0tLS1CRUdJTiB[EFPQST](?:[A-Za-z0-9+/]{20,}|\*\*\*[0-9a-f]{8})[ \t\r]*\Z")
BASE64 = re.compile(rb"[A-Za-z0-9+/]{36,}={0,2}|\*\*\*[0-9a-f]{8}")
KEYED = re.compile(rb"(?:[ \t]|-[ \t])*(?:\"[^\"]*\"|'[^']*'|[^\s:=\"'\[\]{}]+)[ \t]*[:=](?=[ \t\r]|\Z)[ \t]*")
MANIFEST = re.compile(
    rb"((?:[ \t]|-[ \t])*)[\"']?(apiVersion|kind|data|stringData|binaryData)[\"']?[ \t]*:[ \t]*[\"']?([^\"',\r\n]*)"
)


class Span:
    """A secret over several lines, opened in a line with this indentation: a block scalar."""

    longest = 1 << 20  # lines; its end is visible, so this is only a limit of the counter

    def __init__(self, indent: int = 0, end: bytes = b"") -> None:
        self.indent, self.end = indent, end

    def part(self, line: bytes) -> "Part | None":
        """The part of a line that is secret, and whether the line is the last; None if the one before it was."""
        text = line.strip()
        depth = depth_of(line)
        if not text:
            return 0, 0, False
        return self.inside(line, depth) if self.has(text, depth) else None

    def has(self, text: bytes, depth: int) -> bool:
        """Whether a line that is not empty belongs to the secret."""
        del text
        return depth > self.indent

    def inside(self, line: bytes, depth: int) -> "Part":
        """The part of a line of the secret, and whether it is the last."""
        return depth, len(line), False


class ListSpan(Span):
    """Values of a list, or one value that begins in the next line."""

    def has(self, text: bytes, depth: int) -> bool:
        if KEYED.match(text) or text[:1] in b"]}":
            return False
        return depth > self.indent or (depth == self.indent and text[:2] == b"- ")

    def inside(self, line: bytes, depth: int) -> "Part":
        del depth
        lead = LEAD.match(line)
        return lead.end() if lead else 0, len(line), False


class DataSpan(Span):
    """The values of a map; what is deeper than its keys is a value over several lines."""

    keys = 0  # their indentation

    def inside(self, line: bytes, depth: int) -> "Part":
        self.keys = self.keys or depth
        keyed = KEYED.match(line)
        return keyed.end() if keyed and depth <= self.keys else depth, len(line), False


class QuoteSpan(Span):
    """A quoted value, up to its quote."""

    longest = 20  # lines, if the quote never comes

    def part(self, line: bytes) -> "Part | None":
        at = line.find(self.end)
        depth = depth_of(line)
        return (depth, len(line), False) if at < 0 else (min(depth, at), at, True)


class HereSpan(Span):
    """A here-document, up to the line with its word."""

    longest = 1000

    def part(self, line: bytes) -> "Part | None":
        return (0, 0, True) if line.strip() == self.end else (depth_of(line), len(line), False)


class Base64Span(Span):
    """The further lines of a private key in base64."""

    longest = 400

    def has(self, text: bytes, depth: int) -> bool:
        del depth
        return BASE64.fullmatch(text) is not None


def depth_of(line: bytes) -> int:
    """The indentation of a line."""
    return len(line) - len(line.lstrip(b" \t"))


def opened(line: bytes) -> "Span | None":
    """The secret over several lines that a line opens."""
    here = HERE_DOCUMENT.search(line) if b"<<" in line else None
    if here and ABOUT_SECRETS.search(line):
        return HereSpan(0, here.group(1))
    if BASE64_KEY.search(line):
        return Base64Span()
    found = OPENING.match(line)
    if not found or not is_secret_name(found.group(2).decode("ascii")):
        return None
    indent, value = len(found.group(1)), found.group(3)
    if BLOCK_SCALAR.fullmatch(value):
        return Span(indent)
    if value in (b"", b"["):
        return None if is_vague(found.group(2).decode("ascii")) else ListSpan(indent)
    return QuoteSpan(indent, value[:1]) if UNCLOSED.match(value) else None


def follow_manifest(manifest: "Manifest | None", line: bytes) -> "tuple[Manifest | None, Span | None]":
    """The object of Kubernetes after a line, if it may be a Secret, and its data if they begin there.

    kubectl sorts keys: `data` follows `apiVersion`, and the kind of the object is not known yet.
    """
    found = MANIFEST.match(line)
    if found:
        indent, name, value = len(found.group(1)), found.group(2), found.group(3).strip()
        if name in (b"apiVersion", b"kind"):
            may_be_secret = value == (b"v1" if name == b"apiVersion" else b"Secret")
            return ((name, indent, LONGEST_MANIFEST) if may_be_secret else None), None
        has_data = manifest is not None and manifest[1] == indent and value in (b"", b"{")
        return manifest, DataSpan(indent) if has_data else None
    if not manifest or not line.strip():
        return manifest, None
    name, indent, left = manifest
    is_over = name == b"apiVersion" or not left or line[:3] == b"---" or len(line) - len(line.lstrip(b" \t-")) < indent
    return (None if is_over else (name, indent, left - 1)), None
