// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is a vCPU's own under each policy: its slice, its latency, how often it was
//! preempted; and what happens to those for which the table has no entry.

use std::collections::BTreeMap;

use units::Ns;
use vlab::vm::Output;

use super::boot;
use super::number;
use super::policies::response;
use super::policies::vms;
use super::said;

/// As many as own.sh takes.
const LOOKS: usize = 8;
const POLICIES: [&str; 6] = ["fixed", "credit1", "credit2", "vslicer", "ische", "isacs"];

/// How long turns of the first two VMs may become, several of each, the shortest first. Under
/// vSlicer a turn ends where another's is due, and goes on where nobody waits.
fn turns(output: &Output, policy: &str) -> [Vec<Ns>; 2] {
    let mut turns = [const { Vec::new() }; 2];
    for look in 1..=LOOKS {
        let all = super::vcpus(output, &format!("{policy}-turn-{look}"), 5);
        for (turns, vcpus) in turns.iter_mut().zip(all.chunks(2)) {
            turns.extend(vcpus.iter().map(|vcpu| vcpu.slice));
        }
    }
    for turns in &mut turns {
        turns.sort_unstable();
    }
    turns
}

#[test]
fn root_vm_scx_vcpu_own_slices_latencies_and_entries() {
    let output = boot(include_str!("own.sh"));
    for policy in POLICIES {
        let all = vms(&output, &format!("{policy}-1"));
        let [own, other, device] = &all;
        let response = response(&all);
        eprintln!(
            "{policy}: slices of {} beside {}, latency 2 ms: response {response}; preempted {} of {} and {} of {}",
            own.slice, other.slice, own.preempted, own.turns, device.preempted, device.turns,
        );
        let asked = (own.own_slice, other.own_slice, device.latency);
        assert_eq!(
            asked,
            (Ns::from_ms(4), Ns::ZERO, Ns::from_ms(2)),
            "{policy}"
        );
        let [own_turns, others] = turns(&output, policy);
        eprintln!("{policy}: turns may become {own_turns:?} and {others:?} long");
        // Three quarters of its turns at least; all of the other's, but under vSlicer one.
        let most = own_turns.len() * 3 / 4;
        let longer = if policy == "vslicer" {
            others.len() - 1
        } else {
            0
        };
        assert!(own_turns[most] <= Ns::from_ms(4), "{policy}: {own:?}");
        assert!(others[longer] > Ns::from_ms(4), "{policy}: {other:?}");
        assert!(response < Ns::from_ms(15), "{policy}: {device:?}");
        // Who computes never leaves by itself. Who waits for a device does, unless the host's
        // own threads come first.
        for vcpu in [own, other] {
            assert!(vcpu.preempted * 10 > vcpu.turns * 9, "{policy}: {vcpu:?}");
        }
        assert!(
            device.preempted * 4 < device.turns * 3,
            "{policy}: {device:?}"
        );
        assert_eq!(number(&output, &format!("{policy}-exit")), 0);
    }

    // As many found an entry.
    super::vcpus(&output, "full", 2);
    let threads = |key: &str| -> BTreeMap<u32, u64> {
        let pairs = said(&output, key).split_whitespace();
        let pairs = pairs.map(|word| word.split_once(':').unwrap());
        let parsed = pairs.map(|(tid, ran)| (tid.parse().unwrap(), ran.parse().unwrap()));
        parsed.collect()
    };
    let (from, to) = (threads("from"), threads("to"));
    let had: Vec<Ns> = to.iter().map(|(tid, ran)| Ns(ran - from[tid])).collect();
    eprintln!(
        "a table of 2: the five threads had {had:?}; {}",
        said(&output, "full-said")
    );
    assert_eq!(had.len(), 5);
    assert!(had.iter().all(|had| *had > Ns::ZERO), "{had:?}");
    assert!(
        said(&output, "full-said").contains("3 vCPU threads found no free entry"),
        "{}",
        output.stdout
    );
    assert_eq!(number(&output, "full-exit"), 0);
}
