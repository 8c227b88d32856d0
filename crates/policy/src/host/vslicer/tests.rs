// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;

use super::*;

fn table(latency_sensitive: &[bool]) -> Vec<Vcpu> {
    latency_sensitive
        .iter()
        .map(|&latency_sensitive| Vcpu {
            latency_sensitive,
            left: Ns::ZERO,
            owed: Ns::ZERO,
        })
        .collect()
}

/// Turns of (vCPU, ms) until `rounds` rounds are over, all always ready.
fn turns(table: &mut [Vcpu], rounds: u64, settings: &Settings) -> Vec<(usize, u64)> {
    let mut round = Round::default();
    let mut seen = Vec::new();
    let mut time = Ns::ZERO;
    while time < settings.slice * (rounds * table.len() as u64) {
        let turn = round.pick(table, |_| true, settings).unwrap();
        assert!(turn.slice > Ns::ZERO);
        round.on_charge(&mut table[turn.vcpu], turn.slice, settings);
        time += turn.slice;
        seen.push((turn.vcpu, turn.slice.as_ns() / 1_000_000));
    }
    seen
}

/// T = 30, micro 10: three turns at 0, 1/3 and 2/3 of a round of 90 ms. The other
/// slices are cut where a turn is due and continued.
#[test]
fn a_round_by_hand() {
    let settings = Settings {
        micro: Ns::from_ms(10),
        ..Settings::default()
    };
    let mut table = table(&[true, false, false]);
    assert_eq!(
        turns(&mut table, 1, &settings),
        [
            (0, 10),
            (1, 20),
            (0, 10),
            (1, 10),
            (2, 10),
            (0, 10),
            (2, 20)
        ]
    );
}

/// Six turns of 5 ms per round instead of one of 30 (SL1), and the longest gap
/// falls from 90 ms to 15 (SL2).
#[test]
fn the_longest_gap_shrinks_by_the_number_of_turns() {
    let settings = Settings::default();
    assert_eq!(settings.turns(), 6);
    let longest_gap = |table: &mut [Vcpu]| {
        let (mut gap, mut longest) = (0, 0);
        for (vcpu, ms) in turns(table, 5, &settings) {
            gap = if vcpu == 0 { 0 } else { gap + ms };
            longest = longest.max(gap);
        }
        longest
    };
    assert_eq!(longest_gap(&mut table(&[true, false, false, false])), 15);
    assert_eq!(longest_gap(&mut table(&[false; 4])), 90);
}

#[test]
fn a_turn_that_was_missed_is_taken_at_the_wake_up() {
    let settings = Settings::default();
    let mut table = table(&[true, false]);
    let mut round = Round::default();
    // It sleeps; the other runs for 4 ms.
    let turn = round.pick(&mut table, |v| v == 1, &settings).unwrap();
    assert_eq!(turn.vcpu, 1);
    round.on_charge(&mut table[1], Ns::from_ms(4), &settings);
    assert!(round.preempts(&table[0], &table[1], 2, &settings));
    let turn = round.pick(&mut table, |_| true, &settings).unwrap();
    assert_eq!((turn.vcpu, turn.slice), (0, Ns::from_ms(5)));
    round.on_charge(&mut table[0], turn.slice, &settings);
    assert!(
        !round.preempts(&table[0], &table[1], 2, &settings),
        "next at 10 ms"
    );
    assert!(!round.preempts(&table[1], &table[0], 2, &settings));
}

#[test]
fn alone_it_runs_on() {
    let settings = Settings::default();
    let mut table = table(&[true, false]);
    let mut round = Round::default();
    for _ in 0..100 {
        let turn = round.pick(&mut table, |v| v == 0, &settings).unwrap();
        assert_eq!(turn.vcpu, 0);
        round.on_charge(&mut table[0], turn.slice, &settings);
    }
    assert_eq!(round.pick(&mut table, |_| false, &settings), None);
    assert_eq!(round.pick(&mut [], |_| true, &settings), None);
}

/// Whose turns last longer than they should pays in the next round, as far as one slice.
#[test]
fn what_a_turn_lasts_too_long_is_owed() {
    let settings = Settings::default();
    let mut table = table(&[false, false]);
    let mut round = Round::default();
    let mut ran = [Ns::ZERO; 2];
    for _ in 0..2000 {
        let turn = round.pick(&mut table, |_| true, &settings).unwrap();
        // The first is off its pCPU half a millisecond late.
        let late = Ns::from_us(if turn.vcpu == 0 { 500 } else { 0 });
        round.on_charge(&mut table[turn.vcpu], turn.slice + late, &settings);
        ran[turn.vcpu] += turn.slice + late;
    }
    let more = ran[0].as_ns().abs_diff(ran[1].as_ns());
    assert!(more <= settings.slice.as_ns(), "{ran:?}");

    // Stalled for a second: it owes a slice, and pays half of one in each round.
    let mut stalled = Vcpu {
        latency_sensitive: false,
        left: Ns::from_ms(10),
        owed: Ns::ZERO,
    };
    round.on_charge(&mut stalled, Ns::from_secs(1), &settings);
    assert_eq!((stalled.left, stalled.owed), (Ns::ZERO, settings.slice));
    let mut table = [stalled];
    let lengths: Vec<u64> = (0..3)
        .map(|_| {
            let turn = round.pick(&mut table, |_| true, &settings).unwrap();
            round.on_charge(&mut table[0], turn.slice, &settings);
            turn.slice.as_ns() / 1_000_000
        })
        .collect();
    assert_eq!(lengths, [15, 15, 30]);
}

proptest! {
    /// All ready all the time: each has exactly T per round, whoever is latency
    /// sensitive.
    #[test]
    fn shares_are_equal(
        class in proptest::collection::vec(any::<bool>(), 1..10), micro_ms in 1u64..40,
    ) {
        let settings = Settings { micro: Ns::from_ms(micro_ms), ..Settings::default() };
        let mut table = table(&class);
        let mut ran = vec![0; class.len()];
        for (vcpu, ms) in turns(&mut table, 3, &settings) {
            ran[vcpu] += ms;
        }
        // Milliseconds are lost where a turn is due at a fraction of one.
        for ran in ran {
            prop_assert!(ran > 90 - 40 && ran <= 90, "{}", ran);
        }
        prop_assert!(table.iter().all(|v| v.left == Ns::ZERO));
    }
}
