"""One Session Manager session: started at the allowed rate, kept through dropped sockets, always terminated."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rollbook.aws.api import Account
from rollbook.aws.channel import CLIENT_VERSION, Channel, Closed, Event, Exit, KeyNeeded, Output, Stderr
from rollbook.aws.rate import StartRate
from rollbook.errors import (
    AgentFailed,
    AwsError,
    AwsUnstable,
    Busy,
    NoHostReached,
    ProtocolError,
    TransportError,
    Unreachable,
)

__all__ = ["Session"]

OPEN_SECONDS = 20.0
CLOSE_SECONDS = 2.0
PING_SECONDS = 60.0
RESUMES = 5
STARTS = 3  # tries if the service fails; throttling is not a failure
FIRST_PAUSE, LONGEST_PAUSE = 0.15, 5.0
STDERR_KEPT = 16 * 1024
TERMINATE_SECONDS = 20.0
DRAIN_SECONDS = 5.0


class Session:
    """A command on a node. Use as `async with`; then `read` until it returns nothing, and look at `exit_code`.

    `exit_code` is None while the command runs, and stays None if the document does not report it or the session ended
    first. `error` is the reason why a session ended without an exit code. `stderr` keeps the end of the standard error.
    """

    def __init__(
        self,
        account: Account,
        target: str,
        document: str = "",
        parameters: Mapping[str, Sequence[str]] | None = None,
        *,
        rate: StartRate | None = None,
        reason: str = "rollbook",
    ) -> None:
        self.target = target
        self.exit_code: int | None = None
        self.error = ""
        self.stderr = b""
        self._account, self._rate = account, rate or StartRate()
        self._request: dict[str, Any] = {"Target": target, "Reason": reason}
        if document:
            self._request["DocumentName"] = document
        if parameters:
            self._request["Parameters"] = {name: list(values) for name, values in parameters.items()}
        self._id = self._url = ""
        self._channel = Channel("", target)
        self._socket: Any = None
        self._output: asyncio.Queue[bytes] = asyncio.Queue()
        self._wake = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._ended = self._closing = False

    async def __aenter__(self) -> Self:
        token = await self._start()
        try:
            await self._open(token)
        except BaseException:
            await self.close()
            raise
        self._pump = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def read(self) -> bytes:
        """The next output; empty once the session has ended and everything was read."""
        if self._ended and self._output.empty():
            return b""
        data = [await self._output.get()]
        while data[-1] and not self._output.empty():
            data.append(self._output.get_nowait())
        return b"".join(data)

    async def write(self, data: bytes) -> None:
        """Send input to the command; ignored after the end."""
        self._channel.send(data)
        self._wake.set()

    async def close(self) -> None:
        """End the session, on the node and in the service; can be called again, even after it was cancelled."""
        if self._pump is not None:
            if not self._closing:
                self._channel.terminate()
                self._closing = True
                self._wake.set()
            try:
                await asyncio.wait([self._pump], timeout=DRAIN_SECONDS)
            finally:
                self._pump.cancel()
            await asyncio.wait([self._pump])
        if self._socket is not None:
            try:
                with contextlib.suppress(Exception):
                    await self._socket.close()
            finally:
                self._socket.transport.abort()  # if it was cancelled
            self._socket = None
        await self._terminate()

    async def _start(self) -> str:
        """Start the session, waiting for the rate limit as long as the service throttles."""
        failures = 0
        while True:
            await self._rate.acquire()
            try:
                answer = await self._request_start()
            except Busy:
                await asyncio.sleep(self._rate.throttled())
                continue
            except (AwsUnstable, NoHostReached):
                failures += 1
                if failures == STARTS:
                    raise
                await asyncio.sleep(failures * random.uniform(0.2, 0.5))  # noqa: S311 - spreads retries, guards nothing
                continue
            self._rate.succeeded()
            return str(answer["TokenValue"])

    async def _request_start(self) -> dict[str, Any]:
        """Call StartSession. If the caller is cancelled meanwhile, the session that starts all the same is ended."""
        call = asyncio.ensure_future(self._account.call("ssm", "start_session", **self._request))
        try:
            await asyncio.shield(call)
        except asyncio.CancelledError:
            await asyncio.wait([call], timeout=TERMINATE_SECONDS)
            if call.done() and not call.exception():
                self._id = str(call.result()["SessionId"])
                await self._terminate()
            raise
        answer = call.result()
        self._id, self._url = str(answer["SessionId"]), str(answer["StreamUrl"])
        self._channel = Channel(self._id, self.target)
        return answer

    async def _open(self, token: str) -> None:
        """Open the WebSocket and present the token."""
        from websockets.asyncio.client import connect  # noqa: PLC0415 - only sessions need it
        from websockets.exceptions import WebSocketException  # noqa: PLC0415

        hello = {
            "MessageSchemaVersion": "1.0",
            "RequestId": str(uuid.uuid4()),
            "TokenValue": token,
            "ClientId": str(uuid.uuid4()),
            "ClientVersion": CLIENT_VERSION,
        }
        try:
            self._socket = await connect(
                self._url,
                open_timeout=OPEN_SECONDS,
                close_timeout=CLOSE_SECONDS,
                ping_interval=PING_SECONDS,
                max_size=1 << 21,
                compression=None,
            )
            await self._socket.send(json.dumps(hello))
        except (OSError, TimeoutError, WebSocketException) as error:
            raise Unreachable(
                f"cannot open the session's WebSocket: {error}; does a proxy or firewall block wss to ssmmessages?"
            ) from error

    async def _run(self) -> None:
        try:
            while not await self._pump_socket():
                await self._resume()
        except TransportError as error:
            self.error = str(error)
        except ProtocolError as error:
            self.error = f"Session Manager: {error}"
        finally:
            if self.exit_code is None and not self.error and not self._closing:
                self.error = "the session ended before the command's exit status arrived"
            self._ended = True
            self._output.put_nowait(b"")

    async def _pump_socket(self) -> bool:
        """Move messages until the channel is closed (True) or the socket is dropped (False)."""
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - only sessions need it

        receiving = asyncio.create_task(self._receive())
        try:
            while not self._channel.closed:
                await self._send_due()
                if self._closing and self._channel.drained:
                    break
                if receiving.done():
                    receiving.result()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self._channel.due):
                        await self._wake.wait()
                self._wake.clear()
        except ConnectionClosed:
            return False
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
        return True

    async def _send_due(self) -> None:
        now = asyncio.get_running_loop().time()
        for data in (*self._channel.outgoing(now), *self._channel.tick(now)):
            await self._socket.send(data)

    async def _receive(self) -> None:
        """Take messages until the socket is dropped; raises what ends the session."""
        try:
            while True:
                data = await self._socket.recv()
                if isinstance(data, bytes):
                    for event in self._channel.receive(data, asyncio.get_running_loop().time()):
                        await self._take(event)
                self._wake.set()
        finally:
            self._wake.set()

    async def _resume(self) -> None:
        """Open a new socket for the same session; raises `Unreachable` when there is none to resume."""
        pause, reason = FIRST_PAUSE, ""
        for _ in range(RESUMES):
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311 - spreads retries, guards nothing
            pause = min(2 * pause, LONGEST_PAUSE)
            try:
                answer = await self._account.call("ssm", "resume_session", SessionId=self._id)
                if not answer.get("TokenValue"):
                    reason = "the session is over"
                    break
                self._url = str(answer.get("StreamUrl") or self._url)
                await self._open(str(answer["TokenValue"]))
            except (Busy, Unreachable, AwsUnstable, NoHostReached) as error:  # the network may be down for a while
                reason = str(error)
            except AwsError as error:
                reason = str(error)
                break
            else:
                return
        raise Unreachable(f"the connection was lost and cannot be resumed: {reason}")

    async def _take(self, event: Event) -> None:
        if isinstance(event, Output):
            self._output.put_nowait(event.data)
        elif isinstance(event, Stderr):
            self.stderr = (self.stderr + event.data)[-STDERR_KEPT:]
        elif isinstance(event, Exit):
            self.exit_code = event.code
        elif isinstance(event, Closed):
            if event.message.strip() and self.exit_code is None:
                self.error = event.message.strip().splitlines()[-1][:300]
        elif isinstance(event, KeyNeeded):
            await self._exchange_key(event)

    async def _exchange_key(self, wanted: KeyNeeded) -> None:
        try:
            answer = await self._account.call(
                "kms",
                "generate_data_key",
                KeyId=wanted.key_id,
                NumberOfBytes=64,
                EncryptionContext=wanted.context,
            )
            self._channel.use_key(_SessionKey(answer["Plaintext"], answer["CiphertextBlob"]))
        except Exception as error:
            self._channel.refuse_key(str(error))
            raise AgentFailed(f"the session is encrypted and its key cannot be used: {error}") from error

    async def _terminate(self) -> None:
        if not self._id:
            return
        session, self._id = self._id, ""
        with contextlib.suppress(Exception):  # a session that is over already, or an account that may not
            async with asyncio.timeout(TERMINATE_SECONDS):
                while True:
                    try:
                        await self._account.call("ssm", "terminate_session", SessionId=session)
                    except (Busy, NoHostReached):  # many sessions end at once
                        await asyncio.sleep(random.uniform(0.5, 1.5))  # noqa: S311 - spreads retries, guards nothing
                    else:
                        return


class _SessionKey:
    """AES-256-GCM with one key per direction: the first half decrypts the agent's data, the second encrypts ours."""

    def __init__(self, plaintext: bytes, ciphertext: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - few sessions are encrypted

        self.ciphertext = ciphertext
        self._theirs, self._ours = AESGCM(plaintext[:32]), AESGCM(plaintext[32:64])

    def encrypt(self, data: bytes) -> bytes:
        """The nonce and the encrypted data."""
        nonce = os.urandom(12)
        return nonce + self._ours.encrypt(nonce, data, None)

    def decrypt(self, data: bytes) -> bytes:
        """What the agent sent; raises `ProtocolError`."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        try:
            return self._theirs.decrypt(data[:12], data[12:], None)
        except (InvalidTag, ValueError) as error:
            raise ProtocolError("encrypted output cannot be decrypted") from error
