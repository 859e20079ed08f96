"""Any command: what was run, how long it took and how it ended."""

from __future__ import annotations

from rollbook.adapters.argv import processes, shown
from rollbook.adapters.base import Ran
from rollbook.records.outcome import Outcome

__all__ = ["ADAPTER"]


class Generic:
    """A command of which nothing is known but itself."""

    name = "generic"

    def outcome(self, ran: Ran) -> Outcome:
        """The command line, the exit code and the wall time."""
        return Outcome(
            benchmark_type=self.name,
            num_processes=processes(ran.argv) or 1,
            parameters={"argv": [shown(word) for word in ran.argv]},
            metrics={"exit_code": ran.code, "wall_seconds": (ran.ended_ns - ran.started_ns) / 1e9},
        )


ADAPTER = Generic()
