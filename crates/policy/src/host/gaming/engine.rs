// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One pCPU, one attacker (vCPU 0), the others compute. No costs: what is
//! measured is the policy alone.

use units::Ns;
use units::Time;

use crate::host::credit::Wake;

/// What vCPU 0 does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Attack {
    /// Uses `run` of CPU time, then sleeps.
    Sleeps { run: Ns, sleep: Ns, io: bool },
    /// Computes, but is never there at a multiple of `tick`.
    DodgesTicks { tick: Ns },
    /// Computes, and gets `burst` response events 1 us apart every `every`, and a
    /// single one halfway between: the newest interval, which weighs most, is long.
    FakesEvents { every: Ns, burst: u64 },
}

/// A policy on one pCPU with vCPUs 0..n.
pub(super) trait Scheduler {
    /// Makes `v` runnable; does it preempt `running`, which is charged?
    fn wake(&mut self, v: usize, wake: Wake, running: Option<usize>) -> bool;
    /// `v` ran and stays runnable or sleeps.
    fn charge(&mut self, v: usize, ran: Ns);
    /// `v` stops running: `sleeps` or goes back to the queue.
    fn stop(&mut self, v: usize, sleeps: bool);
    /// The next of those that are not asleep, and for how long.
    fn pick(&mut self, now: Time) -> Option<(usize, Ns)>;
    /// A response event for `v`.
    fn event(&mut self, _v: usize, _now: Time) {}
    /// Every 10 ms, with who is running.
    fn tick(&mut self, _now: Time, _running: Option<usize>) {}
}

const TICK: Ns = Ns::from_ms(10);

struct Now {
    time: Time,
    /// Who runs, since when it has not been charged, and until when at most.
    running: Option<(usize, Time, Time)>,
    ran: Vec<Ns>,
    attacker_ran: Ns,
    /// When the attacker wakes.
    wakes: Option<Time>,
    next_events: Time,
    halfway: bool,
    next_tick: Time,
}

impl Now {
    fn charge<S: Scheduler>(&mut self, s: &mut S) {
        if let Some((v, since, until)) = self.running {
            let ran = self.time.since(since);
            s.charge(v, ran);
            self.ran[v] += ran;
            if v == 0 {
                self.attacker_ran += ran;
            }
            self.running = Some((v, self.time, until));
        }
    }

    /// When the attacker, if it runs, would go to sleep.
    fn sleeps_at(&self, attack: Attack) -> Option<Time> {
        let (0, since, _) = self.running? else {
            return None;
        };
        match attack {
            Attack::Sleeps { run, .. } => Some(since + (run - self.attacker_ran)),
            Attack::DodgesTicks { tick } => {
                let next = (since.as_ns() / tick.as_ns() + 1) * tick.as_ns();
                Some(Time(next - 20_000).max(since))
            }
            Attack::FakesEvents { .. } => None,
        }
    }
}

/// CPU time of each vCPU after `duration`.
pub(super) fn run<S: Scheduler>(mut s: S, vcpus: usize, attack: Attack, duration: Ns) -> Vec<Ns> {
    let end = Time::ZERO + duration;
    let never = Time(u64::MAX);
    let mut now = Now {
        time: Time::ZERO,
        running: None,
        ran: vec![Ns::ZERO; vcpus],
        attacker_ran: Ns::ZERO,
        wakes: None,
        next_events: match attack {
            Attack::FakesEvents { every, .. } => Time::ZERO + every,
            _ => never,
        },
        halfway: false,
        next_tick: Time::ZERO + TICK,
    };
    for v in 0..vcpus {
        s.wake(v, Wake::Other, None);
    }
    while now.time < end {
        if now.running.is_none()
            && let Some((v, slice)) = s.pick(now.time)
        {
            now.running = Some((v, now.time, now.time + slice));
        }
        let slice_end = now.running.map_or(never, |(_, _, until)| until);
        let sleeps_at = now.sleeps_at(attack).unwrap_or(never);
        let next = slice_end
            .min(sleeps_at)
            .min(now.wakes.unwrap_or(never))
            .min(now.next_events)
            .min(now.next_tick)
            .min(end);
        assert!(next >= now.time, "time goes backwards");
        now.time = next;
        now.charge(&mut s);

        if now.time == now.next_tick {
            now.next_tick = now.time + TICK;
            s.tick(now.time, now.running.map(|r| r.0));
        }
        if let Attack::FakesEvents { every, burst } = attack
            && now.time == now.next_events
        {
            let of_now = if now.halfway { 1 } else { burst };
            for i in 0..of_now {
                s.event(0, now.time + Ns::from_us(i));
            }
            now.halfway = !now.halfway;
            now.next_events = now.time + (every / 2).max(Ns::from_us(burst));
        }
        if now.time == sleeps_at {
            now.running = None;
            now.attacker_ran = Ns::ZERO;
            s.stop(0, true);
            now.wakes = Some(
                now.time
                    + match attack {
                        Attack::Sleeps { sleep, .. } => sleep,
                        _ => Ns::from_us(40),
                    },
            );
        } else if now.time == slice_end {
            let (v, ..) = now.running.take().unwrap();
            s.stop(v, false);
        }
        if now.wakes == Some(now.time) {
            now.wakes = None;
            let wake = match attack {
                Attack::Sleeps { io: true, .. } => Wake::Io,
                _ => Wake::Other,
            };
            if wake == Wake::Io {
                s.event(0, now.time);
            }
            let running = now.running.map(|r| r.0);
            if s.wake(0, wake, running)
                && let Some((v, ..)) = now.running.take()
            {
                s.stop(v, false);
            }
        }
    }
    now.charge(&mut s);
    let total: Ns = now.ran.iter().copied().sum();
    assert!(total <= duration, "more time than there is");
    now.ran
}
