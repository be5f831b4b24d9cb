#!/usr/bin/env python3
"""A report of `sealane bench`, opened in headless Chromium; report.sh runs this with the program, the folder of the report, and a folder
for pictures. Talks to Chromium by two pipes (--remote-debugging-pipe). Writes PASS or FAIL for each check. Exit status: 0 all passed,
1 not."""
import base64
import fcntl
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

# Seconds for an answer.
LIMIT = 60
SIZES = {"desktop": (1440, 1000), "phone": (390, 844)}
SCHEMES = ("light", "dark")
# Pixels of a picture's height at most: the page is in as many pictures as it needs.
PICTURE = 4000

# Everything that a check needs to know of the page as it is shown.
LOOK = """(() => {
  const text = node => node ? node.textContent.replaceAll('\\u202f', '').trim() : '';
  const shown = node => node.getClientRects().length > 0;
  const all = (under, what) => [...under.querySelectorAll(what)];
  for (const details of all(document, 'details')) details.open = true;
  const charts = all(document, 'figure.chart').map(figure => {
    const plots = all(figure, 'svg.plot').filter(shown);
    const plot = plots[0];
    const box = plot?.getBoundingClientRect();
    const words = plot ? all(plot, 'text').filter(shown).map(node => [node.textContent, node.getBoundingClientRect()]) : [];
    const cut = words.filter(([, r]) => r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1);
    const upon = words.flatMap(([a, p], i) => words.slice(i + 1).filter(([, q]) =>
      Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1.5 && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 4
    ).map(([b]) => `${a} / ${b}`));
    // Points of all that is drawn, two pixels apart on the way, against what is written of a line or a bar. Texts are higher than
    // their letters.
    const way = plot ? all(plot, '.curve, .mark, .bar, .spread').filter(shown).map(node => {
      const to = node.getScreenCTM(), points = [], length = node.getTotalLength();
      for (let at = 0; at <= length; at += 2) points.push(node.getPointAtLength(at).matrixTransform(to));
      return [node.getAttribute('class'), points];
    }) : [];
    const over = plot ? all(plot, '.label, .value').filter(shown).flatMap(node => {
      const r = node.getBoundingClientRect();
      const inside = p => p.x > r.left && p.x < r.right && p.y > r.top + 3 && p.y < r.bottom - 3;
      return way.filter(([, points]) => points.some(inside)).map(([kind]) => `${node.textContent} / ${kind}`);
    }) : [];
    return {
      id: figure.id, plots: plots.length, title: text(plot?.querySelector(':scope > title')), desc: text(plot?.querySelector(':scope > desc')),
      axes: plot ? all(plot, '.axis-title').map(text).join(' ') : '',
      heads: all(figure, 'table.figures thead th').length, figures: all(figure, 'table.figures tbody td b').length,
      cut: cut.map(([words]) => words), upon, over,
      small: words.filter(([, r]) => r.height < 9).length,
      legend: all(figure, '.legend li').length,
    };
  });
  const root = document.documentElement;
  return {
    charts, scripts: document.scripts.length, width: root.scrollWidth, window: root.clientWidth,
    sections: all(document, 'main section').map(section => section.id), words: text(document.body),
    ground: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color,
  };
})()"""

failed = False


def check(what, wrong):
    """One line for a check; `wrong` is what is not as it should be."""
    global failed
    print(f"{'FAIL' if wrong else 'PASS'} {what}", flush=True)
    if wrong:
        failed = True
        for each in wrong if isinstance(wrong, list) else [wrong]:
            print(f"  {each}")


class Chromium:
    """A headless Chromium with one page."""

    def __init__(self, program, profile):
        to_it, ours = os.pipe()
        theirs, from_it = os.pipe()
        self.write, self.read = ours, theirs
        argv = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                "--disable-background-networking", "--disable-component-update", "--disable-extensions",
                f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]

        def descriptors():
            # From copies above both places, so that the first does not close what the second needs.
            high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (to_it, from_it)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(argv, preexec_fn=descriptors, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_it)
        os.close(from_it)
        self.seen, self.number, self.events, self.session = b"", 0, [], None
        pages = [target for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page"]
        target = pages[0]["targetId"] if pages else self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def message(self, until):
        while b"\0" not in self.seen:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            more = os.read(self.read, 1 << 20)
            if not more:
                raise EOFError("Chromium has ended")
            self.seen += more
        line, self.seen = self.seen.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **params):
        """The result of a method; events that come before it are kept."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.write, json.dumps(request).encode() + b"\0")
        until = time.monotonic() + LIMIT
        while True:
            message = self.message(until)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def event(self, name):
        """Waits for an event, unless it has come."""
        until = time.monotonic() + LIMIT
        while not any(event["method"] == name for event in self.events):
            message = self.message(until)
            if "method" in message:
                self.events.append(message)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def anchor(name):
    """As the page names its parts and charts."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name)


def lightness(colour):
    return sum(int(part) for part in colour[colour.index("(") + 1:].rstrip(")").split(",")[:3])


def said(event):
    """A message of the console, or of a script, as one line."""
    return json.dumps(event["params"])[:400]


