"""`report --serve`: the page on the loopback interface, at an address that others cannot guess."""

from __future__ import annotations

import contextlib
import http.client
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

from rollbook.report.serve import PageServer

ROLLBOOK = [sys.executable, "-m", "rollbook"]


def test_only_the_address_that_was_printed(tmp_path: Path) -> None:
    """Without its random part there is no page, and nothing else of the machine is served."""
    page = tmp_path / "page.html"
    page.write_text("<p>page</p>")
    with PageServer(page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            assert server.server_address[0] == "127.0.0.1"
            with urllib.request.urlopen(server.url, timeout=60) as answer:
                assert (answer.status, answer.read()) == (200, b"<p>page</p>")
            for path in ("/", "/x/", f"/{server.secret}/../../etc/passwd", "//", "/page.html"):
                with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.server_port, 60)) as client:
                    client.request("GET", path)
                    assert client.getresponse().status == 404
        finally:
            server.shutdown()
            thread.join()


def test_until_ctrl_c(tmp_path: Path) -> None:
    """The command prints the address, serves the page of the record, and ends with 0."""
    run = [*ROLLBOOK, "run", "--skip-timeseries", "--no-report", "--results-dir", str(tmp_path), "--", "true"]
    subprocess.run(run, check=True, capture_output=True)
    report = [*ROLLBOOK, "report", str(tmp_path), "-o", str(tmp_path / "page.html"), "--serve"]
    with subprocess.Popen(report, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.read() == (tmp_path / "page.html").read_bytes()
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=60)
    assert (process.returncode, "ssh -L" in messages) == (0, True)
