// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each kernel of the matrix boots, says who it is and passes results through; the
//! freezer freezes it or says why it cannot.
//!
//! Kernels are fetched into `target/vm` of the checkout on the first run; after
//! that no network is needed. The names start with `root_` because these tests
//! run one at a time, after everything that needs no privileges.

// Helpers of tests, where a panic is the report.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use vlab::vm::BootError;
use vlab::vm::Disk;
use vlab::vm::Guest;
use vlab::vm::Image;
use vlab::vm::Kernel;
use vlab::vm::Options;
use vlab::vm::Output;
use vlab::vm::Qemu;
use vlab::vm::SERIES;
use vlab::vm::Store;

/// Boots take 5 s here; the rest is for a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(90);

fn store() -> Store {
    Store::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/vm")).unwrap()
}

fn options() -> Options {
    Options {
        keep_logs: Some(store().root().join("logs")),
        ..plain()
    }
}

fn plain() -> Options {
    Options::new(Qemu::debian(&store()).unwrap())
}

/// The guest's name, its CPUs, its file systems, its disk; then what the freezer and the host's
/// scheduler make of it; then its code.
const SCRIPT: &str = r#"
uname -r
nproc
ls /sys/kernel/btf/vmlinux
stat -f -c %T /sys/fs/bpf /sys/fs/cgroup /sys/kernel/tracing | wc -l
dd if=/dev/vda of=/dev/null bs=4k count=64 iflag=direct 2>/dev/null && echo read
# KEY COMMAND...: its exit code and what it says.
says() {
	key=$1
	shift
	"$@" >/tmp/told 2>/tmp/said
	echo "$key exit $?"
	sed "s/^/$key told /" /tmp/told
	sed "s/^/$key said /" /tmp/said
}
says selftest vlab bpf-selftest
says freeze vlab freeze --vms 2 --for 1s --json
says doctor scx_vcpu doctor
says run scx_vcpu run --for 1s
says trace scx_vcpu trace /tmp/trace --for 1s
exit 42
"#;

/// Beside ours; no test of this package builds it.
fn scx_vcpu() -> PathBuf {
    let path = Path::new(assert_cmd::cargo::cargo_bin!("vlab")).with_file_name("scx_vcpu");
    let fix = "run: cargo build -p scx_vcpu";
    assert!(path.exists(), "no {}; {fix}", path.display());
    path
}

/// The one boot of a kernel.
fn first(series: &str) -> &'static Output {
    static BOOTS: [OnceLock<Output>; SERIES.len()] = [const { OnceLock::new() }; SERIES.len()];
    let nr = SERIES.iter().position(|name| *name == series).unwrap();
    BOOTS[nr].get_or_init(|| {
        let kernel = Kernel::debian(&store(), series).unwrap();
        let image = Image::builder(&kernel)
            .binary(assert_cmd::cargo::cargo_bin!("vlab"))
            .binary(scx_vcpu())
            .script(SCRIPT);
        let disk = Disk::Null {
            size: 64 << 20,
            latency_ns: 0,
        };
        let options = Options {
            disks: vec![disk],
            ..options()
        };
        let output = Guest::run_with_tries(&image.build().unwrap(), &options, DEADLINE, 3).unwrap();
        eprintln!(
            "{series} ({}): script after {:?}, {:?} in all, failed tries: {:?}",
            kernel.release(),
            output.boot,
            output.total,
            output.failed_tries
        );
        eprintln!("{}", output.stdout);
        output
    })
}

fn boots(series: &str) {
    let kernel = Kernel::debian(&store(), series).unwrap();
    let output = first(series);
    let expected = format!(
        "{}\n2\n/sys/kernel/btf/vmlinux\n3\nread\n",
        kernel.release()
    );
    let (stdout, serial) = (&output.stdout, &output.serial);
    assert!(stdout.starts_with(&expected), "{stdout}\nserial:\n{serial}");
    assert_eq!(output.exit_code, 42);
    assert!(kernel.release().starts_with(&format!("{series}.")));
}

/// What follows `key` and a blank at the start of a line, for each such line.
fn all<'a>(output: &'a Output, key: &str) -> Vec<&'a str> {
    let lines = output.stdout.lines();
    lines
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
        .collect()
}

