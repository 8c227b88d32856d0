// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why the kernel ended a scheduler.

use crate::skel::main::MainSkel;

/// kernel/sched/ext: `SCX_ECODE_RSN_HOTPLUG`, and `SCX_ECODE_ACT_RESTART`, which asks the
/// owner to start again.
const HOTPLUG_RESTART: i64 = 1 << 48 | 1 << 32;

/// kernel/sched/ext: `SCX_EXIT_UNREG`.
const UNREG: i32 = 64;

/// The kernel ended the scheduler.
#[derive(Debug, Default, thiserror::Error)]
#[error("the kernel ended the scheduler: {reason}{message}; its own scheduler has the machine")]
pub(crate) struct Ended {
    /// The kernel's word for it.
    pub(crate) reason: String,
    /// Details, if any, behind a separator.
    pub(crate) message: String,
    /// Only because a CPU came or went.
    pub(crate) by_hotplug: bool,
    /// Only because its owner has taken it away.
    pub(crate) by_owner: bool,
}

/// `None` while it has not.
pub(crate) fn why(skel: &MainSkel<'_>) -> Option<Ended> {
    let bss = skel.maps.bss_data.as_deref()?;
    if bss.exit_kind == 0 {
        return None;
    }
    let message = text(&bss.exit_message);
    Some(Ended {
        reason: text(&bss.exit_reason),
        message: if message.is_empty() {
            message
        } else {
            format!(" ({message})")
        },
        by_hotplug: bss.exit_code == HOTPLUG_RESTART,
        by_owner: bss.exit_kind == UNREG,
    })
}

/// A text of C, as far as it goes.
fn text(bytes: &[i8]) -> String {
    let bytes: Vec<u8> = bytes
        .iter()
        .map(|byte| byte.cast_unsigned())
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_at_its_zero_or_with_its_room() {
        let bytes: Vec<i8> = b"stall\0old".iter().map(|byte| *byte as i8).collect();
        assert_eq!(text(&bytes), "stall");
        assert_eq!(text(&bytes[..3]), "sta");
    }
}
