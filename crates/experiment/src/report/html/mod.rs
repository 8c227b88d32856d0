// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A result as one HTML file that needs nothing else: no network, no fonts, no
//! script to be read (the script zooms the timelines).
//!
//! `svg` draws; `rates`, `times` and `timeline` are the pictures; this file says
//! what is on the page, and `templates/` how it looks. [`reproduction`] is a page of
//! its own.

mod rates;
pub mod reproduction;
mod svg;
mod timeline;
mod times;

#[cfg(test)]
mod tests;

use askama::Template;

use crate::analysis::Analysis;
use crate::analysis::Completion;
use crate::analysis::LoadTable;
use crate::analysis::analyse;
use crate::report::Columns;
use crate::report::duration;
use crate::report::rate;
use crate::report::ratio;
use crate::result::BASELINES;
use crate::result::RunResult;
use crate::result::TaskState;
use crate::result::Timeline;
use crate::scenario::LoadKind;
use crate::scenario::Scenario;
use crate::scenario::Vm;
use crate::stats::MIN_PAIRS_FOR_VERDICT;

/// The page.
#[derive(Template)]
#[template(path = "report.html")]
struct Page {
    title: String,
    name: String,
    lead: String,
    facts: Vec<(&'static str, String)>,
    warnings: Vec<String>,
    sums: Vec<Sum>,
    loads: Vec<Load>,
    states: Vec<State>,
    any_timeline: bool,
    any_books: bool,
    books_header: [&'static str; 11],
    /// Columns of these that hold words.
    books_words: [usize; 2],
    work_header: [&'static str; 10],
    /// Columns of these that hold words.
    work_words: [usize; 3],
    work_legend: &'static str,
    any_work: bool,
    few: Option<usize>,
}

/// One line of the summary.
struct Sum {
    class: &'static str,
    mark: &'static str,
    arm: String,
    what: String,
    ratio: String,
    verdict: String,
    of_bound: String,
    compute: String,
}

/// One load.
struct Load {
    id: String,
    name: String,
    about: String,
    warnings: Vec<String>,
    rates: String,
    times: String,
    time_rows: Vec<Vec<String>>,
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Columns of these that hold words.
    words: &'static [usize],
    books: Vec<Vec<String>>,
    /// What each VM got done.
    work: Vec<Vec<String>>,
    timelines: Vec<Strips>,
}

/// The timelines of one load at one number of VMs: the same zoom for all.
struct Strips {
    title: String,
    /// Is any vCPU halted in any of them?
    halts: bool,
    /// Arm, what happened in numbers, picture.
    strips: Vec<(String, String, String)>,
}

/// An entry of the legend of states.
struct State {
    letter: char,
    label: &'static str,
    hatched: bool,
}

/// The whole page.
///
/// # Errors
/// Never for the templates of this crate; a formatter that fails is an error.
pub fn page(result: &RunResult) -> Result<String, askama::Error> {
    let analysis = analyse(result);
    let loads: Vec<Load> = analysis
        .loads
        .iter()
        .zip(&result.scenario.loads)
        .enumerate()
        .map(|(n, (table, load))| one_load(n, table, &load.kind, result, &analysis))
        .collect();
    let any_timeline = loads.iter().any(|load| !load.timelines.is_empty());
    let rounds = result.scenario.measure.rounds as usize;
    Page {
        title: result.scenario.title.clone(),
        name: result.scenario.name.clone(),
        lead: lead(result),
        facts: facts(result),
        warnings: result.notices().collect(),
        sums: sums(&analysis, result),
        loads,
        states: TaskState::ALL
            .into_iter()
            .map(|state| State {
                letter: state.letter(),
                label: state.label(),
                hatched: state.is_off(),
            })
            .collect(),
        any_timeline,
        any_books: result.phases.iter().any(|phase| phase.books.is_some()),
        books_header: crate::report::books::HEADER,
        books_words: crate::report::books::WORDS,
        work_header: crate::report::work::HEADER,
        work_words: crate::report::work::WORDS,
        work_legend: crate::report::work::LEGEND,
        any_work: result.phases.iter().any(|phase| !phase.work.is_empty()),
        few: (rounds < MIN_PAIRS_FOR_VERDICT).then_some(rounds),
    }
    .render()
}

fn lead(result: &RunResult) -> String {
    let s = &result.scenario;
    let vms: Vec<String> = s.sharing.vms_per_pcpu.iter().map(u32::to_string).collect();
    let arms: Vec<&str> = s.arms.iter().map(|arm| arm.name.as_str()).collect();
    let compute = match s.compute.threads_per_cpu {
        0 => "no compute beside the I/O".to_owned(),
        1 => "a compute thread on each CPU beside the I/O".to_owned(),
        n => format!("{n} compute threads on each CPU beside the I/O"),
    };
    let machine = match s.vms.first() {
        Some(tested) => own_vms(s, tested),
        None => format!(
            "A VM of {} vCPUs shares each CPU with others: {} VMs per CPU take turns of {}. {}",
            s.topology.cpus,
            vms.join(", "),
            s.sharing.slice,
            capitalised(&compute),
        ),
    };
    format!(
        "{machine}; {} round(s) of {} per arm, arms interleaved: {}.",
        s.measure.rounds,
        s.measure.window,
        arms.join(", ")
    )
}

/// The machine of a scenario that names its VMs.
fn own_vms(scenario: &Scenario, tested: &Vm) -> String {
    let sum = |of: fn(&Vm) -> u32| -> u32 { scenario.vms.iter().map(of).sum() };
    let host = scenario.sim.as_ref().map_or("", |sim| sim.host.as_str());
    format!(
        "{} VM(s) with {} vCPUs in all share {} pCPUs under {host}; {} with {} vCPU(s) is under test",
        sum(|vm| vm.count),
        sum(|vm| vm.count * vm.vcpus),
        scenario.topology.cpus,
        tested.name_of(0),
        tested.vcpus,
    )
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn facts(result: &RunResult) -> Vec<(&'static str, String)> {
    let e = &result.environment;
    // Nothing of a machine is in a simulated result.
    let is_real = e.cpus > 0;
    let mut facts = vec![("Backend", result.backend.clone())];
    if is_real {
        facts.insert(0, ("Measured", e.date.clone()));
        facts.push(("Kernel", format!("Linux {}, {}", e.kernel, e.preemption)));
        facts.push(("Machine", format!("{} x {}", e.cpus, e.cpu_model)));
    }
    if !e.hypervisor.is_empty() {
        facts.push(("Runs on", e.hypervisor.clone()));
    }
    if let Some(dilation) = e.dilation.filter(|dilation| *dilation > 1.01) {
        facts.push((
            "Dilation",
            format!("{dilation:.1}: everything is so much slower"),
        ));
    }
    if let Some(disk) = &e.disk {
        facts.push((
            "Disk",
            format!(
                "{}, {} queue(s), {}, {}",
                disk.name, disk.queues, disk.scheduler, disk.file_system
            ),
        ));
    }
    let tools: Vec<String> = e
        .tools
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    if !tools.is_empty() {
        facts.push(("With", tools.join(", ")));
    }
    if is_real {
        facts.push((
            "Load average before",
            format!("{:.2} on {} CPUs", e.load_average, e.cpus),
        ));
    }
    if let Some(text) = super::disturbance(&result.phases) {
        facts.push(("Disturbed by", text));
    }
    facts
}

fn sums(analysis: &Analysis, result: &RunResult) -> Vec<Sum> {
    let shown = analysis
        .pooled
        .iter()
        .filter(|pool| Some(&pool.arm) != analysis.vanilla.as_ref());
    shown
        .filter_map(|pool| {
            let r = pool.vs_vanilla?;
            let path = if pool.follows_submitter {
                "completions follow the submitter"
            } else {
                "completions on one CPU"
            };
            Some(Sum {
                class: rates::class(r.verdict()),
                mark: rates::mark(r.verdict()),
                arm: pool.arm.clone(),
                what: format!(
                    "{}, {path}, {} pairs",
                    result.scenario.sharing_of(pool.vms_per_pcpu),
                    r.n
                ),
                ratio: ratio(&r),
                verdict: r.verdict().to_string(),
                of_bound: pool
                    .vs_bound
                    .map_or("-".to_owned(), |s| format!("{:.2}", s.median)),
                compute: pool
                    .compute_at_equal_io
                    .map_or("-".to_owned(), |r| ratio(&r)),
            })
        })
        .collect()
}

fn one_load(
    n: usize,
    table: &LoadTable,
    kind: &LoadKind,
    result: &RunResult,
    analysis: &Analysis,
) -> Load {
    let vanilla = analysis.vanilla.as_deref();
    let columns = Columns::of(table, result);
    let rows = table.rows.iter().map(|row| {
        let vms = row.vms_per_pcpu.to_string();
        columns.texts(row, vms)
    });
    Load {
        id: format!("load-{n}"),
        name: table.load.clone(),
        about: about(table, kind),
        warnings: super::cautions(table),
        rates: rates::draw(result, table, vanilla),
        times: times::draw(result, table),
        time_rows: times::table(result, table),
        header: columns.header(),
        rows: rows.collect(),
        words: columns.words(),
        books: crate::report::books::rows(result, &table.load),
        work: crate::report::work::rows(result, &table.load),
        timelines: timelines(table, result),
    }
}

fn about(table: &LoadTable, kind: &LoadKind) -> String {
    let b = &table.baseline;
    if *kind == LoadKind::Idle {
        return "No I/O at all: what does each arm cost then?".to_owned();
    }
    let path = match b.completion {
        Completion::FollowsSubmitter => "Completions arrive on the CPU that submitted".to_owned(),
        Completion::OneCpu(cpu) => format!("All completions arrive on CPU {cpu}"),
    };
    let mut parts = vec![path];
    if let Some(solo) = b.solo {
        parts.push(format!(
            "without sharing {} requests/s beside compute (p99 {})",
            rate(solo.median),
            duration(b.solo_p99)
        ));
    }
    if let Some(fifo) = b.solo_fifo {
        parts.push(format!("{} with SCHED_FIFO", rate(fifo)));
    }
    if let Some(alone) = b.alone {
        parts.push(format!("{} without compute", rate(alone)));
    }
    parts.join("; ") + "."
}

/// The first recorded timeline of each arm, by number of VMs.
fn timelines(table: &LoadTable, result: &RunResult) -> Vec<Strips> {
    let recorded = |vms: u32| {
        let phases = result.phases.iter().filter(move |p| {
            p.load == table.load && p.vms_per_pcpu == vms && !BASELINES.contains(&p.arm.as_str())
        });
        result.scenario.arms.iter().filter_map(move |arm| {
            let mut mine = phases.clone().filter(|p| p.arm == arm.name);
            mine.find_map(|p| Some((p, p.timeline.as_ref()?)))
        })
    };
    let of = |vms: &u32| {
        let strips: Vec<(String, String, String)> = recorded(*vms)
            .map(|(phase, timeline)| {
                let ops = phase
                    .io
                    .as_ref()
                    .map_or("-".to_owned(), |io| rate(io.ops_per_s));
                let note = match timeline.moves.len() {
                    0 => format!("{ops} requests/s in this round"),
                    n => format!("{ops} requests/s in this round; {n} moves below"),
                };
                (
                    phase.arm.clone(),
                    note,
                    timeline::draw(&phase.arm, timeline),
                )
            })
            .collect();
        let halted = |(_, timeline): (_, &Timeline)| {
            timeline.vcpus.iter().any(|vcpu| !vcpu.halts.is_empty())
        };
        (!strips.is_empty()).then(|| Strips {
            halts: recorded(*vms).any(halted),
            title: result.scenario.sharing_of(*vms),
            strips,
        })
    };
    result
        .scenario
        .sharing
        .vms_per_pcpu
        .iter()
        .filter_map(of)
        .collect()
}
