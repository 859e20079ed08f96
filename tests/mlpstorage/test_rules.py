"""Results, checkers and verdicts by MLPerf Storage's names, on disk and live."""

from __future__ import annotations

import enum
import json
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from rollbook import mlpstorage
from rollbook.mlperf.runs import dlio_metadata
from rollbook.mlpstorage import (
    BENCHMARK_TYPES,
    PARAM_VALIDATION,
    BenchmarkResult,
    BenchmarkRun,
    BenchmarkRunData,
    BenchmarkVerifier,
    ClusterInformation,
    ClusterValidationRulesChecker,
    DLIOResultParser,
    Issue,
    MultiRunRulesChecker,
    ProcessedRun,
    RunID,
    TrainingRunRulesChecker,
    ValidationIssue,
    calculate_training_data_size,
    generate_output_location,
    get_runs_files,
    results,
)
from rollbook.mlpstorage.config import ROUND
from rollbook.mlpstorage.rules import RulesChecker
from rollbook.records.document import encode
from rollbook.records.locate import INSIDE, RUN_DOCUMENT
from rollbook.records.record import RecordHosts
from tests.mlpstorage.test_cluster import collected

LOGGER = logging.getLogger(__name__)
CLOSED, OPEN, INVALID = PARAM_VALIDATION.CLOSED, PARAM_VALIDATION.OPEN, PARAM_VALIDATION.INVALID
VERDICTS = json.loads((Path(__file__).parents[1] / "data" / "mlperf" / "verdicts.json").read_bytes())


def write_run(directory: Path, base: str = "training 2026-03", **metadata: Any) -> Path:
    """Write the result directory of a run that passes, with some of its metadata changed; None removes."""
    directory.mkdir(parents=True, exist_ok=True)
    run = VERDICTS["bases"][base]
    memory = dict.fromkeys(("n1", "n2"), 500)
    cluster = ClusterInformation.from_mpi_collection(collected(**memory), LOGGER).as_dict()
    document = {**run["metadata"], "system_info": cluster, **metadata}
    del document["exit_code"]
    kind, stamp = document["benchmark_type"], document["run_datetime"]
    (directory / f"{kind}_{stamp}_metadata.json").write_text(json.dumps(document))
    (directory / "summary.json").write_text(json.dumps(run["summary"]))
    return directory


def test_verdict_on_a_directory(tmp_path: Path) -> None:
    """A valid run is CLOSED, whether it is given as a path or as a run."""
    path = write_run(tmp_path / "a")
    verifier = BenchmarkVerifier(str(path), logger=LOGGER)
    assert verifier.verify() is CLOSED, list(map(str, verifier.issues))
    assert (verifier.mode, verifier.benchmark_runs[0].category) == ("single", CLOSED)
    assert {issue.validation for issue in verifier.issues} == {CLOSED}, "allowed overrides are informational"
    run = BenchmarkRun.from_result_dir(path, LOGGER)
    assert BenchmarkVerifier(run).verify() is CLOSED
    assert run.issues == BenchmarkVerifier(run).benchmark_runs[0].issues
    assert (run.benchmark_type, run.model, run.num_processes) == (BENCHMARK_TYPES.training, "unet3d", 16)
    assert run.post_execution
    assert str(run.run_id) == "training_run_unet3d_20260801_120000"
    assert set(run.as_dict()) == {
        "run_id", "benchmark_type", "model", "command", "num_processes", "parameters", "system_info", "metrics",
        "accelerator",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"override_parameters": {"reader.batch_size": 1}}, INVALID),
        ({"override_parameters": {"framework": "x"}}, OPEN),
        ({"override_parameters": {"reader.odirect": True}, "model": "cosmoflow"}, INVALID),
        ({"model": "bert"}, INVALID),
        ({"system_info": None}, OPEN),
    ],
)
def test_runs_that_are_not_closed(tmp_path: Path, change: dict[str, Any], expected: Any) -> None:
    """Violations are INVALID or OPEN; a run with a rule that cannot be evaluated is OPEN."""
    assert BenchmarkVerifier(str(write_run(tmp_path, **change)), logger=LOGGER).verify() is expected


