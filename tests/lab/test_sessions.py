"""Terminal sessions in tmux, as a user types and sees them: each case is a folder of `tests/data/sessions`.

`session.toml` has the steps, `screen.txt` what the terminal shows at the end, normalised. After an intended change of
the output, `REGENERATE=1 scripts/test tests/lab/test_sessions.py` writes the screens again; read the difference.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from rollbook.records.document import Snapshot, encode
from rollbook.testing import Lab
from tests.support.records import host_results
from tests.support.transcripts import normalised
from tests.support.waits import until

pytestmark = pytest.mark.needs("tmux", "fio")

DATA = Path(__file__).parents[1] / "data" / "sessions"
PATIENCE = 90  # seconds; the machine may be busy
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


class Session(msgspec.Struct, forbid_unknown_fields=True):
    """One case.

    A step is a command to type (`$ …`), the start of a line to wait for (`until …`), keys to press (`keys C-c`), or
    what happens to a host of the lab (`kill_sshd node03`). `cut` are regular expressions for what to leave out of the
    screen, such as the output of another program. With `colours`, the screen has its escape sequences. `cluster` are
    the facts of hosts in the snapshot `cluster.json`.
    """

    about: str
    steps: list[str]
    columns: int = 80
    environment: dict[str, str] = {}
    cut: list[str] = []
    colours: bool = False
    cluster: dict[str, dict[str, object]] = {}


class Tmux:
    """A tmux server of our own."""

    def __init__(self, directory: Path) -> None:
        self._base = ["tmux", "-S", str(directory / "tmux"), "-f", os.devnull]

    def __call__(self, *argv: str) -> str:
        """Run a tmux command; returns its output."""
        done = subprocess.run(
            [*self._base, *argv], capture_output=True, text=True, check=False, timeout=PATIENCE, env=ENVIRONMENT
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def open(self, name: str, columns: int, directory: Path, environment: Mapping[str, str]) -> None:
        """A window with a shell, which signals the channel `name` at each prompt."""
        ready = shlex.join([*self._base, "wait-for", "-S", name])
        variables = {**environment, "PS1": "$ ", "PROMPT_COMMAND": ready}
        pairs = [word for key, value in variables.items() for word in ("-e", f"{key}={value}")]
        size = ("-x", str(columns), "-y", "60", "-c", str(directory))
        self("new-session", "-d", "-s", name, *size, *pairs, "bash", "--norc", "--noprofile", "--noediting")

    def wait_for_prompt(self, name: str) -> None:
        """Wait for the prompt: the shell signals the channel just before it prints it."""
        self("wait-for", name)
        until(lambda: self("capture-pane", "-p", "-t", name).rstrip().endswith("$"), PATIENCE)


def has_text(tmux: Tmux, shown: list[str], text: str) -> bool:
    """Whether a line of the screen starts with this text; the command that prints it has it in the middle of a line."""
    return f"\n{text}" in tmux(*shown)


@pytest.fixture(scope="module")
def tmux(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tmux]:
    """One server for all cases."""
    server = Tmux(tmp_path_factory.mktemp("tmux"))
    server("new-session", "-d", "-s", "first")
    yield server
    server("kill-server")


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.iterdir()))
def test_session(name: str, tmux: Tmux, lab: Lab, tmp_path: Path) -> None:
    """The terminal shows at the end what the case expects, apart from numbers and times."""
    session = msgspec.toml.decode((DATA / name / "session.toml").read_bytes(), type=Session)
    if session.cluster:
        hosts = host_results(session.cluster)
        (tmp_path / "cluster.json").write_bytes(encode(Snapshot.of("2026-08-01T00:00:00Z", hosts)))
    environment = {"ROLLBOOK_SSH_CONFIG": str(lab.ssh_config), "HOME": str(tmp_path), **session.environment}
    tmux.open(name, session.columns, tmp_path, environment)
    # -J: a line that the terminal wraps, such as a long name of a processor, stays one line.
    shown = ["capture-pane", "-p", "-J", *(["-e"] if session.colours else []), "-S", "-", "-t", name]
    for step in session.steps:
        verb, _, rest = step.partition(" ")
        if verb == "$":
            tmux.wait_for_prompt(name)
            tmux("send-keys", "-t", name, "-l", rest)
            tmux("send-keys", "-t", name, "Enter")
        elif verb == "until":
            until(functools.partial(has_text, tmux, shown, rest), PATIENCE)
        elif verb == "keys":
            tmux("send-keys", "-t", name, rest)
        else:
            getattr(lab[rest], verb)()
    tmux.wait_for_prompt(name)
    screen = tmux(*shown).rstrip().removesuffix("$")
    for pattern in session.cut:
        screen = re.sub(pattern, "", screen)
    golden = DATA / name / "screen.txt"
    if os.environ.get("REGENERATE"):
        golden.write_text(normalised(screen))
    assert normalised(screen) == golden.read_text()
