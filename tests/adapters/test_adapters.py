"""Adapters: data cases, a real fio, and invalid output."""

from __future__ import annotations

import copy
import datetime as dt
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook import adapters
from rollbook.adapters import NAMES, Outcome, Ran, load
from rollbook.adapters.argv import processes
from rollbook.adapters.mlpstorage import from_command_line, leaf_parts
from rollbook.adapters.results import Results
from rollbook.adapters.workflow import Workflow
from rollbook.errors import UsageError
from tests.support.waits import SECONDS, until

DATA = Path(__file__).parents[1] / "data" / "adapters"
CASES = sorted(DATA.glob("*/*/case.json"))


def nanoseconds(text: str) -> int:
    """An ISO time with a zone."""
    return int(dt.datetime.fromisoformat(text).timestamp()) * 10**9


@pytest.fixture
def zone() -> Iterator[Any]:
    """A function that sets the local time zone, which is restored after the test."""
    before = os.environ.get("TZ")

    def change(name: str | None) -> None:
        os.environ.pop("TZ", None)
        if name is not None:
            os.environ["TZ"] = name
        time.tzset()

    yield change
    change(before)


def write_case(case: dict[str, Any], path: Path, cwd: Path) -> Ran:
    """Write the files of a case, with times during its run or, for those in `old`, before it."""
    started, ended = nanoseconds(case["started"]), nanoseconds(case["ended"])
    cwd.mkdir()
    for target, source in {".": f"{path.parent.name}/{path.name}/files", **case.get("copy", {})}.items():
        if (DATA / source).is_dir():
            shutil.copytree(DATA / source, cwd / target, dirs_exist_ok=True)
    for file in (file for file in cwd.rglob("*") if file.is_file()):
        written = started - 60 * 10**9 if str(file.relative_to(cwd)) in case["old"] else ended - 10**9
        os.utime(file, ns=(written, written))
    logs = cwd / "stdout.log", cwd / "stderr.log"
    return Ran(case["argv"], cwd, cwd / "record", *logs, started, ended, case["code"])


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.parent.name}-{path.parent.name}")
def test_case(path: Path, tmp_path: Path, zone: Any) -> None:
    """An adapter gives exactly the outcome of its case, which can be stored and read back."""
    case = json.loads(path.read_text())
    zone(case["zone"])
    ran = write_case(case, path.parent, tmp_path / "cwd")
    name = path.parent.parent.name
    outcome = load(name).outcome(ran)
    stored = msgspec.json.encode(outcome)
    assert msgspec.json.decode(stored, type=Outcome) == outcome
    assert json.loads(stored.replace(str(ran.cwd).encode(), b"CWD")) == json.loads(
        path.with_name("outcome.json").read_text()
    )
    if "leaf" in case:
        assert leaf_parts(outcome) == tuple(case["leaf"])


@pytest.mark.parametrize("name", NAMES)
def test_every_adapter_has_a_case(name: str) -> None:
    """Every adapter can be loaded by name and has a data case."""
    assert load(name).name == name
    assert any(path.parent.parent.name == name for path in CASES)


def test_an_unknown_name_lists_the_adapters() -> None:
    """An unknown name is an error that lists the existing ones."""
    with pytest.raises(UsageError, match=r"no benchmark is called 'iozone'; available: generic, fio, .*kv_cache"):
        load("iozone")


