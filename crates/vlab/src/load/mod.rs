// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab load`: loads whose every step is recorded with its instant.
//!
//! A measured window is cut out of the records *afterwards*: the process that
//! runs the experiment says from when to when, on `CLOCK_MONOTONIC`, and gets
//! exactly that. Telling a load "start counting now" would not do: under the
//! freezer the message may arrive 77 ms late.
//!
//! Protocol: one line of JSON with the thread ids when the load runs
//! ([`Ready`]); then it waits for one line with two numbers, `FROM TO` in
//! nanoseconds, prints one line of JSON for that window and ends. End of input
//! ends it at once, so a load cannot outlive whoever started it. A load that
//! changes within the window is told before by a line `open FROM` when that
//! begins.

pub mod compute;
pub mod count;
pub mod echo;
pub mod fio;
pub mod fsync;
pub mod pulse;
pub mod stream;
pub mod vm;
pub mod wake;

use std::io;
use std::io::BufRead;
use std::io::Write;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;
use units::Ns;
use units::Time;

use self::count::Counted;
use self::count::Done;

/// What a load says when all its threads run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Ids of its working threads.
    pub tids: Vec<u32>,
}

/// A measured window on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first instant.
    pub from: Time,
    /// The instant after it.
    pub to: Time,
}

impl Window {
    /// Its length.
    #[must_use]
    pub fn length(&self) -> Ns {
        self.to.since(self.from)
    }

    /// Does it contain the instant?
    #[must_use]
    pub fn contains(&self, at: Time) -> bool {
        self.from <= at && at < self.to
    }

    /// The request line of the protocol.
    #[must_use]
    pub fn to_line(&self) -> String {
        format!("{} {}\n", self.from.0, self.to.0)
    }

    fn from_line(line: &str) -> anyhow::Result<Self> {
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        match numbers.as_deref() {
            Ok([from, to]) if from < to => Ok(Self {
                from: Time(*from),
                to: Time(*to),
            }),
            _ => anyhow::bail!(
                "`{}` is not a window; write FROM TO in nanoseconds of CLOCK_MONOTONIC",
                line.trim()
            ),
        }
    }
}

/// `CLOCK_MONOTONIC`, now.
#[must_use]
pub fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Never negative: the clock counts from boot.
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// The line that says when the window opens.
#[must_use]
pub fn open_line(from: Time) -> String {
    format!("open {}\n", from.0)
}

/// What the threads of a load share with the thread that talks.
#[derive(Debug, Default)]
pub(crate) struct Control {
    stop: AtomicBool,
    running: AtomicU32,
    /// When the window opens, once that is known.
    open: Mutex<Option<Time>>,
    changed: Condvar,
}

impl Control {
    /// A thread has begun its work, or waits for its time to begin.
    pub(crate) fn has_started(&self) {
        self.running.fetch_add(1, Ordering::Release);
    }

    /// Should the threads end?
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The threads should end.
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // Taken, so that no waiter is between its look and its wait.
        drop(self.open.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// The window opens then.
    fn opens(&self, from: Time) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
        self.changed.notify_all();
    }

