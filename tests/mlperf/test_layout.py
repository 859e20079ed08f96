"""`run --layout mlpstorage`: the files of the wrapped tool do not change, and readers find exactly its runs."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rollbook
from rollbook.api.checking import check_results
from rollbook.errors import RecordError
from rollbook.mlperf.export import export_mlpstorage
from rollbook.mlperf.result_directory import Placement, _move, is_result_directory
from rollbook.mlpstorage import get_runs_files
from rollbook.records import reading
from rollbook.records.document import encode
from rollbook.records.locate import locate_record
from rollbook.records.record import Record, RecordHosts
from tests.support.commands import ROLLBOOK, Rollbook

OPTIONS = ["--type", "training", "--layout", "mlpstorage", "--skip-timeseries", "--no-report", "--results-dir"]
TREE = "closed/Acme/results/sys1/training/unet3d/run"
# A stub of the tool, which creates result directories and prints the hash of each file.
TOOL = """#!{python}
import hashlib, json, pathlib, sys, time
root = pathlib.Path(sys.argv[sys.argv.index("--results-dir") + 1]).absolute()
for delay in sys.argv[sys.argv.index("--delays") + 1].split(","):
    if not delay:
        continue
    time.sleep(float(delay))
    stamp = time.strftime("%Y%m%d_%H%M%S")
    leaf = root / "{tree}" / stamp
    leaf.mkdir(parents=True)
    (leaf / "dlio_config").mkdir()
    files = {{
        f"training_{{stamp}}_metadata.json": json.dumps({{
            "benchmark_type": "training", "model": "unet3d", "command": "run", "run_datetime": stamp,
            "num_processes": 4, "accelerator": "b200", "parameters": {{"reader": {{"batch_size": 7}}}},
            "override_parameters": {{"reader.read_threads": 8}}, "args": {{"hosts": ["n1"]}},
        }}),
        "summary.json": json.dumps({{"end": "x", "num_accelerators": 4, "metric": {{"train_au_mean_percentage": 9}}}}),
        "training_run.stdout.log": "out",
        "dlio_config/config.yaml": "workload: {{model: {{name: unet3d}}}}",
        "dlio_config/overrides.yaml": "[]",
        "dlio_config/hydra.yaml": "{{}}",
        "0_output.json": "{{}}",
    }}
    for name, text in files.items():
        (leaf / name).write_text(text)
        print(hashlib.sha256(text.encode()).hexdigest(), leaf / name)
sys.exit({code})
"""


def tool(directory: Path, name: str = "mlpstorage", code: int = 0) -> Path:
    """Write the stub of the tool."""
    path = directory / name
    path.write_text(TOOL.format(python=sys.executable, tree=TREE, code=code))
    path.chmod(0o755)
    return path


def run(directory: Path, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Rollbook around a command in a directory."""
    command = [*ROLLBOOK, "run", *OPTIONS, "results", "--", *argv]
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def unchanged_directories(output: str) -> list[Path]:
    """Assert that no file that the tool printed has changed; returns the result directories."""
    lines = [line.split(" ", 1) for line in output.splitlines()]
    for digest, name in lines:
        done = subprocess.run(["sha256sum", name], capture_output=True, text=True, check=True)
        assert done.stdout.split()[0] == digest, name
    return sorted({Path(name).parent for _, name in lines if Path(name).parent.name != "dlio_config"})