@pytest.mark.parametrize(("code", "expected"), [(0, CLOSED), (1, INVALID), (None, OPEN)])
def test_exit_status_of_a_record_inside_the_result_directory(tmp_path: Path, code: int | None, expected: Any) -> None:
    """The command's exit status counts as for `rollbook check`, which reads the same record."""
    inside = write_run(tmp_path) / INSIDE
    inside.mkdir()
    (inside / "hosts.json").write_bytes(encode(RecordHosts(started_ns=0, ended_ns=0)))
    (inside / RUN_DOCUMENT).write_text(json.dumps({"exit_code": code}))
    verifier = BenchmarkVerifier(str(tmp_path), logger=LOGGER)
    assert verifier.verify() is expected
    assert any("exit status" in issue.message for issue in verifier.issues) is bool(code != 0)


def test_a_failed_command_without_metrics(tmp_path: Path) -> None:
    """The run is INVALID although there are no results to check."""
    path = write_run(tmp_path, metrics=None)
    (path / "summary.json").unlink()
    inside = path / INSIDE
    inside.mkdir()
    (inside / "hosts.json").write_bytes(encode(RecordHosts(started_ns=0, ended_ns=0)))
    (inside / RUN_DOCUMENT).write_text('{"exit_code": 1}')
    verifier = BenchmarkVerifier(str(path), logger=LOGGER)
    verifier.verify()
    assert "the command ended with exit status 1" in {issue.message for issue in verifier.issues}


@pytest.mark.parametrize("method", ["local_fallback", "args", "dlio_summary", "unknown"])
def test_a_cluster_that_was_not_measured(tmp_path: Path, method: str) -> None:
    """A run whose hosts were not all measured is OPEN."""
    cluster = ClusterInformation.from_mpi_collection(collected(n1=500, n2=500), LOGGER).as_dict()
    path = write_run(tmp_path, system_info={**cluster, "collection_method": method})
    assert BenchmarkVerifier(str(path), logger=LOGGER).verify() is OPEN


def test_a_single_host_with_too_little_memory(tmp_path: Path) -> None:
    """The run is INVALID, as with several hosts."""
    cluster = ClusterInformation.from_mpi_collection(collected(n1=0.25), LOGGER).as_dict()
    assert BenchmarkVerifier(str(write_run(tmp_path, system_info=cluster)), logger=LOGGER).verify() is INVALID


def test_unknown_minimum_memory(tmp_path: Path) -> None:
    """The memory was not checked, so the run is OPEN."""
    cluster = ClusterInformation.from_mpi_collection(collected(n1=500, n2=500), LOGGER).as_dict()
    del cluster["min_memory_bytes"]
    assert BenchmarkVerifier(str(write_run(tmp_path, system_info=cluster)), logger=LOGGER).verify() is OPEN


def test_verifier_input(tmp_path: Path) -> None:
    """The verifier takes runs of one benchmark type; several runs are judged together."""
    with pytest.raises(ValueError, match="At least one"):
        BenchmarkVerifier()
    with pytest.raises(TypeError, match="not int"):
        BenchmarkVerifier(3)
    one, other = write_run(tmp_path / "a"), write_run(tmp_path / "b", "checkpointing 2026-03")
    with pytest.raises(ValueError, match="one benchmark type"):
        BenchmarkVerifier(str(one), str(other))
    runs = [write_run(tmp_path / str(number)) for number in range(5)]
    verifier = BenchmarkVerifier(*map(str, runs), logger=LOGGER)
    assert (verifier.verify(), verifier.mode) == (CLOSED, "multi")
    assert BenchmarkVerifier(*map(str, runs[:4])).verify() is INVALID, "five runs are required"
    mixed = [*map(str, runs[:4]), str(write_run(tmp_path / "m", model="resnet50"))]
    verifier = BenchmarkVerifier(*mixed)
    verifier.verify()
    assert "Runs have different models: resnet50, unet3d" in [issue.message for issue in verifier.issues]


