// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rings on which the programs ring for the daemon's threads.

use std::cell::RefCell;
use std::rc::Rc;

use libbpf_rs::MapHandle;
use libbpf_rs::RingBuffer;
use libbpf_rs::RingBufferBuilder;

use crate::sense::SenseError;

/// A ring that delivers its words into `bells`.
pub(super) fn ring(
    map: &MapHandle,
    bells: Rc<RefCell<Vec<u64>>>,
) -> Result<RingBuffer<'_>, SenseError> {
    let failed = |source| SenseError::Bpf {
        action: "wait for",
        source,
    };
    let mut builder = RingBufferBuilder::new();
    builder
        .add(map, move |bytes| {
            if let Ok(word) = bytes.try_into() {
                bells.borrow_mut().push(u64::from_ne_bytes(word));
            }
            0
        })
        .map_err(failed)?;
    builder.build().map_err(failed)
}