@pytest.mark.parametrize("delay", ["0", "1.2"])
def test_record_is_moved_into_the_tools_directory(tmp_path: Path, delay: str) -> None:
    """Whether the tool starts in the same second or later, there is one run, and its directory opens as the record."""
    done = run(tmp_path, str(tool(tmp_path)), "training", "run", "--results-dir", "results", "--delays", delay)
    assert done.returncode == 0, done.stderr
    (leaf,) = unchanged_directories(done.stdout)
    found = get_runs_files(tmp_path / "results")
    assert [item.data.result_dir for item in found] == [str(leaf)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlpstorage", "results"], "no staging directory is left"
    assert {path.name for path in leaf.iterdir() if "rollbook" in path.name} == {"rollbook"}
    unsafe = ("summary.json", "output.json", "per_epoch_stats.json", "results.json")
    for path in (leaf / "rollbook").rglob("*"):
        assert "metadata" not in path.name
        assert not path.name.endswith(unsafe)
    record = rollbook.open_record(leaf)
    assert record.path == leaf / "rollbook"
    assert record.metadata["num_processes"] == 4
    assert record.metadata["override_parameters"] == {"reader.read_threads": 8}
    assert record.metadata["args"] != {}
    assert rollbook.verify(leaf).problems == []
    assert rollbook.check(leaf).round
    assert rollbook.query(leaf, "SELECT count(*) AS hosts FROM hosts") == [{"hosts": 1}]
    assert "clients:" in rollbook.describe(leaf)
    rollbook.recover(leaf)
    assert unchanged_directories(done.stdout)
    exported = rollbook.export(leaf, tmp_path / "export", "mlpstorage")
    names = {str(path.relative_to(tmp_path / "export")) for path in exported}
    assert {"summary.json", "0_output.json", "dlio_config/config.yaml", "dlio_config/overrides.yaml"} <= names
    assert (tmp_path / "export" / "training_run.stdout.log").read_text() == "out", "the log of the tool, not its output"
    tree = check_results(tmp_path / "results")
    assert tree is not None
    assert "mlperf-run-count" in {rule.id for group in tree.groups for rule in group.rules}, (
        "one run is not a submission"
    )
    assert check_results(leaf) is None, "the record itself"


def test_record_is_copied_to_another_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy appears when it is complete, and is synced before the record is removed; an existing target stays."""
    record, target = tmp_path / "record", tmp_path / "results" / "rollbook"
    (record / "raw").mkdir(parents=True)
    target.parent.mkdir()
    (record / "raw" / "1.seg").write_bytes(b"journal")
    (record / "stdout.log").write_bytes(b"log")
    synced: set[Path] = set()

    rename_here = Path.rename

    def rename(path: Path, to: Path) -> None:
        if path == record:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(path), None, str(to))
        assert (path / "raw" / "1.seg").read_bytes() == b"journal"
        rename_here(path, to)

    def fsync(descriptor: int) -> None:
        assert (record / "raw" / "1.seg").exists()
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(os, "fsync", fsync)
    _move(record, target)
    assert synced == {target.parent, target, *target.rglob("*")}
    assert list(target.parent.iterdir()) == [target]
    assert (target / "raw" / "1.seg").read_bytes() == b"journal"
    assert not record.exists()
    with pytest.raises(FileExistsError):
        _move(tmp_path / "another", target)


@pytest.mark.parametrize(
    ("delays", "code", "message"),
    [("0,1.2", 0, "created 2 result directories"), ("", 1, "created no result directory")],
)
def test_record_stays_outside_without_a_unique_directory(tmp_path: Path, delays: str, code: int, message: str) -> None:
    """With two result directories or none, the record stays outside, and readers find exactly the tool's runs."""
    path = tool(tmp_path, code=code)
    done = run(tmp_path, str(path), "training", "run", "--results-dir", "results", "--delays", delays)
    assert done.returncode == code
    assert message in done.stderr
    assert f"the record is in {tmp_path / 'results.rollbook'}/" in done.stderr
    made = unchanged_directories(done.stdout)
    assert len(get_runs_files(tmp_path / "results")) == len(made) == (2 if delays else 0)
    assert not list((tmp_path / "results").rglob("rollbook"))
    record = locate_record(tmp_path / "results.rollbook")
    assert Record.open(record).metadata["exit_code"] == code


def test_a_script_that_calls_the_tool(tmp_path: Path) -> None:
    """The result directory is found because it is new, not by the name of the command."""
    path = tool(tmp_path, name="run-all")
    done = run(
        tmp_path, str(path), "--results-dir", "results", "--delays", "0",
        MLPSTORAGE_ORGNAME="Acme", MLPSTORAGE_SYSTEMNAME="sys1",
    )  # fmt: skip
    assert done.returncode == 0
    assert "only the command itself can create a result directory" in done.stderr, "printed before the command starts"
    (leaf,) = unchanged_directories(done.stdout)
    assert Record.open(leaf / "rollbook").metadata["exit_code"] == 0


def test_a_command_without_its_result_directory_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rollbook: Rollbook
) -> None:
    """A command other than the tool needs the environment variables and the type before it starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLPSTORAGE_ORGNAME", "Acme")
    monkeypatch.delenv("MLPSTORAGE_SYSTEMNAME", raising=False)
    done = rollbook("run", *OPTIONS, "results", "--", "touch", "started")
    assert done.code == 2
    assert "needs MLPSTORAGE_SYSTEMNAME in the environment, unless the command is mlpstorage" in done.err
    done = rollbook("run", "--layout", "mlpstorage", "--", "touch", "started")
    assert done.code == 2
    assert "has no place for 'generic', only for: training" in done.err
    assert list(tmp_path.iterdir()) == []


DLIO = """#!{python}
import json, pathlib, sys
out = pathlib.Path("hydra") / "run"
(out / "dlio_config").mkdir(parents=True)
(out / "dlio_config" / "config.yaml").write_text("workload: {{model: {{name: unet3d}}, reader: {{batch_size: 7}}}}")
(out / "dlio_config" / "overrides.yaml").write_text("[]")
(out / "dlio_config" / "hydra.yaml").write_text("{{}}")
(out / "summary.json").write_text(json.dumps({{"end": "x", "num_accelerators": 2, "num_hosts": 1, "metric": {{}}}}))
(out / "0_output.json").write_text('{{"hostname": "n1"}}')
(out / "1_output.json").write_text('{{"hostname": "n1"}}')
(out / "0_per_epoch_stats.json").write_text("{{}}")
(out / "dlio.log").write_text("log")
print("hello")
"""


def dlio(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run Rollbook around DLIO itself."""
    path = directory / "dlio_benchmark"
    path.write_text(DLIO.format(python=sys.executable))
    path.chmod(0o755)
    argv = [str(path), "workload=unet3d_b200", "++workload.dataset.data_folder=/data"]
    return run(directory, *argv, MLPSTORAGE_ORGNAME="Acme", MLPSTORAGE_SYSTEMNAME="sys1")