def test_checkpoint_submission(tmp_path: Path) -> None:
    """Writes and reads add up to ten each."""
    half = {"checkpoint.num_checkpoints_write": 10, "checkpoint.num_checkpoints_read": 0}
    rest = {"checkpoint.num_checkpoints_write": 0, "checkpoint.num_checkpoints_read": 10}
    paths = [
        str(write_run(tmp_path / str(number), "checkpointing 2026-03", override_parameters=counts))
        for number, counts in enumerate((half, rest))
    ]
    checker = mlpstorage.CheckpointSubmissionRulesChecker([BenchmarkRun.from_result_dir(path) for path in paths])
    assert checker.check_num_runs() == []
    one = mlpstorage.CheckpointSubmissionRulesChecker([BenchmarkRun.from_result_dir(paths[0])])
    assert [issue.actual for issue in one.check_num_runs()] == [0]


class Instance:
    """A live benchmark, as the tool has one before it runs."""

    BENCHMARK_TYPE = BENCHMARK_TYPES.training
    run_datetime = "20260801_120000"
    run_result_output = None
    metadata: dict[str, Any] = {}  # noqa: RUF012 - read only
    combined_params = VERDICTS["bases"]["training 2026-03"]["metadata"]["parameters"]
    params_dict = {"dataset.num_files_train": 56000}  # noqa: RUF012 - read only
    args = SimpleNamespace(
        model="unet3d", command="run", accelerator_type="h100", num_processes=16, results_dir="/results"
    )

    def __init__(self, **memory: int) -> None:
        self.cluster_information = ClusterInformation.from_mpi_collection(collected(**memory), LOGGER)


def test_a_live_benchmark() -> None:
    """The parameters and the memory of the cluster are judged before the run."""
    run = BenchmarkRun.from_benchmark(Instance(n1=500, n2=500), LOGGER)
    assert (run.post_execution, run.data.accelerator) == (False, "h100")
    assert BenchmarkVerifier(Instance(n1=500, n2=500), logger=LOGGER).verify() is CLOSED
    assert BenchmarkVerifier(Instance(n1=580, n2=420), logger=LOGGER).verify() is OPEN
    assert BenchmarkVerifier(Instance(n1=900, n2=900), logger=LOGGER).verify() is INVALID
    location = generate_output_location(Instance(n1=1), "S")
    assert location == "/results/training/unet3d/run/S"
    with pytest.raises(SystemExit) as ended:
        generate_output_location(SimpleNamespace(BENCHMARK_TYPE=BENCHMARK_TYPES.kv_cache, args=Instance.args), "S")
    assert ended.value.code == 1


def test_run_constructors(tmp_path: Path) -> None:
    """Both orders of arguments work; missing or conflicting arguments are errors."""
    data = BenchmarkRunData(BENCHMARK_TYPES.training, "m", "run", "1", 2, {}, {})
    assert BenchmarkRun(data, LOGGER).logger is LOGGER
    assert BenchmarkRun(data=data).data is BenchmarkRun.from_data(data).data is data
    with pytest.raises(ValueError, match="Either data, benchmark_result, or benchmark_instance must be provided"):
        BenchmarkRun()
    with pytest.raises(ValueError, match="Only one of"):
        BenchmarkRun(BenchmarkResult(write_run(tmp_path), LOGGER), Instance(n1=1))
    with pytest.raises(AttributeError):
        _ = BenchmarkRun(data).nothing


