// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit2: two pCPUs with a queue each, ordered by the places that the kernel's side names,
//! beside `policy::host` with its lists in order of arrival.

use std::mem::MaybeUninit;

use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use policy::host::credit::Weight;
use policy::host::credit::credit2::Reset;
use policy::host::credit::credit2::Settings;
use policy::host::credit::credit2::Vcpu;
use policy::host::credit::credit2::pick;
use units::Ns;

use super::STEPS;
use super::kernel::CPUS;
use super::kernel::Kernel;
use super::kernel::Kind;
use super::kernel::Random;
use super::kernel::VCPUS;
use super::kernel::WEIGHTS;
use super::kernel::entry;
use super::kernel::sv_pcpu;
use super::kernel::sv_step;
use crate::load::Rules;

/// `MIN_REST_NS`
const LEAST: Ns = Ns::from_us(100);

/// Both sides.
struct Host<'a> {
    kernel: Kernel<'a>,
    settings: Settings,
    table: Vec<Vcpu>,
    /// The pCPU in whose queue a vCPU counts.
    home: [usize; VCPUS],
    /// Who waits on each pCPU and its place there, in order of arrival.
    waits: [Vec<(usize, u64)>; CPUS],
    runs: [Option<usize>; CPUS],
}

/// Is place `a` before `b`? As the kernel compares them: numbers that wrap.
fn before(a: u64, b: u64) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

impl<'a> Host<'a> {
    fn new(settings: &Settings, storage: &'a mut MaybeUninit<libbpf_rs::OpenObject>) -> Self {
        let kernel = Kernel::load(&Rules::Credit2(settings.clone()), storage);
        kernel.add(|_| 0);
        let table = WEIGHTS.map(|weight| Vcpu::new(Weight::new(weight), settings));
        Self {
            kernel,
            settings: settings.clone(),
            table: table.to_vec(),
            home: [0; VCPUS],
            waits: [const { Vec::new() }; CPUS],
            runs: [None; CPUS],
        }
    }

    /// A pCPU has had so many resets.
    fn has_reset(&self, cpu: u32, resets: u64) {
        let pcpus = &self.kernel.0.maps.pcpus;
        let mut bytes = pcpus
            .lookup(&cpu.to_ne_bytes(), MapFlags::ANY)
            .unwrap()
            .unwrap();
        let at = std::mem::offset_of!(sv_pcpu, resets);
        bytes[at..at + 8].copy_from_slice(&resets.to_ne_bytes());
        pcpus
            .update(&cpu.to_ne_bytes(), &bytes, MapFlags::ANY)
            .unwrap();
    }

    /// A vCPU comes into the queue of a pCPU.
    fn wait(&mut self, vcpu: usize, cpu: usize) {
        self.home[vcpu] = cpu;
        let step = sv_step {
            vcpu: vcpu as u32,
            b: cpu as u32,
            ..sv_step::default()
        };
        let (_, place) = self.kernel.step(Kind::Wait, step);
        self.waits[cpu].push((vcpu, place));
    }

    /// The first of those that wait on a pCPU.
    fn first(&self, cpu: usize) -> Option<usize> {
        let waits = self.waits[cpu].iter();
        let first = waits.reduce(|best, one| if before(one.1, best.1) { one } else { best });
        first.map(|(vcpu, _)| *vcpu)
    }

    fn leave(&mut self, vcpu: usize, cpu: usize) {
        self.waits[cpu].retain(|(one, _)| *one != vcpu);
    }

    fn charge(&mut self, vcpu: usize, ran: Ns) {
        self.table[vcpu].on_charge(ran, &self.settings);
        self.kernel.one(Kind::Charge, vcpu, ran.0);
    }

