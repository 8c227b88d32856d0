# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Detection, moves before and after a freeze, loop lag, C_avg."""

import datetime
import mmap
import os
import re
import time
from pathlib import Path

from cost.bed import MS
from cost.bed import S
from cost.bed import Table
from cost.bed import now
from cost.bed import p99
from cost.bed import wait_for


class Log:
    """The daemon's trace: wall-clock stamps with microseconds, made monotonic."""

    LINE = re.compile(r"^(\S+)Z\s+([A-Z]+)\s+(.*)$")
    FIELD = re.compile(r'(\w+)=("[^"]*"|.*?)(?= \w+=|$)')

    def __init__(self, path):
        offset = time.time_ns() - now()
        self.lines = []
        for text in Path(path).read_text().splitlines():
            if not (m := self.LINE.match(text)) or "libbpf" in text:
                continue
            stamp = datetime.datetime.fromisoformat(m[1]).replace(tzinfo=datetime.timezone.utc)
            delta = stamp - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
            wall = (delta.days * 86400 + delta.seconds) * S + delta.microseconds * 1000
            self.lines.append((wall - offset, m[3], dict(self.FIELD.findall(m[3]))))

    def moves(self):
        """(why, from, to, decided, moved) of each move that was made."""
        # By content and not by order: the mover may write its line first.
        decisions, made = {}, []
        for _, text, fields in self.lines:
            if text.startswith("decided"):
                key = fields["task"], fields["why"], int(fields["to"])
                decisions.setdefault(key, []).append((int(fields["now"]), int(fields["from"])))
        for at, text, fields in self.lines:
            if text.startswith("moved"):
                key = fields["key"], fields["why"], int(fields["to"])
                # Stamps are cut off at microseconds.
                if earlier := [d for d in decisions.get(key, []) if d[0] <= at + 1000]:
                    decided, source = max(earlier)
                    made.append((fields["why"], source, key[2], decided, at))
        return made


def next_out(gaps, cpu, at):
    """The first gap of a CPU that is not over at an instant."""
    return min((g for g in gaps if g[0] == cpu and g[2] > at), key=lambda g: g[1], default=None)


def io_phase(path, pipe, length):
    """In a process of its own: after a while, reads at random with O_DIRECT."""
    size = os.path.getsize(path)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer, seed = mmap.mmap(-1, 4096), os.getpid()
    time.sleep(0.1)
    begin = now()
    while now() - begin < length:
        seed = (seed * 1103515245 + 12345) % 2**31
        os.preadv(fd, [buffer], seed % (size // 4096) * 4096)
    os.write(pipe, str(begin).encode())


def detection(bed, path, freeze, count, detached=False):
    """Delays in ms, with and without the gaps in between, of fresh threads.

    With `detached` each phase begins without the programs at context switches."""
    log, starts = bed.dir / "detect.log", {}
    config = 'calm_after = "100 ms"' if detached else ""
    with bed.frozen(*freeze) as gaps, bed.compute(), bed.daemon(config, log=log) as daemon:
        daemon.reaches("watching")
        for _ in range(count):
            if detached:
                wait_for(lambda: not daemon.report()["detector_attached"], "no detector", daemon.process)
            reader, writer = os.pipe()
            if not (pid := os.fork()):
                try:
                    io_phase(path, writer, 1500 * MS if detached else 100 * MS)
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            starts[pid] = int(os.read(reader, 32))
            os.close(reader)
            os.close(writer)
    delays, running = [], []
    for at, text, fields in Log(log).lines:
        # The first time only: a phase with a pause in it is found again.
        if text.startswith("I/O-bound") and (begin := starts.pop(int(fields["key"].split("@")[0]), None)):
            delays.append((at - begin) / MS)
            # Time in which some vCPU was gone; the thread may have been on another.
            instants = sorted({begin, at, *(min(max(x, begin), at) for g in gaps for x in g[1:])})
            free = sum(b - a for a, b in zip(instants, instants[1:]) if not any(g[1] <= a and b <= g[2] for g in gaps))
            running.append(free / MS)
    return delays, running


def section_latency(bed, args):
    table = Table("4. Latency")
    data = Path(args.data, f".bench-cost-{os.getpid()}")
    try:
        with open(data, "wb") as f:
            for _ in range(64):
                f.write(os.urandom(1 << 20))
            f.flush()
            os.fsync(f.fileno())
        native, _ = detection(bed, data, ["--on", "300ms", "--off", "1ms"], 12)
        table.row("I/O phase to detection (of 12), 300/1 ms", native, "ms", "5 ms", 5)
        shared, running = detection(bed, data, ["--vms", "2"], 12)
        table.row("I/O phase to detection (of 12), 11/11 ms", shared, "ms", "5 ms", 5)
        table.row("the same, while no vCPU was away", running, "ms")
        for freeze in (["--on", "300ms", "--off", "1ms"], ["--vms", "2"], ["--vms", "8"]):
            first, _ = detection(bed, data, freeze, 4, detached=True)
            name = "300/1 ms" if freeze[0] == "--on" else f"{freeze[1]} VMs"
            table.row(f"the first after long without I/O (of 4), {name}", first, "ms", "report")
    finally:
        data.unlink(missing_ok=True)

    for vms in ("2", "4", "8"):
        reactions(bed, table, vms, f"{vms} VMs", "", 100)
    # With push on few tasks are left to pull: these are the pulls of all slices.
    for vms in ("2", "4"):
        reactions(bed, table, vms, f"{vms} VMs, no push", "[placement]\npush = false\n", 100)
        config = 'source = "heartbeat"\n[placement]\npush = false\n'
        reactions(bed, table, vms, f"{vms} VMs, no push, heartbeat", config, 300)


def reactions(bed, table, vms, name, config, pull_goal):
    """How long moves take, and how long after (or before) what called for them they are made."""
    log = bed.dir / "moves.log"
    with bed.frozen("--vms", vms) as gaps, bed.compute(), bed.load("pulse"), bed.daemon(config, log=log) as daemon:
        daemon.reaches("active")
        time.sleep(6)
    left, late, pull, seen, run = [], 0, [], [], []
    for why, source, target, decided, moved in Log(log).moves():
        run.append((moved - decided) / 1000)
        if why in ("Push", "SoonActive"):
            if not (gap := next_out(gaps, source, decided)):
                continue
            # Decided on a vCPU that was gone already, or gone before the move.
            late += gap[1] < moved
            left.append((gap[1] - moved) / 1000)
        elif why == "Pull":
            gone = [g[1] for g in gaps if g[0] == source and g[1] <= decided < g[2]]
            back = [g[2] for g in gaps if g[0] == target and g[2] <= moved]
            if gone and back:
                pull.append((moved - max(gone[0], max(back))) / 1000)
                seen.append((decided - max(gone[0], max(back))) / 1000)
    table.row(f"{name}: decision to moved", run, "us")
    if run:
        table.row(f"{name}: decision to moved, p99", [p99(run)], "us")
    if "push = false" not in config:
        table.row(f"{name}: push/soon-active: left before the slice's end", left, "us", "> 0")
    if left:
        table.row(f"{name}: push/soon-active: too late", [100 * late / len(left)], "%")
    table.row(f"{name}: pull: moved after freeze or resume", pull, "us", f"{pull_goal} us", pull_goal)
    if pull:
        table.row(f"{name}: pull: decided after freeze or resume", seen, "us")
        table.row(f"{name}: pull, p99", [p99(pull)], "us")
