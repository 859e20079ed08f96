"""What runs on a host: `agent.py` as it is sent, and how it is packed into a command line."""

from __future__ import annotations

import ast
import base64
import functools
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

MODULES = ("wire", "reading", "children", "loop", "agent")

# No single quote, backslash, dollar or exclamation mark: it passes through any login shell unchanged. A Python
# older than 3.6 hands over to the program named after the agent's own arguments.
BOOTSTRAP = (
    "import sys,os,zlib,binascii;sys.version_info<(3,6)and os.execvp(sys.argv[4],sys.argv[4:]);"
    "exec(zlib.decompress(binascii.a2b_base64(sys.argv[1])))"
)
NEED_SHELL = b"@rb1 need-sh"
"""What a host without Python says; the collector then sends the stand-in."""
TOKEN = "ROLLBOOK_TOKEN"  # noqa: S105 - the name of the variable, not the token
"""The variable in which a launched agent finds the token that it shares with the collector."""


def packed(data: bytes) -> str:
    """Anything as one argument that passes through every launcher: deflated, base64."""
    return base64.b64encode(zlib.compress(data, 9)).decode()


@functools.cache
def text() -> str:
    """The agent as it is sent: its modules one after the other, without what they import from each other."""
    return "\n".join(_alone(resources.files(__package__).joinpath(f"{name}.py").read_text()) for name in MODULES)


def _alone(module: str) -> str:
    """A module's text without its imports from this package, and without the docstrings that a host has no use for."""
    lines = module.splitlines()
    tree = ast.parse(module)
    for node in ast.walk(tree):
        ours = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rollbook")
        told = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if (ours or told) and isinstance(node, ast.stmt):
            assert node.end_lineno is not None
            # `pass` keeps a block that had nothing else; the line count stays, so that tracebacks make sense.
            lines[node.lineno - 1 : node.end_lineno] = [" " * node.col_offset + "pass"] + [""] * (
                node.end_lineno - node.lineno
            )
    return "\n".join(lines)


@functools.cache
def payload() -> str:
    """The agent as one argument."""
    return packed(text().encode())


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
        payload(),
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
