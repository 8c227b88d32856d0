// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::collections::BTreeMap;

use proptest::prelude::*;
use units::CpuId;
use units::Ns;

use super::*;
use crate::ids::Vcpu;

/// Some are the same, some a slot of the finest wheel apart, some whole turns of the others.
fn lengths() -> impl Strategy<Value = u64> {
    (0u32..50, any::<u64>()).prop_map(|(bits, any)| any & ((1 << bits) - 1))
}

const END: Time = Time(u64::MAX);

proptest! {
    /// Both queues give the same events in the same order, which is the order
    /// of (time, rank, sequence).
    #[test]
    fn both_queues_agree(times in proptest::collection::vec((lengths(), 0u32..4), 0..200)) {
        let mut agendas = [Agenda::new(QueueKind::Wheel), Agenda::new(QueueKind::Tree)];
        for agenda in &mut agendas {
            for (n, (at, what)) in times.iter().enumerate() {
                let event = match what {
                    0 => Event::Resched { pcpu: CpuId(*at as u32) },
                    1 => Event::HostSlow,
                    // Renewed again and again: the newest alone happens.
                    2 => Event::Work { vcpu: Vcpu(*at as u32 % 5), epoch: n as u32 },
                    _ => Event::HostTimer { token: *at },
                };
                agenda.at(Time(*at), event);
            }
        }
        let [wheel, tree] = &mut agendas;
        let mut newest = BTreeMap::new();
        for (n, (at, what)) in times.iter().enumerate() {
            if *what == 2 {
                newest.insert(Vcpu(*at as u32 % 5), (Time(*at), n as u32));
            }
        }
        let mut last = (Time::ZERO, Rank::Device);
        while let Some(event) = wheel.next(END) {
            prop_assert_eq!(Some(event), tree.next(END));
            let place = (wheel.now(), event.rank());
            prop_assert!(place >= last);
            if let Event::Work { vcpu, epoch } = event {
                prop_assert_eq!(newest.remove(&vcpu), Some((wheel.now(), epoch)));
            }
            last = place;
        }
        prop_assert!(newest.is_empty(), "none was lost");
        prop_assert_eq!(tree.waiting(), 0);
    }
}

proptest! {
    /// Events that come up while others happen, those of the present instant among
    /// them, happen in the order of (time, rank, sequence) under either queue.
    #[test]
    fn events_that_come_up_later_take_their_place(
        steps in proptest::collection::vec((lengths(), 0u32..6), 0..200)
    ) {
        let mut agendas = [Agenda::new(QueueKind::Wheel), Agenda::new(QueueKind::Tree)];
        let mut model: BTreeMap<(Time, Rank, u32), Event> = BTreeMap::new();
        for (n, (delay, what)) in (0..).zip(&steps) {
            let event = match what {
                0 => Event::Resched { pcpu: CpuId(n) },
                1 => Event::HostSlow,
                2 => Event::Work { vcpu: Vcpu(n % 5), epoch: n },
                3 => Event::HostTimer { token: u64::from(n) },
                _ => {
                    let expected = model.pop_first();
                    for agenda in &mut agendas {
                        prop_assert_eq!(agenda.next(END), expected.map(|(_, e)| e));
                        if let Some(((at, ..), _)) = expected {
                            prop_assert_eq!(agenda.now(), at);
                        }
                        prop_assert_eq!(agenda.waiting(), model.len());
                    }
                    if expected.is_none() {
                        // The clock has gone on to the end.
                        break;
                    }
                    continue;
                }
            };
            let at = agendas[0].now() + Ns(*delay);
            if let Event::Work { vcpu, .. } = event {
                model.retain(|_, e| !matches!(e, Event::Work { vcpu: v, .. } if *v == vcpu));
            }
            model.insert((at, event.rank(), n), event);
            for agenda in &mut agendas {
                agenda.at(at, event);
            }
        }
    }
}

#[test]
fn nothing_happens_after_the_end_or_in_the_past() {
    let mut agenda = Agenda::new(QueueKind::Wheel);
    agenda.at(Time(10), Event::HostSlow);
    agenda.at(Time(30), Event::HostSlow);
    assert!(agenda.next(Time(20)).is_some());
    agenda.at(Time(5), Event::HostTimer { token: 1 });
    assert_eq!(agenda.next(Time(20)), Some(Event::HostTimer { token: 1 }));
    assert_eq!(agenda.now(), Time(10));
    assert_eq!(agenda.next(Time(20)), None);
    assert_eq!(agenda.now(), Time(20));
    assert_eq!(
        agenda.next(Time(40)),
        Some(Event::HostSlow),
        "nothing is lost at an end"
    );
    assert_eq!(agenda.now(), Time(30));
}
