# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What every section needs: the freezer, the daemon, loads and a table."""

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NCPU = os.cpu_count()
MS = 1_000_000
S = 1_000_000_000
# As good as no sharing: five gaps are what wakes the daemon.
QUIET = ["--on", "6s", "--off", "100us"]


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def die(text):
    sys.exit(f"error: {text}")


class Table:
    """Prints each row when it is known: a run takes minutes."""

    def __init__(self, title):
        print(f"\n{title}\n{'figure':<52} {'median':>10} {'min..max':>22}  {'n':>3}  goal")

    @staticmethod
    def row(name, values, unit, goal="", limit=None):
        if not values:
            print(f"{name:<52} {'no data':>10}", flush=True)
            return
        median = statistics.median(values)
        verdict = "" if limit is None else ("  hit" if median <= limit else "  MISS")
        spread = f"{min(values):.3g}..{max(values):.3g}"
        print(
            f"{name:<52} {f'{median:.3g} {unit}':>10} {spread:>22} {len(values):>4}  {goal}{verdict}",
            flush=True,
        )


def p99(values):
    """The smallest value that 99 of 100 do not exceed (nearest rank)."""
    return sorted(values)[-(-len(values) * 99 // 100) - 1]


class Bed:
    """Programs and a directory for what they write (memory, not the disk)."""

    def __init__(self, args):
        self.vlab, self.vmigrater = args.vlab, args.vmigrater
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.dir = Path(tempfile.mkdtemp(prefix="bench-cost-", dir=base))
        self.map_id = None

    @contextlib.contextmanager
    def frozen(self, *options, limit="150s"):
        """Freezes while the body runs; yields a list that holds the log afterwards."""
        log, ident = self.dir / "gaps.csv", self.dir / "map"
        ident.unlink(missing_ok=True)
        command = [self.vlab, "freeze", *options, "--for", limit, "--log", str(log), "--", "sh", "-c"]
        # cat ends with our end of the pipe, and the freezer with cat.
        command.append(f'echo "$VMIGRATER_STEAL_MAP_ID" >{ident}.new; mv {ident}.new {ident}; cat >/dev/null')
        gaps = []
        freezer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            wait_for(ident.exists, "the freezer", freezer)
            self.map_id = ident.read_text().strip()
            yield gaps
        finally:
            freezer.stdin.close()
            freezer.wait(30)
        for line in log.read_text().splitlines()[1:]:
            cpu, _, out, _, back = map(int, line.split(","))
            gaps.append((cpu, out, back))

    @contextlib.contextmanager
    def daemon(self, config="", log=None, profile=None):
        home = Path(tempfile.mkdtemp(dir=self.dir))
        (home / "config").write_text(config)
        command = [self.vmigrater, "run", f"--config={home}/config", f"--socket={home}/socket"]
        command += [f"--journal={home}/journal", f"--steal-map-id={self.map_id}"]
        command += [f"--profile={profile}"] if profile else []
        command += ["--log-level=trace"] if log else ["--log-level=warn"]
        with open(log or "/dev/null", "w") as stderr:
            process = subprocess.Popen(command, stderr=stderr)
            daemon = Daemon(process, home / "socket")
            try:
                wait_for(daemon.answers, "vmigrater", process)
                yield daemon
            finally:
                process.terminate()
                if process.wait(30) != 0:
                    die(f"vmigrater ended with {process.returncode}")

    @contextlib.contextmanager
    def load(self, *options):
        process = subprocess.Popen([self.vlab, "load", *options, "--seconds", "200"], stdout=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def compute(self):
        return self.load("compute", "--cpus", f"0-{NCPU - 1}")


def wait_for(condition, what, process=None, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        if process and process.poll() is not None:
            words = process.stderr.read().decode() if process.stderr else ""
            die(f"{what} ended at once ({process.returncode}) {words}")
        if time.monotonic() > deadline:
            die(f"{what}: not there after {seconds} s")
        time.sleep(0.01)


class Daemon:
    def __init__(self, process, path):
        self.process, self.path = process, path

    def answers(self):
        try:
            return bool(self.report())
        except OSError:
            return False

    def report(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(str(self.path))
            text = b""
            while part := s.recv(65536):
                text += part
        return json.loads(text)

    def reaches(self, mode, seconds=20):
        wait_for(lambda: self.report()["mode"] == mode, f"mode {mode}", self.process, seconds)

    def pids(self):
        """The supervisor and the daemon proper."""
        return [self.process.pid, self.report()["pid"]]

    def tids(self):
        return [int(t.name) for pid in self.pids() for t in Path(f"/proc/{pid}/task").iterdir()]
