"""Time stamps on a busy host: the record reports by how much values may be newer than their time stamp."""

from __future__ import annotations

import re
import time
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from rollbook import agent
from rollbook.agent import wire
from rollbook.protocol.varint import put_varint
from rollbook.records.document import encode
from rollbook.records.record import Record
from rollbook.tables.derive import derive
from rollbook.testing.journals import Script, body_of, record_this_machine
from tests.support.faults import CounterReader, wrong_values

SECOND = 10**9
START = 1_700_000_000 * SECOND
STALL = 0.06  # seconds


def test_delayed_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If reading is delayed after the time stamp, a source's delay includes the delays of previous sources."""
    text = agent.text().replace("body = source.sample()\n", f"body = time.sleep({STALL}) or source.sample()\n")
    assert text != agent.text()
    monkeypatch.setattr(agent, "payload", lambda **_: f"{agent.packed(text.encode())}::")
    record_this_machine(tmp_path / "raw", 2, 0.5, ("loadavg", "stat_totals"))
    first, second = derive(tmp_path)[2].series[0].sources
    assert first.delay_ns >= STALL * SECOND
    assert second.delay_ns >= 2 * STALL * SECOND


def test_delays_of_the_agent_and_the_stand_in(tmp_path: Path) -> None:
    """The delay of a source is its longest time from the clock of the sample to the end of the reading."""
    script = Script(tmp_path / "raw", ["a", "b"], ["loadavg", "meminfo"], started_ns=START)
    load, memory = body_of({"/proc/loadavg": "0.1 0.2 0.3 1/2 3\n"}), body_of({"/proc/meminfo": "MemTotal: 1 kB\n"})
    script.connect(0)
    for number, (start, took) in enumerate([(10, 5), (66_000, 7), (300, 400)]):
        script.frame("S", sample(load, start, took), START + number * SECOND, number * SECOND)
    script.connect(1, kind="sh")
    for second in range(2):
        for number, body in enumerate((load, memory)):
            at = second * SECOND + number * SECOND // 10
            script.frame("R", b"%d sample ok 20000 \n%s" % (number, body), START + at, at, host=1)
    script.close()
    one, other = derive(tmp_path)[2].series
    assert {loss.source: loss.delay_ns for loss in one.sources} == {"loadavg": 66_007_000}
    assert {loss.source: loss.delay_ns for loss in other.sources} == {"loadavg": 20_000_000, "meminfo": 120_000_000}


def sample(body: bytes, start: int, took: int) -> bytes:
    """Encode a sample of the first source as a key frame, with these times in microseconds."""
    stream, payload = zlib.compressobj(4, zlib.DEFLATED, -15), bytearray()
    data = (stream.compress(body) + stream.flush(zlib.Z_SYNC_FLUSH))[:-4]
    for value in (0, 1, start, took, len(data)):
        put_varint(payload, value)
    return bytes(payload) + data


def test_delay_between_clock_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the agent is delayed between reading its two clocks, it reads both again."""
    waits = [0.3, 0.2]
    clock = [1000.0]

    def monotonic() -> float:
        clock[0] += 1e-6
        return clock[0]

    def wall() -> float:
        clock[0] += waits.pop() if waits else 0.0
        return clock[0] + 5.0

    monkeypatch.setattr(wire, "time", SimpleNamespace(monotonic=monotonic, time=wall))
    mono, at = wire.now()
    assert abs(at - mono - 5 * SECOND) < 10**6
    assert waits == []


@pytest.mark.parametrize(("delay", "wrong"), [(0, 3), (SECOND, 0)])
def test_wrong_values_of_the_fault_campaign(tmp_path: Path, delay: int, wrong: int) -> None:
    """Values that were read after their time stamp are wrong, unless the record reports the delay."""
    wall, mono, counters = time.time_ns(), time.monotonic_ns(), CounterReader()
    for seconds, value in ((-1, 5), (0.1, 10), (2, 20)):
        at = mono + int(seconds * SECOND)
        counters._began.append(at)
        counters._ended.append(at)
        counters._values.append({"ctxt": value, "processes": value})
    text = re.sub(r"(?m)^(ctxt|processes) \d+$", r"\1 15", Path("/proc/stat").read_text())
    script = Script(tmp_path / "raw", ["a"], ["stat_totals"], started_ns=wall - SECOND)
    script.connect()
    script.sample(wall - SECOND // 5, {"stat_totals": {"/proc/stat": text}}, mono=mono)
    script.close()
    hosts = derive(tmp_path)[2]
    hosts.series[0].sources[0].delay_ns = delay
    (tmp_path / "hosts.json").write_bytes(encode(hosts))
    (tmp_path / "record_20260101_000000_metadata.json").write_text("{}")
    count, found = wrong_values(Record.open(tmp_path), "stat_totals", counters)
    assert (count, len(found)) == (2, wrong), found
