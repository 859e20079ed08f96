"""The page of an issue report in a real Chromium: headline, evidence, items, differences; no network requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.bundle.analysis import analyse, open_bundle_data
from rollbook.bundle.page import build
from tests.support.browser import Browser, browser
from tests.support.bundles import BundleCase, kernel_log, write_bundle

EVIL = "</script><img src=x onerror=alert(1)>\u202e"
LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus."


def write_faulty_report(directory: Path) -> Path:
    """Write a report of eight nodes: three have faults, one of them hostile text, and one was not reached."""
    directory.mkdir(exist_ok=True)
    messages = {
        "n3": [LOST],
        "n5": ["nfs: server filer1 not responding, still trying", "nfs: server filer1 OK"],
        "n6": [f"Out of memory: Killed process 4711 ({EVIL[:40]})"],
    }
    quiet = "usb 1-1: new high-speed USB device number 2"
    items = {
        f"n{at}": {
            "kernel-log": {"journalctl -k": kernel_log(quiet, *messages.get(f"n{at}", []), node=f"n{at}")},
            "os": {"/proc/version": "Linux\n", "/etc/os-release?x#y": EVIL},
        }
        for at in range(1, 8)
    }
    status = {"n2": {"processes": "timed-out"}, "n4": {"memory-errors": "denied", "gpu": "absent"}, "n8": {}}
    start = {"n[1-7]": {"thp": {"enabled": "madvise"}}, "n7": {"thp": {"enabled": "always"}}}
    case = BundleCase(
        about="",
        outcome="",
        items=items,
        status=status,
        start=start,
        cluster={"sinfo -R": "REASON USER TIMESTAMP NODELIST\n"},
    )
    return write_bundle(directory, case)


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    """One browser for all tests."""
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a report with faults."""
    path = write_faulty_report(tmp_path_factory.mktemp("report"))
    analyse(path)
    return path / "index.html"


@pytest.fixture
def page(window: Browser, report: Path) -> Iterator[Browser]:
    """The page after opening it; it must load nothing else and log no errors."""
    window.resize(1440, 900)
    window.prefer(dark=False)
    window.console(), window.requests()
    window.open(report)
    window.wait("document.querySelector('#findings details')")
    yield window
    assert window.console() == []
    assert {request for request in window.requests() if not request.startswith("data:")} == {report.as_uri()}


def test_document(tmp_path: Path) -> None:
    """The headline counts problems and nodes; all nodes, items and differing facts are listed."""
    path = write_faulty_report(tmp_path)
    found = build(open_bundle_data(path), analyse(path))
    assert found.verdict.level == "bad"
    assert found.verdict.headline.startswith("2 problems on 2 of 8 nodes: ")
    assert [node.name for node in found.nodes] == [f"n{at}" for at in range(1, 9)]
    assert found.items[:2] == ["kernel-log", "os"]
    assert [fact.field for fact in found.differing] == ["enabled"]
    assert [one.severity for one in found.findings] == sorted(
        (one.severity for one in found.findings), key="fail warn note".find
    )


@pytest.mark.needs("chromedriver", "chromium")
def test_findings_with_their_lines(page: Browser) -> None:
    """The first failures are open, with time, line, file and advice; a link opens the file."""
    text = page.script("return document.querySelector('#findings').innerText")
    assert "GPU 0000:3b:00 is no longer on the PCIe bus" in text
    assert LOST in text
    assert "nodes/n3/kernel-log/0:2" in text
    assert "2026-11-16 05:00:01 UTC" in text
    assert "What to do: Drain the node" in text
    assert page.script(
        "return [...document.querySelectorAll('.lines a')].some((a) => a.href.endsWith('/nodes/n3/kernel-log/0'))"
    )


@pytest.mark.needs("chromedriver", "chromium")
def test_cells_list_files_of_an_item(page: Browser) -> None:
    """A click on a cell lists the files of its item, with links inside the report."""
    page.click('[aria-label="n1, os: complete"]')
    links = page.script(
        "return [...document.querySelectorAll('.files a')].map((a) => [a.innerText, a.getAttribute('href')])"
    )
    assert links == [["/proc/version", "./nodes/n1/os/0"], ["/etc/os-release?x#y", "./nodes/n1/os/1"]]
    page.click('[aria-label="n2, processes: timed-out"]')
    assert "processes: timed-out" in page.script("return document.querySelector('.files').innerText")
    rows = page.script("return [...document.querySelectorAll('.matrix tbody tr')].map((row) => row.innerText)")
    assert len(rows) == 8
    assert "1 fail" in rows[2]


@pytest.mark.needs("chromedriver", "chromium")
def test_nodes_link_to_their_findings(page: Browser) -> None:
    """The number of findings of a node links to the first one, which opens."""
    page.click("#node-4 a")
    assert page.wait("document.querySelector(location.hash)?.open")
    assert "filer1" in page.script("return document.querySelector(location.hash).innerText")
    page.script("history.replaceState(null, '', location.pathname)")


@pytest.mark.needs("chromedriver", "chromium")
def test_differences_and_incomplete_rules(page: Browser) -> None:
    """The page lists differing facts, and rules that could not tell, with the reason."""
    assert "always" in page.script("return document.querySelector('#facts').innerText")
    page.click("#findings details.shared summary")
    assert "processes timed-out on n2" in page.script(
        "return document.querySelector('#findings details.shared').innerText"
    )


@pytest.mark.needs("chromedriver", "chromium")
@pytest.mark.parametrize("dark", [False, True])
def test_small_screen(page: Browser, *, dark: bool) -> None:
    """The page fits into a width of 390 pixels without horizontal scrolling."""
    page.prefer(dark=dark)
    page.wait(f"document.documentElement.dataset.theme === '{'dark' if dark else 'light'}'")
    page.resize(390, 844)
    page.wait("innerWidth <= 500")
    page.script("document.body.style.width = '390px'")
    assert page.script("return document.body.scrollWidth") <= 390


@pytest.mark.needs("chromedriver", "chromium")
def test_hostile_text_is_shown_as_text(page: Browser) -> None:
    """Markup in a log is shown as text."""
    assert page.script("return document.images.length") == 0
    assert "</script><img" in page.script("return document.querySelector('#findings').innerText")
