// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trace file: every instant at which a vCPU got or lost a pCPU.
//!
//! # Format
//! Eight bytes `scxvcpu1`, then records of 24 bytes as `src/bpf/shared.h` lays
//! them out. Records of one pCPU are in order;
//! those of different pCPUs nearly so: [`read`] sorts. x86-64, so little-endian.

use std::io;
use std::io::Read;

use thiserror::Error;
use units::Time;

/// First bytes of a trace.
pub const MAGIC: [u8; 8] = *b"scxvcpu1";

/// Bytes of a record.
pub const RECORD: usize = 24;

/// What happened to a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It got the pCPU.
    On,
    /// It sleeps: the guest halted, or its VMM waits for something.
    OffBlocked,
    /// It could run on; another vCPU has the pCPU.
    OffVcpu,
    /// It could run on; a thread of the host that is no vCPU has the pCPU.
    OffHost,
    /// It was woken and waits for the pCPU.
    Wake,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, on the host's `CLOCK_MONOTONIC`.
    pub at: Time,
    /// Process id of the VMM.
    pub vm: u32,
    /// The vCPU's thread.
    pub tid: u32,
    /// Number of the vCPU in its VM.
    pub vcpu: u16,
    /// The pCPU; for [`Kind::Wake`] the one it last ran on.
    pub cpu: u16,
    /// What.
    pub kind: Kind,
}

/// A trace that cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// Reading failed.
    #[error("cannot read the trace")]
    Read(#[from] io::Error),
    /// Not a trace.
    #[error("not a trace of scx_vcpu: it begins with {0:?} and not with {MAGIC:?}")]
    Magic(Vec<u8>),
    /// A record that no version of the program writes.
    #[error("record {record} of the trace has kind {kind}, which does not exist")]
    Kind {
        /// Number of the record, from 0.
        record: usize,
        /// Its kind.
        kind: u8,
    },
}

/// Reads a whole trace, sorted by time. A last record that is not complete yet
/// is left out: the writer may be at work.
///
/// # Errors
/// Not a trace, or not readable.
pub fn read(mut from: impl Read) -> Result<Vec<Event>, TraceError> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    let Some(records) = bytes.strip_prefix(&MAGIC) else {
        bytes.truncate(MAGIC.len());
        return Err(TraceError::Magic(bytes));
    };
    let mut events = records
        .chunks_exact(RECORD)
        .enumerate()
        .map(|(record, bytes)| decode(bytes).map_err(|kind| TraceError::Kind { record, kind }))
        .collect::<Result<Vec<_>, _>>()?;
    events.sort_by_key(|event| event.at);
    Ok(events)
}

/// One record, or the kind that does not exist.
fn decode(bytes: &[u8]) -> Result<Event, u8> {
    let array = |at: usize, length: usize| {
        let mut word = [0; 8];
        word[..length].copy_from_slice(&bytes[at..at + length]);
        u64::from_le_bytes(word)
    };
    let kind = match bytes[20] {
        1 => Kind::On,
        2 => Kind::OffBlocked,
        3 => Kind::OffVcpu,
        4 => Kind::OffHost,
        5 => Kind::Wake,
        other => return Err(other),
    };
    Ok(Event {
        at: Time(array(0, 8)),
        vm: array(8, 4) as u32,
        tid: array(12, 4) as u32,
        vcpu: array(16, 2) as u16,
        cpu: array(18, 2) as u16,
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at: u64, kind: u8) -> Vec<u8> {
        let mut bytes = at.to_le_bytes().to_vec();
        bytes.extend(100u32.to_le_bytes());
        bytes.extend(101u32.to_le_bytes());
        bytes.extend(1u16.to_le_bytes());
        bytes.extend(3u16.to_le_bytes());
        bytes.extend([kind, 0, 0, 0]);
        bytes
    }

    #[test]
    fn records_come_back_in_order_of_time() {
        let bytes = [MAGIC.to_vec(), record(20, 3), record(10, 1), vec![1, 2, 3]].concat();
        let events = read(bytes.as_slice()).unwrap();
        assert_eq!(events.len(), 2, "the incomplete record is left out");
        assert_eq!(
            events[0],
            Event {
                at: Time(10),
                vm: 100,
                tid: 101,
                vcpu: 1,
                cpu: 3,
                kind: Kind::On,
            }
        );
        assert_eq!(events[1].kind, Kind::OffVcpu);
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        assert!(matches!(read(&b"ELF"[..]), Err(TraceError::Magic(_))));
        let bytes = [MAGIC.to_vec(), record(1, 9)].concat();
        let error = read(bytes.as_slice()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record 0 of the trace has kind 9, which does not exist"
        );
    }
}
