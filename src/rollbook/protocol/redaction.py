"""Masks secrets in command lines, with the rules that the agent applies on hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from rollbook.agent.redaction import MASK, is_secret, mask_settings

__all__ = ["mask_command_line"]

USER_FLAGS = ("-u", "--user", "--proxy-user")
"""Options of curl and others whose value is `user:password`."""
JOINED_PASSWORD = ("mysql", "mysqldump", "mysqladmin", "mariadb", "sshpass")
"""Programs whose `-pVALUE` is a password."""
PASSWORD_OPTION = {"sshpass": "-p", "ipmitool": "-P", "redis-cli": "-a", "ldapsearch": "-w", "ldapmodify": "-w"}
"""By program, the option whose next argument is a password."""


def mask_command_line(argv: Sequence[str]) -> list[str]:
    """The arguments with secrets replaced by `***`; their number stays the same.

    Masks values of secret options (`--password X`, `--token=X`), assignments (`API_KEY=X`), headers, addresses with
    passwords, and tokens, also inside an argument that is a command line itself (`bash -c '…'`).
    """
    masked: list[str] = []
    before, program = "", ""
    for item in argv:
        masked.append(_mask_argument(item, before, program))
        before = item
        if PurePath(item).name in (*JOINED_PASSWORD, *PASSWORD_OPTION):
            program = PurePath(item).name
    return masked


def _mask_argument(item: str, before: str, program: str) -> str:
    if before.startswith("-") and "=" not in before and is_secret(before) and not item.startswith("--"):
        return MASK
    if before in USER_FLAGS and ":" in item:
        return f"{item.partition(':')[0]}:{MASK}"
    if program in JOINED_PASSWORD and item.startswith("-p") and len(item) > 2:
        return f"-p{MASK}"
    if before and before == PASSWORD_OPTION.get(program):
        return MASK
    if " " in item and not _is_setting(item):
        return " ".join(mask_command_line(item.split(" ")))
    return mask_settings(item, ";&?,", colon=True)


def _is_setting(item: str) -> bool:
    """Whether an argument with blanks is one setting or header, not a command line."""
    name = min(item.partition("=")[0], item.partition(":")[0], key=len)
    return " " not in name and name != item and is_secret(name)
