"""Delivery of node archives to S3: with a real server, and nodes that run the real agent."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import rollbook
from rollbook.aws.api import Account
from rollbook.aws.objects import Bucket
from rollbook.bundle import collect as collecting
from rollbook.bundle import delivery
from rollbook.cli import cli
from rollbook.errors import AwsError
from rollbook.hosts import Host
from tests.support.fake_aws import Faults, Node, fake_aws
from tests.support.s3 import BUCKET, OWNER, READER, S3
from tests.support.s3_watch import NO_CREDENTIALS, aws_program, watched

pytestmark = pytest.mark.usefixtures("owner")
FIRST, SECOND = "i-0000000000000001a", "i-0000000000000001b"
TOKEN = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"
UNREACHABLE = {"http_proxy": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": "", **NO_CREDENTIALS}


class Report:
    """An issue report of a cluster: the command's result, the local bundle, and the objects in S3 below its prefix."""

    def __init__(self, done: Result, where: Path, s3: S3, prefix: str) -> None:
        self.done, self.s3, self.prefix = done, s3, prefix
        self.bundles = list(where.glob("results/bundle/*"))

    @property
    def local(self) -> Path:
        """The only local bundle."""
        [found] = self.bundles
        return found

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the local bundle."""
        found: dict[str, Any] = json.loads((self.local / "summary.json").read_bytes())
        return found

    @property
    def deliveries(self) -> list[tuple[str, str]]:
        """The delivery method of each node, and its reason."""
        archives = [node.get("archive", {}) for node in self.summary["results"]]
        return [(one.get("delivery", ""), one.get("reason", "")) for one in archives]

    def objects(self) -> dict[str, bytes]:
        """The objects of this report by their names."""
        start = f"{self.prefix}/research/{self.local.name}/"
        return {key.removeprefix(start): self.s3.read(key) for key in self.s3.keys(f"{self.prefix}/")}

    def require_equal_bundle(self, again: Path) -> None:
        """Require that all archives, unpacked into one directory, equal the local bundle."""
        for name, data in self.objects().items():
            if name.endswith(".tar.gz"):
                with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                    archive.extractall(again, filter="data")
            else:
                assert (self.local / name).read_bytes() == data
        tops = again, self.local
        found, expected = ({path.relative_to(top) for path in top.rglob("*") if path.is_file()} for top in tops)
        assert found == expected
        assert not rollbook.verify(again).problems


Collect = Callable[..., Report]


@pytest.fixture
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def collect(s3: S3, tmp_path: Path, empty_directory: None) -> Collect:
    """Run `rollbook bundle --s3-path` for a cluster with these nodes, as the owner of the bucket."""
    del empty_directory
    prefix = tmp_path.name

    def run(nodes: list[Node], *more: str, faults: Faults | None = None, to: str = prefix) -> Report:
        with fake_aws(nodes, faults or Faults()) as service:
            argv = ["bundle", "--via", "ssm", "--cluster", service.arn, "--endpoint-url", service.endpoint]
            argv += ["--start-rate", "50", "--s3-endpoint-url", s3.endpoint, "--s3-path", f"s3://{BUCKET}/{to}"]
            os.environ.update(AWS_ACCESS_KEY_ID=OWNER[0], AWS_SECRET_ACCESS_KEY=OWNER[1])  # fake_aws sets others
            done = CliRunner().invoke(cli, [*argv, *([] if "--resume" in more else ["--item", "os"]), *more])
            assert not service.sessions
        return Report(done, tmp_path, s3, to)

    return run


def write_items(directory: Path, size: int) -> None:
    """Write an item that reads an incompressible file of this size."""
    (directory / "large").write_bytes(os.urandom(size))
    limits = f'limit = "{size + 1}"\nredact = "none"'
    (directory / "items.toml").write_text(f'[large]\ntitle = "x"\npaths = ["{directory}/large"]\n{limits}\n')


def test_presigned_upload(collect: Collect, tmp_path: Path) -> None:
    """Nodes without credentials upload; secrets are replaced, and presigned URLs are not stored or printed."""
    secret = f"echo HF_TOKEN={TOKEN}; curl --version -u me:{TOKEN[3:20]} | head -n 1"
    with watched() as watch:
        nodes = [Node(FIRST, environment=watch.environment)]
        nodes.append(Node(SECOND, group="controller", environment=watch.environment))
        report = collect(nodes, "--command", secret, "--download", "copy")
    assert report.done.exit_code == 0, report.done.output
    assert report.deliveries == [("presigned", "")] * 2
    assert f"uploaded by the node with presigned requests: {FIRST[:-1]}" in report.done.stderr.replace("[a-b]", "")
    objects = report.objects()
    assert sorted(objects) == [
        "collector_script.sh",
        f"instances/controller_{SECOND}.tar.gz",
        f"instances/worker_{FIRST}.tar.gz",
        "report.tar.gz",
        "summary.json",
    ]
    assert len(watch.addresses) == 2
    report.require_equal_bundle(tmp_path / "again")
    for name, data in objects.items():
        assert (tmp_path / "copy" / "research" / report.local.name / name).read_bytes() == data
    [archive] = [node["archive"] for node in report.summary["results"] if node["node"] == FIRST]
    data = objects[f"instances/worker_{FIRST}.tar.gz"]
    assert (archive["size"], archive["url"].partition("?")[2]) == (len(data), "")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20
    for hidden in (TOKEN, TOKEN[3:20], *watch.secrets, OWNER[1]):
        assert hidden not in report.done.output
        assert not [path for path in files if hidden.encode() in path.read_bytes()], hidden
        if hidden in watch.secrets:
            assert not [line for line in watch.command_lines if hidden.encode() in line]


def test_one_node_cannot_reach_s3(collect: Collect, tmp_path: Path) -> None:
    """Its archive is sent through the session, even with lost messages; the layout is the same and has the reason."""
    nodes = [Node(FIRST, environment=NO_CREDENTIALS), Node(SECOND, environment=UNREACHABLE)]
    faults = Faults(loss=0.02, duplication=0.02, reordering=0.02)
    report = collect(nodes, "--item", "processes", "--download", "copy", faults=faults)
    assert report.done.exit_code == 0, report.done.output
    assert report.deliveries == [("presigned", ""), ("session", "cannot reach S3: Connection refused")]
    assert f"through the session (cannot reach S3: Connection refused): {SECOND}" in report.done.stderr
    report.require_equal_bundle(tmp_path / "again")
    assert f"instances/worker_{SECOND}.tar.gz" in report.objects()
    for name, data in report.objects().items():
        assert (tmp_path / "copy" / "research" / report.local.name / name).read_bytes() == data


def test_large_archives_in_parts(collect: Collect, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive is uploaded in three parts, each with its own request; no multipart upload remains."""
    monkeypatch.setattr(delivery, "PART", 5 << 20)
    write_items(tmp_path, 11 << 20)
    with watched() as watch:
        nodes = [Node(FIRST, environment=watch.environment)]
        report = collect(nodes, "--item-file", "items.toml", "--item", "large")
    assert report.done.exit_code == 0, report.done.output
    assert report.deliveries == [("presigned", "")]
    assert len(watch.addresses) == report.summary["results"][0]["archive"]["parts"] == 3
    assert not s3.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads")
    [copy] = report.local.glob("nodes/*/large/*")
    assert copy.read_bytes() == (tmp_path / "large").read_bytes()


