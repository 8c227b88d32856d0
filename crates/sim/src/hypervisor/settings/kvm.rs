// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of CFS, EEVDF, HaltPoll, vSMT-IO, coscheduling and JUPITER.

use std::ops::RangeInclusive;

use policy::host::adjuster;
use policy::host::adjuster::Middle;
use policy::host::cosched::gang::Members;
use policy::host::halt;
use policy::host::halt::Method;
use policy::host::jupiter::dasl;
use policy::host::jupiter::dasl::IdleWithSlice;
use policy::host::jupiter::dats;
use policy::host::jupiter::disable;
use policy::host::jupiter::elb;
use policy::host::jupiter::elb::Above;
use policy::host::jupiter::rcr;
use policy::host::jupiter::rcr::Half;
use policy::host::ltcr;
use policy::host::ltcr::EmptyGroup;
use policy::host::rass;

use super::super::CfsSettings;
use super::super::CoschedSettings;
use super::super::EevdfSettings;
use super::super::JupiterSettings;
use super::super::Mode;
use super::super::VsmtioSettings;
use super::field::Fields;
use super::lengths;
use super::slices;
use super::xen::permille;

/// Thousandths of something that may be several times as large.
const TIMES: RangeInclusive<u64> = 0..=100_000;
/// How many of something: more makes no difference.
const COUNT: RangeInclusive<u64> = 0..=1000;

pub(super) fn cfs(fields: &mut Fields<'_>, settings: &mut CfsSettings) {
    fields.duration("latency", "C7, C8", slices(), &mut settings.latency);
    fields.duration(
        "min_granularity",
        "C8",
        lengths(),
        &mut settings.min_granularity,
    );
    fields.duration(
        "wakeup_granularity",
        "C9, C10",
        lengths(),
        &mut settings.wakeup_granularity,
    );
    fields.switch("sleeper_credit", "C11", &mut settings.sleeper_credit);
    fields.period("tick", "Linux", lengths(), &mut settings.tick);
    fields.period(
        "balance_period",
        "open",
        slices(),
        &mut settings.balance_period,
    );
    let scan = 1..=u64::from(u32::MAX);
    fields.number("idle_scan", "Linux", scan, &mut settings.idle_scan);
    fields.period(
        "newidle_after",
        "Linux",
        lengths(),
        &mut settings.newidle_after,
    );
}

pub(super) fn eevdf(fields: &mut Fields<'_>, settings: &mut EevdfSettings) {
    fields.duration("slice", "Linux", slices(), &mut settings.slice);
    fields.duration_or_none("io_slice", "Linux", lengths(), &mut settings.io_slice);
    fields.switch("run_to_parity", "Linux", &mut settings.run_to_parity);
}

/// How vCPUs wait, above CFS.
pub(super) fn waits(
    fields: &mut Fields<'_>,
    below: &mut CfsSettings,
    settings: &mut halt::Settings,
) {
    cfs(fields, below);
    match settings.method {
        Method::Blocking | Method::Polling => return,
        Method::HaltPoll => {
            fields.duration("poll_max", "B4, open", lengths(), &mut settings.max);
        }
        Method::EnhancedHaltPoll => {
            fields.duration(
                "poll_max",
                "B5, open",
                lengths(),
                &mut settings.enhanced_max,
            );
        }
    }
    fields.duration("poll_start", "KVM", lengths(), &mut settings.grow_start);
    fields.number("poll_grow", "KVM", COUNT, &mut settings.grow);
    fields.number("poll_shrink", "KVM", COUNT, &mut settings.shrink);
    fields.switch("poll_adapts", "B4, B5", &mut settings.adapts);
    fields.switch("poll_until_it_runs", "KVM", &mut settings.until_it_runs);
}

pub(super) fn vsmtio(fields: &mut Fields<'_>, settings: &mut VsmtioSettings) {
    fields.duration("slice", "open", slices(), &mut settings.slice);
    fields.duration(
        "wakeup_granularity",
        "C9",
        lengths(),
        &mut settings.wakeup_granularity,
    );
    fields.part(
        "ltcr",
        "M8 to M12",
        &mut settings.ltcr,
        ltcr::Settings::default(),
        |fields, own| {
            fields.duration("ltcr_initial", "M9, open", lengths(), &mut own.initial);
            fields.duration("ltcr_min", "M9", lengths(), &mut own.min);
            fields.duration("ltcr_max", "M4, open", lengths(), &mut own.max);
            fields.duration("ltcr_period", "M10, open", slices(), &mut own.period);
            fields.number("ltcr_step_permille", "M10", 0..=999, &mut own.step_permille);
            fields.number("ltcr_pass_ppm", "M12", 0..=10_000_000, &mut own.pass_ppm);
            let words = [
                ("ignored", EmptyGroup::Ignored),
                ("fails", EmptyGroup::Fails),
            ];
            fields.word("ltcr_empty", "M12", &words, &mut own.empty);
        },
    );
    fields.part(
        "rass",
        "M13 to M19",
        &mut settings.rass,
        rass::Settings::default(),
        |fields, own| {
            // Not `candidates` and `symbiosis` (M18, M19): a scenario's tasks do not say what
            // their cycles go into, so the first candidate is the partner.
            let compensation = &mut own.compensation_permille;
            fields.number("rass_compensation_permille", "M17", TIMES, compensation);
        },
    );
    fields.switch("yields", "M16", &mut settings.yields);
    fields.switch("groups", "open", &mut settings.groups);
    fields.part(
        "adjuster",
        "M22, M23",
        &mut settings.adjuster,
        adjuster::Settings::default(),
        |fields, own| {
            let parts = 0..=1000;
            fields.number(
                "adjuster_min_deviation_permille",
                "M22",
                parts.clone(),
                &mut own.min_deviation,
            );
            let words = [("upper", Middle::Upper), ("lower", Middle::Lower)];
            fields.word("adjuster_middle", "M23", &words, &mut own.middle);
            fields.number(
                "adjuster_min_distance_permille",
                "open",
                parts,
                &mut own.min_distance,
            );
        },
    );
    fields.number("adjust_every", "open", 1..=1000, &mut settings.adjust_every);
}

