// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's books of a window: where the time of every vCPU went. So far the
//! simulator knows it; on real hosts [`crate::lab`] has a part of it.

use serde::Deserialize;
use serde::Serialize;
use units::Ns;

/// The books of all vCPUs of a machine in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Books {
    /// pCPUs that the VMs share; a hyperthread is one.
    pub pcpus: u32,
    /// Context switches of the host on all pCPUs, to and from its idle task included.
    pub switches: u64,
    /// I/O inactivity time (C2) of the VM under test, with or without a daemon: for how
    /// long an I/O task was current, ready or waiting for a request on a vCPU that was
    /// off, summed over the tasks.
    pub io_inactivity: Ns,
    /// Times an I/O task of the VM under test ran on another vCPU than before, whoever
    /// moved it.
    pub task_moves: u64,
    /// The one under test first. VMs that only take time away (`others = "phantom"`)
    /// are not among them.
    pub vms: Vec<VmBooks>,
}

/// The books of one VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VmBooks {
    /// Its name.
    pub name: String,
    /// Its weight under contention, 1024 being that of a VM of which nothing is said.
    pub weight: u32,
    /// By number.
    pub vcpus: Vec<VcpuBooks>,
}

/// The books of one vCPU: the states of M28. `active`, `ready` and `waiting` together
/// are the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuBooks {
    /// It had a pCPU; switching to it, polling and retaining its context included.
    pub active: Ns,
    /// Of that, it kept the pCPU while it had nothing to run.
    pub kept: Ns,
    /// It wanted to run and had no pCPU.
    pub ready: Ns,
    /// It waited for an event and had no pCPU.
    pub waiting: Ns,
    /// Times it got another pCPU than the last time.
    pub migrations: u64,
    /// Times it lost its pCPU although it wanted to go on.
    pub preempted: u64,
    /// Times an event woke it when it had no pCPU.
    pub woken: u64,
}

impl VmBooks {
    /// The sum over its vCPUs.
    pub fn sum(&self, of: impl Fn(&VcpuBooks) -> Ns) -> Ns {
        self.vcpus.iter().map(of).sum()
    }
}

impl Books {
    /// CPU time of each VM as a share of that of all pCPUs, 0 to 1; what is missing to 1
    /// was idle, or went to VMs that are not simulated.
    #[must_use]
    pub fn shares(&self, window: Ns) -> Vec<f64> {
        let whole = window.as_secs_f64() * f64::from(self.pcpus);
        let share = |vm: &VmBooks| vm.sum(|vcpu| vcpu.active).as_secs_f64() / whole;
        if whole > 0.0 {
            self.vms.iter().map(share).collect()
        } else {
            Vec::new()
        }
    }

    /// Jain's index over the VMs: `(sum x)^2 / (n sum x^2)`, `x` being a VM's CPU time
    /// over its weight. 1 where all have what their weights promise, `1/n` where one has
    /// everything. A VM that *wants* less than its share lowers it too: it is a measure
    /// of fairness where all VMs are busy. `None` for fewer than two VMs or no CPU time.
    #[must_use]
    pub fn fairness(&self) -> Option<f64> {
        let per_weight =
            |vm: &VmBooks| vm.sum(|vcpu| vcpu.active).as_secs_f64() / f64::from(vm.weight.max(1));
        let x: Vec<f64> = self.vms.iter().map(per_weight).collect();
        let (sum, squares) = x
            .iter()
            .fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        (x.len() >= 2 && squares > 0.0).then(|| sum * sum / (x.len() as f64 * squares))
    }

    /// The share of a VM's vCPU time in one of the three states, 0 to 1.
    #[must_use]
    pub fn part(&self, vm: usize, of: impl Fn(&VcpuBooks) -> Ns) -> Option<f64> {
        let vm = self.vms.get(vm)?;
        let all = vm.sum(|vcpu| vcpu.active + vcpu.ready + vcpu.waiting);
        (all > Ns::ZERO).then(|| vm.sum(of).as_secs_f64() / all.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(weight: u32, active_ms: &[u64]) -> VmBooks {
        let vcpu = |ms: &u64| VcpuBooks {
            active: Ns::from_ms(*ms),
            ready: Ns::from_ms(1000 - ms),
            ..VcpuBooks::default()
        };
        VmBooks {
            name: "vm".to_owned(),
            weight,
            vcpus: active_ms.iter().map(vcpu).collect(),
        }
    }

    fn books(vms: Vec<VmBooks>) -> Books {
        Books {
            pcpus: 2,
            vms,
            ..Books::default()
        }
    }

    #[test]
    fn shares_are_of_all_pcpus() {
        let books = books(vec![vm(1024, &[500, 300]), vm(1024, &[500, 500])]);
        assert_eq!(books.shares(Ns::from_secs(1)), [0.4, 0.5]);
        assert_eq!(books.part(0, |v| v.ready), Some(0.6));
        assert_eq!(books.part(2, |v| v.ready), None);
    }

    /// Worked by hand: x = 3 and 1, 16 / (2 * 10).
    #[test]
    fn jain_is_one_for_what_weights_promise_and_falls_from_there() {
        let of = |vms| books(vms).fairness();
        let near = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-12;
        assert!(near(of(vec![vm(2048, &[600]), vm(1024, &[300])]), 1.0));
        assert!(near(of(vec![vm(1, &[300]), vm(1, &[100])]), 0.8));
        assert!(near(
            of(vec![vm(1, &[100]), vm(1, &[0]), vm(1, &[0]), vm(1, &[0])]),
            0.25
        ));
        assert_eq!(of(vec![vm(1, &[100])]), None, "alone is not unfair");
        assert_eq!(of(vec![vm(1, &[0]), vm(1, &[0])]), None);
    }
}