def test_results_are_read_leniently(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files that cannot be read are None and logged; with two metadata files, none is used."""
    path = write_run(tmp_path / "a")
    (path / "dlio_config").mkdir()
    (path / "dlio_config" / "config.yaml").write_text("workload: {workflow: {train: true}}")
    (path / "dlio_config" / "broken.yaml").write_text("{")
    result = BenchmarkResult(str(path), LOGGER)
    assert result.benchmark_result_root_dir == str(path)
    assert set(result.hydra_configs) == {"config.yaml"}
    assert result.issues == []
    assert result.cluster_info is not None
    (path / "second_metadata.json").write_text("{}")
    assert BenchmarkResult(path, LOGGER).metadata is None
    assert "2 files named *_metadata.json" in caplog.text
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "summary.json").write_text("{")
    assert (BenchmarkResult(empty, LOGGER).summary, BenchmarkResult(empty, LOGGER).metadata) == (None, None)
    assert "Failed to load" in caplog.text


def test_results_that_could_block_or_fill_the_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """FIFOs, symlink loops and files beyond the limit are skipped; a symlink to a file is read."""
    (tmp_path / "dlio_config").mkdir()
    real = tmp_path / "real"
    real.write_text('{"host_memory_GB": [2.0], "host_cpu_count": [3], "num_hosts": 1}')
    (tmp_path / "summary.json").symlink_to(real)
    for name in ("x_metadata.json", "0_output.json", "dlio_config/fifo.yaml"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "1_output.json").symlink_to("1_output.json")
    (tmp_path / "dlio_config" / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "dlio_config" / "large.yaml").write_bytes(b"a: 1\n#" + b"x" * (4 << 20))
    found = BenchmarkResult(tmp_path, LOGGER)
    assert (found.metadata, found.hydra_configs) == (None, {})
    assert "x_metadata.json is a FIFO" in caplog.text
    assert found.summary is not None
    cluster = ClusterInformation.from_dlio_summary_json(found.summary, LOGGER, tmp_path)
    assert cluster is not None
    assert [host.hostname for host in cluster.host_info_list] == ["host_0"]


def test_find_runs_below_a_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All readable runs are found, and a warning names the others."""
    write_run(tmp_path / "training" / "a")
    write_run(tmp_path / "training" / "b")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "x_metadata.json").write_text("{}")
    assert len(get_runs_files(tmp_path, LOGGER)) == 2
    assert "Failed to load run from" in caplog.text
    assert get_runs_files(tmp_path / "none", LOGGER) == []


def write_dlio(path: Path, summary: str) -> Path:
    """Write the files of DLIO alone: its configuration and this text as summary."""
    (path / "dlio_config").mkdir(parents=True)
    (path / "dlio_config" / "config.yaml").write_text("workload: {model: {name: unet3d}, workflow: {train: true}}")
    (path / "summary.json").write_text(summary)
    return path


@pytest.mark.parametrize("number", ["1e999", "-1", "true", '"x"', "1e400000", "9" * 4000, "[]"])
def test_a_number_of_processes_that_cannot_be(tmp_path: Path, number: str, caplog: pytest.LogCaptureFixture) -> None:
    """The run is skipped with a warning; the others are found."""
    path = write_dlio(tmp_path / "a", f'{{"num_accelerators": {number}}}')
    if number != "[]":  # an empty value is none
        with pytest.raises(ValueError, match="num_accelerators"):
            BenchmarkRun.from_result_dir(path)
    write_run(tmp_path / "b")
    assert len(get_runs_files(tmp_path, LOGGER)) == (2 if number == "[]" else 1)
    assert ("Failed to load run from" in caplog.text) is (number != "[]")


def test_two_metadata_files_are_not_replaced_by_dlios(tmp_path: Path) -> None:
    """Which run it was cannot be told, although DLIO's own files are there."""
    path = write_dlio(tmp_path, "{}")
    assert BenchmarkRun.from_result_dir(path).benchmark_type is BENCHMARK_TYPES.training
    for name in ("a_metadata.json", "b_metadata.json"):
        (path / name).write_text("{}")
    with pytest.raises(ValueError, match=r"2 files named \*_metadata.json, not one"):
        BenchmarkRun.from_result_dir(path)


def test_a_record_of_another_benchmark(tmp_path: Path) -> None:
    """A directory without a run of MLPerf Storage is a `ValueError`, as promised."""
    with pytest.raises(ValueError, match="'generic' is not a benchmark"):
        BenchmarkRun.from_result_dir(write_run(tmp_path, benchmark_type="generic"))


