"""The page in a real Chromium in each of its states: what a person sees of a single host, a failure, a short run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rollbook
from rollbook.records.record import Gap, Loss, Record, RecordHosts, SourceLoss
from rollbook.report.build import build
from rollbook.report.page import html
from rollbook.sql.grids import open_tables
from rollbook.testing.journals import Script
from tests.report.test_page import tables
from tests.support import report_records
from tests.support.browser import Browser, browser

pytestmark = pytest.mark.needs("chromedriver", "chromium")

DRAWN = "document.querySelector('.uplot canvas')"
REFUSED = "connection refused; is sshd running? [ssh: connect to host {0} port 22: Connection refused]"
INKED = """
const canvas = document.querySelector(arguments[0]);
const { data } = canvas.getContext("2d").getImageData(100, 0, canvas.width - 120, canvas.height - 40);
let blue = 0;
for (let at = 0; at < data.length; at += 4) blue += data[at + 3] > 200 && data[at + 2] > data[at] + 60;
return blue;
"""
GRID_LINES = """
const canvas = document.querySelector(arguments[0]);
const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
let lines = 0, before = false;
for (let y = 0; y < height; y++) {
  let inked = 0;
  for (let x = 80; x < width - 30; x += 5) inked += data[4 * (y * width + x) + 3] > 0;
  const full = inked > 0.9 * (width - 110) / 5;
  lines += full && !before;
  before = full;
}
return lines;
"""
# A chart out of sight does not follow the pointer; which ones are in sight is known after a frame.
IN_VIEW = """
const done = arguments[0];
document.querySelector("#chart-CHART").scrollIntoView({ block: "center" });
requestAnimationFrame(() => requestAnimationFrame(() => done(true)));
"""
# Draws all charts again, and gives for each of them left edge, right edge and text of the labels of its time axis.
TIME_LABELS = r"""
const done = arguments[0], labels = new Map(), proto = CanvasRenderingContext2D.prototype, draw = proto.fillText;
proto.fillText = function (text, x, ...rest) {
  const half = this.measureText(text).width / 2;
  if (!labels.has(this)) labels.set(this, []);
  if (/^\d\d:\d\d/.test(text)) labels.get(this).push([x - half, x + half, text]);
  return draw.call(this, text, x, ...rest);
};
document.querySelector('[aria-label="Light or dark"]').click();
requestAnimationFrame(() => requestAnimationFrame(() => { proto.fillText = draw; done([...labels.values()]); }));
"""
STYLE = "return getComputedStyle(document.querySelector(arguments[0])).getPropertyValue(arguments[1])"
FIO = {"jobs": [{"job": "seq", "error": 0, "write_bandwidth_bytes_per_second": 1 << 30, "write_clat_p99_ns": 188_000}]}


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    """One browser for all tests."""
    with browser() as found:
        yield found


def shown(window: Browser, path: Path, run: Record, views: Any, *, width: int = 1440, address: str = "") -> Browser:
    """Open the page of a record."""
    page = path / "report.html"
    page.write_text(html(build(run, views)))
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    window.call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})
    window.call("POST", "/url", {"url": "about:blank"})
    window.call("POST", "/url", {"url": page.as_uri() + address})
    if views is not None:
        window.wait(DRAWN)
    return window


def text(page: Browser, css: str) -> str:
    """The text of an element; empty if there is none."""
    found: str = page.script("return document.querySelector(arguments[0])?.innerText ?? ''", css)
    return found


def statistics(metric: str, means: tuple[float, ...], hosts: int = 1) -> list[dict[str, Any]]:
    """Rows of statistics, one for each phase."""
    return [
        {"number": number, "phase": "", "metric": metric, "mean": mean, "p50": mean, "p95": mean, "max": 2 * mean}
        | {"hosts": hosts, "hosts_p50": mean, "hosts_min": mean / 2, "hosts_max": mean, "slowest_host": "node1"}
        for number, mean in enumerate(means)
    ]


def test_a_single_host(window: Browser, tmp_path: Path) -> None:
    """Results and load are at the top; there is no filter, no order, no heat map and no legend of peers."""
    rows = [*statistics("cpu_busy", (50.0, 51.0, 50.0)), *statistics("disk_write", (1e6, 1e9, 2e9))]
    run = report_records.run(tmp_path, 1, 60, phase_statistics=rows)
    run.metadata["metrics"] = FIO
    views = tables(1, 60)
    page = shown(window, tmp_path, report_records.check(run, views), views)
    assert text(page, "#results").split("\n")[0] == "Results"
    assert "write bandwidth\t1 GiB/s" in text(page, "#results")
    assert "write clat p99\t188 us" in text(page, "#results")
    assert "error" not in text(page, "#results")
    assert "Disk write" in text(page, "#load")
    top = page.script("return document.querySelector('#load').getBoundingClientRect().bottom")
    assert top < 900, "seen without scrolling"
    assert page.script("return document.querySelectorAll('#filter, .heat, .tools select').length") == 0
    assert text(page, ".chart .key").strip() == "every sample"
    assert page.script(GRID_LINES, ".chart .uplot canvas") >= 3, "an axis with one or two values says little"
    assert page.script("return document.querySelector('#phase-metric').value") == "Disk write", "what changed most"
    assert "95 % of the samples" in text(page, "#phases")
    assert "Slowest host" not in text(page, "#phases")


DEVICES = {
    "disk_reads": ("Disk read IOPS", "600/s"),
    "disk_writes": ("Disk write IOPS", "200/s"),
    "disk_queue": ("Disk queue depth", "16 requests"),
    "disk_request_size": ("Disk request size", "4 KiB"),
    "gpu_power": ("GPU power", "612 W"),
    "gpu_clock": ("GPU clock", "1490 MHz"),
    "gpu_temperature": ("GPU temperature", "55 °C"),
    "gpu_throttled": ("GPU throttled", "50 %"),
}
"""By metric: the title of its chart, and the value under the pointer."""


def beat_of_devices(beat: int) -> dict[str, dict[str, str]]:
    """What a kernel and nvidia-smi print: a disk with 600 reads and 200 writes of 4 KiB a second, two GPUs."""
    disk = f"8 0 sda {600 * beat} 0 {4800 * beat} 0 {200 * beat} 0 {1600 * beat} 0 16 {1000 * beat} {16_000 * beat}\n"
    gpus = "0, 97, 45, 70656, 400, 55, 1980, 2619, 0x0000000000000004\n1, 0, 0, 4, 212, 33, 1000, 2619, 0x0\n"
    return {
        "stat": {"/proc/stat": f"cpu {50 * beat} 0 0 {150 * beat} 0 0 0 0 0 0\n"},
        "diskstats": {"/proc/diskstats": disk},
        "gpu": {"nvidia-smi -lms 1000": gpus},
    }


def test_requests_of_disks_and_the_state_of_gpus(window: Browser, tmp_path: Path) -> None:
    """From the text that a host sends to the readout under the pointer and the table at the top."""
    path = tmp_path / "test" / "20261115_120000"
    start = time.time_ns() // 10**9 * 10**9 - 20 * 10**9
    script = Script(path / "raw", ["node1"], tuple(beat_of_devices(0)), started_ns=start)
    script.connect()
    for beat in range(20):
        script.sample(start + beat * 10**9, beat_of_devices(beat))
    script.close()
    run = rollbook.recover(path)
    with open_tables(run) as views:
        page = shown(window, tmp_path, run, views)
    read = {}
    for name in DEVICES:
        page.wait(f"document.querySelector('#chart-{name} .uplot')")
        page.later(IN_VIEW.replace("CHART", name))
        page.hover(f"#chart-{name} .lines", (400, 50))
        title, at, value = filter(None, text(page, f"#chart-{name} header").split("\n"))
        assert at.endswith(" UTC")
        read[name] = title, value
    assert read == DEVICES
    load = text(page, "#load")
    assert [
        line for line in ("Disk read IOPS", "Disk write IOPS", "GPU power", "GPU throttled") if line not in load
    ] == []


def test_a_failed_command(window: Browser, tmp_path: Path) -> None:
    """The headline reports it, followed by the last lines of its stderr."""
    run = report_records.run(tmp_path, 2, 60, code=3)
    run.metadata["command_output_files"] = [{"stdout": "stdout.log", "stderr": "stderr.log"}]
    (tmp_path / "stderr.log").write_bytes(b"start\n" * 20 + b"Traceback\n\x1b]0;x\x1b[1;31mValueError: <b>no</b>\n")
    page = shown(window, tmp_path, run, tables(2, 60))
    assert text(page, "#verdict") == "Problems: the command failed with exit status 3"
    assert text(page, ".stderr").split("\n")[-2:] == ["Traceback", "?]0;xValueError: <b>no</b>"]


def test_a_run_of_two_samples(window: Browser, tmp_path: Path) -> None:
    """Each sample is a point that can be seen, and labels of the time axis do not overlap."""
    page = shown(window, tmp_path, report_records.run(tmp_path, 1, 2), tables(1, 2))
    assert page.script(INKED, ".chart .uplot canvas") > 10
    charts = [sorted({tuple(label) for label in labels}) for labels in page.later(TIME_LABELS) if labels]
    assert all(len(labels) > 1 for labels in charts)
    overlaps = [(one, other) for labels in charts for one, other in pairwise(labels) if one[1] > other[0]]
    assert (len(charts) > 5, overlaps) == (True, [])


def test_a_run_without_hosts(window: Browser, tmp_path: Path) -> None:
    """The headline says that no hosts were recorded, and there are no empty tables."""
    page = shown(window, tmp_path, report_records.run(tmp_path, 0, 60), None)
    assert text(page, "#verdict") == "No hosts were recorded"
    assert "none recorded" in text(page, ".tiles")
    assert page.script("return document.querySelectorAll('#hosts, #facts, .keys dt').length") == 0


def test_hosts_with_the_same_failure(window: Browser, tmp_path: Path) -> None:
    """The headline has the cause without ssh's output; host names are never broken."""
    lost = {number: REFUSED.format(f"node{number:02}") for number in (9, 10, 11, 12)}
    run = report_records.run(tmp_path, 16, 60, lost=lost)
    page = shown(window, tmp_path, run, tables(16, 60, lost=lost), width=1400)
    assert text(page, "#verdict") == "Worth a look: 4 of 16 hosts failed: connection refused on node[09-12]"
    heights = page.script(
        "return [...document.querySelectorAll('#hosts tbody th button')].map((e) => e.getClientRects().length)"
    )
    assert set(heights) == {1}


