// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other end of the guests' networks: clients that ask ([`crate::load::echo`]), and who
//! takes what is sent ([`crate::load::stream`]).
//!
//! They run on the host, where no guest does if there is such a CPU: a client is another
//! machine, and the time in which it waits for a CPU is not the guest's.
//!
//! A client sends a message each `interval`, whether the one before was answered or not, so
//! that a vCPU that is off for long is met as often as its time says. A message without an
//! answer counts as one that has waited until it was given up: at least so long it took.

use std::collections::HashMap;
use std::io::Read;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use experiment::result::Io;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::poll;
use units::CpuSet;
use units::Ns;
use units::Time;

use super::turns::Span;
use crate::load::count::Done;
use crate::load::count::percentiles;
use crate::load::echo;
use crate::load::echo::is_early;
use crate::load::now;
use crate::load::stream;

/// How long the last answers are waited for.
const LAST: Duration = Duration::from_secs(5);

/// How often a thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// A message that was sent.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Time,
    /// When its answer came.
    answered: Option<Time>,
}

/// What all clients of a guest saw.
#[derive(Debug, Default)]
pub(super) struct Trips {
    asked: Vec<Asked>,
    /// When no answer was waited for any more.
    given_up: Time,
}

impl Trips {
    /// Of the messages sent in a window: those answered count as done, and all of them have
    /// a latency.
    pub(super) fn within(&self, window: Span) -> anyhow::Result<(Io, Mean)> {
        let sent = || {
            let all = self.asked.iter();
            all.filter(|asked| window.from <= asked.at && asked.at < window.to)
        };
        let trips: Vec<Done> = sent()
            .map(|asked| Done {
                at: asked.at,
                latency: asked.answered.unwrap_or(self.given_up).since(asked.at),
            })
            .collect();
        let answered = sent().filter(|asked| asked.answered.is_some()).count();
        let length = window.to.since(window.from).as_secs_f64();
        let io = Io {
            ops_per_s: answered as f64 / length,
            bytes_per_s: 0.0,
            latency: percentiles(trips.iter().map(|trip| trip.latency))?,
            series: None,
        };
        let all: Ns = trips.iter().map(|trip| trip.latency).sum();
        let mean = Mean {
            mean: all / (trips.len() as u64).max(1),
            longest: trips
                .iter()
                .map(|trip| trip.latency)
                .max()
                .unwrap_or(Ns::ZERO),
            unanswered: (trips.len() - answered) as u64,
        };
        Ok((io, mean))
    }
}

/// Round trips of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mean {
    pub(super) mean: Ns,
    pub(super) longest: Ns,
    pub(super) unanswered: u64,
}

/// What talks to one guest.
#[derive(Debug)]
pub(super) struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<anyhow::Result<Trips>>>,
}

impl Clients {
    /// As many clients as the guest has threads that answer; on `cpus`.
    pub(super) fn ask(
        guest: Ipv4Addr,
        threads: u16,
        interval: Ns,
        cpus: &CpuSet,
    ) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..threads).map(|nth| {
            let (stop, cpus) = (Arc::clone(&stop), *cpus);
            let to = SocketAddr::from((guest, echo::PORT + nth));
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.connect(to)?;
            socket.set_nonblocking(true)?;
            let body = move || {
                stay_on(&cpus);
                client(&socket, interval, &stop)
            };
            Ok(std::thread::Builder::new()
                .name(format!("client-{nth}"))
                .spawn(body)?)
        });
        let threads: anyhow::Result<_> = threads.collect();
        Ok(Self {
            threads: threads.context("cannot have clients of a guest")?,
            stop,
        })
    }

    /// Who takes all that comes to an address of ours, and throws it away.
    pub(super) fn take(address: Ipv4Addr, cpus: &CpuSet) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((address, stream::PORT))
            .with_context(|| format!("cannot listen on {address}:{}", stream::PORT))?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, cpus) = (Arc::clone(&stop), *cpus);
        let body = move || {
            stay_on(&cpus);
            take_all(&listener, &seen)
        };
        let thread = std::thread::Builder::new()
            .name("sink".to_owned())
            .spawn(body);
        Ok(Self {
            stop,
            threads: vec![thread.context("cannot start a thread")?],
        })
    }

    /// No more messages; what was seen, when the last answers have come.
    pub(super) fn end(mut self) -> anyhow::Result<Trips> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Trips::default();
        for thread in self.threads.drain(..) {
            let one = thread
                .join()
                .map_err(|_| anyhow::anyhow!("a client panicked"))??;
            all.asked.extend(one.asked);
            all.given_up = all.given_up.max(one.given_up);
        }
        Ok(all)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The calling thread runs on these, if there are any.
fn stay_on(cpus: &CpuSet) {
    let mut mask = rustix::thread::CpuSet::new();
    for cpu in cpus.iter() {
        mask.set(cpu.index());
    }
    // Refused, it runs where it may: a part of its time is then its own.
    let _ = rustix::thread::sched_setaffinity(None, &mask);
}

