// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every BPF object of this crate on this kernel, whatever the hypervisor offers:
//! loaded, attached, run, and asked something whose answer is known.
//!
//! The known answer comes from a map of ours in place of the steal pages: one vCPU is
//! said to be away, then time is said to have been stolen. So the programs are
//! verified and run as they are where there is steal time, also where there is none.

use std::fmt;
use std::time::Duration;
use std::time::Instant;

use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use libbpf_rs::MapType;
use libbpf_rs::libbpf_sys;
use units::CpuSet;
use units::Ns;
use units::Time;
use units::VcpuId;

use super::Sense;
use super::SenseError;
use super::Source;
use super::driver::Kernel;
use super::locate;
use super::now;
use crate::settings::Settings;

/// What was made of a BPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramState {
    /// The verifier has taken it, and an event of the kernel runs it.
    Attached,
    /// The verifier has taken it.
    Loaded,
    /// The verifier has taken it, and it has been called.
    Ran,
    /// Not loaded, because this kernel has no such event.
    LeftOut,
}

impl fmt::Display for ProgramState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attached => "attached",
            Self::Loaded => "loaded",
            Self::Ran => "ran",
            Self::LeftOut => "left out",
        })
    }
}

/// What came of one BPF object.
#[derive(Debug)]
pub struct Tested {
    /// Its name.
    pub object: &'static str,
    /// Its programs by name, or why it cannot be used.
    pub programs: Result<Vec<(String, ProgramState)>, SenseError>,
}

type Test = fn(&Kernel) -> Result<Vec<(String, ProgramState)>, SenseError>;

/// As `build.rs` names them.
const OBJECTS: [(&str, Test); 3] = [
    ("sense", sense),
    ("locate_kvm", locate_kvm),
    ("locate_map", locate_map),
];

/// How long a timer interrupt may be in coming: some milliseconds, and much more
/// where all is emulated.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is said to have been stolen: far above the least that counts as a gap.
const STOLEN: Ns = Ns::from_ms(5);

/// Tries each object, one after another, and undoes it all. An object that cannot be
/// used does not keep the others from being tried: `locate_kvm` cannot where the
/// kernel was built without `CONFIG_KVM_GUEST`, and the daemon does without.
///
/// # Errors
/// If the kernel cannot run any of them, see [`SenseError`].
pub fn selftest() -> Result<Vec<Tested>, SenseError> {
    let kernel = Kernel::look(&Settings::default())?;
    let tested = OBJECTS.map(|(object, test)| Tested {
        object,
        programs: test(&kernel),
    });
    Ok(tested.into())
}

fn locate_kvm(kernel: &Kernel) -> Result<Vec<(String, ProgramState)>, SenseError> {
    let pages = locate::find_kvm_pages(kernel.nr_vcpus)?;
    all_there(&pages)
}

fn locate_map(kernel: &Kernel) -> Result<Vec<(String, ProgramState)>, SenseError> {
    let (pages, _map) = own_pages(kernel)?;
    all_there(&pages)
}

/// An address for each vCPU, and no two the same.
fn all_there(pages: &[u64]) -> Result<Vec<(String, ProgramState)>, SenseError> {
    let mut different = pages.to_vec();
    different.sort_unstable();
    different.dedup();
    if different.len() != pages.len() || different.contains(&0) {
        return Err(SenseError::WrongAnswer {
            program: "locate",
            answer: format!("pages at {pages:x?}; wanted: one for each vCPU that can be read"),
        });
    }
    Ok(vec![("locate".into(), ProgramState::Ran)])
}

fn sense(kernel: &Kernel) -> Result<Vec<(String, ProgramState)>, SenseError> {
    let (pages, map) = own_pages(kernel)?;
    let away = VcpuId(u32::try_from(kernel.nr_vcpus).unwrap_or(u32::MAX) - 1);
    write(&map, away, Ns::ZERO, true)?;
    let sense = Sense::load_with(
        &Settings::default(),
        kernel,
        (Source::StealMap, pages, None),
    )?;
    sense.attach()?;
    sense.arm()?;
    sees_who_is_away(&sense, away)?;
    if sense.has_tick() {
        sees_what_was_stolen(&sense, &map)?;
    }
    books_a_late_beat(&sense)?;
    let mut programs = sense
        .programs()
        .map_err(|error| SenseError::bpf("look at", error))?;
    for (name, state) in &mut programs {
        if name == "snapshot" || name == "late_beat" {
            *state = ProgramState::Ran;
        }
    }
    sense.disarm();
    Ok(programs)
}

