"""Opens the status page in headless Chromium, over its DevTools pipe.

status_page.py URL DIRECTORY [USER]: prints the state, numbers and users that the page shows, pictures in light and dark, wide and narrow, which are kept in
the directory, that the page has disabled the user, and every message of the console.
"""
import base64
import json
import os
import subprocess
import sys

url, directory = sys.argv[1:3]
user = sys.argv[3] if len(sys.argv) > 3 else None


class Browser:
    def __init__(self):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def pipes():
            # Chromium reads at 3 and writes at 4.
            high_in, high_out = os.dup(theirs_in), os.dup(theirs_out)
            while high_in < 10 or high_out < 10:
                high_in, high_out = os.dup(high_in), os.dup(high_out)
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={directory}/profile", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.reader, self.writer = os.fdopen(ours_in, "rb"), os.fdopen(ours_out, "wb")
        self.buffer, self.number, self.session, self.told = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log"]:
            self.call(domain + ".enable")

    def message(self):
        while b"\0" not in self.buffer:
            more = os.read(self.reader.fileno(), 1 << 16)
            if not more:
                sys.exit("the browser ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.writer.write(json.dumps(message).encode() + b"\0")
        self.writer.flush()
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    sys.exit(f"{method}: {message['error']}")
                return message["result"]
            if message.get("method") in ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"]:
                self.told.append(json.dumps(message["params"])[:500])

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            sys.exit(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression):
        """Until the page says so; whoever runs this has a deadline."""
        self.value(f"new Promise(done => {{ const look = () => ({expression}) ? done(true) : setTimeout(look, 50); look(); }})")


browser = Browser()
browser.call("Page.navigate", url=url)
browser.wait_for("document.querySelector('.lines') && document.querySelector('.lines').getAttribute('d')")
print("shown:", browser.value("document.getElementById('state').textContent"), flush=True)
for name, rows in [("numbers", "#numbers"), ("users", "#user-box tbody")]:
    print(f"{name}:", browser.value(f"document.querySelector('{rows}').textContent").replace("\n", " "), flush=True)
for scheme in ["light", "dark"]:
    for name, width, height in [("wide", 1280, 1000), ("narrow", 390, 1600)]:
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        overflow = browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        picture = base64.b64decode(browser.call("Page.captureScreenshot", captureBeyondViewport=False)["data"])
        with open(f"{directory}/{scheme}-{name}.png", "wb") as file:
            file.write(picture)
        print(f"picture: {scheme} {name} {len(picture)} bytes, {overflow} too wide", flush=True)
if user:
    button = f"document.querySelector('[aria-label=\"Disable {user}\"]')"
    browser.wait_for(button)
    browser.value(f"{button}.click()")
    browser.value("document.getElementById('do').click()")
    browser.wait_for(f"document.querySelector('[aria-label=\"Enable {user}\"]')")
    print("disabled:", user, flush=True)
for text in browser.told:
    print("console:", text, flush=True)
print("done", flush=True)
browser.process.kill()
