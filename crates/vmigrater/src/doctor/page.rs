// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The facts as text for people, one line each, the verdict last.

use std::fmt::Write;

use guest::disks::Completions;
use units::CpuSet;

use super::Facts;
use super::look::Look;
use super::verdict::Verdict;
use crate::status::printable;

/// The whole page; ends with a line break.
pub(crate) fn render(facts: &Facts, verdict: &Verdict) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<22} {value}");
    };
    let machine = &facts.machine;
    line(
        "kernel",
        format!(
            "{}{}",
            machine.kernel,
            if machine.btf {
                ", with BTF"
            } else {
                ", without BTF"
            }
        ),
    );
    if machine.btf && !machine.missing_tracepoints.is_empty() {
        line(
            "tracepoints missing",
            machine.missing_tracepoints.join(", "),
        );
    }
    line(
        "hypervisor",
        match (machine.kvm, machine.virtual_machine) {
            (true, _) => "KVM".into(),
            (false, true) => "yes, without KVM's clock".into(),
            (false, false) => "none reported: bare metal, or hidden".into(),
        },
    );
    line("vCPUs", vcpus(facts));
    line(
        "privileges",
        match facts.privileges.missing.as_slice() {
            [] => "sufficient".into(),
            missing => format!("missing {}", missing.join(", ")),
        },
    );
    if let Some(scheduling) = &facts.scheduling {
        line(
            "EEVDF slice per task",
            match scheduling.eevdf_slice_ns {
                Some(slice) => format!("yes, {slice} by default"),
                None => "no; it came with Linux 6.12".into(),
            },
        );
        line("SCHED_FIFO", fifo(facts, scheduling.fifo));
    }
    if facts.disks.is_empty() {
        line("disks", "none with a device of their own".into());
    }
    for disk in &facts.disks {
        let queues = if disk.queues == 1 {
            "1 queue".into()
        } else {
            format!("{} queues", disk.queues)
        };
        let path = match &disk.completions {
            Completions::FollowsTask => "completes where the task submits".into(),
            Completions::On(set) if set.len() == 1 => {
                format!("completes on vCPU {set} only: its I/O tasks live there")
            }
            Completions::On(set) => format!("completes on vCPUs {set}"),
            Completions::SentOnFrom(vcpu) => format!(
                "completes by way of vCPU {vcpu} only (rq_affinity): its I/O tasks live there"
            ),
            Completions::Unknown => {
                "completion vCPU unknown, to be learnt from its requests".into()
            }
        };
        line(
            &format!("disk {}", printable(&disk.name)),
            format!("{queues}, {path}"),
        );
    }
    line(
        "steal since boot",
        match &facts.steal_since_boot {
            Some(times) => {
                let sum = super::steal::sum(times);
                format!(
                    "{} ({:.2} % of all vCPU time)",
                    sum.stolen_ns,
                    sum.percent()
                )
            }
            None => "unknown: /proc/stat shows none".into(),
        },
    );
    if let Some(pid) = facts.daemon {
        line("daemon", format!("runs, pid {pid}; this look is its own"));
    }
    if let Some(look) = &facts.look {
        seen(look, &mut line);
    }
    let _ = writeln!(text, "\n{}", verdict.words);
    text
}

fn seen(look: &Look, line: &mut impl FnMut(&str, String)) {
    for source in &look.sources {
        let value = match (&source.accuracy_ns, &source.missing) {
            (Some(accuracy), _) => format!("usable, accurate to {accuracy} ({})", source.error_of),
            (None, Some(missing)) => format!("not usable: {missing}"),
            (None, None) => "not usable".into(),
        };
        line(&format!("source {}", source.name), value);
    }
    line(
        "looked for",
        format!(
            "{:.1} s: {:.2} % of the vCPUs' time stolen by the kernel's account, {:.2} % seen by the daemon's source",
            look.seconds, look.accounted_percent, look.seen_percent
        ),
    );
    let known = |ns: Option<units::Ns>| ns.map_or("unknown".to_owned(), |ns| ns.to_string());
    for vcpu in &look.vcpus {
        line(
            &format!("vCPU {}", vcpu.id),
            format!(
                "{} gaps, away for {}; slice {}, gap {}",
                vcpu.gaps,
                vcpu.stolen_ns,
                known(vcpu.slice_ns),
                known(vcpu.gap_ns)
            ),
        );
    }
    for task in &look.tasks {
        line(
            &format!("I/O-bound {}", task.tid),
            format!("{}, load {}", printable(&task.comm), task.load_permille),
        );
    }
}

fn vcpus(facts: &Facts) -> String {
    let machine = &facts.machine;
    let mut text = format!("{} online ({})", machine.online.len(), machine.online);
    if machine.allowed.and(&machine.online) != machine.online {
        let _ = write!(
            text,
            ", this process may use {}",
            machine.allowed.and(&machine.online)
        );
    }
    if machine.isolated != CpuSet::default() {
        let _ = write!(text, ", isolated {}", machine.isolated);
    }
    if let Some(preferred) = &machine.preferred {
        let _ = write!(text, ", the kernel prefers {preferred}");
    }
    text
}

fn fifo(facts: &Facts, works: bool) -> String {
    match (works, facts.privileges.rt_runtime_us) {
        (true, _) => "allowed".into(),
        (false, Some(0)) => {
            "refused: this cgroup has no real-time budget; write one to its cpu.rt_runtime_us, or do without".into()
        }
        (false, _) => "refused: it wants CAP_SYS_NICE".into(),
    }
}
