// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real VMs on an emulated KVM host, as a user starts them.
//!
//! The emulated host loses a guest now and then. `vlab` measures again then and
//! counts it; the test prints the count and passes.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not take for tests"
)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use experiment::result::Phase;
use experiment::result::RunResult;
use units::Ns;

/// What the daemon does not take for a gap, 100 us, on a host that is dilated by 20.
const LEAST_GAP: Ns = Ns::from_ms(2);

fn vlab() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("vlab"));
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/vm");
    command.arg("run").arg("--cache").arg(store);
    command
}

fn scenario(dir: &Path, vms: u32) -> std::path::PathBuf {
    let path = dir.join("nested.toml");
    let text = format!(
        r#"
        name = "nested"
        title = "Two real VMs share two pCPUs"
        topology = {{ cpus = 2, disk_queues = 1 }}
        sharing = {{ vms_per_pcpu = [{vms}], slice = "11 ms" }}
        measure = {{ rounds = 1, warmup = "50 ms", window = "250 ms", baselines = "none" }}
        load = [
            {{ name = "read", kind = "disk", pattern = "random-read", file_mib = 64 }},
            {{ name = "log", kind = "fsync", file_mib = 16 }},
        ]
        arm = [
            {{ name = "vanilla" }},
            {{ name = "vmigrater" }},
            {{ name = "kernel", kind = "vanilla", host_policy = "eevdf" }},
        ]
        "#
    );
    fs::write(&path, text).unwrap();
    path
}

/// The guest's record of its I/O thread, joined with the host's trace.
fn assert_what_was_recorded_fits(phase: &Phase) {
    let io_time = phase.io_time.as_ref().unwrap();
    assert_eq!(io_time.threads, 1);
    let total = io_time.total();
    assert!(agree(total, phase.window, 2, Ns::ZERO), "{io_time:?}");
    let timeline = phase.timeline.as_ref().unwrap();
    assert_eq!((timeline.vcpus.len(), timeline.tasks.len()), (2, 1));
    // The window ends a little after it should.
    let rest = phase.window - timeline.length;
    for (vcpu, on) in timeline.vcpus.iter().zip(&phase.host.on_share) {
        let off: Ns = vcpu.gaps.iter().map(|(from, to)| *to - *from).sum();
        let expected = phase.window.0 as f64 * (1.0 - on);
        let expected = Ns(expected as u64);
        assert!(
            agree(off, expected, 5, rest + Ns::from_ms(50)),
            "{off} {expected}"
        );
    }
    assert!(timeline.tasks[0].spells.0.len() > 20, "{timeline:?}");
}

/// The share of the time that was stolen by the daemon's own account, against the gaps of the
/// host's trace that are long enough for it. The daemon is asked before the window and after,
/// in an emulated guest as much as a second away from it: only shares can be compared.
fn assert_the_daemon_saw_what_was_stolen(phase: &Phase) {
    let daemon = phase.daemon.as_ref().unwrap();
    assert_eq!(daemon.source.as_deref(), Some("steal-page"));
    let timeline = phase.timeline.as_ref().unwrap();
    assert_eq!(daemon.vcpus.len(), timeline.vcpus.len());
    let traced_for = timeline.length;
    for (seen, traced) in daemon.vcpus.iter().zip(&timeline.vcpus) {
        let gaps = traced.gaps.iter().map(|(from, to)| *to - *from);
        let long: Ns = gaps.filter(|gap| *gap >= LEAST_GAP).sum();
        let within = daemon.interval;
        eprintln!(
            "vCPU {}: traced {long} of {traced_for}, {seen:?} of {within}",
            seen.id
        );
        assert!(seen.gaps > 0 && long > Ns::ZERO, "{seen:?}, {traced:?}");
        let share = seen.stolen.0 as f64 / within.0 as f64;
        let scaled = Ns((share * traced_for.0 as f64) as u64);
        assert!(
            agree(scaled, long, 15, Ns::from_ms(100)),
            "{seen:?} of {within}, {long} of {traced_for}"
        );
    }
}

/// Both within `percent` of the larger one, or within `slack`.
fn agree(a: Ns, b: Ns, percent: u64, slack: Ns) -> bool {
    a.abs_diff(b) <= slack.max(Ns(a.max(b).0 * percent / 100))
}

