"""The page in a real Chromium, opened from a file: drawn, clicked, zoomed, filtered, and silent to the outside."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rollbook.records.findings import Finding, RuleResult, Silenced
from rollbook.report.build import build
from rollbook.report.page import html
from rollbook.report.summary import summarise
from tests.report.test_page import EVIL, hostile, tables
from tests.support import report_records
from tests.support.browser import Browser, browser

pytestmark = pytest.mark.needs("chromedriver", "chromium")

HEAT = "#chart-disk_write_latency .heat"
DRAWN = f"document.querySelector('{HEAT} canvas') && document.querySelector('.uplot canvas')"
ESCAPE = "\ue00c"
ENTER = "\ue007"
DOWN, RIGHT = "\ue015", "\ue014"


COLOURS = """
const canvas = document.querySelector(arguments[0]);
const { data } = canvas.getContext("2d").getImageData(100, 0, canvas.width - 140, canvas.height);
const found = new Set();
for (let at = 0; at < data.length; at += 4) found.add(data.slice(at, at + 3).join());
return found.size;
"""
CONTRAST = """
const probe = document.body.appendChild(document.createElement("i"));
const lightness = [...arguments].map((name) => {
  probe.style.color = `var(--${name})`;
  const parts = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255);
  const [red, green, blue] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
});
probe.remove();
return (Math.max(...lightness) + 0.05) / (Math.min(...lightness) + 0.05);
"""


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    """One browser for all tests."""
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def straggler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run with one slow host and one that was gone for a while."""
    path = tmp_path_factory.mktemp("straggler")
    gaps, lost = ((5, 300, 380),), {12: "no route to host"}
    run = report_records.run(path, 16, 600, gaps=gaps, lost=lost)
    views = tables(16, 600, slow=((7, 9.0, 0.2, 0.5),), gaps=gaps, lost=lost)
    data = build(report_records.check(run, views), views)
    page = path / "report.html"
    page.write_text(html(data))
    return page


@pytest.fixture
def page(window: Browser, straggler: Path) -> Iterator[Browser]:
    """The page, freshly opened; at the end it must have logged nothing and requested nothing."""
    window.resize(1440, 900)
    window.prefer(dark=False)
    window.console(), window.requests()
    window.open(straggler)
    window.wait(DRAWN)
    yield window
    assert window.console() == []
    assert {request for request in window.requests() if not request.startswith("data:")} == {straggler.as_uri()}


def text(page: Browser, css: str) -> str:
    """The text of an element."""
    found: str = page.script("return document.querySelector(arguments[0]).textContent", css)
    return found


def test_first_screen(page: Browser) -> None:
    """Verdict, tiles and the outlier in words are there without scrolling."""
    bottom = page.script("return document.querySelector('#headlines li').getBoundingClientRect().bottom")
    assert bottom < 900
    assert text(page, "#verdict").startswith("Worth a look")
    assert "node07 nvme1n1 disk write latency" in text(page, "#headlines li")
    assert "14 of 16 complete" in text(page, ".tiles")
    assert page.script("return document.querySelectorAll('#charts .chart').length") == 6


def test_drawn_with_many_colours(page: Browser) -> None:
    """The heat map is painted, not blank."""
    colours = page.script(COLOURS, f"{HEAT} canvas")
    assert colours > 30


def test_zoom_is_shared_and_undone(page: Browser) -> None:
    """A drag over one chart changes the time of all; a double click shows everything again."""
    before = text(page, ".timeline .range")
    picture = "document.querySelector('#chart-disk_read .heat canvas').toDataURL()"
    drawn = page.script(f"return {picture}")
    page.drag(HEAT, (250, 40), (400, 40))
    assert text(page, ".timeline .range") != before
    page.wait(f"{picture} !== arguments[0]".replace("arguments[0]", repr(drawn)))
    page.press("0")
    page.script("document.querySelector('.heat').dispatchEvent(new PointerEvent('pointerleave'))")
    assert text(page, ".timeline .range") == before
    assert page.script(f"return {picture}") == drawn


def test_cursor_is_shared(page: Browser) -> None:
    """The pointer over one chart reads out the same moment in another, and the host under it."""
    page.hover(HEAT, (300, 95))
    shown, other = (text(page, f"#chart-{name} .readout") for name in ("disk_write_latency", "disk_read"))
    assert "node07" in shown
    assert shown[:12] == other[:12]
    assert "UTC" in shown
    assert page.script("return [...document.querySelectorAll('.cursor')].filter((c) => !c.hidden).length") >= 4


