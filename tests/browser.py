"""A headless Chromium, driven by the DevTools protocol through a pair of pipes: no port, and no other package."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60.0  # seconds; machines may be busy
# Chromium reads commands from file 3 and writes to file 4.
START = "import os, sys; os.dup2({read}, 3); os.dup2({write}, 4); os.execv(sys.argv[1], sys.argv[1:])"


def executable() -> str | None:
    """Find a browser, if there is one."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One browser process."""

    def __init__(self, folder: Path) -> None:
        path = executable()
        assert path is not None
        read, self._to = os.pipe()
        self._from, write = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        flags += ["--no-first-run", "--disable-background-networking", f"--user-data-dir={folder}", "about:blank"]
        start = [sys.executable, "-I", "-S", "-c", START.format(read=read, write=write), path, *flags]
        self._process = subprocess.Popen(
            start, pass_fds=(read, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read)
        os.close(write)
        self._rest, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        os.close(self._to)  # without its pipe, the browser ends
        os.close(self._from)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Give a command, and wait for its answer; events that arrive meanwhile are kept."""
        self._number += 1
        number = self._number
        command = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self.events.append(message)

    def wait_for(self, method: str, session: str) -> None:
        """Wait for an event."""
        while not any(event["method"] == method and event.get("sessionId") == session for event in self.events):
            self.events.append(self._message())

    def _message(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            assert select.select([self._from], [], [], max(end - time.monotonic(), 0))[0], "the browser does not answer"
            more = os.read(self._from, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


class Page:
    """One page, loaded from a file."""

    def __init__(self, browser: Browser, path: Path, *, width: int = 1000, dark: bool = False, script: bool = True):
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600
        )
        self.emulate(dark=dark)
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Page.navigate", url=path.as_uri())
        browser.wait_for("Page.loadEventFired", self._session)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def emulate(self, *, dark: bool = False, media: str = "") -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page."""
        made = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in made, made["exceptionDetails"]
        return made["result"].get("value")

    def _events(self, method: str) -> list[dict[str, Any]]:
        self.run("new Promise(done => setTimeout(done, 50))")  # what is under way arrives
        own = [event for event in self._browser.events if event.get("sessionId") == self._session]
        return [event["params"] for event in own if event["method"] == method]

    @property
    def problems(self) -> list[str]:
        """What the console shows as warnings and errors: of scripts, and of the browser."""
        said = [
            json.dumps(one) for one in self._events("Runtime.consoleAPICalled") if one["type"] in ("error", "warning")
        ]
        said += [json.dumps(one) for one in self._events("Runtime.exceptionThrown")]
        return said + [one["entry"]["text"] for one in self._events("Log.entryAdded")]

    @property
    def requests(self) -> list[str]:
        """Addresses that the page has asked for."""
        return [one["request"]["url"] for one in self._events("Network.requestWillBeSent")]

    def centre(self, selector: str) -> tuple[float, float]:
        """Bring an element into view, and return where it is."""
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        box = self.run(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()")
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def hover(self, selector: str) -> None:
        x, y = self.centre(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def tap(self, selector: str) -> None:
        x, y = self.centre(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def press(self, key: str) -> None:
        code = {"Tab": 9, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)["data"])

    def screenshot(self, *, whole: bool = True) -> bytes:
        made = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(made["data"])
