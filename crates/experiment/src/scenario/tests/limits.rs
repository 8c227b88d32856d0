// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Caps of VMs, prices of completions, a disk behind one thread.

use units::Ns;

use super::super::LoadKind;
use super::super::Program;
use super::vms::GOOD;
use super::vms::error_of;
use super::vms::one;

/// Per cent of one pCPU; without the key there is no limit, and results of before there was
/// one say nothing of it.
#[test]
fn a_cap_is_read_and_its_absence_is_not_written() {
    let text = GOOD.replace("vcpus = 3\n", "vcpus = 3\ncap = 150\n");
    let caps: Vec<Option<u32>> = one(&text).unwrap().vms.iter().map(|vm| vm.cap).collect();
    assert_eq!(caps, [None, Some(150), None]);
    let json = serde_json::to_string(&one(GOOD).unwrap()).unwrap();
    assert!(!json.contains("\"cap\""), "{json}");
    let limits = GOOD.replace("vcpus = 3\n", "vcpus = 3\ncap = 300\n");
    assert_eq!(one(&limits).unwrap().vms[1].cap, Some(300));
}

#[test]
fn prices_of_further_completions_and_a_disk_behind_a_thread_are_read() {
    let text = GOOD.replace("[[load]]\n", "[[load]]\nFURTHER\n");
    let text = text.replacen("FURTHER", "further = \"3 us\"", 1);
    let scenario = one(&text.replace("FURTHER\n", "")).unwrap();
    let LoadKind::Simulated {
        program: Program::Reader { further, .. },
    } = &scenario.vms[0].loads.as_ref().unwrap()[0].kind
    else {
        panic!("{:?}", scenario.vms[0].loads);
    };
    assert_eq!(*further, Some(Ns::from_us(3)));
    let error = error_of(&GOOD.replacen("[[load]]\n", "[[load]]\nstart_up = \"1 ms\"\n", 1));
    assert!(
        error.contains(".start_up` is \"1 ms\"") && error.contains("`arrivals`"),
        "{error}"
    );
    let plain = |sim: &str| one(&format!("{}\n[sim]\n{sim}\n", super::GOOD));
    let sim = plain("further = \"450 ns\"\ndisk_begin = \"13 us\"")
        .unwrap()
        .sim;
    let sim = sim.unwrap();
    assert_eq!(
        (sim.further, sim.disk_begin),
        (Some(Ns(450)), Some(Ns::from_us(13)))
    );
    let error = plain("further = \"2 s\"").unwrap_err().to_string();
    assert!(error.contains("`sim.further` is \"2 s\""), "{error}");
    let error = error_of(&format!("{GOOD}\n[sim]\ndisk_begin = \"1 us\"\n"));
    assert!(
        error.contains("`sim.disk_begin` is set") && error.contains("[[device]]"),
        "{error}"
    );
}