fn sees_who_is_away(sense: &Sense, away: VcpuId) -> Result<(), SenseError> {
    let out = sense.snapshot()?.out;
    let right: CpuSet = std::iter::once(away).collect();
    if out == right {
        return Ok(());
    }
    Err(SenseError::WrongAnswer {
        program: "snapshot",
        answer: format!("vCPUs {out} are away; {right} is"),
    })
}

/// More is stolen each time that we look, until a program has found some of it: at
/// the interrupt of our own sleep's timer, on whichever vCPU that is.
fn sees_what_was_stolen(sense: &Sense, map: &MapHandle) -> Result<(), SenseError> {
    let vcpus = || (0..).map(VcpuId).take(sense.nr_vcpus());
    let end = Instant::now() + PATIENCE;
    let mut stolen = Ns::ZERO;
    loop {
        stolen += STOLEN;
        for vcpu in vcpus() {
            write(map, vcpu, stolen, false)?;
        }
        std::thread::sleep(Duration::from_millis(1));
        let found = vcpus().map(|vcpu| sense.shared().vcpu(vcpu).stolen).max();
        let found = found.unwrap_or_default();
        if found != Ns::ZERO && found <= stolen && found.as_ns().is_multiple_of(STOLEN.as_ns()) {
            return Ok(());
        }
        if found != Ns::ZERO || Instant::now() > end {
            return Err(SenseError::WrongAnswer {
                program: "on_tick",
                answer: format!("{found} stolen; {stolen} were, {STOLEN} at a time"),
            });
        }
    }
}

/// A gap of one nanosecond: whatever else is still found is a multiple of [`STOLEN`].
fn books_a_late_beat(sense: &Sense) -> Result<(), SenseError> {
    let (vcpu, back) = (VcpuId(0), now());
    let odd = || sense.shared().vcpu(vcpu).stolen.as_ns() % STOLEN.as_ns();
    let before = odd();
    sense.late_beat(vcpu, Time(back.as_ns() - 1), back)?;
    if odd() == before + 1 {
        return Ok(());
    }
    Err(SenseError::WrongAnswer {
        program: "late_beat",
        answer: format!("{before} ns, then {} ns stolen; 1 ns more was", odd()),
    })
}

/// A map of pages, and where they are.
fn own_pages(kernel: &Kernel) -> Result<(Vec<u64>, MapHandle), SenseError> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let entries = u32::try_from(kernel.nr_vcpus).unwrap_or(u32::MAX);
    MapHandle::create(
        MapType::Array,
        Some(locate::MAP_NAME),
        4,
        64,
        entries,
        &options,
    )
    .and_then(|map| Ok((locate::find_map_pages(&map, kernel.nr_vcpus)?, map)))
    .map_err(|error| SenseError::bpf("load", error))
}

/// Fills in a page as KVM does (`struct kvm_steal_time` of
/// `arch/x86/include/uapi/asm/kvm_para.h`).
fn write(map: &MapHandle, vcpu: VcpuId, steal: Ns, preempted: bool) -> Result<(), SenseError> {
    let mut page = [0; 64];
    page[..8].copy_from_slice(&steal.as_ns().to_ne_bytes());
    page[16] = preempted.into();
    map.update(&vcpu.0.to_ne_bytes(), &page, MapFlags::ANY)
        .map_err(|error| SenseError::bpf("write for", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_object_is_forgotten() {
        let names = OBJECTS.map(|(name, _)| name).join(" ");
        assert_eq!(names, env!("BPF_OBJECTS"));
    }

    #[test]
    fn a_page_that_is_missing_or_there_twice_is_told() {
        assert!(all_there(&[0x40, 0x80]).is_ok());
        for wrong in [[0x40, 0], [0x40, 0x40]] {
            let error = all_there(&wrong).unwrap_err().to_string();
            assert!(error.contains("40"), "{error}");
        }
    }
}
