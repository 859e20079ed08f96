"""Push: real servers get the values of the record, losses are counted, and a run does not fail because of them."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rollbook.api.finish import finish
from rollbook.cli import cli
from rollbook.errors import UsageError
from rollbook.exports.families import families, gauge_of
from rollbook.exports.grafana import dashboard
from rollbook.exports.push import Limits, Push
from rollbook.exports.receiver import TOKEN, Receiver
from rollbook.metrics import catalogue
from rollbook.metrics.metric import VALUES, Metric
from rollbook.records.layout import RecordDirectory
from rollbook.records.pushed import Pushed, read_pushed
from rollbook.records.record import Record
from rollbook.sources.base import compare_of
from rollbook.sql import connection as store
from rollbook.tables.derive import derive
from rollbook.testing.journals import Beats, Script, body_of, mutated
from tests.support.metric_servers import Series, Server, ask, prometheus, victoria

SECOND = 10**9
DATA = Path(__file__).parent.parent / "data" / "sources"
CASES = {
    "stat": "two_cpus",
    "stat_totals": "two_cpus",
    "loadavg": "busy",
    "diskstats": "linux_6_18",
    "net_dev": "alias",
    "infiniband_counters": "hdr",
    "nfs": "nfs4",
    "nfs_ops": "nfs4",
    "lustre_stats": "client_2_15",
    "meminfo": "linux_6_18",
    "vmstat": "linux_6_18",
    "pressure": "linux_6_18",
    "gpu": "two_rounds",
    "amdgpu": "mi300",
}
"""A data case for each table that metrics are computed from."""
HOSTS = ["node1", 'n"2\\ö']
HOUR = 3600 * SECOND
LABELS = {"job": "nightly", "record": "test/20261115_000000"}
PATIENT = Limits(age=1e9, end=60.0)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of two hosts with all metrics; one has a wrong clock and reconnects; two samples are 1 ms apart.

    The first half of the samples arrives an hour after the others, so that the others are old.
    """
    directory = tmp_path_factory.mktemp("push") / "record" / "raw"
    start = time.time_ns() // SECOND * SECOND - 600 * SECOND
    script = Script(directory, HOSTS, list(CASES), started_ns=start)
    for host, ahead in enumerate((0, HOUR)):
        changes, beats = random.Random(host), Beats()
        script.connect(host)
        clock = {"event": "clock", "offset_ns": -ahead, "bound_ns": 1000, "round_trip_ns": 2000}
        script.journal.event(clock, host=host)
        bodies = {number: body_of(_case(name)) for number, name in enumerate(CASES)}
        for beat in [*range(12), *range(20, 32)]:
            if host and beat == 20:
                script.journal.event({"event": "lost", "status": "failed", "reason": "gone"}, host=host)
                script.connect(host)
                beats = Beats()
            changed = {body: mutated(body, changes, 0.5) for body in bodies.values()}
            bodies = {number: changed[body] for number, body in bodies.items()}
            at = start + beat * SECOND + 37_000_000
            for late in (0, 1_000_000)[: 1 + (beat == 5)]:
                payload, arrived = beats.payload(bodies), at + (HOUR if beat < 12 else 0)
                script.frame("S", payload, at + late + ahead, at + late - 10**18, host=host, arrived=arrived)
    script.close()
    return directory


def _case(name: str) -> dict[str, str]:
    owner = "nfs_ops" if name == "nfs" else name  # both read the same file of the kernel
    pages: dict[str, str] = json.loads((DATA / owner / f"{CASES[name]}.json").read_text())["pages"]
    if name == "vmstat":  # the cases leave these out
        pages["/proc/vmstat"] += "pswpin 5\npswpout 6\n"
    return pages


def push_journal(raw: Path, url: str, limits: Limits = PATIENT) -> Pushed:
    """Push a complete journal."""
    return Push(raw, Receiver(url), LABELS, wait=lambda _: True, limits=limits).run()


@pytest.fixture(scope="module")
def in_prometheus(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Pushed]]:
    """A Prometheus server after a push, and the result of the push."""
    with prometheus(tmp_path_factory.mktemp("prometheus")) as server:
        yield server, push_journal(raw, server.address)


