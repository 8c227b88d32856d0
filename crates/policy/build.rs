// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the C headers that BPF programs include, so that Rust calls the
//! same copy of each formula, and tells dependent crates where they are
//! (`DEP_POLICY_INCLUDE`).

use std::env;

/// Header and the shim that gives its functions symbols.
const HEADERS: [(&str, &str); 3] = [
    ("include/iobound.h", "src/guest/iobound/shim.c"),
    ("include/credit.h", "src/host/credit/shim.c"),
    ("include/vslicer.h", "src/host/vslicer/shim.c"),
];

fn main() {
    let mut build = cc::Build::new();
    for (header, shim) in HEADERS {
        println!("cargo::rerun-if-changed={header}");
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
