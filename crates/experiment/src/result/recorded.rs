// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was recorded of the I/O threads: where their time went, and a timeline
//! of a short part of a window.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::Serializer;
use units::Ns;

/// What an I/O thread does at one instant, in the order of a request's life.
///
/// The split is the one that tells causes apart: only [`TaskState::Device`] and
/// [`TaskState::Running`] are the request's own; [`TaskState::Queued`] is what a
/// wake-up lever can shorten; the three `off` states are what placement can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskState {
    /// Current on a vCPU that is on.
    Running,
    /// Waits for the device.
    Device,
    /// The device is done, but the vCPU that its completion waits for is off.
    Pending,
    /// Ready, on a vCPU that is on, behind something else.
    Queued,
    /// Ready, on a vCPU that is off.
    QueuedOff,
    /// Current on a vCPU that is off: it can do nothing, nor be moved.
    CurrentOff,
    /// Sleeps for another reason than I/O.
    Asleep,
}

impl TaskState {
    /// All of them, in the order in which a report stacks them.
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::Device,
        Self::Queued,
        Self::CurrentOff,
        Self::QueuedOff,
        Self::Pending,
        Self::Asleep,
    ];

    /// Its letter in a [`Spells`] text and its key in style sheets.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Running => 'R',
            Self::Device => 'D',
            Self::Pending => 'P',
            Self::Queued => 'Q',
            Self::QueuedOff => 'O',
            Self::CurrentOff => 'C',
            Self::Asleep => 'S',
        }
    }

    /// What a reader calls it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Running => "own CPU",
            Self::Device => "device",
            Self::Pending => "completion pending on a descheduled vCPU",
            Self::Queued => "queued behind compute",
            Self::QueuedOff => "queued on a descheduled vCPU",
            Self::CurrentOff => "current on a descheduled vCPU",
            Self::Asleep => "asleep, not for I/O",
        }
    }

    /// Is it time lost to a vCPU that was off?
    #[must_use]
    pub const fn is_off(self) -> bool {
        matches!(self, Self::Pending | Self::QueuedOff | Self::CurrentOff)
    }

    /// The state of a letter.
    #[must_use]
    pub fn of_letter(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.letter() == letter)
    }
}

/// Where the time of all I/O threads went in a window. The parts add up to
/// `threads` times the window, unless a thread was not seen at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoTime {
    /// Threads that were seen.
    pub threads: u32,
    /// [`TaskState::Running`].
    pub running: Ns,
    /// [`TaskState::Device`].
    pub device: Ns,
    /// [`TaskState::Pending`].
    pub pending: Ns,
    /// [`TaskState::Queued`].
    pub queued: Ns,
    /// [`TaskState::QueuedOff`].
    pub queued_off: Ns,
    /// [`TaskState::CurrentOff`].
    pub current_off: Ns,
    /// [`TaskState::Asleep`].
    pub asleep: Ns,
    /// The same time by where the threads were: current, queued, or asleep since they had been
    /// there; by number of the vCPU. Empty where nobody wrote it down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_vcpu: Vec<Ns>,
}

impl IoTime {
    /// The part of one state.
    #[must_use]
    pub const fn of(&self, state: TaskState) -> Ns {
        match state {
            TaskState::Running => self.running,
            TaskState::Device => self.device,
            TaskState::Pending => self.pending,
            TaskState::Queued => self.queued,
            TaskState::QueuedOff => self.queued_off,
            TaskState::CurrentOff => self.current_off,
            TaskState::Asleep => self.asleep,
        }
    }

    /// Adds time to one state.
    pub fn add(&mut self, state: TaskState, time: Ns) {
        let part = match state {
            TaskState::Running => &mut self.running,
            TaskState::Device => &mut self.device,
            TaskState::Pending => &mut self.pending,
            TaskState::Queued => &mut self.queued,
            TaskState::QueuedOff => &mut self.queued_off,
            TaskState::CurrentOff => &mut self.current_off,
            TaskState::Asleep => &mut self.asleep,
        };
        *part += time;
    }

    /// Adds time on one vCPU.
    pub fn add_at(&mut self, vcpu: u32, time: Ns) {
        let needed = vcpu as usize + 1;
        if self.by_vcpu.len() < needed {
            self.by_vcpu.resize(needed, Ns::ZERO);
        }
        self.by_vcpu[vcpu as usize] += time;
    }

    /// What part of the time was spent on this vCPU, 0..=1; `None`: not known.
    #[must_use]
    pub fn share_on(&self, vcpu: usize) -> Option<f64> {
        let all: Ns = self.by_vcpu.iter().copied().sum();
        let own = self.by_vcpu.get(vcpu).copied().unwrap_or_default();
        (all > Ns::ZERO).then(|| own.0 as f64 / all.0 as f64)
    }

    /// All parts together.
    #[must_use]
    pub fn total(&self) -> Ns {
        TaskState::ALL.iter().map(|state| self.of(*state)).sum()
    }
}

