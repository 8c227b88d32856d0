// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU numbers, one type per point of view.

use std::fmt;

macro_rules! cpu_number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(transparent))]
        pub struct $name(pub u32);

        impl $name {
            /// As an index into a per-CPU array.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

cpu_number! {
    /// A virtual CPU, as the guest's kernel numbers its CPUs.
    VcpuId
}

cpu_number! {
    /// A physical CPU, as the host's kernel numbers its CPUs.
    CpuId
}
