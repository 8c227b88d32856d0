// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host scheduler for KVM vCPUs that loads and unloads on a stock kernel.
//!
//! # Problem
//! Published schedulers for virtual machines are patches to Xen or KVM. This
//! one is a sched_ext scheduler: its BPF half finds the threads that run vCPUs,
//! keeps a queue of them per pCPU and gives out slices; everything that is no
//! vCPU stays in the fair class and comes before all vCPUs.
//!
//! # Layout
//! `src/bpf/` the mechanism, one file per concern: `vcpu.h` which threads are
//! vCPUs, `account.h` what each does and has had, `event.h` interrupts raised to
//! them, `policy_*.h` one per policy, `rule_*.h` what of those needs no queue, `place.h`
//! homes and caps, `trace.h` what happened when. [`probe`] whether this machine can run
//! it, [`policy`] and [`config`] the parameters of each policy, [`run`] the loop, `load`
//! the BPF side into the kernel, `ended` why that ended us, `heed` what a policy makes nothing of, [`roster`] what each VM is
//! worth, [`control`] what `scx_vcpu set` talks to, `tell` that and what a user sets to the
//! kernel's side, `mask` where vCPUs may run, `cgroup` what `cpu.weight` makes of it, `seat`
//! threads in and out of SCHED_EXT, `watch` the policy file while it runs, `sleep` suspends of
//! the machine, `name` what VMs are called, [`table`] the counters, [`lost`] vCPUs for which there
//! was no room, [`trace`] the file that records every on and off instant, [`look`] the same under
//! the kernel's own scheduler.
//!
//! # Adding a policy
//! A header `src/bpf/policy_NAME.h` with its rule, its parameters in
//! `struct sv_settings` and [`config`], a line in each of [`policy`], `load` and
//! `main.bpf.c`, and its part of the test in a VM, `crates/vlab/tests/vm_scx/`.

pub mod config;
pub mod control;
pub mod look;
pub mod lost;
pub mod policy;
pub mod probe;
pub mod restore;
pub mod roster;
pub mod run;
pub mod table;
pub mod trace;

mod cgroup;
mod ended;
mod heed;
mod load;
mod mask;
mod name;
mod patience;
#[cfg(test)]
mod replay;
mod seat;
mod skel;
mod sleep;
mod tell;
mod watch;
