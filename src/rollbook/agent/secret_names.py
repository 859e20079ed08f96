"""Names of settings that hold a secret, as issue reports need them: with camel case, and fewer false alarms."""

import re

from rollbook.agent.redaction import is_secret

CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # StoragePass
# Last parts of names that describe a secret, next to those in `redaction.py`.
DESCRIBES = set(
    "type count length len size ttl expiry expires expiration seconds url uri endpoint version policy format method "
    "enabled required limit timeout algorithm issuer audience kind namespace ref index usage rotation store provider "
    "backend class source interval".split()
)
# First parts of names that end in `key`, but are not secret.
PLAIN_KEYS = set(
    "public pub primary foreign sort partition cache routing idempotency host hot group row column map hash lookup "
    "object config registry dict tag label index search sorting metric json yaml s3 event power reboot suspend "
    "hibernate".split()
)
VAGUE = set("key auth private cred creds credential pass pw sig signature cookie".split())  # alone, also other things


def is_secret_name(name: str) -> bool:
    """Whether a setting of that name holds a secret; the definition in `redaction.py`, with camel case."""
    split = CAMEL.sub(".", name).replace("_", ".").replace("-", ".").lower()
    parts = [part for part in split.split(".") if part]
    if len(parts) > 1 and (parts[-1] in DESCRIBES or (parts[-1] == "key" and parts[-2] in PLAIN_KEYS)):
        return False
    return is_secret(split) or is_secret(name)


def is_vague(name: str) -> bool:
    """Whether the name alone is also used for other things: `key=`, `pass: 12`."""
    return name.lower() in VAGUE
