// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs with threads for the daemon to find, and what an owner sees of a thread.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

use super::until;

/// What such a program does if it lives on I/O: one request after another, each 100 us of a
/// device and nothing else, for longer than any test.
pub fn one_request_after_another() {
    let args = vlab::load::pulse::PulseArgs {
        queue_depth: 1,
        device_us: 100,
        threads: 1,
        cpu_us: 0,
        arrivals: Vec::new(),
        series_ms: None,
        seconds: Some(120.0),
    };
    vlab::load::pulse::run(&args).unwrap();
}

/// An ignored test of this program, run as a program of its own; ends with the test.
pub struct Program(Child);

impl Program {
    pub fn start(name: &str) -> Self {
        Self::spawn(name, &mut Command::new(std::env::current_exe().unwrap()))
    }

    /// The same with a file that it knows by the name of a variable.
    pub fn start_with(name: &str, variable: &str, file: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Self::spawn(name, command.env(variable, file))
    }

    fn spawn(name: &str, command: &mut Command) -> Self {
        let child = command
            .args(["--exact", name, "--ignored", "--test-threads=1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Its threads whose names begin so; waits until there are as many.
    pub fn threads(&self, comm: &str, wanted: usize) -> Vec<u32> {
        let mut found = Vec::new();
        until("the program has its threads", || {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
            found = tasks
                .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
                .filter(|tid| {
                    fs::read_to_string(format!("/proc/{tid}/comm"))
                        .is_ok_and(|name| name.starts_with(comm))
                })
                .collect();
            found.len() == wanted
        });
        found
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What an owner sees of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub cgroup: String,
    pub mask: String,
    /// Policy, flags, nice value, priority and slice, as the kernel has them.
    pub attr: [u8; 48],
}

/// Of a thread, as of now.
pub fn state(tid: u32) -> State {
    let read = |name: &str| fs::read_to_string(format!("/proc/{tid}/{name}")).unwrap();
    let line = |text: String, start: &str| {
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap().to_owned()
    };
    let mut attr = [0u8; 48];
    // SAFETY: the buffer is as long as it says.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            tid,
            attr.as_mut_ptr(),
            attr.len(),
            0,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    State {
        cgroup: line(read("cgroup"), "0::"),
        mask: line(read("status"), "Cpus_allowed_list"),
        attr,
    }
}