/// A part of a window, in detail. Instants count from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Its beginning, since the start of the window.
    pub from: Ns,
    /// Its length.
    pub length: Ns,
    /// The vCPUs of the VM under test.
    pub vcpus: Vec<VcpuTrack>,
    /// Its I/O threads.
    pub tasks: Vec<TaskTrack>,
    /// Decisions of whoever moves tasks, in order.
    pub moves: Vec<MoveMark>,
}

/// When one vCPU was off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuTrack {
    /// Its number.
    pub id: u32,
    /// From and to, in order, clipped to the timeline.
    pub gaps: Vec<(Ns, Ns)>,
    /// When it was halted, having nothing to run: not on, and not taken away either.
    /// Likewise. Empty where nobody knows; no gap overlaps one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub halts: Vec<(Ns, Ns)>,
}

/// What one I/O thread did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTrack {
    /// Its id.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// From the beginning of the timeline to its end, without a hole.
    pub spells: Spells,
}

/// A decision to move a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveMark {
    /// When it had been carried out.
    pub at: Ns,
    /// How long that took.
    pub cost: Ns,
    /// Which task.
    pub tid: u32,
    /// Where to.
    pub to: u32,
    /// The rule: `push`, `pull`, `soon-active`, `completion`.
    pub why: String,
}

/// One stretch of a thread's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spell {
    /// What it did.
    pub state: TaskState,
    /// On which vCPU it was, or last had been.
    pub cpu: u32,
    /// For how long.
    pub length: Ns,
}

/// Stretches one after the other; in a file a text such as
/// `R0:12000 D0:100123`: state, vCPU, nanoseconds. A timeline has thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spells(pub Vec<Spell>);

impl Spells {
    /// Appends a stretch; one that continues the last is added to it.
    pub fn push(&mut self, spell: Spell) {
        if spell.length == Ns::ZERO {
            return;
        }
        match self.0.last_mut() {
            Some(last) if (last.state, last.cpu) == (spell.state, spell.cpu) => {
                last.length += spell.length;
            }
            _ => self.0.push(spell),
        }
    }

    /// Each stretch with the instant at which it begins.
    pub fn starts(&self) -> impl Iterator<Item = (Ns, Spell)> + '_ {
        self.0.iter().scan(Ns::ZERO, |at, spell| {
            let from = *at;
            *at += spell.length;
            Some((from, *spell))
        })
    }
}

impl fmt::Display for Spells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, spell) in self.0.iter().enumerate() {
            let space = if n > 0 { " " } else { "" };
            let (state, cpu, length) = (spell.state.letter(), spell.cpu, spell.length.0);
            write!(f, "{space}{state}{cpu}:{length}")?;
        }
        Ok(())
    }
}

/// A text that is not [`Spells`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no stretch of a timeline; expected a state letter, a vCPU, a colon and nanoseconds, such as R0:12000"
)]
pub struct ParseSpellError(String);

impl FromStr for Spells {
    type Err = ParseSpellError;

    fn from_str(text: &str) -> Result<Self, ParseSpellError> {
        let one = |word: &str| {
            let (head, length) = word.split_once(':')?;
            let mut letters = head.chars();
            Some(Spell {
                state: TaskState::of_letter(letters.next()?)?,
                cpu: letters.as_str().parse().ok()?,
                length: Ns(length.parse().ok()?),
            })
        };
        text.split_ascii_whitespace()
            .map(|word| one(word).ok_or_else(|| ParseSpellError(word.to_owned())))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Serialize for Spells {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Spells {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spell() -> impl Strategy<Value = Spell> {
        (0..TaskState::ALL.len(), 0u32..1024, 1u64..1 << 40).prop_map(|(state, cpu, length)| {
            Spell {
                state: TaskState::ALL[state],
                cpu,
                length: Ns(length),
            }
        })
    }

    proptest! {
        #[test]
        fn spells_survive_their_text(spells in proptest::collection::vec(spell(), 0..50)) {
            let spells = Spells(spells);
            prop_assert_eq!(spells.to_string().parse::<Spells>().unwrap(), spells);
        }

        #[test]
        fn pushing_keeps_the_time(spells in proptest::collection::vec(spell(), 0..50)) {
            let mut pushed = Spells::default();
            spells.iter().for_each(|spell| pushed.push(*spell));
            let sum = |spells: &[Spell]| spells.iter().map(|s| s.length).sum::<Ns>();
            prop_assert_eq!(sum(&pushed.0), sum(&spells));
            prop_assert!(pushed.0.windows(2).all(|w| (w[0].state, w[0].cpu) != (w[1].state, w[1].cpu)));
        }
    }

    #[test]
    fn a_bad_text_is_named() {
        for bad in ["X0:5", "R:5", "R0", "R0:x", "0:5", ":"] {
            let error = format!("R0:1 {bad}").parse::<Spells>().unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("`{bad}`")),
                "{error}"
            );
        }
    }

    #[test]
    fn letters_are_distinct() {
        for state in TaskState::ALL {
            assert_eq!(TaskState::of_letter(state.letter()), Some(state));
        }
    }
}
