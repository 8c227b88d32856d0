// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words every other crate speaks.
//!
//! * [`Time`], an instant, and [`Ns`], a duration: integer nanoseconds, never
//!   `f64`, so that the daemon, the simulator and a test agree to the last bit.
//! * [`VcpuId`], a CPU as the guest counts it, and [`CpuId`], a physical CPU as
//!   the host counts it. On bare metal (and under the freezer) both are equal,
//!   which is why they are two types: nothing else would catch a mix-up.
//! * [`Tid`] and [`TaskKey`]: a thread id alone is reused by the kernel; the key
//!   adds the start time, and only a key may be stored.
//! * [`CpuSet`]: a set of CPUs, in the kernel's list syntax (`0-3,7`).
//! * [`Permille`]: a load or a share in thousandths.

mod cpu;
mod cpuset;
mod ratio;
mod task;
mod time;

pub use cpu::CpuId;
pub use cpu::VcpuId;
pub use cpuset::CpuSet;
pub use cpuset::ParseCpuSetError;
pub use ratio::Permille;
pub use task::TaskKey;
pub use task::Tid;
pub use time::Ns;
pub use time::Time;
