// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Differential test: the same events through the rules that run in the kernel and
//! through `policy::host`, and every credit compared after every step. Any kernel with
//! BPF will do: nothing of sched_ext is called. Needs root.

mod credit2;
mod kernel;
mod waiting;

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use policy::host::credit::Wake;
use policy::host::credit::Weight;
use policy::host::credit::credit1;
use policy::host::isacs;
use policy::host::ische;
use policy::host::vslicer;
use units::Ns;
use units::Time;

use crate::config::Class;
use crate::load::Rules;
use crate::roster::Knobs;
use crate::seat::Found;
use crate::tell;
use kernel::Kernel;
use kernel::Kind;
use kernel::Random;
use kernel::VCPUS;
use kernel::WEIGHTS;
use kernel::entry;
use kernel::sv_pcpu;
use kernel::sv_step;

const STEPS: usize = 1500;

/// All switches, one by one and all fixes together.
fn isacs_settings() -> Vec<isacs::Settings> {
    let with = |change: fn(&mut isacs::Settings)| {
        let mut settings = isacs::Settings::default();
        change(&mut settings);
        settings
    };
    vec![
        isacs::Settings::default(),
        isacs::Settings::hardened(),
        with(|s| s.equation_2 = isacs::Equation2::AsPrinted),
        with(|s| s.fall_through_burns = true),
        with(|s| s.keeps_old_choice = true),
        with(|s| s.one_pass = true),
        with(|s| s.late_events_count = true),
        with(|s| {
            s.spent_strictly_below = true;
            s.boost_strictly_below = true;
        }),
        with(|s| s.keeps_debt = true),
        with(|s| s.wake_in_boost = isacs::WakeInBoost::Preempts),
        with(|s| s.slice_ends_with_credit = true),
        with(|s| {
            s.boost_unit = Ns::from_ms(1);
            s.boost_counts_as_consumed = true;
        }),
    ]
}

/// A thread may end between being found and being marked; that ends no scheduler.
#[test]
fn root_a_thread_that_has_gone_is_not_marked_and_no_error() {
    let mut storage = MaybeUninit::uninit();
    let kernel = Kernel::load(&Rules::Never, &mut storage);
    let knobs = &kernel.0.maps.vcpus;
    let worth = Knobs {
        weight: 256,
        cap_permille: 0,
        class: Class::Cpu,
        home: None,
        slice: Ns::ZERO,
        latency: Ns::ZERO,
        cpus: None,
    };
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let found = Found {
        vm: 1,
        tid: child.id(),
        vcpu: 0,
    };
    assert!(tell::mark(knobs, found, worth).unwrap(), "it is there");
    let pid = rustix::process::Pid::from_child(&child);
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!tell::mark_at(knobs, pidfd.as_fd(), found, worth).unwrap());
    assert!(!tell::mark(knobs, found, worth).unwrap());
}

