// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of the simulator's objects: dense indices, one type each.

use std::fmt;

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// As an index into an array of these.
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

index! {
    /// A virtual machine, numbered in the order of the configuration.
    VmId
}

index! {
    /// A vCPU as the *host* knows it: numbered through all VMs, the vCPUs of one
    /// VM in a row. What the guest calls it is [`units::VcpuId`].
    Vcpu
}

index! {
    /// A task of one guest.
    TaskId
}

index! {
    /// A device of the machine.
    DeviceId
}
