// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns beside a thread of the host that interrupts them.

use scx_vcpu::trace::Event;
use scx_vcpu::trace::Kind;
use units::Ns;
use units::Time;

use super::boot;
use super::number;
use super::trace;

/// CPU time of each turn on a pCPU that began in a window, shortest first; what the
/// host's threads took meanwhile is not in it.
pub(crate) fn turns(events: &[Event], cpu: u16, from: Time, to: Time) -> Vec<Ns> {
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
    let mut lengths: Vec<Ns> = in_window.map(|(.., had)| *had).collect();
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
        let turns = turns(&events, 0, from, from + Ns::from_secs(5));
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
