// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From facts to one sentence: can the daemon help here, and if not, why not?
//!
//! Pure. The order is that of the obstacles: what makes the daemon pointless for
//! good comes first, what is only so at the moment comes last.

use serde::Serialize;

use super::Facts;
use super::privileges::NEEDED;
use crate::exit::Exit;

/// Less steal than this, in percent of all time, is noise: at this share a
/// task loses a thousandth of its time.
const STEAL_NOISE_PERCENT: f64 = 0.1;

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The code that the process ends with.
    pub(crate) exit: Exit,
    /// One sentence, cause and fix.
    pub(crate) words: String,
}

impl Serialize for Verdict {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("Verdict", 2)?;
        fields.serialize_field("exit_code", &(self.exit as u8))?;
        fields.serialize_field("words", &self.words)?;
        fields.end()
    }
}

/// Draws the conclusion.
pub(crate) fn verdict(facts: &Facts) -> Verdict {
    let say = |exit, words: String| Verdict { exit, words };
    let machine = &facts.machine;
    if machine.usable() < 2 {
        let words = match machine.online.len() {
            0 | 1 => {
                "nothing to gain: with one vCPU there is nowhere else to go; give the VM a second one"
            }
            _ => "nothing to gain: this process may use one vCPU only; run it outside this cpuset",
        };
        return say(Exit::NothingToGain, words.into());
    }
    if !machine.btf {
        return say(
            Exit::Kernel,
            format!(
                "cannot work: kernel {} does not publish its types; use one built with CONFIG_DEBUG_INFO_BTF=y, as Debian's are",
                machine.kernel
            ),
        );
    }
    if !machine.missing_tracepoints.is_empty() {
        return say(
            Exit::Kernel,
            format!(
                "cannot work: kernel {} lacks the tracepoints {}; use one built with CONFIG_FTRACE=y and CONFIG_BLK_DEV_IO_TRACE=y",
                machine.kernel,
                machine.missing_tracepoints.join(", ")
            ),
        );
    }
    if !facts.privileges.missing.is_empty() {
        let wants: Vec<String> = NEEDED
            .into_iter()
            .map(|(_, name, why)| format!("{name} {why}"))
            .collect();
        return say(
            Exit::Permission,
            format!(
                "cannot tell: this process lacks {}; ask as root (the daemon wants {})",
                facts.privileges.missing.join(", "),
                wants.join(", ")
            ),
        );
    }
    if let Some(problem) = &facts.engine_problem {
        return say(problem.exit, format!("cannot work: {}", problem.words));
    }
    gain(facts)
}

/// It would work: is there anything to win?
fn gain(facts: &Facts) -> Verdict {
    let say = |exit, words: String| Verdict { exit, words };
    let lately = facts.stolen_lately_percent();
    let since_boot = facts.stolen_since_boot_percent();
    let Some(lately) = lately else {
        return say(
            Exit::NothingToGain,
            "cannot tell: no look was taken; run doctor on the machine itself".into(),
        );
    };
    if lately < STEAL_NOISE_PERCENT {
        let words = match since_boot {
            Some(percent) if percent >= STEAL_NOISE_PERCENT => format!(
                "nothing to gain now: no vCPU was taken away while looking, but {percent:.1} % of the time since boot was stolen; \
                 look again under load, or just start the daemon: it sleeps until it is needed"
            ),
            _ => {
                "nothing to gain: this VM has its CPUs for itself; an installed daemon would sleep"
                    .into()
            }
        };
        return say(Exit::NothingToGain, words);
    }
    let tasks = facts.look.as_ref().map_or(0, |look| look.tasks.len());
    if tasks == 0 {
        return say(
            Exit::NothingToGain,
            format!(
                "nothing to gain now: {lately:.1} % of the vCPUs' time was taken away, but no task lived on I/O while looking; \
                 look again while yours do"
            ),
        );
    }
    let bound = gain_bound(1.0 - lately / 100.0, facts.machine.usable());
    let single = facts
        .disks
        .iter()
        .any(|disk| disk.completions.vcpu().is_some());
    let caveat = if single {
        "; a disk here completes on one vCPU only, so its tasks will live on that vCPU and gain less"
    } else {
        ""
    };
    say(
        Exit::Ok,
        format!(
            "it can help: {lately:.1} % of the vCPUs' time is taken away and {tasks} I/O-bound {} suffer{}; \
             at best they get {bound:.1} times their I/O{caveat}",
            if tasks == 1 { "task" } else { "tasks" },
            if tasks == 1 { "s" } else { "" },
        ),
    )
}

/// With `vcpus` that each run for `share` of the time, independently, at least
/// one runs for 1 - (1 - share)^vcpus of it: what a task that always sits on a
/// running vCPU could use, against `share` for one that stays.
fn gain_bound(share: f64, vcpus: u32) -> f64 {
    let share = share.clamp(0.01, 1.0);
    let exponent = i32::try_from(vcpus).unwrap_or(i32::MAX);
    (1.0 - (1.0 - share).powi(exponent)) / share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_has_the_known_values() {
        for (share, vcpus, bound) in [
            (0.5, 2, 1.50),
            (0.25, 2, 1.75),
            (0.125, 2, 1.875),
            (0.5, 8, 1.99),
            (1.0, 4, 1.0),
        ] {
            let got = gain_bound(share, vcpus);
            assert!((got - bound).abs() < 0.01, "{share} {vcpus}: {got}");
        }
    }
}
