"""The archive of a node, made and delivered by the agent. Part of the agent for issue reports; see `evidence.py`.

    archive PART PATH DIRECTORY GROUP INSTANCE TYPE ID...   before `collect`: items go into an archive, not into frames
    put OFFSET LENGTH SHA256 URL    a part of the archive that `upload` has to send
    upload MILLISECONDS             send all parts to S3 with presigned requests
    send                            send the archive in frames

The archive is a `.tar.gz` in an unlinked file, or at PATH. Its entries are DIRECTORY/ID/NAME, the redacted files of the
item with that ID, and at its end DIRECTORY/items.tsv: what was read, from where, and how each item ended. Without
DIRECTORY, all these fields come from the environment (see `bundle/script.py`). Frames of type I answer:

    - - archive SIZE SHA256 PART-SHA256,...   the archive is complete
    - - put ETAG                              a part has arrived
    - - part, newline, bytes                  the next bytes of the archive
    - - failed REASON                         the archive could not be written, or not be uploaded
"""

import os
import re
import struct
import time
import zlib

from rollbook.agent.children import Child
from rollbook.agent.redactor import REDACTED, Redactor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rollbook.agent.loop import Agent

ANSWER_SECONDS = 20.0  # for a connection to S3, and for every write to it
FRAME = 1 << 15  # bytes of the archive in a frame
STALLED = 300.0  # seconds after which sending the archive is given up
UNSAFE = re.compile(rb"[^A-Za-z0-9._-]+")
LONGEST_NAME = 100


def gzip_member(data: bytes, deflated: bytes = b"") -> bytes:
    """Data as one member of a gzip file; what is deflated already is not deflated again."""
    if not deflated:
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        deflated = packer.compress(data) + packer.flush()
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + deflated + struct.pack("<II", zlib.crc32(data), len(data))


class Archive:
    """Takes the frames of items and writes their files. A file is kept in memory, deflated, until its size is known."""

    def __init__(self, agent: "Agent", part: str, path: str, directory: str, *about: str) -> None:
        self.agent, self.part, self.salt = agent, int(part), os.urandom(16)
        if not directory:
            path, directory = os.environ["ROLLBOOK_ARCHIVE"], os.environ["ROLLBOOK_DIRECTORY"]
            about = tuple(os.environ[name] for name in ("INSTANCE_GROUP", "INSTANCE_ID", "CLUSTER_TYPE")) + about[3:]
        self.path, self.directory, self.ids = path, directory, about[3:]
        self.lines = ["\t".join(("about",) + about[:3]).encode("utf-8", "replace")]
        self.open: "dict[tuple[bytes, bytes], tuple[bytes, list[bytes]]]" = {}
        self.names: "set[tuple[bytes, bytes]]" = set()
        self.puts: "list[list[str]]" = []
        self.problem = ""
        try:
            if path:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self.fd = os.open(path + ".part", flags, 0o600)
            else:
                from tempfile import TemporaryFile

                with TemporaryFile() as file:
                    self.fd = os.dup(file.fileno())
        except OSError as error:
            self.fail(error)

    def fail(self, error: OSError) -> None:
        self.problem = self.problem or "cannot write the archive: %s" % os.strerror(error.errno or 0)

    def take(self, payload: bytes) -> None:
        """A frame of an item."""
        head, _, body = payload.partition(b"\n")
        number, file, word, *rest = head.split(b"\t")
        if word == b"open":
            source = self.masked(rest[0])
            name = self.unique_name(number, source)
            self.open[number, file] = name, []
            self.lines.append(b"\t".join((number, file, word, source, name)))
        elif word == b"data":
            self.open[number, file][1].append(body)
        elif word == b"log":
            self.lines += [head + b"\t" + row for row in zlib.decompress(body).splitlines()]
        elif word == b"end":
            self.lines.append(head)
            self.add(number, file)
        else:
            for other in [key for key in self.open if key[0] == number]:  # the child that read it has died
                self.add(*other)
            self.lines.append(b"\t".join((number, file, word, rest[0], rest[1], self.masked(rest[2]))))

    def masked(self, text: bytes) -> bytes:
        """A command line or a note without secrets: it becomes part of names and of the list of files."""
        if b" " not in text:
            return text
        redactor = Redactor(self.salt, "arguments")
        return REDACTED.sub(b"***", (redactor.feed(text) + redactor.close()).replace(b"\n", b" "))

    def unique_name(self, number: bytes, source: bytes) -> bytes:
        name = UNSAFE.sub(b"_", source).strip(b"._-")[:LONGEST_NAME].rstrip(b"._-") or b"file"
        unique, count = name, 1
        while (number, unique) in self.names:
            count += 1
            unique = name + b"~%d" % count
        self.names.add((number, unique))
        return unique

    def add(self, number: bytes, file: bytes) -> None:
        name, chunks = self.open.pop((number, file))
        self.entry("%s/%s" % (self.ids[int(number)], name.decode()), chunks)

    def entry(self, name: str, chunks: "list[bytes]") -> None:
        """Write an entry; its content are zlib streams, which become members of the gzip file as they are."""
        from tarfile import PAX_FORMAT, TarInfo

        about, content = TarInfo(self.directory + "/" + name), []
        for chunk in chunks:
            data = zlib.decompress(chunk)
            about.size += len(data)
            content.append(gzip_member(data, chunk[2:-4]))
        about.mode, about.mtime = 0o600, int(time.time())
        self.write(gzip_member(about.tobuf(PAX_FORMAT)))
        for member in content:
            self.write(member)
        if about.size % 512:
            self.write(gzip_member(bytes(-about.size % 512)))

    def write(self, data: bytes) -> None:
        try:
            while data and not self.problem:
                data = data[os.write(self.fd, data) :]
        except OSError as error:
            self.fail(error)

    def finish(self) -> None:
        """Complete the archive and report it."""
        self.entry("items.tsv", [zlib.compress(b"\n".join(self.lines) + b"\n")])
        self.write(gzip_member(bytes(1024)))
        try:
            if not self.problem and self.path:
                os.rename(self.path + ".part", self.path)
        except OSError as error:
            self.fail(error)
        if self.problem:
            self.report("failed", self.problem)
            if self.path:
                os.write(2, self.problem.encode() + b"\n")
            return
        from binascii import b2a_base64
        from hashlib import sha256

        whole, parts, size, data = sha256(), [], 0, b"-"
        while data:
            data = os.pread(self.fd, self.part, size)
            size += len(data)
            whole.update(data)
            parts += [b2a_base64(sha256(data).digest()).strip().decode()] if data else []
        self.report("archive", size, whole.hexdigest(), ",".join(parts))

    def report(self, *fields: object) -> None:
        self.agent.out.frame(b"I", "\t".join(["-", "-"] + [str(field) for field in fields]).encode("utf-8", "replace"))

    def obey(self, word: str, fields: "list[str]") -> None:
        if word == "put":
            self.puts.append(fields)
        elif word == "upload":
            self.agent.phases.append("put")
            Upload(self, int(fields[0]) / 1000)
        elif word == "send":
            self.agent.phases.append("sent")
            Send(self)


