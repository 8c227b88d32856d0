// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in a `[[vm]]`, and which loads have phases.

use std::ops::Range;

use toml::Spanned;
use units::Ns;

use super::super::Class;
use super::super::Device;
use super::super::Load;
use super::super::LoadKind;
use super::super::Pins;
use super::super::Program;
use super::super::Queues;
use super::super::ScenarioError;
use super::super::Vm;
use super::super::error::Locator;
use super::super::file;
use super::value::chosen;
use super::value::duration;
use super::value::identifier;
use super::value::integer;
use super::value::number;
use super::value::optional_integer;
use super::value::quoted;

/// VMs in all: every pCPU keeps a book for each.
const MAX_VMS: u32 = 256;
/// vCPUs in all.
const MAX_VCPUS: u32 = 16_384;
/// The weight of nice 0 in Linux.
const NORMAL_WEIGHT: u32 = 1024;

/// What VMs are checked against.
pub(super) struct Context<'a> {
    pub(super) pcpus: u32,
    pub(super) threads_per_cpu: u32,
    pub(super) devices: &'a [Device],
    /// Where the path of each is written, or the device.
    pub(super) device_paths: &'a [Range<usize>],
    pub(super) loads: &'a [Load],
}

/// Checks all of them.
pub(super) fn vms(
    raw: Vec<Spanned<file::Vm>>,
    context: &Context<'_>,
    at: &Locator<'_>,
) -> Result<Vec<Vm>, ScenarioError> {
    let mut vms: Vec<Vm> = Vec::new();
    let (mut count, mut vcpus) = (0, 0);
    // Where those that there can be one of are written.
    let (mut driver, mut far_end) = (None, None);
    for (index, raw) in raw.into_iter().enumerate() {
        let field = |name: &str| format!("vm[{index}].{name}");
        let (span, name) = (raw.span(), raw.get_ref().name.span());
        let class = raw.get_ref().class.as_ref().map(Spanned::span);
        let vm = vm(raw.into_inner(), index, context, at)?;
        if vms.iter().any(|other| other.name == vm.name) {
            let expected = "give each VM a name of its own";
            return Err(at.value(name, field("name"), quoted(&vm.name), expected));
        }
        count += vm.count;
        vcpus += vm.count * vm.vcpus;
        if count > MAX_VMS || vcpus > MAX_VCPUS {
            let found = format!("{count} VMs with {vcpus} vCPUs up to here");
            let expected = format!("at most {MAX_VMS} VMs with {MAX_VCPUS} vCPUs are possible");
            return Err(at.value(span, "vm", found, expected));
        }
        let singles = [
            (
                Class::DriverDomain,
                &mut driver,
                "driver-domain",
                "driver domain",
            ),
            (Class::FarEnd, &mut far_end, "far-end", "far end"),
        ];
        for (single, there, name, title) in singles {
            if vm.class != Some(single) {
                continue;
            }
            let span = class.clone().unwrap_or(span.clone());
            let more = vm.count > 1 || there.replace((index, span.clone())).is_some();
            let expected = match (index, more) {
                (0, _) => {
                    format!("the first [[vm]] is the one under test; write the {title} after it")
                }
                (_, true) => {
                    format!("one {title} is all that there is; give the others another class")
                }
                (_, false) => continue,
            };
            return Err(at.value(span, field("class"), quoted(name), expected));
        }
        vms.push(vm);
    }
    let behind = context.devices.iter().position(|d| d.behind_driver);
    if let Some(index) = behind.filter(|_| driver.is_none()) {
        let expected = "add a [[vm]] with class = \"driver-domain\", or write path = \"vhost\"";
        let field = format!("device[{index}].path");
        let span = context.device_paths[index].clone();
        return Err(at.value(span, field, quoted("driver-domain"), expected));
    }
    if let Some((index, span)) = far_end.filter(|_| driver.is_none()) {
        let expected = "it is behind a driver domain; add a [[vm]] with class = \"driver-domain\"";
        let field = format!("vm[{index}].class");
        return Err(at.value(span, field, quoted("far-end"), expected));
    }
    Ok(vms)
}