def test_refused_part(collect: Collect, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If S3 refuses the second part, the upload is aborted and the archive is sent through the session."""
    monkeypatch.setattr(delivery, "PART", 1 << 16)
    monkeypatch.setattr(delivery, "MAX_PARTS", 1 << 20)
    write_items(tmp_path, 100_000)
    orders = delivery._put_orders

    def broken(grant: Any, seconds: float) -> bytes:
        return re.sub(rb"(partNumber=2.*X-Amz-Signature=)....", rb"\g<1>0000", orders(grant, seconds))

    monkeypatch.setattr(delivery, "_put_orders", broken)
    report = collect([Node(FIRST, environment=NO_CREDENTIALS)], "--item-file", "items.toml", "--item", "large")
    assert report.done.exit_code == 0, report.done.output
    assert report.deliveries == [("session", "S3 answers 403 SignatureDoesNotMatch")]
    assert not s3.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads")
    [copy] = report.local.glob("nodes/*/large/*")
    assert copy.read_bytes() == (tmp_path / "large").read_bytes()
    report.require_equal_bundle(tmp_path / "again")


def test_requests_are_valid_for_the_archive_only(s3: S3) -> None:
    """The server refuses other bytes; `accept` fails for an object that was not uploaded."""
    bucket = Bucket(Account(endpoint_url=s3.endpoint), BUCKET)
    digest = base64.b64encode(hashlib.sha256(b"right").digest()).decode()
    grant = bucket.grant("grants/one", 5, [digest], 1 << 20, 60)
    assert grant.urls[0] not in repr(grant)
    headers = {"x-amz-checksum-sha256": digest, "Content-Type": "application/octet-stream"}
    for data, sent in ((b"wrong", headers), (b"right!", headers), (b"right", {"Content-Type": "x"})):
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(urllib.request.Request(grant.urls[0], data, sent, method="PUT"))
    with pytest.raises(AwsError, match="cannot be verified"):
        bucket.accept(grant, ["tag"])
    urllib.request.urlopen(urllib.request.Request(grant.urls[0], b"right", headers, method="PUT"))
    bucket.accept(grant, ["tag"])
    with pytest.raises(ValueError, match="zip"):
        bucket.grant("grants/two", 5, [digest, digest], 1 << 20, 60)


@pytest.mark.parametrize(
    ("more", "fanout", "timeout"),
    [
        ([], 16, 900),
        (["--max-workers", "5"], 5, 900),
        (["--fanout", "70", "--timeout", "80"], 70, 80),
        (["--max-workers", "5", "--fanout", "70"], 70, 900),  # one option with two names: the last one counts
    ],
)
def test_flags_of_the_hyperpod_collector(
    collect: Collect, monkeypatch: pytest.MonkeyPatch, more: list[str], fanout: int, timeout: float
) -> None:
    """Flags and defaults of the HyperPod collector are supported."""
    used: dict[str, Any] = {}

    async def no_node(hosts: list[Host], *_: object, **options: Any) -> None:
        used.update(options, hosts=[host.name for host in hosts])

    monkeypatch.setattr(collecting, "fan_out", no_node)
    nodes = [Node(FIRST), Node(SECOND, group="controller"), Node(f"{FIRST[:-1]}c")]
    chosen = ["--nodes", f"hyperpod-{FIRST}", SECOND, "--instance-groups", "worker", "controller"]
    assert collect(nodes, *chosen, "--debug", *more).done.exit_code == 4
    assert (used["hosts"], used["fanout"], used["timeout"]) == ([f"hyperpod-{FIRST}", SECOND], fanout, timeout)


def test_resume_a_node_that_did_not_answer(collect: Collect, tmp_path: Path) -> None:
    """The node fails at its start timeout; resuming collects it through the session, and the layout is complete."""
    nodes = [Node(SECOND, prefix=("sh", "-c", "sleep 60"))]
    report = collect(nodes, "--start-timeout", "1", "--max-workers", "2")
    assert report.done.exit_code == 4, report.done.output
    [node] = report.summary["results"]
    assert (node["status"], node["Success"]) == ("timed-out", False)
    assert "no answer within 1 s" in node["reason"]
    nodes[0].prefix = ()
    resume = ["--resume", str(report.local)]
    assert "summary.json exists" in str(collect(nodes, *resume).done.exception)
    assert "not possible with --resume" in str(collect(nodes, *resume, "--delivery", "presigned").done.exception)
    resumed = collect(nodes, *resume, to=f"{report.prefix}-resumed")
    assert resumed.done.exit_code == 0, resumed.done.output
    assert resumed.deliveries == [("session", "")]
    resumed.require_equal_bundle(tmp_path / "again")


@pytest.mark.parametrize("method", ["session", "presigned"])
def test_delivery_through_the_session(collect: Collect, tmp_path: Path, method: str) -> None:
    """With `session`, or if the session accepts no input, the collector builds the archives and uploads them."""
    faults = Faults(refused_documents=("AWS-StartInteractiveCommand",)) if method == "presigned" else Faults()
    report = collect([Node(FIRST, environment=UNREACHABLE)], "--delivery", method, faults=faults)
    assert report.done.exit_code == 0, report.done.output
    assert report.deliveries == [("session", "the session takes no input" if method == "presigned" else "")]
    report.require_equal_bundle(tmp_path / "again")


def test_delivery_by_the_node(collect: Collect, s3: S3, tmp_path: Path) -> None:
    """Nodes fetch the script and upload with their own AWS CLI and credentials; one without permission is partial."""
    paths = {user: f"{aws_program(tmp_path / user[0], s3, user)}:/usr/bin:/bin" for user in (OWNER, READER)}
    nodes = [
        Node(FIRST, environment={**NO_CREDENTIALS, "PATH": paths[OWNER]}),
        Node(SECOND, environment={**NO_CREDENTIALS, "PATH": paths[READER]}),
    ]
    report = collect(nodes, "--delivery", "node", "--command", "echo TOKEN=hunter2hunter2")
    assert "would store a command with a secret" in str(report.done.exception)
    assert not report.bundles
    command = f"echo hf_ {TOKEN[3:]} | tr -d ' '"
    report = collect(nodes, "--delivery", "node", "--command", command, "--download", "copy")
    assert report.done.exit_code == 3, report.done.output
    first, second = report.summary["results"]
    assert (first["status"], first["archive"]["delivery"]) == ("complete", "node")
    assert (second["status"], second["Success"], "archive" in second) == ("partial", False, False)
    assert "collector_script.sh ended with exit status 1: fatal error:" in second["reason"]
    assert "AccessDenied" in second["Error"]
    assert second["Output"] == second["Error"]
    report.require_equal_bundle(tmp_path / "again")
    assert TOKEN.encode() not in b"".join(path.read_bytes() for path in report.local.rglob("*") if path.is_file())
    objects = report.objects()
    assert f"instances/worker_{SECOND}.tar.gz" not in objects
    name = f"instances/worker_{FIRST}.tar.gz"
    assert (tmp_path / "copy/research" / report.local.name / name).read_bytes() == objects[name]


def test_a_node_without_the_aws_cli(collect: Collect) -> None:
    """The reason names the missing program."""
    nodes = [Node(FIRST, environment={"PATH": "/usr/bin:/bin"})]
    report = collect(nodes, "--delivery", "node")
    assert report.done.exit_code == 3, report.done.output
    assert "aws: not found" in report.summary["results"][0]["reason"]


def test_run_the_uploaded_script_by_hand(collect: Collect, tmp_path: Path) -> None:
    """The script in S3 builds an archive with the same files, masks secrets, and keeps an existing archive."""
    report = collect([Node(FIRST)], "--command", f"echo HF_TOKEN={TOKEN}")
    assert report.done.exit_code == 0, report.done.output
    objects = report.objects()
    (tmp_path / "script").write_bytes(objects["collector_script.sh"])
    environ = {**os.environ, "INSTANCE_GROUP": "worker", "INSTANCE_ID": FIRST, "CLUSTER_TYPE": "eks"}
    for code in (0, 2):
        done = subprocess.run(["sh", "script"], env=environ, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == code, done.stderr
    assert "exists; it is not replaced" in done.stderr
    name = f"worker_{FIRST}.tar.gz"
    with tarfile.open(tmp_path / name) as mine, tarfile.open(fileobj=io.BytesIO(objects[f"instances/{name}"])) as sent:
        assert sorted(mine.getnames()) == sorted(sent.getnames())  # items are read in parallel
        listed = mine.extractfile(f"nodes/{FIRST}/items.tsv")
        assert listed
        assert listed.readline() == f"about\tworker\t{FIRST}\teks\n".encode()
        content = b"".join(file.read() for member in mine if (file := mine.extractfile(member)))
    assert b"HF_TOKEN=***" in content
    assert TOKEN.encode() not in content + objects["collector_script.sh"]
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_printed_upload_command(collect: Collect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the upload fails after some objects, the bundle is kept, and the printed command completes the layout."""
    upload = Bucket.upload

    def fail(self: Bucket, path: Path, key: str, **more: Any) -> Any:
        if path.name == "collector_script.sh":
            raise AwsError("not allowed to call put_object")
        return upload(self, path, key, **more)

    monkeypatch.setattr(Bucket, "upload", fail)
    nodes = [Node(FIRST, environment=NO_CREDENTIALS), Node(SECOND, environment=UNREACHABLE)]
    report = collect(nodes)
    assert isinstance(report.done.exception, AwsError)
    assert sorted(report.objects()) == [
        f"instances/worker_{FIRST}.tar.gz", f"instances/worker_{SECOND}.tar.gz", "report.tar.gz",
    ]  # fmt: skip
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", OWNER[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", OWNER[1])
    [again] = re.findall(r"to upload it: rollbook (.*)", report.done.stderr)
    before = report.objects()
    done = CliRunner().invoke(cli, [*shlex.split(again), "--json"])
    assert done.exit_code == 0, done.output
    after = report.objects()
    assert {one["url"].rpartition("/")[2] for one in json.loads(done.stdout)} == {Path(name).name for name in after}
    assert before.items() <= after.items()
    assert sorted(after.keys() - before.keys()) == ["collector_script.sh", "summary.json"]
    report.require_equal_bundle(tmp_path / "again")
    refused = CliRunner().invoke(cli, shlex.split(again))
    assert "summary.json exists" in str(refused.exception)
    arguments = shlex.split(again)
    arguments[3] = f"s3://{BUCKET}/{report.prefix}-other"
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert sorted(Report(done, tmp_path, report.s3, f"{report.prefix}-other").objects()) == sorted(after)


