// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What several of the tests need.

use std::time::Duration;
use std::time::Instant;

/// Waits until `done` says so; fails with `what` after ten seconds.
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(
            Instant::now() < give_up,
            "{what} did not happen within 10 s"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
