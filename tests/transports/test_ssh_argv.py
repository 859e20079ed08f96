"""The command line of ssh, and how its error messages are classified, with a stub in place of `ssh`."""

from __future__ import annotations

import asyncio
import os
import re
import textwrap
from pathlib import Path

import msgspec
import pytest

from rollbook.collect.gather import gather
from rollbook.errors import HostListError, UsageError
from rollbook.hosts import Host, parse_hosts
from rollbook.protocol.plan import Plan
from rollbook.records.hosts import HostResult
from rollbook.transports.routing import Options, explain_auto, fallback_route, route
from rollbook.transports.ssh import FAILURES

CASES = sorted((Path(__file__).parents[1] / "data" / "ssh").glob("*.json"))
STUB = """\
    #!/usr/bin/python3
    import json, os, sys
    json.dump(sys.argv, open(os.environ["STUB"] + "/argv", "w"))
    output = json.load(open(os.environ["STUB"] + "/output"))
    sys.stdout.write(output["stdout"])
    sys.stderr.write(output["stderr"])
    sys.exit(output["code"])
"""


class Output(msgspec.Struct, forbid_unknown_fields=True):
    """The output of one version of ssh, and its exit status."""

    by: str
    stderr: str
    stdout: str = ""
    code: int = 255


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """A failure: its status and reason, and the output of several versions of ssh."""

    status: str
    reason: str
    said: list[Output]


def cases() -> list[tuple[Case, Output]]:
    """Every case with each of its outputs."""
    found = [msgspec.json.decode(path.read_bytes(), type=Case) for path in CASES]
    return [(case, output) for case in found for output in case.said]


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is first in PATH, with an `ssh` that writes its arguments there."""
    program = tmp_path / "ssh"
    program.write_text(textwrap.dedent(STUB))
    program.chmod(0o755)
    (tmp_path / "output").write_bytes(msgspec.json.encode(Output("stub", "ssh: connect: Connection refused\r\n")))
    monkeypatch.setenv("STUB", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def reach(host: Host, options: Options, timeout: float = 60.0) -> HostResult:
    """Try to read one host."""
    return asyncio.run(gather([host], route(options), Plan(()), timeout=timeout))[0]


def argv_of(stub: Path, host: Host, **options: object) -> list[str]:
    """The arguments of the stub."""
    reach(host, Options.of(via="ssh", **options))  # type: ignore[arg-type]
    return msgspec.json.decode((stub / "argv").read_bytes(), type=list[str])


def test_no_prompt_no_forwarding_no_terminal(stub: Path) -> None:
    """Every connection has these options, whatever the user's configuration is."""
    argv = argv_of(stub, Host("node1"))
    options = {argv[at + 1] for at, word in enumerate(argv) if word == "-o"}
    assert {
        "BatchMode=yes",
        "ClearAllForwardings=yes",
        "RemoteCommand=none",
        "PermitLocalCommand=no",
    } <= options
    assert {"-T", "-x", "-a"} <= set(argv)
    assert argv[-3:-1] == ["--", "node1"]
    assert argv[-1].startswith("exec sh -c '")
    assert not any(re.match("(Ciphers|MACs|KexAlgorithms|HostKeyAlgorithms)=", option) for option in options)


def test_users_options_come_first(stub: Path) -> None:
    """OpenSSH uses the first value of an option, so the user's options come before ours."""
    argv = argv_of(stub, Host("node1"), ssh_options=("BatchMode=no", "Port=2222"), ssh_config="/dev/null")
    assert argv[3:7] == ["-o", "BatchMode=no", "-o", "Port=2222"]
    assert argv.index("BatchMode=no") < argv.index("BatchMode=yes")