    /// A pCPU decides; `ran` is the one that could run on. Both sides say the same.
    fn decide(&mut self, cpu: usize, ran: Option<usize>, context: &str) -> bool {
        let next = self.first(cpu);
        let Some(one) = next.or(ran) else {
            self.runs[cpu] = None;
            return false;
        };
        let slot = |vcpu: Option<usize>| vcpu.map_or(0, |vcpu| vcpu as u32 + 1);
        let step = sv_step {
            vcpu: one as u32,
            a: slot(next).into(),
            b: slot(ran),
            ..sv_step::default()
        };
        let theirs = self.kernel.step(Kind::Pick, step);

        let members: Vec<usize> = (0..VCPUS).filter(|v| self.home[*v] == cpu).collect();
        let waits = self.waits[cpu].iter().map(|(vcpu, _)| *vcpu);
        let runnable: Vec<usize> = waits.chain(ran).collect();
        let ours = pick(&mut self.table, &members, &runnable, &self.settings).unwrap();
        let turn = self.table[ours.vcpu].slice(&self.settings).max(LEAST);
        assert_eq!(theirs, (ours.vcpu as u32 + 1, turn.0), "{context}");

        self.leave(ours.vcpu, cpu);
        if let Some(ran) = ran.filter(|ran| *ran != ours.vcpu) {
            self.wait(ran, cpu);
        }
        self.runs[cpu] = Some(ours.vcpu);
        ours.reset
    }

    /// How many credits could be compared: of those that have taken part in all resets.
    fn compare(&self, context: &str) -> usize {
        let mut compared = 0;
        for (at, ours) in self.table.iter().enumerate() {
            let pcpu: sv_pcpu = entry(&self.kernel.0.maps.pcpus, self.home[at]);
            let theirs = self.kernel.vcpu(at);
            if theirs.resets == pcpu.resets && theirs.cpu as usize == self.home[at] {
                assert_eq!(theirs.credit, ours.credit.0, "vCPU {at}, {context}");
                compared += 1;
            }
        }
        compared
    }
}

fn all_settings() -> Vec<Settings> {
    let flags = [false, true];
    let mut all = Vec::new();
    for reset in [Reset::Replace, Reset::AddToDebt] {
        for reset_at_zero in flags {
            for slice_ends_with_credit in flags {
                all.push(Settings {
                    reset,
                    reset_at_zero,
                    slice_ends_with_credit,
                    // Whole turns come to exactly nothing, and debts to several resets.
                    default_credit: Ns::from_ms(20),
                    ..Settings::default()
                });
            }
        }
    }
    all
}

/// Turns, sleep, wake-ups on either pCPU (K10), and a pCPU that takes from the other.
#[test]
fn root_credit2_in_bpf_chooses_as_policy_host_and_gives_its_credits() {
    let (mut resets, mut compared, mut taken, mut wakes) = (0, 0, 0, [0; 2]);
    for (seed, settings) in all_settings().into_iter().enumerate() {
        let mut storage = MaybeUninit::uninit();
        let mut host = Host::new(&settings, &mut storage);
        let mut random = Random(seed as u64);
        for vcpu in 0..VCPUS {
            host.wait(vcpu, random.below(CPUS as u64) as usize);
        }
        for step in 0..STEPS {
            let context = format!("{settings:?}, step {step}");
            let cpu = random.below(CPUS as u64) as usize;
            let runs = host.runs[cpu];
            let asleep: Vec<usize> = (0..VCPUS)
                .filter(|vcpu| {
                    !host.runs.contains(&Some(*vcpu))
                        && host.waits.iter().flatten().all(|(one, _)| one != vcpu)
                })
                .collect();
            if !asleep.is_empty() && random.below(3) == 0 {
                let vcpu = asleep[random.below(asleep.len() as u64) as usize];
                host.wait(vcpu, cpu);
                let Some(holder) = runs else { continue };
                let ran = Ns(random.below(settings.slice.0));
                let wake = sv_step {
                    vcpu: vcpu as u32,
                    a: ran.0,
                    b: holder as u32,
                    ..sv_step::default()
                };
                let theirs = host.kernel.step(Kind::Wake, wake).0;
                let mut charged = host.table[holder].clone();
                charged.on_charge(ran, &settings);
                let ours = host.table[vcpu].preempts(&charged);
                assert_eq!(theirs, u32::from(ours), "{context}");
                wakes[usize::from(ours)] += 1;
                if !ours {
                    continue;
                }
                host.charge(holder, ran);
                resets += u32::from(host.decide(cpu, runs, &context));
            } else {
                let mut ran = None;
                if let Some(vcpu) = runs {
                    let turn = host.table[vcpu].slice(&settings).max(LEAST);
                    host.charge(vcpu, random.ran(turn));
                    ran = runs.filter(|_| random.below(4) > 0);
                }
                resets += u32::from(host.decide(cpu, ran, &context));
                // K14: nobody here, so one that waits elsewhere.
                let other = 1 - cpu;
                if host.runs[cpu].is_none()
                    && let Some(vcpu) = host.first(other)
                {
                    let step = sv_step {
                        vcpu: vcpu as u32,
                        b: cpu as u32,
                        ..sv_step::default()
                    };
                    host.kernel.step(Kind::Move, step);
                    host.leave(vcpu, other);
                    host.home[vcpu] = cpu;
                    host.runs[cpu] = Some(vcpu);
                    taken += 1;
                }
            }
            compared += host.compare(&context);
        }
    }
    assert!(resets > 300 && taken > 300, "{resets} {taken}");
    assert!(compared > 20_000, "{compared}");
    assert!(wakes.iter().all(|count| *count > 100), "{wakes:?}");
}

