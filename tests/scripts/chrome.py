"""Chromium without a window, driven through a pipe: the DevTools protocol with nothing but Python."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

COMMAND = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
                if path), None)
# A container gives root no sandbox and little shared memory.
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
           "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
           "--remote-debugging-pipe"]


class Chrome:
    """A browser; leaving the `with` block ends it."""

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="rapt-chrome-")
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()
        # The browser reads descriptor 3 and writes 4, whatever they are called here.
        script = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "chrome", COMMAND, *OPTIONS, f"--user-data-dir={self.profile.name}"],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.pending, self.events, self.count = b"", [], 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.tell(domain + ".enable")
        return self

    def __exit__(self, *_):
        os.close(self.out)
        os.close(self.into)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for _ in range(20):  # children write into the profile for a moment more
            try:
                return self.profile.cleanup()
            except OSError:
                time.sleep(0.1)

    def receive(self, seconds):
        while b"\0" not in self.pending:
            if not select.select([self.into], [], [], seconds)[0]:
                raise TimeoutError(f"no answer within {seconds} s")
            got = os.read(self.into, 1 << 20)
            if not got:
                raise RuntimeError("the browser is gone")
            self.pending += got
        message, self.pending = self.pending.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(60)
            if answer.get("id") != self.count:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            return answer["result"]

    def tell(self, method, **parameters):
        return self.call(method, self.session, **parameters)

    def evaluate(self, expression):
        """The value of JavaScript; a promise is waited for."""
        answer = self.tell("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def resize(self, width, height, scale=1):
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=width < 600)

    def prefer(self, scheme):
        self.tell("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path, ready="true"):
        """Loads a file and waits until an expression is true."""
        self.events.clear()
        self.tell("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        self.wait_for(f"document.readyState === 'complete' && ({ready})")

    def wait_for(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while not self.evaluate(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression} is not true after {seconds} s")
            time.sleep(0.05)

    def complaints(self):
        """What the console, the log and uncaught errors said."""
        said = []
        for event in self.events:
            method, what = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                said.append(what["exceptionDetails"].get("exception", {}).get("description", "error"))
            elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning"):
                said.append(" ".join(str(a.get("value", a.get("description"))) for a in what["args"]))
            elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                said.append(what["entry"]["text"])
        return said

    def requests(self):
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]

    def picture(self, clip=None, whole=False):
        """PNG bytes of the window, of a part {x, y, width, height}, or of the whole page."""
        options = {"format": "png", "captureBeyondViewport": bool(whole or clip)}
        if clip:
            options["clip"] = {"scale": 1, **clip}
        return base64.b64decode(self.tell("Page.captureScreenshot", **options)["data"])

    def pdf(self):
        return base64.b64decode(self.tell("Page.printToPDF", printBackground=True)["data"])
