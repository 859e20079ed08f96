"""`rollbook watch`: rates that equal the record's, hosts that drop out and return, and the screen driven by keys."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from textual.widgets import Static

from rollbook.cli import cli
from rollbook.cli.watch import _result
from rollbook.errors import Refused, UsageError
from rollbook.hosts import Host
from rollbook.metrics import catalogue as metrics
from rollbook.metrics.grid import Axis, Row
from rollbook.metrics.live import FACTS, HostMetrics, Values, sampled_sources
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.samples import Unpacker
from rollbook.records.record import Record
from rollbook.report.build import build
from rollbook.sources import catalogue
from rollbook.sql import connection as store
from rollbook.sql.grids import open_tables, sampled_span
from rollbook.tables.derive import derive
from rollbook.testing import Fake, FakeHost, linux
from rollbook.testing.journals import Script, body_of, record_this_machine
from rollbook.watch.board import Board, HostView
from rollbook.watch.live import Live
from rollbook.watch.replay import Replay
from rollbook.watch.screen import Details, WatchApp
from rollbook.watch.table import WIDTHS, HostTable
from rollbook.watch.text import details, status_line, table_row
from tests.sql.test_views import TRUTH, net
from tests.support.commands import MAIN
from tests.support.waits import SECONDS, until_true

SECOND = 10**9
START = 1_700_000_000 * SECOND
ODD = "n\x1b[31m\u202e[red]<script>"
SAMPLED = sampled_sources(metrics.watched())
COLUMNS = tuple(metrics.watched())
RARE = tuple(name for name, metric in metrics.watched().items() if metrics.parts()[metric.part].is_held)


@pytest.mark.parametrize("name", TRUTH)
def test_rates_follow_the_rules_of_records(name: str) -> None:
    """Counters give the same rates live as in a record."""
    reads, expected = TRUTH[name]
    rates, found = HostMetrics(1.0), []
    source = catalogue.source("net_dev")
    for second, value in reads:
        rates.begin()
        at = round(second * SECOND)
        rates.take("net_dev", source.parse(net(eth0=value)["net_dev"]), START + at, at)
        rates.end(START + at)
        found.append(rates.values.get("net_rx"))
    assert found == expected


def test_no_rate_over_a_reboot_or_a_sleep() -> None:
    """The host's own clock restarted, or stood still while ours advanced."""
    rates, found = HostMetrics(1.0), []
    for second, mono in enumerate([10.0, 11.0, 0.5, 1.5, 1.6, 2.6]):
        rates.begin()
        rows = catalogue.source("net_dev").parse(net(eth0=100 * second)["net_dev"])
        rates.take("net_dev", rows, START + second * SECOND, round(mono * SECOND))
        rates.end(START + second * SECOND)
        found.append(rates.values.get("net_rx"))
    assert found == [None, 100, None, 100, None, 100]


def test_live_rates_are_those_of_the_record(tmp_path: Path) -> None:
    """The same frames of this machine, once watched and once recorded, give the same values."""
    frames = record_this_machine(tmp_path / "raw", beats=6, interval=0.2, names=(*SAMPLED, *FACTS))
    live = Live([Host("here")], lambda _: Fake({}), interval=0.2)
    seen: list[Values] = []
    for frame in frames:
        live.frame(0, 0, frame)
        if frame.kind == "S":
            seen.append(live.board.hosts["here"].values)
    derive(tmp_path)
    (tmp_path / "test_20261115_000000_metadata.json").write_text("{}")
    with store.connect(Record.open(tmp_path)) as connection:
        rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM rates ORDER BY ts").fetchall()
    recorded = [{name: v for name, v in zip(COLUMNS, row, strict=True) if v is not None} for row in rows]
    assert len(seen) == len(recorded) >= 6
    assert any("cpu_busy" in one for one in seen)
    for now, then in zip(seen, recorded, strict=True):
        assert now == pytest.approx(then)


