// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns beside a thread of the host that interrupts them.

use std::collections::BTreeMap;

use scx_vcpu::trace::Event;
use scx_vcpu::trace::Kind;
use units::Ns;
use units::Time;

use super::boot;
use super::number;
use super::trace;

/// Whose turn it was and its CPU time, for each turn on a pCPU that began in a window; what the
/// host's threads took meanwhile is not in it.
fn in_order(events: &[Event], cpu: u16, from: Time, to: Time) -> Vec<(u32, Ns)> {
    let mut lengths = Vec::new();
    // Who has the turn, since when, and what it has had.
    let mut turn: Option<(u32, Time, Ns)> = None;
    let mut on = from;
    for event in events.iter().filter(|event| event.cpu == cpu) {
        let same = turn.is_some_and(|(tid, ..)| tid == event.tid);
        match event.kind {
            Kind::Wake => continue,
            Kind::On if same => on = event.at,
            Kind::On => {
                lengths.extend(turn.replace((event.tid, event.at, Ns::ZERO)));
                on = event.at;
            }
            kind => {
                if let Some((.., had)) = turn.as_mut().filter(|_| same) {
                    *had += event.at.since(on);
                }
                if kind != Kind::OffHost {
                    lengths.extend(turn.take());
                }
            }
        }
    }
    let in_window = lengths
        .iter()
        .filter(|(_, since, _)| (from..to).contains(since));
    in_window.map(|(tid, _, had)| (*tid, *had)).collect()
}

/// The CPU time of each, shortest first.
pub(crate) fn turns(events: &[Event], cpu: u16, from: Time, to: Time) -> Vec<Ns> {
    let turns = in_order(events, cpu, from, to);
    let mut lengths: Vec<Ns> = turns.into_iter().map(|(_, had)| had).collect();
    lengths.sort_unstable();
    lengths
}

/// Each turn with what its vCPU's one before ran over `asked`, which it has to pay; shortest first.
fn with_debts(turns: &[(u32, Ns)], asked: Ns) -> Vec<Ns> {
    let mut over = BTreeMap::new();
    let mut lengths: Vec<Ns> = turns
        .iter()
        .map(|(tid, had)| *had + over.insert(*tid, *had - asked).unwrap_or_default())
        .collect();
    lengths.sort_unstable();
    lengths
}

/// A turn lasts 30 ms of its vCPU's time (K6, K13), however often the host comes between
/// and however credits change meanwhile.
#[test]
fn root_vm_scx_vcpu_host_threads_do_not_end_turns() {
    let output = boot(include_str!("turns.sh"));
    let all = ["credit1", "credit2", "isacs", "vslicer", "ische", "ends"].map(|policy| {
        let events = trace(&output, &format!("{policy}-trace"));
        let from = Time(number(&output, &format!("{policy}-from")));
        let to = from + Ns::from_secs(5);
        // A turn that a busy machine made too long has the vCPU's next one pay (`owed_ns` of
        // rule_vslicer.h).
        let turns = match policy {
            "vslicer" => with_debts(&in_order(&events, 0, from, to), Ns::from_ms(30)),
            _ => turns(&events, 0, from, to),
        };
        let at = |percent: usize| turns[turns.len() * percent / 100];
        eprintln!(
            "{policy}: {} turns, 5 % below {}, median {}, 5 % above {}",
            turns.len(),
            at(5),
            at(50),
            at(95)
        );
        (policy, turns.len(), at(5))
    });
    // Several of one vCPU in a row count as one; a short one is none of those.
    for (policy, count, p05) in all {
        assert!(count > 30, "{policy}: {count}");
        // With as much credit as the reset that came before its turn gives (K12).
        let asked = Ns::from_ms(if policy == "ends" { 10 } else { 30 });
        let as_asked = (asked * 9 / 10..asked * 12 / 10).contains(&p05);
        assert!(as_asked, "{policy}: {p05}");
    }
}