def test_a_snapshot_that_was_not_checked(window: Browser, tmp_path: Path) -> None:
    """It is called neither good nor unchanged."""
    run = report_records.run(tmp_path, 3, 60)
    page = shown(window, tmp_path, run, None)
    assert text(page, "#verdict") == "Not checked: 3 hosts complete"
    assert "No problems" not in text(page, "main")
    assert "Facts were read once" in text(page, "#facts")


def test_losses_of_sources(window: Browser, tmp_path: Path) -> None:
    """A source that was lost for a while is on the timeline and with its host."""
    run = report_records.run(tmp_path, 3, 600)
    at = report_records.START_NS
    gap = Gap(at + 100 * 10**9, at + 160 * 10**9, "timed-out")
    loss = SourceLoss(
        source="nfs",
        due=600,
        stored=540,
        losses=[Loss("timed-out", 60, gap.start_ns, gap.end_ns)],
        gaps=[gap],
    )
    series = [msgspec.structs.replace(one, sources=[loss] if one.name == "node2" else []) for one in run.hosts.series]
    hosts: RecordHosts = msgspec.structs.replace(run.hosts, series=series)
    page = shown(window, tmp_path, Record(run.path, run.metadata, hosts), tables(3, 600), address="#host=node2")
    assert "node2: nfs: timed-out, 12:01:40–12:02:40 UTC" in text(page, ".moments")
    assert "nfs: 60 of 600 samples lost (timed-out)" in text(page, ".host-findings")


