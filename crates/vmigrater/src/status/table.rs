// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A report as text for people: first what matters, then the details.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::Table;
use comfy_table::presets;
use guest::report::Balloon;
use guest::report::Disk;
use guest::report::Mode;
use guest::report::Report;
use units::Ns;

/// The whole page; ends with a line break.
pub(crate) fn render(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<22} {value}");
    };
    line(
        "vmigrater",
        format!(
            "{}, pid {}, up {}",
            report.version, report.pid, report.uptime_ns
        ),
    );
    line("mode", mode(report));
    if !report.balloons.is_empty() {
        line("balloons", balloons(&report.balloons));
    }
    line(
        "source",
        format!(
            "{}, accurate to {}",
            report.source, report.source_accuracy_ns
        ),
    );
    if !report.disks.is_empty() {
        line("disks", disks(&report.disks));
    }
    line("I/O inactivity", inactivity(report));
    if report.dry_run {
        line(
            "would have saved",
            format!("{} of it", report.would_have_saved_ns),
        );
    }
    line("moves", counters(&report.moves, "none"));
    line("skipped", counters(&report.skipped, "none"));
    line("failed", counters(&report.failed, "none"));
    line(
        "migrations",
        format!(
            "N_migrate {}, N_min {}, P {}, C_avg {}",
            report.n_migrate,
            report.n_min,
            report
                .p
                .map_or("not known yet".into(), |p| format!("{p:.2}")),
            report.c_avg_ns
        ),
    );
    line(
        "cost",
        format!(
            "{:.1} wake-ups/s{}, {} timers armed, detector {}, loop lag p99 {}",
            report.wakeups_per_s,
            report
                .stopped_ns
                .map_or(String::new(), |ns| format!(", stopped itself for {ns}")),
            report.timers_armed,
            if report.detector_attached {
                "attached"
            } else {
                "detached"
            },
            report.loop_lag_p99_ns
        ),
    );
    line("wake-ups", counters(&report.wakeups, "none"));
    line(
        "lost",
        format!("{} events, {} tasks", report.lost_events, report.lost_tasks),
    );
    let _ = writeln!(text, "\n{}", vcpus(report));
    if report.tasks.is_empty() {
        text.push_str("\nNo task is I/O-bound now.\n");
    } else {
        let _ = writeln!(text, "\n{}", tasks(report));
    }
    if !report.programs.is_empty() {
        let _ = writeln!(text, "\n{}", programs(report));
    }
    text
}

fn mode(report: &Report) -> String {
    let mode = match report.mode {
        Mode::Asleep => "asleep: no vCPU has been taken away lately",
        Mode::Watching => "watching: vCPUs are taken away, but no task is I/O-bound",
        Mode::Active if report.does == "xballoon" => {
            "active: xballoon, holding computation back for I/O-bound tasks"
        }
        Mode::Active => "active: keeping I/O-bound tasks on running vCPUs",
    };
    if report.dry_run {
        format!("{mode} (dry run: nothing is moved)")
    } else {
        mode.into()
    }
}

/// `vcpu 0 inflated, 1 thread, 12 times, 80.0 ms in all; vcpu 1 ...`.
fn balloons(balloons: &[Balloon]) -> String {
    let shown: Vec<String> = balloons
        .iter()
        .map(|balloon| {
            format!(
                "vcpu {} {}, {} threads, {} times, {} in all{}",
                balloon.vcpu,
                if balloon.inflated {
                    "inflated"
                } else {
                    "deflated"
                },
                balloon.threads,
                balloon.inflations,
                balloon.inflated_ns,
                if balloon.failed > 0 {
                    format!(", {} failed", balloon.failed)
                } else {
                    String::new()
                },
            )
        })
        .collect();
    shown.join("; ")
}

/// `254:0 vcpu 1 (as Linux says); 259:0 follows-task`.
fn disks(disks: &[Disk]) -> String {
    let shown: Vec<String> = disks
        .iter()
        .map(|disk| {
            let known = disk.learnt || disk.completion == "unknown";
            let from = if known { "" } else { " (as Linux says)" };
            format!("{} {}{from}", disk.dev, disk.completion)
        })
        .collect();
    shown.join("; ")
}

/// Time and its share of the time in which anybody was I/O-bound.
fn inactivity(report: &Report) -> String {
    let share = percent_of(report.io_inactivity_ns, report.io_phase_ns);
    format!(
        "{} in {} of I/O phases{share}",
        report.io_inactivity_ns, report.io_phase_ns
    )
}

/// Several tasks can be inactive at once, so this may exceed 100 %: no clamping.
fn percent_of(part: Ns, whole: Ns) -> String {
    if whole == Ns::ZERO {
        return String::new();
    }
    format!(
        " ({:.1} %)",
        100.0 * part.as_ns() as f64 / whole.as_ns() as f64
    )
}

/// `pull 3, push 12 (15 in all)`.
fn counters(counts: &BTreeMap<String, u64>, none: &str) -> String {
    let shown: Vec<String> = counts
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    match shown.len() {
        0 => none.into(),
        1 => shown.concat(),
        _ => format!(
            "{} ({} in all)",
            shown.join(", "),
            counts.values().sum::<u64>()
        ),
    }
}

fn vcpus(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "vCPU",
        "state",
        "slice",
        "gap",
        "confidence",
        "gaps",
        "descheduled",
    ]);
    let known = |ns: Option<Ns>| ns.map_or("-".to_owned(), |ns| ns.to_string());
    for vcpu in &report.vcpus {
        table.add_row([
            vcpu.id.to_string(),
            match vcpu.preferred {
                Some(false) => format!("{}, not preferred", vcpu.state),
                Some(true) | None => vcpu.state.clone(),
            },
            known(vcpu.slice_ns),
            known(vcpu.gap_ns),
            vcpu.confidence_permille.to_string(),
            vcpu.gaps.to_string(),
            vcpu.stolen_ns.to_string(),
        ]);
    }
    table
}