fn vm(
    raw: file::Vm,
    index: usize,
    context: &Context<'_>,
    at: &Locator<'_>,
) -> Result<Vm, ScenarioError> {
    let field = |name: &str| format!("vm[{index}].{name}");
    let whole = |value: &Option<Spanned<i64>>, key: &str, range, default| {
        optional_integer(value.as_ref(), &field(key), range, default, at)
    };
    let vcpus = whole(&raw.vcpus, "vcpus", 1..=1024, context.pcpus)?;
    let class = raw
        .class
        .as_ref()
        .map(|word| chosen(word, &field("class"), &Class::NAMES, at))
        .transpose()?;
    let serves = class.is_some_and(Class::serves);
    for (key, span) in [
        ("arm", raw.arm.as_ref().map(Spanned::span)),
        ("loads", raw.loads.as_ref().map(Spanned::span)),
        (
            "threads_per_vcpu",
            raw.threads_per_vcpu.as_ref().map(Spanned::span),
        ),
    ] {
        if let Some(span) = span.filter(|_| serves) {
            let expected =
                "a driver domain or a far end serves the others and nothing else; leave it out";
            return Err(at.value(span, field(key), "set", expected));
        }
    }
    let of_who_serves = [
        (
            "backend",
            raw.backend.as_ref().map(|v| (v.span(), quoted(v.as_ref()))),
        ),
        (
            "copies_mb_per_s",
            (raw.copies_mb_per_s.as_ref()).map(|v| (v.span(), v.as_ref().to_string())),
        ),
    ];
    for (key, set) in of_who_serves {
        if let Some((span, value)) = set.filter(|_| !serves) {
            let expected = "only a VM of class = \"driver-domain\" or \"far-end\" has a back-end; leave it out";
            return Err(at.value(span, field(key), value, expected));
        }
    }
    if let Some(queues) = raw.queues.as_ref()
        && class != Some(Class::DriverDomain)
    {
        let expected = "only a VM of class = \"driver-domain\" has queues to choose; leave it out";
        return Err(at.value(
            queues.span(),
            field("queues"),
            quoted(queues.as_ref()),
            expected,
        ));
    }
    let queues = raw
        .queues
        .as_ref()
        .map(|word| chosen(word, &field("queues"), &Queues::NAMES, at))
        .transpose()?;
    let length = |value: &Option<Spanned<String>>, key: &str, range| {
        let value = value.as_ref();
        value
            .map(|value| duration(value, &field(key), range, at))
            .transpose()
    };
    let group = raw.group.as_ref().is_some_and(|group| *group.as_ref());
    if let Some(weight) = raw.weight.as_ref().filter(|_| group) {
        let expected = "a group weighs as one vCPU alone; leave it or `group` out";
        return Err(at.value(weight.span(), field("weight"), weight.as_ref(), expected));
    }
    let threads = if serves { 0 } else { context.threads_per_cpu };
    let backend = length(&raw.backend, "backend", Ns(1)..=Ns::from_secs(1))?;
    let copies = raw.copies_mb_per_s.as_ref().map(|copies| {
        let field = field("copies_mb_per_s");
        number(Some(copies), &field, 0.001..=10_000_000.0, 0.0, at)
    });
    let copies = copies.transpose()?;
    Ok(Vm {
        count: whole(&raw.count, "count", 1..=MAX_VMS, 1)?,
        vcpus,
        weight: whole(&raw.weight, "weight", 2..=262_144, NORMAL_WEIGHT)?,
        group,
        cap: cap(raw.cap.as_ref(), vcpus, &field("cap"), at)?,
        pins: pins(&raw, vcpus, context.pcpus, &field, at)?,
        class,
        arm: raw.arm.as_ref().map_or(index == 0, |arm| *arm.as_ref()),
        threads_per_vcpu: whole(&raw.threads_per_vcpu, "threads_per_vcpu", 0..=16, threads)?,
        loads: if serves {
            Some(Vec::new())
        } else {
            loads(raw.loads.as_ref(), index, context.loads, at)?
        },
        migration: length(&raw.migration, "migration", Ns::ZERO..=Ns::from_secs(1))?,
        backend: serves.then(|| backend.unwrap_or(Ns::from_us(20))),
        copies_mb_per_s: copies,
        queues: queues.unwrap_or_default(),
        name: identifier(raw.name, &field("name"), at)?,
    })
}

