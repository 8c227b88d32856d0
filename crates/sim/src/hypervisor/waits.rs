// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocking, Polling, HaltPoll and enhanced HaltPoll (B1..B6) on top of any other
//! policy. The decisions are `policy::host::halt`.

use policy::host::halt;
use policy::host::halt::Action;
use policy::host::halt::Method;
use units::CpuId;
use units::Ns;
use units::Time;

use super::Host;
use super::Hypervisor;
use super::Idle;
use super::Pick;
use super::Why;
use crate::ids::Vcpu;
use crate::machine::State;

/// A policy whose vCPUs wait in one of the four ways.
#[derive(Debug)]
pub struct Waits {
    inner: Box<dyn Hypervisor>,
    settings: halt::Settings,
    vcpus: Vec<halt::Vcpu>,
    /// Since when each vCPU has been halted or waiting.
    since: Vec<Time>,
    /// By vCPU: it is woken and has not run yet.
    woken: Vec<bool>,
}

impl Waits {
    /// `inner` decides who runs, these settings how a vCPU waits.
    #[must_use]
    pub fn new(inner: Box<dyn Hypervisor>, settings: halt::Settings) -> Self {
        Self {
            inner,
            settings,
            vcpus: Vec::new(),
            since: Vec::new(),
            woken: Vec::new(),
        }
    }

    /// What a vCPU was halted for has come.
    fn event(&mut self, host: &Host<'_>, vcpu: Vcpu) {
        let waited = host.now().since(self.since[vcpu.index()]);
        self.vcpus[vcpu.index()].on_event(waited, &self.settings);
    }
}

