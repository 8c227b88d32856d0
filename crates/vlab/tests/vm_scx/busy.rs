// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host that works beside its VMs, and VMs that end while something is said of them.

use std::path::Path;

use scx_vcpu::table::Vcpu;
use scx_vcpu::trace::Event;
use scx_vcpu::trace::Kind;
use serde::Deserialize;
use units::Ns;
use units::Time;
use vlab::vm::Output;

use super::Machine;
use super::boot_with;
use super::number;
use super::ran;
use super::said;
use super::trace;
use super::vcpus;

/// Installed by scripts/setup.
const STRESS: &str = "/usr/bin/stress-ng";

/// The kernel gives the class of vCPUs so much of each second beside a class that comes
/// before it (its deadline server, `/sys/kernel/debug/sched/ext_server`).
const SERVER: Ns = Ns::from_ms(50);
const PERIOD: Ns = Ns::from_secs(1);

/// An emulated pCPU whose own host runs others stands still for so long now and then,
/// whoever is on it.
const STALL: Ns = Ns::from_ms(300);

/// As `vlab load wake` says it.
#[derive(Deserialize)]
struct Wake {
    wakeups: u64,
    p99_ns: u64,
    max_ns: u64,
}

/// A wait of a vCPU, and when others had its pCPU meanwhile: since the wait began, for so
/// long.
#[derive(Debug)]
#[expect(dead_code, reason = "is printed")]
struct Wait {
    tid: u32,
    from: Time,
    length: Ns,
    others: Vec<(Ns, Ns)>,
}

/// The longest of a vCPU that never sleeps.
fn longest_wait(events: &[Event], vcpu: &Vcpu) -> Option<Wait> {
    let here = events
        .iter()
        .filter(|event| u32::from(event.cpu) == vcpu.cpu && event.kind != Kind::Wake);
    let (mut longest, mut wait) = (None::<Wait>, None::<Wait>);
    let mut on = None;
    for event in here {
        match (event.tid == vcpu.tid, event.kind) {
            (true, Kind::On) => {
                if let Some(mut wait) = wait.take() {
                    wait.length = event.at.since(wait.from);
                    let longer = longest.as_ref().is_none_or(|one| one.length < wait.length);
                    longest = if longer { Some(wait) } else { longest };
                }
            }
            (true, _) => {
                wait = Some(Wait {
                    tid: vcpu.tid,
                    from: event.at,
                    length: Ns::ZERO,
                    others: Vec::new(),
                });
            }
            (false, Kind::On) => on = Some(event.at),
            (false, _) => {
                if let (Some(wait), Some(on)) = (&mut wait, on.take()) {
                    wait.others.push((on.since(wait.from), event.at.since(on)));
                }
            }
        }
    }
    longest
}

