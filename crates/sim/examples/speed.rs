// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How fast the simulator is, as a whole process: `scripts/bench-sim` runs it.
//!
//!     speed mixed BLOCKS SECONDS         readers and compute under CFS
//!     speed one-disk BLOCKS SECONDS      the same with one disk for all blocks
//!     speed round-robin BLOCKS SECONDS   nothing but slices in turn
//!
//! A block is 12 pCPUs with 8 VMs of 12 vCPUs pinned to them: 96 vCPUs. Prints one
//! line of JSON; for slices in turn with the CPU time in nanoseconds and the number of
//! slices of each vCPU, so that a peer can show that it did the same.

#[path = "../benches/block/mod.rs"]
mod block;

use std::process::ExitCode;
use std::time::Instant;

use units::Ns;
use units::Time;

/// Largest resident set of this process, in KiB (`VmHWM`).
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize| words.get(n).and_then(|word| word.parse::<u32>().ok());
    let load = words.first().and_then(|word| block::Load::named(word));
    let (Some(load), Some(blocks @ 1..), Some(seconds)) = (load, number(1), number(2)) else {
        eprintln!("usage: speed mixed|one-disk|round-robin BLOCKS SECONDS");
        return ExitCode::FAILURE;
    };
    let mut sim = block::simulation(load, blocks);
    let began = Instant::now();
    sim.run_until(Time::ZERO + Ns::from_secs(u64::from(seconds)));
    let took = began.elapsed().as_secs_f64();
    let machine = sim.machine();
    let picks: u64 = machine.pcpus.iter().map(|p| p.turns).sum();
    let list = |of: fn(&sim::machine::VcpuFacts) -> u64| {
        let all: Vec<String> = machine.vcpus.iter().map(|v| of(v).to_string()).collect();
        all.join(", ")
    };
    let had = if load == block::Load::RoundRobin {
        let (ran, slices) = (list(|v| v.ran.as_ns()), list(|v| v.switched_in));
        format!(", \"ran_ns\": [{ran}], \"slices\": [{slices}]")
    } else {
        String::new()
    };
    println!(
        "{{\"vcpus\": {}, \"simulated_s\": {seconds}, \"took_s\": {took:.3}, \"events\": {}, \
         \"events_per_s\": {:.0}, \"switches\": {picks}, \"peak_kib\": {}{had}}}",
        machine.vcpus.len(),
        sim.events(),
        sim.events() as f64 / took,
        peak_kib().unwrap_or(0),
    );
    ExitCode::SUCCESS
}
