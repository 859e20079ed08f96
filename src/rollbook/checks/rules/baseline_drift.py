"""A host is not what it was in the baseline.

Why: A cluster that passed once drifts: updates, repairs and hand-made changes. What changed since the last good run is
the first suspect when the next one is slow.
Example: net_class eth0 mtu: 9000 -> 1500 (node17)
Fix: Bring the host back, or take a new baseline if the change is meant.
Reference: rollbook check --baseline
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.changes import changes
from rollbook.checks.declared import IGNORED
from rollbook.checks.subject import Baseline, Subject, Told
from rollbook.checks.text import change_text, some
from rollbook.checks.views import status_of, views_of
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Change, Finding

ID, SEVERITY, NEEDS = "baseline-drift", "fail", (Baseline, Told)
COMPARED = ("same", "band", "set")


def check(run: Subject) -> Iterator[Finding]:
    """Each host against itself in the baseline; hosts with the same changes together."""
    assert run.baseline is not None, "NEEDS says so"
    was = {host.name: host for host in run.baseline.telling}
    alike: dict[tuple[str, ...], list[str]] = {}
    told: dict[tuple[str, ...], list[Change]] = {}
    unread: dict[str, list[str]] = {}
    for host in run.telling:
        if host.name in was:
            pair = (was[host.name], host)
            for source in dict.fromkeys(view.source for view in views_of(pair) if view.compared):
                if "unknown" in (status_of(side, source) for side in pair):
                    unread.setdefault(source, []).append(host.name)
            changed = (change for change in changes(*pair) if change.mode in COMPARED)
            found = [change for change in changed if change.field not in IGNORED]
            texts = tuple(map(change_text, found))
            if texts:
                alike.setdefault(texts, []).append(host.name)
                told[texts] = found
    for texts, names in alike.items():
        more = f", and {len(texts) - 1} more" if len(texts) > 1 else ""
        yield Finding(message=f"{texts[0]}{more} ({fold(names)})", hosts=names, changes=told[texts])
    new = [host.name for host in run.telling if host.name not in was]
    notes = [f"not in the baseline: {fold(new)}"] if new else []
    if unread:
        hosts = {name for names in unread.values() for name in names}
        notes.append(f"{some(list(unread))} could not be compared on {fold(hosts)}")
    if notes:
        raise CannotTell("; ".join(notes))
