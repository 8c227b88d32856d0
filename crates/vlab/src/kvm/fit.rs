// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does a scenario fit real VMs here, and what becomes of its times?

use experiment::scenario::Arm;
use experiment::scenario::DeviceKind;
use experiment::scenario::HostPolicy;
use experiment::scenario::LoadKind;
use experiment::scenario::Program;
use experiment::scenario::Scenario;
use experiment::scenario::Vm;

use super::GUEST_MIB;
use super::HOST_MIB;
use crate::run::Unusable;

/// The weight of nice 0, and that of a VM of which nothing is said.
pub(super) const NORMAL_WEIGHT: u32 = 1024;

/// What `cpu.weight` can be (Documentation/admin-guide/cgroup-v2.rst).
const CGROUP_WEIGHTS: std::ops::RangeInclusive<u32> = 1..=10_000;

/// What a file system needs beside the files.
const FILE_SYSTEM_MIB: u32 = 64;

/// The largest disk that is kept in the memory of a host, in MiB.
const MAX_STORED_MIB: u32 = 512;

/// More guests than this make an emulated host too slow to be of use.
const MAX_NESTED: u32 = 4;

/// How many guests a scenario needs, if this machine can have them.
pub(super) fn check(scenario: &Scenario) -> anyhow::Result<u32> {
    let online = freezer::online_cpus()?.len();
    if scenario.topology.cpus > online {
        return Err(Unusable::new(format!(
            "topology.cpus = {}, and this machine has {online} CPUs: set topology.cpus to at most {online}",
            scenario.topology.cpus
        ))
        .into());
    }
    let guests = guests(scenario);
    let stored = stored_mib(scenario);
    if stored > MAX_STORED_MIB {
        return Err(Unusable::new(format!(
            "the disk of the VM under test would have {stored} MiB, and where a load is of kind fsync it is memory of its host, {MAX_STORED_MIB} MiB at most: use smaller file_mib or fewer threads",
        ))
        .into());
    }
    let (wanted, have) = (guests * GUEST_MIB + HOST_MIB + stored, available_mib());
    if wanted > have {
        return Err(Unusable::new(format!(
            "{} asks for {guests} VMs, which need {wanted} MiB, and this machine has {have} MiB free: use at most {}",
            asks(scenario),
            have.saturating_sub(HOST_MIB + stored) / GUEST_MIB
        ))
        .into());
    }
    weights(scenario)?;
    Ok(guests)
}

/// Does a load need a file system on its disk?
pub(super) fn needs_files(scenario: &Scenario) -> bool {
    file_mib(scenario) > 0
}

/// MiB of the files that a load writes, at most.
fn file_mib(scenario: &Scenario) -> u32 {
    let files = scenario.all_loads().map(|load| match load.kind {
        LoadKind::Fsync {
            file_mib, threads, ..
        } => file_mib * threads,
        _ => 0,
    });
    files.max().unwrap_or(0)
}

/// MiB of the disk of the guest under test that its host has to store: all of it if there is
/// a file system on it, else nothing.
pub(super) fn stored_mib(scenario: &Scenario) -> u32 {
    match file_mib(scenario) {
        0 => 0,
        files => (files + FILE_SYSTEM_MIB).max(read_mib(scenario)),
    }
}

/// As large as the largest file that a load wants to read.
fn read_mib(scenario: &Scenario) -> u32 {
    let sizes = scenario.all_loads().map(|load| match load.kind {
        LoadKind::Disk { file_mib, .. } => file_mib,
        _ => 0,
    });
    sizes.max().unwrap_or(0)
}

/// MiB of the disk of a guest that measures: as much as its loads read or write.
pub(super) fn disk_mib(scenario: &Scenario) -> u32 {
    read_mib(scenario).max(stored_mib(scenario)).max(16)
}

pub(super) fn check_nested(scenario: &Scenario) -> anyhow::Result<()> {
    let guests = guests(scenario);
    if guests > MAX_NESTED {
        return Err(Unusable::new(format!(
            "{} asks for {guests} VMs, and an emulated host runs at most {MAX_NESTED}: {}",
            asks(scenario),
            if scenario.vms.is_empty() {
                "leave the larger numbers out with --vms"
            } else {
                "name fewer"
            }
        ))
        .into());
    }
    Ok(())
}

/// How many VMs there are at most.
fn guests(scenario: &Scenario) -> u32 {
    if scenario.vms.is_empty() {
        let all = scenario.sharing.vms_per_pcpu.iter().copied();
        return all.max().unwrap_or(1);
    }
    scenario.vms.iter().map(|vm| vm.count).sum()
}

/// What of the scenario says so.
fn asks(scenario: &Scenario) -> &'static str {
    if scenario.vms.is_empty() {
        "sharing.vms_per_pcpu"
    } else {
        "[[vm]]"
    }
}