#[test]
fn root_isacs_in_bpf_gives_the_credits_of_policy_host() {
    let (mut reallocations, mut boosts, mut wakes) = (0, 0, [0; 2]);
    for (seed, settings) in isacs_settings().into_iter().enumerate() {
        let mut storage = MaybeUninit::uninit();
        let kernel = Kernel::load(&Rules::Isacs(settings.clone()), &mut storage);
        kernel.add(|_| 0);
        let mut table: Vec<isacs::Vcpu> = WEIGHTS
            .iter()
            .map(|weight| isacs::Vcpu::new(Weight::new(*weight), &settings))
            .collect();
        let mut queue = isacs::RunQ {
            members: (0..VCPUS).collect(),
            ..isacs::RunQ::default()
        };
        let mut random = Random(seed as u64);
        let (mut now, mut since, mut last_ran) = (Time(1), Time(0), Ns::ZERO);
        for step in 0..STEPS {
            for _ in 0..random.below(6) {
                // vCPU 0 does most I/O, vCPU 4 none.
                let vcpu = (random.below(4) * random.below(2)) as usize;
                now = now + Ns(random.below(12_000_000) / (1 + random.below(20)));
                kernel.one(Kind::Event, vcpu, now.0);
                table[vcpu].events.on_event(now, &settings);
            }
            let ready = random.ready(&kernel);
            let elapsed = now.since(since);
            let pick = isacs::pick(&mut queue, &mut table, &ready, last_ran, elapsed, &settings);
            let pick = pick.unwrap();
            if pick.reallocated {
                since = now;
                reallocations += 1;
            }
            boosts += u32::from(queue.cpu_boost);
            let turn = queue.slice(&table[pick.vcpu], &settings);
            let answer = kernel.one(Kind::Pick, 0, now.0);
            let context = format!("{settings:?}, step {step}");
            assert_eq!(answer, (pick.vcpu as u32 + 1, turn.0), "{context}");
            last_ran = random.ran(turn);
            now = now + last_ran;
            queue.on_charge(&mut table[pick.vcpu], last_ran, &settings);
            kernel.one(Kind::Charge, pick.vcpu, last_ran.0);
            let waking = random.below(VCPUS as u64) as usize;
            let first = isacs::wakes_before(&queue, &table[waking], &table[pick.vcpu], &settings);
            wakes[usize::from(first)] += 1;
            let wake = sv_step {
                vcpu: waking as u32,
                b: pick.vcpu as u32,
                ..sv_step::default()
            };
            let theirs = kernel.step(Kind::Wake, wake).0;
            assert_eq!(theirs, u32::from(first), "{waking} wakes, {context}");
            for (at, vcpu) in table.iter().enumerate() {
                let ours = (
                    [vcpu.credit.0, vcpu.endcredit.0, vcpu.cvcredit.0],
                    [vcpu.ivcredit.0, vcpu.consumed.0],
                    vcpu.events.last.map_or(0, |last| last.0),
                    [vcpu.events.counted, vcpu.events.total],
                    vcpu.events.ema.unwrap_or_default().0,
                    [vcpu.events.ema.is_some(), vcpu.in_group].map(u32::from),
                );
                let v = kernel.vcpu(at);
                let theirs = (
                    [v.credit, v.endcredit, v.cvcredit],
                    [v.ivcredit, v.consumed],
                    v.event_at_ns,
                    [v.events_counted, v.events],
                    v.event_ema_ns,
                    [v.event_ema_valid, v.in_group],
                );
                assert_eq!(theirs, ours, "vCPU {at}, {context}");
            }
            let pcpu: sv_pcpu = entry(&kernel.0.maps.pcpus, 0);
            assert_eq!(pcpu.io_load_ns, queue.io_load.0, "{context}");
            assert_eq!(pcpu.io_events, queue.io_events, "{context}");
            assert_eq!(pcpu.cpu_boost, u32::from(queue.cpu_boost), "{context}");
        }
    }
    assert!(
        reallocations > 500 && boosts > 500,
        "{reallocations} {boosts}"
    );
    assert!(wakes.iter().all(|count| *count > 500), "{wakes:?}");
}

#[test]
fn root_vslicer_in_bpf_gives_the_turns_of_policy_host() {
    for (seed, micro) in [5, 7, 30].map(Ns::from_ms).into_iter().enumerate() {
        let settings = vslicer::Settings {
            micro,
            ..vslicer::Settings::default()
        };
        let mut storage = MaybeUninit::uninit();
        let kernel = Kernel::load(&Rules::Vslicer(settings.clone()), &mut storage);
        let sensitive = |vcpu: usize| vcpu % 3 == seed % 3;
        kernel.add(|vcpu| u32::from(sensitive(vcpu)));
        let mut table: Vec<vslicer::Vcpu> = (0..VCPUS)
            .map(|vcpu| vslicer::Vcpu {
                latency_sensitive: sensitive(vcpu),
                left: Ns::ZERO,
                owed: Ns::ZERO,
            })
            .collect();
        let mut round = vslicer::Round::default();
        let mut random = Random(seed as u64);
        for step in 0..STEPS {
            let ready = random.ready(&kernel);
            let turn = round.pick(&mut table, |vcpu| ready.contains(&vcpu), &settings);
            let turn = turn.unwrap();
            let answer = kernel.one(Kind::Pick, 0, 0);
            let ours = (turn.vcpu as u32 + 1, turn.slice.0);
            assert_eq!(answer, ours, "{settings:?}, step {step}");
            let ran = random.ran(turn.slice);
            round.on_charge(&mut table[turn.vcpu], ran, &settings);
            kernel.one(Kind::Charge, turn.vcpu, ran.0);
            for (at, vcpu) in table.iter().enumerate() {
                let there = kernel.vcpu(at);
                assert_eq!(
                    (there.left_ns, there.owed_ns),
                    (vcpu.left.0, vcpu.owed.0),
                    "vCPU {at}, step {step}"
                );
            }
        }
    }
}

