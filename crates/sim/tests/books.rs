// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the books are for: whatever is lost is noticed, and looking at them changes
//! nothing.

mod common;

use sim::device::Delay;
use sim::device::Device;
use sim::device::DeviceCx;
use sim::device::Io;
use sim::device::Path;
use sim::engine::Sim;
use sim::guest::KernelSettings;
use sim::hypervisor::Cfs;
use sim::hypervisor::CfsSettings;
use sim::hypervisor::Host;
use sim::hypervisor::Hypervisor;
use sim::hypervisor::NAMES;
use sim::hypervisor::Pick;
use sim::hypervisor::Sharing;
use sim::hypervisor::Why;
use sim::hypervisor::by_name;
use sim::ids::Vcpu;
use sim::program::ReaderSettings;
use sim::queue::QueueKind;
use units::CpuId;
use units::Ns;
use units::Time;

/// Three VMs of three vCPUs: compute on two of them, readers.
fn mix(policy: Box<dyn Hypervisor>, device: Box<dyn Device>) -> Sim {
    let machine = common::machine(3, 3, false);
    let mut guests = common::guests(&machine, KernelSettings::scaled(3), 1);
    for guest in &mut guests {
        guest.add(common::compute(0));
        guest.add(common::compute(1));
        for vcpu in 0..3 {
            let depth = 1 + vcpu;
            let reads = ReaderSettings {
                depth,
                ..common::READS
            };
            guest.add(common::reader(vcpu, reads));
        }
    }
    let mut sim = common::simulation(machine, guests, policy, QueueKind::Wheel, 1);
    sim.add_device(device, Path::Submitter);
    sim
}

fn delay() -> Box<dyn Device> {
    Box::new(Delay::new(Ns::from_us(100), 400))
}

/// A run that is looked at in between is the same run, under every policy: the time
/// before a look is charged with what follows.
#[test]
fn a_look_changes_nothing() {
    let sharing = Sharing {
        vms_per_pcpu: 3,
        slice: Ns::from_ms(11),
        sweep_permille: 100,
    };
    for name in NAMES {
        let run = |looks: &[u64]| {
            let mut sim = mix(by_name(name, &sharing).unwrap(), delay());
            for us in looks {
                sim.run_until(Time::ZERO + Ns::from_us(*us));
            }
            let tasks = sim.guests().iter().flat_map(|guest| guest.tasks());
            let tasks: Vec<_> = tasks.map(|t| (t.done.clone(), t.on_cpu, t.spent)).collect();
            format!("{} {:?} {tasks:?}", sim.events(), sim.machine())
        };
        let seldom = run(&[400_000]);
        let often = run(&[5_003, 17_250, 17_251, 104_321, 250_000, 399_999, 400_000]);
        assert_eq!(seldom, often, "{name}");
    }
}

/// Swallows one of its completions.
#[derive(Debug)]
struct Swallows {
    inner: Box<dyn Device>,
    events: u32,
}

impl Device for Swallows {
    fn submit(&mut self, io: Io, cx: &mut DeviceCx<'_>) {
        self.events += 1;
        if self.events != 100 {
            self.inner.submit(io, cx);
        }
    }
    fn event(&mut self, token: u64, cx: &mut DeviceCx<'_>) {
        self.inner.event(token, cx);
    }
    fn in_flight(&self) -> u64 {
        self.inner.in_flight()
    }
}

/// CFS that forgets the hundredth vCPU which comes to it.
#[derive(Debug)]
struct Forgets {
    inner: Cfs,
    comes: u32,
}

impl Hypervisor for Forgets {
    fn name(&self) -> &'static str {
        "forgets"
    }
    fn start(&mut self, host: &mut Host<'_>) {
        self.inner.start(host);
    }
    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        self.inner.enqueue(host, vcpu, why);
        self.comes += 1;
        if self.comes == 100 {
            // As if it slept.
            self.inner.halt(host, vcpu, CpuId(0));
        }
    }
    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        self.inner.pick(host, pcpu)
    }
    fn charge(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId, ran: Ns, waited: Ns) {
        self.inner.charge(host, vcpu, pcpu, ran, waited);
    }
    fn halt(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId) {
        self.inner.halt(host, vcpu, pcpu);
    }
    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        self.inner.check(host)
    }
}

/// Debug builds stop in the middle of the run, long before its end.
#[cfg(debug_assertions)]
fn noticed(mut sim: Sim) -> String {
    let run = std::panic::AssertUnwindSafe(|| sim.run_until(Time::ZERO + Ns::from_secs(60)));
    let Err(panic) = std::panic::catch_unwind(run) else {
        panic!("nobody noticed");
    };
    assert!(sim.now() < Time::ZERO + Ns::from_secs(1), "{:?}", sim.now());
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[cfg(debug_assertions)]
#[test]
fn a_request_that_a_device_loses_is_noticed() {
    let device = Swallows {
        inner: delay(),
        events: 0,
    };
    let error = noticed(mix(common::cfs(), Box::new(device)));
    assert!(error.contains("requests"), "{error}");
}

#[cfg(debug_assertions)]
#[test]
fn a_vcpu_that_a_policy_forgets_is_noticed() {
    let policy = Forgets {
        inner: Cfs::new(CfsSettings::default()),
        comes: 0,
    };
    let error = noticed(mix(Box::new(policy), delay()));
    assert!(error.contains("is Queued and queued 0 times"), "{error}");
}