def test_a_lost_sample_gives_no_wrong_values(tmp_path: Path) -> None:
    """After a lost sample, the next full text is awaited, even if other frames arrive in between."""
    frames = record_this_machine(tmp_path / "raw", beats=10, interval=0.2, names=(*SAMPLED, *FACTS))
    samples = [number for number, frame in enumerate(frames) if frame.kind == "S"]
    plan = Plan.of([catalogue.source(name) for name in (*SAMPLED, *FACTS)])
    # One sample in sixty is whole, at a beat that depends on the agent's process id: with it the values are back.
    whole = [number for number in samples if list(Unpacker(plan).beat(frames[number].payload, 0, 0))]
    at = next(at for at in (4, 5, 6) if samples[at + 2] not in whole)
    end = next((number for number in whole if number > samples[at + 2]), len(frames))
    live = Live([Host("here")], lambda _: Fake({}), interval=0.2)
    for number, frame in enumerate(frames[:end]):
        if number == samples[at]:  # of this one there is only the number that the next frame has
            continue
        beat = msgspec.structs.replace(frame, kind="B", payload=b"")
        live.frame(0, 0, beat if number == samples[at + 1] else frame)
        if number == samples[at - 1]:
            assert live.board.hosts["here"].values
    assert not live.board.hosts["here"].values


def busy(name: str, sectors: int) -> FakeHost:
    """A machine whose disk is written at this number of sectors per second."""
    pages = linux(name)
    disk = "8 0 sda 1000 10 80000 500 2000 20 {} 900 0 1400 1400\n"
    return FakeHost(pages={**pages, "/proc/diskstats": lambda seconds: disk.format(int(sectors * seconds))})


def test_unusual_hosts_come_first() -> None:
    """One of eight writes far more than the rest, one refuses the login, one has no Python."""
    hosts = {f"n{number}": busy(f"n{number}", 100_000) for number in range(8)}
    hosts["n5"] = busy("n5", 900_000)
    hosts["n6"] = FakeHost(fails=Refused("key rejected"))
    hosts["n7"] = FakeHost(pages=hosts["n7"].pages, python=None)
    fake = Fake(hosts)
    live = Live([Host(name) for name in hosts], lambda _: fake, interval=1.0, timeout=SECONDS)
    asyncio.run(live.settle())
    first, second, *rest = live.board.ordered()
    assert (first.name, first.state, first.reason) == ("n6", "lost", "key rejected")
    assert (second.name, second.unusual_metric) == ("n5", "disk_write")
    assert second.values["disk_write"] == pytest.approx(900_000 * 512, rel=0.3)
    assert all(host.values["disk_write"] == pytest.approx(100_000 * 512, rel=0.3) for host in rest)
    assert second.devices["sda"]["disk_write"] == second.values["disk_write"]
    assert not fake.living


