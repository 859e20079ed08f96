"""Atomic writes: complete or not at all, private, and never through a symlink."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from rollbook.errors import RecordError
from rollbook.files import (
    BY_UMASK,
    atomic_file,
    atomic_path,
    output_path,
    remove_leftovers,
    temporary_directory,
    write_file,
)


def test_file_is_private_with_any_umask(tmp_path: Path) -> None:
    """Mode 0600 by default; on request the umask decides."""
    before = os.umask(0)
    try:
        write_file(tmp_path / "a", b"1")
        write_file(tmp_path / "b", b"1", mode=BY_UMASK)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o666


def test_symlink_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """Neither a symlink at the target nor a planted one at a temporary name is followed."""
    (tmp_path / "victim").write_bytes(b"untouched")
    (tmp_path / "a").symlink_to("victim")
    (tmp_path / ".a.part").symlink_to("victim")  # the temporary name of earlier versions
    write_file(tmp_path / "a", b"new")
    assert (tmp_path / "victim").read_bytes() == b"untouched"
    assert (tmp_path / "a").read_bytes() == b"new"
    assert not (tmp_path / "a").is_symlink()


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    """After an exception in the block or a system error, the directory is unchanged."""
    write_file(tmp_path / "a", b"old")
    with pytest.raises(ZeroDivisionError), atomic_file(tmp_path / "a") as file:
        file.write(b"%d" % (1 // 0))
    with pytest.raises(RecordError, match=r"cannot write .*/a: No space left"), atomic_file(tmp_path / "a"):
        raise OSError(28, "No space left on device")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    with pytest.raises(RecordError, match=r"cannot write .*missing/a: No such file or directory"):
        write_file(tmp_path / "missing" / "a", b"")


def test_file_and_directory_are_synced_before_and_after_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is synced before the rename, and the directory after it."""
    events: list[str] = []

    def fsync(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().name[:3])

    def replace(path: Path, target: Path) -> None:
        events.append("rename")
        path.rename(target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    (tmp_path / "dir").mkdir()
    write_file(tmp_path / "dir" / "a", b"1")
    assert events == [".a.", "rename", "dir"]


def test_duckdb_writes_into_the_private_file(tmp_path: Path) -> None:
    """DuckDB writes into the file that was created for it, and creates no other."""
    with atomic_path(tmp_path / "t.parquet") as temporary:
        inode = temporary.stat().st_ino
        duckdb.execute(f"COPY (SELECT 1) TO '{temporary}' (FORMAT parquet, USE_TMP_FILE false)")
    found = (tmp_path / "t.parquet").stat()
    assert (found.st_ino, found.st_mode & 0o777) == (inode, 0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_named_output_is_written_into_unless_it_is_a_regular_file(tmp_path: Path) -> None:
    """Links are followed, devices stay, and a device that is full is an error."""
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "file").write_bytes(b"old")
    inode = (tmp_path / "file").stat().st_ino
    for name in ("link", "file", "new"):
        with output_path(tmp_path / name) as path:
            write_file(path, b"content")
        assert (tmp_path / name).read_bytes() == b"content"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").stat().st_ino != inode
    with (
        pytest.raises(RecordError, match="cannot write /dev/full: No space left"),
        output_path(Path("/dev/full")) as path,
    ):
        write_file(path, b"content")


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    """Only files with our temporary names are removed."""
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / ".a.parquet.0123456789abcdef.part").touch()
    (tmp_path / "kept.part").touch()
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.rglob("*")} == {"series", "kept.part"}


def test_directories_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Directories of living processes and of other programs stay, regardless of age."""
    code = "import sys, time; from pathlib import Path; from rollbook.files import temporary_directory\n"
    code += "with temporary_directory(Path(sys.argv[1])) as path: print(path, flush=True); time.sleep(600)"
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        dead, living = (Path(process.stdout.readline().strip()) for process in started if process.stdout)
        (dead / "marks").touch()
        started[0].kill()
        started[0].wait()
        (tmp_path / "rollbook-other").mkdir()
        for path in tmp_path.iterdir():
            os.utime(path, (0, 0))
        with temporary_directory(tmp_path) as own:
            assert set(tmp_path.iterdir()) == {living, own, tmp_path / "rollbook-other"}
            assert own.stat().st_mode & 0o777 == 0o700
        assert not own.exists()
    finally:
        for process in started:
            process.kill()
            process.communicate()
