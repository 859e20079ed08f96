"""Files of an item on their way to the collector. Part of the agent for issue reports; see `evidence.py`."""

import re
import zlib

from rollbook.agent.redactor import Redactor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rollbook.agent.item_reader import ItemReader

CHUNK = 1 << 17  # bytes in a data frame, before deflating
BEFORE = 1 << 14  # bytes before a tail that are redacted as well: the tail may begin inside a key


def escaped(text: str) -> bytes:
    """A field of a line."""
    text = text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
    return text.encode("utf-8", "surrogateescape")


def unescaped(field: str) -> str:
    """The text of a field."""
    return re.sub(r"\\(.)", lambda found: {"t": "\t", "n": "\n"}.get(found.group(1), found.group(1)), field)


def quoted(word: str) -> str:
    """A word as a shell needs it."""
    return word if re.fullmatch(r"[\w@%+=:,./-]+", word) else "'" + word.replace("'", "'\"'\"'") + "'"


class Sink:
    """One file of an item on its way to the collector: redacted, deflated, sent."""

    def __init__(self, reader: "ItemReader", source: str) -> None:
        self.reader, self.number = reader, reader.files
        reader.files += 1
        self.chunk, self.skipped_lines, self.drop, self.sent = b"", 0, 0, 0
        kind = reader.item.redact
        self.redactor = None if kind == "none" else Redactor(reader.salt.encode(), kind)
        self.message(b"open\t" + escaped(source))

    def message(self, data: bytes) -> None:
        self.reader.send(("%s\t%d\t" % (self.reader.item.number, self.number)).encode() + data)

    def skip(self, lines: bytes) -> None:
        """Let the redactor see the lines before the first that is sent: they may be the start of a key."""
        if self.redactor and lines:
            self.redactor.feed(lines)
            self.skipped_lines = lines.count(b"\n")
            self.drop = self.redactor.rest.count(b"\n")  # lines that the redactor returns later

    def write(self, data: bytes) -> None:
        self.add(self.redactor.feed(data) if self.redactor else data)

    def add(self, data: bytes) -> None:
        while self.drop and data:
            data, self.drop = data[data.find(b"\n") + 1 :], self.drop - 1
        self.chunk += data
        while len(self.chunk) >= CHUNK:
            self.flush()

    def flush(self) -> None:
        part, self.chunk = self.chunk[:CHUNK], self.chunk[CHUNK:]
        self.sent += len(part)
        self.message(b"data\t%d\n" % len(part) + zlib.compress(part, 1))

    def end(self, before: int = 0, after: int = 0, code: "int | None" = None) -> None:
        if self.redactor:
            self.add(self.redactor.close())
        while self.chunk:
            self.flush()
        log = self.redactor.log if self.redactor else []
        rows = [(rule, max(1, line - self.skipped_lines), count, mark) for rule, line, count, mark in log]
        text = "".join("%s\t%d\t%d\t%s\n" % row for row in rows)
        if text:
            self.message(b"log\n" + zlib.compress(text.encode("utf-8", "replace"), 1))
        ending = before, after, "-" if code is None else code, self.sent
        self.message(("end\t%d\t%d\t%s\t%d" % ending).encode())


class Tail:
    """The last bytes of a stream, and how many came before them."""

    def __init__(self, limit: int) -> None:
        self.limit, self.size, self.total = limit, 0, 0
        self.blocks: "list[bytes]" = []

    def add(self, block: bytes) -> None:
        self.blocks.append(block)
        self.size += len(block)
        self.total += len(block)
        while self.size - len(self.blocks[0]) >= self.limit + BEFORE:
            self.size -= len(self.blocks.pop(0))

    def pour(self, sink: Sink) -> int:
        """Write the kept bytes, from the start of a line; returns how many are missing before them."""
        data = b"".join(self.blocks)
        if self.total <= self.limit:
            sink.write(data)
            return 0
        start = max(0, len(data) - self.limit)
        start = data.find(b"\n", start) + 1 or start
        sink.skip(data[data.find(b"\n") + 1 : start])
        sink.write(data[start:])
        return self.total - len(data) + start
