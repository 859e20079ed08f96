"""The results of benchmarks as rows with units."""

from __future__ import annotations

from rollbook.records.results import Result, results_of

FIO = {"jobs": [{"job": "seq", "group": 0, "error": 0, "write_bandwidth_bytes_per_second": 5, "write_clat_p99_ns": 7}]}


def test_jobs_and_phases() -> None:
    """Each job and metric is a row; a phase with the job's name is the phase of the row."""
    rows = results_of({"metrics": FIO, "phases": [{"name": "seq", "start_ns": 0, "end_ns": 1}]})
    assert rows == [
        Result("error", 0.0, "", "seq", "", "seq"),
        Result("write_bandwidth_bytes_per_second", 5.0, "B/s", "seq", "", "seq"),
        Result("write_clat_p99_ns", 7.0, "ns", "seq", "", "seq"),
    ]
    assert [row.is_main for row in rows] == [False, True, True]


def test_lists_objects_and_strings() -> None:
    """Lists have a value per epoch, members of objects have a dotted name, and strings have a text but no value."""
    metrics = {"au_percentage": [41.0, 65.0], "au_meet": "fail", "recall": {"mean": 0.9}, "odd": [[1]], "none": None}
    assert results_of({"metrics": metrics}) == [
        Result("au_percentage", 41.0, "%", phase="epoch 1"),
        Result("au_percentage", 65.0, "%", phase="epoch 2"),
        Result("au_meet", text="fail"),
        Result("recall.mean", 0.9),
    ]


def test_unknown_metadata_has_no_rows() -> None:
    """Metadata of other programs may contain anything."""
    for metadata in ({}, {"metrics": None}, {"metrics": {"jobs": ["x"]}}, {"metrics": {}, "phases": [1]}):
        assert results_of(metadata) == []