@pytest.fixture(scope="module")
def stored(raw: Path) -> dict[str, Series]:
    """The series that SQL computes from the record, by name."""
    derive(raw.parent)
    (raw.parent / "test_20261115_000000_metadata.json").write_text("{}")
    RecordDirectory(raw.parent, "test", "20261115_000000").write_manifest()
    found: dict[str, Series] = {}
    with store.connect(Record.open(raw.parent)) as connection:

        def read(view: str, metrics: Sequence[Metric], *keys: str) -> None:
            names = ", ".join(metric.name for metric in metrics)
            rows = connection.execute(f"SELECT epoch_ms(ts), {', '.join(keys)}, {names} FROM {view} ORDER BY ts")
            table = rows.fetchall()
            for column, metric in enumerate(metrics, 1 + len(keys)):
                gauge = gauge_of(metric)
                series = found[gauge.device if "device" in keys else gauge.host] = {}
                for row in table:
                    if row[column] is not None:
                        labels = LABELS | dict(zip(keys, row[1:], strict=False))
                        add(series, labels, row[0], row[column] * gauge.factor / gauge.divisor)

        read("rates", list(catalogue.load().values()), "host")
        for part in catalogue.parts().values():
            if part.shows_devices:
                read(part.name, part.metrics, "host", "device")
    return found


def add(found: Series, labels: dict[str, str], at: int, value: float) -> None:
    """Add a value, except for the second of two samples 1 ms apart."""
    series = found.setdefault(tuple(sorted(labels.items())), [])
    if not series or at - series[-1][0] > 1:
        series.append((at, value))


def compare(server: Server, stored: dict[str, Series]) -> int:
    """Assert that a server holds the series of a record; returns the number of values."""
    count, held_parts = 0, [part for part in catalogue.parts().values() if part.is_held]
    held_devices = {gauge_of(metric).device for part in held_parts for metric in part.metrics}
    for name, expected in stored.items():
        found = server.series(name)
        assert expected, name
        assert found.keys() == expected.keys(), name
        for key, samples in expected.items():
            values = dict(found[key])
            count += len(values)
            if name not in held_devices:  # live, a value that is not read on every beat is repeated until the next
                assert values.keys() == dict(samples).keys(), name
            assert [values[at] for at, _ in samples] == pytest.approx([v for _, v in samples], rel=1e-9), name
    return count


@pytest.mark.needs("prometheus")
def test_prometheus_has_the_values_of_the_record(
    raw: Path, stored: dict[str, Series], in_prometheus: tuple[Server, Pushed]
) -> None:
    """All metrics of hosts and devices arrive with all labels at the times of the samples; the counts are correct."""
    server, result = in_prometheus
    assert (compare(server, stored), 0, "") == (result.sent, result.lost, result.reason)
    assert read_pushed(raw, "") == result


@pytest.mark.needs("victoria-metrics")
def test_victoria_metrics_has_the_values_of_the_record(raw: Path, stored: dict[str, Series], tmp_path: Path) -> None:
    """All metrics arrive with all labels at the times of the samples; the counts are correct."""
    with victoria(tmp_path) as server:
        result = push_journal(raw, f"{server.address}/api/v1/write")
        assert (compare(server, stored), 0) == (result.sent, result.lost)