def test_adapters_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter is found by its entry point, and an error names a broken one; built-in names need no search."""
    entries = [
        importlib.metadata.EntryPoint("iozone", "rollbook.adapters.generic:ADAPTER", adapters.GROUP),
        importlib.metadata.EntryPoint("gone", "no_such_module:ADAPTER", adapters.GROUP),
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries if group == adapters.GROUP else [])
    assert load("iozone").name == "generic"
    with pytest.raises(UsageError, match=r"adapter 'gone' \(no_such_module:ADAPTER\) cannot be loaded"):
        load("gone")
    monkeypatch.delattr(importlib.metadata, "entry_points")
    assert load("fio").name == "fio"


@pytest.mark.parametrize(
    ("flags", "command"),
    [
        ({}, "run"),
        ({"generate_data": True}, "run"),
        ({"generate_data": True, "train": False}, "datagen"),
        ({"generate_data": "true", "train": "False"}, "datagen"),
        ({"generate_data": True, "train": False, "checkpoint": True}, "run"),
        ({"train": False, "checkpoint": True}, "run"),
    ],
)
def test_workflow_of_dlio(flags: dict[str, bool | str], command: str) -> None:
    """DLIO trains unless it is told not to, even after it generated data."""
    assert Workflow.of(flags).command == command


GENERATE = "dlio_benchmark workload=unet3d_h100 ++workload.workflow.generate_data=True"


@pytest.mark.parametrize(
    ("name", "line", "parts"),
    [
        ("training", "mlpstorage whatif training retinanet datasize -ma 8", ("training", "retinanet", "datasize")),
        ("training", "dlio_benchmark workload=unet3d_h100", ("training", "unet3d", "run")),
        ("training", GENERATE, ("training", "unet3d", "run")),
        ("training", f"{GENERATE} ++workload.workflow.train=False", ("training", "unet3d", "datagen")),
        ("training", "dlio_benchmark ++workload.reader.batch_size=1", None),
        ("training", "mlpstorage training run", None),
        ("checkpointing", "mlpstorage checkpointing run -m llama3-70b", ("checkpointing", "llama3-70b")),
        ("checkpointing", "mlpstorage checkpointing run -m ../escape", None),
        ("checkpointing", "mlpstorage checkpointing run -m ..", None),
        ("vector_database", "mlpstorage closed vectordb run file", None),
        ("vector_database", "mlpstorage open vectordb HNSW run file", ("vector_database", "milvus", "HNSW", "run")),
        ("kv_cache", "mlpstorage kvcache run --model=tiny-1b", ("kv_cache", "tiny-1b", "run")),
        ("fio", "fio jobs.fio", None),
    ],
)
def test_layout_from_the_command_line(name: str, line: str, parts: tuple[str, ...] | None) -> None:
    """The result directory follows from the command line, or an error is raised."""
    if parts:
        assert leaf_parts(from_command_line(name, line.split())) == parts
    else:
        with pytest.raises(UsageError, match="MLPerf Storage's layout"):
            leaf_parts(from_command_line(name, line.split()))


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("mpirun -np 4 ./bench -n 100", 4),
        ("mpirun --mca btl tcp,self -x A=1 --host a,b -np 4 ./bench", 4),
        ("mpirun --host a,b ./bench -n 100", None),
        ("srun -n4 ./bench", 4),
        ("srun --ntasks=8 --cpus-per-task=2 ./bench -n 3", 8),
        ("srun --exclusive=user ./bench -n 3", None),
        ("mpiexec -genv A 1 -n 2 ./bench", 2),
        ("mpirun -np many ./bench", None),
        ("mpirun -np", None),
        ("./bench -n 100", None),
    ],
)
def test_number_of_processes(line: str, count: int | None) -> None:
    """Only the launcher's own options count, not those of the program that it starts."""
    assert processes(line.split()) == count


def ended_now(cwd: Path, argv: list[str], began: int, code: int = 0) -> Ran:
    """A command that ended just now."""
    return Ran(argv, cwd, Path("record"), cwd / "stdout.log", cwd / "stderr.log", began, time.time_ns(), code)


