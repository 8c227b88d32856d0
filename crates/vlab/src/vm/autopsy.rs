// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest was doing when its deadline passed.
//!
//! A guest that hangs says nothing by itself. Before it is killed, its QEMU is
//! asked for the registers of every vCPU, some times (do the instruction pointers
//! move?), and the host for what each thread of QEMU does (does a vCPU burn its
//! time or sleep?). Then the guest gets an NMI, on which its kernel panics
//! (`unknown_nmi_panic`) and prints the traces of all vCPUs to its serial log.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use qapi::Qmp;
use qapi::qmp;

/// A QEMU that does not answer within this time hangs itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often the registers are read, and how far apart.
const LOOKS: u32 = 3;
const APART: Duration = Duration::from_millis(300);

/// A kernel that hangs says where when it gets an NMI, for all vCPUs, and by itself when
/// a vCPU schedules nothing for 20 s. Part of the command line of every guest.
pub(crate) const SPEAKING: &str = "unknown_nmi_panic panic_print=0x40 softlockup_panic=1";

/// Everything that can be found out; what cannot is said so in its place.
pub(crate) fn examine(qemu: u32, socket: &Path) -> String {
    let mut text = threads(qemu);
    std::thread::sleep(APART);
    let _ = write!(text, "\n{APART:?} later:\n{}", threads(qemu));
    if let Err(error) = registers(socket, &mut text) {
        let _ = writeln!(text, "QEMU does not answer: {error}");
    }
    text
}

/// Name, state, CPU time in ticks and place in the kernel of each thread.
fn threads(qemu: u32) -> String {
    let mut lines = Vec::new();
    for task in fs::read_dir(format!("/proc/{qemu}/task"))
        .into_iter()
        .flatten()
    {
        let Ok(task) = task.map(|task| task.path()) else {
            continue;
        };
        let read = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
        let stat = read("stat");
        let fields: Vec<&str> = stat
            .rsplit_once(") ")
            .map_or_else(Vec::new, |(_, rest)| rest.split(' ').collect());
        let field = |nr: usize| fields.get(nr).copied().unwrap_or("?");
        lines.push(format!(
            "{} {}: {}, {} ticks in user mode, {} in the kernel, waits in {}\n",
            task.file_name().unwrap_or_default().to_string_lossy(),
            read("comm").trim_end(),
            field(0),
            field(11),
            field(12),
            read("wchan"),
        ));
    }
    lines.concat()
}

fn registers(socket: &Path, text: &mut String) -> io::Result<()> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut monitor = Qmp::from_stream(&stream);
    monitor.handshake()?;
    for look in 1..=LOOKS {
        let command_line = "info registers -a".to_owned();
        let told = monitor.execute(&qmp::human_monitor_command {
            command_line,
            cpu_index: None,
        })?;
        let _ = writeln!(text, "\nregisters, look {look} of {LOOKS}:\n{told}");
        std::thread::sleep(APART);
    }
    monitor.execute(&qmp::inject_nmi {})?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_monitor_still_has_threads() {
        let text = examine(std::process::id(), Path::new("/nonexistent/monitor"));
        assert!(text.contains("ticks in user mode"), "{text}");
        assert!(
            text.contains("QEMU does not answer: No such file"),
            "{text}"
        );
    }
}
