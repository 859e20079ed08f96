"""Faults of a host's sshd, keys and login."""

from __future__ import annotations

import os
import pwd
import shlex
import signal
import sys
from pathlib import Path

from rollbook.testing.lab import relay as relay_program
from rollbook.testing.lab.core import Core
from rollbook.testing.lab.keys import make_keys
from rollbook.testing.lab.resources import LabCannot

__all__ = ["Logins"]

_FLOOD = 1 << 16


class Logins(Core):
    """Faults from the client's first packet to the start of its program, for hosts of every kind."""

    def stop_sshd(self) -> None:
        """SIGSTOP every sshd: connections are still accepted by the kernel, nothing answers on them."""
        self._signal_sshd(signal.SIGSTOP)

    def cont_sshd(self) -> None:
        """SIGCONT every sshd."""
        self._signal_sshd(signal.SIGCONT)

    def kill_sshd(self) -> None:
        """SIGKILL every sshd, of open sessions too: connections break off, what ran in them lives on."""
        self._until_gone(self._signal_sshd(signal.SIGKILL))

    def close_port(self) -> None:
        """End the listening sshd: new connections are refused, open sessions go on."""
        self._touched = True
        if listener := self._listener():
            os.kill(listener, signal.SIGKILL)
            self._until_gone([listener])
        self._pid_file.unlink(missing_ok=True)

    def reject_keys(self) -> None:
        """From now on no key is accepted."""
        self._touched = True
        self._authorized.write_text("")

    def change_host_key(self) -> None:
        """Give the host a new key, while the client's known_hosts keeps the old one."""
        self.close_port()
        for name in ("host_key", "host_key.pub"):
            first = self.directory / f"first_{name}"
            if not first.exists():
                (self.directory / name).rename(first)
            (self.directory / name).unlink(missing_ok=True)
        make_keys([self.directory / "host_key"])
        self.start_sshd()

    def banner(self, text: str) -> None:
        """Send this before the login (`Banner` of sshd_config(5)); clients print it on stderr."""
        self._touched = True
        (self.directory / "banner").write_text(text)

    def login_noise(self, stdout: str | bytes = "", stderr: str | bytes = "", *, forever: bool = False) -> None:
        """Have the shell's start-up file print this before any command; with `forever`, `stdout` without an end.

        Bash reads ~/.bashrc when it finds itself started by sshd, which is the usual origin of such noise.
        """
        shell = Path(pwd.getpwuid(os.getuid()).pw_shell)
        if shell.resolve().name != "bash":
            raise LabCannot(f"login noise needs bash as the user's shell, not {shell}")
        self._touched = True
        out, err = (text.encode() if isinstance(text, str) else text for text in (stdout, stderr))
        if forever:
            out *= -(-_FLOOD // max(1, len(out)))
        (self._home / "noise.out").write_bytes(out)
        (self._home / "noise.err").write_bytes(err)
        print_all = "cat ~/noise.err >&2\ncat ~/noise.out\n"
        endless = "while cat ~/noise.out; do :; done\nexit\n"
        (self._home / ".bashrc").write_text(print_all + (endless if forever else ""))

    def delay(self, seconds: float) -> None:
        """Delay all data between clients and this host's sshd, in each direction; for new connections."""
        self._touched = True
        relay = [sys.executable, "-I", "-S", relay_program.__file__, self.address, str(self._place.port), str(seconds)]
        self._client.write_text(f"Host {self.name} {self.address}\n  ProxyCommand {shlex.join(relay)}\n")

    @property
    def _client(self) -> Path:
        return self.directory / "client_config"

    @property
    def _home(self) -> Path:
        return self.directory / "home"

    @property
    def _authorized(self) -> Path:
        return self.directory / "authorized_keys"

    def _as_new(self) -> None:
        """Keys, banner and start-up files as they were at first."""
        super()._as_new()
        for name in ("host_key", "host_key.pub"):
            first = self.directory / f"first_{name}"
            if first.exists():
                first.replace(self.directory / name)
        (self.directory / "banner").unlink(missing_ok=True)
        self._client.unlink(missing_ok=True)
        self._authorized.write_text(self._place.authorized_key)
        self._home.mkdir(exist_ok=True)
        for path in self._home.iterdir():
            path.unlink()
