"""A headless Chromium, driven over pipes with its DevTools protocol: nothing listens."""

import json
import os
import shutil
import subprocess
import tempfile

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page at a time."""

    def __init__(self):
        self._profile = tempfile.TemporaryDirectory(prefix="shunt-chromium-", ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        # It reads from descriptor 3 and writes to 4.
        command = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(["bash", "-c", command, PROGRAM, *flags], pass_fds=(to_read, to_write),
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._reader = os.fdopen(self._from, "rb")
        self._rest = b""
        self._id = 0
        self._session = None
        self.events = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        os.close(self._to)
        self._process.kill()
        self._process.wait()
        self._reader.close()
        self._profile.cleanup()

    def _receive(self):
        while b"\0" not in self._rest:
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                raise ConnectionError("chromium is gone")
            self._rest += chunk
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self._id += 1
        message = {"id": self._id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._id:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, expression):
        """Its value, once a promise has come true."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, expression, seconds=20):
        """Until it is true in the page."""
        self.evaluate(f"""new Promise((done, failed) => {{
            const end = Date.now() + {seconds * 1000};
            const look = () => ({expression}) ? done(true) : Date.now() > end ? failed(new Error({json.dumps(expression)}))
                                                                              : setTimeout(look, 30);
            look(); }})""")

    def open(self, url, width=1280, height=900, dark=False):
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def press(self, key, code=None, text=None):
        down = {"type": "keyDown", "key": key, "code": code or key}
        if key == "Enter":
            down.update(text="\r", windowsVirtualKeyCode=13)
        elif key == "Tab":
            down.update(windowsVirtualKeyCode=9)
        elif key == " ":
            down.update(text=" ", code="Space", windowsVirtualKeyCode=32)
        self.call("Input.dispatchKeyEvent", **down)
        self.call("Input.dispatchKeyEvent", **{**down, "type": "keyUp", "text": ""})

    def screenshot(self, path, full=True):
        import base64
        data = self.call("Page.captureScreenshot", captureBeyondViewport=full)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def complaints(self):
        """What the page's console and the network say went wrong."""
        found = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                found.append(parameters["entry"]["text"])
            if method == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters))
        return found

    def requested(self):
        return [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
