"""AWS calls, made in threads, with errors in Rollbook's terms: what happened, to what, and what to do."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rollbook.errors import (
    AwsDenied,
    AwsError,
    AwsUnstable,
    Busy,
    NoHostReached,
    Refused,
    TimedOut,
    TransportError,
    Unreachable,
)

__all__ = ["Account", "explain"]

CREDENTIALS = frozenset(
    (
        "AuthFailure",
        "CredentialRetrievalError",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "NoCredentialsError",
        "PartialCredentialsError",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    )
)
CONNECTION = frozenset(
    ("EndpointConnectionError", "ConnectTimeoutError", "ConnectionClosedError", "ProxyConnectionError")
)
DENIED = frozenset(("AccessDenied", "AccessDeniedException", "UnauthorizedOperation"))
THROTTLED = frozenset(("Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded"))
UNSTABLE = frozenset(("InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable"))
ELSEWHERE = frozenset(("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"))
MISSING = frozenset(("ResourceNotFound", "ResourceNotFoundException", "NoSuchBucket", "NoSuchKey", "NotFoundException"))


@dataclasses.dataclass(frozen=True)
class Account:
    """Where and as whom to call AWS: region, profile, and the endpoint of all services if it is not Amazon's own."""

    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None

    async def call(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Call one operation; raises `AwsError` or a `TransportError`; the message includes what to do."""
        return await asyncio.get_running_loop().run_in_executor(_threads, self._call, service, operation, parameters)

    def client(self, service: str) -> Any:
        """The client of one service, made once per account."""
        with _lock:
            if (self, service) not in _clients:
                _clients[self, service] = self._make(service)
            return _clients[self, service]

    def _call(self, service: str, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        client = self.client(service)
        try:
            answer: dict[str, Any] = getattr(client, operation)(**parameters)
        except Exception as error:  # botocore's errors have no common root with those of its HTTP library
            raise explain(error, operation) from error
        return answer

    def _make(self, service: str) -> Any:
        try:
            import boto3  # noqa: PLC0415 - takes a tenth of a second
            from botocore.config import Config  # noqa: PLC0415
        except ImportError as error:
            raise AwsError("AWS needs more packages: pip install 'rollbook[aws]'") from error
        try:
            session = boto3.Session(profile_name=self.profile, region_name=self.region)
            # Retries of starts are paced here; the SDK's own would hide the throttling.
            retries = {"mode": "standard", "total_max_attempts": 1 if service == "ssm" else 4}
            config = Config(
                connect_timeout=10,
                read_timeout=60,
                retries=retries,
                max_pool_connections=64,
                signature_version="s3v4" if service == "s3" else None,  # presigned requests default to an older one
            )
            return session.client(service, endpoint_url=self.endpoint_url, config=config)
        except Exception as error:
            raise explain(error, f"use {service}") from error


_clients: dict[tuple[Account, str], Any] = {}
_lock = threading.Lock()
# Python's own pool has few threads on a machine with few cores, but these only wait for AWS.
_threads = ThreadPoolExecutor(32, "aws")


# The first row that matches the error's class or AWS's code: what to raise, and its message.
MEANINGS: tuple[tuple[frozenset[str], type[AwsError | TransportError | NoHostReached], str], ...] = (
    (CREDENTIALS, AwsError, "AWS does not accept the credentials ({code}): {text}; log in again or set {flag}profile"),
    (frozenset({"ProfileNotFound"}), AwsError, "{text}; set {flag}profile to one of ~/.aws/config"),
    (frozenset({"NoRegionError"}), AwsError, "no AWS region is set; use {flag}region or AWS_REGION"),
    (CONNECTION, NoHostReached, "cannot reach AWS to {operation}: {text}; check {flag}region and the network"),
    (frozenset({"ReadTimeoutError"}), TimedOut, "AWS did not answer {operation} in time"),
    (THROTTLED, Busy, "AWS throttles {operation}: {text}"),
    (UNSTABLE, AwsUnstable, "AWS failed to {operation} ({code}): {text}; try again"),
    (DENIED, AwsDenied, "not allowed to call {operation}: {text}"),
    (ELSEWHERE, AwsError, "{operation}: the bucket is in {region}; set {flag}region"),
    (MISSING, AwsError, "{operation}: {text}; check the name and {flag}region"),
    (frozenset({"TargetNotConnected"}), Unreachable, "Session Manager has no connection to the node: {text}"),
    (frozenset({"InvalidDocument"}), Refused, "the document cannot be used: {text}"),
)


def explain(error: Exception, operation: str, flag: str = "--") -> AwsError | TransportError | NoHostReached:
    """The error of an AWS call in terms of what the user can do; `flag` is the start of the options that it names."""
    answer = getattr(error, "response", None)
    details = answer.get("Error", {}) if isinstance(answer, dict) else {}
    code = str(details.get("Code") or type(error).__name__)
    text = str(details.get("Message") or error)
    if code == "ValidationException" and "not found" in text.lower():
        code = "ResourceNotFound"
    about = answer.get("ResponseMetadata", {}) if isinstance(answer, dict) else {}
    region = details.get("Region") or about.get("HTTPHeaders", {}).get("x-amz-bucket-region") or "another region"
    for codes, kind, meaning in MEANINGS:
        if code in codes:
            return kind(meaning.format(code=code, text=text, operation=operation, flag=flag, region=region))
    return AwsError(f"{operation} failed ({code}): {text}")