/// Two turns in a row that late timers make five times as long: whoever had the first one
/// has waited longest and is next, though it owes more.
#[test]
fn root_credit2_in_bpf_serves_debtors_in_turn() {
    let settings = Settings::default();
    let mut storage = MaybeUninit::uninit();
    let mut host = Host::new(&settings, &mut storage);
    // Of equal weight: the first two are, in what they burn.
    for (vcpu, ran) in [(0, 50), (1, 40 * 2)] {
        host.charge(vcpu, Ns::from_ms(ran));
        host.wait(vcpu, 0);
    }
    assert!(host.table[0].credit < host.table[1].credit);
    assert!(host.decide(0, None, "both owe"), "a reset was due");
    assert_eq!(host.runs[0], Some(0));
}

/// K12 for one that waits for its cap on another pCPU than the one where it slept: it has
/// the resets of the queue that it leaves, and of the other one those that come then.
#[test]
fn root_credit2_in_bpf_a_capped_vcpu_has_the_resets_of_where_it_was() {
    let parked = |kernel: &Kernel<'_>| entry::<sv_pcpu>(&kernel.0.maps.pcpus, 1).parked;
    // Resets of the pCPU that it leaves, of the other one before, and while it waits there;
    // what it has then, ms: 7, or what a reset gives.
    for (left, before, meanwhile, credit) in
        [(0, 0, 0, 7), (0, 3, 0, 7), (1, 3, 0, 10), (0, 3, 1, 10)]
    {
        let context = format!("{left} {before} {meanwhile}");
        let mut storage = MaybeUninit::uninit();
        let mut host = Host::new(&Settings::default(), &mut storage);
        host.charge(0, Ns::from_ms(3));
        host.has_reset(0, left);
        host.has_reset(1, before);
        let park = sv_step {
            b: 1,
            ..sv_step::default()
        };
        host.kernel.step(Kind::Park, park);
        assert_eq!(parked(&host.kernel), 1, "{context}");
        host.has_reset(1, before + meanwhile);
        host.kernel.step(Kind::Unpark, sv_step::default());
        assert_eq!(parked(&host.kernel), 0, "{context}");
        let credit = Ns::from_ms(credit).0.cast_signed();
        assert_eq!(host.kernel.vcpu(0).credit, credit, "{context}");
    }
}

/// A turn that ends with its vCPU's credit ends with what the reset gives that makes it
/// begin, and not with what there was in the queue. An interrupted one has its rest.
#[test]
fn root_credit2_in_bpf_a_turn_has_the_credit_with_which_it_begins() {
    for (slice_ends_with_credit, in_queue, then) in [
        (true, LEAST, Ns::from_ms(4)),
        (false, Ns::from_ms(10), Ns::from_ms(10)),
    ] {
        let settings = Settings {
            slice_ends_with_credit,
            default_credit: Ns::from_ms(4),
            ..Settings::default()
        };
        let mut storage = MaybeUninit::uninit();
        let mut host = Host::new(&settings, &mut storage);
        let begin = |kernel: &Kernel<'_>, given: Ns, interrupted| {
            let step = sv_step {
                a: given.0,
                b: u32::from(interrupted),
                ..sv_step::default()
            };
            Ns(kernel.step(Kind::Begin, step).1)
        };
        host.charge(0, Ns::from_ms(5));
        assert_eq!(begin(&host.kernel, in_queue, false), in_queue, "a debtor");
        host.wait(0, 0);
        assert!(host.decide(0, None, "it owes"), "a reset was due");
        assert_eq!(begin(&host.kernel, in_queue, false), then);
        let rest = Ns::from_us(300);
        assert_eq!(begin(&host.kernel, rest, true), rest);
    }
}
