"""The frame decoder: both encodings, noise, damaged streams; and readings in frames."""

from __future__ import annotations

import subprocess
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.agent.wire import MAGIC, binary, text
from rollbook.errors import ProtocolError
from rollbook.protocol.frames import HEADER, LARGEST, MAX_NOISE, MAX_TAGS, Decoder, Frame, cksum
from rollbook.protocol.plan import Plan
from rollbook.protocol.readings import parse_facts, read_frame
from rollbook.sources import catalogue
from rollbook.sources.base import Facts, File

PLAN = Plan((catalogue.source("loadavg"), catalogue.source("meminfo")))
CARRIERS = {"binary": binary, "text": text("7")}
payloads = st.lists(st.binary(max_size=3000), min_size=1, max_size=6)
carriers = st.sampled_from(sorted(CARRIERS))


def stream(carrier: str, contents: list[bytes]) -> list[bytes]:
    """Encode frames, numbered from 0."""
    return [CARRIERS[carrier](b"R", seq, seq + 1, seq + 2, data) for seq, data in enumerate(contents)]


def frames(contents: list[bytes], tag: str) -> list[Frame]:
    """The expected result of decoding them."""
    return [Frame("R", seq, seq + 1, seq + 2, data, tag) for seq, data in enumerate(contents)]


@given(carriers, payloads, st.data())
def test_frames_do_not_depend_on_chunks(carrier: str, contents: list[bytes], data: st.DataObject) -> None:
    """The decoded frames are the same however the bytes are split."""
    wire = b"".join(stream(carrier, contents))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    decoder, got = Decoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        got += decoder.feed(wire[start:end])
    got += decoder.feed(b"", end=True)
    assert got == frames(contents, "7" if carrier == "text" else "")
    assert (decoder.noise, decoder.damaged, decoder.lost) == (0, 0, 0)


@given(carriers, payloads, st.binary(max_size=400), st.binary(max_size=400))
def test_noise_around_frames_is_skipped(carrier: str, contents: list[bytes], before: bytes, between: bytes) -> None:
    """No frame is lost to a banner before the frames or shell output between them."""
    newline = b"\n" if carrier == "text" else b""
    wire = before + newline + (between + newline).join(stream(carrier, contents)) + b"\nlogout\n"
    decoder = Decoder()
    assert decoder.feed(wire, end=True) == frames(contents, "7" if carrier == "text" else "")


@settings(max_examples=300)
@given(carriers, payloads, st.data())
def test_damage_never_produces_a_wrong_frame(carrier: str, contents: list[bytes], data: st.DataObject) -> None:
    """If bytes are changed, dropped or inserted anywhere, every decoded frame was sent."""
    wire = bytearray(b"".join(stream(carrier, contents)))
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, max(0, len(wire) - 1)))
        how = data.draw(st.sampled_from(["flip", "drop", "insert", "cut"]))
        if how == "flip" and wire:
            wire[at] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "drop":
            del wire[at : at + data.draw(st.integers(1, 50))]
        elif how == "insert":
            wire[at:at] = data.draw(st.binary(max_size=50))
        else:
            del wire[at:]
    sent = frames(contents, "7" if carrier == "text" else "")
    got = Decoder().feed(bytes(wire), end=True)
    assert all(frame.payload == sent[frame.seq].payload for frame in got if frame.tag == sent[0].tag)
    assert {frame.seq for frame in got} <= {frame.seq for frame in sent}


@given(st.binary(max_size=5000))
def test_arbitrary_bytes_are_not_an_error(data: bytes) -> None:
    """Any input is accepted without an exception."""
    Decoder().feed(data, end=True)


def test_lost_and_repeated_frames() -> None:
    """Missing sequence numbers are counted; a repeated frame is output once."""
    one, two, three = stream("binary", [b"a", b"b", b"c"])
    decoder = Decoder()
    assert [frame.seq for frame in decoder.feed(one + three + three + two)] == [0, 2]
    assert decoder.lost == 1


def test_memory_is_bounded() -> None:
    """For a host that announces a huge frame or never ends a line, at most one frame is buffered."""
    decoder = Decoder()
    for start in (b"\xffRB1" + b"\xff" * 8, b"@rb1 0 0 "):
        decoder.feed(start)
        for _ in range(40):
            decoder.feed(b"x" * (1 << 18))
        assert len(decoder._buffer) <= LARGEST + 100