/// Weights that a cgroup can have and that all policies heed.
fn weights(scenario: &Scenario) -> anyhow::Result<()> {
    let unlike = scenario.vms.iter().find(|vm| vm.weight != NORMAL_WEIGHT);
    let Some(vm) = unlike else {
        return Ok(());
    };
    let fixed = |arm: &&Arm| arm.host_policy() == HostPolicy::Fixed;
    if let Some(arm) = scenario.arms.iter().find(fixed) {
        return Err(Unusable::new(format!(
            "vm {}: weight = {}, and arm {} has host_policy = \"fixed\", which gives all VMs the same slices: write \"eevdf\" or \"credit2\", or leave the weight out",
            vm.name, vm.weight, arm.name
        ))
        .into());
    }
    let possible = |vm: &&Vm| CGROUP_WEIGHTS.contains(&cgroup_weight(vm.weight));
    if let Some(vm) = scenario.vms.iter().find(|vm| !possible(vm)) {
        return Err(Unusable::new(format!(
            "vm {}: weight = {}: real VMs have weights from 11 to 102400, which are those of cgroups (1 to 10000) times 10.24",
            vm.name, vm.weight
        ))
        .into());
    }
    Ok(())
}

/// A weight in the units of Linux as `cpu.weight`, rounded.
pub(super) const fn cgroup_weight(weight: u32) -> u32 {
    (weight * 100 + NORMAL_WEIGHT / 2) / NORMAL_WEIGHT
}

/// `MemAvailable` in MiB.
fn available_mib() -> u32 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0);
    u32::try_from(kib / 1024).unwrap_or(u32::MAX)
}

