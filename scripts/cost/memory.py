# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Memory of daemon, supervisor and BPF maps."""

import re
import time
from pathlib import Path

from cost.bed import QUIET
from cost.bed import Table


def status_kib(pid, key):
    return int(re.search(rf"^{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def map_bytes(pids):
    maps = {}
    for pid in pids:
        for info in Path(f"/proc/{pid}/fdinfo").iterdir():
            text = info.read_text()
            fields = dict(re.findall(r"^(\w+):\s*(\S+)", text, re.M))
            for kind in ("map_id", "prog_id"):
                if kind in fields and "memlock" in fields:
                    maps[kind, fields[kind]] = int(fields["memlock"])
    return sum(maps.values())


def section_memory(bed, args):
    table = Table("2. Memory")

    def take(daemon, mode):
        supervisor, main = daemon.pids()
        values = []
        for key in ("VmRSS", "VmHWM"):
            a, b = status_kib(supervisor, key) / 1024, status_kib(main, key) / 1024
            table.row(f"{mode}: {key} supervisor", [a], "MB")
            table.row(f"{mode}: {key} daemon", [b], "MB")
            values.append(a + b)
        bpf = map_bytes([supervisor, main]) / 1024 / 1024
        table.row(f"{mode}: BPF maps and programs (fdinfo memlock)", [bpf], "MB")
        table.row(f"{mode}: all, peak", [values[1] + bpf], "MB", "20 MB", 20)

    with bed.frozen(*QUIET), bed.daemon() as daemon:
        daemon.reaches("asleep")
        take(daemon, "asleep")
    with bed.frozen("--vms", "4"), bed.compute(), bed.load("pulse"), bed.daemon() as daemon:
        daemon.reaches("active")
        time.sleep(5)
        take(daemon, "active")