/// Per cent of one pCPU for all vCPUs together: more than all of one for each is no limit.
fn cap(
    raw: Option<&Spanned<i64>>,
    vcpus: u32,
    field: &str,
    at: &Locator<'_>,
) -> Result<Option<u32>, ScenarioError> {
    let Some(value) = raw else {
        return Ok(None);
    };
    let most = vcpus * 100;
    match u32::try_from(*value.as_ref()) {
        Ok(cap) if (1..=most).contains(&cap) => Ok(Some(cap)),
        _ => {
            let expected = format!(
                "per cent of one pCPU for all {vcpus} vCPUs together: write a number from 1 to {most}, or leave it out for no cap"
            );
            Err(at.value(value.span(), field, value.as_ref(), expected))
        }
    }
}

fn pins(
    raw: &file::Vm,
    vcpus: u32,
    pcpus: u32,
    field: &dyn Fn(&str) -> String,
    at: &Locator<'_>,
) -> Result<Pins, ScenarioError> {
    let placed = match &raw.placement {
        Some(word) => {
            let words = [
                ("anywhere", Pins::Anywhere),
                ("one-to-one", Pins::OneToOne),
                ("round-robin", Pins::RoundRobin),
            ];
            let chosen = chosen(word, &field("placement"), &words, at)?;
            if let Some(pins) = &raw.pins {
                let expected = "pins are a placement of their own; leave one of the two out";
                return Err(at.value(pins.span(), field("pins"), "set", expected));
            }
            if chosen == Pins::OneToOne && vcpus > pcpus {
                let expected = format!(
                    "{vcpus} vCPUs need as many pCPUs, and topology.cpus is {pcpus}; write \"round-robin\", \"anywhere\" or fewer vcpus"
                );
                let value = quoted(word.as_ref());
                return Err(at.value(word.span(), field("placement"), value, expected));
            }
            chosen
        }
        None => Pins::Anywhere,
    };
    let Some(list) = &raw.pins else {
        return Ok(placed);
    };
    let mut pins = Vec::new();
    for value in list.as_ref() {
        let pcpu = integer(value, &field("pins"), 0..=pcpus - 1, at)?;
        if pins.contains(&pcpu) {
            return Err(at.value(value.span(), field("pins"), pcpu, "name each pCPU once"));
        }
        pins.push(pcpu);
    }
    if pins.is_empty() {
        let expected = format!("list pCPUs from 0 to {}, or leave it out", pcpus - 1);
        return Err(at.value(list.span(), field("pins"), "empty", expected));
    }
    Ok(Pins::On(pins))
}

/// The loads that a VM names.
fn loads(
    raw: Option<&Spanned<Vec<Spanned<String>>>>,
    index: usize,
    all: &[Load],
    at: &Locator<'_>,
) -> Result<Option<Vec<Load>>, ScenarioError> {
    let Some(raw) = raw else {
        return Ok(None);
    };
    let field = format!("vm[{index}].loads");
    let mut loads: Vec<Load> = Vec::new();
    for name in raw.as_ref() {
        let Some(load) = all.iter().find(|load| load.name == *name.as_ref()) else {
            let names: Vec<String> = all.iter().map(|load| quoted(&load.name)).collect();
            let expected = format!("write names of [[load]] tables: {}", names.join(", "));
            return Err(at.value(name.span(), field, quoted(name.as_ref()), expected));
        };
        if loads.iter().any(|other| other.name == load.name) {
            let expected = "name each load once; `threads` makes more of one";
            return Err(at.value(name.span(), field, quoted(name.as_ref()), expected));
        }
        // A VM of the simulator has one barrier and one lock.
        if let Some(kind) = synchronised(load)
            && loads.iter().any(|other| synchronised(other) == Some(kind))
        {
            let expected = format!("a VM has at most one load of kind \"{kind}\"");
            return Err(at.value(name.span(), field, quoted(name.as_ref()), expected));
        }
        loads.push(load.clone());
    }
    if loads.is_empty() && index == 0 {
        let expected = "the first [[vm]] is the one under test: name a load, or leave it out";
        return Err(at.value(raw.span(), field, "empty", expected));
    }
    Ok(Some(loads))
}