def test_host_on_click_and_by_keys(page: Browser) -> None:
    """A click on a row opens its host; j and k select the next and previous one; Escape closes it."""
    page.drag(HEAT, (300, 95), (300, 95))
    page.wait("document.querySelector('.panel h2')")
    assert text(page, ".panel h2") == "node07"
    page.wait("document.querySelectorAll('.panel .uplot').length > 10")
    assert "nvme1n1 disk write latency" in text(page, ".panel .host-findings")
    assert "nvme3n1" in text(page, ".panel .minis")
    page.press("j")
    assert text(page, ".panel h2") == "node08"
    page.press("k")
    page.press("k")
    assert text(page, ".panel h2") == "node06"
    page.press(ESCAPE)
    assert page.script("return document.querySelector('.panel').hidden")


POINT = """
const [kind, x, button] = arguments;
const area = document.querySelector(".timeline .plot");
const box = area.getBoundingClientRect();
area.setPointerCapture = () => {};
const [clientX, clientY] = [box.left + x, box.top + 36];
area.dispatchEvent(new PointerEvent(kind, { clientX, clientY, button, pointerId: 1, bubbles: true }));
"""
PLACE_OF = "const width = document.querySelector('.timeline .plot').clientWidth - 116; return 96 + width * arguments[0]"


def test_a_click_on_the_timeline_is_not_a_drag(page: Browser) -> None:
    """A click that moves slightly opens the mark; other buttons and a cancelled pointer drag nothing."""
    gap = page.script(PLACE_OF, 340 / 600)
    before = text(page, ".timeline .range")

    def quiet() -> str:
        page.script(POINT, "pointerleave", gap, 0)
        return text(page, ".timeline .range")

    for kinds in (
        (("pointerdown", 2), ("pointermove", 0)),
        (("pointerdown", 0), ("pointercancel", 0), ("pointermove", 0)),
    ):
        for at, (kind, button) in enumerate(kinds):
            page.script(POINT, kind, gap + 60 * at, button)
        assert quiet() == before
    page.script(POINT, "pointerdown", gap, 0)
    page.script(POINT, "pointermove", gap + 2, 0)
    page.script(POINT, "pointerup", gap + 2, 0)
    page.wait("document.querySelector('.panel h2')")
    assert text(page, ".panel h2") == "node05"
    assert quiet() == "12:04:20–12:07:00 UTC · 2 min 40 s"


def test_the_host_chosen_last_is_drawn_once(page: Browser) -> None:
    """Even if hosts were selected and closed repeatedly while charts were still being drawn."""
    for key in ("j", "j", "k", "j", "k"):
        page.press(key)
    drawn = "document.querySelectorAll('.panel .lines').length"
    page.wait(f"{drawn} >= 10")
    page.script("document.querySelector('[aria-label=\"Light or dark\"]').click()")
    page.script("document.querySelector('[aria-label=\"Light or dark\"]').click()")
    page.wait(f"{drawn} >= 10")
    titles = page.later(
        "const done = arguments[0]; setTimeout(() => "
        "done([...document.querySelectorAll('.panel h4')].map((e) => e.textContent)), 500)"
    )
    assert len(titles) == len(set(titles))


def test_outlier_leads_to_its_place(page: Browser) -> None:
    """A click on an outlier zooms to its time and opens its host."""
    page.click("#headlines .warn .link")
    page.wait("document.querySelector('.panel h2')")
    assert text(page, ".panel h2") == "node07"
    assert not page.script("return document.querySelector('.timeline .quiet').hidden")


def test_filter_by_name_and_status(page: Browser) -> None:
    """Maps, bands and the table follow the filter."""
    height = "document.querySelector('#chart-disk_read .heat canvas').clientHeight"
    before = page.script(f"return {height}")
    page.press("/")
    page.type("#filter", "node1*")
    page.wait(f"{height} < {before}")
    assert text(page, "output") == "7 of 16 hosts"
    assert page.script("return document.querySelectorAll('#hosts tbody tr').length") == 7
    page.script("const f = document.querySelector('#filter'); f.value = ''; f.dispatchEvent(new Event('input'))")
    page.script("document.activeElement.blur()")
    page.click(".statuses .partial")
    assert text(page, "output") == "1 of 16 hosts"
    assert text(page, "#hosts tbody th") == "node05"


def test_hosts_that_failed_come_first_with_their_reason(page: Browser) -> None:
    """The table begins with what is wrong."""
    rows = page.script("return [...document.querySelectorAll('#hosts tbody tr')].slice(0, 2).map((r) => r.textContent)")
    assert rows[0].startswith("node12unreachableno route to host")
    assert rows[1].startswith("node05partial")


def test_keys_in_a_heat_map(page: Browser) -> None:
    """Arrow keys move the cursor over hosts and time, Enter opens the host."""
    page.script("document.querySelector(arguments[0]).focus()", HEAT)
    for key in (DOWN, DOWN, RIGHT):
        page.press(key)
    assert "node02" in text(page, "#chart-disk_write_latency .readout")
    page.press(ENTER)
    page.wait("document.querySelector('.panel h2')")
    assert text(page, ".panel h2") == "node02"


