// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the scheduler leaves the kernel although there are vCPUs, and when it comes back.
//!
//! With any scheduler of sched_ext attached a wake-up of an ordinary thread that finds its pCPU
//! idle takes 9 % longer (docs/decisions/0020), for nothing while no vCPU wants CPU time. The
//! measure is the kernel's own of each thread, and so the same whoever schedules it: what it ran
//! and what it waited. A vCPU that waits wants time, however little it gets; but one that wakes
//! for a moment on a host whose own threads are busy waits, too.

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use units::Ns;

use super::ROUND;
use crate::seat::Found;

/// Who runs for so much of a [`ROUND`] wants CPU time, in thousandths. An idle Linux guest ran for
/// half of that at most, on an emulator that makes it dear (docs/decisions/0020).
/// Who has a cap below that wants it by running for as much as the cap allows: at rest nobody
/// keeps it from more.
const RAN_PERMILLE: u64 = 100;

/// Who runs and waits for so much of it does, too. More than ten that compute on one pCPU run for
/// less than a tenth each, and so does one beside host threads that compute.
const WANTED_PERMILLE: u64 = 500;

/// A look at a vCPU takes some microseconds; with so much time for each all looks together take
/// less than 1 % of a pCPU on the largest host.
const EACH: Duration = Duration::from_millis(1);

/// What a thread had so far, by the kernel's own count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// On a CPU.
    pub(super) ran: Ns,
    /// Ready, and not on one; counted when that ends.
    pub(super) waited: Ns,
}

impl Used {
    /// Of a vCPU; `None`: it has gone, or the kernel does not count.
    pub(super) fn of(vcpu: &Found) -> Option<Self> {
        Self::of_thread(vcpu.vm, vcpu.tid)
    }

    /// By `/proc/PID/task/TID/schedstat`.
    pub(super) fn of_thread(pid: u32, tid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let mut time = || Some(Ns(words.next()?.parse().ok()?));
        Some(Self {
            ran: time()?,
            waited: time()?,
        })
    }

    /// Had somebody who has had this and `before` it had that, so long before, wanted CPU time?
    /// `cap`: most of a pCPU that it may have, in thousandths; 0: no limit.
    fn wants(self, before: Self, length: Duration, cap: u32) -> bool {
        let most = match u64::from(cap) {
            0 => RAN_PERMILLE,
            cap => cap.min(RAN_PERMILLE),
        };
        let ran = self.ran - before.ran;
        let wanted = ran + (self.waited - before.waited);
        let permille = |part: Ns| u128::from(part.0) * 1000 / length.as_nanos().max(1);
        permille(ran) >= most.into() || permille(wanted) >= WANTED_PERMILLE.into()
    }
}

/// Does it rest, or how long has nobody wanted anything?
#[derive(Debug)]
pub(super) struct Rest {
    /// After so much time without wants; `None`: never.
    after: Option<Duration>,
    rests: bool,
    looked: Instant,
    quiet_since: Instant,
    before: BTreeMap<u32, Used>,
}

impl Rest {
    /// It does not yet. `now`: the first look comes a [`ROUND`] later.
    pub(super) fn new(after: Option<Duration>, now: Instant) -> Self {
        Self {
            after,
            rests: false,
            looked: now,
            quiet_since: now,
            before: BTreeMap::new(),
        }
    }

    /// The scheduler has left the kernel for that reason and is to stay away.
    pub(super) fn rests(&self) -> bool {
        self.rests
    }

    /// It leaves the kernel.
    pub(super) fn begin(&mut self) {
        self.rests = true;
    }

    /// It is attached, or may be at once.
    pub(super) fn end(&mut self, now: Instant) {
        self.rests = false;
        self.quiet_since = now;
    }

