# SPDX-License-Identifier: Apache-2.0 OR MIT
"""CPU time and wake-ups of the daemon."""

import contextlib
import os
import re
import subprocess
import time
from pathlib import Path

from cost.bed import NCPU
from cost.bed import QUIET
from cost.bed import S
from cost.bed import Table
from cost.bed import die
from cost.bed import now


class SwitchTrace:
    """When threads were on a CPU, exactly: the kernel's trace of switches.

    The scheduler's own account charges a gap to whoever is current when the CPU
    stops. With instants of both, switches and gaps, that can be taken off."""

    def __init__(self, tids):
        self.base = Path("/sys/kernel/tracing")
        # Nobody has mounted it where no service manager runs.
        self.mounts = not (self.base / "instances").is_dir()
        self.dir = self.base / "instances" / f"bench-cost-{os.getpid()}"
        self.tids = set(tids)

    def __enter__(self):
        if self.mounts:
            subprocess.run(["mount", "-t", "tracefs", "tracefs", self.base], check=True)
        try:
            self.dir.mkdir()
            self.write("trace_clock", "mono")
            self.write("buffer_size_kb", "16384")
            self.write("set_event_pid", " ".join(map(str, self.tids)))
            self.write("events/sched/sched_switch/enable", "1")
        except BaseException:
            self.end()
            raise
        return self

    def end(self):
        try:
            if self.dir.is_dir():
                self.dir.rmdir()
        finally:
            if self.mounts:
                subprocess.run(["umount", self.base], check=True)

    def write(self, name, text):
        (self.dir / name).write_text(text)

    def __exit__(self, *_):
        self.end()

    def stretches(self):
        """(cpu, from, to) of each time that one of the threads ran."""
        pattern = re.compile(r"\[(\d+)\]\s+\S+\s+(\d+)\.(\d{6}): sched_switch: .*prev_pid=(\d+) .*next_pid=(\d+) ")
        since, found = {}, []
        with open(self.dir / "trace") as trace:
            for line in trace:
                if not (m := pattern.search(line)):
                    continue
                cpu, at = int(m[1]), int(m[2]) * S + int(m[3]) * 1000
                if (begin := since.pop(cpu, None)) and int(m[4]) in self.tids:
                    found.append((cpu, begin, at))
                if int(m[5]) in self.tids:
                    since[cpu] = at
        return found


def own_time(stretches, gaps):
    total = charged = 0
    for cpu, begin, end in stretches:
        gone = sum(max(0, min(end, back) - max(begin, out)) for c, out, back in gaps if c == cpu and out < end and back > begin)
        total += end - begin
        charged += gone
    return total - charged, charged


def measure_cpu(bed, freeze, mode, seconds, loads, **daemon_options):
    """Seconds, on-CPU ns of the daemon, of that frozen, wake-ups, delivered share, report."""
    with contextlib.ExitStack() as stack:
        gaps = stack.enter_context(bed.frozen(*freeze))
        daemon = stack.enter_context(bed.daemon(**daemon_options))
        for load in loads:
            stack.enter_context(bed.compute() if load == "compute" else bed.load(load))
        daemon.reaches(mode)
        time.sleep(0.7)
        trace = stack.enter_context(SwitchTrace(daemon.tids()))
        before, t0 = daemon.report(), now()
        time.sleep(seconds)
        t1 = now()
        trace.write("tracing_on", "0")
        after = daemon.report()
        stretches = trace.stretches()
        # Between two I/O phases an active daemon is watching.
        if after["mode"] != mode and (mode, after["mode"]) != ("active", "watching"):
            die(f"the daemon is {after['mode']}, not {mode}")
    own, charged = own_time([s for s in stretches if t0 <= s[1] < t1], gaps)
    gone = sum(max(0, min(t1, b) - max(t0, a)) for _, a, b in gaps)
    woken = {k: after["wakeups"][k] - before["wakeups"][k] for k in after["wakeups"]}
    wall = t1 - t0
    moves = [after[key] - before[key] for key in ("n_migrate", "n_min")]
    return {
        "p": moves[0] / moves[1] if moves[1] else None,
        "share": 100 * own / wall / NCPU,
        "of_delivered": 100 * own / max(1, wall * NCPU - gone),
        "charged": 100 * charged / wall / NCPU,
        "wakes": sum(woken.values()) / wall * S,
        "runs": len(stretches) / wall * S,
        "active": 100 * (after["io_phase_ns"] - before["io_phase_ns"]) / wall,
        "report": after,
    }


def cpu_rows(table, name, results, goal, limit):
    table.row(f"{name}: CPU, % of each vCPU", [r["share"] for r in results], "%", goal, limit)
    table.row(f"{name}: the same, of the time it had", [r["of_delivered"] for r in results], "%")
    table.row(f"{name}: frozen while current (taken off)", [r["charged"] for r in results], "%")
    table.row(f"{name}: wake-ups per second", [r["wakes"] for r in results], "/s")
    table.row(f"{name}: switches to its threads per second", [r["runs"] for r in results], "/s")


def section_cpu(bed, args):
    table = Table("3. CPU of daemon and supervisor")
    quiet = measure_cpu(bed, QUIET, "asleep", 12, ["compute"])
    cpu_rows(table, "no sharing, 12 s", [quiet], "0", 0.0005)
    runs = [measure_cpu(bed, ["--vms", "4"], "watching", 4, ["compute"]) for _ in range(2)]
    cpu_rows(table, "4 VMs, no I/O", runs, "0.1 %", 0.1)
    for vms in ("2", "4", "8"):
        runs = [measure_cpu(bed, ["--vms", vms], "active", 4, ["compute", "pulse"]) for _ in range(3)]
        cpu_rows(table, f"{vms} VMs, active", runs, "0.5 %", 0.5)
        lag = [r["report"]["loop_lag_p99_ns"] / 1000 for r in runs]
        table.row(f"{vms} VMs, active: loop lag p99", lag, "us")
        table.row(f"{vms} VMs, active: C_avg", [r["report"]["c_avg_ns"] / 1000 for r in runs], "us")
        # The load's tasks follow their vCPU's slices. A task that lives where its disk completes is not moved at all.
        p = [r["p"] for r in runs if r["p"] is not None]
        table.row(f"{vms} VMs, active: N_migrate / N_min", p, "", "1.05", 1.05)


def section_heartbeat(bed, args):
    table = Table("3b. CPU with the published profile (heartbeat of 300 us)")
    for vms in ("2", "4", "8"):
        runs = [measure_cpu(bed, ["--vms", vms], "active", 3, ["compute", "pulse"], profile="published") for _ in range(2)]
        cpu_rows(table, f"{vms} VMs, published profile", runs, "report", None)
        table.row(f"{vms} VMs, published profile: time in mode active", [r["active"] for r in runs], "%")