def test_a_complete_result_directory(tmp_path: Path) -> None:
    """For another command than the tool, Rollbook creates the directory: DLIO's files, logs, the tool's keys."""
    done = dlio(tmp_path)
    assert done.returncode == 0, done.stderr
    (found,) = get_runs_files(tmp_path / "results")
    leaf = Path(str(found.data.result_dir))
    assert leaf.parent == tmp_path / "results" / "open/Acme/results/sys1/training/unet3d/run"
    names = {str(path.relative_to(leaf)) for path in leaf.rglob("*") if path.is_file()}
    assert {
        "summary.json", "0_output.json", "1_output.json", "0_per_epoch_stats.json", "dlio.log",
        "dlio_config/config.yaml", "dlio_config/overrides.yaml", "dlio_config/hydra.yaml", "training_run.stdout.log",
        "training_run.stderr.log", "hosts.json", "manifest.json",
    } <= names  # fmt: skip
    assert "stdout.log" not in names
    assert (leaf / "training_run.stdout.log").read_text() == "hello\n"
    metadata: dict[str, Any] = json.loads(next(leaf.glob("*_metadata.json")).read_bytes())
    assert metadata["args"]["data_dir"] == "/data"
    assert "timeseries_interval" not in metadata["args"]
    assert metadata["rollbook_args"]["layout"] == "mlpstorage"
    assert metadata["command_output_files"][0]["stdout"] == "training_run.stdout.log"
    assert (metadata["num_processes"], metadata["accelerator"], metadata["model"]) == (2, "b200", "unet3d")
    assert rollbook.verify(leaf).problems == []
    again = rollbook.recover(leaf)
    assert again.metadata["command_output_files"] == metadata["command_output_files"]
    assert again.metadata["dlio_summary"]["num_accelerators"] == 2
    assert is_result_directory(leaf, "training")
    assert not is_result_directory(tmp_path / "results.rollbook/training/20260801_120000", "training")


