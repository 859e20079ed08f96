"""Any command: what was run, how long it took and how it ended."""

from __future__ import annotations

from rollbook.adapters.argv import processes, storable_text
from rollbook.adapters.base import Ran
from rollbook.records.outcome import Outcome

__all__ = ["ADAPTER"]


class Generic:
    """Any command."""

    name = "generic"

    def outcome(self, ran: Ran) -> Outcome:
        """The command line, the exit status and the wall time."""
        return Outcome(
            benchmark_type=self.name,
            num_processes=processes(ran.argv) or 1,
            parameters={"argv": [storable_text(word) for word in ran.argv]},
            metrics={"exit_code": ran.code, "wall_seconds": (ran.ended_ns - ran.started_ns) / 1e9},
        )


ADAPTER = Generic()
