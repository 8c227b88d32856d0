// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does a scenario fit real VMs here, and what becomes of its times?

use experiment::scenario::LoadKind;
use experiment::scenario::Scenario;

use super::GUEST_MIB;
use super::HOST_MIB;
use crate::run::Unusable;

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
    let guests = scenario
        .sharing
        .vms_per_pcpu
        .iter()
        .copied()
        .max()
        .unwrap_or(1);
    let (wanted, have) = (guests * GUEST_MIB + HOST_MIB, available_mib());
    if wanted > have {
        return Err(Unusable::new(format!(
            "sharing.vms_per_pcpu asks for {guests} VMs, which need {wanted} MiB, and this machine has {have} MiB free: use at most {}",
            have.saturating_sub(HOST_MIB) / GUEST_MIB
        ))
        .into());
    }
    if scenario
        .loads
        .iter()
        .any(|load| matches!(load.kind, LoadKind::Fsync { .. }))
    {
        return Err(Unusable::new(
            "a load of kind fsync needs a file system, and the guests' disks have none: leave it out with --loads".to_owned(),
        )
        .into());
    }
    Ok(guests)
}

pub(super) fn check_nested(scenario: &Scenario) -> anyhow::Result<()> {
    let most = scenario.sharing.vms_per_pcpu.iter().max();
    if most.is_some_and(|most| *most > MAX_NESTED) {
        return Err(Unusable::new(format!(
            "sharing.vms_per_pcpu = {:?}: an emulated host runs at most {MAX_NESTED} VMs; leave the larger numbers out with --vms",
            scenario.sharing.vms_per_pcpu
        ))
        .into());
    }
    Ok(())
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
    for load in &mut scenario.loads {
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
            LoadKind::Disk { .. }
            | LoadKind::Fsync { .. }
            | LoadKind::Profile { .. }
            | LoadKind::Simulated { .. }
            | LoadKind::Idle => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use experiment::scenario::Load;
    use units::Ns;

    use super::*;

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
            let scenario = Scenario::parse(&text, name).unwrap();
            check_nested(&scenario).unwrap();
            let needs_files = |load: &Load| matches!(load.kind, LoadKind::Fsync { .. });
            assert!(!scenario.loads.iter().any(needs_files), "{name}");
            found.push(name.to_owned());
        }
        found.sort_unstable();
        let known = [
            "host-policies.toml",
            "kvm-smoke.toml",
            "kvm-what-helps.toml",
        ];
        assert_eq!(found, known);
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
}
