# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the BPF programs add to context switches."""

import contextlib
import re
import subprocess
import time
from pathlib import Path

from cost.bed import QUIET
from cost.bed import Table
from cost.bed import now
from cost.bed import wait_for


def perf_bench(*test):
    """Seconds that `perf bench` took: the fastest of four, since whatever disturbs
    only adds."""
    # On one CPU: a wake-up across CPUs costs an exit to the hypervisor in a VM,
    # which hides everything else.
    command = ["taskset", "-c", "0", "perf", "bench", "-f", "simple", "sched", *test]
    run = lambda: float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return min(run() for _ in range(4))


# 0.1 to 0.2 s each: the machine drifts, so short rounds, many of them.
SWITCHERS = {
    "sched pipe, processes": ["pipe", "-l", "20000"],
    "sched pipe, threads": ["pipe", "-T", "-l", "20000"],
    # What hackbench does, which is not part of perf.
    "sched messaging (hackbench), 1 group": ["messaging", "-g", "1", "-l", "100"],
}
# Two gaps of 0.5 ms a second keep the daemon awake, and take 0.1 % of the machine.
AWAKE = ["--on", "500ms", "--off", "500us"]
# name: freezer, mode, detector attached, configuration
SWITCH_ARMS = {
    "none": (QUIET, None, False, ""),
    "asleep": (QUIET, "asleep", False, 'calm_after = "100 ms"'),
    "watching": (AWAKE, "watching", False, 'calm_after = "100 ms"'),
    "detector attached": (AWAKE, "watching", True, ""),
}


def section_switch(bed, args):
    # The freezer is there in every arm, so that its own cost cancels out; the few
    # gaps of an arm with one every 6 s do not wake the daemon.
    times = {(t, a): [] for t in SWITCHERS for a in SWITCH_ARMS}
    odd = {}
    end = time.monotonic() + args.switch_seconds
    rounds = 0
    while rounds < args.pairs and time.monotonic() < end:
        names = list(SWITCH_ARMS)
        # Rotated, so that drift of the machine meets all alike.
        turn = rounds % len(names)
        for arm in names[turn:] + names[:turn]:
            freeze, mode, attached, config = SWITCH_ARMS[arm]
            with contextlib.ExitStack() as stack:
                stack.enter_context(bed.frozen(*freeze))

                def as_wanted():
                    report = daemon.report()
                    return (report["mode"], report["detector_attached"]) == (mode, attached)

                if mode:
                    daemon = stack.enter_context(bed.daemon(config))
                    wait_for(as_wanted, f"{arm}", daemon.process, 20)
                for name, test in SWITCHERS.items():
                    times[name, arm].append(perf_bench(*test))
                # Somebody else's I/O attaches the detector.
                if mode and not as_wanted():
                    odd[arm] = odd.get(arm, 0) + 1
        rounds += 1
    table = Table("1. Context switches: added time, paired with the run without daemon")
    for name in SWITCHERS:
        table.row(f"{name}: none", times[name, "none"], "s")
        for arm in list(SWITCH_ARMS)[1:]:
            added = [100 * (b / a - 1) for a, b in zip(times[name, "none"], times[name, arm])]
            table.row(f"{name}: {arm}", added, "%", "2 %", 2)
    print(f"rounds at whose end the daemon was in another state, of {rounds}: {odd or 'none'}")
    in_programs(bed, table)


@contextlib.contextmanager
def bpf_stats():
    """The kernel adds up how long each BPF program runs."""
    switch = Path("/proc/sys/kernel/bpf_stats_enabled")
    before = switch.read_text()
    switch.write_text("1")
    try:
        yield
    finally:
        switch.write_text(before)


def program_times(pid):
    """Run time in ns and runs of each BPF program that a process holds."""
    times = {}
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        fields = dict(re.findall(r"^(\w+):\s*(\S+)", info.read_text(), re.M))
        # Links name their program, too.
        if "run_time_ns" in fields:
            times[fields["prog_id"]] = int(fields["run_time_ns"]), int(fields["run_cnt"])
    return times


def in_programs(bed, table):
    """What the machine's scatter hides above: the programs' own time, by the kernel's books.

    Without the way into a program (a call or two), with the two clock reads of the books."""
    freeze, mode, attached, config = SWITCH_ARMS["detector attached"]
    with bpf_stats(), bed.frozen(*freeze), bed.daemon(config) as daemon:
        wait_for(lambda: daemon.report()["detector_attached"] == attached, "the detector", daemon.process, 20)
        pid = daemon.pids()[1]
        for name, test in SWITCHERS.items():
            shares, each = [], []
            for _ in range(8):
                before, t0 = program_times(pid), now()
                subprocess.run(["taskset", "-c", "0", "perf", "bench", "sched", *test], check=True, capture_output=True)
                wall, after = now() - t0, program_times(pid)
                ran = [(t - before[i][0], n - before[i][1]) for i, (t, n) in after.items() if i in before]
                shares.append(100 * sum(t for t, _ in ran) / wall)
                each.append(sum(t for t, _ in ran) / max(1, sum(n for _, n in ran)))
            table.row(f"{name}: inside our programs", shares, "%", "2 %", 2)
            table.row(f"{name}: one run of a program", each, "ns")
