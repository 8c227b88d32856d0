// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `build.rs` generates from the BPF objects. The lints are allowed here, for
//! code that nobody wrote, and nowhere else.
#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    dead_code,
    non_camel_case_types
)]

pub(super) mod sense {
    include!(concat!(env!("OUT_DIR"), "/sense.skel.rs"));
}

pub(super) mod locate_kvm {
    include!(concat!(env!("OUT_DIR"), "/locate_kvm.skel.rs"));
}

pub(super) mod locate_map {
    include!(concat!(env!("OUT_DIR"), "/locate_map.skel.rs"));
}