class Upload(Child):
    """Sends the parts of the archive to S3. Nothing that it reports contains an address, which is a secret."""

    def __init__(self, archive: Archive, seconds: float) -> None:
        self.archive = archive
        Child.__init__(self, archive.agent, seconds, archive.agent.children)

    def work(self, out: int, err: int) -> None:
        os.close(err)
        for offset, length, digest, address in self.archive.puts:
            data = os.pread(self.archive.fd, int(length), int(offset))
            answer = put(address, data, digest)
            if answer.startswith("failed\tcannot reach"):  # a connection may break by chance
                answer = put(address, data, digest)
            os.write(out, answer.encode("ascii", "replace") + b"\n")
            if not answer.startswith("put"):
                break
        os._exit(0)

    def finished(self, timed_out: bool) -> None:
        lines = [line.split("\t") for line in self.out.decode().splitlines()]
        for line in lines:
            self.archive.report(*line)
        if not lines or (lines[-1][0] == "put" and len(lines) < len(self.archive.puts)):
            self.archive.report("failed", "cannot reach S3: %s" % ("too slow" if timed_out else "the upload died"))
        del self.archive.puts[:]


def put(address: str, data: bytes, digest: str) -> str:
    """Send one presigned request; returns the fields of the answer."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    headers = {"Content-Type": "application/octet-stream", "x-amz-checksum-sha256": digest}
    try:
        request = Request(address, data, headers, method="PUT")  # noqa: S310 - the collector made the address
        with urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310
            return "put\t%s" % answer.headers.get("ETag", "")
    except HTTPError as error:
        code = re.search(rb"<Code>(\w{1,60})</Code>", error.read(4096))
        return "failed\tS3 answers %d %s" % (error.code, code.group(1).decode() if code else "")
    except Exception as error:  # noqa: BLE001 - whatever it is, the archive can be sent in frames
        reason = getattr(error, "reason", error)
        return "failed\tcannot reach S3: %s" % (getattr(reason, "strerror", "") or type(reason).__name__)


class Send(Child):
    """Sends the archive in frames, as fast as the channel takes them."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        Child.__init__(self, archive.agent, STALLED, archive.agent.children)

    def work(self, out: int, err: int) -> None:
        os.close(err)
        position = 0
        while position < os.fstat(self.archive.fd).st_size:
            position += os.write(out, os.pread(self.archive.fd, FRAME, position))
        os._exit(0)

    def progress(self) -> None:
        self.deadline = time.monotonic() + STALLED
        while len(self.out) >= FRAME:
            self.pass_on()

    def pass_on(self) -> None:
        self.agent.out.frame(b"I", b"-\t-\tpart\n" + bytes(self.out[:FRAME]))
        del self.out[:FRAME]

    def finished(self, timed_out: bool) -> None:
        if self.out and not timed_out:
            self.pass_on()
