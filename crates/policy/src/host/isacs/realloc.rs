// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reallocation inside algorithm 1: equations (2), (3), (4) and concealing.

use units::Ns;

use super::Equation2;
use super::RunQ;
use super::Settings;
use super::Vcpu;
use crate::host::credit::Credit;
use crate::host::credit::ffi;

/// What a reallocation came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Sum of all IVCredits: IOload of the queue.
    pub ivcredit: Ns,
    /// vCPUs with an IVCredit: k of equation (3) (I10).
    pub nr_io: u32,
    /// Members of the CPU-BOOST group: j of equation (4).
    pub group: u32,
}

/// Gives all members of `queue` new credits, forms the CPU-BOOST group, leaves
/// the CPU-BOOST state and starts a new measuring period (I3). `elapsed` is the
/// time since the last reallocation. Algorithm 2 is to be called next (A5).
pub fn reallocate(
    queue: &mut RunQ,
    table: &mut [Vcpu],
    elapsed: Ns,
    settings: &Settings,
) -> Totals {
    queue.members.retain(|&v| v < table.len());
    let mut totals = Totals::default();
    let product = product(queue, table, settings);
    let consumed: Ns = queue.members.iter().map(|&v| table[v].consumed).sum();

    queue.cpu_boost = false;
    queue.io_events = 0;
    for &position in &queue.members {
        let vcpu = &mut table[position];
        queue.io_events = queue.io_events.saturating_add(vcpu.events.total);
        vcpu.ivcredit = Ns(ffi::policy_isacs_ivcredit(
            vcpu.events.strength(elapsed, settings).as_ns(),
            vcpu.consumed.as_ns(),
            consumed.as_ns(),
            product,
        ));
        let debt = debt(vcpu, settings);
        vcpu.credit = Credit(ffi::policy_isacs_credit(
            settings.default_credit.as_ns(),
            vcpu.ivcredit.as_ns(),
        ))
        .burn(debt);
        vcpu.endcredit = Credit::of(vcpu.ivcredit);
        totals.ivcredit += vcpu.ivcredit;
        totals.nr_io += u32::from(vcpu.ivcredit > Ns::ZERO);
    }
    queue.io_load = totals.ivcredit;
    form_group(queue, table, &mut totals, settings);
    for &position in &queue.members {
        let vcpu = &mut table[position];
        vcpu.consumed = Ns::ZERO;
        vcpu.events.restart();
    }
    totals
}

/// What a vCPU used beyond its limit, if that is carried over.
fn debt(vcpu: &Vcpu, settings: &Settings) -> Ns {
    if !settings.keeps_debt {
        return Ns::ZERO;
    }
    Ns(ffi::policy_isacs_debt(vcpu.credit.0, vcpu.endcredit.0))
}

/// Equations (3) and (4). With `one_pass` (A4) a member's CVCredit is computed
/// with the group as large as it is when it joins.
fn form_group(queue: &RunQ, table: &mut [Vcpu], totals: &mut Totals, settings: &Settings) {
    let cvcredit = |group: u32, consumed: Ns| {
        Credit::of(Ns(ffi::policy_isacs_cvcredit(
            totals.ivcredit.as_ns(),
            group,
            consumed.as_ns(),
            settings.default_credit.as_ns(),
        )))
    };
    let mut group = 0;
    for &position in &queue.members {
        let vcpu = &mut table[position];
        vcpu.cvcredit = Credit::ZERO;
        vcpu.in_group = ffi::policy_isacs_joins_boost(
            totals.ivcredit.as_ns(),
            totals.nr_io,
            vcpu.ivcredit.as_ns(),
            settings.boost_unit.as_ns(),
        ) != 0;
        if vcpu.in_group {
            group += 1;
            vcpu.cvcredit = cvcredit(group, vcpu.consumed);
        }
    }
    if !settings.one_pass {
        for &position in &queue.members {
            let vcpu = &mut table[position];
            if vcpu.in_group {
                vcpu.cvcredit = cvcredit(group, vcpu.consumed);
            }
        }
    }
    totals.group = group;
}

/// prod(cc_i) of equation (2) as printed, in milliseconds; 1 for our reading.
fn product(queue: &RunQ, table: &[Vcpu], settings: &Settings) -> u64 {
    match settings.equation_2 {
        Equation2::Share => 1,
        Equation2::AsPrinted => queue
            .members
            .iter()
            .map(|&v| table[v].consumed.as_ns() / 1_000_000)
            .fold(1, u64::saturating_mul),
    }
}
