"""The items of issue reports: the catalogue, users' files, selection, and real runs on this machine."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from rollbook.bundle.items import EACH, OUTPUT, Item, catalogue, command_argvs, command_item, load, patterns, select
from rollbook.bundle.summary import Window
from rollbook.errors import UsageError

DATA = Path(__file__).parents[1] / "data" / "bundle"
NUMBERS = {int(number): ids for number, ids in tomllib.loads((DATA / "catalogue.toml").read_text()).items()}
IDS = {item.id: item for item in catalogue()}
# Items that support needs from a node of each type of cluster: services, disks, GPUs, logs and settings.
NEEDED = {
    "slurm": ["slurm-node", "slurm-config", "slurm-log", "nvidia-bug-report", "system-log", "kernel-log"],
    "eks": ["container-runtime", "kubelet", "kubelet-log", "kubernetes-network", "container-runtime-log"],
    "hyperpod": ["hyperpod", "hyperpod-log", "units", "space", "gpu"],
}


def test_numbers_of_the_catalogue() -> None:
    """Every number from 1 to 66 has items, and every item has a number."""
    assert sorted(NUMBERS) == list(range(1, 67))
    listed = {name for ids in NUMBERS.values() for name in ids}
    assert listed == set(IDS)


@pytest.mark.parametrize("cluster", NEEDED)
def test_items_of_each_cluster_type(cluster: str) -> None:
    """The catalogue has the items that each type of cluster needs."""
    names = {item.id for item in catalogue() if {"all", cluster} & set(item.clusters)}
    assert set(NEEDED[cluster]) <= names


@pytest.mark.parametrize("item", select(catalogue()), ids=lambda item: item.id)
def test_real_run(item: Item, tmp_path: Path) -> None:
    """Commands end within their timeout and leave no files; paths are valid patterns."""
    for path in patterns((*item.paths, *item.exclude, *item.when.paths)):
        assert "{" not in path.replace(OUTPUT, "")
        assert not any(part for part in path.split("/") if "**" in part and part != "**")
    window = Window(since=dt.datetime.now(dt.UTC) - dt.timedelta(hours=1))
    matches = [
        path.name
        for pattern in patterns([item.each] if item.each else [])
        for path in sorted(Path("/").glob(pattern[1:]))[:1]
    ]
    for argv in command_argvs(item, window):
        assert "{since}" not in " ".join(argv)
        has_each = EACH in " ".join(argv)
        if shutil.which(argv[0]) is None or (has_each and not matches):
            continue
        command = [part.replace(EACH, matches[0]) for part in argv] if has_each else list(argv)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=item.seconds + 20, check=False)
        if argv[0] == "/bin/sh":
            assert b"yntax error" not in done.stderr
            assert b"bad substitution" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_shell_commands_work_in_every_shell() -> None:
    """`/bin/sh` may be dash, bash or busybox: each can parse the commands."""
    for item in catalogue():
        for argv in command_argvs(item, Window()):
            if argv[0] == "/bin/sh":
                for shell in (["dash"], ["bash", "--posix"], ["busybox", "sh"]):
                    done = subprocess.run([*shell, "-n", "-c", argv[2]], capture_output=True, text=True, check=False)
                    assert done.returncode == 0, (item.id, shell, done.stderr)


def test_cheap_and_important_items_are_first() -> None:
    """If a bundle is interrupted early, it has the kernel log; slow items come last."""
    first = catalogue()[:10]
    assert {"kernel-log", "identity", "mounts", "memory"} <= {item.id for item in first}
    assert catalogue()[-1].seconds >= max(item.seconds for item in first)


def test_time_window() -> None:
    """Arguments with a time are filled in, or omitted without a time; shell commands are unchanged."""
    item = Item(id="x", title="x", commands=(("j", "-k", "--since={since}", "--until={until}"), "a | b '$c'"))
    since = dt.datetime(2026, 11, 16, 5, 0, tzinfo=dt.UTC)
    assert list(command_argvs(item, Window(since=since))) == [
        ("j", "-k", f"--since=@{int(since.timestamp())}"),
        ("/bin/sh", "-c", "a | b '$c'"),
    ]
    assert next(iter(command_argvs(item, Window()))) == ("j", "-k")
    assert item.has_window


def test_an_argument_with_both_ends_of_the_window() -> None:
    """Both placeholders are filled in; without one of the times the argument is left out."""
    item = Item(id="x", title="x", commands=(("j", "{since}..{until}"),))
    since, until = (dt.datetime(2026, 11, 16, hour, 0, tzinfo=dt.UTC) for hour in (5, 6))
    both = f"@{int(since.timestamp())}..@{int(until.timestamp())}"
    assert list(command_argvs(item, Window(since=since, until=until))) == [("j", both)]
    for window in (Window(since=since), Window(until=until), Window()):
        assert list(command_argvs(item, window)) == [("j",)]


def test_braces() -> None:
    """Braces expand to every combination."""
    assert list(patterns(["/a/{b,c}/{d,e}*", OUTPUT])) == ["/a/b/d*", "/a/b/e*", "/a/c/d*", "/a/c/e*", OUTPUT]


def test_users_items(tmp_path: Path) -> None:
    """A user's file may have sizes as text, and may replace an item of the catalogue."""
    path = tmp_path / "items.toml"
    path.write_text(
        '[mine]\ntitle = "Mine"\npaths = ["/var/log/mine/*.log"]\ncommands = [["a", "b"], "c | d"]\n'
        'limit = "2 MiB"\nseconds = 3\nwhen = { commands = ["a"] }\n'
        '[os]\ntitle = "Other"\npaths = ["/etc/os-release"]\n'
    )
    chosen = select([*catalogue(), *load(path)], ids=["mine", "os"])
    assert [item.title for item in chosen if item.id == "os"] == ["Other"]
    mine = next(item for item in chosen if item.id == "mine")
    assert mine.limit == 2 << 20
    assert mine.commands == (("a", "b"), "c | d")


