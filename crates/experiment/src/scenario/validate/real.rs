// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What real VMs have of the tables that began as the simulator's.

use std::ops::Range;

use toml::Spanned;

use super::super::ScenarioError;
use super::super::error::Locator;
use super::super::file;
use super::value::quoted;

/// Kinds of loads that a VM can run: the others are simulated, or need a file system. Those
/// of the simulator's programs that real VMs have are on a network.
const LOADS: [&str; 5] = ["disk", "pulse", "idle", "echo", "reader"];

/// Refuses what real VMs do not have.
pub(in super::super) fn on_real_vms(
    raw: &file::File,
    at: &Locator<'_>,
) -> Result<(), ScenarioError> {
    let is_disk = |device: &&Spanned<file::Device>| device.get_ref().kind.as_ref() != "network";
    if let Some(device) = raw.devices.iter().find(is_disk) {
        let expected = "each real VM with I/O has a disk of its own (--disk-latency); use `vlab sim`, or leave it out";
        return Err(at.value(device.span(), "device", "set", expected));
    }
    for (index, device) in raw.devices.iter().enumerate() {
        network(device.get_ref(), index, at)?;
    }
    for (index, load) in raw.loads.iter().enumerate() {
        on_network(load, index, at)?;
    }
    if raw.vms.is_empty() {
        return Ok(());
    }
    for (index, load) in raw.loads.iter().enumerate() {
        let kind = load.kind.as_ref().as_str();
        if !LOADS.contains(&kind) {
            let expected = "real VMs beside [[vm]] run \"disk\", \"pulse\", \"idle\", and on a network \"echo\" and \"reader\"; use `vlab sim` for others";
            let field = format!("load[{index}].kind");
            return Err(at.value(load.kind.span(), field, quoted(kind), expected));
        }
    }
    let pcpus = *raw.topology.cpus.as_ref();
    for (index, vm) in raw.vms.iter().enumerate() {
        one(vm, index, pcpus, at)?;
    }
    Ok(())
}

/// A real VM's network has a device of its host's kernel and no driver domain, and the host
/// decides where its interrupts go.
fn network(device: &file::Device, index: usize, at: &Locator<'_>) -> Result<(), ScenarioError> {
    let given = [
        ("path", device.path.as_ref().map(Spanned::span)),
        (
            "completion_vcpu",
            device.completion_vcpu.as_ref().map(Spanned::span),
        ),
    ];
    for (key, span) in given {
        if let Some(span) = span {
            let expected = "only the simulator has it: use `vlab sim`, or leave it out";
            return Err(at.value(span, format!("device[{index}].{key}"), "set", expected));
        }
    }
    Ok(())
}

/// Of a program on a network, what its kernel and its protocol decide and no key does.
fn on_network(load: &file::Load, index: usize, at: &Locator<'_>) -> Result<(), ScenarioError> {
    if !matches!(load.kind.as_ref().as_str(), "echo" | "reader") {
        return Ok(());
    }
    let given: [(&str, Option<Range<usize>>); 6] = [
        ("vcpu", load.vcpu.as_ref().map(Spanned::span)),
        ("pinned", load.pinned.as_ref().map(Spanned::span)),
        ("weight", load.weight.as_ref().map(Spanned::span)),
        ("burst", load.burst.as_ref().map(Spanned::span)),
        ("pattern", load.pattern.as_ref().map(Spanned::span)),
        ("arrivals", load.arrivals.as_ref().map(Spanned::span)),
    ];
    for (key, span) in given {
        if let Some(span) = span {
            let expected = "real VMs do without on a network: use `vlab sim`, or leave it out";
            return Err(at.value(span, format!("load[{index}].{key}"), "set", expected));
        }
    }
    Ok(())
}

fn one(
    raw: &Spanned<file::Vm>,
    index: usize,
    pcpus: i64,
    at: &Locator<'_>,
) -> Result<(), ScenarioError> {
    let field = |name: &str| format!("vm[{index}].{name}");
    let (vm, all) = (raw.get_ref(), raw.span());
    let place = vm.placement.as_ref();
    let word = place.map(|word| word.as_ref().as_str());
    if !matches!(word, Some("one-to-one" | "round-robin")) {
        let span = place.map_or(all, Spanned::span);
        let value = word.map_or("missing".to_owned(), quoted);
        let expected = "on real VMs each vCPU has its pCPU: write \"one-to-one\", or \"round-robin\" where there are more vCPUs than pCPUs";
        return Err(at.value(span, field("placement"), value, expected));
    }
    if let Some(vcpus) = vm.vcpus.as_ref().filter(|vcpus| *vcpus.as_ref() < pcpus) {
        let expected =
            format!("real VMs have a vCPU on each pCPU: write {pcpus} or more, or leave it out");
        return Err(at.value(vcpus.span(), field("vcpus"), vcpus.as_ref(), expected));
    }
    let simulated = "only the simulator has it: use `vlab sim`, or leave it out";
    let declared = "a real host is told so by its policy file: write it into host_config";
    let given: [(&str, Option<Range<usize>>, &str); 6] = [
        ("pins", vm.pins.as_ref().map(Spanned::span), simulated),
        ("group", vm.group.as_ref().map(Spanned::span), simulated),
        (
            "migration",
            vm.migration.as_ref().map(Spanned::span),
            simulated,
        ),
        ("backend", vm.backend.as_ref().map(Spanned::span), simulated),
        ("cap", vm.cap.as_ref().map(Spanned::span), declared),
        ("class", vm.class.as_ref().map(Spanned::span), declared),
    ];
    for (key, span, expected) in given {
        if let Some(span) = span {
            return Err(at.value(span, field(key), "set", expected));
        }
    }
    if let Some(loads) = vm.loads.as_ref().filter(|loads| loads.as_ref().len() > 1) {
        let count = format!("{} loads", loads.as_ref().len());
        let expected = "a real VM runs one load: name one, or none with []";
        return Err(at.value(loads.span(), field("loads"), count, expected));
    }
    Ok(())
}
