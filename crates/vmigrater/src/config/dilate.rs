// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--dilation N`: the daemon on a machine that runs in slow motion.
//!
//! # Problem
//! In a guest of an emulated host everything takes some twenty times as long: slices are made
//! so on purpose, and wake-ups, moves and requests are by themselves. A daemon with the times
//! of a real machine claims a task for less than a wake-up takes there, and no order is carried
//! out before it has expired.
//!
//! # Approach
//! Every duration that can be set is multiplied, after the file has been read, whoever set it;
//! and those that nobody can set are, where they are used (`Settings::here`).
//!
//! # Limits
//! What the guest's own kernel does by the clock is as on a real machine: its tick and its
//! slices, so [`AS_IT_IS`] is not multiplied. Nor are counts and the programs' own constants:
//! a wait that ends 1 ms after its vCPU was back, and what asks for the detector.

use guest::settings::Settings;
use policy::guest::placement::Margin;

use super::knobs::Field;
use super::knobs::KNOBS;

/// Competes with slices that the guest's kernel gives, and those are not dilated.
const AS_IT_IS: &str = "wakeup.slice";

/// Makes everything that takes time take `by` times as long.
pub(super) fn dilate(settings: &mut Settings, by: u32) {
    let times = u64::from(by);
    for knob in KNOBS.iter().filter(|knob| knob.key != AS_IT_IS) {
        if let Field::Duration { at, .. } = &knob.field
            && let Some(duration) = at(settings)
        {
            *duration = *duration * times;
        }
    }
    // Those that may also be a word.
    if let Margin::Fixed(margin) = &mut settings.placement.margin {
        *margin = *margin * times;
    }
    let placement = &mut settings.placement;
    for overdue in [
        &mut placement.overdue_after,
        &mut placement.back_overdue_after,
    ] {
        *overdue = overdue.map(|time| time * times);
    }
    settings.dilation = by;
}

#[cfg(test)]
mod tests {
    use super::super::human;
    use super::super::profile::Profile;
    use super::*;

    /// Every knob that is shown as a duration, with its name.
    fn durations(settings: &Settings) -> Vec<(&'static str, u64)> {
        let shown = KNOBS.iter().filter_map(|knob| {
            let value = knob.value(settings)?;
            let ns = human::parse_duration(value.trim_matches('"'))?;
            Some((knob.key, ns.as_ns()))
        });
        shown.collect()
    }

    #[test]
    fn every_duration_of_every_profile_is_dilated_but_the_kernels() {
        for profile in [Profile::Default, Profile::Published] {
            let before = profile.settings();
            let mut after = before.clone();
            dilate(&mut after, 20);
            let expected: Vec<_> = durations(&before)
                .into_iter()
                .map(|(key, ns)| (key, if key == AS_IT_IS { ns } else { 20 * ns }))
                .collect();
            assert!(expected.len() > 15, "{expected:?}");
            assert_eq!(durations(&after), expected);
            assert_eq!(after.dilation, 20);
            // Nothing else has changed.
            dilate(&mut after, 1);
            assert_eq!(after.mode, before.mode);
            assert_eq!(after.wakeup, before.wakeup);
            assert_eq!(after.slice.window, before.slice.window);
        }
    }

    #[test]
    fn a_dilation_of_one_is_a_real_machine() {
        let before = Profile::Default.settings();
        let mut after = before.clone();
        dilate(&mut after, 1);
        assert_eq!(after, before);
    }
}