def test_false_headers_of_large_frames() -> None:
    """After a few large frames with wrong checksums the rest is dropped."""
    header = HEADER.pack(MAGIC, LARGEST, 0, b"R", 1, 1, 1)
    decoder = Decoder()
    decoder.feed(header * ((LARGEST + (1 << 20)) // len(header)))
    assert decoder.is_mostly_noise
    assert decoder.damaged < 10


@pytest.mark.parametrize(("good", "cut", "noisy"), [(10, 1, False), (1, 10, True)])
def test_valid_frames_compensate_for_noise(good: int, cut: int, noisy: bool) -> None:
    """Occasional truncated lines do not add up over days; a host that sends mostly garbage is detected."""
    decoder, seq = Decoder(), 0
    while seq < 30_000:
        for number in range(good + cut):
            line = CARRIERS["text"](b"R", seq, 1, 1, bytes(600))
            decoder.feed(line if number < good else line[:-50] + b"\n")
            seq += 1
    assert decoder.damaged * 600 > MAX_NOISE
    assert decoder.is_mostly_noise == noisy


def test_memory_is_bounded_for_many_agents() -> None:
    """Memory for unfinished frames and for tags is bounded for any number of agents on one channel."""
    decoder = Decoder()
    for tag in range(40):
        for _ in range(600):
            decoder.feed(b"@rb1 %d 0 %s\n" % (tag, b"x" * 900))
    kept = sum(len(parts) for _, parts in decoder._parts.values())
    assert kept == decoder._held <= 2 * LARGEST
    for tag in range(MAX_TAGS + 50):
        decoder.feed(text(str(tag))(b"B", 0, 1, 1, b""))
    assert len(decoder._seen) == MAX_TAGS
    assert not decoder.feed(text("a" * 11)(b"B", 0, 1, 1, b""))


@pytest.mark.parametrize(
    ("seq", "mono", "wall"), [(1 << 32, 1, 1), (9_999_999_999, 1, 1), (0, 10**20 - 1, 1), (0, 1, 1 << 62)]
)
def test_numbers_out_of_range_are_rejected(seq: int, mono: int, wall: int) -> None:
    """Numbers outside the range of the journal count as damage, even with a correct checksum."""
    decoder = Decoder()
    assert not decoder.feed(text("7")(b"B", seq, mono, wall, b""))
    if seq == 0 and mono == 1:
        assert not decoder.feed(binary(b"B", seq, mono, wall, b""))
    assert decoder.damaged
    assert decoder.feed(text("7")(b"B", 1, 1, (1 << 62) - 1, b""))


fragments = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"0", b"1", b"99", b"9" * 5000, "٣".encode(), b"now", b"ok", b"-", b"\n", b"ok 3 /x", b"abc"]),
)


@given(st.sampled_from("RZ"), st.lists(fragments, max_size=8), st.sampled_from([b" ", b"\n", b""]), st.booleans())
def test_arbitrary_readings(kind: str, parts: list[bytes], between: bytes, honest: bool) -> None:
    """Any payload is a reading of the plan or a `ProtocolError`, and its pages can be parsed."""
    payload = (b"0 now - 12 \n" if honest else b"") + between.join(parts)
    if kind == "Z" and honest:
        payload = zlib.compress(payload)
    try:
        reading = read_frame(Frame(kind, 0, 1, 1, payload), PLAN)
    except ProtocolError:
        return
    assert reading.source in PLAN.sources
    reading.pages()
    parse_facts(reading)


def test_readings_have_a_size_limit() -> None:
    """The collector also enforces a source's limit, and limits the length of headers."""
    limit = PLAN.sources[0].limit
    for size, good in ((limit, True), (limit + (1 << 20) + 1, False)):
        payload = b"0 now - 12 \n" + b"ok %d /proc/loadavg\n" % size + bytes(size)
        frame = Frame("Z", 0, 1, 1, zlib.compress(payload))
        if good:
            assert read_frame(frame, PLAN).status == "ok"
        else:
            with pytest.raises(ProtocolError, match="exceeds the limit"):
                read_frame(frame, PLAN)
    with pytest.raises(ProtocolError, match="header"):
        read_frame(Frame("R", 0, 1, 1, b"0 now - 12 \nok 1 %s\nx" % bytes(9000)), PLAN)


def test_a_parser_with_a_bug() -> None:
    """A parser of a plug-in may raise any exception; only its source fails."""
    source = File("/x", _fail, name="broken")
    plan = Plan((source,))
    reading = read_frame(Frame("R", 0, 1, 1, b"0 now - 12 \nok 1 /x\ny"), plan)
    assert parse_facts(reading) == (None, "broken: unknown format (TypeError('a bug'))")


def test_facts_of_a_plug_in_may_be_frozen() -> None:
    """Facts of a plug-in may be immutable, and may contain dicts with keys that are not strings."""
    source = File("/x", _frozen, name="frozen")
    reading = read_frame(Frame("R", 0, 1, 1, b"0 now - 12 \nok 1 /x\ny"), Plan((source,)))
    assert parse_facts(reading) == (_Frozen("y", {1: "y"}), "")


class _Frozen(Facts, frozen=True):  # type: ignore[misc] # msgspec allows it, mypy does not
    text: str
    by_number: dict[int, str]


def _frozen(text: str) -> _Frozen:
    return _Frozen(text, {1: text})


def _fail(_: str) -> str:
    raise TypeError("a bug")


@given(st.binary(max_size=300))
@settings(max_examples=20, deadline=None)
def test_cksum(data: bytes) -> None:
    """The checksum equals the output of the program `cksum`."""
    printed = subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout
    assert cksum(data) == int(printed.split()[0])