/// Measures a scenario in the directory `dir`: what it printed, and its result. Nothing else is
/// left.
fn measured(dir: &Path, scenario: &Path, more: &[&str]) -> (String, RunResult) {
    let tmp = dir.join("tmp");
    fs::create_dir(&tmp).unwrap();
    let json = dir.join("result.json");
    let output = vlab()
        .arg(scenario)
        .args(["--backend=kvm", "--nested", "--json"])
        .arg(&json)
        .args(more)
        .env("TMPDIR", &tmp)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    eprintln!("{}{text}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0, "files were left");
    (text, RunResult::load(&json).unwrap())
}

/// Two VMs that measure what they do, with shares of 80 and 20; one has more vCPUs than there
/// are pCPUs.
#[test]
fn root_vm_nested_vms_that_are_named_do_and_weigh_what_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("named.toml");
    let text = r#"
        name = "named"
        title = "Two real VMs, each with a load of its own"
        host_config = "[credit2]\nkeeps_debt = true"
        topology.cpus = 2
        sharing.slice = "11 ms"
        measure = { rounds = 1, warmup = "50 ms", window = "300 ms", baselines = "none" }
        load = [
            { name = "read", kind = "disk", pattern = "random-read", file_mib = 64 },
            { name = "pulse", kind = "pulse" },
        ]
        arm = [{ name = "vmigrater", host_policy = "credit2" }]
        [[vm]]
        name = "first"
        placement = "one-to-one"
        [[vm]]
        name = "second"
        vcpus = 4
        placement = "round-robin"
        loads = ["pulse"]
        arm = true
        [sweep]
        "vm.first.weight, vm.second.weight" = [[1024, 1024], [1638, 205]]
    "#;
    fs::write(&scenario, text).unwrap();
    let (text, result) = measured(dir.path(), &scenario, &["--point=2", "--no-record"]);
    assert!(text.contains("Each VM, in phases of read"), "{text}");
    let lab = result.lab.as_ref().unwrap();
    assert_eq!((lab.phases.len(), lab.phases[0].alive), (1, 2));
    let phase = &result.phases[0];
    let loads = |n: usize| {
        let load = &phase.work[n].loads[0];
        assert!(load.ops_per_s > 0.0, "{:?}", phase.work);
        load.load.as_str()
    };
    assert_eq!([loads(0), loads(1)], ["read", "pulse"]);
    let names: Vec<&str> = phase.work.iter().map(|vm| vm.vm.as_str()).collect();
    assert_eq!(names, ["first", "second"]);
    // 4 to 1, each vCPU having its VM's weight, in a window of some thirty turns.
    let ratio = phase.work[0].cpus / phase.work[1].cpus;
    assert!((2.5..6.5).contains(&ratio), "{:?}", phase.work);
    let all: f64 = phase.work.iter().map(|vm| vm.cpus).sum();
    // Two pCPUs, over a time that is the same for both.
    assert!((1.0..2.001).contains(&all), "{:?}", phase.work);
    assert!(phase.liveness.iter().all(|one| one.alive));
    assert!(
        phase
            .liveness
            .iter()
            .any(|one| one.who == "second: I/O load")
    );
}

/// Both answer clients on their host in one phase and send to it in the other, the second one
/// beside compute of its own. Without a daemon, whose coming and going takes a minute each time.
#[test]
fn root_vm_nested_guests_have_a_network() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("network.toml");
    let text = r#"
        name = "network"
        title = "Two real VMs on their networks"
        topology.cpus = 2
        sharing.slice = "11 ms"
        measure = { rounds = 1, warmup = "50 ms", window = "300 ms", baselines = "none" }
        device = [{ name = "net", kind = "network", interval = "4 ms" }]
        load = [
            { name = "ping", kind = "echo", device = "net" },
            { name = "stream", kind = "reader", write = true, device = "net", block_bytes = 16384 },
        ]
        arm = [{ name = "vanilla" }]
        [[vm]]
        name = "first"
        placement = "one-to-one"
        threads_per_vcpu = 0
        [[vm]]
        name = "second"
        placement = "one-to-one"
        threads_per_vcpu = 1
    "#;
    fs::write(&scenario, text).unwrap();
    let (_, result) = measured(dir.path(), &scenario, &["--no-record"]);
    let lab = result.lab.as_ref().unwrap();
    assert_eq!((result.phases.len(), lab.phases.len()), (2, 2));
    for vm in &result.phases[0].work {
        let ping = &vm.loads[0];
        assert_eq!(ping.load, "ping");
        // One each 80 ms for 6 s.
        assert!((4.0..=13.0).contains(&ping.ops_per_s), "{ping:?}");
        assert!(
            Ns::ZERO < ping.trip && ping.trip <= ping.trip_max,
            "{ping:?}"
        );
        assert!(ping.latency <= ping.trip_max, "{ping:?}");
    }
    assert_eq!(lab.phases[0].unanswered, 0);
    for vm in &result.phases[1].work {
        let stream = &vm.loads[0];
        assert_eq!((stream.load.as_str(), stream.trip), ("stream", Ns::ZERO));
        assert!(stream.bytes_per_s > 100_000.0, "{stream:?}");
    }
    // The first one has nothing else to do, the second one computes in what is left of turns.
    let cpus = |n: usize| result.phases[0].work[n].cpus;
    assert!(cpus(1) > cpus(0), "{:?}", result.phases[0].work);
    assert!(
        result
            .phases
            .iter()
            .flat_map(|phase| &phase.liveness)
            .all(|one| one.alive)
    );
}

