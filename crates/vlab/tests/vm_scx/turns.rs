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

/// A turn on a pCPU.
struct Turn {
    /// Whose it was.
    tid: u32,
    since: Time,
    /// Its CPU time; what the host's threads took meanwhile is not in it.
    had: Ns,
}

fn in_order(events: &[Event], cpu: u16) -> Vec<Turn> {
    let mut ended = Vec::new();
    let mut turn: Option<Turn> = None;
    let mut on = Time(0);
    for event in events.iter().filter(|event| event.cpu == cpu) {
        let same = turn.as_ref().is_some_and(|turn| turn.tid == event.tid);
        match event.kind {
            Kind::Wake => continue,
            Kind::On if same => on = event.at,
            Kind::On => {
                ended.extend(turn.replace(Turn {
                    tid: event.tid,
                    since: event.at,
                    had: Ns::ZERO,
                }));
                on = event.at;
            }
            kind => {
                if let Some(turn) = turn.as_mut().filter(|_| same) {
                    turn.had += event.at.since(on);
                }
                if kind != Kind::OffHost {
                    ended.extend(turn.take());
                }
            }
        }
    }
    ended
}

/// The CPU time of each that began in a window, shortest first.
pub(crate) fn turns(events: &[Event], cpu: u16, from: Time, to: Time) -> Vec<Ns> {
    lengths(in_order(events, cpu), from, to)
}

/// The same under vSlicer, each with what it pays of what its vCPU's turns before ran over
/// `asked`: of that, `asked` is owed at most, and half of it is paid in a turn
/// (`vslicer_owes` and `vslicer_pays` of vslicer.h).
pub(crate) fn turns_with_what_they_pay(
    events: &[Event],
    cpu: u16,
    asked: Ns,
    from: Time,
    to: Time,
) -> Vec<Ns> {
    let mut turns = in_order(events, cpu);
    pay(&mut turns, asked);
    lengths(turns, from, to)
}

fn pay(turns: &mut [Turn], asked: Ns) {
    let mut owed: BTreeMap<u32, Ns> = BTreeMap::new();
    for turn in turns {
        let owed = owed.entry(turn.tid).or_default();
        let pays = (*owed).min(asked / 2);
        turn.had += pays;
        *owed = (*owed - pays + (turn.had - asked)).min(asked);
    }
}

fn lengths(turns: Vec<Turn>, from: Time, to: Time) -> Vec<Ns> {
    let in_window = turns
        .into_iter()
        .filter(|turn| (from..to).contains(&turn.since));
    let mut lengths: Vec<Ns> = in_window.map(|turn| turn.had).collect();
    lengths.sort_unstable();
    lengths
}

/// Turns of 30 ms: a stall of 100 ms, of which 30 ms are owed, and two turns that pay 15 ms.
#[test]
fn a_turn_that_pays_is_judged_with_what_it_pays() {
    let judged = |had: [u64; 5]| {
        let mut turns = had.map(|ms| Turn {
            tid: 1,
            since: Time(0),
            had: Ns::from_ms(ms),
        });
        pay(&mut turns, Ns::from_ms(30));
        turns.map(|turn| turn.had.0 / 1_000_000)
    };
    assert_eq!(judged([30, 130, 15, 15, 30]), [30, 130, 30, 30, 30]);
    // 4 ms too long, and what is paid late stays owed.
    assert_eq!(judged([34, 26, 130, 20, 10]), [34, 30, 130, 35, 25]);
    // One that is short and pays nothing is seen.
    assert_eq!(judged([30, 15, 30, 30, 30]), [30, 15, 30, 30, 30]);
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
        let turns = match policy {
            "vslicer" => turns_with_what_they_pay(&events, 0, Ns::from_ms(30), from, to),
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
