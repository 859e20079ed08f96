"""Results directories that the tool wrote: verdicts per run and per group, also with one fault at a time."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import rollbook
from rollbook.api.checking import check_results
from rollbook.cli import cli
from rollbook.errors import UsageError
from rollbook.mlperf.submission import Submission
from rollbook.mlpstorage import BenchmarkVerifier, get_runs_files
from tests.mlperf.trees import CLUSTER, START, SYSTEM, checkpointing, training, vector_database, write_run

Break = Callable[[list[Path]], object]


def judge(path: Path) -> Submission:
    """The verdicts on a results directory."""
    found = check_results(path)
    assert found is not None
    return found


def metadata_of(path: Path) -> Path:
    """The metadata file of a run."""
    (found,) = path.glob("*_metadata.json")
    return found


def change(path: Path, **changes: Any) -> int:
    """Change the metadata of a run."""
    data = json.loads(metadata_of(path).read_bytes())
    return metadata_of(path).write_text(json.dumps({**data, **changes}))


def summarise(path: Path, **changes: Any) -> int:
    """Change DLIO's summary of a run."""
    data = json.loads((path / "summary.json").read_bytes())
    return (path / "summary.json").write_text(json.dumps({**data, **changes}))


def test_a_submission(tmp_path: Path) -> None:
    """Three groups, all CLOSED; the same for a part of the tree, and for a single run."""
    paths = training(tmp_path) + checkpointing(tmp_path) + vector_database(tmp_path)
    found = judge(tmp_path)
    assert [(group.name.rpartition("sys1/")[2], group.verdict, len(group.runs)) for group in found.groups] == [
        ("checkpointing/llama3-70b", "CLOSED", 2),
        ("training/unet3d", "CLOSED", 7),
        ("vector_database/milvus/DISKANN", "CLOSED", 5),
    ], [group.text for group in found.groups]
    assert found.verdicts == {"CLOSED": 3}
    assert found.is_judged
    (model,) = judge(tmp_path / SYSTEM / "training" / "unet3d").groups
    assert (model.verdict, len(model.runs)) == ("CLOSED", 7)
    (single,) = judge(paths[1]).groups
    assert (single.verdict, single.rules, len(single.runs)) == ("CLOSED", [], 1)
    assert any(rule.values for rule in single.runs[0].rules)


def other_model(paths: list[Path]) -> None:
    """One run of another model in the same directory."""
    change(paths[3], model="retinanet")