#[test]
fn root_vm_nested_guests_get_their_slices_and_see_what_was_stolen() {
    let dir = tempfile::tempdir().unwrap();
    let (text, result) = measured(dir.path(), &scenario(dir.path(), 2), &[]);
    assert!(text.contains("dilated by 20"), "the dilation is told");
    let lab = result.lab.unwrap();
    let environment = &result.environment;
    assert_eq!(environment.kernel, lab.guest_kernel);
    assert!(environment.kernel.starts_with("6.12."), "{environment:?}");
    assert!(
        environment.preemption.starts_with("PREEMPT"),
        "{environment:?}"
    );
    assert_eq!(environment.dilation, Some(20.0));
    let disk = environment.disk.as_ref().unwrap();
    assert_eq!((disk.name.as_str(), disk.queues), ("vda", 1));
    assert_eq!(disk.file_system, "ext4 for writers, none for readers");
    // Three arms of two loads.
    assert_eq!((lab.host.as_str(), lab.phases.len()), ("nested", 6));
    assert_eq!(lab.policy, "fixed,eevdf");
    for phase in &lab.phases {
        assert_eq!(phase.alive, 2);
        assert_eq!(phase.ran.len(), 2);
        // Both VMs compute, and the host's own threads have the rest.
        for ran in &phase.ran {
            assert!((1..8).contains(&(ran.0 / 1_000_000_000)), "{phase:?}");
        }
        let asks = phase.arm != "kernel";
        for turns in phase.turns.iter().filter(|_| asks) {
            assert!(turns.count >= 4, "{turns:?}");
            // Turns end by timers, which an emulated host gets late.
            assert!(agree(turns.p50, turns.asked, 10, Ns::ZERO), "{turns:?}");
        }
        for steal in &phase.steal {
            assert!(steal.host > Ns::from_secs(1), "nothing was stolen");
            assert!(
                agree(steal.host, steal.guest, 15, Ns::from_ms(100)),
                "{steal:?}"
            );
        }
    }
    for phase in result.phases.iter().filter(|phase| phase.vms_per_pcpu > 1) {
        let seen = lab
            .phases
            .iter()
            .find(|seen| (&seen.arm, &seen.load) == (&phase.arm, &phase.load));
        let turns = &seen.expect("the host saw the phase").turns;
        assert_eq!(turns.len(), phase.host.on_share.len());
        for (share, turns) in phase.host.on_share.iter().zip(turns) {
            // Half at most: two guests take turns. Of each turn the emulated host's own
            // threads take up to two fifths (0.30 to 0.43 were left). On is whoever is not
            // kept waiting: of each turn that one of the two gave up early, so much more.
            let given_up = (turns.asked.0 * turns.given_up) as f64 / phase.window.0 as f64;
            assert!(
                (0.2..0.55 + given_up).contains(share),
                "{phase:?} {turns:?}"
            );
        }
        assert!(phase.io.as_ref().unwrap().ops_per_s > 0.0);
        assert_what_was_recorded_fits(phase);
    }
    let daemon = |phase: &&Phase| phase.arm == "vmigrater" && phase.load == "read";
    let daemon = result.phases.iter().find(daemon);
    assert_the_daemon_saw_what_was_stolen(daemon.expect("the daemon ran"));
}

#[test]
fn root_vm_nested_ctrl_c_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = vlab()
        .arg(scenario(dir.path(), 2))
        .args(["--backend=kvm", "--nested"])
        .env("TMPDIR", dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let give_up = Instant::now() + Duration::from_secs(120);
    let qemu = loop {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id()));
        let booting = fs::read_dir(dir.path())
            .unwrap()
            .flatten()
            .any(|entry| entry.path().join("host").exists());
        if let (true, Some(child)) = (
            booting,
            children.unwrap_or_default().split_whitespace().next(),
        ) {
            break child.to_owned();
        }
        assert!(Instant::now() < give_up, "no emulated host was started");
        std::thread::sleep(Duration::from_millis(20));
    };
    let pid = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let asked = Instant::now();
    assert_eq!(run.wait().unwrap().code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(20));
    assert!(!Path::new(&format!("/proc/{qemu}")).exists());
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["nested.toml"]);
}

#[test]
fn more_vms_than_fit_are_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let output = vlab()
        .arg(scenario(dir.path(), 40))
        .args(["--backend=kvm", "--nested"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("vms_per_pcpu"), "{said}");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
}
