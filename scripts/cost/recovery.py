# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Cycles until estimate and moves are right after slices change."""

import time

from cost.bed import MS
from cost.bed import NCPU
from cost.bed import Table
from cost.bed import now
from cost.latency import Log
from cost.latency import next_out


def section_recovery(bed, args):
    record = bed.dir / "change.csv"
    with open(record, "w") as f:
        f.write("cpu,on_ns,off_ns\n")
        for cpu in range(NCPU):
            stretch = 1 + 0.03 * cpu  # phases sweep
            for on, off, times in ((11, 11, 50), (5, 25, 50)):
                line = f"{cpu},{int(on * stretch * MS)},{int(off * stretch * MS)}\n"
                f.write(line * times)
    log, samples = bed.dir / "recovery.log", []
    with bed.frozen("--replay", str(record)) as gaps, bed.compute(), bed.load("pulse"), bed.daemon(log=log) as daemon:
        daemon.reaches("active")
        end = time.monotonic() + 2.6 * args.repetitions + 2
        while time.monotonic() < end:
            report = daemon.report()
            samples.append((now(), [v["slice_ns"] for v in report["vcpus"]]))
            time.sleep(0.004)
    moves = Log(log).moves()
    right, resumed = [], []
    for cpu in range(NCPU):
        mine = sorted(g for g in gaps if g[0] == cpu)
        slice_ns = 5 * MS * (1 + 0.03 * cpu)
        for nth, before in enumerate(mine):
            # The last gap of the old kind, by its place in the record: a gap of the
            # old kind that this machine's own hypervisor made longer is no change.
            if nth % 100 != 49:
                continue
            changed = before[2]
            # Cycles that were over: slices of the new length that had ended.
            ends = [g[1] for g in mine if g[1] > changed]
            if len(ends) < 45 or ends[44] > samples[-1][0]:
                continue
            # What the daemon has not seen from before is no change for it: it starts.
            old = [s[cpu] for t, s in samples if before[1] - 100 * MS < t < before[1]]
            if not old or not old[-1]:
                continue
            done = lambda at: sum(1 for e in ends if e <= at)
            ok = [t for t, s in samples if t > changed and s[cpu] and abs(s[cpu] - slice_ns) <= slice_ns / 10]
            right.append(done(ok[0]) if ok and ok[0] <= ends[44] else 45)
            good = []
            for why, source, _, decided, moved in moves:
                if why in ("Push", "SoonActive") and source == cpu and moved > ends[0]:
                    gap = next_out(gaps, cpu, decided)
                    if gap and 0 <= gap[1] - moved <= 3 * MS:
                        good.append(moved)
            # As many as the record has cycles: not before the next change.
            resumed.append(done(good[0]) if good and good[0] <= ends[44] else 45)
    table = Table("5. Slices change from 11/11 to 5/25 ms")
    table.row("cycles until the estimate is within 10 %", right, "", "10", 10)
    table.row("cycles until a task leaves in time again", resumed, "", "10", 10)
    for name, values in (("estimate", right), ("leaving", resumed)):
        if values:
            table.row(f"{name}: changes that took more than 10", [100 * sum(v > 10 for v in values) / len(values)], "%")