def test_dlio_files_alone(tmp_path: Path) -> None:
    """Without the tool's metadata, the run is read from DLIO's own files."""
    with pytest.raises(ValueError, match=r"No summary.json found in"):
        DLIOResultParser().parse(tmp_path)
    summary = {"start": "s", "end": "e", "num_accelerators": 4, "metric": {"a": 1}, "host_memory_GB": [2.0],
               "host_cpu_count": [3], "num_hosts": 1}  # fmt: skip
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "dlio_config").mkdir()
    config = "workload: {model: {name: llama_8b}, workflow: {train: false, checkpoint: true}}"
    (tmp_path / "dlio_config" / "config.yaml").write_text(config)
    overrides = "['workload=llama3_8b_h100', '++workload.checkpoint.fsync=true', 'hydra.x=1']"
    (tmp_path / "dlio_config" / "overrides.yaml").write_text(overrides)
    data = BenchmarkRun.from_result_dir(tmp_path).data
    assert (data.benchmark_type, data.model, data.num_processes) == (BENCHMARK_TYPES.checkpointing, "llama3-8b", 4)
    assert data.override_parameters == {"checkpoint.fsync": "true"}
    assert data.system_info is not None
    assert data.system_info.collection_method == "dlio_summary"
    (tmp_path / "dlio_config" / "config.yaml").write_text("workload: {}")
    with pytest.raises(ValueError, match="has no known workflow"):
        DLIOResultParser().parse(tmp_path)


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ("{checkpoint: true}", "training"),
        ("{generate_data: false}", "training"),
        ("{train: false, generate_data: true}", "training"),
        ("{train: false, checkpoint: true}", "checkpointing"),
        ("{train: false}", None),
    ],
)
def test_type_of_a_run_from_the_flags_of_dlio(tmp_path: Path, flags: str, kind: str | None) -> None:
    """DLIO trains unless it is told not to; a run without any step is of no type."""
    (tmp_path / "dlio_config").mkdir()
    (tmp_path / "dlio_config" / "config.yaml").write_text(f"workload: {{workflow: {flags}}}")
    assert dlio_metadata(tmp_path, {}).get("benchmark_type") == kind


def test_checkers_return_or_append() -> None:
    """Returned and appended issues count; a check that raises an error is INVALID and does not stop others."""

    class Checker(RulesChecker):
        def check_a(self) -> Issue:
            return Issue(OPEN, "returned")

        def check_b(self) -> list[Issue]:
            return [Issue(CLOSED, "one"), Issue(CLOSED, "two")]

        def check_c(self) -> None:
            self.issues.append(Issue(OPEN, "appended"))

        def check_d(self) -> None:
            raise ZeroDivisionError("x")

    checker = Checker(LOGGER)
    assert [method.__name__ for method in checker.check_methods] == ["check_a", "check_b", "check_c", "check_d"]
    messages = [issue.message for issue in checker.run_checks()]
    assert messages == ["returned", "one", "two", "appended", "Check check_d failed with error: x"]
    assert checker.get_category() is INVALID
    assert len(checker.run_checks()) == 5, "a second call starts without issues"


class ToolValidation(enum.Enum):
    """An enum like the tool's own."""

    CLOSED = "closed"
    OPEN = "open"
    INVALID = "invalid"


@pytest.mark.parametrize("state", [*mlpstorage.RuleState, *ToolValidation, "closed", "open", "invalid"])
def test_validation_of_an_issue(state: Any) -> None:
    """Issues count whether their validation is a PARAM_VALIDATION, a RuleState, a member of the tool's enum or text."""
    checker, issue = RulesChecker(LOGGER), Issue(state, "text")
    checker.issues = [issue]
    category = checker.get_category()
    assert category.value == getattr(state, "value", state)
    done = ProcessedRun(RunID("training", "", "", "1"), "training", {}, {}, [issue])
    assert (done.is_valid(), done.is_closed()) == (category is not INVALID, category is CLOSED)


def test_issue() -> None:
    """An issue is mutable and has the tool's text and dictionary."""
    issue = Issue(OPEN, "text", "p", 1, 2)
    assert str(issue) == "[OPEN] text (Parameter: p, Expected: 1, Actual: 2)"
    issue.parameter = None
    assert str(issue) == "[OPEN] text"
    issue.parameter, issue.actual = "p", None
    assert str(issue) == "[OPEN] text (Parameter: p)"
    assert Issue.from_dict(issue.to_dict()) == issue
    assert issue.to_dict()["validation"] == "open"
    with pytest.raises(KeyError):
        Issue.from_dict({})
    done = ProcessedRun(RunID("training", "", "", "1"), "training", {}, {}, [issue])
    assert (done.is_valid(), done.is_closed(), str(done.run_id)) == (True, False, "training_1")


