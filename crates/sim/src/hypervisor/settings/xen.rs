// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of Credit1, Credit2, ISACS, iSche and vSlicer.

use std::ops::RangeInclusive;

use policy::host::credit::Weight;
use policy::host::credit::credit1;
use policy::host::credit::credit1::Charging;
use policy::host::credit::credit1::IdleTakes;
use policy::host::credit::credit2;
use policy::host::credit::credit2::Reset;
use policy::host::isacs;
use policy::host::isacs::Choice;
use policy::host::isacs::EndTest;
use policy::host::isacs::Equation2;
use policy::host::isacs::WakeInBoost;
use policy::host::ische;
use policy::host::ische::IdleIoCore;
use policy::host::ische::classify;
use policy::host::vslicer;
use units::Ns;
use units::Permille;

use super::super::Credit2Settings;
use super::super::IsacsSettings;
use super::super::credit1::TICK;
use super::field::Fields;
use super::lengths;
use super::slices;

/// What `reference` may be: a weight in Xen's units.
const WEIGHTS: RangeInclusive<u64> = 1..=65_536;
/// More pCPUs than any machine here has are all of them.
const PCPUS: RangeInclusive<u64> = 1..=1024;

fn weight(fields: &mut Fields<'_>, name: &'static str, source: &'static str, place: &mut Weight) {
    let mut number = place.get();
    fields.number(name, source, WEIGHTS, &mut number);
    *place = Weight::new(number);
}

/// Of Credit1; under iSche slices belong to cores.
pub(super) fn credit1(fields: &mut Fields<'_>, settings: &mut credit1::Settings, own_slice: bool) {
    if own_slice {
        fields.duration("slice", "K6", slices(), &mut settings.slice);
    }
    fields.duration("boost_slice", "K4", slices(), &mut settings.boost_slice);
    fields.duration("refill_period", "K5", slices(), &mut settings.refill_period);
    fields.period(
        "credit_limit",
        "open",
        lengths(),
        &mut settings.credit_limit,
    );
    fields.switch("zero_is_under", "K3, open", &mut settings.zero_is_under);
    fields.switch("boost_needs_under", "", &mut settings.boost_needs_under);
    let sampled = Charging::Sampled { tick: TICK };
    let words = [("exact", Charging::Exact), ("sampled", sampled)];
    fields.word("charging", "K5", &words, &mut settings.charging);
    let words = [("under", IdleTakes::Under), ("anybody", IdleTakes::Anybody)];
    fields.word("idle_takes", "K7", &words, &mut settings.idle_takes);
}

/// What Xen 4.12 adds to the text, all of it or nothing.
fn as_xen_4_12(fields: &mut Fields<'_>, xen: &mut Option<credit2::Xen>) {
    let mut on = xen.is_some();
    fields.switch("as_xen_4_12", "sched_credit2.c", &mut on);
    *xen = on.then(|| xen.unwrap_or_default());
}

pub(super) fn credit2(fields: &mut Fields<'_>, settings: &mut Credit2Settings) {
    let rules: &mut credit2::Settings = &mut settings.rules;
    fields.duration("slice", "K13", slices(), &mut rules.slice);
    fields.duration(
        "default_credit",
        "K12, open",
        lengths(),
        &mut rules.default_credit,
    );
    let words = [
        ("replace", Reset::Replace),
        ("add-to-debt", Reset::AddToDebt),
    ];
    fields.word("reset", "K12, open", &words, &mut rules.reset);
    fields.switch("reset_at_zero", "K12", &mut rules.reset_at_zero);
    fields.switch(
        "slice_ends_with_credit",
        "",
        &mut rules.slice_ends_with_credit,
    );
    weight(fields, "reference_weight", "K11", &mut rules.reference);
    as_xen_4_12(fields, &mut settings.xen);
    fields.number(
        "pcpus_per_queue",
        "open",
        PCPUS,
        &mut settings.pcpus_per_queue,
    );
    fields.period(
        "balance_period",
        "K14, open",
        slices(),
        &mut settings.balance_period,
    );
    fields.switch("idle_takes", "open", &mut settings.idle_takes);
}

