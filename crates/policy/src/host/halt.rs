// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU that has nothing to do does with its hyperthread (B1..B6).
//!
//! * Blocking: it leaves at once (B2).
//! * Polling: the guest spins for ever (`idle=poll`, B3).
//! * HaltPoll: the hypervisor spins for it up to a timeout between 0 and a
//!   maximum, which adapts (B4); not if another vCPU is ready there.
//! * Enhanced HaltPoll: without that restriction, with a larger maximum (B5).
//!
//! The adaptation is not stated (B4); it is the one of KVM, facts from
//! `virt/kvm/kvm_main.c` (`kvm_vcpu_halt`, `grow_halt_poll_ns`,
//! `shrink_halt_poll_ns`): a short block that polling missed lets the window
//! grow by a factor, a long one shrinks it.

use units::Ns;

/// Which of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// B2.
    Blocking,
    /// B3.
    Polling,
    /// B4.
    HaltPoll,
    /// B5.
    EnhancedHaltPoll,
}

/// Of the polling methods; all open (B4, B5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which method.
    pub method: Method,
    /// Longest window of HaltPoll: 200 us, KVM's default on x86.
    pub max: Ns,
    /// Longest window of enhanced HaltPoll: 500 us, where the gain of the
    /// published sweep has long flattened and its losses begin (B5).
    pub enhanced_max: Ns,
    /// First window after 0: 10 us, KVM's.
    pub grow_start: Ns,
    /// Growth factor: 2, KVM's. 0: the window never grows.
    pub grow: u64,
    /// Divisor when it shrinks; 0, KVM's default: it falls to 0.
    pub shrink: u64,
    /// Does the window adapt (B4)? If not it is the longest one at every halt.
    pub adapts: bool,
    /// What is compared with the window: how long it took until the vCPU ran again, as in
    /// KVM (`block_ns`). If not, until the event came.
    pub until_it_runs: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            method: Method::HaltPoll,
            max: Ns::from_us(200),
            enhanced_max: Ns::from_us(500),
            grow_start: Ns::from_us(10),
            grow: 2,
            shrink: 0,
            adapts: true,
            until_it_runs: true,
        }
    }
}

impl Settings {
    /// The longest window of the method; zero if it does not poll with a window.
    #[must_use]
    pub fn max_window(&self) -> Ns {
        match self.method {
            Method::Blocking | Method::Polling => Ns::ZERO,
            Method::HaltPoll => self.max,
            Method::EnhancedHaltPoll => self.enhanced_max,
        }
    }
}

/// What to do when the guest halts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Leave the hyperthread now.
    Block,
    /// Spin until the event, at most this long (if bounded), then leave.
    Poll(Option<Ns>),
}

/// The polling window of one vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    window: Ns,
}

impl Vcpu {
    /// The present window.
    #[must_use]
    pub fn window(&self, settings: &Settings) -> Ns {
        if settings.adapts {
            self.window
        } else {
            settings.max_window()
        }
    }

    /// The guest halts. `others_ready`: another vCPU waits for this hyperthread.
    #[must_use]
    pub fn on_halt(&self, others_ready: bool, settings: &Settings) -> Action {
        match settings.method {
            Method::Blocking => Action::Block,
            Method::Polling => Action::Poll(None),
            Method::HaltPoll if others_ready => Action::Block,
            Method::HaltPoll | Method::EnhancedHaltPoll => match self.window(settings) {
                Ns::ZERO => Action::Block,
                window => Action::Poll(Some(window)),
            },
        }
    }

    /// The event that it waited for came `waited` after the halt.
    pub fn on_event(&mut self, waited: Ns, settings: &Settings) {
        let max = settings.max_window();
        if waited <= self.window {
            return;
        }
        if self.window > Ns::ZERO && waited > max {
            self.shrink(settings);
        } else if self.window < max && waited < max {
            self.grow(max, settings);
        }
    }

    fn grow(&mut self, max: Ns, settings: &Settings) {
        if settings.grow > 0 {
            self.window = (self.window * settings.grow)
                .max(settings.grow_start)
                .min(max);
        }
    }