#[test]
fn root_vm_scx_vcpu_nobody_starves_and_a_vm_may_end_while_it_is_set() {
    let output = boot_with(
        include_str!("busy.sh"),
        Machine {
            programs: &[Path::new(STRESS)],
            ..Machine::default()
        },
    );
    let wake = |key: &str| -> Wake {
        serde_json::from_str(said(&output, &format!("{key}-wake"))).unwrap()
    };
    let alone = wake("alone");
    eprintln!(
        "beside load, no scheduler: a thread waits {} (99 %), {} (longest)",
        Ns(alone.p99_ns),
        Ns(alone.max_ns)
    );
    for policy in ["fixed", "credit2"] {
        let wake = wake(policy);
        let vcpus = vcpus(&output, &format!("{policy}-vcpus"), 4);
        let longest: Vec<Ns> = vcpus.iter().map(|vcpu| vcpu.longest_wait).collect();
        eprintln!(
            "{policy}: a thread waits {} (99 %), {} (longest); vCPUs had {}, waited {longest:?} at most",
            Ns(wake.p99_ns),
            Ns(wake.max_ns),
            ran(&vcpus)
        );
        let events = trace(&output, &format!("{policy}-trace"));
        for vcpu in &vcpus {
            eprintln!("{policy}: {:?}", longest_wait(&events, vcpu));
        }
        assert!(wake.wakeups > 100, "{policy}");
        // vCPUs come before a thread only while the server lets them.
        let most = Ns(alone.max_ns) + SERVER + STALL;
        assert!(
            wake.max_ns < most.0,
            "{policy}: {} of {most}",
            Ns(wake.max_ns)
        );
        for vcpu in &vcpus {
            // Served at the begin of one period and at the end of the next: what lies between.
            // In each both vCPUs of a pCPU have turns, for a turn is shorter than what the
            // server gives.
            assert!(vcpu.longest_wait > Ns::ZERO, "{policy}: {vcpus:?}");
            // Under Credit2 as well: who is behind waits for the other's credit and for the
            // turn in which that ends, 20 ms of what the server gives.
            assert!(
                vcpu.longest_wait < PERIOD * 2 - SERVER + STALL,
                "{policy}: {vcpus:?}"
            );
            assert!(vcpu.ran > Ns::ZERO, "{policy}: {vcpus:?}");
        }
        // Half of what the server gives on two pCPUs in 6 s.
        assert!(ran(&vcpus) > SERVER * 6, "{policy}: {vcpus:?}");
        assert_eq!(number(&output, &format!("{policy}-exit")), 0);
    }

    roaming_vcpus_wait_one_period_more(&output);

    // As the script means it: nobody answers until the VM has gone.
    assert_eq!(number(&output, "late-stopped"), 1);
    assert_eq!(number(&output, "late-heard"), 1);
    assert_eq!(number(&output, "late-exit"), 1);
    let late = said(&output, "late-said");
    assert!(
        late.starts_with("scx_vcpu: VM ") && late.ends_with(" has gone; nothing was changed"),
        "{late}"
    );
    for round in 1..=3 {
        let code = number(&output, &format!("race-{round}-exit"));
        let line = said(&output, &format!("race-{round}-said"));
        eprintln!("race {round}: {code}, {line}");
        assert_eq!(line.matches('|').count(), 1, "one line: {line}");
        let clear = match code {
            0 => line.starts_with("VM ") && line.contains("weight 512"),
            1 => line.contains("has gone") || line.contains("no VM that is scheduled has"),
            _ => false,
        };
        assert!(clear, "{code}: {line}");
    }
    // Nobody else was changed, and the scheduler has lived through it.
    let others = vcpus(&output, "others", 4);
    assert!(others.iter().all(|vcpu| vcpu.weight == 256), "{others:?}");
    assert_eq!(number(&output, "busy-exit"), 0);
    assert_eq!(said(&output, "left").trim(), "0 0");
}

/// Of vCPUs that may run on all pCPUs each waits for one of them, as those do that may run
/// there only. One that is taken by another pCPU may find that a thread has come to that
/// first; nobody takes it from there, and that pCPU serves it within a further period.
fn roaming_vcpus_wait_one_period_more(output: &Output) {
    let vcpus = vcpus(output, "roaming-vcpus", 4);
    let longest: Vec<Ns> = vcpus.iter().map(|vcpu| vcpu.longest_wait).collect();
    eprintln!(
        "fixed, on any pCPU: vCPUs had {}, waited {longest:?} at most",
        ran(&vcpus)
    );
    for vcpu in &vcpus {
        // All of them on one pCPU have a turn each in what the server gives, 44 of 50 ms.
        assert!(vcpu.longest_wait < PERIOD * 3 - SERVER + STALL, "{vcpus:?}");
        assert!(vcpu.ran > Ns::ZERO, "{vcpus:?}");
    }
    // A server stops when its pCPU has no vCPU, so one may serve all of them: half of what
    // it gives in 6 s.
    assert!(ran(&vcpus) > SERVER * 3, "{vcpus:?}");
    assert_eq!(number(output, "roaming-exit"), 0);
}
