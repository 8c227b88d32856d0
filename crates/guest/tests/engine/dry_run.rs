// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A dry run moves nothing and says what it would have saved.

use guest::settings::Settings;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

use crate::Bed;
use crate::SECOND;
use crate::bed::CPUS;
use crate::bed::becomes;
use crate::bed::eventually;
use crate::bed::moves;
use crate::io_bound;
use crate::io_bound_for_the_engine;

#[test]
fn root_a_dry_run_moves_nothing_and_says_what_it_would_have_saved() {
    let bed = Bed::new();
    let subject = io_bound();
    let state = || (subject.mask(), subject.scheduling());
    let before = state();
    let engine = bed.engine(Settings {
        dry_run: true,
        ..bed.settings()
    });
    let good = becomes(15 * SECOND, || {
        assert_eq!(state(), before, "changed by a dry run");
        let report = engine.report();
        moves(&report) >= 100 && report.io_inactivity_ns > Ns::from_ms(500)
    });
    let report = engine.report();
    println!(
        "{:?}, would have saved {} of {}",
        report.moves, report.would_have_saved_ns, report.io_inactivity_ns
    );
    assert!(good, "{report:#?}");
    assert!(report.dry_run && io_bound_for_the_engine(&report, &subject));
    assert!(report.would_have_saved_ns > Ns::ZERO, "{report:#?}");
    // It cannot save what was not lost.
    assert!(
        report.would_have_saved_ns <= report.io_inactivity_ns,
        "{report:#?}"
    );
    let summary = engine.stop();
    assert_eq!(state(), before);
    assert_eq!((summary.failed, summary.foreign), (0, 0), "{summary}");
    assert!(bed.journal_is_empty());
}

#[test]
fn root_an_owner_is_noticed_where_nothing_moves() {
    let bed = Bed::new();
    let subject = io_bound();
    let engine = bed.engine(Settings {
        dry_run: true,
        ..bed.settings()
    });
    let held = || io_bound_for_the_engine(&engine.report(), &subject);
    eventually(15 * SECOND, "held", held);
    let here = CpuSet::only(VcpuId(0));
    assert_ne!(here, CpuSet::first(CPUS));
    subject.set_mask(&here);
    // No move will find out: only a look does.
    eventually(5 * SECOND, "let go", || !held());
    engine.stop();
    assert_eq!(subject.mask(), here);
    assert!(bed.journal_is_empty());
}