def test_everything_has_an_accessible_name(page: Browser) -> None:
    """Every focusable element and every picture has a label."""
    page.click("#headlines .warn .link")
    page.wait("document.querySelectorAll('.panel .uplot').length > 4")
    names = page.script(
        "return [...document.querySelectorAll('button, input, select, a, [tabindex=\"0\"], [role]')].map((e) => "
        "[e.outerHTML.slice(0, 80), (e.getAttribute('aria-label') || e.textContent || e.title || '').trim()])"
    )
    assert len(names) > 50
    assert [shown for shown, name in names if not name] == []


PAIRS = [
    *((ink, ground) for ink in ("ink", "muted", "link", "accent") for ground in ("surface", "ground")),
    *((name, f"{name}-soft") for name in ("good", "warn", "bad")),
    *((name, "surface") for name in ("good", "warn", "bad")),
    *(("ink", f"{name}-soft") for name in ("good", "warn", "bad")),
    *(("ink", f"lane-{name}") for name in ("command", "phase")),
]


@pytest.mark.parametrize("dark", [False, True])
def test_contrast(page: Browser, *, dark: bool) -> None:
    """Text is readable in the light and the dark theme: at least 4.5 to 1 (WCAG 2.2, 1.4.3)."""
    page.prefer(dark=dark)
    page.wait(f"document.documentElement.dataset.theme === '{'dark' if dark else 'light'}'")
    poor = {pair: ratio for pair in PAIRS if (ratio := page.script(CONTRAST, *pair)) < 4.5}
    assert poor == {}


def test_small_screen_has_no_sideways_scrolling(page: Browser) -> None:
    """A narrow window stacks everything in one column."""
    page.resize(500, 800)
    page.wait("innerWidth < 600 && document.documentElement.scrollWidth <= innerWidth")  # charts follow in time


def test_printing(page: Browser) -> None:
    """The page can be printed, even in dark mode, with all charts, including those never scrolled into view."""
    dark = "document.documentElement.dataset.theme === 'dark'"
    page.prefer(dark=True)
    page.wait(dark)
    page.wait("document.querySelectorAll('.chart').length === document.querySelectorAll('.chart .uplot').length")
    assert page.pdf().startswith(b"%PDF")
    page.wait(dark)
    pictures = "[...document.querySelectorAll('.timeline canvas, .ramp')].map((one) => one.toDataURL())"
    before, printed, after = page.script(
        f"const before = {pictures}; dispatchEvent(new Event('beforeprint')); const printed = {pictures};"
        f"dispatchEvent(new Event('afterprint')); return [before, printed, {pictures}];"
    )
    assert all(one != other for one, other in zip(before, printed, strict=True)), "legends are light with their maps"
    assert before == after


def test_phases(window: Browser, tmp_path: Path) -> None:
    """A row for each sampled phase; its name zooms to the phase, its slowest host opens that host."""
    names = ("mean", "p50", "p95", "max", "hosts_p50")

    def row(phase: str, metric: str, first: float, slowest: str | None = None) -> dict[str, Any]:
        values = {name: first * (at + 1) for at, name in enumerate(names)}
        return {
            "number": {"command": 0, "checkpoint": 2}[phase],
            "phase": phase,
            "metric": metric,
            **values,
            "slowest_host": slowest,
        }

    rows = [
        row("command", "cpu_busy", 1),
        row("command", "disk_read", 2048),
        row("checkpoint", "cpu_busy", 10),
        row("checkpoint", "disk_read", 4096, "node3"),
    ]
    run = report_records.run(tmp_path, 8, 240, phase_statistics=rows)
    path = tmp_path / "report.html"
    path.write_text(html(build(run, tables(8, 240))))
    window.resize(1440, 900)
    window.open(path)
    window.wait(DRAWN)
    cells = (
        "return [...document.querySelectorAll('#phases tbody tr')].map((e) => [...e.cells].map((c) => c.textContent))"
    )
    busy = window.script(cells)
    assert [line[0] for line in busy] == ["command", "checkpoint"]
    assert busy[1][1:] == ["12:03:12", "38 s", "10 %", "20 %", "30 %", "40 %", "50 %", ""]
    chosen = (
        "const e = document.querySelector('#phase-metric'); e.value = 'Disk read'; e.dispatchEvent(new Event('change'))"
    )
    window.script(chosen)
    assert window.script(cells)[1][3:] == ["4 KiB/s", "8 KiB/s", "12 KiB/s", "16 KiB/s", "20 KiB/s", "node3"]
    window.click("#phases tbody tr:nth-child(2) .link")
    assert text(window, ".timeline .range").startswith("12:03:12–12:03:50 UTC")
    window.click("#phases tbody tr:nth-child(2) td:last-child .link")
    assert text(window, ".panel h2") == "node3"
    assert window.console() == []


