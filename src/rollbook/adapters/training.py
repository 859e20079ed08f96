"""MLPerf Storage's training benchmark: DLIO's results under MLPerf Storage's names."""

from __future__ import annotations

from rollbook.adapters.base import Ran
from rollbook.adapters.mlpstorage import read_dlio
from rollbook.records.outcome import Outcome

__all__ = ["ADAPTER"]


class Training:
    """`mlpstorage … training`, or DLIO called with such a workload."""

    name = "training"

    def outcome(self, ran: Ran) -> Outcome:
        """What DLIO left, under the names of the training benchmark."""
        return read_dlio(self.name, ran)


ADAPTER = Training()