/// Its objects load, and it takes both CPUs away as it was asked to.
fn freezes(series: &str) {
    let output = first(series);
    let told = &output.stdout;
    assert_eq!(all(output, "selftest exit"), ["0"], "{told}");
    assert_eq!(
        all(output, "selftest told"),
        [
            "freezer loads, attaches and sets a timer",
            "tasks loads and attaches"
        ],
        "{told}"
    );
    assert_eq!(all(output, "freeze exit"), ["0"], "{told}");
    let report = all(output, "freeze told").concat();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let cpus = report["cpus"].as_array().unwrap();
    assert_eq!(cpus.len(), 2, "{told}");
    for cpu in cpus {
        let number = |key: &str| cpu["counters"][key].as_u64().unwrap();
        // 45 in 1 s, if nobody took the emulator's own CPUs away; no gap of 11 ms is
        // shorter than three quarters of it.
        let gaps = number("gaps");
        assert!(gaps >= 5, "{told}");
        // The end of the run cut the last one.
        assert!(number("frozen") >= (gaps - 1) * 8_250_000, "{told}");
        assert_eq!(number("timer_errors"), 0, "{told}");
    }
}

/// The kernel is told to be unfit in one line with what it lacks; the recorder needs no
/// timer and works.
fn refuses_to_freeze(series: &str, reason: &str) {
    let output = first(series);
    let told = &output.stdout;
    assert_eq!(
        all(output, "selftest told"),
        ["tasks loads and attaches"],
        "{told}"
    );
    assert_eq!(all(output, "freeze told"), [""; 0], "{told}");
    for key in ["selftest", "freeze"] {
        assert_eq!(all(output, &format!("{key} exit")), ["3"], "{told}");
        let said = all(output, &format!("{key} said"));
        assert!(said.len() == 1 && said[0].contains(reason), "{told}");
    }
}

/// The host's scheduler is told to be of no use here in one line with what is missing, by
/// `doctor` beside what is not.
fn refuses_to_schedule(series: &str, reason: &str) {
    let output = first(series);
    let told = &output.stdout;
    for key in ["doctor", "run"] {
        assert_eq!(all(output, &format!("{key} exit")), ["3"], "{told}");
        let said = all(output, &format!("{key} said"));
        assert!(
            said.len() == 1 && said[0].starts_with("scx_vcpu: "),
            "{told}"
        );
    }
    assert_eq!(all(output, "run told"), [""; 0], "{told}");
    assert!(all(output, "run said")[0].contains(reason), "{told}");
    let doctor = all(output, "doctor told");
    let no: Vec<_> = doctor
        .iter()
        .filter(|line| line.starts_with("no: "))
        .collect();
    assert!(no.len() == 1 && no[0].contains(reason), "{told}");
    assert_eq!(doctor.len(), 4, "{told}");
    // It needs KVM only, which is not loaded here.
    assert_eq!(all(output, "trace exit"), ["3"], "{told}");
    let said = all(output, "trace said");
    assert!(said.len() == 1 && said[0].contains(NO_KVM), "{told}");
}

/// What is said where KVM is not loaded.
const NO_KVM: &str = "KVM is not loaded, or its module has no BTF (no /sys/kernel/btf/kvm); \
                      load it: modprobe kvm_amd, or kvm_intel";

/// What is said where sched_ext is not there.
const NO_SCHED_EXT: &str = "this kernel has no sched_ext (no /sys/kernel/sched_ext); use one with \
                            CONFIG_SCHED_CLASS_EXT=y";

#[test]
fn root_vm_kernel_6_1_has_no_sched_ext_and_scx_vcpu_says_so() {
    refuses_to_schedule("6.1", NO_SCHED_EXT);
}

#[test]
fn root_vm_kernel_6_12_has_no_sched_ext_and_scx_vcpu_says_so() {
    refuses_to_schedule("6.12", NO_SCHED_EXT);
}

#[test]
fn root_vm_kernel_7_3_without_kvm_is_told_so_by_scx_vcpu() {
    refuses_to_schedule("7.3", NO_KVM);
}

#[test]
fn root_vm_kernel_6_1_boots() {
    boots("6.1");
}

#[test]
fn root_vm_kernel_6_12_boots() {
    boots("6.12");
}

