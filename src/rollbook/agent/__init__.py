"""The program that runs on a host: its text as it is sent, and the command lines that start it."""

from __future__ import annotations

import base64
import functools
import importlib.util
import marshal
import re
import types
import zlib
from importlib import resources

__all__ = [
    "BOOTSTRAP",
    "NEED_SHELL",
    "TOKEN",
    "extension",
    "launched_argv",
    "packed",
    "payload",
    "remote_command",
    "stand_in",
    "text",
]

MODULES = (
    "wire",
    "secure",
    "redaction",
    "reading",
    "source",
    "children",
    "fact_children",
    "sample_children",
    "command",
    "loop",
    "agent",
)
# Sent only for issue reports.
EXTENSION = (
    *("secret_names", "spans", "redactor", "outgoing", "matching", "log_window", "item_timeout"),
    *("item_program", "item_reader", "evidence"),
)
# A regular expression because parsing the modules takes as long as a host takes to answer; a test compares both.
COMMENTS = r"^ *# .*|  # .*$"
REMOVED = r'^( *)(?:r?"""[\s\S]*?"""|from rollbook\S+ import (?:\([\s\S]*?\)|.*))$'

# No quote, backslash, dollar or exclamation mark: it passes through any login shell unchanged. A Python older than
# 3.6 executes the program named after the agent's own arguments. A Python with the magic number of the collector's
# runs the byte code, which halves its start time.
BOOTSTRAP = (
    "import sys,os,zlib,binascii as b,marshal;sys.version_info<(3,6)and os.execvp(sys.argv[4],sys.argv[4:]);"
    "import _frozen_importlib_external as f;t,m,c=sys.argv[1].split(chr(58));"
    "g=f.MAGIC_NUMBER==b.unhexlify(m);p=zlib.decompress(b.a2b_base64(c if g else t));"
    "exec(marshal.loads(p)if g else p)"
)
NEED_SHELL = b"@rb1 need-sh"
"""The line that a host without Python prints; the collector then sends the shell stand-in."""
TOKEN = "ROLLBOOK_TOKEN"  # noqa: S105 - the name of the variable, not the token
"""The environment variable with the token that a launched agent shares with the collector."""


def packed(data: bytes) -> str:
    """Data as one argument that passes through every launcher: deflated, base64."""
    return base64.b64encode(zlib.compress(data)).decode()


@functools.cache
def text() -> str:
    """The agent as it is sent: its modules joined, without their imports from each other."""
    return _joined(MODULES)


@functools.cache
def extension(*, archive: bool = False) -> str:
    """The part of the agent that reads the items of an issue report, as the argument of the order `extend`.

    With `archive`, it can also make an archive of them and upload it.
    """
    return packed(_joined((*EXTENSION, "archive") if archive else EXTENSION).encode())


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join(_standalone(resources.files(__package__).joinpath(f"{name}.py").read_text()) for name in names)


def _standalone(module: str) -> str:
    """A module's text without comments, docstrings and imports from this package; the line count stays."""
    return re.sub(COMMENTS, "", re.sub(REMOVED, _pass, module, flags=re.MULTILINE), flags=re.MULTILINE)


def _pass(found: re.Match[str]) -> str:
    """A `pass`, in case the block has nothing else; the line count stays, so that tracebacks are right."""
    return f"{found[1]}pass" + "\n" * found[0].count("\n")


@functools.cache
def payload(*, compiled: bool = True) -> str:
    """The agent as one argument: its text, and if `compiled` the magic number and byte code of this Python."""
    if not compiled:
        return f"{packed(text().encode())}::"
    code = _without_lines(compile(text(), "<agent>", "exec", dont_inherit=True))
    return f"{packed(text().encode())}:{importlib.util.MAGIC_NUMBER.hex()}:{packed(marshal.dumps(code))}"


def _without_lines(code: types.CodeType) -> types.CodeType:
    """Code without its table of line numbers, which is half of its size."""
    inner = tuple(_without_lines(const) if isinstance(const, types.CodeType) else const for const in code.co_consts)
    return code.replace(co_consts=inner, co_linetable=b"")


START_PYTHON = (
    'command -v "$0" >/dev/null || { echo "$0: No such file or directory" >&2; sleep 3; exit 127; }; exec "$0" "$@"'
)


def launched_argv(python: str | None, back: str, script: bytes) -> list[str]:
    """The program a launcher starts on every host: the agent, where to connect `back`, and orders if it cannot.

    A shell starts Python: without it, a missing Python would be a program that cannot be started, and some launchers
    then give up on all hosts. The shell ends after a pause: Open MPI 5 may never end if a process ends at once.
    """
    return [
        "/bin/sh",
        "-c",
        START_PYTHON,
        python or "python3",
        "-I",
        "-S",
        "-c",
        BOOTSTRAP,
        payload(compiled=False),  # launchers limit the length of an argument
        f"connect:{back}",
        packed(script),
    ]


@functools.cache
def stand_in() -> bytes:
    """The POSIX shell stand-in for hosts without Python, between the lines that mark its start and end."""
    return b"#begin\n" + resources.files(__package__).joinpath("standin.sh").read_bytes() + b"#end\n"


def remote_command(
    python: str | None = None, carrier: str = "binary", *, compiled: bool = True, script: bytes = b""
) -> str:
    """One line for any login shell: start the agent under Python 3.6+, or request the shell stand-in.

    `compiled` adds byte code, which triples the length; `script` are orders for an agent that cannot be sent any.

    The agent is an argument of an inner `sh`, so the outer shell sees one pair of quotes, no expansions. The stand-in
    is read line by line, because a shell that runs a script from stdin may read ahead and consume the orders. Orders
    sent before it are skipped; the collector sends them again.
    """
    candidates = python or "python3 /usr/libexec/platform-python python3.6 python3.8 python3.9 python3.11 python3.12"
    request = (
        f"echo {NEED_SHELL.decode()}; e=$(printf '\\nx'); e=${{e%x}}; s=; "
        'while IFS= read -r l && [ "$l" != "#begin" ]; do :; done; '
        'while IFS= read -r l && [ "$l" != "#end" ]; do s="$s$l$e"; done; eval "$s"'
    )
    quoted = request.replace("'", '"').replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    few = "ulimit -n is $f, at least 16 are needed"
    shell = (
        # `:?` prints to stderr without a redirection, for which dash needs a descriptor above 9.
        f'f=$(ulimit -n); case $f in [0-9] | 1[0-5]) : "${{open_files:?{few}}}" ;; esac; '
        f'n="{quoted}"; for p in {candidates}; do '
        f'command -v "$p" >/dev/null 2>&1 && exec "$p" -I -S -c "{BOOTSTRAP}" "$1" {carrier} "$2" sh -c "$n"; '
        'done; eval "$n"'
    )
    orders = f" {packed(script)}" if script else ""
    return f"exec sh -c '{shell}' rollbook {payload(compiled=compiled)}{orders}"
