// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's side of a replay, and the events.

use std::mem::MaybeUninit;

use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::ProgramInput;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::skel::SkelBuilder;
use policy::host::credit::Credit;
use units::Ns;

use crate::load;
use crate::load::Rules;
use crate::skel::replay as skel;
use skel::types::sv_vcpu;

pub(super) use skel::types::sv_pcpu;
pub(super) use skel::types::sv_step;

pub(super) const VCPUS: usize = 5;
pub(super) const CPUS: usize = 2;
pub(super) const WEIGHTS: [u32; VCPUS] = [256, 512, 100, 1, 65_535];

/// The fields of `enum sv_step_kind`.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Add,
    Ready,
    Event,
    Charge,
    Pick,
    Weight,
    Wake,
    Wait,
    Move,
    Park,
    Unpark,
    Begin,
    Queued,
    Left,
    Goes,
    Strange,
    Steal,
}

/// The kernel's side.
pub(super) struct Kernel<'a>(pub(super) skel::ReplaySkel<'a>);

impl<'a> Kernel<'a> {
    pub(super) fn load(rules: &Rules, storage: &'a mut MaybeUninit<libbpf_rs::OpenObject>) -> Self {
        Self::of(CPUS as u32, rules, storage)
    }

    /// That of a host with so many pCPUs.
    pub(super) fn of(
        cpus: u32,
        rules: &Rules,
        storage: &'a mut MaybeUninit<libbpf_rs::OpenObject>,
    ) -> Self {
        let mut open = skel::ReplaySkelBuilder::default().open(storage).unwrap();
        let ours = load::settings(rules).unwrap();
        let rodata = open.maps.rodata_data.as_deref_mut().unwrap();
        // SAFETY: both are made from the same `struct sv_settings`, plain integers.
        rodata.settings = unsafe { std::mem::transmute_copy(&ours) };
        rodata.nr_cpu_ids = cpus;
        open.maps.pcpus.set_max_entries(cpus).unwrap();
        Self(open.load().unwrap())
    }

    /// Does a step; the slot and the length in ns that it answers with.
    pub(super) fn step(&self, kind: Kind, step: sv_step) -> (u32, u64) {
        let mut step = sv_step {
            what: kind as u32,
            ..step
        };
        // SAFETY: plain integers without gaps, borrowed for as long as the bytes are.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut((&raw mut step).cast::<u8>(), size_of::<sv_step>())
        };
        let input = ProgramInput {
            context_in: Some(bytes),
            ..ProgramInput::default()
        };
        let done = self.0.progs.replay.test_run(input).unwrap();
        assert_eq!(done.return_value, 0);
        (step.slot, step.length_ns)
    }

    /// Does a step that has one number.
    pub(super) fn one(&self, kind: Kind, vcpu: usize, a: u64) -> (u32, u64) {
        let step = sv_step {
            vcpu: vcpu as u32,
            a,
            ..sv_step::default()
        };
        self.step(kind, step)
    }

    pub(super) fn add(&self, class: impl Fn(usize) -> u32) {
        for (vcpu, weight) in WEIGHTS.into_iter().enumerate() {
            let b = class(vcpu);
            self.step(
                Kind::Add,
                sv_step {
                    vcpu: vcpu as u32,
                    weight,
                    b,
                    ..sv_step::default()
                },
            );
        }
    }

    pub(super) fn vcpu(&self, vcpu: usize) -> sv_vcpu {
        entry(&self.0.maps.table, vcpu)
    }

    /// The credits of all vCPUs are these.
    pub(super) fn has_credits(&self, ours: impl Iterator<Item = Credit>, step: usize) {
        for (at, credit) in ours.enumerate() {
            assert_eq!(self.vcpu(at).credit, credit.0, "vCPU {at}, step {step}");
        }
    }
}

/// A copy of an entry of an array of structs of plain integers.
pub(super) fn entry<T: Copy>(map: &impl MapCore, key: usize) -> T {
    let key = u32::try_from(key).unwrap().to_ne_bytes();
    let bytes = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
    assert_eq!(bytes.len(), size_of::<T>());
    // SAFETY: as long as a T, which any bytes make.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

/// SplitMix64: the same events each time.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    /// Some of the vCPUs, at least one; the kernel's side is told.
    pub(super) fn ready(&mut self, kernel: &Kernel<'_>) -> Vec<usize> {
        let always = self.below(VCPUS as u64) as usize;
        let ready: Vec<usize> = (0..VCPUS)
            .filter(|vcpu| *vcpu == always || self.below(3) > 0)
            .collect();
        for vcpu in 0..VCPUS {
            let b = u32::from(ready.contains(&vcpu));
            kernel.step(
                Kind::Ready,
                sv_step {
                    vcpu: vcpu as u32,
                    b,
                    ..sv_step::default()
                },
            );
        }
        ready
    }

    /// How long a turn lasted for which `asked` was given: less, as much, or a tick more.
    pub(super) fn ran(&mut self, asked: Ns) -> Ns {
        match self.below(3) {
            0 => asked,
            1 => Ns(self.below(asked.0.max(1))),
            _ => asked + Ns(self.below(4_000_000)),
        }
    }
}
