"""The frame decoder: both carriers, noise around them, and streams cut or damaged anywhere."""

from __future__ import annotations

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.agent.wire import binary, text
from rollbook.collect.frames import LARGEST, Decoder, Frame, cksum

CARRIERS = {"binary": binary, "text": text("7")}
payloads = st.lists(st.binary(max_size=3000), min_size=1, max_size=6)
carriers = st.sampled_from(sorted(CARRIERS))


def stream(carrier: str, contents: list[bytes]) -> list[bytes]:
    """Frames on the wire, numbered from 0."""
    return [CARRIERS[carrier](b"R", seq, seq + 1, seq + 2, data) for seq, data in enumerate(contents)]


def frames(contents: list[bytes], tag: str) -> list[Frame]:
    """What they must decode to."""
    return [Frame("R", seq, seq + 1, seq + 2, data, tag) for seq, data in enumerate(contents)]


@given(carriers, payloads, st.data())
def test_frames_survive_any_cutting_of_the_stream(carrier: str, contents: list[bytes], data: st.DataObject) -> None:
    """However the bytes are dealt out, the same frames come."""
    wire = b"".join(stream(carrier, contents))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    decoder, got = Decoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        got += decoder.feed(wire[start:end])
    got += decoder.feed(b"", end=True)
    assert got == frames(contents, "7" if carrier == "text" else "")
    assert (decoder.noise, decoder.damaged, decoder.lost) == (0, 0, 0)


@given(carriers, payloads, st.binary(max_size=400), st.binary(max_size=400))
def test_noise_around_frames_is_passed_over(carrier: str, contents: list[bytes], before: bytes, between: bytes) -> None:
    """Banners before and shell noise between frames cost no frame."""
    newline = b"\n" if carrier == "text" else b""
    wire = before + newline + (between + newline).join(stream(carrier, contents)) + b"\nlogout\n"
    decoder = Decoder()
    assert decoder.feed(wire, end=True) == frames(contents, "7" if carrier == "text" else "")


@settings(max_examples=300)
@given(carriers, payloads, st.data())
def test_damage_never_gives_a_wrong_frame(carrier: str, contents: list[bytes], data: st.DataObject) -> None:
    """Bytes changed, dropped or inserted anywhere: what comes out is what was sent, or nothing."""
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
def test_arbitrary_bytes_are_no_error(data: bytes) -> None:
    """Whatever comes is taken without an exception."""
    Decoder().feed(data, end=True)


def test_lost_and_repeated_frames_are_seen() -> None:
    """Missing numbers are counted; a frame that comes twice is given once."""
    one, two, three = stream("binary", [b"a", b"b", b"c"])
    decoder = Decoder()
    assert [frame.seq for frame in decoder.feed(one + three + three + two)] == [0, 2]
    assert decoder.lost == 1


def test_memory_is_bounded_whatever_comes() -> None:
    """A host that announces a huge frame, or never ends a line, cannot make us hold more than one frame."""
    decoder = Decoder()
    for start in (b"\xffRB1" + b"\xff" * 8, b"@rb1 0 0 "):
        decoder.feed(start)
        for _ in range(40):
            decoder.feed(b"x" * (1 << 18))
        assert len(decoder._buffer) <= LARGEST + 100


@given(st.binary(max_size=300))
@settings(max_examples=20, deadline=None)
def test_cksum_is_the_one_of_posix(data: bytes) -> None:
    """The stand-in's checksum is what the program `cksum` prints."""
    printed = subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout
    assert cksum(data) == int(printed.split()[0])
