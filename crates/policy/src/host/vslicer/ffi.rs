// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C side (`include/vslicer.h` through `shim.c`), where each function is
//! documented: scalars in, scalars out, no state.

// SAFETY: the signatures are those of shim.c; the functions take integers by
// value, touch no memory and accept every value.
unsafe extern "C" {
    pub(super) safe fn policy_vslicer_turns(slice_ns: u64, micro_ns: u64) -> u64;
    pub(super) safe fn policy_vslicer_due(
        left_ns: u64,
        members: u64,
        slice_ns: u64,
        micro_ns: u64,
    ) -> u64;
    pub(super) safe fn policy_vslicer_rank(
        sensitive: u32,
        left_ns: u64,
        due_ns: u64,
        used_ns: u64,
        distance: u64,
    ) -> u64;
    pub(super) safe fn policy_vslicer_cut(
        sensitive: u32,
        left_ns: u64,
        due_ns: u64,
        used_ns: u64,
    ) -> u64;
    pub(super) safe fn policy_vslicer_length(
        sensitive: u32,
        left_ns: u64,
        cut_ns: u64,
        slice_ns: u64,
        micro_ns: u64,
    ) -> u64;
    pub(super) safe fn policy_vslicer_owes(
        left_ns: u64,
        owed_ns: u64,
        ran_ns: u64,
        slice_ns: u64,
    ) -> u64;
    pub(super) safe fn policy_vslicer_pays(owed_ns: u64, slice_ns: u64) -> u64;
    pub(super) safe fn policy_vslicer_preempts(
        running_sensitive: u32,
        sensitive: u32,
        left_ns: u64,
        due_ns: u64,
        used_ns: u64,
    ) -> u32;
}