def test_export_has_all_result_files(tmp_path: Path) -> None:
    """In Rollbook's own layout, result files stay where DLIO wrote them; the export has all of them."""
    path = tmp_path / "dlio_benchmark"
    path.write_text(DLIO.format(python=sys.executable))
    path.chmod(0o755)
    options = ["--type", "training", "--skip-timeseries", "--no-report", "--results-dir", "results"]
    command = [*ROLLBOOK, "run", *options, "--", str(path), "workload=unet3d_b200"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    exported = rollbook.export(tmp_path / "results", tmp_path / "out", "mlpstorage")
    names = {str(one.relative_to(tmp_path / "out")) for one in exported}
    assert {
        "summary.json", "0_output.json", "1_output.json", "0_per_epoch_stats.json", "dlio.log",
        "dlio_config/config.yaml", "dlio_config/overrides.yaml", "dlio_config/hydra.yaml", "training_run.stdout.log",
        "training_run.stderr.log",
    } <= names  # fmt: skip
    assert "stdout.log" not in names
    metadata = json.loads(next((tmp_path / "out").glob("*_metadata.json")).read_bytes())
    (logs,) = metadata["command_output_files"]
    assert (logs["stdout"], logs["stderr"]) == ("training_run.stdout.log", "training_run.stderr.log")
    assert len(get_runs_files(tmp_path / "out")) == 1


def write_record(path: Path, **metadata: Any) -> Record:
    """Write a record without hosts, with these metadata."""
    path.mkdir(parents=True)
    (path / "hosts.json").write_bytes(encode(RecordHosts(started_ns=0, ended_ns=0)))
    document = {"benchmark_type": "training", "run_datetime": "20260801_120000", **metadata}
    (path / "training_20260801_120000_metadata.json").write_text(json.dumps(document))
    return Record.open(path)


def test_export_has_the_files_that_the_adapter_read(tmp_path: Path) -> None:
    """Also DLIO's `output.json` of a single rank, and the KV cache's report under a name that readers know."""
    files = {"out/output.json": "{}", "out/cache.json": '{"a": 1}', "out/kv_cache_1_metadata.json": "{}"}
    (tmp_path / "out").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    record = write_record(
        tmp_path / "record", benchmark_type="kv_cache", result_files=[str(tmp_path / name) for name in files]
    )
    written = {path.name for path in export_mlpstorage(record, tmp_path / "export")}
    assert written == {"kv_cache_20260801_120000_metadata.json", "output.json", "kvcache_results_cache.json"}
    assert (tmp_path / "export" / "kvcache_results_cache.json").read_text() == '{"a": 1}'


@pytest.mark.parametrize("listed", [5, {"a": 1}, [1, None], "summary.json", None])
def test_result_files_of_a_wrong_type_are_ignored(tmp_path: Path, listed: Any) -> None:
    """What is not a list of paths names no file."""
    record = write_record(tmp_path / "record", result_files=listed)
    assert len(export_mlpstorage(record, tmp_path / "export")) == 1


def test_export_of_a_foreign_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files below the record are copied; files elsewhere, also behind a link, only for a record of our own."""
    victim = tmp_path / "victim" / "config.yaml"
    victim.parent.mkdir()
    victim.write_text("secret")
    direct = write_record(tmp_path / "direct", result_files=[str(victim)])
    linked = write_record(tmp_path / "linked", result_files=[str(tmp_path / "linked" / "more" / "config.yaml")])
    (tmp_path / "linked" / "more").symlink_to(victim.parent)
    plain = write_record(tmp_path / "plain", result_files=[str(tmp_path / "plain" / "more" / "config.yaml")])
    (tmp_path / "plain" / "more").mkdir()
    (tmp_path / "plain" / "more" / "config.yaml").write_text("own")
    export_mlpstorage(direct, tmp_path / "own")
    assert (tmp_path / "own" / "dlio_config" / "config.yaml").read_text() == "secret"
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    for number, record in enumerate((direct, linked)):
        with pytest.raises(RecordError, match="files outside of it are not exported"):
            export_mlpstorage(record, tmp_path / str(number))
        assert not (tmp_path / str(number) / "dlio_config").exists()
    export_mlpstorage(plain, tmp_path / "plain-export")
    assert (tmp_path / "plain-export" / "dlio_config" / "config.yaml").read_text() == "own"


@pytest.mark.parametrize("name", ["summary.json", "stdout.log", "dlio_config/config.yaml"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_export_reads_only_regular_files(tmp_path: Path, name: str, kind: str) -> None:
    """A link beside the record is not followed, a FIFO does not block; the message names the file."""
    record = write_record(tmp_path / "record")
    path = tmp_path / "record" / name
    path.parent.mkdir(exist_ok=True)
    (tmp_path / "victim").write_text("secret")
    path.symlink_to(tmp_path / "victim") if kind == "link" else os.mkfifo(path)
    with pytest.raises(RecordError, match=re.escape(name)):
        export_mlpstorage(record, tmp_path / "export")


@pytest.mark.parametrize("name", ["\0/summary.json", "fifo/summary.json", "large/summary.json", "gone/summary.json"])
def test_listed_files_that_cannot_be_copied(tmp_path: Path, name: str) -> None:
    """A NUL character, a FIFO, a file beyond the limit and one that is gone are errors, not a crash or a hang."""
    for kind in ("fifo", "large"):
        (tmp_path / kind).mkdir()
    os.mkfifo(tmp_path / "fifo" / "summary.json")
    with (tmp_path / "large" / "summary.json").open("wb") as file:
        file.truncate(reading.LARGEST + 1)
    record = write_record(tmp_path / "record", result_files=[f"{tmp_path}/{name}"])
    with pytest.raises(RecordError, match="cannot copy to"):
        export_mlpstorage(record, tmp_path / "export")


def test_a_result_directory_that_cannot_be_created(tmp_path: Path) -> None:
    """The record stays where it is, with a message; nothing is raised after the command has run."""
    results = tmp_path / "results"
    environment = {"MLPSTORAGE_ORGNAME": "Acme", "MLPSTORAGE_SYSTEMNAME": "sys1"}
    placement = Placement(results, "training", ["dlio_benchmark", "workload=unet3d_b200"], environment)
    record = placement.staging / "training" / "20260801_120000"
    record.mkdir(parents=True)
    results.write_text("a file where the directory should be")
    assert placement.place(record) == record
    assert placement.message.endswith("/training/unet3d/run: Not a directory")


def test_existing_record_is_not_replaced(tmp_path: Path) -> None:
    """If the result directory has an earlier record, the new one stays where it is, with a message."""
    results = tmp_path / "results"
    placement = Placement(results, "training", ["mlpstorage", "--results-dir", str(results)], {})
    record = placement.staging / "training" / "20260801_120000"
    record.mkdir(parents=True)
    taken = results / TREE / "20260801_120001" / "rollbook"
    taken.mkdir(parents=True)
    assert placement.place(record) == record
    assert placement.message.endswith(f"could not be moved to its result directory: {taken}: File exists")
    assert list(taken.iterdir()) == []