#[test]
fn root_credit1_and_ische_in_bpf_give_the_credits_of_policy_host() {
    let mut hand_outs = 0;
    // What its weight leaves a vCPU of credit is rarely nothing: at first it is.
    let mut at_zero = [0; 2];
    // iSche's credits are Credit1's.
    for (seed, (limit, zero_is_under, boost_needs_under, is_ische)) in [
        (Ns::from_ms(30), false, false, false),
        (Ns::from_ms(2), true, false, false),
        (Ns::ZERO, false, true, false),
        (Ns::ZERO, true, true, false),
        (Ns::from_ms(30), false, false, true),
        (Ns::ZERO, true, true, true),
    ]
    .into_iter()
    .enumerate()
    {
        let settings = credit1::Settings {
            credit_limit: limit,
            zero_is_under,
            boost_needs_under,
            ..credit1::Settings::default()
        };
        let rules = if is_ische {
            Rules::Ische(ische::Settings {
                credit: settings.clone(),
                ..ische::Settings::default()
            })
        } else {
            Rules::Credit1(settings.clone())
        };
        let mut storage = MaybeUninit::uninit();
        let kernel = Kernel::load(&rules, &mut storage);
        kernel.add(|_| 0);
        let mut table: Vec<credit1::Vcpu> = WEIGHTS
            .iter()
            .map(|weight| credit1::Vcpu {
                weight: Weight::new(*weight),
                ..credit1::Vcpu::default()
            })
            .collect();
        let mut parts = vec![credit1::Part::default(); VCPUS];
        let mut pool = credit1::Pool::default();
        for (vcpu, part) in table.iter().zip(&mut parts) {
            pool.join(vcpu, part);
        }
        let mut random = Random(seed as u64);
        let mut now = Time(1);
        for step in 0..STEPS {
            let at = random.below(VCPUS as u64) as usize;
            let (vcpu, part) = (&mut table[at], &mut parts[at]);
            match random.below(9) {
                8 => {
                    let io = random.below(2);
                    let wake = if io == 1 { Wake::Io } else { Wake::Other };
                    vcpu.on_wake(wake, &settings);
                    let step = sv_step {
                        vcpu: at as u32,
                        b: io as u32,
                        ..sv_step::default()
                    };
                    kernel.step(Kind::Wake, step);
                    if vcpu.credit.0 == 0 && io == 1 {
                        at_zero[usize::from(vcpu.boosted)] += 1;
                    }
                    let boosted = kernel.vcpu(at).boosted;
                    assert_eq!(
                        boosted,
                        u32::from(vcpu.boosted),
                        "{settings:?}, step {step:?}"
                    );
                }
                0 => {
                    let weight = WEIGHTS[random.below(VCPUS as u64) as usize];
                    vcpu.weight = Weight::new(weight);
                    let step = sv_step {
                        vcpu: at as u32,
                        weight,
                        ..sv_step::default()
                    };
                    kernel.step(Kind::Weight, step);
                }
                1 => {
                    let ready = random.ready(&kernel);
                    for (at, (vcpu, part)) in table.iter_mut().zip(&mut parts).enumerate() {
                        match (part.counts(), ready.contains(&at)) {
                            (false, true) => pool.join(vcpu, part),
                            (true, false) => pool.sleep(vcpu, part, &settings),
                            _ => {}
                        }
                    }
                }
                2 | 3 => {
                    hand_outs += u32::from(pool.hand_out(now, &settings));
                    pool.take(vcpu, part);
                    let class = vcpu.priority(&settings) as u32;
                    assert_eq!(kernel.one(Kind::Pick, at, now.0).0, class, "step {step}");
                }
                _ => {
                    let ran = random.ran(settings.slice);
                    now = now + ran;
                    pool.on_charge(vcpu, part, ran, &settings);
                    kernel.one(Kind::Charge, at, ran.0);
                }
            }
            kernel.has_credits(table.iter().map(|vcpu| vcpu.credit), step);
        }
    }
    assert!(hand_outs > 500, "{hand_outs}");
    // Nothing left is a right to BOOST under some of these and none under others.
    assert!(at_zero.iter().all(|count| *count > 0), "{at_zero:?}");
}