/// The kind of a load whose threads wait for each other.
const fn synchronised(load: &Load) -> Option<&'static str> {
    match &load.kind {
        LoadKind::Simulated { program } => match program {
            Program::Parallel { .. } => Some("parallel"),
            Program::Locks { .. } => Some("locks"),
            _ => None,
        },
        _ => None,
    }
}

/// Every VM that uses a device has the vCPU on which its completions arrive; `spans`:
/// where that is written.
pub(super) fn completions(
    vms: &[Vm],
    phases: &[Load],
    devices: &[Device],
    spans: &[Range<usize>],
    at: &Locator<'_>,
) -> Result<(), ScenarioError> {
    for (index, device) in devices.iter().enumerate() {
        let Some(vcpu) = device.completion_vcpu else {
            continue;
        };
        let uses = |vm: &&Vm| {
            let mut loads = vm.loads.as_deref().unwrap_or(phases).iter();
            loads.any(|load| load.device.as_ref() == Some(&device.name))
        };
        let small = vms.iter().filter(uses).find(|vm| vcpu >= vm.vcpus);
        if let Some(vm) = small {
            let expected = format!(
                "VM {} uses it and has vcpus = {}: write a number from 0 to {}",
                quoted(&vm.name),
                vm.vcpus,
                vm.vcpus - 1
            );
            let field = format!("device[{index}].completion_vcpu");
            return Err(at.value(spans[index].clone(), field, vcpu, expected));
        }
    }
    Ok(())
}

/// The loads that have a phase each: those that no VM names, or, where the VM under
/// test names its own, the first of these.
pub(super) fn phases(
    loads: Vec<Load>,
    spans: &[Range<usize>],
    vms: &[Vm],
    at: &Locator<'_>,
) -> Result<Vec<Load>, ScenarioError> {
    let named = |load: &Load| {
        let mut lists = vms.iter().filter_map(|vm| vm.loads.as_ref());
        lists.any(|list| list.iter().any(|other| other.name == load.name))
    };
    for (index, load) in loads.iter().enumerate() {
        if matches!(load.kind, LoadKind::Fsync { .. }) {
            let expected = "the simulator has no fsync; write \"disk\" or \"reader\"";
            let field = format!("load[{index}].kind");
            return Err(at.value(spans[index].clone(), field, quoted("fsync"), expected));
        }
    }
    if let Some(own) = vms.first().and_then(|vm| vm.loads.as_ref()) {
        let left = loads.iter().position(|load| !named(load));
        if let Some(index) = left {
            let expected = "no VM runs it: name it in the loads of a [[vm]], or leave it out";
            let field = format!("load[{index}].name");
            let value = quoted(&loads[index].name);
            return Err(at.value(spans[index].clone(), field, value, expected));
        }
        return Ok(own.iter().take(1).cloned().collect());
    }
    let (span, field) = (spans.first().cloned().unwrap_or(0..0), "load");
    let phases: Vec<Load> = loads.into_iter().filter(|load| !named(load)).collect();
    if phases.is_empty() {
        let expected = "other VMs name all of them: the first [[vm]] needs one that none names, or loads of its own";
        return Err(at.value(span, field, "named", expected));
    }
    Ok(phases)
}
