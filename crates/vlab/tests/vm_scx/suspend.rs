// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host that is suspended to memory while vCPUs compete.

use scx_vcpu::table::Vcpu;
use units::Ns;
use vlab::vm::Output;
use vlab::vm::SPEAK_AGAIN;

use super::Machine;
use super::boot;
use super::boot_with;
use super::number;
use super::said;
use super::share;
use super::vcpus;

/// How long it is to be asleep, at least: the script's alarm less the time that the machine
/// takes to go to sleep.
const ASLEEP: Ns = Ns::from_secs(4);

/// From before a suspend to after it: what passed in all, and while the machine was awake.
fn passed(output: &Output, key: &str) -> (Ns, Ns) {
    let at = |when: &str, clock: &str| number(output, &format!("{key}-{when}-{clock}"));
    let between = |clock| Ns(at("after", clock) - at("before", clock));
    (between("boottime"), between("monotonic"))
}

/// All that it was in some state.
fn all(vcpu: &Vcpu) -> Ns {
    vcpu.ran + vcpu.waited + vcpu.slept
}

/// What holds with one pCPU and with two, for so many vCPUs of two VMs.
fn woke(output: &Output, key: &str, count: usize) {
    assert_eq!(number(output, &format!("{key}-woke")), 0);
    let (passed, awake) = passed(output, key);
    eprintln!("{key}: {passed} passed, {awake} of them awake");
    assert!(passed > awake + ASLEEP, "{key}: it did not sleep");
    assert_eq!(number(output, &format!("{key}-exit")), 0);
    assert_eq!(said(output, &format!("{key}-state")), "disabled");
    // 2 : 1, as `set` said before.
    let now = vcpus(output, key, count);
    let share = share(&now[..count / 2], &now[count / 2..]);
    eprintln!("{key}: 512 : 256 gives {share:.3} after it");
    assert!((0.60..0.73).contains(&share), "{key}: {now:?}");
    assert_eq!(said(output, "warnings").trim(), "0", "{}", output.stdout);
}

/// A script with what it needs to suspend the machine.
fn script(of: &str) -> String {
    format!("{SPEAK_AGAIN}{}{of}", include_str!("suspend_common.sh"))
}

#[test]
fn root_vm_scx_vcpu_is_loaded_again_after_a_suspend() {
    let output = boot(&script(include_str!("suspend_both.sh")));
    woke(&output, "both", 4);
    // It says why.
    let loads = |when: &str| number(&output, &format!("both-loads-{when}"));
    assert_eq!(loads("after"), loads("before") + 1, "{}", output.stdout);
    assert!(
        output.stdout.contains("the machine was suspended"),
        "{}",
        output.stdout
    );
    // Where they were before: the kernel forgets no affinity over this.
    let list = vcpus(&output, "both-list", 4);
    let cpus: Vec<u32> = list.iter().map(|vcpu| vcpu.cpu).collect();
    assert_eq!(cpus, [0, 1, 0, 1], "{list:?}");
    assert!(
        list.iter().all(|vcpu| vcpu.longest_wait < ASLEEP),
        "{list:?}"
    );
    let even = vcpus(&output, "both-even", 4);
    let share = share(&even[..2], &even[2..]);
    eprintln!("both: 256 : 256 after a further `set` gives {share:.3}");
    assert!((0.44..0.56).contains(&share), "{even:?}");
}

/// A machine of one CPU, and not one whose other CPU is offline: an emulated CPU that was offline
/// over a suspend computes in its firmware for ever, and takes the time of the other one.
#[test]
fn root_vm_scx_vcpu_stays_loaded_over_a_suspend_of_one_pcpu() {
    let machine = Machine {
        cpus: Some(1),
        ..Machine::default()
    };
    let output = boot_with(&script(include_str!("suspend_one.sh")), machine);
    woke(&output, "one", 2);
    let loads = |when: &str| number(&output, &format!("one-loads-{when}"));
    assert_eq!(loads("after"), loads("before"), "{}", output.stdout);
    // Nobody has run, waited or slept while the machine did.
    let (_, awake) = passed(&output, "one");
    let before = vcpus(&output, "one-list-before", 2);
    let after = vcpus(&output, "one-list-after", 2);
    for (before, after) in before.iter().zip(&after) {
        let more = all(after) - all(before);
        eprintln!(
            "one: vCPU {}/{}: {more} more of {awake}, longest wait {}",
            after.vm, after.vcpu, after.longest_wait
        );
        // What each did when it was read is not in it, nor is how long the readings took.
        assert!(more < awake + ASLEEP / 2, "{before:?} {after:?}");
        assert!(after.longest_wait < ASLEEP, "{after:?}");
    }
}
