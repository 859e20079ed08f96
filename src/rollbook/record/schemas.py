"""JSON Schemas of the documents Rollbook writes, made from the models; the package carries them in `schemas/`."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from rollbook.checks.model import Findings
from rollbook.checks.verify import Verified
from rollbook.cli.diff import Diff
from rollbook.record.cluster import ClusterInformation
from rollbook.record.document import Snapshot
from rollbook.record.layout import Manifest
from rollbook.record.listed import HostCheck, HostList
from rollbook.record.run import RunHosts
from rollbook.sources import catalogue

__all__ = ["encoded", "schemas"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS = (HostList, HostCheck, Snapshot, RunHosts, Manifest)
REFERENCE = "#/$defs/{name}"


def schemas() -> dict[str, dict[str, Any]]:
    """Every schema by file name: `snapshot-1` for documents that call themselves `rollbook.snapshot/1`."""
    found = {}
    for model in DOCUMENTS:
        name: str = msgspec.structs.fields(model)
    return found