@pytest.mark.needs("prometheus")
def test_every_query_of_the_dashboard_has_data(in_prometheus: tuple[Server, Pushed]) -> None:
    """Every query of a panel and of a variable has data, and series end with the recording."""
    server, _ = in_prometheus
    made = json.loads(CliRunner().invoke(cli, ["grafana"]).stdout)
    assert made == dashboard()
    panels = [panel for row in made["panels"] for panel in (row, *row.get("panels", []))]
    assert len({panel["id"] for panel in panels}) == len(panels)
    charts = [panel for panel in panels if panel["type"] == "timeseries"]
    assert {panel["title"] for panel in charts} >= {one.title for one in catalogue.load().values() if one.chart}
    end = max(at for series in server.series("rollbook_host_load_1min").values() for at, _ in series) / 1000
    values = {"$__range": "15m", "$job": "nightly", "$record": LABELS["record"], "$host": ".*"}

    def result(path: str, **parameters: object) -> Any:
        return json.loads(ask(f"{server.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]

    for panel in charts:
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in values.items():
                query = query.replace(name, value)
            found = result("query_range", query=query, start=end - 40, end=end, step=1)["result"]
            assert found, query
            hosts = {one["metric"].get("host") for one in found}
            assert hosts == ({None} if target["legendFormat"] == "median" else set(HOSTS)), query
            assert not result("query", query=query, time=end + 1)["result"], query
    for variable in made["templating"]["list"][1:]:
        wanted = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
        assert wanted is not None
        series = wanted[1]
        for name, value in values.items():
            series = series.replace(name, value)
        found = result(f"label/{wanted[2]}/values", **{"match[]": series})
        assert found == {"job": ["nightly"], "record": [LABELS["record"]], "host": sorted(HOSTS)}[wanted[2]]


class Scripted:
    """A receiver that answers with these statuses in turn and repeats the last one; it does not answer for None."""

    def __init__(self, *answers: tuple[int | None, dict[str, str]]) -> None:
        self.times: list[float] = []
        self.headers: list[dict[str, str]] = []
        self._answers, self._over = list(answers), threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Run the server; yield its address."""
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                scripted.times.append(time.monotonic())
                scripted.headers.append(dict(self.headers))
                status, headers = scripted._answers[0]
                del scripted._answers[: len(scripted._answers) > 1]
                if status is None:
                    scripted._over.wait()
                    return
                text = f"no, {self.headers.get('Authorization', '')}\nmore\n".encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=[0.05])
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}"
            finally:
                self._over.set()
                server.shutdown()
                thread.join()


@pytest.mark.parametrize(
    ("answers", "requests", "reason"),
    [
        ([(204, {})], 1, ""),
        ([(503, {}), (503, {"Retry-After": "0"}), (204, {})], 3, ""),
        ([(429, {"Retry-After": "Mon, 16 Nov 2020 00:00:00 GMT"}), (204, {})], 2, ""),
        ([(400, {})], 1, "HTTP 400 Bad Request: no,"),
        ([(401, {})], 1, "HTTP 401 Unauthorized: no,"),
        ([(307, {"Location": "http://127.0.0.1:1/"})], 1, "HTTP 307 Temporary Redirect: no,"),
        ([(503, {"Retry-After": "3600"})], 1, "HTTP 503 Service Unavailable: no,"),
    ],
)
def test_retries_and_losses(raw: Path, answers: list[Any], requests: int, reason: str) -> None:
    """Temporary errors are retried, others are not; losses are counted with their reason."""
    receiver = Scripted(*answers)
    with receiver.running() as url:
        result = push_journal(raw, url)
    assert len(receiver.times) == requests
    assert (bool(result.lost), bool(result.sent)) == (bool(reason), not reason)
    assert result.reason.startswith(reason) if reason else not result.reason
    assert receiver.headers[0]["User-Agent"].startswith("rollbook/")


def test_retry_after_is_honoured(raw: Path) -> None:
    """The next request is sent only after the time that the server demands."""
    receiver = Scripted((503, {"Retry-After": "2"}), (204, {}))
    with receiver.running() as url:
        assert not push_journal(raw, url).lost
    assert receiver.times[1] - receiver.times[0] >= 1.9


@pytest.mark.parametrize("is_dead", [True, False])
def test_no_answer(raw: Path, is_dead: bool) -> None:
    """All values are counted as lost, the reason is reported once, and the push ends after a time limit."""
    receiver = Scripted((None, {}))
    problems: list[str] = []
    over = iter([False])
    limits = Limits(age=1e9, request=0.3, end=0.5)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(receiver.running())
        if is_dead:
            stack.close()
        push = Push(
            raw, Receiver(url), LABELS, wait=lambda _: next(over, True), on_problem=problems.append, limits=limits
        )
        result = push.run()
    assert problems == ["Connection refused" if is_dead else "no answer within 0.3 s"]
    assert result.sent == 0
    assert result.lost
    assert result.reason.startswith("Connection refused" if is_dead else "no answer within ")


def test_old_samples_are_skipped(raw: Path) -> None:
    """Samples that are too old are not sent, but counted as lost."""
    with Scripted((204, {})).running() as url:
        every = push_journal(raw, url)
        some = push_journal(raw, url, Limits(end=60.0))
    assert every.sent
    assert some.sent
    assert some.lost
    assert some.sent < every.sent
    assert "behind" in some.reason


def test_full_queue_waits_for_the_receiver(raw: Path) -> None:
    """While too much is pending, reading of the journal pauses; nothing is lost."""
    receiver = Scripted((503, {"Retry-After": "0"}), (503, {"Retry-After": "1"}), (204, {}))
    over = iter([False] * 3)
    limits = Limits(age=1e9, end=60.0, batch_bytes=20_000, pending_bytes=1)
    with receiver.running() as url:
        result = Push(raw, Receiver(url), LABELS, wait=lambda _: next(over, True), limits=limits).run()
        assert result.lost == 0
        assert result.sent == push_journal(raw, url).sent
    assert len(receiver.times) > 10


@pytest.mark.parametrize(
    "url",
    [
        "prometheus:9090",
        "ftp://user:secret@server/",
        "http://",
        "http://user:secret@server:port/",
        "http://user:secret/more@server/",
        "http://user:secret@server/a b",
    ],
)
def test_unusable_addresses(url: str) -> None:
    """They are rejected, and the message does not contain their secrets."""
    with pytest.raises(UsageError, match="expected an address such as http://server:9090/api/v1/write") as caught:
        Receiver(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "used"),
    [
        ("http://server:9090", "http://server:9090/api/v1/write"),
        ("https://ann:secret@[::1]/?extra_label=a=b", "https://[::1]/api/v1/write?extra_label=a=b"),
        ("http://server/push/", "http://server/push/"),
    ],
)
def test_addresses(url: str, used: str) -> None:
    """The default path is added if there is none; credentials are not part of the request URL."""
    assert Receiver(url)._url == used


def test_pushed_and_exported_names_differ() -> None:
    """No pushed series has the name of an exported one: their labels and meaning differ."""
    tables = {
        table.source.name: {
            name: (how.mode, how.unit)
            for name, how in compare_of(table.source.row_type).items()
            if how.mode in (*VALUES, "key")
        }
        for part in catalogue.parts().values()
        for table in part.tables
    }
    exported = {column.metric for columns in families(tables).values() for column in columns}
    gauges = [gauge_of(metric) for metric in catalogue.load().values()]
    names = [name for gauge in gauges for name in (gauge.host, gauge.device)]
    assert len(set(names)) == len(names)
    assert not exported & set(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)


def run(tmp_path: Path, url: str, command: str, *more: str) -> tuple[int, Any, str, Path]:
    """Record this machine around a command; returns the exit code, the summary, stderr and the record."""
    argv = [
        "run",
        "--push",
        url,
        "--via",
        "local",
        "--interval",
        "0.1",
        "--results-dir",
        str(tmp_path),
        "--json",
        *more,
    ]
    result = CliRunner().invoke(cli, [*argv, "--no-report", "--", "sh", "-c", command])
    summary = json.loads(result.stdout)
    return result.exit_code, summary, result.stderr, Path(summary["record"])


def test_losses_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses are in summary, notes and metadata and do not change the exit code; secrets are not written anywhere."""
    monkeypatch.setenv(TOKEN, "not-used-with-a-password")
    receiver = Scripted((401, {}))
    with receiver.running() as url:
        place = url.removeprefix("http://")
        address, patient = f"http://ann:s3cret@{place}/?key=s3cret", ["--interval", "1", "--strict"]
        code, summary, stderr, record = run(tmp_path, address, "true", *patient)
    assert code == 0
    pair = base64.b64encode(b"ann:s3cret").decode()
    assert receiver.headers[0]["Authorization"] == f"Basic {pair}"
    push, reason = summary["push"], "HTTP 401 Unauthorized: no, Basic ***"
    assert push["lost"] > 0
    assert push == {"url": f"http://***@{place}/?key=***", "sent": 0, "lost": push["lost"], "reason": reason}
    assert f"push to {push['url']}: {push['lost']} of {push['lost']} values were lost: {reason}" in summary["notes"]
    assert f"push failed: {reason}" in stderr
    texts = [path.read_bytes() for path in record.rglob("*") if path.is_file()]
    assert not [text for text in [*texts, stderr.encode()] if b"s3cret" in text or pair.encode() in text]
    metadata = Record.open(record).metadata
    assert metadata["push"] == push
    assert metadata["args"]["push"] == push["url"]
    (record / "raw" / "push.json").unlink()  # as if the process had been killed
    metadata = finish(record, report=False).metadata
    assert metadata["push"].keys() == {"url", "reason"}
    assert f"push to {push['url']}: {metadata['push']['reason']}" in metadata["notes"]


def test_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost; a bearer token is sent, and the exit code is that of the command."""
    monkeypatch.setenv(TOKEN, "t0ken")
    receiver = Scripted((204, {}))
    with receiver.running() as url:
        code, summary, _, _ = run(tmp_path, url, "exit 7")
    assert (code, summary["push"]["lost"]) == (7, 0)
    assert summary["push"]["sent"] > 0
    assert {header["Authorization"] for header in receiver.headers} == {"Bearer t0ken"}


def test_nothing_to_push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--push` without samples is an error; a configured address is ignored. `rollbook config` masks its secrets."""
    argv = ["run", "--results-dir", str(tmp_path), "--via", "local", "--skip-timeseries", "-q", "--no-report"]
    result = CliRunner().invoke(cli, [*argv, "--push", "http://127.0.0.1:1", "--", "true"])
    assert isinstance(result.exception, UsageError)
    assert "nothing to push" in str(result.exception)
    monkeypatch.setenv("ROLLBOOK_PUSH", "http://ann:s3cret@127.0.0.1:1")
    assert CliRunner().invoke(cli, [*argv, "--", "true"]).exit_code == 0
    shown = CliRunner().invoke(cli, ["config", "--json"]).stdout
    assert json.loads(shown)["values"]["push"]["value"] == "http://***@127.0.0.1:1"