    /// Waits until so long after the window has opened; false if the load ends
    /// before that.
    pub(crate) fn wait_for_arrival(&self, after: Ns) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.stopped() {
                return false;
            }
            let left = open.map(|from| (from + after).since(now()));
            open = match left {
                Some(Ns::ZERO) => return true,
                Some(left) => {
                    let waited = self.changed.wait_timeout(open, left.to_std());
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self
                    .changed
                    .wait(open)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// A thread of a load: its id as soon as it has one, its records at its end.
pub(crate) type Worker<R> = std::thread::JoinHandle<anyhow::Result<R>>;

/// A thread of a load says its id to whoever runs the protocol.
pub(crate) fn introduce(tell: &mpsc::Sender<u32>) {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    // The receiver is gone only if the process is about to end.
    let _ = tell.send(tid.cast_unsigned());
}

/// Runs the protocol around threads that are already spawned: waits until all
/// have started, announces them, waits for the window (or lets `seconds` pass),
/// stops them and returns the window with their records.
pub(crate) fn serve<R>(
    control: &Arc<Control>,
    tids: &mpsc::Receiver<u32>,
    workers: Vec<Worker<R>>,
    seconds: Option<f64>,
) -> anyhow::Result<Option<(Window, Vec<R>)>> {
    let tids: Vec<u32> = tids.iter().take(workers.len()).collect();
    if tids.len() < workers.len() {
        // A thread ended before it could say its id: its error says why.
        control.stop();
        for worker in workers {
            join(worker)?;
        }
        anyhow::bail!("a load thread ended before it started to work");
    }
    while (control.running.load(Ordering::Acquire) as usize) < workers.len()
        && !workers.iter().any(Worker::is_finished)
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    let start = now();
    let window = match seconds {
        Some(seconds) => {
            control.opens(start);
            std::thread::sleep(Duration::from_secs_f64(seconds));
            Some(Window {
                from: start,
                to: now(),
            })
        }
        None => {
            say(&Ready { tids })?;
            asked_window(control)?
        }
    };
    control.stop();
    let records: anyhow::Result<Vec<R>> = workers.into_iter().map(join).collect();
    let records = records?;
    Ok(window.map(|window| (window, records)))
}

/// Waits for the window on standard input; `None` at the end of the input.
fn asked_window(control: &Control) -> anyhow::Result<Option<Window>> {
    loop {
        let mut line = String::new();
        io::stdin()
            .lock()
            .read_line(&mut line)
            .context("cannot read the window from standard input")?;
        if line.is_empty() {
            return Ok(None);
        }
        let Some(from) = line.strip_prefix("open ") else {
            return Window::from_line(&line).map(Some);
        };
        let from = from
            .trim()
            .parse()
            .with_context(|| format!("`{}` is not `open FROM`", line.trim()))?;
        control.opens(Time(from));
    }
}

/// Starts a thread for each of `works`, called NAME-0 and so on; serves; and says what they
/// counted, in pieces of `bucket` if one is given.
///
/// # Errors
/// One of `works` is an error, no thread can be started, or as [`serve`] and [`say`].
pub(crate) fn run_threads<W>(
    name: &str,
    works: impl IntoIterator<Item = anyhow::Result<W>>,
    seconds: Option<f64>,
    bucket: Option<Ns>,
) -> anyhow::Result<()>
where
    W: FnOnce(&Control, &mpsc::Sender<u32>) -> anyhow::Result<Vec<Done>> + Send + 'static,
{
    let control = Arc::new(Control::default());
    let (tell, tids) = mpsc::channel();
    let mut workers = Vec::new();
    for (nth, work) in works.into_iter().enumerate() {
        let (work, control, tell) = (work?, Arc::clone(&control), tell.clone());
        let worker = std::thread::Builder::new()
            .name(format!("{name}-{nth}"))
            .spawn(move || work(&control, &tell))
            .context("cannot start an I/O thread")?;
        workers.push(worker);
    }
    drop(tell);
    let Some((window, records)) = serve(&control, &tids, workers, seconds)? else {
        return Ok(());
    };
    say(&Counted::of(records, window, bucket)?)
}

fn join<R>(worker: Worker<R>) -> anyhow::Result<R> {
    worker
        .join()
        .map_err(|_| anyhow::anyhow!("a load thread panicked"))?
}

/// Prints one line of JSON.
pub(crate) fn say(value: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_survives_its_line() {
        let window = Window {
            from: Time(5),
            to: Time(9),
        };
        assert_eq!(Window::from_line(&window.to_line()).unwrap(), window);
        assert_eq!(window.length(), Ns(4));
        assert!(window.contains(Time(5)) && !window.contains(Time(9)));
    }

    #[test]
    fn who_arrives_waits_for_the_window_and_not_beyond_the_end() {
        let control = Control::default();
        std::thread::scope(|scope| {
            let (late, never) = (
                scope.spawn(|| control.wait_for_arrival(Ns::from_ms(20)).then(now)),
                scope.spawn(|| control.wait_for_arrival(Ns::from_secs(3600))),
            );
            let from = now() + Ns::from_ms(5);
            control.opens(from);
            let came = late.join().unwrap().unwrap();
            assert!(came.since(from) >= Ns::from_ms(20), "{came:?}");
            control.stop();
            assert!(!never.join().unwrap());
        });
    }

    #[test]
    fn a_bad_window_is_named() {
        for line in ["", "5", "9 5", "a b", "1 2 3"] {
            assert!(Window::from_line(line).is_err(), "{line}");
        }
    }
}
