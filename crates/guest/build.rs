// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the BPF programs and generates their skeletons.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

/// One BPF object: source file, name of the skeleton, extra definitions.
const OBJECTS: [(&str, &str, Option<&str>); 3] = [
    ("sense.bpf.c", "sense", None),
    ("locate.bpf.c", "locate_kvm", None),
    ("locate.bpf.c", "locate_map", Some("-DLOCATE_MAP")),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let bpf = Path::new("src/bpf");
    println!("cargo::rerun-if-changed={}", bpf.display());
    println!("cargo::rerun-if-changed=../policy/include");
    println!("cargo::rerun-if-env-changed=CLANG");
    // For the test that `selftest` forgets none.
    let names = OBJECTS.map(|(_, name, _)| name).join(" ");
    println!("cargo::rustc-env=BPF_OBJECTS={names}");
    for (source, name, define) in OBJECTS {
        // v3 for 32-bit compare-and-swap (Linux 5.12).
        let mut args: Vec<OsString> = ["-mcpu=v3", "-I", "../policy/include", "-Wall", "-Werror"]
            .map(OsString::from)
            .into();
        args.extend(define.map(OsString::from));
        SkeletonBuilder::new()
            .source(bpf.join(source))
            .obj(out.join(format!("{name}.bpf.o")))
            // Debian's `clang` is 14; BPF needs the newer one that `make setup` installs.
            .clang(env::var_os("CLANG").unwrap_or_else(|| "clang-19".into()))
            .clang_args(args)
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|error| panic!("cannot build {source}: {error:#}\n(is clang-19 installed? `make setup` does that; CLANG=... names another)"));
    }
}