    fn shrink(&mut self, settings: &Settings) {
        let smaller = match settings.shrink {
            0 => Ns::ZERO,
            n => self.window / n,
        };
        self.window = if smaller < settings.grow_start {
            Ns::ZERO
        } else {
            smaller
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(method: Method) -> Settings {
        Settings {
            method,
            ..Settings::default()
        }
    }

    #[test]
    fn blocking_leaves_and_polling_stays() {
        let vcpu = Vcpu::default();
        assert_eq!(vcpu.on_halt(false, &with(Method::Blocking)), Action::Block);
        assert_eq!(
            vcpu.on_halt(true, &with(Method::Polling)),
            Action::Poll(None)
        );
    }

    /// 10, 20, 40, 80, 160, then the maximum: each event comes just after the
    /// window.
    #[test]
    fn short_waits_grow_the_window_to_the_maximum() {
        let settings = with(Method::HaltPoll);
        let mut vcpu = Vcpu::default();
        assert_eq!(vcpu.on_halt(false, &settings), Action::Block, "window 0");
        let mut windows = Vec::new();
        for _ in 0..7 {
            vcpu.on_event(Ns::from_us(190), &settings);
            windows.push(vcpu.window(&settings).as_ns() / 1000);
        }
        assert_eq!(windows, [10, 20, 40, 80, 160, 200, 200]);
        assert_eq!(
            vcpu.on_halt(false, &settings),
            Action::Poll(Some(Ns::from_us(200)))
        );
    }

    #[test]
    fn a_hit_leaves_the_window_and_a_long_wait_closes_it() {
        let settings = with(Method::HaltPoll);
        let mut vcpu = Vcpu {
            window: Ns::from_us(80),
        };
        vcpu.on_event(Ns::from_us(79), &settings);
        assert_eq!(vcpu.window(&settings), Ns::from_us(80));
        vcpu.on_event(Ns::from_ms(3), &settings);
        assert_eq!(vcpu.window(&settings), Ns::ZERO);

        let by_two = Settings {
            shrink: 2,
            ..settings
        };
        let mut vcpu = Vcpu {
            window: Ns::from_us(80),
        };
        vcpu.on_event(Ns::from_ms(3), &by_two);
        assert_eq!(vcpu.window(&by_two), Ns::from_us(40));
    }

    /// B4: HaltPoll is inactive where hyperthreads are shared; B5 is not.
    #[test]
    fn only_the_enhanced_form_polls_while_others_are_ready() {
        let vcpu = Vcpu {
            window: Ns::from_us(80),
        };
        assert_eq!(vcpu.on_halt(true, &with(Method::HaltPoll)), Action::Block);
        assert_eq!(
            vcpu.on_halt(true, &with(Method::EnhancedHaltPoll)),
            Action::Poll(Some(Ns::from_us(80)))
        );
    }

    /// The same window before anything came, after a hit and after a long wait.
    #[test]
    fn a_window_that_does_not_adapt_is_always_the_longest() {
        let settings = Settings {
            adapts: false,
            ..with(Method::EnhancedHaltPoll)
        };
        let always = Action::Poll(Some(settings.enhanced_max));
        let mut vcpu = Vcpu::default();
        assert_eq!(vcpu.on_halt(true, &settings), always);
        for waited in [Ns::from_us(10), Ns::from_ms(30)] {
            vcpu.on_event(waited, &settings);
            assert_eq!(vcpu.on_halt(true, &settings), always);
        }
    }

    #[test]
    fn the_enhanced_window_goes_further() {
        let settings = with(Method::EnhancedHaltPoll);
        let mut vcpu = Vcpu::default();
        for _ in 0..20 {
            vcpu.on_event(Ns::from_us(450), &settings);
        }
        assert_eq!(
            vcpu.window(&settings),
            Ns::from_us(500).min(settings.enhanced_max)
        );
        assert!(vcpu.window(&settings) > settings.max);
    }
}