pub(super) fn cosched(fields: &mut Fields<'_>, settings: &mut CoschedSettings) {
    fields.duration("slice", "O7, open", slices(), &mut settings.slice);
    // Gangs are not preempted by who wakes.
    if !matches!(settings.mode, Mode::Gang(_)) {
        fields.duration(
            "wakeup_granularity",
            "C9",
            lengths(),
            &mut settings.wakeup_granularity,
        );
    }
    match &mut settings.mode {
        Mode::Balance => {}
        Mode::Gang(own) => {
            fields.number("relax_permille", "O5", 0..=1000, &mut own.relax_permille);
            let words = [("ready", Members::Ready), ("all", Members::All)];
            fields.word("members", "O3", &words, &mut own.members);
            fields.duration("max_wait", "open", lengths(), &mut own.max_wait);
            fields.duration("gang_slice", "O7, open", slices(), &mut own.slice);
        }
        Mode::Demand(own) => {
            fields.duration("window", "O4, open", lengths(), &mut own.window);
            fields.switch("sender", "O4, open", &mut own.sender);
            fields.duration("urgent_slice", "O4, open", lengths(), &mut own.urgent_slice);
            fields.duration_or_none("allowance", "open", lengths(), &mut own.allowance);
        }
    }
}

pub(super) fn jupiter(fields: &mut Fields<'_>, settings: &mut JupiterSettings) {
    fields.duration("slice", "open", slices(), &mut settings.slice);
    fields.duration(
        "wakeup_granularity",
        "C9",
        lengths(),
        &mut settings.wakeup_granularity,
    );
    fields.duration_or_none("bucket", "O6", slices(), &mut settings.bucket);
    fields.switch("by_weight", "J3, open", &mut settings.by_weight);
    fields.switch("stacks_halted", "J15, open", &mut settings.stacks_halted);
    fields.part(
        "dats",
        "J7, J8",
        &mut settings.dats,
        dats::Settings::default(),
        |fields, own| {
            fields.number("dats_step_permille", "J7", TIMES, &mut own.step_permille);
            fields.number(
                "dats_min_permille",
                "J8, open",
                0..=1000,
                &mut own.min_permille,
            );
        },
    );
    fields.part(
        "dasl",
        "J10, J11",
        &mut settings.dasl,
        dasl::Settings::default(),
        |fields, own| {
            fields.number("dasl_down_permille", "J10", 0..=999, &mut own.down_permille);
            fields.number("dasl_up_permille", "J10, open", TIMES, &mut own.up_permille);
            fields.duration("dasl_min", "J10, open", lengths(), &mut own.min);
            fields.duration("dasl_max", "open", lengths(), &mut own.max);
            fields.duration("dasl_initial", "J10, open", lengths(), &mut own.initial);
            fields.switch(
                "dasl_down_without_slice",
                "J10",
                &mut own.down_without_slice,
            );
            let words = [
                ("keeps", IdleWithSlice::Keeps),
                ("increases", IdleWithSlice::Increases),
            ];
            fields.word(
                "dasl_idle_with_slice",
                "J10, open",
                &words,
                &mut own.idle_with_slice,
            );
        },
    );
    fields.part(
        "rcr",
        "J12 to J15",
        &mut settings.rcr,
        rcr::Settings::default(),
        |fields, own| {
            fields.number(
                "rcr_overload_permille",
                "J12",
                TIMES,
                &mut own.overload_permille,
            );
            fields.number(
                "rcr_conflict_permille",
                "J13",
                TIMES,
                &mut own.conflict_permille,
            );
            fields.number(
                "rcr_min_conflicts",
                "J13, open",
                COUNT,
                &mut own.min_conflicts,
            );
            fields.duration(
                "rcr_low_latency",
                "J13, open",
                lengths(),
                &mut own.low_latency,
            );
            let words = [("down", Half::Down), ("up", Half::Up)];
            fields.word("rcr_half", "J13, open", &words, &mut own.half);
            fields.switch("rcr_keep_apart", "J15, open", &mut own.keep_apart);
            fields.number("rcr_max_swaps", "J12, open", COUNT, &mut own.max_swaps);
        },
    );
    fields.part(
        "elb",
        "J16",
        &mut settings.elb,
        elb::Settings::default(),
        |fields, own| {
            permille(
                fields,
                "elb_max_degradation_permille",
                "J16",
                &mut own.max_degradation,
            );
            permille(fields, "elb_step_permille", "J16, open", &mut own.step);
            permille(
                fields,
                "elb_max_loan_permille",
                "J16, open",
                &mut own.max_loan,
            );
            let words = [("stays", Above::Stays), ("shrinks", Above::Shrinks)];
            fields.word("elb_above", "J16, open", &words, &mut own.above);
        },
    );
    fields.part(
        "disable",
        "J17, J18",
        &mut settings.disable,
        disable::Settings::default(),
        |fields, own| {
            fields.number("disable_misses", "J18", 1..=1000, &mut own.misses);
            fields.number("disable_hits", "J18", 1..=1000, &mut own.hits);
            fields.number(
                "disable_tolerance_permille",
                "J17, open",
                0..=1000,
                &mut own.tolerance_permille,
            );
            fields.number(
                "disable_right_permille",
                "J17, open",
                0..=1000,
                &mut own.right_permille,
            );
        },
    );
}
