"""What runs on a host: `agent.py` as it is sent, and how it is packed into a command line."""

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
    "launched_argv",
    "packed",
    "payload",
    "remote_command",
    "stand_in",
    "text",
]

MODULES = ("wire", "reading", "source", "children", "once", "steady", "loop", "agent")
# Parsing the modules for it would take as long as a host takes to answer; a test compares.
NEEDLESS = r'^( *)(?:r?"""[\s\S]*?"""|from rollbook\S+ import (?:\([\s\S]*?\)|.*))$'

# No quote, backslash, dollar or exclamation mark: it passes through any login shell unchanged. A Python older than
# 3.6 hands over to the program named after the agent's own arguments; one whose byte code is that of the collector's
# (the same magic number) takes the compiled agent and is spared half of its start.
BOOTSTRAP = (
    "import sys,os,zlib,binascii as b,marshal;sys.version_info<(3,6)and os.execvp(sys.argv[4],sys.argv[4:]);"
    "import _frozen_importlib_external as f;t,m,c=sys.argv[1].split(chr(58));"
    "g=f.MAGIC_NUMBER==b.unhexlify(m);p=zlib.decompress(b.a2b_base64(c if g else t));"
    "exec(marshal.loads(p)if g else p)"
)
NEED_SHELL = b"@rb1 need-sh"
"""What a host without Python says; the collector then sends the stand-in."""
TOKEN = "ROLLBOOK_TOKEN"  # noqa: S105 - the name of the variable, not the token
"""The variable in which a launched agent finds the token that it shares with the collector."""


def packed(data: bytes) -> str:
    """Anything as one argument that passes through every launcher: deflated, base64."""
    return base64.b64encode(zlib.compress(data)).decode()


@functools.cache
def text() -> str:
    """The agent as it is sent: its modules one after the other, without what they import from each other."""
    return "\n".join(_alone(resources.files(__package__).joinpath(f"{name}.py").read_text()) for name in MODULES)


def _alone(module: str) -> str:
    """A module's text without its imports from this package, and without the docstrings that a host has no use for."""
    return re.sub(NEEDLESS, _pass, module, flags=re.MULTILINE)


def _pass(found: re.Match[str]) -> str:
    """What keeps a block that had nothing else; the line count stays, so that tracebacks make sense."""
    return f"{found[1]}pass" + "\n" * found[0].count("\n")


@functools.cache
def payload(*, compiled: bool = True) -> str:
    """The agent as one argument: its text, and with it the magic number and the byte code of this Python."""
    if not compiled:
        return f"{packed(text().encode())}::"
    code = _bare(compile(text(), "<agent>", "exec", dont_inherit=True))
    return f"{packed(text().encode())}:{importlib.util.MAGIC_NUMBER.hex()}:{packed(marshal.dumps(code))}"


def _bare(code: types.CodeType) -> types.CodeType:
    """Code without its table of line numbers, which is half of its size."""
    inner = tuple(_bare(const) if isinstance(const, types.CodeType) else const for const in code.co_consts)
    return code.replace(co_consts=inner, co_linetable=b"")


def launched_argv(python: str | None, back: str, script: bytes) -> list[str]:
    """What a launcher starts on every host: the agent with its way `back`, and its orders where that is closed.

    A host without Python is then a program that failed, not one that could not be started: some launchers give up
    on all hosts for the latter.
    """
    return [
        "/usr/bin/env",
        python or "python3",
        "-I",
        "-S",
        "-c",
        BOOTSTRAP,
        payload(compiled=False),  # what launchers take of an argument is not known to be more
        f"connect:{back}",
        packed(script),
    ]


@functools.cache
def stand_in() -> bytes:
    """The POSIX shell stand-in for hosts without Python, between the lines that the host waits for."""
    return b"#begin\n" + resources.files(__package__).joinpath("standin.sh").read_bytes() + b"#end\n"


def remote_command(python: str | None = None, carrier: str = "binary") -> str:
    """One line for a login shell of any kind: start the agent under Python 3.6+, or ask for the stand-in.

    The agent is `$0` of an inner `sh`, so the outer shell sees one pair of quotes and no expansions. The stand-in is
    taken line by line, because a shell that runs a script from stdin may read ahead and swallow the orders; orders
    that were sent before it are passed over.
    """
    candidates = python or "python3 /usr/libexec/platform-python python3.6 python3.8 python3.9 python3.11 python3.12"
    ask = (
        f"echo {NEED_SHELL.decode()}; e=$(printf '\\nx'); e=${{e%x}}; s=; "
        'while IFS= read -r l && [ "$l" != "#begin" ]; do :; done; '
        'while IFS= read -r l && [ "$l" != "#end" ]; do s="$s$l$e"; done; eval "$s"'
    )
    quoted = ask.replace("'", '"').replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    script = (
        f'n="{quoted}"; for p in {candidates}; do '
        f'command -v "$p" >/dev/null 2>&1 && exec "$p" -I -S -c "{BOOTSTRAP}" "$0" {carrier} "" sh -c "$n"; '
        'done; eval "$n"'
    )
    return f"exec sh -c '{script}' {payload()}"
