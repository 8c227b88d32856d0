// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions of the kernel with an argument that its verifier fills in (`aux`), and whether
//! the kernel's own description of them is whole.
//!
//! Such a function is described twice: as programs call it, without that argument, and
//! with it under a name that ends in `_impl` (`KF_IMPLICIT_ARGS`, kernel/bpf/verifier.c). Where
//! the build left out the second one, the verifier refuses whoever calls the function, with
//! "does not have a valid func_proto"; libbpf fails before, since its caller has an argument
//! less. Debian's 7.2.12 is built so, 7.3.4 is not.

use std::fs;
use std::path::Path;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types;

/// `BTF_MAGIC`
const MAGIC: u16 = 0xeb9f;

/// Those that the programs call.
const FILLED: [&str; 11] = [
    "bpf_iter_scx_dsq_new",
    "scx_bpf_create_dsq",
    "scx_bpf_dsq_insert___v2",
    "scx_bpf_dsq_move_to_local___v2",
    "scx_bpf_dsq_nr_queued",
    "scx_bpf_dsq_peek",
    "scx_bpf_dsq_reenq",
    "scx_bpf_kick_cpu",
    "scx_bpf_pick_idle_cpu",
    "scx_bpf_task_set_slice",
    "scx_bpf_test_and_clear_cpu_idle",
];

/// Those whose argument nobody would fill in, by the kernel's description at this path. None if
/// it cannot be read: loading will tell.
pub(super) fn half_described(path: &Path) -> Vec<&'static str> {
    // libbpf takes another file for a program with a section, and complains.
    let is_btf = fs::read(path).is_ok_and(|bytes| bytes.starts_with(&MAGIC.to_ne_bytes()));
    let Some(btf) = is_btf.then(|| Btf::from_path(path).ok()).flatten() else {
        return Vec::new();
    };
    let half = |name: &&str| {
        has_aux(&btf, name)
            && btf
                .type_by_name::<types::Func<'_>>(&format!("{name}_impl"))
                .is_none()
    };
    FILLED.into_iter().filter(half).collect()
}

/// Is its last argument the verifier's?
fn has_aux(btf: &Btf<'_>, function: &str) -> bool {
    let function = btf.type_by_name::<types::Func<'_>>(function);
    let described = function.and_then(|function| function.next_type());
    let prototype = described.and_then(|described| types::FuncProto::try_from(described).ok());
    prototype.is_some_and(|prototype| {
        let last = prototype.iter().last().and_then(|argument| argument.name);
        last.is_some_and(|name| name == "aux")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A description of functions with so many arguments, the last one `aux` or not
    /// (include/uapi/linux/btf.h).
    fn described(functions: &[(&str, bool)]) -> Vec<u8> {
        let mut strings = b"\0u64\0aux\0arg\0".to_vec();
        let (u64_name, aux, arg) = (1, 5, 9);
        let mut words: Vec<u32> = vec![u64_name, 1 << 24, 8, 64];
        for (nth, (name, filled)) in functions.iter().enumerate() {
            let name_at = strings.len() as u32;
            strings.extend(name.as_bytes());
            strings.push(0);
            let last = if *filled { aux } else { arg };
            // FUNC_PROTO with two arguments, then the FUNC of it.
            words.extend([0, 13 << 24 | 2, 1, arg, 1, last, 1]);
            words.extend([name_at, 12 << 24, 2 * nth as u32 + 2]);
        }
        let types = 4 * words.len() as u32;
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, types, types, strings.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(strings);
        bytes
    }

    fn half(functions: &[(&str, bool)]) -> Vec<&'static str> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), described(functions)).unwrap();
        Btf::from_path(file.path()).unwrap();
        half_described(file.path())
    }

    #[test]
    fn a_function_that_is_described_once_is_named() {
        let whole = [
            ("scx_bpf_kick_cpu", false),
            ("scx_bpf_kick_cpu_impl", true),
            // Nothing is filled in.
            ("scx_bpf_create_dsq", false),
        ];
        assert!(half(&whole).is_empty());
        let once = [("scx_bpf_dsq_peek", true), ("scx_bpf_kick_cpu", true)];
        assert_eq!(half(&once), ["scx_bpf_dsq_peek", "scx_bpf_kick_cpu"]);
    }

    #[test]
    fn what_cannot_be_read_is_left_to_the_loading() {
        assert!(half_described(Path::new("/no/such/file")).is_empty());
    }
}
