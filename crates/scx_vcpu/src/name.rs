// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a VM is called, for people. Its identity is the process id of its VMM.

use std::path::Path;

/// Options whose value is the VM's name, by the VMMs that have them: QEMU, crosvm and kvmtool
/// (whose `-n` is its network), Firecracker.
const NAMED_BY: [&str; 4] = ["-name", "--name", "--id", "-id"];

/// The name of the VM of this process; empty if that has gone.
pub(crate) fn of(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let words: Vec<_> = line
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy)
        .collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    name(&words, &exe)
}

/// By the words of its command line and the file that runs: what the VMM is told, else the
/// VMM's own name. Control characters, which a terminal would obey, are left out.
fn name(words: &[&str], exe: &Path) -> String {
    let program = words.first().map_or("", |word| file_name(word));
    let told = words.iter().enumerate().find_map(|(at, word)| {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value)),
            _ => (*word, words.get(at + 1).copied()),
        };
        value.filter(|_| NAMED_BY.contains(&option)).map(guest)
    });
    let name = told
        .filter(|name| !name.is_empty())
        .or_else(|| Some(program).filter(|name| !name.is_empty()))
        .or_else(|| exe.file_name()?.to_str())
        .unwrap_or_default();
    name.chars().filter(|char| !char.is_control()).collect()
}

/// QEMU's value is a list: `guest=web,debug-threads=on`, or `web,process=x`.
fn guest(value: &str) -> &str {
    let mut parts = value.split(',');
    let first = parts.clone().next().unwrap_or_default();
    parts
        .find_map(|part| part.strip_prefix("guest="))
        .unwrap_or(if first.contains('=') { "" } else { first })
}

fn file_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        name(&words, Path::new("/usr/bin/loader"))
    }

    #[test]
    fn a_vm_is_called_what_its_vmm_was_told() {
        for (line, is) in [
            (
                "/usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on -S",
                "web",
            ),
            (
                "qemu-system-x86_64 -m 1G -name debug-threads=on,guest=db",
                "db",
            ),
            ("qemu-system-x86_64 -name plain,process=x", "plain"),
            (
                "qemu-system-x86_64 -name debug-threads=on -n",
                "qemu-system-x86_64",
            ),
            ("lkvm run -n mode=none --name=box -c 2", "box"),
            ("lkvm run -n mode=none", "lkvm"),
            ("/usr/bin/lkvm run --name box", "box"),
            ("firecracker --id=551e7604 --api-sock /run/fc", "551e7604"),
            (
                "/usr/bin/firecracker --api-sock /run/fc --id 551e7604",
                "551e7604",
            ),
            ("cloud-hypervisor --kernel vmlinux", "cloud-hypervisor"),
            ("/opt/alioth boot -k vmlinux -n 2", "alioth"),
            ("vmm --name", "vmm"),
            ("vmm --name a\u{1b}[2Jb", "a[2Jb"),
        ] {
            assert_eq!(name_of(line), is, "{line}");
        }
    }

    #[test]
    fn one_without_a_command_line_is_called_as_its_file() {
        assert_eq!(name(&[""], Path::new("/usr/bin/loader")), "loader");
        assert_eq!(name(&[], Path::new("")), "");
        assert_eq!(of(u32::MAX), "");
    }
}
