"""The receiver of a push: its address and credentials, one request at a time, and what each answer means."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import email.utils
import http.client
import re
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from email.message import Message
from types import FrameType
from typing import IO

from rollbook.agent.redaction import MASK
from rollbook.clean import clean
from rollbook.errors import UsageError
from rollbook.protocol.redaction import mask_command_line
from rollbook.version import __version__

__all__ = ["TOKEN", "Failure", "Receiver"]

TOKEN = "ROLLBOOK_PUSH_TOKEN"  # noqa: S105 - the name of a variable
PATH = "/api/v1/write"
LONGEST_ANSWER, LONGEST_REASON = 4096, 300  # bytes and characters; a cut must not hide a secret from masking


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a request was not accepted, and whether a retry makes sense.

    `pause` is the number of seconds before the retry that the receiver requested, if it did.
    """

    reason: str
    may_retry: bool = True
    pause: float | None = None


class Receiver:
    """A server that accepts remote write. `masked` is its address without secrets.

    An address without a path gets the one that Prometheus and VictoriaMetrics share. A user and password in the address
    are sent as basic authentication, `token` as a bearer token. Proxies of the environment are used; redirects are not
    followed, because they would carry the credentials elsewhere. Raises `UsageError` for an unusable address.
    """

    def __init__(self, url: str, token: str = "") -> None:
        self.masked = mask_command_line([url])[0]
        try:
            parts = urllib.parse.urlsplit(url)
            usable = parts.port != 0  # raises ValueError, as the line above does
        except ValueError:  # its message may contain a part of the password
            usable = False
        if not usable or parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[^!-~]", url):
            raise UsageError(f"cannot push to {self.masked}: expected an address such as http://server:9090{PATH}")
        if token and not (token.isascii() and token.isprintable()):
            raise UsageError(f"{TOKEN} has characters that a header cannot carry")
        user, password = (urllib.parse.unquote(text or "") for text in (parts.username, parts.password))
        self._secrets = [text for text in (token, password, parts.password) if text]
        server = parts.netloc.rpartition("@")[2]
        path = PATH if parts.path in ("", "/") else parts.path
        self._url = urllib.parse.urlunsplit((parts.scheme, server, path, parts.query, ""))
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "snappy",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
            "User-Agent": f"rollbook/{__version__}",
        }
        if user or password:
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
            self._secrets.append(pair)
        elif token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._opener = urllib.request.build_opener(_NoRedirects)

    def post(self, body: bytes, seconds: float) -> Failure | None:
        """Send a request, in at most this many seconds; only from the main thread of a process.

        Returns None if it was accepted. Server errors, 429 and failed connections are worth a retry.
        """
        request = urllib.request.Request(self._url, body, self._headers, method="POST")  # noqa: S310 - checked above
        try:
            with _time_limit(seconds), self._opener.open(request, timeout=seconds) as answer:
                answer.read(LONGEST_ANSWER)
        except urllib.error.HTTPError as error:
            with error:
                reason = self._explain(error, seconds)
            if error.code >= http.client.INTERNAL_SERVER_ERROR or error.code == http.client.TOO_MANY_REQUESTS:
                return Failure(reason, pause=_pause(error.headers.get("Retry-After", "")))
            return Failure(reason, may_retry=False)
        except (OSError, http.client.HTTPException) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(cause, TimeoutError):
                return Failure(f"no answer within {seconds:g} s")
            text = getattr(cause, "strerror", None) or str(cause) or repr(cause)
            return Failure(self._plain(str(text)))
        return None

    def _explain(self, error: urllib.error.HTTPError, seconds: float) -> str:
        """Status and first line of an answer."""
        text = b""
        with contextlib.suppress(OSError, http.client.HTTPException), _time_limit(seconds):
            text = error.read(LONGEST_ANSWER)
        first = text.decode("utf-8", "replace").strip().partition("\n")[0]
        return self._plain(f"HTTP {error.code} {error.reason}" + (f": {first}" if first else ""))

    def _plain(self, text: str) -> str:
        """A text of the server, made safe to print and with secrets masked in case the server repeats them."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return mask_command_line([clean(text)])[0][:LONGEST_REASON]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error, like any other answer that is not a success."""

    def redirect_request(  # noqa: PLR0917 - as in the standard library
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        del req, fp, code, msg, headers, newurl


def _pause(text: str) -> float | None:
    """The seconds of a `Retry-After` header: a number, or a date; None without one that can be read."""
    if text.strip().isdecimal() and len(text) < 10:
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the block after this many seconds: a socket's timeout starts again with every byte."""

    def expired(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
