"""MLPerf Storage's KV cache benchmark: the summary in its `--output` file, or in mlpstorage's results directory."""

from __future__ import annotations

from rollbook.adapters.argv import option
from rollbook.adapters.base import Ran
from rollbook.adapters.mlpstorage import add_results, from_command_line, root
from rollbook.adapters.results import Results, table
from rollbook.records.outcome import Outcome

__all__ = ["ADAPTER"]

_NAME = "kvcache_results_*.json"


class KvCache:
    """`mlpstorage … kvcache`, or `kv-cache.py` called by itself."""

    name = "kv_cache"

    def outcome(self, ran: Ran) -> Outcome:
        """The options of the command line, and the benchmark's summary; its lists of every request are left out."""
        outcome, results = from_command_line(self.name, ran.argv), Results(ran)
        named, below = option(ran.argv, "--output"), root(ran) or ran.cwd
        path = ran.cwd / named if named else results.newest(below, _NAME)
        if path:
            report = results.json(path)
            plain = {name: value for name, value in report.items() if not isinstance(value, list)}
            outcome.metrics = table(report.get("summary")) or plain
        else:
            results.note(f"no --output on the command line and no {_NAME} of this run below {below}")
        return add_results(outcome, results)


ADAPTER = KvCache()
