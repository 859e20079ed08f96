"""MLPerf Storage's vector database benchmark: the statistics of its query phase."""

from __future__ import annotations

from rollbook.adapters.base import Ran
from rollbook.adapters.mlpstorage import add_results, from_command_line, root
from rollbook.adapters.results import Results
from rollbook.records.outcome import Outcome

__all__ = ["ADAPTER"]

# One process, the enhanced benchmark, several hosts. Loading has a file of its own, load_statistics.json.
_NAMES = ("statistics.json", "enhanced_statistics.json", "vdb_multi_node_summary.json")


class VectorDatabase:
    """`mlpstorage … vectordb`, or the benchmark below it called by itself."""

    name = "vector_database"

    def outcome(self, ran: Ran) -> Outcome:
        """The options of the command line, and the statistics as the benchmark wrote them."""
        outcome, results = from_command_line(self.name, ran.argv), Results(ran)
        below = root(ran) or ran.cwd
        if path := results.newest(below, *_NAMES):
            outcome.metrics = results.json(path)
        else:
            results.note(f"no {' or '.join(_NAMES)} of this run below {below}")
        return add_results(outcome, results)


ADAPTER = VectorDatabase()