/// Multiplies every time of a scenario.
pub(super) fn dilate(scenario: &mut Scenario, by: u64) {
    scenario.sharing.slice = scenario.sharing.slice * by;
    scenario.measure.warmup = scenario.measure.warmup * by;
    scenario.measure.window = scenario.measure.window * by;
    let named = scenario.vms.iter_mut().filter_map(|vm| vm.loads.as_mut());
    for load in scenario.loads.iter_mut().chain(named.flatten()) {
        match &mut load.kind {
            LoadKind::Disk {
                burst: Some(burst), ..
            } => {
                burst.on = burst.on * by;
                burst.off = burst.off * by;
            }
            LoadKind::Pulse {
                device,
                cpu,
                arrivals,
                ..
            } => {
                *device = *device * by;
                *cpu = *cpu * by;
                for arrival in arrivals {
                    arrival.at = arrival.at * by;
                }
            }
            LoadKind::Simulated {
                program: Program::Echo { work, .. },
            } => *work = *work * by,
            LoadKind::Disk { .. }
            | LoadKind::Fsync { .. }
            | LoadKind::Profile { .. }
            | LoadKind::Simulated { .. }
            | LoadKind::Idle => {}
        }
    }
    for device in &mut scenario.devices {
        if let DeviceKind::Network {
            interval,
            under_way,
            ..
        } = &mut device.kind
        {
            *interval = *interval * by;
            *under_way = *under_way * by;
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Ns;

    use super::*;
    use crate::run::network;
    use crate::run::network::OnNetwork;

    fn scenario(vms: u32) -> Scenario {
        let text = format!(
            r#"
            name = "s"
            title = "s"
            topology = {{ cpus = 1 }}
            sharing = {{ vms_per_pcpu = [{vms}], slice = "11 ms" }}
            measure = {{ rounds = 1, warmup = "100 ms", window = "300 ms" }}
            load = [{{ name = "a", kind = "pulse", device = "100 us" }}]
            arm = [{{ name = "vanilla" }}]
            "#
        );
        Scenario::parse(&text, "s.toml").unwrap()
    }

    #[test]
    fn dilation_reaches_every_time() {
        let text = r#"
            name = "s"
            title = "s"
            topology = { cpus = 1 }
            sharing = { slice = "11 ms" }
            load = [{ name = "a", kind = "pulse" }, { name = "b", kind = "pulse", device = "300 us" }]
            vm = [
                { name = "one", placement = "one-to-one" },
                { name = "two", placement = "one-to-one", loads = ["b"] },
            ]
            arm = [{ name = "vanilla" }]
        "#;
        let mut named = Scenario::parse_real_points(text, "s.toml")
            .unwrap()
            .remove(0);
        dilate(&mut named, 20);
        let times = named.all_loads().map(|load| match load.kind {
            LoadKind::Pulse { device, .. } => device,
            _ => Ns::ZERO,
        });
        // The first is 100 us where nothing is said.
        assert_eq!(times.collect::<Vec<_>>(), [Ns::from_ms(2), Ns::from_ms(6)]);
        let text = r#"
            name = "s"
            title = "s"
            topology = { cpus = 2 }
            sharing = { slice = "11 ms" }
            device = [{ name = "net", kind = "network", interval = "1 ms", under_way = "30 us" }]
            load = [{ name = "ping", kind = "echo", device = "net", work = "10 us" }]
            vm = [{ name = "one", placement = "one-to-one" }]
            arm = [{ name = "vanilla" }]
        "#;
        let mut on_network = Scenario::parse_real_points(text, "s.toml")
            .unwrap()
            .remove(0);
        dilate(&mut on_network, 20);
        let echo = OnNetwork::Echo {
            work: Ns::from_us(200),
            threads: 1,
        };
        let load = &on_network.loads[0];
        assert_eq!(network::on_network(&load.kind, 2), Some(echo));
        assert_eq!(network::interval(&on_network, load), Some(Ns::from_ms(20)));
        let mut scenario = scenario(2);
        dilate(&mut scenario, 20);
        assert_eq!(scenario.sharing.slice, Ns::from_ms(220));
        assert_eq!(scenario.measure.window, Ns::from_secs(6));
        assert_eq!(scenario.measure.warmup, Ns::from_secs(2));
        assert!(
            matches!(&scenario.loads[0].kind, LoadKind::Pulse { device, .. } if *device == Ns::from_ms(2))
        );
    }

    /// What says `--backend kvm` in its first lines can be had on an emulated host.
    #[test]
    fn the_scenarios_for_real_vms_fit_an_emulated_host() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            let mut head = text.lines().take_while(|line| line.starts_with('#'));
            if !head.any(|line| line.contains("--backend kvm")) {
                continue;
            }
            for scenario in Scenario::parse_real_points(&text, name).unwrap() {
                check_nested(&scenario).unwrap();
                weights(&scenario).unwrap();
                assert!(stored_mib(&scenario) <= MAX_STORED_MIB, "{name}");
            }
            found.push(name.to_owned());
        }
        found.sort_unstable();
        let known = [
            "dynamic-load.toml",
            "host-policies.toml",
            "kvm-4vcpus.toml",
            "kvm-fig10.toml",
            "kvm-fig15.toml",
            "kvm-fig9.toml",
            "kvm-network-hybrid.toml",
            "kvm-network-mixed.toml",
            "kvm-one-queue.toml",
            "kvm-smoke.toml",
            "kvm-watching.toml",
            "kvm-what-helps.toml",
        ];
        assert_eq!(found, known);
    }

    /// Two VMs of these weights under this policy.
    fn weighed(weight: u32, policy: &str) -> anyhow::Result<()> {
        let text = format!(
            r#"
            name = "s"
            title = "s"
            topology = {{ cpus = 2 }}
            sharing = {{ slice = "11 ms" }}
            load = [{{ name = "a", kind = "pulse" }}]
            vm = [
                {{ name = "one", placement = "one-to-one" }},
                {{ name = "two", placement = "one-to-one", weight = {weight} }},
            ]
            arm = [{{ name = "a", kind = "vanilla", host_policy = "{policy}" }}]
            "#
        );
        let points = Scenario::parse_real_points(&text, "s.toml").unwrap();
        weights(&points[0])
    }

    #[test]
    fn weights_that_no_host_heeds_are_refused() {
        weighed(1024, "fixed").unwrap();
        weighed(205, "eevdf").unwrap();
        weighed(205, "credit2").unwrap();
        for (weight, policy, said) in [
            (205, "fixed", "gives all VMs the same slices"),
            (5, "eevdf", "weights from 11 to 102400"),
            (200_000, "eevdf", "weights from 11 to 102400"),
        ] {
            let error = weighed(weight, policy).unwrap_err();
            assert!(error.is::<Unusable>());
            assert!(error.to_string().contains(said), "{error}");
        }
        assert_eq!([11, 205, 1843].map(cgroup_weight), [1, 20, 180]);
    }

    #[test]
    fn too_many_vms_are_refused_before_anything_is_fetched() {
        let error = check_nested(&scenario(5)).unwrap_err();
        assert!(error.is::<Unusable>());
        assert!(error.to_string().contains("at most 4"), "{error}");
        let error = check(&scenario(64)).map(|_| ());
        // 34 GiB: a machine that has them is told by the emulated host's limit.
        if let Err(error) = error {
            assert!(error.to_string().contains("vms_per_pcpu"), "{error}");
        }
    }

    #[test]
    fn a_disk_is_stored_if_somebody_writes_to_it_and_may_not_be_large() {
        let mut scenario = scenario(1);
        assert_eq!((stored_mib(&scenario), disk_mib(&scenario)), (0, 16));
        let mut writes = |file_mib, threads| {
            scenario.loads[0].kind = LoadKind::Fsync {
                block_kib: 4,
                file_mib,
                append: false,
                threads,
            };
            (stored_mib(&scenario), check(&scenario))
        };
        let (stored, fits) = writes(16, 4);
        assert_eq!(stored, 64 + FILE_SYSTEM_MIB);
        assert_eq!(fits.unwrap(), 1);
        let (_, large) = writes(256, 2);
        let large = large.unwrap_err().to_string();
        assert!(
            large.contains("576 MiB") && large.contains("file_mib"),
            "{large}"
        );
    }
}
