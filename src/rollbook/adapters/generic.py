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
        """The command line and, if the end of the command was recorded, the exit status and the wall time."""
        seconds = (ran.ended_ns - ran.started_ns) / 1e9
        return Outcome(
            benchmark_type=self.name,
            num_processes=processes(ran.argv) or 1,
            parameters={"argv": [storable_text(word) for word in ran.argv]},
            metrics={} if ran.code is None else {"exit_code": ran.code, "wall_seconds": seconds},
        )


ADAPTER = Generic()
