// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the BPF programs and generates their skeleton.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let bpf = Path::new("src/bpf");
    println!("cargo::rerun-if-changed={}", bpf.display());
    println!("cargo::rerun-if-changed=../policy/include");
    println!("cargo::rerun-if-env-changed=CLANG");
    // v3 for 32-bit compare-and-swap (Linux 5.12).
    let args: Vec<OsString> = ["-mcpu=v3", "-I", "../policy/include", "-Wall", "-Werror"]
        .map(OsString::from)
        .into();
    // The scheduler, its trace alone, and what its tests replay events with.
    for name in ["main", "look", "replay"] {
        SkeletonBuilder::new()
            .source(bpf.join(format!("{name}.bpf.c")))
            .obj(out.join(format!("{name}.bpf.o")))
            // Debian's `clang` is 14; BPF needs the newer one that `make setup` installs.
            .clang(env::var_os("CLANG").unwrap_or_else(|| "clang-19".into()))
            .clang_args(args.clone())
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|error| panic!("cannot build {name}.bpf.c: {error:#}\n(is clang-19 installed? `make setup` does that; CLANG=... names another)"));
    }
}