    /// Looks at these vCPUs if a round has passed since the last look; whether nobody has
    /// wanted CPU time for long enough to leave. Ends the rest if somebody does. `used`: what
    /// one had, `None` if it has gone; `cap`: as [`Used::wants`] takes it.
    pub(super) fn look(
        &mut self,
        now: Instant,
        vcpus: &[Found],
        used: impl Fn(&Found) -> Option<Used>,
        cap: impl Fn(&Found) -> u32,
    ) -> bool {
        let Some(after) = self.after else {
            return false;
        };
        let length = now.duration_since(self.looked);
        if length < ROUND.max(EACH * u32::try_from(vcpus.len()).unwrap_or(u32::MAX)) {
            return false;
        }
        self.looked = now;
        let (mut had, mut is_wanted) = (BTreeMap::new(), false);
        for vcpu in vcpus {
            let Some(used) = used(vcpu) else {
                continue;
            };
            // A new one begins by computing: its guest boots.
            let before = self.before.get(&vcpu.tid);
            is_wanted |= before.is_none_or(|before| used.wants(*before, length, cap(vcpu)));
            had.insert(vcpu.tid, used);
        }
        if is_wanted {
            self.end(now);
        }
        self.before = had;
        !self.rests && now.duration_since(self.quiet_since) >= after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(1);

    fn vcpus(count: u32) -> Vec<Found> {
        let found = |vcpu| Found {
            vm: 7,
            tid: vcpu,
            vcpu,
        };
        (0..count).map(found).collect()
    }

    const NO_CAP: fn(&Found) -> u32 = |_| 0;

    /// Twenty rounds in each of which these threads run and wait for so many ms; the round
    /// after which it is time to leave.
    fn leaves(rest: &mut Rest, now: &mut Instant, had: &mut [Used; 2], ms: [(u64, u64); 2]) -> u32 {
        leaves_capped(rest, now, had, ms, 0)
    }

    /// The same of threads of which each has this cap.
    fn leaves_capped(
        rest: &mut Rest,
        now: &mut Instant,
        had: &mut [Used; 2],
        ms: [(u64, u64); 2],
        cap: u32,
    ) -> u32 {
        for round in 1..=20 {
            *now += ROUND;
            for (had, (ran, waited)) in had.iter_mut().zip(ms) {
                had.ran += Ns::from_ms(ran);
                had.waited += Ns::from_ms(waited);
            }
            let used = |vcpu: &Found| Some(had[vcpu.tid as usize]);
            if rest.look(*now, &vcpus(2), used, |_| cap) {
                return round;
            }
        }
        0
    }

    #[test]
    fn it_leaves_when_no_vcpu_wants_time_and_is_back_with_the_first_that_does() {
        let mut now = Instant::now();
        let mut rest = Rest::new(Some(AFTER), now);
        let mut had = [Used::default(); 2];
        assert_eq!(leaves(&mut rest, &mut now, &mut had, [(0, 0), (10, 0)]), 0);
        // It counts from the last round in which somebody did.
        let light = [(4, 40), (9, 40)];
        assert_eq!(leaves(&mut rest, &mut now, &mut had, light), 10);
        rest.begin();
        assert_eq!(leaves(&mut rest, &mut now, &mut had, light), 0);
        assert!(rest.rests(), "each runs for less than a tenth");
        assert_eq!(leaves(&mut rest, &mut now, &mut had, [(0, 0), (0, 50)]), 0);
        assert!(!rest.rests(), "one that mostly waits wants time too");
    }

    /// `set --cap 40` of eight vCPUs.
    #[test]
    fn who_may_have_less_than_a_tenth_is_kept_to_it() {
        let mut now = Instant::now();
        let mut rest = Rest::new(Some(AFTER), now);
        let mut had = [Used::default(); 2];
        assert_eq!(leaves(&mut rest, &mut now, &mut had, [(0, 0), (9, 0)]), 11);
        rest.begin();
        let mut capped = |cap, ms| {
            leaves_capped(&mut rest, &mut now, &mut had, [(0, 0), (ms, 0)], cap);
            std::mem::replace(&mut rest.rests, true)
        };
        assert!(capped(50, 4), "below its cap");
        assert!(!capped(50, 5), "as much as it may have");
        assert!(!capped(50, 9));
        assert!(capped(100, 9) && capped(250, 9), "below a tenth");
        assert!(
            !capped(250, 10),
            "a large cap is no reason to wait for more"
        );
    }

    #[test]
    fn a_new_vcpu_ends_the_rest_and_one_that_goes_does_not() {
        let start = Instant::now();
        let mut rest = Rest::new(Some(AFTER), start);
        let used = |_: &Found| Some(Used::default());
        assert!(!rest.look(start + ROUND, &vcpus(2), used, NO_CAP));
        assert!(rest.look(start + AFTER * 2, &vcpus(2), used, NO_CAP));
        rest.begin();
        let gone = |vcpu: &Found| used(vcpu).filter(|_| vcpu.tid == 0);
        assert!(!rest.look(start + AFTER * 3, &vcpus(2), gone, NO_CAP));
        assert!(rest.rests());
        assert!(!rest.look(start + AFTER * 3 + ROUND / 2, &vcpus(3), used, NO_CAP));
        assert!(rest.rests(), "not yet looked at");
        assert!(!rest.look(start + AFTER * 4, &vcpus(3), used, NO_CAP));
        assert!(!rest.rests());
    }

    #[test]
    fn who_never_rests_does_not() {
        let start = Instant::now();
        let mut rest = Rest::new(None, start);
        let used = |_: &Found| Some(Used::default());
        assert!(!rest.look(start + AFTER, &vcpus(2), used, NO_CAP));
        assert!(!rest.look(start + AFTER * 100, &vcpus(2), used, NO_CAP));
    }

    #[test]
    fn the_kernels_count_is_read() {
        let used = Used::parse("23 42 7\n").unwrap();
        assert_eq!((used.ran, used.waited), (Ns(23), Ns(42)));
        assert_eq!(Used::parse("23\n"), None);
        let own = std::process::id();
        assert!(Used::of_thread(own, own).unwrap().ran > Ns::ZERO);
        assert_eq!(Used::of_thread(own, 0), None);
    }
}
