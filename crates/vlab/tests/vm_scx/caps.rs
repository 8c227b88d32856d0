// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each policy's turns beside what was asked, and its caps.

use scx_vcpu::table::Vcpu;
use units::Ns;
use units::Time;
use vlab::vm::Output;

use super::boot;
use super::number;
use super::said;
use super::trace;
use super::turns::turns;
use super::turns::turns_with_what_they_pay;
use super::vcpus;

/// A policy, a pCPU, and how long turns there are to be.
const ASKED: [(&str, u16, Ns); 7] = [
    ("fixed", 1, Ns::from_ms(11)),
    ("credit1", 1, Ns::from_ms(30)),
    ("credit2", 1, Ns::from_ms(10)),
    ("vslicer", 1, Ns::from_ms(30)),
    ("ische", 0, Ns::from_ms(30)),
    ("ische", 1, Ns::from_ms(10)),
    ("isacs", 1, Ns::from_ms(10)),
];

/// Those that know caps.
const CAPPED: [&str; 5] = ["credit1", "credit2", "vslicer", "ische", "isacs"];

/// A vCPU's part of the cap of 40 % of a pCPU for two.
const CAP: f64 = 0.2;

/// Parts of what was asked at which columns of the histogram end, in per cent.
const COLUMNS: [u64; 7] = [50, 90, 98, 102, 110, 150, 200];

#[test]
fn root_vm_scx_vcpu_turns_are_as_asked_and_caps_hold() {
    let output = boot(include_str!("caps.sh"));
    eprintln!("turns by their part of what was asked, in per cent");
    eprintln!("{}", heading());
    for (policy, cpu, asked) in ASKED {
        turns_are_as_asked(&output, policy, cpu, asked);
    }
    for policy in CAPPED {
        cap_holds(&output, policy);
    }
    for policy in ["credit1", "credit2"] {
        for round in 1..=2 {
            roams_to_an_idle_cpu(&output, &format!("roams-{policy}-{round}"));
        }
    }
    let refused = said(&output, "fixed-set");
    assert!(refused.contains("policy fixed knows no caps"), "{refused}");
    // The code is on the next line.
    assert!(output.stdout.lines().any(|line| line == "exit 1"));
}

fn heading() -> String {
    let columns: String = COLUMNS
        .map(|end| format!("{:>7}", format!("<{end}")))
        .concat();
    format!(
        "{:<8} pCPU   asked  turns     5 %  median    95 %{columns}   more",
        ""
    )
}

/// How many turns there are in each column; the last one is for what is longer.
fn histogram(lengths: &[Ns], asked: Ns) -> [usize; COLUMNS.len() + 1] {
    let mut counts = [0; COLUMNS.len() + 1];
    for length in lengths {
        let part = COLUMNS
            .iter()
            .position(|end| length.0 * 100 < asked.0 * end);
        counts[part.unwrap_or(COLUMNS.len())] += 1;
    }
    counts
}

fn turns_are_as_asked(output: &Output, policy: &str, cpu: u16, asked: Ns) {
    let events = trace(output, &format!("{policy}-trace"));
    let to = Time(number(output, &format!("{policy}-to")));
    let from = events[0].at;
    let lengths = match policy {
        "vslicer" => turns_with_what_they_pay(&events, cpu, asked, from, to),
        _ => turns(&events, cpu, from, to),
    };
    let at = |percent: usize| lengths[lengths.len() * percent / 100];
    let columns: String = histogram(&lengths, asked)
        .map(|count| format!("{count:>7}"))
        .concat();
    let ms = |time: Ns| format!("{:>8.1}", time.0 as f64 / 1e6);
    eprintln!(
        "{policy:<8} {cpu:>4}{}{:>7}{}{}{}{columns}",
        ms(asked),
        lengths.len(),
        ms(at(5)),
        ms(at(50)),
        ms(at(95))
    );
    // A second of two vCPUs that compute, at least.
    assert!(
        lengths.len() as u64 > Ns::from_secs(1).0 / asked.0,
        "{policy}: {lengths:?}"
    );
    // A turn that nobody cuts ends by a timer: never before, and after it as late as an
    // emulated pCPU gets its interrupt, some milliseconds.
    assert!(at(5) > asked * 9 / 10, "{policy}: {lengths:?}");
    assert!(at(50) < asked + Ns::from_ms(10), "{policy}: {lengths:?}");
}

/// What a vCPU had of the time: all that it was in some state.
fn part(vcpu: &Vcpu) -> f64 {
    vcpu.ran.0 as f64 / (vcpu.ran + vcpu.waited + vcpu.slept).0 as f64
}

/// K1 in a window of 5 s. More than the cap are only what a period of 30 ms gives at once,
/// and by how much one turn was too long: that is paid back, but not in the window if it
/// was the last one. A turn ends by a timer, which a machine that is stalled has late by
/// 50 ms at most. Less is what was lost because a period's timer came a whole period late.
fn cap_holds(output: &Output, policy: &str) {
    let all = vcpus(output, policy, 4);
    let most = CAP + (CAP * 0.030 + 0.050) / 5.0;
    for vcpu in &all[..2] {
        eprintln!("{policy}: cap {CAP}, had {:.4}", part(vcpu));
        assert_eq!(vcpu.cap_permille, 200);
        assert!(
            (0.85 * CAP..most).contains(&part(vcpu)),
            "{policy}: {all:?}"
        );
    }
    // The other VM has the rest, but what the host's own threads take.
    for vcpu in &all[2..] {
        assert!(part(vcpu) > 0.6, "{policy}: {all:?}");
    }
}

/// A host thread that computes on the pCPU where a vCPU waits for its cap leaves that 50 ms
/// of each second, which is less than the cap; the other pCPU is idle, and the vCPU may go.
fn roams_to_an_idle_cpu(output: &Output, key: &str) {
    let all = vcpus(output, key, 1);
    eprintln!("{key}: cap {CAP}, had {:.4}", part(&all[0]));
    assert!(part(&all[0]) > 0.85 * CAP, "{key}: {all:?}");
}