@pytest.mark.usefixtures("empty_directory")
def test_ctrl_c_during_an_upload(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local bundle is valid, no part remains on the server, and the message has the command to upload it."""
    call, part = Bucket._call, threading.Event()

    def interrupt(self: Bucket, operation: str, key: str, **parameters: Any) -> dict[str, Any]:
        answer = call(self, operation, key, **parameters)
        if operation == "upload_part" and not part.is_set():
            part.set()
            signal.raise_signal(signal.SIGINT)
        return answer

    monkeypatch.setattr(Bucket, "_call", interrupt)
    monkeypatch.setattr(Bucket.__init__, "__kwdefaults__", {"part": 5 << 20})
    write_items(tmp_path, 21 << 20)
    argv = ["bundle", "--via", "local", "--item-file", "items.toml", "--item", "large", "--no-once"]
    argv += ["--upload", f"s3://{BUCKET}/interrupted", "--s3-endpoint-url", s3.endpoint]
    done = CliRunner().invoke(cli, argv)
    assert part.is_set()
    assert done.exit_code == 130, done.output
    [local] = tmp_path.glob("results/bundle/*")
    again = f"rollbook bundle upload results/bundle/{local.name} s3://{BUCKET}/interrupted"
    assert f"not uploaded: interrupted; to upload it: {again}" in done.stderr
    assert not rollbook.verify(local).problems
    assert not s3.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads")
    assert not s3.keys("interrupted/")
    assert [path.name for path in local.parent.iterdir()] == [local.name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--s3-path", "s3://reports/x"], "use --upload"),
        (["--download", "x"], "--download has no effect"),
        (["--delivery", "node"], "--delivery has no effect"),
    ],
)
@pytest.mark.usefixtures("empty_directory")
def test_options_without_effect(tmp_path: Path, arguments: list[str], message: str) -> None:
    """Options that would have no effect are refused before anything is read."""
    done = CliRunner().invoke(cli, ["bundle", "--via", "local", "--item", "os", *arguments])
    assert message in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_obfuscated_archives_are_built_by_the_collector(collect: Collect) -> None:
    """Nodes cannot obfuscate, so delivery by nodes is refused."""
    refused = collect([Node(FIRST)], "--obfuscate", "map.json", "--delivery", "presigned")
    assert "is not possible with --obfuscate" in str(refused.done.exception)
    report = collect([Node(FIRST)], "--obfuscate", "map.json")
    assert report.done.exit_code == 0, report.done.output
    assert report.deliveries == [("session", "")]
    assert FIRST not in " ".join(report.objects())


@pytest.mark.usefixtures("empty_directory")
def test_bucket_in_another_region(tmp_path: Path) -> None:
    """The error names the region, and nothing is collected."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            data = b"<Error><Code>PermanentRedirect</Code><Message>elsewhere</Message></Error>"
            self.send_response(301)
            self.send_header("x-amz-bucket-region", "eu-west-1")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_POST = do_HEAD = answer  # noqa: N815 - names that http.server calls

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        argv = ["bundle", "--via", "local", "--upload", "s3://bucket/x", "--s3-endpoint-url", endpoint]
        done = CliRunner().invoke(cli, argv)
        server.shutdown()
    assert isinstance(done.exception, AwsError)
    assert str(done.exception).endswith("the bucket is in eu-west-1; set --s3-region")
    assert not list(tmp_path.iterdir())
