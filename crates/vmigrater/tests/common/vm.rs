// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a script beside the daemon's program in a VM, and reads what it says.

// Helpers of tests, where a panic is the report; not every test uses them all,
// and each test is a crate of its own that exports nothing.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    unused_imports,
    unused_macros
)]

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use vlab::vm::Disk;
use vlab::vm::Guest;
use vlab::vm::Image;
use vlab::vm::Kernel;
use vlab::vm::Options;
use vlab::vm::Output;
use vlab::vm::Qemu;
use vlab::vm::Sharing;
use vlab::vm::Store;
use vlab::vm::systemd;

/// More than all waits of a script together: its own words are a better report
/// than a deadline's.
const DEADLINE: Duration = Duration::from_secs(400);

/// How many times a guest may be started that dies or hangs. Suspended beside other work, 3
/// of 51 did (vm_events.rs). With two tries one of three kernels' boots would fail in one run
/// of a hundred.
const TRIES: u32 = 3;

/// Functions for every script.
pub const PRELUDE: &str = r#"
uptime_s() {
	cut -d . -f 1 /proc/uptime
}

# Until COMMAND succeeds, WHILE_PID is gone (0: no such), or 100 s have passed.
until_ok() {
	end=$(($(uptime_s) + 100))
	pid=$1
	shift
	until "$@"; do
		[ "$(uptime_s)" -lt "$end" ] || return 1
		[ "$pid" = 0 ] || kill -0 "$pid" 2>/dev/null || return 1
		usleep 100000
	done
}

answers() {
	vmigrater status --json >/tmp/status 2>/tmp/status.err
}

# A number of the last report.
number() {
	sed -n 's/.*"'"$1"'":\([0-9]*\).*/\1/p' /tmp/status
}

# For guests whose vCPUs are taken away.
configure() {
	mkdir -p /etc/vmigrater
	# Emulated, moves may well cost more than they gain, and a daemon that finds
	# that out makes none. These tests ask for moves.
	printf 'source = "heartbeat"\n[trial]\nenabled = false\n' >/etc/vmigrater/config.toml
}

mask() {
	awk '/^Cpus_allowed_list:/ { print $2 }' "/proc/$1/status"
}
"#;

/// What a guest has beside the daemon's program and a disk.
#[derive(Default)]
pub struct Machine<'a> {
    /// Whether its vCPUs are taken away.
    pub sharing: Option<Sharing>,
    /// Programs of the host.
    pub programs: &'a [&'a str],
    /// More vCPUs than [`VCPUS`].
    pub vcpus: Option<u32>,
    /// A unit of ours, under systemd.
    pub unit: Option<&'a Path>,
}

/// Gaps of three ticks of these kernels (4 ms each): two are what wakes a daemon
/// that cannot read steal time.
pub const SHARING: Sharing = Sharing {
    on: Duration::from_millis(24),
    off: Duration::from_millis(12),
};

/// Of a guest that does not say otherwise.
pub const VCPUS: u32 = 2;

/// One boot for many tests: a boot and the verifier under TCG are most of the time.
pub struct Once(OnceLock<Result<Output, String>>);

impl Once {
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// What the one boot has said; whoever comes first boots. A boot that failed
    /// fails every test of it, and is not made again.
    pub fn output(&self, series: &str, script: &str, machine: Machine<'_>) -> &Output {
        let output = self.0.get_or_init(|| {
            let output = try_run(series, script, machine);
            if let Ok(output) = &output {
                eprintln!("{}", output.stdout);
            }
            output
        });
        output.as_ref().unwrap()
    }
}

/// The place of a series in the matrix, for an array of [`Once`].
pub fn place(series: &str) -> usize {
    let mut all = vlab::vm::SERIES.iter();
    all.position(|name| *name == series).unwrap()
}

/// Boots, runs `script` after [`PRELUDE`], and says how that went.
pub fn run(series: &str, script: &str, machine: Machine<'_>) -> Output {
    try_run(series, script, machine).unwrap()
}

fn try_run(series: &str, script: &str, machine: Machine<'_>) -> Result<Output, String> {
    let store = Store::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/vm")).unwrap();
    let kernel = Kernel::debian(&store, series).unwrap();
    let mut image = Image::builder(&kernel)
        .binary(env!("CARGO_BIN_EXE_vmigrater"))
        .script(format!("{PRELUDE}{script}"));
    for program in machine.programs {
        image = image.binary(program);
    }
    if let Some(unit) = machine.unit {
        image = image.systemd(unit);
    }
    let options = Options {
        // 1 ms a request: an I/O-bound reader by any measure, even under TCG. And so large
        // that no reader comes to its end, however slow the machine: with 1 GiB, one that had
        // begun at 400 MB was done after 165 s, and its test failed for want of a reader.
        disks: vec![Disk::Null {
            size: 1 << 40,
            latency_ns: 1_000_000,
        }],
        append: machine.unit.map_or("", |_| systemd::APPEND).to_owned(),
        vcpus: machine.vcpus.unwrap_or(VCPUS),
        sharing: machine.sharing,
        keep_logs: Some(store.root().join("logs")),
        ..Options::new(Qemu::debian(&store).unwrap())
    };
    let output = Guest::run_with_tries(&image.build().unwrap(), &options, DEADLINE, TRIES)
        .map_err(|error| error.to_string())?;
    eprintln!(
        "{series} ({}): script after {:?}, {:?} in all, {} gaps, failed tries: {:?}",
        kernel.release(),
        output.boot,
        output.total,
        output.gaps,
        output.failed_tries
    );
    Ok(output)
}

/// What follows `key` and a blank at the start of a line, for each such line.
pub fn all<'a>(output: &'a Output, key: &str) -> Vec<&'a str> {
    output
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
        .collect()
}

/// A test of each claim on each kernel: `claim: on_6_1 on_6_12 on_7_3;`.
macro_rules! on_each_kernel {
    ($($claim:ident: $on_6_1:ident $on_6_12:ident $on_7_3:ident;)*) => {
        $(
            #[test]
            fn $on_6_1() {
                $claim("6.1");
            }
            #[test]
            fn $on_6_12() {
                $claim("6.12");
            }
            #[test]
            fn $on_7_3() {
                $claim("7.3");
            }
        )*
    };
}

pub(crate) use on_each_kernel;
