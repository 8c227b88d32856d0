// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The main thread's whole life: asleep in one poll until a signal, a status
//! client or a failure wakes it. No timeout unless the service manager's watchdog
//! asks for one, so a daemon with nothing to do has no timer here either.

use std::io;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use std::time::Instant;

use guest::report::Report;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;

use crate::control::Server;

/// The engine as the main thread sees it; a trait, so that the loop is tested
/// without vCPUs.
pub(crate) trait Engine {
    /// A snapshot for whoever asks.
    fn report(&self) -> Report;
    /// Becomes readable when [`Engine::failed`] has something to say.
    fn failure_fd(&self) -> impl AsFd;
    /// Why it cannot go on.
    fn failed(&self) -> Option<String>;
    /// Has it done anything since this was last asked?
    fn gets_on(&self) -> bool;
}

/// Why the wait is over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// SIGTERM or SIGINT.
    Asked,
    /// The engine gave up.
    Failed(String),
}

/// Signals as bytes in a socket: a handler may do little more than write.
#[derive(Debug)]
pub(crate) struct Signals(UnixStream);

impl Signals {
    /// From now on SIGTERM and SIGINT end the wait instead of the process, and
    /// SIGHUP, which would end it by default, does nothing: the configuration is
    /// read once, because a change in flight could not be undone cleanly.
    pub(crate) fn catch() -> io::Result<Self> {
        let (ours, handlers) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT] {
            signal_hook::low_level::pipe::register(signal, handlers.try_clone()?)?;
        }
        // The handler does nothing, but it is one: an ignored signal would be
        // inherited as ignored.
        // SAFETY: an empty handler is async-signal-safe.
        unsafe { signal_hook::low_level::register(SIGHUP, || {}) }?;
        Ok(Self(ours))
    }

    fn came(&self) -> bool {
        matches!((&self.0).read(&mut [0; 64]), Ok(n) if n > 0)
    }
}

/// Serves until there is a reason to stop. With a watchdog, `alive` is called once in
/// each such interval, but only while the engine gets on: that this thread is alive
/// says nothing of those that hold tasks.
pub(crate) fn wait(
    engine: &impl Engine,
    server: &Server,
    signals: &Signals,
    watchdog: Option<Duration>,
    alive: impl Fn(&Report),
) -> io::Result<End> {
    let mut next_ping = watchdog.map(|interval| Instant::now() + interval);
    loop {
        let timeout = next_ping.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
        let failure = engine.failure_fd();
        let mut fds = [
            PollFd::new(&signals.0, PollFlags::IN),
            PollFd::new(&failure, PollFlags::IN),
            PollFd::new(server, PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let waiting = !fds[2].revents().is_empty();
        // Signals first: a crowd of clients must not delay the end.
        if signals.came() {
            return Ok(End::Asked);
        }
        if let Some(problem) = engine.failed() {
            return Ok(End::Failed(problem));
        }
        if waiting {
            server.serve(|| engine.report());
        }
        if let (Some(interval), Some(due)) = (watchdog, next_ping)
            && Instant::now() >= due
        {
            let pause = if engine.gets_on() {
                alive(&engine.report());
                interval
            } else {
                tracing::warn!("the engine does not answer: no word to the watchdog");
                // It may only be late, and the service manager waits for two intervals.
                interval / 4
            };
            next_ping = Some(Instant::now() + pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;

    struct Fake {
        ours: UnixStream,
        theirs: UnixStream,
        problem: Mutex<Option<String>>,
        stuck: AtomicBool,
        asked: AtomicU32,
    }

    impl Fake {
        fn new() -> Self {
            let (ours, theirs) = UnixStream::pair().unwrap();
            Self {
                ours,
                theirs,
                problem: Mutex::new(None),
                stuck: AtomicBool::new(false),
                asked: AtomicU32::new(0),
            }
        }

        fn fail(&self, problem: &str) {
            *self.problem.lock().unwrap() = Some(problem.into());
            io::Write::write_all(&mut &self.theirs, b"!").unwrap();
        }
    }

    impl Engine for Fake {
        fn report(&self) -> Report {
            crate::control::report_for_tests(3)
        }
        fn failure_fd(&self) -> impl AsFd {
            &self.ours
        }
        fn failed(&self) -> Option<String> {
            self.problem.lock().unwrap().clone()
        }
        fn gets_on(&self) -> bool {
            self.asked.fetch_add(1, SeqCst);
            !self.stuck.load(SeqCst)
        }
    }

    /// A pair instead of real signals: tests share their process.
    fn signals() -> (Signals, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Signals(ours), theirs)
    }

    #[test]
    fn clients_are_served_until_a_signal_comes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let server = Server::bind(&path).unwrap();
        let (signals, mut handler) = signals();
        let engine = Fake::new();
        let end = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&engine, &server, &signals, None, |_| {}).unwrap());
            // Checked after the loop has been ended: a panic here would leave
            // its thread waiting for ever.
            let got: Vec<_> = (0..3).map(|_| crate::control::fetch(&path)).collect();
            io::Write::write_all(&mut handler, b"x").unwrap();
            for answer in got {
                assert_eq!(answer.unwrap().0, engine.report());
            }
            waiting.join().unwrap()
        });
        assert_eq!(end, End::Asked);
    }

    #[test]
    fn a_failure_of_the_engine_ends_the_wait_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::bind(&dir.path().join("socket")).unwrap();
        let (signals, _handler) = signals();
        let engine = Fake::new();
        let end = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&engine, &server, &signals, None, |_| {}).unwrap());
            engine.fail("ring gone");
            waiting.join().unwrap()
        });
        assert_eq!(end, End::Failed("ring gone".into()));
    }

    #[test]
    fn the_watchdog_hears_nothing_of_an_engine_that_is_stuck() {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::bind(&dir.path().join("socket")).unwrap();
        let (signals, mut handler) = signals();
        let engine = Fake::new();
        let pings = AtomicU32::new(0);
        // True once the number has grown by so much, false after a minute.
        let grows = |number: &AtomicU32, by: u32| {
            let (before, end) = (
                number.load(SeqCst),
                Instant::now() + Duration::from_secs(60),
            );
            while number.load(SeqCst) < before + by {
                if Instant::now() > end {
                    return false;
                }
                std::thread::yield_now();
            }
            true
        };
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let ping = |_: &Report| {
                    pings.fetch_add(1, SeqCst);
                };
                let often = Some(Duration::from_millis(4));
                wait(&engine, &server, &signals, often, ping).unwrap()
            });
            // Checked after the loop has been ended, see above.
            let before = grows(&pings, 3);
            engine.stuck.store(true, SeqCst);
            // The ping that was under way.
            let asked = grows(&engine.asked, 2);
            let heard = pings.load(SeqCst);
            let asked = asked && grows(&engine.asked, 5);
            let silent = pings.load(SeqCst) == heard;
            engine.stuck.store(false, SeqCst);
            let after = grows(&pings, 1);
            io::Write::write_all(&mut handler, b"x").unwrap();
            assert_eq!(waiting.join().unwrap(), End::Asked);
            assert!(before && asked && silent && after);
        });
    }
}