@pytest.mark.needs("fio")
def test_real_fio(tmp_path: Path) -> None:
    """A run of fio is read; a later run that fails does not take the results that the first left in the same file."""
    argv = ["fio", "--name=seq", "--rw=write", "--bs=64k", "--size=1m", "--output-format=json", "--output=out.json"]
    began = time.time_ns()
    code = subprocess.run(argv, cwd=tmp_path, check=True).returncode
    outcome = load("fio").outcome(ended_now(tmp_path, argv, began, code))
    assert outcome.notes == []
    assert outcome.result_files == [str(tmp_path / "out.json")]
    assert outcome.parameters["jobs"][0]["options"]["bs"] == "64k"
    (job,) = outcome.metrics["jobs"]
    assert job["job"] == "seq"
    assert job["error"] == 0
    assert job["write_bandwidth_bytes_per_second"] > 0
    assert 0 < job["write_clat_p50_ns"] <= job["write_clat_p99_ns"]
    assert not any(name.startswith("read") for name in job)

    time.sleep(0.05)
    began = time.time_ns()
    wrong = [*argv[:2], "--rw=nonsense", *argv[3:]]
    assert subprocess.run(wrong, cwd=tmp_path, check=False, capture_output=True).returncode != 0
    outcome = load("fio").outcome(ended_now(tmp_path, wrong, began, 1))
    assert outcome.metrics == {}
    assert outcome.notes == [f"{tmp_path / 'out.json'} was not written during this run and is left out"]


def test_search_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search has a limit, which is noted; it skips symlinks and the record, and takes the newest file."""
    began = time.time_ns()
    ran = ended_now(tmp_path, [], began)
    for place in ("record", "a", "b/c"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "summary.json").write_text("{}")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.utime(tmp_path / "a" / "summary.json", ns=(began, began + 10**9))
    results = Results(ran)
    assert results.newest(tmp_path, "summary.json") == tmp_path / "a" / "summary.json"
    assert results.notes == [f"2 files named summary.json below {tmp_path}; the newest is {tmp_path}/a/summary.json"]

    monkeypatch.setattr("rollbook.adapters.results.ENTRIES", 3)
    results = Results(ran)
    assert results.newest(tmp_path, "other.json") is None
    assert results.notes == [f"the search below {tmp_path} ended after 3 files"]


def test_large_and_unreadable_files_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are too large or of the wrong kind are left out, with a note."""
    ran = ended_now(tmp_path, [], time.time_ns())
    (tmp_path / "large").write_text("x" * 100)
    (tmp_path / "list").write_text("[1]")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("rollbook.adapters.results.LIMIT", 99)
    results = Results(ran)
    assert results.text(tmp_path / "large") is None
    assert results.text(tmp_path / "pipe") is None
    assert results.json(tmp_path / "list") == {}
    assert [note.removeprefix(f"{tmp_path}/") for note in results.notes] == [
        "large is larger than 0 MiB and is left out",
        "pipe is not there",
        "list is not a JSON object",
    ]


def test_unreadable_paths_are_notes(tmp_path: Path) -> None:
    """A name that is too long, or a file that is not YAML, is a note; parameters of the command line are kept."""
    argv = ["mpirun", "-n", "4", "dlio_benchmark", f"hydra.output_subdir={'d' * 300}", "++workload.output.folder=."]
    outcome = load("dlio").outcome(ended_now(tmp_path, argv, time.time_ns()))
    assert outcome.num_processes == 4
    assert outcome.parameters == {"output": {"folder": "."}}
    results = Results(ended_now(tmp_path, [], time.time_ns()))
    assert results.text(tmp_path / ("f" * 300)) is None
    assert results.notes[0].endswith("is not there")
    (tmp_path / "no.yaml").write_text("a: !!int ''")
    assert results.yaml(tmp_path / "no.yaml") == {}
    assert results.notes[1].endswith("is not valid YAML")