pub(super) fn isacs(fields: &mut Fields<'_>, settings: &mut IsacsSettings) {
    let rules: &mut isacs::Settings = &mut settings.rules;
    fields.duration("slice", "K13", slices(), &mut rules.slice);
    fields.duration(
        "default_credit",
        "open",
        lengths(),
        &mut rules.default_credit,
    );
    weight(fields, "reference_weight", "K11", &mut rules.reference);
    fields.duration("cutoff", "I6", lengths(), &mut rules.cutoff);
    fields.switch(
        "late_events_count",
        "I6, ambiguous",
        &mut rules.late_events_count,
    );
    let words = [
        ("share", Equation2::Share),
        ("as-printed", Equation2::AsPrinted),
    ];
    fields.word("equation_2", "I8", &words, &mut rules.equation_2);
    fields.duration(
        "boost_unit",
        "I12, open",
        Ns(1)..=Ns::from_secs(1),
        &mut rules.boost_unit,
    );
    fields.switch(
        "spent_strictly_below",
        "I17",
        &mut rules.spent_strictly_below,
    );
    fields.switch(
        "boost_strictly_below",
        "A1",
        &mut rules.boost_strictly_below,
    );
    fields.switch("fall_through_burns", "A2", &mut rules.fall_through_burns);
    fields.switch("keeps_old_choice", "A3", &mut rules.keeps_old_choice);
    fields.switch("one_pass", "A4", &mut rules.one_pass);
    let words = [
        ("waits", WakeInBoost::Waits),
        ("preempts", WakeInBoost::Preempts),
    ];
    fields.word("wake_in_boost", "A6", &words, &mut rules.wake_in_boost);
    fields.switch(
        "boost_counts_as_consumed",
        "open",
        &mut rules.boost_counts_as_consumed,
    );
    let words = [("last", Choice::Last), ("best", Choice::Best)];
    fields.word("choice", "A7", &words, &mut rules.choice);
    let words = [
        ("highest", EndTest::Highest),
        ("all-spent", EndTest::AllSpent),
    ];
    fields.word("end_test", "I17, I19", &words, &mut rules.end_test);
    fields.switch("limit_strength", "", &mut rules.limit_strength);
    fields.switch(
        "slice_ends_with_credit",
        "",
        &mut rules.slice_ends_with_credit,
    );
    fields.switch("keeps_debt", "", &mut rules.keeps_debt);
    fields.number(
        "pcpus_per_queue",
        "open",
        PCPUS,
        &mut settings.pcpus_per_queue,
    );
    as_xen_4_12(fields, &mut settings.xen);
    fields.switch("io_balance", "A5", &mut settings.io_balance);
    fields.switch("moves_any", "algorithm 2", &mut settings.moves_any);
    fields.period(
        "balance_period",
        "A8",
        slices(),
        &mut settings.balance_period,
    );
    fields.switch("idle_takes", "open", &mut settings.idle_takes);
}

pub(super) fn ische(
    fields: &mut Fields<'_>,
    settings: &mut ische::Settings,
    automatic: &mut Option<classify::Settings>,
    within_share: &mut bool,
    seed: &mut u64,
) {
    fields.number(
        "general_cores",
        "S2, S8",
        PCPUS,
        &mut settings.general_cores,
    );
    fields.number("labels_seed", "S2", 0..=u64::from(u32::MAX), seed);
    fields.duration("general_slice", "S6", slices(), &mut settings.general_slice);
    fields.duration("io_slice", "S6", slices(), &mut settings.io_slice);
    let words = [
        ("idles", IdleIoCore::Idles),
        ("takes-cpu-vms", IdleIoCore::TakesCpuVms),
    ];
    fields.word("idle_io_core", "S8", &words, &mut settings.idle_io_core);
    let default = classify::Settings::default();
    fields.part("classify", "S4", automatic, default, |fields, own| {
        fields.number(
            "classify_events_per_s",
            "open",
            1..=1_000_000,
            &mut own.events_per_s,
        );
        permille(
            fields,
            "classify_cpu_max_permille",
            "open",
            &mut own.cpu_max,
        );
        fields.number("classify_periods", "open", 1..=1000, &mut own.periods);
    });
    fields.switch("within_share", "", within_share);
    credit1(fields, &mut settings.credit, false);
}

/// A part of something in thousandths.
pub(super) fn permille(
    fields: &mut Fields<'_>,
    name: &'static str,
    source: &'static str,
    place: &mut Permille,
) {
    let mut number = place.get();
    fields.number(name, source, 0..=1000, &mut number);
    *place = Permille::new(number);
}

pub(super) fn vslicer(fields: &mut Fields<'_>, settings: &mut vslicer::Settings) {
    fields.duration("slice", "SL7, K6", slices(), &mut settings.slice);
    fields.duration("micro", "SL7", lengths(), &mut settings.micro);
}
