// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the C headers that BPF programs include, so that Rust calls the
//! same copy of each formula, and tells dependent crates where they are
//! (`DEP_POLICY_INCLUDE`).

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=include/iobound.h");
    println!("cargo::rerun-if-changed=src/guest/iobound/shim.c");
    if let Ok(root) = env::var("CARGO_MANIFEST_DIR") {
        println!("cargo::metadata=include={root}/include");
    }
    cc::Build::new()
        .file("src/guest/iobound/shim.c")
        .include("include")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("policy_iobound");
}
