// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What guests that boot say, every few seconds, on standard error.
//!
//! An emulated host that is ended from outside takes the guests' consoles with
//! it. Its own output is kept on the machine that emulates it.

use std::path::Path;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;
use std::time::Instant;

/// How often.
const EVERY: Duration = Duration::from_secs(10);

/// Reports until it is dropped.
pub(super) struct Watch {
    _end: mpsc::Sender<()>,
}

impl Watch {
    /// Watches the consoles of guests 0..`guests` in `dir`.
    pub(super) fn start(dir: &Path, guests: u32) -> Self {
        let (end, ended) = mpsc::channel();
        let consoles: Vec<PathBuf> = (0..guests)
            .map(|guest| dir.join(format!("guest{guest}")).join("console"))
            .collect();
        let started = Instant::now();
        std::thread::spawn(move || {
            while ended.recv_timeout(EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                for (guest, console) in consoles.iter().enumerate() {
                    let bytes = std::fs::read(console).unwrap_or_default();
                    eprintln!(
                        "after {} s guest {guest}: {}",
                        started.elapsed().as_secs(),
                        last_line(&bytes)
                    );
                }
            }
        });
        Self { _end: end }
    }
}

/// The last line that says something.
fn last_line(console: &[u8]) -> String {
    let text = String::from_utf8_lossy(console);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("nothing yet").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_one_that_says_something() {
        assert_eq!(last_line(b"[ 1.0] a\r\n[ 2.0] b\r\n\r\n"), "[ 2.0] b");
        assert_eq!(last_line(b""), "nothing yet");
    }
}
