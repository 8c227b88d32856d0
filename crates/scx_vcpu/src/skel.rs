// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `build.rs` generates from the BPF objects. The lints are allowed here, for
//! code that nobody wrote, and nowhere else.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    clippy::unwrap_used,
    dead_code,
    reason = "generated"
)]

pub(crate) mod main {
    include!(concat!(env!("OUT_DIR"), "/main.skel.rs"));
}

pub(crate) mod look {
    include!(concat!(env!("OUT_DIR"), "/look.skel.rs"));
}

#[cfg(test)]
pub(crate) mod replay {
    include!(concat!(env!("OUT_DIR"), "/replay.skel.rs"));
}