fn tasks(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "tid",
        "name",
        "vCPU",
        "I/O load",
        "inactive",
        "moves",
        "lever",
        "completes on",
    ]);
    for task in &report.tasks {
        table.add_row([
            task.tid.to_string(),
            printable(&task.comm),
            task.vcpu.to_string(),
            task.load_permille.to_string(),
            task.inactivity_ns.to_string(),
            task.moves.to_string(),
            task.wakeup.clone(),
            task.completion.clone(),
        ]);
    }
    table
}

/// Which programs are better off without us.
fn programs(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "program",
        "now",
        "better",
        "rate let go / held",
        "comparisons",
    ]);
    for program in &report.programs {
        table.add_row([
            printable(&program.comm),
            if program.held { "held" } else { "let go" }.to_owned(),
            match (program.free_to_held, program.believed.as_str()) {
                (None, _) => "not known yet".to_owned(),
                (_, "free") => "let go".to_owned(),
                (_, other) => other.to_owned(),
            },
            program
                .free_to_held
                .map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            program.trials.to_string(),
        ]);
    }
    table
}

/// Any user chooses thread names: no control characters into root's terminal.
pub(crate) fn printable(comm: &str) -> String {
    comm.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use guest::report::Task;
    use guest::report::Vcpu;
    use units::Permille;
    use units::Tid;
    use units::VcpuId;

    use super::*;

    fn busy() -> Report {
        let mut report = crate::control::report_for_tests(90);
        report.mode = Mode::Active;
        report.io_inactivity_ns = Ns::from_ms(250);
        report.io_phase_ns = Ns::from_secs(2);
        report.moves = [("push".to_owned(), 12), ("pull".to_owned(), 3)].into();
        report.skipped = [("back-soon".to_owned(), 4)].into();
        report.p = Some(1.25);
        report.stopped_ns = Some(Ns::from_ms(31));
        report.vcpus = vec![Vcpu {
            id: 1,
            state: "running".into(),
            slice_ns: Some(Ns::from_ms(11)),
            ..Vcpu::default()
        }];
        report.tasks = vec![Task {
            tid: Tid(42),
            tgid: 41,
            comm: "fio\x1b[31m".into(),
            vcpu: VcpuId(1),
            load_permille: Permille::new(870),
            inactivity_ns: Ns::from_ms(250),
            moves: 15,
            wakeup: "eevdf-slice".into(),
            completion: "follows-task".into(),
        }];
        report
    }

    #[test]
    fn a_busy_daemon_shows_its_figures() {
        let text = render(&busy());
        for part in [
            "active: keeping",
            "250 ms in 2 s of I/O phases (12.5 %)",
            "pull 3, push 12 (15 in all)",
            "back-soon 4",
            "P 1.25",
            ", stopped itself for 31 ms,",
            "11 ms",
            "87.0 %",
            "eevdf-slice",
        ] {
            assert!(text.contains(part), "{part:?} missing in\n{text}");
        }
        assert!(
            !text.contains('\x1b'),
            "a thread name reached the terminal raw"
        );
    }

    #[test]
    fn a_vcpu_that_the_kernel_advises_against_says_so() {
        let mut report = busy();
        assert!(!render(&report).contains("preferred"));
        report.vcpus[0].preferred = Some(true);
        assert!(!render(&report).contains("preferred"));
        report.vcpus[0].preferred = Some(false);
        assert!(render(&report).contains("running, not preferred"));
    }

    #[test]
    fn a_program_that_is_better_off_alone_is_shown() {
        let mut report = busy();
        assert!(!render(&report).contains("comparisons"));
        report.programs = vec![guest::report::Program {
            comm: "wal\x1bwriter".into(),
            held: false,
            believed: "free".into(),
            free_to_held: Some(1.345),
            trials: 2,
        }];
        let text = render(&report);
        for part in ["comparisons", "wal?writer", "let go", "1.34"] {
            assert!(text.contains(part), "{part:?} missing in\n{text}");
        }
    }

    #[test]
    fn a_disk_of_which_only_linux_has_told_says_so() {
        let mut report = busy();
        let disk = |dev: &str, completion: &str, learnt| Disk {
            dev: dev.into(),
            completions: 9,
            completion: completion.into(),
            learnt,
        };
        report.disks = vec![
            disk("254:0", "vcpu 1", false),
            disk("259:0", "follows-task", true),
            disk("7:0", "unknown", false),
        ];
        let text = render(&report);
        assert!(
            text.contains("254:0 vcpu 1 (as Linux says); 259:0 follows-task; 7:0 unknown\n"),
            "{text}"
        );
    }

    #[test]
    fn an_idle_daemon_divides_by_nothing() {
        let text = render(&crate::control::report_for_tests(0));
        assert!(text.contains("No task is I/O-bound now."), "{text}");
        assert!(text.contains("P not known yet"), "{text}");
        // The source heartbeat does not know.
        assert!(!text.contains("stopped itself"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn dry_run_says_what_it_would_have_saved() {
        let mut report = busy();
        report.dry_run = true;
        report.would_have_saved_ns = Ns::from_ms(200);
        let text = render(&report);
        assert!(text.contains("nothing is moved"), "{text}");
        assert!(text.contains("200 ms of it"), "{text}");
    }
}
