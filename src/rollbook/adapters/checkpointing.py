"""MLPerf Storage's checkpointing benchmark: DLIO's results under MLPerf Storage's names."""

from __future__ import annotations

from rollbook.adapters.base import Ran
from rollbook.adapters.mlpstorage import read_dlio
from rollbook.records.outcome import Outcome

__all__ = ["ADAPTER"]


class Checkpointing:
    """`mlpstorage … checkpointing`, or DLIO called with such a workload."""

    name = "checkpointing"

    def outcome(self, ran: Ran) -> Outcome:
        """What DLIO left, under the names of the checkpointing benchmark."""
        return read_dlio(self.name, ran)


ADAPTER = Checkpointing()
