"""For nodes that upload: a proxy that reads all command lines during an upload, and a replacement for the AWS CLI."""

from __future__ import annotations

import contextlib
import http.client
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.s3 import S3

__all__ = ["NO_CREDENTIALS", "Watch", "aws_program", "watched"]

# `aws s3 cp [--only-show-errors] FROM TO`, with the credentials and the server that the program was written with.
AWS = """#!{python}
import sys
sys.path[:] = {path!r}
import boto3
from urllib.parse import urlsplit
client = boto3.client("s3", endpoint_url={endpoint!r}, aws_access_key_id={key!r}, aws_secret_access_key={secret!r},
                      region_name="us-east-1")
words = [word for word in sys.argv[1:] if not word.startswith("--")]
assert words[:2] == ["s3", "cp"], words
source, target = words[2:]
try:
    if source.startswith("s3://"):
        client.download_file(urlsplit(source).netloc, urlsplit(source).path[1:], target)
    else:
        client.upload_file(source, urlsplit(target).netloc, urlsplit(target).path[1:])
except Exception as error:
    print("fatal error:", error, file=sys.stderr)
    sys.exit(1)
"""


class Watch:
    """The addresses that were requested through the proxy, and the command lines of all processes during requests."""

    def __init__(self) -> None:
        self.port = 0
        self.addresses: list[str] = []
        self.command_lines: set[bytes] = set()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a node that uses the proxy and has no credentials."""
        return {"http_proxy": f"http://127.0.0.1:{self.port}", "no_proxy": "", "NO_PROXY": "", **NO_CREDENTIALS}

    @property
    def secrets(self) -> set[str]:
        """The signatures of presigned requests."""
        queries = [urlsplit(address).query for address in self.addresses]
        found = {query.partition("X-Amz-Signature=")[2].partition("&")[0] for query in queries}
        assert all(len(one) == 64 for one in found), found
        return found


NO_CREDENTIALS = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "")
"""The environment of a node that has no credentials."""


@contextlib.contextmanager
def watched() -> Iterator[Watch]:
    """A proxy on loopback that forwards PUT requests."""
    watch = Watch()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            watch.addresses.append(self.path)
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    watch.command_lines.add(process.read_bytes())
            address = urlsplit(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server = http.client.HTTPConnection(address.netloc, timeout=60)
            server.request("PUT", f"{address.path}?{address.query}", body, dict(self.headers))
            answer = server.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        watch.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield watch
        finally:
            server.shutdown()


def aws_program(directory: Path, s3: S3, user: tuple[str, str]) -> Path:
    """Write a program `aws` that acts as this user of the server; returns its directory."""
    directory.mkdir()
    key, secret = user
    text = AWS.format(python=sys.executable, path=sys.path, endpoint=s3.endpoint, key=key, secret=secret)
    (directory / "aws").write_text(text)
    (directory / "aws").chmod(0o755)
    return directory
