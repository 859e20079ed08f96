"""The summary of a run: what moved, what the hosts saw, what was lost, and how the command ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rollbook.cli.summary import show_summary
from rollbook.records.record import Record
from rollbook.report.build import build
from rollbook.report.notebook import record_html
from rollbook.report.page import html
from rollbook.report.summary import summarise
from tests.report.test_states import statistics
from tests.support import report_records

GIB = 1 << 30


def record(path: Path, hosts: int = 1, samples: int = 100, **more: Any) -> Record:
    """A record of that many seconds: command 6 s, epoch 74 s, checkpoint 16 s, after."""
    run = report_records.run(path, hosts, samples, **more)
    run.metadata["runtime"] = 96.0
    return run


def printed(run: Record, tmp_path: Path) -> list[str]:
    """The lines of the terminal."""
    with (tmp_path / "printed").open("w") as file:
        show_summary(summarise(run), Console(file=file, width=80, highlight=False, markup=False))
    return (tmp_path / "printed").read_text().splitlines()


def test_means_are_weighted_by_the_length_of_phases(tmp_path: Path) -> None:
    """The whole run is its phases, each as long as it lasted; `after` does not count."""
    run = record(tmp_path, phase_statistics=statistics("disk_write", (0.0, 1e9, 2e9, 5e9)))
    [metric] = summarise(run).metrics
    assert metric.mean == pytest.approx((6 * 0 + 74 * 1e9 + 16 * 2e9) / 96)
    assert metric.peak == 4e9
    assert [(one.name, round(one.seconds)) for one in summarise(run).phases] == [("epoch 1", 74), ("checkpoint", 16)]


def test_a_phase_without_a_peak_is_left_out(tmp_path: Path) -> None:
    """A peak that was not stored is not zero."""
    rows = statistics("disk_write", (0.0, 1e9, 2e9, 5e9))
    rows[1]["max"] = None
    [metric] = summarise(record(tmp_path, phase_statistics=rows)).metrics
    assert metric.mean == pytest.approx(16 * 2e9 / 22)
    assert metric.peak == 4e9
    del rows[2:], rows[0]
    assert summarise(record(tmp_path, phase_statistics=rows)).metrics == []


def test_negligible_metrics_are_left_out(tmp_path: Path) -> None:
    """Nor is the latency of a handful of requests shown."""
    rows = [
        *statistics("disk_read", (1e5,)),
        *statistics("disk_reads", (2.0,)),
        *statistics("disk_read_latency", (9.0,)),
    ]
    assert summarise(record(tmp_path, phase_statistics=rows)).metrics == []


@pytest.mark.parametrize(
    ("share", "agrees", "text"),
    [
        (1.0, True, "agrees with the result"),
        (0.3, False, "30 % of the result"),
        (2.0, False, "100 % more than the result"),
    ],
)
def test_results_against_the_bytes_of_the_hosts(tmp_path: Path, share: float, agrees: bool, text: str) -> None:
    """The bytes that fio reports are compared with those that the disks counted."""
    mean = share * 10 * GIB / 96
    run = record(tmp_path, phase_statistics=statistics("disk_write", (mean, mean, mean)))
    run.metadata["metrics"] = {"jobs": [{"job": "a", "write_bytes": 10 * GIB}]}
    [seen] = summarise(run).seen
    assert (seen.agrees, seen.text.startswith(text)) == (agrees, True)
    assert seen.counted_bytes == pytest.approx(share * 10 * GIB)


def test_a_failure_comes_first(tmp_path: Path) -> None:
    """The first lines name the signal that killed the command, and show the last lines of its stderr."""
    run = record(tmp_path, code=137)
    run.metadata["command_output_files"] = [{"stdout": "stdout.log", "stderr": "stderr.log"}]
    (tmp_path / "stderr.log").write_text("\n".join(map(str, range(20))) + "\n\n")
    lines = printed(run, tmp_path)
    assert lines[0] == "FAILED    killed by SIGKILL, exit status 137 after 1 min 36 s"
    assert [line.split()[-1] for line in lines[1:6]] == ["15", "16", "17", "18", "19"]


def test_the_last_lines_of_a_command_at_a_terminal(tmp_path: Path) -> None:
    """stdout.log has both streams; the page shows its last lines, the summary does not: they are on the screen."""
    run = record(tmp_path, code=3)
    run.metadata["command_output_files"] = [{"stdout": "stdout.log", "stderr": "stderr.log"}]
    (tmp_path / "stdout.log").write_bytes(b"one\r\n\x1b[1;31mno disk\x1b[0m\r\n")
    (tmp_path / "stderr.log").write_bytes(b"")
    found = summarise(run).command
    assert found is not None
    assert (found.stderr, found.output) == ([], ["one", "no disk"])
    assert not any("no disk" in line for line in printed(run, tmp_path))


@pytest.mark.parametrize("name", ["", "lost.log", "a\0b", "linked.log", "pipe.log"])
def test_a_log_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    """A summary has no last lines if the log is missing, is not a regular file, or has a name that no file can have."""
    run = record(tmp_path, code=3)
    run.metadata["command_output_files"] = [{"stdout": name, "stderr": name}]
    (tmp_path / "linked.log").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "pipe.log")
    found = summarise(run).command
    assert found is not None
    assert (found.stderr, found.output) == ([], [])


def test_many_hosts_are_folded(tmp_path: Path) -> None:
    """A thousand hosts fit one screen: lost hosts by cause, load with the slowest host."""
    lost = {number: f"refused [ssh: connect to host node{number:04} port 22]" for number in range(1, 301)}
    rows = statistics("disk_write", (1e9, 1e9, 1e9), 700)
    lines = printed(record(tmp_path, 1000, 40, lost=lost, phase_statistics=rows), tmp_path)
    assert len(lines) <= 18
    assert "          unreachable  node[0001-0300]: refused [ssh: connect to host HOST port 22]" in lines
    assert any("Disk write" in line and "652 GiB/s" in line and "node1 0.50 × median" in line for line in lines)
    assert any(line.startswith("overhead  0.016 CPU s per host, at most 0.016") for line in lines)


DEGENERATE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no hosts": ({"hosts": 0}, ["hosts     none were recorded"]),
    "one host": ({}, ["hosts     1 of 1 host complete"]),
    "the only host lost": (
        {"lost": {1: "no route"}},
        ["hosts     0 of 1 host complete, 1 unreachable", "          unreachable  node1: no route"],
    ),
    "all lost": (
        {"hosts": 3, "lost": dict.fromkeys((1, 2, 3), "no route")},
        ["hosts     0 of 3 hosts complete, 3 unreachable", "          unreachable  node[1-3]: no route"],
    ),
    "no samples": ({"samples": 0}, ["overhead  0 CPU s, 0 B sent; no samples"]),
    "one sample": ({"samples": 1}, ["overhead  0.0004 CPU s, 900 B sent; 1 sample"]),
    "two samples": ({"samples": 2}, ["overhead  0.0008 CPU s, 1.76 KiB sent; 2 samples, 1 s apart"]),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_nearly_empty_records(tmp_path: Path, name: str) -> None:
    """The summary of records without hosts, samples or findings is correct; they have a page and a notebook view."""
    given, expected = DEGENERATE[name]
    run = record(tmp_path / "record", **given)
    lines = printed(run, tmp_path)
    start = lines.index(expected[0])
    assert lines[start : start + len(expected)] == expected
    text = record_html(run) + html(build(run, None))
    assert "0 of 0" not in "\n".join([text, *lines])


def test_a_short_run_has_no_share_of_the_cpus(tmp_path: Path) -> None:
    """Starting dominates the cost of a short run: CPU seconds, not a percentage."""
    assert "%" not in next(line for line in printed(record(tmp_path / "a", 1, 10), tmp_path) if "overhead" in line)
    assert "%" in next(line for line in printed(record(tmp_path / "b", 1, 100), tmp_path) if "overhead" in line)