@pytest.mark.parametrize("pairs", [["model.name=y", "model=x"], ["model=x", "model.name=y"]])
def test_a_name_that_is_a_value_and_a_group(tmp_path: Path, pairs: list[str]) -> None:
    """Both parameters are kept, in any order, and for each way to give parameters."""
    given = [f"++workload.{pair}" for pair in pairs]
    outcome = load("dlio").outcome(ended_now(tmp_path, ["dlio_benchmark", *given], time.time_ns()))
    assert outcome.parameters == {"model": "x", "model.name": "y"}
    argv = ["mlpstorage", "training", "run", f"--params={pairs[0]}", "--params", pairs[1]]
    assert load("training").outcome(ended_now(tmp_path, argv, time.time_ns())).parameters == outcome.parameters


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("case", "file"),
    [
        ("fio/dated", "out.json"),
        ("dlio/later-version", "out/summary.json"),
        ("dlio/later-version", "out/0_per_epoch_stats.json"),
        ("dlio/later-version", "out/0_output.json"),
        ("dlio/later-version", "out/dlio_config/config.yaml"),
        ("kv_cache/output", "kv.json"),
        ("vector_database/statistics", "runs/a/b/statistics.json"),
    ],
)
@settings(max_examples=25, deadline=None)
@given(odd=ODD, choose=st.randoms(use_true_random=False))
def test_adapters_accept_any_output(
    tmp_path_factory: pytest.TempPathFactory, case: str, file: str, odd: Any, choose: Any
) -> None:
    """Whatever replaces a part of a result file, the adapter gives an outcome that can be stored."""
    cwd = tmp_path_factory.mktemp("odd") / "cwd"
    ran = write_case(json.loads((DATA / case / "case.json").read_text()), DATA / case, cwd)
    path = cwd / file
    document = json.loads(path.read_text()) if path.exists() else {"workload": {"model": {"name": "x"}, "workflow": {}}}
    document, at = {"": copy.deepcopy(document)}, ""
    inner: Any = document
    while isinstance(inner[at], dict | list) and inner[at] and choose.random() < 0.8:
        inner = inner[at]
        at = choose.choice(sorted(inner) if isinstance(inner, dict) else range(len(inner)))
    inner[at] = odd
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document[""]))
    os.utime(path, ns=(ran.ended_ns, ran.ended_ns))
    msgspec.json.encode(load(case.partition("/")[0]).outcome(ran))
    shutil.rmtree(cwd)


def workload(*argv: str, **options: Any) -> subprocess.Popen[str]:
    """Start the built-in workload."""
    return subprocess.Popen(
        [sys.executable, "-m", "rollbook.workload", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_workload(tmp_path: Path) -> None:
    """It runs for the given time, prints a summary and leaves no files; marks without a recorder are ignored."""
    process = workload(
        "--seconds", "1", "--size", "4", "--directory", str(tmp_path), env={**os.environ, "ROLLBOOK_SOCKET": ""}
    )
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    summary = json.loads(out)
    assert [phase["name"] for phase in summary["phases"]] == ["write", "read", "small files"]
    assert all(phase["bytes"] > 0 and phase["seconds"] >= 0.33 for phase in summary["phases"])
    assert summary["phases"][2]["files"] >= 64
    assert list(tmp_path.iterdir()) == []


def test_workload_without_a_recorder(tmp_path: Path) -> None:
    """If the recorder is gone, each mark prints a message, and the workload continues."""
    process = workload(
        "--seconds",
        "1",
        "--size",
        "1",
        "--directory",
        str(tmp_path),
        env={**os.environ, "ROLLBOOK_SOCKET": str(tmp_path / "gone")},
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err.count("the collector does not answer") == 3
    assert len(json.loads(out)["phases"]) == 3


def test_workload_ended_early_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM ends it, and its files are deleted."""
    process = workload("--seconds", "60", "--size", "4", "--directory", str(tmp_path))
    until(lambda: list(tmp_path.glob("*/large")))
    process.terminate()
    process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "code"),
    [(["--seconds", "0"], 2), (["--size", "x"], 2), (["--size", "65536"], 2), (["--directory", "/nonexistent"], 1)],
)
def test_workload_rejects_invalid_options(
    tmp_path: Path, argv: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time and size have limits, the directory must exist, and the file must fit twice."""
    from rollbook import workload as module

    def little_space(path: Path) -> types.SimpleNamespace:
        path.stat()
        return types.SimpleNamespace(free=1 << 30)

    monkeypatch.setattr(sys, "argv", ["workload", "--directory", str(tmp_path), *argv])
    monkeypatch.setattr(shutil, "disk_usage", little_space)
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == code
    assert list(tmp_path.iterdir()) == []