#[test]
fn root_vm_kernel_7_3_boots() {
    boots("7.3");
}

#[test]
fn root_vm_kernel_6_1_cannot_be_frozen_and_says_why() {
    refuses_to_freeze("6.1", "cannot pin a BPF timer to a CPU");
}

#[test]
fn root_vm_kernel_6_12_is_frozen() {
    freezes("6.12");
}

#[test]
fn root_vm_kernel_7_3_is_frozen() {
    freezes("7.3");
}

#[test]
fn every_series_has_its_boot_test() {
    assert_eq!(SERIES, ["6.1", "6.12", "7.3"]);
}

#[test]
fn root_vm_a_host_program_runs_with_its_libraries() {
    let kernel = Kernel::debian(&store(), "6.12").unwrap();
    // GNU ls: dynamic, and told apart from busybox's by its version.
    let image = Image::builder(&kernel)
        .binary("/usr/bin/env")
        .file("/etc/debian_version", "/etc/from_host")
        .script("/bin/env --version | head -n 1; cat /etc/from_host")
        .build()
        .unwrap();
    let output = Guest::run_with_tries(&image, &options(), DEADLINE, 3).unwrap();
    let version = std::fs::read_to_string("/etc/debian_version").unwrap();
    assert!(
        output.stdout.starts_with("env (GNU coreutils)"),
        "{output:?}"
    );
    assert!(output.stdout.ends_with(&version), "{output:?}");
}

#[test]
fn root_vm_a_module_gets_its_parameters_from_the_kernels_command_line() {
    let kernel = Kernel::debian(&store(), "7.3").unwrap();
    let image = Image::builder(&kernel)
        .module("kvm_amd")
        .script("cd /sys/module; cat kvm_amd/parameters/npt kvm/parameters/halt_poll_ns")
        .build()
        .unwrap();
    let options = Options {
        append: "kvm-amd.npt=1 kvm_amd.npt=0 kvm.halt_poll_ns=1234".to_owned(),
        ..options()
    };
    let output = Guest::run_with_tries(&image, &options, DEADLINE, 3).unwrap();
    assert_eq!(output.stdout, "N\n1234\n", "{}", output.serial);
}

#[test]
fn root_vm_a_panic_is_an_error_with_the_serial_log() {
    let kernel = Kernel::debian(&store(), "6.12").unwrap();
    let image = Image::builder(&kernel)
        .script("echo c >/proc/sysrq-trigger")
        .build()
        .unwrap();
    let logs = tempfile::tempdir().unwrap();
    let options = Options {
        keep_logs: Some(logs.path().to_owned()),
        ..plain()
    };
    let err = Guest::boot(&image, &options)
        .unwrap()
        .run(DEADLINE)
        .unwrap_err();
    let BootError::Died { log, tail, .. } = &err else {
        panic!("{err}");
    };
    assert!(tail.contains("Kernel panic"), "{err}");
    let log = std::fs::read_to_string(log.0.as_ref().unwrap()).unwrap();
    assert!(log.contains("sysrq"), "{log}");
}

#[test]
fn root_vm_a_guest_past_its_deadline_is_killed() {
    let kernel = Kernel::debian(&store(), "6.12").unwrap();
    let image = Image::builder(&kernel)
        .script("while :; do :; done")
        .build()
        .unwrap();
    let guest = Guest::boot(&image, &plain()).unwrap();
    let group = guest.process_group().unwrap();
    let err = guest.run(Duration::from_secs(8)).unwrap_err();
    assert!(matches!(err, BootError::Deadline { .. }), "{err}");
    // Signal 0 to the group: somebody there or not.
    let alive = Command::new("kill")
        .args(["-0", "--", &format!("-{group}")])
        .output()
        .unwrap();
    assert!(!alive.status.success(), "process group {group} is alive");
}

#[test]
fn root_vm_a_guest_goes_with_its_owner() {
    let kernel = Kernel::debian(&store(), "6.12").unwrap();
    let image = Image::builder(&kernel).script("sleep 600").build().unwrap();
    let guest = Guest::boot(&image, &plain()).unwrap();
    let group = guest.process_group().unwrap();
    assert!(Path::new(&format!("/proc/{group}")).exists());
    drop(guest);
    assert!(!Path::new(&format!("/proc/{group}")).exists());
}