fn client(socket: &UdpSocket, interval: Ns, stop: &AtomicBool) -> anyhow::Result<Trips> {
    let mut trips = Trips::default();
    let mut open: HashMap<u64, usize> = HashMap::new();
    let mut due = now();
    while !stop.load(Ordering::Relaxed) {
        let at = now();
        if at >= due {
            let number = trips.asked.len();
            let sent = socket.send(&(number as u64).to_le_bytes());
            match sent {
                Ok(_) => {
                    trips.asked.push(Asked { at, answered: None });
                    open.insert(number as u64, number);
                }
                Err(error) if is_early(&error) => {}
                Err(error) => return Err(error).context("cannot send a message to a guest"),
            }
            // What was missed is not sent all at once.
            due = (due + interval).max(at);
        }
        hear(socket, due.since(now()).min(Ns::from(LOOK)))?;
        answers(socket, &mut trips.asked, &mut open)?;
    }
    let until = Instant::now() + LAST;
    while !open.is_empty() && Instant::now() < until {
        hear(socket, Ns::from(LOOK))?;
        answers(socket, &mut trips.asked, &mut open)?;
    }
    trips.given_up = now();
    Ok(trips)
}

/// Waits until there is something to read, or so long.
fn hear(socket: &UdpSocket, patience: Ns) -> anyhow::Result<()> {
    let timeout = Timespec::try_from(patience.to_std()).context("a time that is no time")?;
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("poll"),
    }
}

/// Notes the answers that are there.
fn answers(
    socket: &UdpSocket,
    asked: &mut [Asked],
    open: &mut HashMap<u64, usize>,
) -> anyhow::Result<()> {
    let mut message = [0; 8];
    loop {
        match socket.recv(&mut message) {
            Ok(8) => {
                let number = u64::from_le_bytes(message);
                if let Some(asked) = open.remove(&number).and_then(|i| asked.get_mut(i)) {
                    asked.answered = Some(now());
                }
            }
            Ok(_) => {}
            Err(error) if is_early(&error) => return Ok(()),
            Err(error) => return Err(error).context("cannot read an answer of a guest"),
        }
    }
}

fn take_all(listener: &TcpListener, stop: &AtomicBool) -> anyhow::Result<Trips> {
    let mut streams: Vec<TcpStream> = Vec::new();
    let mut buffer = vec![0; 1 << 18];
    let timeout = Timespec::try_from(LOOK).context("a time that is no time")?;
    while !stop.load(Ordering::Relaxed) {
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        fds.extend(
            streams
                .iter()
                .map(|stream| PollFd::new(stream, PollFlags::IN)),
        );
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("poll"),
        }
        drop(fds);
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        streams.retain_mut(|stream| match stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) => is_early(&error),
        });
    }
    Ok(Trips::default())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn everywhere() -> CpuSet {
        freezer::online_cpus().unwrap()
    }

    #[test]
    fn trips_of_a_window_are_those_sent_in_it() {
        let ms = |ms| Time(Ns::from_ms(ms).0);
        let asked = |at, answered: Option<u64>| Asked {
            at: ms(at),
            answered: answered.map(ms),
        };
        let trips = Trips {
            asked: vec![
                asked(99, Some(101)),
                asked(100, Some(102)),
                asked(150, Some(260)),
                asked(199, None),
                asked(200, Some(201)),
            ],
            given_up: ms(499),
        };
        let window = Span {
            from: ms(100),
            to: ms(200),
        };
        let (io, mean) = trips.within(window).unwrap();
        assert!((io.ops_per_s - 20.0).abs() < 1e-9, "{io:?}");
        assert_eq!(mean.longest, Ns::from_ms(300));
        assert_eq!(mean.unanswered, 1);
        assert_eq!(mean.mean, Ns::from_ms(412) / 3);
        let median = io.latency.p50.0 / 1_000_000;
        assert!((109..=111).contains(&median), "{io:?}");
    }

    #[test]
    fn a_client_asks_on_while_nobody_answers_and_hears_late_answers() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect(server.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let stop = AtomicBool::new(false);
        let trips = std::thread::scope(|scope| {
            let asking = scope.spawn(|| client(&socket, Ns::from_ms(5), &stop).unwrap());
            let mut held = Vec::new();
            let mut message = [0; 64];
            // The first ten at once, when the tenth is there.
            while held.len() < 10 {
                let (length, from) = server.recv_from(&mut message).unwrap();
                held.push((message[..length].to_vec(), from));
            }
            for (message, from) in held.drain(..) {
                server.send_to(&message, from).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            server
                .set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            while let Ok((length, from)) = server.recv_from(&mut message) {
                server.send_to(&message[..length], from).unwrap();
            }
            asking.join().unwrap()
        });
        assert!(trips.asked.len() >= 10);
        let first = trips.asked[0];
        let waited = first.answered.unwrap().since(first.at);
        assert!(waited >= Ns::from_ms(45), "{waited}");
        assert!(trips.asked.iter().all(|asked| asked.answered.is_some()));
    }

    #[test]
    fn what_is_sent_is_taken_until_the_end() {
        let address = Ipv4Addr::LOCALHOST;
        let sink = Clients::take(address, &everywhere()).unwrap();
        let mut stream = TcpStream::connect((address, stream::PORT)).unwrap();
        // More than any buffer holds.
        for _ in 0..40 {
            stream.write_all(&[0; 1 << 20]).unwrap();
        }
        sink.end().unwrap();
    }
}
