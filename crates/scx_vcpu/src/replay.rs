// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Differential test: the same events through the rules that run in the kernel and
//! through `policy::host`, and every credit compared after every step. Any kernel with
//! BPF will do: nothing of sched_ext is called. Needs root.

use std::mem::MaybeUninit;

use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::ProgramInput;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::skel::SkelBuilder;
use policy::host::credit::Credit;
use policy::host::credit::Weight;
use policy::host::credit::credit1;
use policy::host::credit::credit2;
use policy::host::isacs;
use policy::host::vslicer;
use units::Ns;
use units::Time;

use crate::load;
use crate::load::Rules;

mod skel {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::undocumented_unsafe_blocks,
        clippy::ptr_as_ptr,
        clippy::unwrap_used,
        dead_code,
        reason = "generated"
    )]
    include!(concat!(env!("OUT_DIR"), "/replay.skel.rs"));
}

const VCPUS: usize = 5;
const STEPS: usize = 1500;
const WEIGHTS: [u32; VCPUS] = [256, 512, 100, 1, 65_535];

/// The fields of `enum sv_step_kind`.
#[derive(Clone, Copy)]
enum Kind {
    Add,
    Ready,
    Event,
    Charge,
    Pick,
    Refill,
    Reset,
}

/// `struct sv_step`.
#[derive(Clone, Copy, Default)]
struct Step {
    vcpu: usize,
    a: u64,
    c: u64,
    weight: u32,
    b: u32,
}

/// The kernel's side.
struct Kernel<'a>(skel::ReplaySkel<'a>);

impl<'a> Kernel<'a> {
    fn load(rules: &Rules, storage: &'a mut MaybeUninit<libbpf_rs::OpenObject>) -> Self {
        let mut open = skel::ReplaySkelBuilder::default().open(storage).unwrap();
        let ours = load::settings(rules).unwrap();
        let theirs = &mut open.maps.rodata_data.as_deref_mut().unwrap().settings;
        // SAFETY: both are made from the same `struct sv_settings`, plain integers.
        *theirs = unsafe { std::mem::transmute_copy(&ours) };
        Self(open.load().unwrap())
    }

    /// Does a step; the slot and the length that it answers with.
    fn step(&self, kind: Kind, step: Step) -> (u32, u64) {
        let mut bytes = Vec::new();
        bytes.extend((kind as u32).to_ne_bytes());
        bytes.extend((step.vcpu as u32).to_ne_bytes());
        bytes.extend(step.a.to_ne_bytes());
        bytes.extend(step.c.to_ne_bytes());
        bytes.extend(step.weight.to_ne_bytes());
        bytes.extend(step.b.to_ne_bytes());
        bytes.resize(48, 0);
        let input = ProgramInput {
            context_in: Some(&mut bytes),
            ..ProgramInput::default()
        };
        let done = self.0.progs.replay.test_run(input).unwrap();
        assert_eq!(done.return_value, 0);
        let slot = u32::from_ne_bytes(bytes[40..44].try_into().unwrap());
        (slot, u64::from_ne_bytes(bytes[32..40].try_into().unwrap()))
    }

    /// Does a step that has one number.
    fn one(&self, kind: Kind, vcpu: usize, a: u64) -> (u32, u64) {
        let step = Step {
            vcpu,
            a,
            ..Step::default()
        };
        self.step(kind, step)
    }

    fn add(&self, class: impl Fn(usize) -> u32) {
        for (vcpu, weight) in WEIGHTS.into_iter().enumerate() {
            let b = class(vcpu);
            self.step(
                Kind::Add,
                Step {
                    vcpu,
                    weight,
                    b,
                    ..Step::default()
                },
            );
        }
    }

    /// A 64-bit field of `struct sv_vcpu`.
    fn field(&self, vcpu: usize, at: usize) -> u64 {
        read(&self.0.maps.table, vcpu, at)
    }
}

fn read(map: &impl MapCore, key: usize, at: usize) -> u64 {
    let key = u32::try_from(key).unwrap().to_ne_bytes();
    let bytes = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// SplitMix64: the same events each time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    /// Some of the vCPUs, at least one; the kernel's side is told.
    fn ready(&mut self, kernel: &Kernel<'_>) -> Vec<usize> {
        let always = self.below(VCPUS as u64) as usize;
        let ready: Vec<usize> = (0..VCPUS)
            .filter(|vcpu| *vcpu == always || self.below(3) > 0)
            .collect();
        for vcpu in 0..VCPUS {
            let b = u32::from(ready.contains(&vcpu));
            kernel.step(
                Kind::Ready,
                Step {
                    vcpu,
                    b,
                    ..Step::default()
                },
            );
        }
        ready
    }

    /// How long a turn lasted for which `asked` was given: less, as much, or a tick more.
    fn ran(&mut self, asked: Ns) -> Ns {
        match self.below(3) {
            0 => asked,
            1 => Ns(self.below(asked.0.max(1))),
            _ => asked + Ns(self.below(4_000_000)),
        }
    }
}

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
        with(|s| {
            s.boost_unit = Ns::from_ms(1);
            s.boost_counts_as_consumed = true;
        }),
    ]
}

