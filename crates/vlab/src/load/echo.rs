// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab load echo`: answers the messages of clients behind a network.
//!
//! A message is a UDP datagram, and its answer is the same one, after some work. Who asks
//! counts (`kvm::host::clients`): how long a message waits is seen where it comes from, and a
//! guest whose vCPU is off does not know that there is one.

use std::hint::black_box;
use std::io;
use std::net::Ipv4Addr;
use std::net::UdpSocket;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use units::Ns;

use super::Control;
use super::compute;
use super::count::Done;
use super::introduce;
use super::now;
use super::pulse::steps_of;
use super::run_threads;

/// The port of the first thread; those of the others follow.
pub const PORT: u16 = 7007;

/// How often a thread without messages looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);

/// Answers to messages, each thread on a UDP port of its own, from 7007 on.
#[derive(Args, Clone, Debug)]
pub struct EchoArgs {
    /// Microseconds of computation before an answer.
    #[arg(long, default_value_t = 0, value_name = "US", value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    pub work_us: u32,
    /// Threads, each with a port of its own.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: u16,
    /// Run for so many seconds and print the result, instead of waiting for a window on standard input.
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
}

/// Runs the load. What it counts are its answers, from the message's arrival in the thread on.
///
/// # Errors
/// A port is taken, or the protocol is broken.
pub fn run(args: &EchoArgs) -> anyhow::Result<()> {
    let steps = steps_of(Ns::from_us(u64::from(args.work_us)));
    let works = (0..args.threads).map(|nth| {
        let port = PORT + nth;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))
            .with_context(|| format!("cannot have UDP port {port}"))?;
        Ok(move |control: &Control, tell: &_| answer(&socket, steps, control, tell))
    });
    run_threads("echo", works, args.seconds, None)
}

fn answer(
    socket: &UdpSocket,
    steps: u64,
    control: &Control,
    tell: &mpsc::Sender<u32>,
) -> anyhow::Result<Vec<Done>> {
    socket.set_read_timeout(Some(LOOK))?;
    introduce(tell);
    control.has_started();
    let mut records = Vec::new();
    let mut message = [0; 2048];
    while !control.stopped() {
        let (length, from) = match socket.recv_from(&mut message) {
            Ok(received) => received,
            Err(error) if is_early(&error) => continue,
            Err(error) => return Err(error).context("cannot read a message"),
        };
        let begin = now();
        black_box(compute::steps(steps, 1));
        // Who has gone meanwhile needs no answer.
        let _ = socket.send_to(&message[..length], from);
        let at = now();
        let latency = at.since(begin);
        records.push(Done { at, latency });
    }
    Ok(records)
}

/// Nothing there yet, or nobody any more: a datagram to a port that was closed is told of at
/// the next call.
pub(crate) fn is_early(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_it_was() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = server.local_addr().unwrap();
        let control = Control::default();
        let (tell, tids) = mpsc::channel();
        let records = std::thread::scope(|scope| {
            let answering = scope.spawn(|| answer(&server, 1000, &control, &tell).unwrap());
            assert!(tids.recv().unwrap() > 0);
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            client
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            client.connect(to).unwrap();
            let mut back = [0; 64];
            for word in ["one", "two"] {
                client.send(word.as_bytes()).unwrap();
                let length = client.recv(&mut back).unwrap();
                assert_eq!(&back[..length], word.as_bytes());
            }
            control.stop();
            answering.join().unwrap()
        });
        assert_eq!(records.len(), 2);
        assert!(records[0].at <= records[1].at);
    }
}