@pytest.mark.parametrize(
    ("host", "ssh_user", "user"),
    [
        (Host("node1"), None, None),
        (Host("node1"), "ann", "ann"),
        (Host("node1", user="bob"), "ann", "bob"),
        (Host("2001:db8::1"), "ann", "ann"),
    ],
)
def test_user(stub: Path, host: Host, ssh_user: str | None, user: str | None) -> None:
    """A host's own user overrides `--ssh-user`; without either, ssh's configuration decides."""
    argv = argv_of(stub, host, ssh_user=ssh_user)
    assert (argv[argv.index("-l") + 1] if "-l" in argv else None) == user
    assert argv[-2] == host.name


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """In containers a user id may have no name: this machine is still local, and a named user is another user."""

    def getuser() -> str:
        raise error("uid not found")

    monkeypatch.setattr("getpass.getuser", getuser)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert route(Options())(Host("here", local=True)).name == "local"
    assert route(Options())(Host("here", local=True, user="ann")).name == "ssh"
    assert route(Options.of(ssh_user="ann"))(Host("here", local=True)).name == "ssh"


def test_ssh_times_out_before_the_host(stub: Path) -> None:
    """The timeout of ssh is below ours, so that the reason is that of ssh."""
    for timeout, expected in ((60.0, 10), (6.0, 4), (0.5, 1)):
        argv = argv_of(stub, Host("node1"), timeout=timeout)
        assert f"ConnectTimeout {expected}\n" in Path(argv[argv.index("-F") + 1]).read_text()


@pytest.mark.parametrize("name", ["-oProxyCommand=id", "a;id", "$(id)", "a'b", "a\x1bb"])
def test_invalid_host_names(name: str) -> None:
    """Names that could be an option or shell code are refused before ssh starts."""
    with pytest.raises(HostListError):
        parse_hosts([name])


@pytest.mark.parametrize(("case", "output"), cases(), ids=lambda part: getattr(part, "by", None) or part.status)
def test_error_messages_of_ssh(stub: Path, case: Case, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every error message determines the host's status and reason; only a busy sshd is retried."""
    monkeypatch.setattr("rollbook.collect.gather.busy_pauses", lambda: iter([0.01, 1e9]))
    (stub / "output").write_bytes(msgspec.json.encode(output))
    result = reach(Host("node1"), Options.of(via="ssh"), timeout=60)
    assert result.status == case.status
    assert re.search(case.reason, result.reason), result.reason
    assert "\n" not in result.reason
    assert "\r" not in result.reason
    assert bool(result.attempts) == ("MaxStartups" in case.reason)


@pytest.mark.parametrize("pattern", [pattern for pattern, _, _ in FAILURES])
def test_every_failure_pattern_has_a_case(pattern: str) -> None:
    """Every pattern is the first match of at least one recorded error message."""
    firsts = [next((row for row, _, _ in FAILURES if re.search(row, output.stderr)), None) for _, output in cases()]
    assert pattern in firsts


def test_ssh_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an ssh program the host fails with that reason."""
    monkeypatch.setenv("PATH", str(tmp_path))
    result = reach(Host("node1"), Options.of(via="ssh"))
    assert (result.status, result.reason) == ("failed", "cannot run ssh: No such file or directory")


@pytest.mark.parametrize("code", [1, 255])
def test_long_error_messages_are_truncated(stub: Path, code: int) -> None:
    """The reason has only the start of a very long line."""
    (stub / "output").write_bytes(
        msgspec.json.encode(Output("a shell", "sh: syntax error near " + "x" * 10_000, code=code))
    )
    reason = reach(Host("node1"), Options.of(via="ssh")).reason
    assert "syntax error near xxx" in reason
    assert reason.endswith("…")
    assert len(reason) < 400


@pytest.mark.parametrize("via", ["ssh", "local", "auto"])
@pytest.mark.parametrize("python", ["py'thon", "python3; id", "/opt/my python", "$(id)", "a\nb", ""])
def test_unsafe_python_paths(via: str, python: str) -> None:
    """A `--python` that a shell would change is refused before anything is started."""
    with pytest.raises(UsageError, match="--python"):
        route(Options.of(via=via, python=python))


def test_description_of_the_chosen_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of hosts is singular or plural."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert "ssh for 1 host (" in explain_auto(Options(), [Host("node1")])
    assert "ssh for 2 hosts (" in explain_auto(Options(), [Host("node1"), Host("node2")])


@pytest.mark.parametrize("transport", ["slurm", "mpi"])
def test_launchers_cannot_be_a_fallback(transport: str) -> None:
    """A fallback retries single hosts; a launcher starts all of its hosts together."""
    with pytest.raises(UsageError, match="fallback"):
        fallback_route(Options.of(fallback=transport))