def test_cluster_checker() -> None:
    """Inconsistent and failed hosts are OPEN, too little memory is INVALID."""
    instance = Instance(n1=512, n2=0)
    instance.cluster_information.min_memory_bytes = 1
    checker = ClusterValidationRulesChecker(BenchmarkRun(benchmark_instance=instance), LOGGER)
    found = {(issue.validation, issue.parameter) for issue in checker.run_checks()}
    assert found == {(INVALID, "host_memory"), (OPEN, "hosts")}
    data = {**collected(n1=512, n2=256), "n3": {"hostname": "n3", "error": "refused"}}
    instance.cluster_information = ClusterInformation.from_ssh_collection(data, LOGGER)
    checker = ClusterValidationRulesChecker(BenchmarkRun(benchmark_instance=instance), LOGGER)
    assert {issue.parameter for issue in checker.run_checks()} == {None, "hosts"}
    with pytest.raises(TypeError, match="must be a list or tuple"):
        MultiRunRulesChecker("runs")


def test_allowed_override_is_informational() -> None:
    """An override that CLOSED allows is an issue of category CLOSED."""
    checker = TrainingRunRulesChecker(BenchmarkRun.from_benchmark(Instance(n1=500, n2=500)), logger=LOGGER)
    (issue,) = checker.check_allowed_params()
    assert (issue.validation, issue.parameter) == (CLOSED, "dataset.num_files_train")
    assert checker.system_info.num_hosts == 2


def test_data_set_size_follows_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is that of the rule `mlperf-dataset-size`: the round says whether files are rounded up."""
    args = SimpleNamespace(client_host_memory_in_gb=1, num_client_hosts=2, num_processes=1)
    dataset, reader = {"num_samples_per_file": 3, "record_length_bytes": 1 << 30}, {"batch_size": 1}
    assert calculate_training_data_size(args, None, dataset, reader, LOGGER)[0] == 166
    changed = msgspec.structs.replace(ROUND, training=msgspec.structs.replace(ROUND.training, files="rounded up"))
    monkeypatch.setattr(results, "ROUND", changed)
    assert calculate_training_data_size(args, None, dataset, reader, LOGGER)[0] == 167


def test_data_set_size() -> None:
    """Sizes are rounded down as in the tool; declared memory has priority over measured memory."""
    dataset, reader = {"num_samples_per_file": 1, "record_length_bytes": 146600628}, {"batch_size": 7}
    cluster = Instance(n1=500, n2=500).cluster_information
    assert calculate_training_data_size(None, cluster, dataset, reader, LOGGER, 2)[:2] == (36621, 0)
    args = SimpleNamespace(client_host_memory_in_gb=1, num_client_hosts=2, num_processes=16)
    assert calculate_training_data_size(args, cluster, dataset, reader, LOGGER)[0] == 56000
    unknown = {"num_samples_per_file": 2}
    assert calculate_training_data_size(args, None, unknown, reader, LOGGER) == (28000, 0, 0), "only steps decide"
    large = SimpleNamespace(client_host_memory_in_gb=2000, num_client_hosts=2, num_processes=16)
    assert calculate_training_data_size(large, None, dataset, reader, LOGGER)[0] == 146485
    columns = {"num_samples_per_file": 10, "format": "parquet", "parquet": {"columns": [{"dtype": "int64", "size": 2}]}}
    assert calculate_training_data_size(args, None, columns, reader, LOGGER)[2] >= 10 * 2**30
    with pytest.raises(ValueError, match="Either args or cluster_information is required"):
        calculate_training_data_size(None, None, dataset, reader, LOGGER)


def test_validation_issues() -> None:
    """An issue can be raised or collected."""
    issue = ValidationIssue("error", "dependency", "no ssh", "install it", "apt install ssh", "n1")
    assert str(issue).splitlines() == [
        "[ERROR] no ssh", "Suggestion: install it", "Install command: apt install ssh", "Host: n1"
    ]  # fmt: skip
    warning = ValidationIssue("warning", "connectivity", "slow", "wait")
    assert mlpstorage.collect_validation_issues([issue, warning]) == ([issue], [warning])
    with pytest.raises(ValidationIssue, match="no ssh"):
        raise issue


def test_ssh_validation_without_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The issue is raised, with the command that installs a client."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValidationIssue, match="SSH client not found") as raised:
        mlpstorage.validate_ssh_connectivity(["n1"])
    assert raised.value.install_cmd
