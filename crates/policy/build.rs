// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the C headers that BPF programs include, so that Rust calls the
//! same copy of each formula, and tells dependent crates where they are
//! (`DEP_POLICY_INCLUDE`).

use std::env;

/// What gives the functions of the headers symbols.
const SHIMS: [&str; 4] = [
    "src/guest/iobound/shim.c",
    "src/guest/path/shim.c",
    "src/host/credit/shim.c",
    "src/host/vslicer/shim.c",
];

fn main() {
    let mut build = cc::Build::new();
    println!("cargo::rerun-if-changed=include");
    for shim in SHIMS {
        println!("cargo::rerun-if-changed={shim}");
        build.file(shim);
    }
    if let Ok(root) = env::var("CARGO_MANIFEST_DIR") {
        println!("cargo::metadata=include={root}/include");
    }
    build
        .include("include")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("policy_headers");
}