def main():
    program, folder, place = sys.argv[1:]
    page = (pathlib.Path(folder) / "index.html").resolve()
    report = json.loads((page.parent / "data.json").read_text())
    charts = {anchor(f"{part['id']}-{chart['id']}"): chart for part in report["parts"] for chart in part["charts"]}
    left_out = [part for part in report["parts"] if part["outcome"]["is"] == "left-out"]
    for part in left_out:
        print(f"left out: {part['id']}: {part['outcome']['why']}")
    check("the report has parts, and one was measured at least", [] if len(left_out) < len(report["parts"]) else ["no part was measured"])
    check("parts that were left out say why", [part["id"] for part in left_out if not part["outcome"]["why"]])
    with tempfile.TemporaryDirectory() as profile:
        chromium = Chromium(program, profile)
        try:
            for domain in ("Page", "Runtime", "Log", "Network"):
                chromium.call(f"{domain}.enable")
            grounds = {(size, scheme): look(chromium, page, place, report, charts, size, scheme) for size in SIZES for scheme in SCHEMES}
        finally:
            chromium.close()
    for size in SIZES:
        (ground, ink), (dark_ground, dark_ink) = grounds[size, "light"], grounds[size, "dark"]
        wrong = []
        if not lightness(ground) > 600 > 300 > lightness(ink):
            wrong.append(f"light: {ink} on {ground}")
        if not lightness(dark_ground) < 150 < 500 < lightness(dark_ink):
            wrong.append(f"dark: {dark_ink} on {dark_ground}")
        check(f"{size}: light is light, and dark is dark", wrong)
    return 1 if failed else 0


def look(chromium, page, place, report, charts, size, scheme):
    """Opens the page in a window of that size, with that scheme, and gives its colours."""
    width, height = SIZES[size]
    chromium.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=size == "phone")
    chromium.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    chromium.events.clear()
    chromium.call("Page.navigate", url=page.as_uri())
    chromium.event("Page.loadEventFired")
    found = chromium.value(LOOK)
    which = f"{size}, {scheme}"
    messages = [said(event) for event in chromium.events
                if event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")]
    check(f"{which}: no script, and nothing on the console", messages + (["there is a script"] if found["scripts"] else []))
    loaded = [event["params"]["request"]["url"] for event in chromium.events if event["method"] == "Network.requestWillBeSent"]
    check(f"{which}: nothing is loaded but the page", [url for url in loaded if url != page.as_uri() and not url.startswith("data:")])
    check(f"{which}: the page is not wider than the window, with all tables open",
          [] if found["width"] <= found["window"] == width else [f"{found['width']} pixels in a window of {found['window']}"])
    check(f"{which}: every part has its section", [part["id"] for part in report["parts"] if anchor(part["id"]) not in found["sections"]])
    seen = {chart["id"]: chart for chart in found["charts"]}
    wrong = sorted(charts.keys() ^ seen.keys())
    for name, chart in charts.items():
        shown = seen.get(name)
        # Some charts are their table only.
        if shown is None or chart["shape"] == "table" and shown["plots"] == 0:
            continue
        axes = [chart[axis]["name"] + (f", {chart[axis]['unit']}" if chart[axis]["unit"] else "") for axis in ("x", "y")]
        wrong += [f"{name}: the title of an axis is missing: {title}" for title in axes if title not in shown["axes"]]
        if shown["plots"] != 1:
            wrong.append(f"{name}: {shown['plots']} pictures are shown")
        # As LOOK reads it, without narrow spaces between digits.
        if shown["title"] != chart["title"].replace("\u202f", "") or not shown["desc"]:
            wrong.append(f"{name}: title {shown['title']!r}, description {shown['desc']!r}")
    check(f"{which}: every chart is a table only, or one picture with a title, a description, and axes with titles and units", wrong)
    wrong = []
    for name, chart in charts.items():
        points = sum(len(series["points"]) for series in chart["series"])
        shown = seen.get(name, {"figures": 0, "heads": 0, "legend": 0})
        if (shown["figures"], shown["heads"]) != (points, len(chart["series"]) + 1):
            wrong.append(f"{name}: {shown['figures']} figures of {points}, {shown['heads']} heads of {len(chart['series']) + 1}")
        if chart["shape"] != "table" and len(chart["series"]) > 1 and shown["legend"] != len(chart["series"]):
            wrong.append(f"{name}: {shown['legend']} entries of the legend")
    check(f"{which}: every chart has a legend, and a table with all its figures", wrong)
    check(f"{which}: no text of a chart is cut off", [f"{name}: {chart['cut']}" for name, chart in seen.items() if chart["cut"]])
    check(f"{which}: no text of a chart is upon another", [f"{name}: {chart['upon'][:5]}" for name, chart in seen.items() if chart["upon"]])
    check(f"{which}: no label of a chart is upon a line, a marker or a bar",
          [f"{name}: {chart['over'][:5]}" for name, chart in seen.items() if chart["over"]])
    check(f"{which}: all text of charts can be read", [f"{name}: {chart['small']} are too small" for name, chart in seen.items() if chart["small"]])
    # As a reader finds it, with tables closed, from end to end.
    chromium.value("for (const details of document.querySelectorAll('details')) details.open = false; 0")
    height = chromium.value("document.documentElement.scrollHeight")
    for at, top in enumerate(range(0, height, PICTURE), 1):
        picture = chromium.call("Page.captureScreenshot", captureBeyondViewport=True,
                                clip={"x": 0, "y": top, "width": width, "height": min(height - top, PICTURE), "scale": 1})
        (pathlib.Path(place) / f"{size}-{scheme}-{at}.png").write_bytes(base64.b64decode(picture["data"]))
    return found["ground"], found["ink"]


if __name__ == "__main__":
    sys.exit(main())