#[test]
fn root_isacs_in_bpf_gives_the_credits_of_policy_host() {
    let (mut reallocations, mut boosts) = (0, 0);
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
            for (at, vcpu) in table.iter().enumerate() {
                let ours = [
                    vcpu.credit.0.cast_unsigned(),
                    vcpu.endcredit.0.cast_unsigned(),
                    vcpu.cvcredit.0.cast_unsigned(),
                    vcpu.ivcredit.0,
                    vcpu.consumed.0,
                    vcpu.events.last.map_or(0, |last| last.0),
                    vcpu.events.counted,
                    vcpu.events.total,
                    vcpu.events.ema.unwrap_or_default().0,
                    u64::from(vcpu.events.ema.is_some()) | u64::from(vcpu.in_group) << 32,
                ];
                let fields = [112, 192, 200, 208, 216, 224, 232, 240, 248, 256];
                let theirs = fields.map(|field| kernel.field(at, field));
                assert_eq!(theirs, ours, "vCPU {at}, {context}");
            }
            let pcpu = |at| read(&kernel.0.maps.pcpus, 0, at);
            assert_eq!(pcpu(72), queue.io_load.0, "{context}");
            assert_eq!(pcpu(80), queue.io_events, "{context}");
            assert_eq!(pcpu(64) as u32, u32::from(queue.cpu_boost), "{context}");
        }
    }
    assert!(
        reallocations > 500 && boosts > 500,
        "{reallocations} {boosts}"
    );
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
            round.on_charge(&mut table[turn.vcpu], ran);
            kernel.one(Kind::Charge, turn.vcpu, ran.0);
            for (at, vcpu) in table.iter().enumerate() {
                assert_eq!(kernel.field(at, 184), vcpu.left.0, "vCPU {at}, step {step}");
            }
        }
    }
}

#[test]
fn root_credit1_in_bpf_gives_the_credits_of_policy_host() {
    for (seed, limit) in [Ns::from_ms(30), Ns::ZERO].into_iter().enumerate() {
        let settings = credit1::Settings {
            credit_limit: limit,
            ..credit1::Settings::default()
        };
        let mut storage = MaybeUninit::uninit();
        let kernel = Kernel::load(&Rules::Credit1(settings.clone()), &mut storage);
        kernel.add(|_| 0);
        let mut table: Vec<credit1::Vcpu> = WEIGHTS
            .iter()
            .map(|weight| credit1::Vcpu {
                weight: Weight::new(*weight),
                ..credit1::Vcpu::default()
            })
            .collect();
        let mut random = Random(seed as u64);
        for step in 0..STEPS {
            if random.below(4) == 0 {
                let active = random.ready(&kernel);
                credit1::refill(&mut table, &active, 2, &settings);
                let weights: u64 = active.iter().map(|v| u64::from(WEIGHTS[*v])).sum();
                for vcpu in active {
                    let pool = settings.refill_period * 2;
                    kernel.step(
                        Kind::Refill,
                        Step {
                            vcpu,
                            a: pool.0,
                            c: weights,
                            ..Step::default()
                        },
                    );
                }
            } else {
                let (vcpu, ran) = (random.below(5) as usize, random.ran(settings.slice));
                table[vcpu].on_charge(ran, &settings);
                kernel.one(Kind::Charge, vcpu, ran.0);
            }
            for (at, vcpu) in table.iter().enumerate() {
                let theirs = Credit(kernel.field(at, 112).cast_signed());
                assert_eq!(theirs, vcpu.credit, "vCPU {at}, step {step}");
            }
        }
    }
}

#[test]
fn root_credit2_in_bpf_gives_the_credits_of_policy_host() {
    for (seed, reset) in [credit2::Reset::Replace, credit2::Reset::AddToDebt]
        .into_iter()
        .enumerate()
    {
        let settings = credit2::Settings {
            reset,
            ..credit2::Settings::default()
        };
        let mut storage = MaybeUninit::uninit();
        let kernel = Kernel::load(&Rules::Credit2(settings.clone()), &mut storage);
        kernel.add(|_| 0);
        let mut table: Vec<credit2::Vcpu> = WEIGHTS
            .iter()
            .map(|weight| credit2::Vcpu::new(Weight::new(*weight), &settings))
            .collect();
        let members: Vec<usize> = (0..VCPUS).collect();
        let mut random = Random(seed as u64);
        for step in 0..STEPS {
            if random.below(4) == 0 {
                credit2::reset(&mut table, &members, &settings);
                for vcpu in 0..VCPUS {
                    kernel.one(Kind::Reset, vcpu, 0);
                }
            } else {
                let (vcpu, ran) = (random.below(5) as usize, random.ran(settings.slice));
                table[vcpu].on_charge(ran, &settings);
                kernel.one(Kind::Charge, vcpu, ran.0);
            }
            for (at, vcpu) in table.iter().enumerate() {
                let theirs = Credit(kernel.field(at, 112).cast_signed());
                assert_eq!(theirs, vcpu.credit, "vCPU {at}, step {step}");
            }
        }
    }
}
