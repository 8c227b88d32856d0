// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs with something to do.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

/// Computes on each of the first CPUs until it is dropped. A vCPU that idles is not seen to
/// be away, and its slices have no end that could be foreseen: nobody has to leave it.
pub struct Compute(Arc<AtomicBool>);

impl Compute {
    pub fn start(cpus: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for cpu in 0..cpus as usize {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut set = rustix::thread::CpuSet::new();
                set.set(cpu);
                rustix::thread::sched_setaffinity(None, &set).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(stop)
    }
}

impl Drop for Compute {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
