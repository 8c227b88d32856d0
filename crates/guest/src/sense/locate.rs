// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the steal pages are: a small program finds their addresses, once.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use libbpf_rs::MapCore;
use libbpf_rs::MapHandle;
use libbpf_rs::ProgramInput;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::skel::SkelBuilder;

use super::SenseError;
use super::offered;
use super::skel::locate_kvm;
use super::skel::locate_map;

/// What the map of a test bed must be called: a map that stands in for one of an object's
/// own brings its name along, and the object looks it up by its own.
pub(super) const MAP_NAME: &str = "steal_page";

/// Addresses of KVM's own pages, for vCPUs `0..nr`, if the hypervisor fills them in.
pub(super) fn kvm_pages(nr: usize) -> Result<Vec<u64>, SenseError> {
    match offered::missing() {
        Some(reason) => Err(SenseError::NoStealPage {
            reason: reason.into(),
        }),
        None => find_kvm_pages(nr),
    }
}

/// The same, whoever fills them in or not.
pub(super) fn find_kvm_pages(nr: usize) -> Result<Vec<u64>, SenseError> {
    let mut storage = MaybeUninit::uninit();
    let mut find = || -> libbpf_rs::Result<Vec<u64>> {
        let skel = locate_kvm::LocateKvmSkelBuilder::default()
            .open(&mut storage)?
            .load()?;
        skel.progs.locate.test_run(ProgramInput::default())?;
        Ok(skel
            .maps
            .bss_data
            .as_deref()
            .map(|bss| bss.page_addr[..nr].to_vec())
            .unwrap_or_default())
    };
    match find() {
        Ok(pages) if pages.first().is_some_and(|page| *page != 0) => Ok(pages),
        Ok(_) => Err(SenseError::NoStealPage {
            reason: "the kernel has the symbol but no page".into(),
        }),
        Err(_) if !super::may_load() => Err(SenseError::Permission),
        Err(error) => Err(SenseError::NoStealPage {
            reason: format!(
                "the kernel does not let BPF find kvm's steal_time; \
                 it needs CONFIG_KVM_GUEST, CONFIG_PARAVIRT and CONFIG_KALLSYMS_ALL: {error}"
            ),
        }),
    }
}

/// Pages in the BPF map with this id. The map is returned too: its memory lives
/// as long as somebody has it open.
pub(super) fn map_pages(id: u32, nr: usize) -> Result<(Vec<u64>, MapHandle), SenseError> {
    let fail = |reason: String| SenseError::StealMap { id, reason };
    let handle = MapHandle::from_map_id(id).map_err(|error| fail(error.to_string()))?;
    if handle.value_size() != 64 || (handle.max_entries() as usize) < nr {
        return Err(fail(format!(
            "it has {} values of {} bytes; wanted: one of 64 bytes for each of {nr} vCPUs",
            handle.max_entries(),
            handle.value_size(),
        )));
    }
    if handle.name() != MAP_NAME {
        return Err(fail(format!(
            "its name is {}; wanted: {MAP_NAME}",
            handle.name().display()
        )));
    }
    let pages = find_map_pages(&handle, nr).map_err(|error| fail(error.to_string()))?;
    Ok((pages, handle))
}

/// Pages in a BPF map that has one for each of `nr` vCPUs.
pub(super) fn find_map_pages(handle: &MapHandle, nr: usize) -> libbpf_rs::Result<Vec<u64>> {
    let mut storage = MaybeUninit::uninit();
    let mut open = locate_map::LocateMapSkelBuilder::default().open(&mut storage)?;
    open.maps.steal_page.reuse_fd(handle.as_fd())?;
    let skel = open.load()?;
    skel.progs.locate.test_run(ProgramInput::default())?;
    Ok(skel
        .maps
        .bss_data
        .as_deref()
        .map(|bss| bss.page_addr[..nr].to_vec())
        .unwrap_or_default())
}
