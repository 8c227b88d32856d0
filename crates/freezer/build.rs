// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the BPF programs and generates their Rust types.

use std::env;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// Older ones miscompile or reject parts of what the programs use; this is the
/// one that the tests run with.
const CLANG: &str = "clang-19";

fn main() {
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var_os("CLANG").map_or_else(|| PathBuf::from(CLANG), PathBuf::from);
    if Command::new(&clang).arg("--version").output().is_err() {
        println!(
            "cargo::error={} cannot be run: install it (apt-get install clang-19, in Debian from 12 on) \
             or set CLANG to a clang of version 19 or later",
            clang.display()
        );
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for (source, skeleton) in [
        ("src/bpf/freezer.bpf.c", "freezer.skel.rs"),
        ("src/bpf/tasks.bpf.c", "tasks.skel.rs"),
        // For the tests only, but a build script cannot know for whom it runs.
        ("tests/bpf/witness.bpf.c", "witness.skel.rs"),
    ] {
        build(&clang, Path::new(source), &out.join(skeleton));
    }
    for header in ["src/bpf/kernel.h", "src/bpf/freezer.h", "src/bpf/tasks.h"] {
        println!("cargo::rerun-if-changed={header}");
    }
}

fn build(clang: &Path, source: &Path, skeleton: &Path) {
    println!("cargo::rerun-if-changed={}", source.display());
    let done = SkeletonBuilder::new()
        .source(source)
        .clang(clang)
        // v3 (Linux 5.12): atomics that return the old value, which are the only ones with barriers.
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-Isrc/bpf"])
        .build_and_generate(skeleton);
    if let Err(error) = done {
        println!("cargo::error={}: {error:#}", source.display());
    }
}
