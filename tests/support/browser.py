"""A real Chromium, driven over HTTP through the WebDriver interface of chromedriver (w3.org/TR/webdriver2)."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.waits import SECONDS

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
SCROLL_TO = """
arguments[0].scrollIntoView({ block: "center" });
const box = arguments[0].getBoundingClientRect();
return [box.left, box.top];
"""
FLAGS = (
    "--headless",
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


class Browser:
    """One window of a browser."""

    def __init__(self, connection: http.client.HTTPConnection, session: str) -> None:
        self._connection, self._session = connection, session

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send one command of the session; raises `RuntimeError` with the browser's message."""
        return _call(self._connection, method, f"/session/{self._session}{path}", body)

    def open(self, path: Path) -> None:
        """Open a file and wait until it is loaded."""
        self.call("POST", "/url", {"url": path.as_uri()})

    def later(self, body: str) -> Any:
        """Run a script that calls its last argument with the result when it is done."""
        return self.call("POST", "/execute/async", {"script": body, "args": []})

    def script(self, body: str, *args: Any) -> Any:
        """Run a script in the page; returns its result."""
        return self.call("POST", "/execute/sync", {"script": body, "args": list(args)})

    def wait(self, condition: str, seconds: float = SECONDS) -> Any:
        """Wait until an expression is true; returns its value."""
        until = time.monotonic() + seconds
        while not (value := self.script(f"return {condition}")):
            if time.monotonic() > until:
                raise TimeoutError(condition)
            time.sleep(0.02)
        return value

    def find(self, css: str) -> dict[str, str]:
        """The first element for a selector."""
        found: dict[str, str] = self.call("POST", "/element", {"using": "css selector", "value": css})
        return found

    def click(self, css: str) -> None:
        """Click an element with the mouse."""
        self.call("POST", f"/element/{self.find(css)[ELEMENT]}/click", {})

    def type(self, css: str, text: str) -> None:
        """Type into an element."""
        self.call("POST", f"/element/{self.find(css)[ELEMENT]}/value", {"text": text})

    def press(self, key: str) -> None:
        """Press and release a key at the element that has the focus."""
        steps = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": steps}]})

    def hover(self, css: str, at: tuple[int, int]) -> None:
        """Move the pointer to a position in an element, in pixels from its upper left corner."""
        box = self.script(SCROLL_TO, self.find(css))
        step = {"type": "pointerMove", "duration": 0, "x": round(box[0] + at[0]), "y": round(box[1] + at[1])}
        self._point([step])

    def drag(self, css: str, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Drag from one position in an element to another, in pixels from its upper left corner."""
        box = self.script(SCROLL_TO, self.find(css))
        (x, y), (to_x, to_y) = ([round(box[0] + at[0]), round(box[1] + at[1])] for at in (start, end))
        steps = [
            {"type": "pointerMove", "duration": 0, "x": x, "y": y},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerMove", "duration": 40, "x": (x + to_x) // 2, "y": to_y},
            {"type": "pointerMove", "duration": 40, "x": to_x, "y": to_y},
            {"type": "pointerUp", "button": 0},
        ]
        self._point(steps)

    def _point(self, steps: list[dict[str, Any]]) -> None:
        pointer = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": steps}
        self.call("POST", "/actions", {"actions": [pointer]})

    def resize(self, width: int, height: int) -> None:
        """Resize the window."""
        self.call("POST", "/window/rect", {"width": width, "height": height})

    def prefer(self, *, dark: bool) -> None:
        """Set the color scheme that the system prefers."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._chrome("Emulation.setEmulatedMedia", {"features": features})

    def picture(self, path: Path) -> None:
        """Write a screenshot of the window as PNG."""
        path.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))

    def pdf(self) -> bytes:
        """Print the page as PDF."""
        return base64.b64decode(self.call("POST", "/print", {}))

    def console(self) -> list[str]:
        """The messages on the console since the last call: errors, warnings, blocked requests."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """The URLs that the page requested since the last call."""
        messages = (
            json.loads(entry["message"])["message"] for entry in self.call("POST", "/se/log", {"type": "performance"})
        )
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]

    def _chrome(self, command: str, params: dict[str, Any]) -> Any:
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})


@contextlib.contextmanager
def browser(width: int = 1440, height: int = 900) -> Iterator[Browser]:
    """A fresh Chromium with a profile of its own, closed at the end."""
    program = shutil.which("chromedriver")
    if program is None:
        raise FileNotFoundError("chromedriver, from the Debian package chromium-driver")
    with tempfile.TemporaryDirectory(prefix="rollbook-browser-") as profile:
        driver, port = _start(program)
        connection = None
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2 * SECONDS)
            options = {"args": [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]}
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }
            answer = _call(connection, "POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            page = Browser(connection, answer["sessionId"])
            try:
                yield page
            finally:
                page.call("DELETE", "")
        finally:
            if connection is not None:
                connection.close()
            driver.kill()
            driver.communicate()


def _start(program: str) -> tuple[subprocess.Popen[str], int]:
    """A chromedriver and its port.

    It takes a port that is free for IPv4 and ends if that one is in use for IPv6, so another one is tried.
    """
    while True:
        driver = subprocess.Popen([program, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert driver.stdout is not None
        lines = []
        for line in driver.stdout:
            if "started successfully on port" in line:
                return driver, int(line.rstrip().rstrip(".").rpartition(" ")[2])
            lines.append(line)
        driver.communicate()
        if not any("port not available" in line for line in lines):
            raise RuntimeError(f"chromedriver did not start: {''.join(lines)}")


def _call(connection: http.client.HTTPConnection, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    text = json.dumps(body).encode() if body is not None else None
    connection.request(method, path, text, {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())["value"]
    if isinstance(answer, dict) and "error" in answer:
        raise RuntimeError(f"{path}: {answer['error']}: {answer['message']}")
    return answer