def test_findings_are_at_the_top_and_lead_to_their_evidence(window: Browser, tmp_path: Path) -> None:
    """A line for each finding next to the outliers; a finding with a time is also on the timeline."""
    start = report_records.START_NS + 60 * 10**9
    when = {"start_ns": start, "end_ns": start + 30 * 10**9, "resets": 4}
    late = Finding(message="the link was reset", hosts=["node2"], severity="fail", evidence=when, advice="Look at it.")
    silenced = Finding(
        message="known", hosts=["node2"], severity="fail", silenced=Silenced("planned", date(2030, 1, 1))
    )
    results = [RuleResult(id="odd", outcome="fail", findings=[late, silenced])]
    views, path = tables(8, 240, slow=((3, 9.0, 0.1, 0.6),)), tmp_path / "report.html"
    run = report_records.check(report_records.run(tmp_path, 8, 240), views, *results)
    path.write_text(html(build(run, views)))
    window.resize(1440, 900)
    window.open(path)
    window.wait(DRAWN)
    assert summarise(run).counts == {"fail": 1, "warn": 1}, "the terminal, the tile and the section agree"
    assert "1 fail 1 warn" in text(window, ".tiles")
    assert text(window, "#findings p").startswith("2 findings: 1 fail, 1 warn. 2 rules: 2 with findings")
    assert text(window, "#headlines li") == "fail the link was reset odd"
    assert text(window, "#headlines .warn").startswith("warn node3 ")
    assert text(window, "#verdict") == "Problems: the link was reset (odd)"
    assert (
        window.script("return [...document.querySelectorAll('#headlines li')].some((e) => /known/.test(e.textContent))")
        is False
    )
    window.click("#headlines .fail .link")
    assert window.script("return document.querySelector('#finding-0').open")
    shown = text(window, "#finding-0")
    assert "12:01:00–12:01:30 UTC" in shown
    assert "resets4" in shown
    assert "start_ns" not in shown
    assert "Look at it." in shown
    window.click("#finding-0 p:nth-of-type(1) .link")
    assert "fail the link was reset" in text(window, ".panel .host-findings")
    assert "silenced known" in text(window, ".panel .host-findings")
    window.click("#finding-0 p:nth-of-type(2) .link")
    assert not window.script("return document.querySelector('.timeline .quiet').hidden")
    assert "the link was reset, 12:01:00–12:01:30 UTC" in text(window, ".moments")
    assert window.console() == []


def test_text_of_a_hostile_host_stays_text(window: Browser, tmp_path: Path) -> None:
    """Markup in names, mounts and the kernel's banner is shown and never run."""
    path = tmp_path / "report.html"
    path.write_text(html(hostile(tmp_path)))
    window.console(), window.requests()
    window.open(path)
    window.wait(DRAWN)
    window.click("#headlines li:nth-child(2) .link")
    window.wait("document.querySelectorAll('.panel .uplot').length > 4")
    shown = (
        EVIL.replace("\u202e", "\ufffd")
        .replace("\u2066", "\ufffd")
        .replace("\x1b", "\ufffd")
        .replace("\u2028", "\ufffd")
    )
    assert text(window, ".panel h2") == shown
    assert window.script("return document.querySelector('.panel').getAttribute('aria-label')") == f"Host {shown}"
    window.script(POINT, "pointermove", window.script(PLACE_OF, 205 / 240), 0)
    assert window.script("return document.querySelector('.timeline .plot').title").startswith(f"{shown}: ")
    assert f"Linux version 6.1.0{shown}" in text(window, ".panel dl")
    assert f"/scratch{shown}: nfs4" in text(window, ".panel dl")
    assert shown in text(window, "#findings .finding")
    assert window.script("return document.scripts.length") == 2
    assert window.console() == []
    assert {request for request in window.requests() if not request.startswith("data:")} == {path.as_uri()}


def test_a_page_without_series(window: Browser, tmp_path: Path) -> None:
    """A snapshot's page has hosts and facts and no charts."""
    path = tmp_path / "report.html"
    path.write_text(html(build(report_records.run(tmp_path, 3, 60), None)))
    window.open(path)
    assert window.wait("document.querySelectorAll('#hosts tbody tr').length") == 3
    assert window.script("return document.querySelectorAll('.chart, .timeline').length") == 0
    assert text(window, "#headlines p").startswith("This record has not been checked")
    assert window.script("return document.querySelector('#findings p').className") == "small", "unchecked is not calm"
    assert window.console() == []
