// SPDX-License-Identifier: Apache-2.0 OR MIT

use proptest::prelude::*;

use super::*;

fn event(at: u64, cpu: u32, what: What) -> TaskEvent {
    TaskEvent {
        at: Time(at),
        cpu,
        what,
    }
}

fn gaps(of: &[&[(u64, u64)]]) -> Gaps {
    let cpu = |gaps: &&[(u64, u64)]| gaps.iter().map(|(a, b)| (Time(*a), Time(*b))).collect();
    Gaps(of.iter().map(cpu).collect())
}

fn text(events: &[TaskEvent], gaps: &Gaps, from: u64, to: u64) -> String {
    let got = spells(&[events.to_vec()], gaps, Time(from), Time(to));
    got[0].as_ref().unwrap().to_string()
}

/// One request on a vCPU that stays on, worked out by hand.
#[test]
fn a_request_in_peace() {
    let events = [
        event(0, 0, What::In),
        event(10, 0, What::Io),
        event(110, 0, What::Waking),
        event(130, 0, What::In),
        event(140, 0, What::Io),
    ];
    assert_eq!(
        text(&events, &gaps(&[&[]]), 0, 150),
        "R0:10 D0:100 Q0:20 R0:10 D0:10"
    );
}

/// The device takes 100. The vCPU is off from 230 to 500: the second request is
/// done at 310 and waits for it.
#[test]
fn a_completion_waits_for_its_vcpu() {
    let events = [
        event(0, 0, What::In),
        event(10, 0, What::Io),
        event(110, 0, What::Waking),
        event(110, 0, What::In),
        event(210, 0, What::Io),
        event(505, 0, What::Waking),
        event(510, 0, What::In),
    ];
    assert_eq!(
        text(&events, &gaps(&[&[(230, 500)]]), 0, 520),
        "R0:10 D0:100 R0:100 D0:100 P0:190 D0:5 Q0:5 R0:10"
    );
}

/// Twice it waits on vCPU 0, which is on; its completion arrives on vCPU 1, which is
/// [`OFF`] the second time. `then` is what follows at 600.
fn two_waits_for_vcpu_1(then: &[TaskEvent]) -> Vec<TaskEvent> {
    let waits = [
        event(0, 0, What::Io),
        event(100, 1, What::Waking),
        event(100, 0, What::In),
        event(200, 0, What::Io),
        event(600, 1, What::Waking),
    ];
    [&waits, then].concat()
}
const OFF: &[&[(u64, u64)]] = &[&[], &[(250, 600)]];

#[test]
fn the_vcpu_that_wakes_is_the_one_that_counts() {
    let events = two_waits_for_vcpu_1(&[event(610, 0, What::In)]);
    assert_eq!(
        text(&events, &gaps(OFF), 0, 620),
        "D0:100 R0:100 D0:100 P1:300 Q0:10 R0:10"
    );
}

/// While it waits for vCPU 1 it is on 0; then it is moved.
#[test]
fn where_a_thread_was_is_not_where_its_completion_waits() {
    let events = two_waits_for_vcpu_1(&[event(600, 1, What::Moved), event(610, 1, What::In)]);
    let got = spells(&[events], &gaps(OFF), Time(0), Time(800));
    let time = sum(got.iter().flatten());
    assert_eq!(time.pending, Ns(300));
    assert_eq!(time.by_vcpu, [Ns(600), Ns(200)]);
    assert_eq!(time.share_on(1), Some(0.25));
    assert_eq!(IoTime::default().share_on(1), None);
}

#[test]
fn queued_and_current_on_a_vcpu_that_is_off() {
    let events = [
        event(0, 0, What::In),
        // Off from 50 to 90 while current, from 120 to 180 while queued; moved to
        // vCPU 1 at 150.
        event(100, 0, What::Ready),
        event(150, 1, What::Moved),
        event(170, 1, What::In),
    ];
    assert_eq!(
        text(&events, &gaps(&[&[(50, 90), (120, 180)], &[]]), 0, 200),
        "R0:50 C0:40 R0:10 Q0:20 O0:30 Q1:20 R1:30"
    );
}

#[test]
fn a_sleep_that_is_no_io_is_nobodys_loss() {
    let events = [
        event(0, 0, What::Sleep),
        event(100, 0, What::Waking),
        event(100, 0, What::In),
    ];
    assert_eq!(text(&events, &gaps(&[&[(20, 80)]]), 0, 110), "S0:100 R0:10");
}