MISTAKES = {
    '[x]\ntitle = "x"\n': r"\[x\] has neither paths nor commands",
    '[x]\ntitle = "x"\npaths = ["relative"]\n': r"\[x\] 'relative' is not an absolute path",
    '[x]\ntitle = "x"\npaths = ["/a"]\nlimit = "2 MB"\n': r"\[x\] limit: '2 MB' is not a size: use a form such as",
    '[x]\ntitle = "x"\npaths = ["/a"]\nsecond = 3\n': r"\[x\] Object contains unknown field `second`",
    '[x]\ntitle = "x"\npaths = ["/a"]\nkeep = "middle"\n': r"\[x\] keep: Invalid enum value 'middle'",
    '[x]\ntitle = "x"\ncommands = ["a {since}"]\n': r"placeholders need a list of arguments",
    '[x]\ntitle = "x"\ncommands = [["a", "{each}"]]\n': r"needs `each`",
    '[x]\ntitle = "x"\ncommands = [[]]\n': r"has an empty command",
    '[x]\ntitle = "x"\npaths = ["/a"]\nseconds = 0\n': r"`seconds` must be between",
    '["X y"]\ntitle = "x"\npaths = ["/a"]\n': r"is not a name",
    "x = 1\n": r"`x` is not a table",
    "[x\n": r"items.toml: ",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_in_users_items(text: str, tmp_path: Path) -> None:
    """The message names the file, the item and the mistake."""
    path = tmp_path / "items.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=MISTAKES[text]) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 2


def test_missing_items_file(tmp_path: Path) -> None:
    """A missing file is a usage error."""
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "none.toml")


def test_selection() -> None:
    """By id or tag, except skipped ones; items with side effects only by id; unknown names get a suggestion."""
    names = [item.id for item in select(catalogue(), tags=["gpu"], skip=["gpu-services"])]
    assert "gpu" in names
    assert "gpu-services" not in names
    assert "nvidia-bug-report" not in {item.id for item in select(catalogue())}
    assert "nvidia-bug-report" in {item.id for item in select(catalogue(), ids=["nvidia-bug-report"])}
    with pytest.raises(UsageError, match=r"no item 'kernal-log'; did you mean kernel-log"):
        select(catalogue(), ids=["kernal-log"])
    with pytest.raises(UsageError, match=r"no tag 'gpus'; did you mean gpu"):
        select(catalogue(), tags=["gpus"])
    with pytest.raises(UsageError, match="all items were excluded"):
        select(catalogue(), ids=["os"], skip=["os"])


def test_users_commands_are_unchanged() -> None:
    """The shell gets pipes and quotes as typed."""
    item = command_item(2, "ps aux | grep 'a b' && echo \"$HOME\"")
    assert item.id == "command-2"
    assert list(command_argvs(item, Window())) == [("/bin/sh", "-c", "ps aux | grep 'a b' && echo \"$HOME\"")]