def test_a_host_without_python_is_not_silent() -> None:
    """It samples in whole seconds, whatever the interval; its rates are shown until its next beat."""
    live = Live([Host("a")], lambda _: Fake({}), interval=0.1)
    live.event({"event": "connected", "hello": {"kind": "sh"}, "method": "ssh"}, host=0)
    number = {name: number for number, name in enumerate(SAMPLED)}
    for second in range(3):
        at = START + second * SECOND
        port = {PORT.format(name): f"{25 * second}\n" for name in ("rcv", "xmit")}
        texts = {**net(eth0=100 * second), "gpu": {"nvidia-smi": GPU.format(60)}, "infiniband_counters": port}
        for place, (name, pages) in enumerate(texts.items()):
            payload = f"{number[name]} sample - 1000 \n".encode() + body_of(pages)
            live.frame(0, at, Frame("R", len(texts) * second + place, at - START + SECOND, at, payload))
    live.board.tick(START + 29 * SECOND // 10)
    assert live.board.hosts["a"].state == "up"
    values = live.board.hosts["a"].values
    assert (values["net_rx"], values["rdma_rx"]) == (100, 100)


def filled(board: Board, at: int, values: dict[str, float], *, but: str = "") -> None:
    """One beat of all hosts but one, with these CPU loads."""
    for name in board.hosts:
        if name != but:
            board.beat(name, at, dict.fromkeys(board.columns, 0.0) | {"cpu_busy": values.get(name, 50.0)})
    board.tick(at)


def test_a_single_spike_is_not_unusual() -> None:
    """One odd beat among calm ones does not move a host up; odd beats that last do."""
    board = Board([f"n{number}" for number in range(8)], 1.0)
    for beat in range(5):
        filled(board, START + beat * SECOND, {"n3": 100.0} if beat == 2 else {})
    assert board.hosts["n3"].unusual == 0
    for beat in range(5, 10):
        filled(board, START + beat * SECOND, {"n3": 100.0})
    assert board.ordered()[0].name == "n3"
    assert board.hosts["n3"].unusual > 4


def test_drop_out_and_return() -> None:
    """Silent, then lost with its reason, then back, then up again; its trend has the gap."""
    board = Board(["a", "b"], 1.0)
    states = []
    for second in range(60):
        if second == 9:
            board.lost("b", "timed-out", "silent for 15 s", START + second * SECOND)
        filled(board, START + second * SECOND, {}, but="b" if 5 <= second < 20 else "")
        states.append(board.hosts["b"].state)
    assert list(dict.fromkeys(states)) == ["up", "silent", "lost", "back"]
    assert states[-1] == "up"
    assert board.hosts["b"].drops == 1
    assert "dropped out 1 time" in details(board, board.hosts["b"], {})


class Scripted:
    """A feed that the test itself drives."""

    def __init__(self, names: list[str]) -> None:
        self.board, self.ended, self.paused = Board(names, 1.0), False, False
        self.place: tuple[int, int] | None = None
        self._second = 0

    def beat(self, values: dict[str, float], *, but: str = "") -> None:
        """The next beat."""
        self._second += 1
        filled(self.board, START + self._second * SECOND, values, but=but)

    def pause(self, paused: bool) -> None:
        """Remember it."""
        self.paused = paused

    def seek(self, beat: int) -> None:
        """There is nothing to seek in."""
        raise AssertionError(beat)

    def devices(self, name: str) -> dict[str, Values]:
        """One disk."""
        return {f"{name}\x1b[2J-sda": {"disk_read": 5.0 * 2**20}}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Nothing goes on by itself."""
        yield


def lines_of(app: WatchApp) -> list[str]:
    """What the table shows."""
    table = app.screen_stack[0].query_one(HostTable)
    return [table.render_line(y).text for y in range(len(table.hosts) + 1)]


def names_of(app: WatchApp) -> list[str]:
    """The hosts in the order shown."""
    return [line.split()[0] for line in lines_of(app)[1:]]


def details_of(app: WatchApp) -> str:
    """What the host's own screen shows."""
    return str(app.screen.query_one("#details", Static).visual)


def test_the_screen() -> None:
    """Keys and clicks sort the table; Enter opens a host; a lost host is shown; the cursor stays on its host."""
    feed = Scripted([f"n{number}" for number in range(1, 8)])

    async def main() -> None:
        app = WatchApp(feed)
        async with app.run_test(size=(200, 24)) as pilot:
            for _ in range(3):
                feed.beat({"n2": 99.0, "n4": 10.0, "n6": 60.0})
            await until_true(lambda: set(names_of(app)[:2]) == {"n2", "n4"})  # most unusual first
            assert "CPU 2.0 ×" in next(line for line in lines_of(app) if line.startswith("n2"))
            assert "▁▃ CPU" in lines_of(app)[0], "the trend of the unusual metric"
            await pilot.click(HostTable, offset=(lines_of(app)[0].index("  CPU") + 3, 0))
            await pilot.pause()
            assert app.order == "cpu_busy"
            assert names_of(app)[:2] == ["n2", "n6"]
            await pilot.press("r")
            assert names_of(app)[0] == "n4"
            await pilot.press("u", "s")
            assert app.order == "cpu_busy"
            await pilot.press("u", "S", "S")
            assert app.order == "host"
            assert names_of(app) == [f"n{number}" for number in range(1, 8)]

            await pilot.press("home", "down", "down", "enter")
            await pilot.pause()
            assert isinstance(app.screen, Details)
            shown = details_of(app)
            assert shown.startswith("n3  up")
            assert "sda" in shown
            assert "5 MiB/s" in shown
            assert "\x1b" not in shown
            await pilot.press("escape")
            feed.board.lost("n3", "timed-out", "silent for 17 s", START)
            feed.beat({}, but="n3")
            await pilot.press("u")
            await until_true(lambda: lines_of(app)[1].startswith("n3    lost"))
            assert app.screen.query_one(HostTable).cursor == 0, "the cursor went with its host"
            await pilot.press("enter")
            await pilot.pause()
            assert "silent for 17 s" in details_of(app)
            feed.beat({})
            await until_true(lambda: "back" in details_of(app))  # details follow the host
            await pilot.press("escape", "space")
            assert feed.paused
            await pilot.press("end")
            assert app.screen.query_one(HostTable).cursor == 6, "live hosts have no end to seek: the cursor moves"
            await pilot.press("comma", "q")

    asyncio.run(main())


def test_help() -> None:
    """`?` lists the keys, and `q` quits from there too."""

    async def main() -> WatchApp:
        app = WatchApp(Scripted(["n1"]))
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("question_mark")
            await pilot.pause()
            assert "reverse the order" in details_of(app)
            await pilot.press("q")
            await pilot.pause()
            assert not app.is_running
        return app

    assert asyncio.run(main()).return_code == 0


def test_columns_are_as_wide_as_needed() -> None:
    """An empty column is as wide as its heading; the trend moves if the first metrics would not fit."""
    feed = Scripted(["n1"])

    async def main(width: int) -> str:
        app = WatchApp(feed)
        async with app.run_test(size=(width, 24)):
            feed.beat({})
            await until_true(lambda: " up " in lines_of(app)[1])
            return lines_of(app)[0].rstrip()

    narrow, wide = asyncio.run(main(80)), asyncio.run(main(120))
    assert narrow.split()[:4] == ["host", "state", "unusual", "CPU"]
    assert "mem avail" in narrow
    assert re.match(r"host  state +unusual  ▁▃ CPU  ", wide)
    assert wide.index("  CPU") < 45


@pytest.mark.parametrize("width", [100, 110])
def test_network_and_memory_fit_the_terminal(width: int) -> None:
    """Even with long values and an unusual host."""
    feed = Scripted([f"node{number:02}" for number in range(1, 9)])
    values = dict.fromkeys(("disk_read", "disk_write", "net_rx", "net_tx", "mem_available"), 987.6 * 2**30)

    async def main() -> list[str]:
        app = WatchApp(feed)
        async with app.run_test(size=(width, 24)):
            for second in range(1, 6):
                for name in feed.board.hosts:
                    odd = {"disk_write": 9 * values["disk_write"]} if name == "node03" else {}
                    feed.board.beat(name, START + second * SECOND, {"cpu_busy": 100.0, **values, **odd})
                feed.board.tick(START + second * SECOND)
            await until_true(lambda: names_of(app)[0] == "node03")
            return lines_of(app)

    heading, first, *_ = asyncio.run(main())
    assert all(title in heading for title in ("disk write", "net in", "net out", "mem avail"))
    assert first.split()[:6] == ["node03", "up", "disk", "write", "9.0", "×"]
    assert " 988 GiB " in first


def test_a_paused_screen_does_not_change() -> None:
    """Whatever live hosts do meanwhile; a new column does no harm."""
    feed = Scripted(["n1", "n2", "n3"])

    def of(name: str, app: WatchApp) -> str:
        return next(line for line in lines_of(app) if line.startswith(name))

    async def main() -> None:
        app = WatchApp(feed)
        async with app.run_test(size=(200, 24)) as pilot:
            feed.beat({"n1": 10.0})
            await pilot.pause(0.6)
            feed.board.beat("n1", START + 2 * SECOND, {"cpu_busy": 11.0, "nfs_read": 5.0})
            await pilot.press("down")
            assert "NFS read" in lines_of(app)[0]
            await pilot.press("space")
            held = of("n1", app)
            assert "11 %" in held
            feed.board.lost("n2", "timed-out", "silent", START)
            feed.board.beat("n1", START + 3 * SECOND, {"cpu_busy": 77.0, "rdma_rx": 5.0})
            for _ in range(3):
                feed.beat({"n1": 88.0}, but="n2")
            await pilot.press("down", "up")
            await pilot.pause(0.6)
            assert of("n1", app) == held
            await pilot.press("s", "u")
            assert of("n1", app) == held
            assert "RDMA" not in lines_of(app)[0]
            assert "up" in of("n2", app)
            app.query_one(HostTable).cursor = names_of(app).index("n1")
            await pilot.press("enter")
            await pilot.pause()
            assert "11 %" in details_of(app)
            await pilot.press("escape", "space")
            assert "88 %" in of("n1", app)
            assert "lost" in of("n2", app)

    asyncio.run(main())


def test_hosts_without_a_value_come_last() -> None:
    """Greatest first and least first."""
    board = Board(["a", "b", "c"], 1.0)
    board.lost("a", "refused", "no", START)
    filled(board, START, {"b": 1.0, "c": 2.0}, but="a")
    assert [host.name for host in board.ordered("cpu_busy")] == ["c", "b", "a"]
    assert [host.name for host in board.ordered("cpu_busy", reverse=True)] == ["b", "c", "a"]


def test_no_host_stays_unusual_among_a_few() -> None:
    """A host that was unusual among six is not any more when two have gone."""
    board = Board([f"n{number}" for number in range(6)], 1.0)
    for beat in range(6):
        filled(board, START + beat * SECOND, {"n0": 95.0})
    assert board.hosts["n0"].unusual > 4
    for name in ("n4", "n5"):
        board.lost(name, "failed", "gone", START + 6 * SECOND)
    for name in ("n0", "n1", "n2", "n3"):
        board.beat(name, START + 6 * SECOND, {"cpu_busy": 95.0 if name == "n0" else 50.0})
    board.tick(START + 6 * SECOND)
    assert board.hosts["n0"].unusual == 0
    assert board.most_unusual == "cpu_busy"
    assert "×" not in " ".join(table_row(board, board.hosts["n0"]))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(7, "silent 7 s"), (119, "silent 119 s"), (7199, "silent 120 min"), (12345, "silent 3 h"), (9e5, "silent 10 d")],
)
def test_a_long_silence_fits_its_column(seconds: float, shown: str) -> None:
    """A truncated number would be another number."""
    board = Board(["a"], 1.0)
    board.hosts["a"] = HostView("a", state="silent", since_ns=START)
    board.now_ns = START + round(seconds * SECOND)
    assert table_row(board, board.hosts["a"])[1] == shown
    assert len(shown) <= WIDTHS["state"]