def test_the_address(window: Browser, tmp_path: Path) -> None:
    """Zoom, host and metric are in the address, and an address shows them again."""
    run, views = report_records.run(tmp_path, 8, 600), tables(8, 600)
    page = shown(window, tmp_path, run, views, address="#metric=net_rx&host=node5&from=100&to=200")
    assert text(page, ".panel h2") == "node5"
    assert "1 min 40 s" in text(page, ".timeline .range")
    top = page.script("return document.querySelector('#chart-net_rx').getBoundingClientRect().top")
    assert 0 < top < 900
    page.press("0")
    page.press("j")
    page.wait("location.hash === '#metric=net_rx&host=node6'")


def test_opening_a_host_does_not_move_the_page(window: Browser, tmp_path: Path) -> None:
    """What was under the pointer stays there."""
    page = shown(window, tmp_path, report_records.run(tmp_path, 8, 60), tables(8, 60))
    place = "return document.querySelector('#chart-mem_available').getBoundingClientRect().toJSON()"
    page.wait("document.querySelectorAll('.chart').length === document.querySelectorAll('.chart .uplot').length")
    page.script("document.querySelector('#chart-mem_available').scrollIntoView()")
    before = page.script(place)
    page.press("j")
    page.wait("!document.querySelector('.panel').hidden")
    assert page.script(place) == before


@pytest.mark.parametrize("hosts", [1, 16])
def test_a_phone(window: Browser, tmp_path: Path, hosts: int) -> None:
    """At 390 pixels nothing is wider than the screen, and no text is smaller than 11 pixels."""
    lost = {2: REFUSED.format("node02")} if hosts > 1 else {}
    rows = statistics("disk_write", (1e6, 1e9, 2e9), hosts)
    run = report_records.run(tmp_path, hosts, 60, lost=lost, phase_statistics=rows)
    views = tables(hosts, 60, lost=lost, slow=((3, 9.0, 0.1, 0.5),))
    page = shown(window, tmp_path, report_records.check(run, views), views, width=390)
    assert page.script("return [document.documentElement.scrollWidth, innerWidth]") == [390, 390]
    sizes = page.script(
        "return [...document.querySelectorAll('main *')].filter((e) => e.innerText)"
        ".map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 11
    if hosts > 1:
        assert page.script(STYLE, "#hosts td:nth-child(3)", "overflow-wrap") == "break-word", "reasons break at blanks"
        assert page.script(STYLE, "#headlines li .link", "vertical-align") == "top", "bullets are at the first line"
        opacity = [int(page.script(STYLE, ":root", name).strip()[-2:], 16) for name in ("--band", "--band-inner")]
        assert opacity[1] > 3 * opacity[0], "all hosts and most of them can be told apart"