impl Hypervisor for Waits {
    fn name(&self) -> &'static str {
        match self.settings.method {
            Method::Blocking => "blocking",
            Method::Polling => "polling",
            Method::HaltPoll => "haltpoll",
            Method::EnhancedHaltPoll => "haltpoll-enhanced",
        }
    }

    fn start(&mut self, host: &mut Host<'_>) {
        let vcpus = host.vcpus().count();
        self.vcpus = vec![halt::Vcpu::default(); vcpus];
        self.since = vec![host.now(); vcpus];
        self.woken = vec![false; vcpus];
        self.inner.start(host);
    }

    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        if let Why::Woken(_) = why {
            if self.settings.until_it_runs {
                self.woken[vcpu.index()] = true;
            } else {
                self.event(host, vcpu);
            }
        }
        self.inner.enqueue(host, vcpu, why);
    }

    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        let pick = self.inner.pick(host, pcpu)?;
        if std::mem::take(&mut self.woken[pick.vcpu.index()]) {
            self.event(host, pick.vcpu);
        }
        Some(pick)
    }

    fn charge(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId, ran: Ns, waited: Ns) {
        self.inner.charge(host, vcpu, pcpu, ran, waited);
    }

    fn idle(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId) -> Idle {
        self.since[vcpu.index()] = host.now();
        // B4: "on the same hyperthread" (`single_task_running()`). Who waits for another
        // one is nothing to it, even if it could come here.
        let here = |v: Vcpu| {
            let facts = host.vcpu(v);
            facts.state == State::Queued && facts.last_pcpu == Some(pcpu)
        };
        // Only HaltPoll asks.
        let others = self.settings.method == Method::HaltPoll && host.vcpus().any(here);
        match self.vcpus[vcpu.index()].on_halt(others, &self.settings) {
            Action::Block => Idle::Halt,
            Action::Poll(limit) => Idle::Poll(limit),
        }
    }

    fn waited(&mut self, host: &mut Host<'_>, vcpu: Vcpu, waited: Ns, event: bool) {
        if event {
            self.vcpus[vcpu.index()].on_event(waited, &self.settings);
        }
        self.inner.waited(host, vcpu, waited, event);
    }

    fn halt(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId) {
        self.inner.halt(host, vcpu, pcpu);
    }

    fn io_event(&mut self, host: &mut Host<'_>, vcpu: Vcpu) {
        self.inner.io_event(host, vcpu);
    }

    fn ipi(&mut self, host: &mut Host<'_>, from: Vcpu, to: Vcpu) {
        self.inner.ipi(host, from, to);
    }

    fn tick_period(&self) -> Option<Ns> {
        self.inner.tick_period()
    }

    fn tick(&mut self, host: &mut Host<'_>) {
        self.inner.tick(host);
    }

    fn slow_period(&self) -> Option<Ns> {
        self.inner.slow_period()
    }

    fn slow(&mut self, host: &mut Host<'_>) {
        self.inner.slow(host);
    }

    fn timer(&mut self, host: &mut Host<'_>, token: u64) {
        self.inner.timer(host, token);
    }

    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        self.inner.check(host)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::Cfs;
    use crate::hypervisor::CfsSettings;
    use crate::hypervisor::Requests;
    use crate::hypervisor::Wake;
    use crate::hypervisor::tests::staged;

    /// B4: vCPU 1 waits for a hyperthread. Where it waits vCPU 0 must not poll, on any
    /// other it may.
    #[test]
    fn who_waits_for_another_hyperthread_does_not_forbid_to_poll() {
        for (own, polls) in [(CpuId(0), false), (CpuId(1), true)] {
            let mut machine = staged::machine(2, 2);
            staged::run(&mut machine, Vcpu(0), own, 0);
            staged::wait(&mut machine, Vcpu(1), 0);
            machine.vcpus[1].last_pcpu = Some(CpuId(0));
            let cfs = Box::new(Cfs::new(CfsSettings::default()));
            let mut waits = Waits::new(cfs, halt::Settings::default());
            let mut requests = Requests::default();
            let mut host = staged::host(&machine, &mut requests, 0);
            waits.start(&mut host);
            // A short wait that polling would have caught lets it poll from now on.
            waits.vcpus[0].on_event(Ns::from_us(20), &halt::Settings::default());
            let idle = waits.idle(&mut host, Vcpu(0), own);
            assert_eq!(idle != Idle::Halt, polls, "{own}");
        }
    }

    /// A block of 1 ms and 30 ms until the vCPU runs again: KVM sees 31 ms, more than any
    /// window, and polls no more; who looks at the event alone polls for longer.
    #[test]
    fn a_window_adapts_to_when_the_vcpu_runs_again() {
        for (until_it_runs, window) in [(true, Ns::ZERO), (false, Ns::from_us(40))] {
            let settings = halt::Settings {
                method: Method::EnhancedHaltPoll,
                enhanced_max: Ns::from_ms(2),
                until_it_runs,
                ..halt::Settings::default()
            };
            let mut machine = staged::machine(1, 1);
            let cfs = Box::new(Cfs::new(CfsSettings::default()));
            let mut waits = Waits::new(cfs, settings.clone());
            let mut requests = Requests::default();
            let vcpu = Vcpu(0);
            waits.start(&mut staged::host(&machine, &mut requests, 0));
            for _ in 0..2 {
                waits.vcpus[0].on_event(Ns::from_us(200), &settings);
            }
            assert_eq!(waits.vcpus[0].window(&settings), Ns::from_us(20));
            staged::run(&mut machine, vcpu, CpuId(0), 10);
            waits.idle(
                &mut staged::host(&machine, &mut requests, 10),
                vcpu,
                CpuId(0),
            );
            staged::wait(&mut machine, vcpu, 11);
            let mut host = staged::host(&machine, &mut requests, 11);
            waits.enqueue(&mut host, vcpu, Why::Woken(Wake::Io));
            let mut host = staged::host(&machine, &mut requests, 41);
            assert!(waits.pick(&mut host, CpuId(0)).is_some());
            assert_eq!(waits.vcpus[0].window(&settings), window, "{until_it_runs}");
        }
    }
}