@pytest.mark.parametrize(
    ("hosts", "shown"),
    [
        (1, "1 host, 1 connecting  sorted by unusual"),
        (2, "2 hosts, 2 connecting  sorted by unusual  too few hosts to compare, at least 5 needed"),
        (5, "5 hosts, 5 connecting  sorted by unusual"),
    ],
)
def test_the_status_line(hosts: int, shown: str) -> None:
    """A single host has no peers, so there is no hint that there are too few."""
    assert status_line(Board([f"n{number}" for number in range(hosts)], 1.0), "unusual") == shown


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (HostView("x", state="up", beats=2), "complete"),
        (HostView("x", state="up", beats=1), "timed-out"),
        (HostView("x", state="silent", beats=9), "timed-out"),
        (HostView("x", beats=0), "timed-out"),
        (HostView("x", state="lost", status="refused", beats=9), "refused"),
    ],
)
def test_once_is_complete_for_hosts_that_have_rates(host: HostView, status: str) -> None:
    """A host that fell silent is missing."""
    assert _result(host).status == status


def test_names_with_control_characters_are_text() -> None:
    """Escapes, direction marks and markup in a host's name have no effect."""
    feed = Scripted([ODD, "b"])

    async def main() -> None:
        app = WatchApp(feed)
        async with app.run_test(size=(200, 24)) as pilot:
            feed.board.lost(ODD, "failed", "\x1b]0;owned\x07[bold]x[/bold]", START)
            feed.beat({}, but=ODD)
            await pilot.press("u")
            assert lines_of(app)[1].startswith("n?[31m?[red]<script>")
            await pilot.press("home", "enter")
            await pilot.pause()
            shown = details_of(app)
            assert "?]0;owned?[bold]x[/bold]" in shown
            assert shown.replace("\n", "").isprintable()

    asyncio.run(main())


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Two hosts for ten beats, the second away for a while; a third that never came."""
    script = Script(tmp_path / "raw", ["a", ODD, "c"], ["net_dev", "loadavg"])
    for host in range(2):
        script.connect(host)
        for second in range(20):
            if host == 1 and 6 <= second < 14:
                continue
            texts = net(eth0=1000 * second * (host + 1)) | {"loadavg": {"/proc/loadavg": "0.5 0.4 0.3 2/100 7\n"}}
            script.sample(START + second * SECOND, texts, host=host)
    script.journal.event({"event": "lost", "reason": "key rejected", "status": "refused"}, host=2)
    script.close()
    derive(tmp_path)
    (tmp_path / "test_20261115_000000_metadata.json").write_text("{}")
    return tmp_path


def test_a_record_is_played(record: Path) -> None:
    """Every beat in order, the gap of a host as recorded, and the end of the record."""
    replay = Replay(Record.open(record), speed=200)
    seen = []

    async def main() -> None:
        async with replay.running():
            while not replay.ended:
                host = replay.board.hosts[ODD]
                seen.append((host.state, host.values.get("net_rx")))
                await asyncio.sleep(0.002)
            assert replay.devices("a") == {"eth0": {"net_rx": 1000.0, "net_tx": 500.0}}

    asyncio.run(main())
    assert replay.board.ticks == 20
    states = [state for state, _ in seen]
    assert [state for state in dict.fromkeys(states) if state != "connecting"] in (
        ["up", "lost", "back"],
        ["up", "silent", "lost", "back"],
    )
    assert ("up", 2000.0) in seen
    assert replay.board.hosts["c"].state == "lost"


def test_seeking_in_a_record(record: Path) -> None:
    """A beat looks the same as when it was played, with its history; keys step, jump and go to the ends."""
    run = Record.open(record)
    played, sought = Replay(run, speed=1e9), Replay(run)

    def looks(replay: Replay) -> list[object]:
        hosts = replay.board.hosts.values()
        return [
            (host.name, host.state, host.reason, host.drops, host.values, [str(one) for one in host.history["net_rx"]])
            for host in hosts
        ]

    async def main() -> None:
        seen = {}
        async with played.running(), sought.running():
            played.pause(paused=True)
            sought.pause(paused=True)
            for beat in range(played.place[1]):
                played.seek(beat)
                seen[beat] = looks(played)
            assert played.ended
            for beat in (19, 0, 10, 9, 15, 3):
                sought.seek(beat)
                assert sought.place == (beat, 20)
                assert looks(sought) == seen[beat]
            assert "lost" in str(seen[10])
            sought.seek(5)
            assert sought.devices("a") == {"eth0": {"net_rx": 1000.0, "net_tx": 500.0}}

            app = WatchApp(sought)
            async with app.run_test(size=(220, 24)) as pilot:
                await pilot.press("home")
                assert sought.place == (0, 20)
                for key, place in (("full_stop", 1), ("]", 3), ("]", 5), ("comma", 4), ("[", 2), ("end", 19)):
                    await pilot.press(key)
                    assert sought.place == (place, 20), key
                assert app.paused, "a step pauses the playback"
                assert "sample 20 of 20  paused" in str(app.query_one("#status", Static).visual)
                footer = {binding.description for *_, binding, on, _ in app.screen.active_bindings.values() if on}
                assert {"Pause", "Back", "Forward", "-10 %", "+10 %", "Start", "End"} <= footer
                await pilot.press("home", "space")
                await until_true(lambda: sought.place[0] > 0)  # it goes on
                await app.query_one(HostTable).remove()  # as when the view is closed, while the timer still runs
                app._shown = (-1, False)
                app._refresh_if_changed()

    asyncio.run(main())


def test_playback_continues_after_a_seek(record: Path) -> None:
    """Seeking back from the end plays the rest again."""
    replay = Replay(Record.open(record), speed=500)

    async def main() -> None:
        async with replay.running():
            for _ in range(2):
                async with asyncio.timeout(SECONDS):
                    while not replay.ended:  # noqa: ASYNC110 - a replay has no event to wait for
                        await asyncio.sleep(0.002)
                replay.seek(12)
                assert not replay.ended

    asyncio.run(main())


MOUNTSTATS = """device rootfs mounted on / with fstype rootfs
device server:/export mounted on /data with fstype nfs4 statvers=1.1
	opts:	rw,vers=4.2,proto=tcp
	age:	100
	bytes:	0 0 0 0 {read} {written} 0 0