/// The waker's stamp is before the sleeper's, as it can be on two vCPUs.
#[test]
fn a_wake_up_that_overtakes_the_sleep() {
    let events = [
        event(0, 0, What::In),
        event(9, 1, What::Waking),
        event(10, 0, What::Io),
        event(30, 0, What::In),
    ];
    assert_eq!(text(&events, &gaps(&[&[]]), 0, 40), "R0:10 Q0:20 R0:10");
}

#[test]
fn the_time_before_the_first_event_follows_from_it() {
    let begin = |what| text(&[event(50, 0, what)], &gaps(&[&[]]), 0, 60);
    assert_eq!(begin(What::In), "Q0:50 R0:10");
    assert_eq!(begin(What::Ready), "R0:50 Q0:10");
    assert_eq!(begin(What::Waking), "D0:50 Q0:10");
    assert_eq!(begin(What::Io), "R0:50 D0:10");
}

#[test]
fn events_before_the_window_only_say_how_it_begins() {
    let events = [
        event(0, 0, What::In),
        event(10, 0, What::Io),
        event(110, 0, What::Waking),
    ];
    // The device time is 100 and counts from 10, not from the window's begin.
    assert_eq!(text(&events, &gaps(&[&[]]), 60, 120), "D0:50 Q0:10");
    let disturbed = gaps(&[&[(20, 110)]]);
    // Disturbed and the only one: its own length is the device time.
    assert_eq!(text(&events, &disturbed, 60, 120), "D0:50 Q0:10");
}

#[test]
fn a_thread_without_events_is_not_made_up() {
    let got = spells(&[Vec::new()], &Gaps::default(), Time(0), Time(100));
    assert_eq!(got, [None]);
    assert_eq!(sum(got.iter().flatten()), IoTime::default());
}

#[test]
fn a_part_is_cut_at_both_ends() {
    let spells: Spells = "R0:10 D0:100 Q0:20 R1:10".parse().unwrap();
    assert_eq!(part(&spells, Ns(50), Ns(120)).to_string(), "D0:60 Q0:10");
    assert_eq!(part(&spells, Ns(0), Ns(140)), spells);
}

fn any_events() -> impl Strategy<Value = Vec<TaskEvent>> {
    let what = prop_oneof![
        Just(What::In),
        Just(What::Ready),
        Just(What::Io),
        Just(What::Sleep),
        Just(What::Waking),
        Just(What::Moved)
    ];
    proptest::collection::vec((0u64..50, 0u32..3, what), 1..60).prop_map(|steps| {
        let mut at = 0;
        steps
            .into_iter()
            .map(|(step, cpu, what)| {
                at += step;
                event(at, cpu, what)
            })
            .collect()
    })
}

fn any_gaps() -> impl Strategy<Value = Gaps> {
    let one = proptest::collection::vec((1u64..200, 1u64..200), 0..10).prop_map(|pairs| {
        let mut at = 0;
        pairs
            .into_iter()
            .map(|(on, off)| {
                at += on + off;
                (Time(at - off), Time(at))
            })
            .collect()
    });
    proptest::collection::vec(one, 0..4).prop_map(Gaps)
}

proptest! {
    /// Whatever is recorded, even nonsense: no time is lost or invented.
    #[test]
    fn the_parts_are_the_whole(
        threads in proptest::collection::vec(any_events(), 1..4),
        gaps in any_gaps(),
        from in 0u64..500,
        length in 1u64..2000,
    ) {
        let got = spells(&threads, &gaps, Time(from), Time(from + length));
        for spells in got.iter().flatten() {
            let time = sum([spells]);
            prop_assert_eq!(time.total(), Ns(length));
            prop_assert_eq!(time.by_vcpu.iter().copied().sum::<Ns>(), Ns(length));
        }
        prop_assert_eq!(sum(got.iter().flatten()).threads as usize, threads.len());
    }

    /// Without gaps nothing is ever on a descheduled vCPU.
    #[test]
    fn without_gaps_nothing_waits_for_them(events in any_events()) {
        let got = spells(&[events], &Gaps::default(), Time(0), Time(3000));
        let time = sum(got.iter().flatten());
        prop_assert_eq!(time.pending + time.queued_off + time.current_off, Ns::ZERO);
    }
}