TRAINING: dict[str, tuple[Break, str | None, str]] = {
    "a run is missing": (lambda p: shutil.rmtree(p[6]), "INVALID", "5 runs, 6 required"),
    "a run too many": (
        lambda p: write_run(p[0].parents[7], "training", "unet3d/run", START + dt.timedelta(seconds=12000)),
        "INVALID",
        "7 runs, 6 required",
    ),
    "a pause": (lambda p: p[6].rename(p[6].with_name("20260801_160000")), "INVALID", "started"),
    "no data generation": (lambda p: shutil.rmtree(p[0]), "INVALID", "0 data generation runs"),
    "too few files generated": (
        lambda p: change(p[0], override_parameters={"dataset.num_files_train": 55999}),
        "INVALID",
        "55999 files generated, 56000 used",
    ),
    "low utilisation": (
        lambda p: summarise(
            p[2], metric={"train_au_mean_percentage": 80.0, "train_au_meet_expectation": "success"}
        ),
        "INVALID",
        "accelerator utilisation 80.0 %",
    ),
    "a forbidden override": (
        lambda p: change(p[2], override_parameters={"reader.batch_size": 1}), "INVALID", "reader.batch_size=1",
    ),
    "an override of OPEN": (
        lambda p: [change(one, override_parameters={"reader.data_loader": "dali"}) for one in p[1:]],
        "OPEN",
        "reader.data_loader=dali",
    ),
    "processes differ": (
        lambda p: (change(p[2], num_processes=2), summarise(p[2], num_accelerators=2)), "OPEN", "differ in num_proc",
    ),
    "results beside the data": (
        lambda p: (p[2] / "fs_separation.json").write_text('{"same_filesystem": true}'), "INVALID", "same file system",
    ),
    "no proof of two file systems": (lambda p: (p[2] / "fs_separation.json").unlink(), None, ""),
    "no summary": (lambda p: (p[2] / "summary.json").unlink(), None, ""),
    "metadata twice": (lambda p: (p[2] / "second_metadata.json").write_text("{}"), "INVALID", "5 runs"),
    "metadata broken": (lambda p: metadata_of(p[2]).write_text("{"), "INVALID", "5 runs"),
    "memory of the clients unknown": (
        lambda p: [
            (change(one, system_info=None, args={}), summarise(one, host_memory_GB=[])) for one in p[1:]
        ],
        None,
        "",
    ),
    "too small a data set": (
        lambda p: [change(one, override_parameters={"dataset.num_files_train": 9}) for one in p],
        "INVALID",
        "9 files, 56000 needed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAINING)
def test_training_with_one_fault(tmp_path: Path, name: str) -> None:
    """The group has the verdict of the fault, and the message names it."""
    how, verdict, expected = TRAINING[name]
    how(training(tmp_path))
    found = judge(tmp_path)
    (group,) = found.groups
    assert group.verdict == verdict, group.text
    assert bool(group.missing) == (verdict is None)
    rules = [*group.rules, *(rule for run in group.runs for rule in run.rules)]
    messages = [finding.message for rule in rules for finding in rule.findings]
    assert not expected or any(expected in message for message in messages), messages
    if "metadata" in name:
        assert len(found.unreadable) == 1


def test_only_preparation(tmp_path: Path) -> None:
    """There is nothing to judge, and nothing is missing."""
    [path, *runs] = training(tmp_path)
    for run in runs:
        shutil.rmtree(run)
    for found in (judge(path), judge(tmp_path)):
        assert (found.is_judged, found.verdicts, found.at_least("warn")) == (True, {}, [])
        assert [group.text.partition(": ")[2] for group in found.groups] == ["only preparation, nothing to judge"]
        assert [group.verdict for group in found.groups] == [None]


def test_another_model_is_another_group(tmp_path: Path) -> None:
    """Both groups lack runs."""
    paths = training(tmp_path)
    other_model(paths)
    assert [group.verdict for group in judge(tmp_path).groups] == ["INVALID", "INVALID"]


def move_reading(paths: list[Path], seconds: float) -> int:
    """Move the reading run to another time after the start of the writing one."""
    at = START + dt.timedelta(seconds=seconds)
    return summarise(paths[1], start=at.isoformat(), end=(at + dt.timedelta(seconds=900)).isoformat())


def utc(seconds: float) -> str:
    """A time after the start of the writing run as the collectors write it."""
    first = dt.datetime.fromisoformat(CLUSTER["collection_timestamp"])
    return (first + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


CHECKPOINTING: dict[str, tuple[Break, str | None, str]] = {
    "reading too late": (lambda p: move_reading(p, 931), "INVALID", "31.0 s between writing"),
    "reading before the end of writing": (lambda p: move_reading(p, 890), "INVALID", "clocks"),
    "hosts released late": (
        lambda p: (
            change(p[0], cluster_snapshots={"end": {"collection_timestamp": utc(905)}}), move_reading(p, 936),
        ),
        "INVALID",
        "31.0 s between writing",
    ),
    "released late, read at once": (
        lambda p: (
            change(p[0], cluster_snapshots={"end": {"collection_timestamp": utc(930)}}), move_reading(p, 935),
        ),
        None,
        "",
    ),
    "nothing read": (lambda p: shutil.rmtree(p[1]), "INVALID", "10 writes and 0 reads"),
    "too few processes": (lambda p: change(p[0], num_processes=60), "INVALID", "60 processes"),
    "no fsync": (
        lambda p: change(p[0], parameters={"checkpoint": {"fsync": False}}), "INVALID", "checkpoint.fsync is false",
    ),
    "counts unknown": (
        lambda p: change(p[0], override_parameters={}, parameters={"checkpoint": {"fsync": True}}), None, "",
    ),
    "no times": (lambda p: summarise(p[1], start="", end="x"), None, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKPOINTING)
def test_checkpointing_with_one_fault(tmp_path: Path, name: str) -> None:
    """The group has the verdict of the fault."""
    how, verdict, expected = CHECKPOINTING[name]
    how(checkpointing(tmp_path))
    (group,) = judge(tmp_path).groups
    assert group.verdict == verdict, group.text
    rules = [*group.rules, *(rule for run in group.runs for rule in run.rules)]
    messages = [finding.message for rule in rules for finding in rule.findings]
    assert not expected or any(expected in message for message in messages), messages


@pytest.mark.parametrize("name", ["hosts released late", "released late, read at once"])
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_gap_is_the_same_in_every_time_zone(
    tmp_path: Path, name: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zone of the machine that evaluates is not that of the one that ran."""
    try:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            test_checkpointing_with_one_fault(tmp_path, name)
    finally:
        time.tzset()


def test_vector_database_with_faults(tmp_path: Path) -> None:
    """A missing metric makes its run INVALID, and a missing run its group."""
    paths = vector_database(tmp_path)
    data = json.loads(metadata_of(paths[0]).read_bytes())
    del data["metrics"]["recall"]
    metadata_of(paths[0]).write_text(json.dumps(data))
    (group,) = judge(tmp_path).groups
    assert [run.verdict for run in group.runs] == ["INVALID", *["CLOSED"] * 4]
    shutil.rmtree(paths[0])
    (group,) = judge(tmp_path).groups
    assert group.verdict == "INVALID"
    assert group.rules[1].findings[0].message == "4 runs, 5 required"


def test_the_earlier_round(tmp_path: Path) -> None:
    """The same five runs are CLOSED by the rules of round 2026-03 and INVALID by the newest."""
    for number in range(5):
        at = START + dt.timedelta(hours=number)
        write_run(tmp_path, "training 2026-03", "unet3d/run", at)
    found = check_results(tmp_path, "2026-03")
    assert found is not None
    assert [group.text for group in found.groups] == [
        "closed/Acme/results/sys1/training/unet3d: 5 runs: CLOSED"
    ]  # fmt: skip
    assert judge(tmp_path).groups[0].verdict == "INVALID"


def test_command_line(tmp_path: Path) -> None:
    """Text, JSON and page, and the exit status: 0, 1 for findings, 3 if something was not judged."""
    paths = training(tmp_path)
    run = CliRunner()
    done = run.invoke(cli, ["check", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "closed/Acme/results/sys1/training/unet3d: 6 runs: CLOSED" in done.stdout
    document = json.loads(run.invoke(cli, ["check", "--json", str(tmp_path)]).stdout)
    assert document["schema"] == "rollbook.submission/1"
    assert document["groups"][0]["runs"][1]["verdict"] == "CLOSED"
    summarise(paths[1], metric={})
    done = run.invoke(cli, ["check", str(tmp_path)])
    assert done.exit_code == 3
    assert "not judged; missing: mlperf-utilisation-low: train_au_mean_percentage is not recorded" in done.stdout
    change(paths[1], model="<script>alert(1)</script>")
    assert run.invoke(cli, ["check", str(tmp_path)]).exit_code == 1
    page = tmp_path / "page.html"
    assert run.invoke(cli, ["report", str(tmp_path), "-o", str(page)]).exit_code == 0
    text = page.read_text()
    assert "&lt;script&gt;alert(1)" in text
    assert "<script" not in text
    assert "accelerator utilisation, %" in text
    refused = run.invoke(cli, ["report", str(tmp_path)])
    assert isinstance(refused.exception, UsageError)


def test_rules_over_several_runs_are_in_the_catalogue(tmp_path: Path) -> None:
    """They are listed and explained like others; a silenced one changes the verdict but not the exit status."""
    run = CliRunner()
    assert "mlperf-run-count " in run.invoke(cli, ["check", "--list"]).stdout
    assert "Fix: Repeat the runs" in run.invoke(cli, ["check", "--explain", "mlperf-run-count"]).stdout
    shutil.rmtree(training(tmp_path / "tree")[6])
    silence = tmp_path / "silence.toml"
    silence.write_text('[[silence]]\nrule = "mlperf-run-count"\nreason = "one is on its way"\nuntil = 2099-12-31\n')
    command = ["check", str(tmp_path / "tree")]
    assert run.invoke(cli, command).exit_code == 1
    done = run.invoke(cli, [*command, "--silence", str(silence)])
    assert done.exit_code == 0, done.output
    assert "silenced mlperf-run-count: 5 runs, 6 required" in done.stdout
    assert "until 2099-12-31: one is on its way" in done.stdout
    assert "training/unet3d: 5 runs: INVALID" in done.stdout
    silence.write_text(silence.read_text().replace("2099", "2000"))
    done = run.invoke(cli, [*command, "--silence", str(silence)])
    assert done.exit_code == 1
    assert "note: silence for mlperf-run-count expired on 2000-12-31: one is on its way" in done.stdout


def test_describe_a_results_directory(tmp_path: Path) -> None:
    """Clients come from the cluster information of a run."""
    training(tmp_path)
    text = rollbook.describe(tmp_path)
    assert "quantity: 2" in text
    assert 'name: "Debian"' in text
    assert "memory_capacity: 500" in text


GARBAGE: list[Any] = [None, [], {}, "x", -1, True, [1], [[]], {"a": 1}, 10**30, float("inf")]
CLUSTER_KEYS = ["hosts", "num_hosts", "total_memory_bytes", "missing_hosts", "host_consistency_issues"]
HOST_KEYS = ["hostname", "memory", "cpu", "system", "disks", "mounts", "chassis_model", "networking"]


@pytest.mark.parametrize("value", GARBAGE, ids=repr)
def test_values_of_a_wrong_type(tmp_path: Path, value: Any) -> None:
    """Whatever the cluster information contains, the run is judged, described and read without an error."""
    path = write_run(tmp_path, "training", "unet3d/run", START)
    host = {"hostname": "n1", "memory": {"total": value}, "cpu": {"num_cores": value, "model": value}}
    host["system"] = {"os_release": value, "kernel_version": value}
    clusters = [{**CLUSTER, name: value} for name in CLUSTER_KEYS]
    clusters += [{**CLUSTER, "hosts": [{**CLUSTER["hosts"][0], name: value}, host]} for name in HOST_KEYS]
    for cluster in clusters:
        change(path, system_info=cluster)
        assert len(judge(tmp_path).groups) == 1
        assert "clients" in rollbook.describe(tmp_path)
        (run,) = get_runs_files(tmp_path)
        assert run.as_dict()["model"] == "unet3d"
        BenchmarkVerifier(run).verify()
    change(path, system_info=CLUSTER, model=value, command=value, run_datetime=value, accelerator=value)
    assert len(get_runs_files(tmp_path)) == 1
    assert str(get_runs_files(tmp_path)[0].run_id).startswith("training")


def test_dlio_without_the_tool(tmp_path: Path) -> None:
    """A directory with DLIO's files only is read from its configuration."""
    path = write_run(tmp_path, "training", "unet3d/run", START)
    data = json.loads(metadata_of(path).read_bytes())
    metadata_of(path).unlink()
    (path / "dlio_config" / "config.yaml").write_text(
        json.dumps({"workload": {**data["parameters"], "model": {"name": "unet3d"}, "workflow": {"train": True}}})
    )
    (path / "dlio_config" / "overrides.yaml").write_text("['workload=unet3d_b200', '++workload.reader.read_threads=4']")
    (group,) = judge(path).groups
    (run,) = group.runs
    assert (run.type, run.model, run.verdict) == ("training", "unet3d", "CLOSED"), run.missing