"""
PORT = "/sys/class/infiniband/mlx5_0/ports/1/counters/port_{}_data"
GPU = "0, {}, 10, 1024, 300.0, 50, 1500, 2000, 0x0\n1, 20, 10, 1024, 300.0, 50, 1500, 2000, 0x0\n"
SPECIAL = ("gpu", "infiniband_counters", "nfs", "loadavg")


def take(rates: HostMetrics, texts: dict[str, dict[str, str]], second: int) -> None:
    """One sample as it comes live."""
    rates.begin()
    for name, pages in texts.items():
        rates.take(name, catalogue.source(name).parse(pages), START + second * SECOND, second * SECOND)
    rates.end(START + second * SECOND)


def replay_of(script: Script, path: Path) -> Replay:
    """The record of a script that has come to its end, to be played."""
    script.close()
    derive(path)
    (path / "test_20261115_000000_metadata.json").write_text("{}")
    return Replay(Record.open(path))


def test_columns_that_only_some_hosts_need(tmp_path: Path) -> None:
    """GPUs, RDMA ports and NFS mounts get columns if a host has them, live and from a record."""
    script = Script(tmp_path / "raw", ["a", "b"], SPECIAL, started_ns=START)
    rates, seen = HostMetrics(1.0), []
    for host in range(2):
        script.connect(host)
    for second in range(31):
        texts = {"loadavg": {"/proc/loadavg": "0.5 0.4 0.3 2/100 7\n"}}
        script.sample(START + second * SECOND, texts, host=1)
        texts |= {"gpu": {"nvidia-smi": GPU.format(60)}}
        if second % 5 == 0:
            names = {"rcv": 250 * second, "xmit": 25 * second}  # words of four bytes
            texts["infiniband_counters"] = {PORT.format(name): f"{value}\n" for name, value in names.items()}
        if second % 10 == 0:
            page = MOUNTSTATS.format(read=3000 * second, written=70 * second)
            texts["nfs"] = {"/proc/self/mountstats": page}
        script.sample(START + second * SECOND, texts, host=0)
        take(rates, texts, second)
        seen.append(rates.values)
    replay = replay_of(script, tmp_path)

    async def main() -> None:
        async with replay.running():
            replay.pause(paused=True)
            for second, values in enumerate(seen):
                replay.seek(second)
                assert replay.board.hosts["a"].values == pytest.approx(values), second
            replay.seek(27)
            assert replay.devices("a") == {
                "gpu0": {"gpu_util": 60, "gpu_memory": 2**30},
                "gpu1": {"gpu_util": 20, "gpu_memory": 2**30},
                "mlx5_0:1": {"rdma_rx": 1000, "rdma_tx": 100},
                "/data": {"nfs_read": 3000, "nfs_write": 70},
            }

    asyncio.run(main())
    assert seen[4].keys() == {"load_1min", "gpu_util", "gpu_memory"}
    assert seen[13] == pytest.approx(
        {"load_1min": 0.5, "gpu_util": 40, "gpu_memory": 2**31, "rdma_rx": 1000, "rdma_tx": 100}
        | {"nfs_read": 3000, "nfs_write": 70}
    )
    with open_tables(Record.open(tmp_path)) as tables:
        charts = {chart.id for chart in build(Record.open(tmp_path), tables).charts}
    assert charts > {"load_1min", *RARE}, "the page draws them too"
    result = CliRunner().invoke(cli, ["watch", "--once", str(tmp_path)])
    head, *lines = result.stdout.splitlines()
    assert all(title in head for title in ("GPU", "GPU MEM", "RDMA IN", "RDMA OUT", "NFS READ", "NFS WRITE"))
    assert "40 %" in next(line for line in lines if line.startswith("a"))
    assert "GPU" not in CliRunner().invoke(cli, ["watch", "--once", "--interval", "0.2"]).stdout


@pytest.mark.parametrize(("interval", "stands"), [(1, 15), (10, 1), (20, 1)])
def test_slow_values_expire(tmp_path: Path, interval: int, stands: int) -> None:
    """At long intervals slow sources are read at every beat, so their values are held for less time."""
    script = Script(tmp_path / "raw", ["a"], SPECIAL, interval_ns=interval * SECOND, started_ns=START)
    script.connect()
    rates, seen = HostMetrics(interval), []
    beats = catalogue.source("nfs").beats(interval)
    for beat in range(beats + stands + 3):
        second = beat * interval
        texts = {"loadavg": {"/proc/loadavg": "0.5 0.4 0.3 2/100 7\n"}}
        if beat in (0, beats):
            page = MOUNTSTATS.format(read=3000 * second, written=70 * second)
            texts["nfs"] = {"/proc/self/mountstats": page}
        script.sample(START + second * SECOND, texts)
        take(rates, texts, second)
        seen.append("nfs_read" in rates.values)
    assert [beat for beat, known in enumerate(seen) if known] == list(range(beats, beats + stands + 1))
    replay = replay_of(script, tmp_path)

    async def main() -> None:
        async with replay.running():
            replay.pause(paused=True)
            for beat, known in enumerate(seen):
                replay.seek(beat)
                assert ("nfs_read" in replay.board.hosts["a"].values) == known, beat
            assert not replay.devices("a")

    asyncio.run(main())


def test_nfs_bytes_of_many_mounts() -> None:
    """A file system mounted at two places moves its bytes once."""
    rates, source = HostMetrics(1.0), catalogue.source("nfs")
    mounts = "".join(f"{n} 1 0:50 / {place} rw - nfs4 srv:/x rw\n" for n, place in enumerate(("/data", "/home")))
    rates.learn("mountinfo", catalogue.source("mountinfo").parse({"/proc/self/mountinfo": mounts}))
    for second in (0, 10):
        page = MOUNTSTATS.format(read=3000 * second, written=70 * second)
        page += page.replace("/data", "/home")
        rates.begin()
        at = START + second * SECOND
        rates.take("nfs", source.parse({"/proc/self/mountstats": page}), at, second * SECOND)
        rates.end(at)
    assert rates.values == {"nfs_read": 3000, "nfs_write": 70}


@pytest.mark.parametrize("merged", [2, 3])
@pytest.mark.parametrize("first", [0, 1])
def test_merged_samples_keep_their_beats(tmp_path: Path, merged: int, first: int) -> None:
    """Replay and page have every host in every beat despite jitter, and nothing recorded is missing."""
    start, beats = START + first * SECOND, 24
    script = Script(tmp_path / "raw", ["a", "b", "c"], ["loadavg"], started_ns=start, max_samples=beats // merged + 1)
    for host in range(3):
        script.connect(host)
    for beat in range(beats):
        for host in range(3):
            jitter = (beat * 7 + host * 5) % 9 - 4 if beat else host
            page = {"/proc/loadavg": f"{beat}.00 1 1 1/2 3\n"}
            script.sample(start + beat * SECOND + jitter * SECOND // 1000, {"loadavg": page}, host=host)
    script.close()
    derive(tmp_path)
    (tmp_path / "test_20261115_000000_metadata.json").write_text("{}")
    run = Record.open(tmp_path)
    assert run.hosts.merged == merged
    replay = Replay(run)

    async def main() -> None:
        async with replay.running():
            replay.pause(paused=True)
            for beat in range(replay.place[1]):
                replay.seek(beat)
                shown = [host.values["load_1min"] for host in replay.board.hosts.values()]
                assert len(set(shown)) == 1, (beat, shown)
                assert abs(replay.board.now_ns - replay.board.hosts["a"].beat_ns) < SECOND

    asyncio.run(main())
    times = sampled_span(run.hosts)
    assert times is not None
    with open_tables(run) as tables:
        assert tables is not None
        grids = tables.grids("host_loadavg", ["load_1min"], Axis.of(*times, 3), [Row(name) for name in "abc"])
    lines = [list(line) for line in grids["load_1min"].mean]
    assert lines[0] == lines[1] == lines[2]
    assert not any(math.isnan(value) for value in lines[0])


def test_a_host_that_is_lost_has_no_devices(record: Path) -> None:
    """The values of its last beat are not current."""
    replay = Replay(Record.open(record))

    async def main() -> None:
        async with replay.running():
            replay.pause(paused=True)
            replay.seek(5)
            assert replay.devices(ODD)
            replay.seek(11)
            assert replay.board.hosts[ODD].state == "lost"
            assert replay.devices(ODD) == {}

    asyncio.run(main())


def test_once_of_a_record(record: Path) -> None:
    """The table of its last beats."""
    result = CliRunner().invoke(cli, ["watch", "--once", str(record)])
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    rows = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert "1000 B/s" in rows["a"]
    assert "1.95 KiB/s" in rows["n?[31m?[red]<script>"]
    assert rows["c"].split()[1] == "lost"
    for option in ("-w", "-x", "--hostfile"):
        both = CliRunner().invoke(cli, ["watch", str(record), option, "n1"])
        assert isinstance(both.exception, UsageError), option


def in_terminal(code: str, keys: str = "", until: str = "", seconds: float = 180.0) -> tuple[int, str]:
    """Run Python code with `watch` as its argument in a terminal; type keys once a text was shown."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "LINES": "40"}
    with subprocess.Popen(
        [sys.executable, "-c", code, "watch", "--interval", "0.5"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        close_fds=True,
    ) as child:
        os.close(theirs)
        said, limit = "", time.monotonic() + seconds
        with contextlib.suppress(OSError):  # how a terminal says that the other side is gone
            while time.monotonic() < limit:
                if select.select([ours], [], [], 0.2)[0]:
                    said += os.read(ours, 65536).decode("utf-8", "replace")
                if until and until in said:
                    os.write(ours, keys.encode())
                    until = ""
        os.close(ours)
        child.kill()
        return child.wait(), said


def test_full_screen_in_a_real_terminal() -> None:
    """This machine, live, until q; then the terminal is restored."""
    code, said = in_terminal(MAIN, keys="q", until="1 up")
    assert code == 0, said[-2000:]


def test_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """`NO_COLOR` turns colours off and nothing else."""
    monkeypatch.setenv("NO_COLOR", "1")
    code, said = in_terminal(MAIN, keys="q", until="1 up")
    assert code == 0, said[-2000:]
    assert "Traceback" not in said


def test_a_crash_is_not_a_success() -> None:
    """An error inside the full screen ends with the exit code of internal errors."""
    broken = "from rollbook.watch import table; table.table_row = None"
    code, said = in_terminal(f"{broken}; {MAIN}")
    assert code == 70, said[-2000:]


def test_without_textual() -> None:
    """The message says what to install, and what works without it."""
    code, said = in_terminal(f"import sys; sys.modules['textual'] = None; {MAIN}")
    assert code == 2
    assert "rollbook[tui]" in said
    assert "--once" in said
