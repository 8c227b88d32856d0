// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host threads that hold a pCPU, and vCPUs that may go to another one.

use scx_vcpu::table::Vcpu;

use super::boot;
use super::number;
use super::vcpus;

/// Those under which a vCPU goes where it likes. Under `ische` it has a core.
const ROAMING: [&str; 5] = ["fixed", "credit1", "credit2", "vslicer", "isacs"];

/// What it had of the time: all that it was in some state.
fn part(vcpu: &Vcpu) -> f64 {
    vcpu.ran.0 as f64 / (vcpu.ran + vcpu.waited + vcpu.slept).0 as f64
}

/// A vCPU that waits where a host thread computes has what the kernel's server gives it,
/// a twentieth of the time. The other pCPU is idle in the first case: then it has that.
/// In the second that runs another vCPU: then both share it.
#[test]
fn root_vm_scx_vcpu_goes_where_host_threads_leave_time() {
    let output = boot(include_str!("held.sh"));
    let parts = |key: &str, count: usize| -> Vec<f64> {
        vcpus(&output, key, count).iter().map(part).collect()
    };
    for policy in ROAMING {
        let idle = parts(&format!("idle-{policy}"), 1);
        let shared = parts(&format!("shared-{policy}"), 2);
        let free = parts(&format!("free-{policy}"), 2);
        eprintln!(
            "{policy}: beside an idle pCPU {idle:.3?}, beside a vCPU {shared:.3?}, without the \
             host thread {free:.3?}"
        );
        // What is lost until it is found: a period more than the time that it waits, and as
        // much for one that is in the kernel's queue; 190 ms of 3 s.
        assert!(idle[0] > 0.8, "{policy}: {idle:?}");
        // Half each, but what the scheduler's own threads take and the time until then.
        assert!(
            shared.iter().all(|part| *part > 0.35),
            "{policy}: {shared:?}"
        );
        assert!(free.iter().all(|part| *part > 0.75), "{policy}: {free:?}");
        assert_eq!(number(&output, &format!("{policy}-exit")), 0);
    }
}
