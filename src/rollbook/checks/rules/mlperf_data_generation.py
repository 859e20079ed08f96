"""The data set of training runs was not generated as required.

Why: All runs must read one data set, generated once, with at least the files that the runs use; and the runs must use
at least the files that MLPerf Storage's `datasize` computed.
Example: 55999 files generated, 56000 used by a run
Fix: Generate the data set once with the number of files that `datasize` prints, and keep its result directory.
Reference: MLPerf Storage rules 3.3.1
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_runs import runs_of
from rollbook.checks.mlperf_verdict import Validation, finding_for, round_of
from rollbook.checks.run_data import RunData, SeveralRuns
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-data-generation", "fail", (SeveralRuns,)
FILES = "dataset.num_files_train"


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The number of data generations, and files computed <= files used <= files generated."""
    rules, runs = round_of(run), runs_of(run, "training")
    wanted = rules.require(rules.training.datagen_runs)
    made = runs.of_command("datagen")
    yield Compared("data generation runs", wanted, len(made))
    if len(made) != wanted:
        text = f"{len(made)} data generation runs, {wanted} required"
        yield finding_for(Validation.INVALID, text, "datagen", wanted, len(made))
        return
    generated = max(one.files for one in made)
    used = [one.files for one in runs.measured]
    computed = max((one.files for one in runs.of_command("datasize")), default=0)
    if not used:
        return
    yield Compared("files of the runs", f"{computed} (computed) to {generated} (generated)", max(used))
    if max(used) > generated:
        text = f"{generated} files generated, {max(used)} used by a run"
        yield finding_for(Validation.INVALID, text, FILES, generated, max(used))
    if min(used) < computed:
        text = f"{computed} files computed by datasize, {min(used)} used by a run"
        yield finding_for(Validation.INVALID, text, FILES, computed, min(used))
