// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab load stream`: sends as much as a network takes, as iperf does.
//!
//! Each thread has a TCP connection and writes one block after the other. A block is done when
//! the kernel has taken it: what it holds back for is the other end, once the socket's buffer
//! is full, and so over a window as many bytes arrive as are written.

use std::io::ErrorKind;
use std::io::Write;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::Control;
use super::count::Done;
use super::introduce;
use super::now;
use super::run_threads;

/// The port of who takes it all (`kvm::host::clients`).
pub const PORT: u16 = 7009;

/// How long a connection may take to be made, and a block may wait before the thread looks
/// whether it is to end.
const CONNECT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(500);

/// Blocks over TCP, one after the other, each thread with its own connection.
#[derive(Args, Clone, Debug)]
pub struct StreamArgs {
    /// To whom; the gateway of this machine if it is not given.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub to: Option<SocketAddr>,
    /// Bytes of one block.
    #[arg(long, default_value_t = 65_536, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub block_bytes: u32,
    /// Threads, each with its own connection.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// Run for so many seconds and print the result, instead of waiting for a window on standard input.
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
}

/// Runs the load.
///
/// # Errors
/// Nobody takes it, the connection breaks, or the protocol is broken.
pub fn run(args: &StreamArgs) -> anyhow::Result<()> {
    let to = match args.to {
        Some(to) => to,
        None => SocketAddr::from((gateway()?, PORT)),
    };
    let block = args.block_bytes as usize;
    let works = (0..args.threads).map(|_| {
        let stream = TcpStream::connect_timeout(&to, CONNECT)
            .with_context(|| format!("nobody takes a stream at {to}"))?;
        Ok(move |control: &Control, tell: &_| send(stream, block, control, tell))
    });
    run_threads("stream", works, args.seconds, None)
}

fn send(
    mut stream: TcpStream,
    block: usize,
    control: &Control,
    tell: &mpsc::Sender<u32>,
) -> anyhow::Result<Vec<Done>> {
    stream.set_write_timeout(Some(LOOK))?;
    introduce(tell);
    control.has_started();
    let bytes = vec![0x55; block];
    let mut records = Vec::new();
    while !control.stopped() {
        let begin = now();
        let mut left = &bytes[..];
        while !left.is_empty() && !control.stopped() {
            match stream.write(left) {
                Ok(written) => left = &left[written..],
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error).context("the stream has broken"),
            }
        }
        if left.is_empty() {
            let at = now();
            let latency = at.since(begin);
            records.push(Done { at, latency });
        }
    }
    Ok(records)
}

/// Where all goes that is for no other machine of the same network.
fn gateway() -> anyhow::Result<Ipv4Addr> {
    const ROUTES: &str = "/proc/net/route";
    let text = std::fs::read_to_string(ROUTES).with_context(|| format!("cannot read {ROUTES}"))?;
    gateway_in(&text)
        .with_context(|| format!("{ROUTES} has no default route; use --to ADDRESS:PORT"))
}

/// Of the route to 0.0.0.0 the third word: hexadecimal, in the order of a little-endian machine.
fn gateway_in(routes: &str) -> Option<Ipv4Addr> {
    let default = routes.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? == "00000000").then(|| words.next())?
    })?;
    let word = u32::from_str_radix(default, 16).ok()?;
    Some(Ipv4Addr::from(word.swap_bytes()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_is_counted_has_arrived() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        let control = Control::default();
        let (tell, _tids) = mpsc::channel();
        let (records, arrived) = std::thread::scope(|scope| {
            let sending = scope.spawn(|| send(stream, 10_000, &control, &tell).unwrap());
            let mut buffer = vec![0; 1 << 16];
            let mut arrived = 0;
            while arrived < 50_000_000 {
                arrived += theirs.read(&mut buffer).unwrap();
            }
            control.stop();
            loop {
                match theirs.read(&mut buffer).unwrap() {
                    0 => break,
                    more => arrived += more,
                }
            }
            (sending.join().unwrap(), arrived)
        });
        // The last one may not have been written to its end.
        let whole = records.len() * 10_000;
        assert!(
            whole <= arrived && arrived < whole + 10_000,
            "{whole} {arrived}"
        );
    }

    #[test]
    fn the_gateway_is_that_of_the_default_route() {
        let head = "Iface\tDestination\tGateway \tFlags\tRefCnt\n";
        let own = "eth0\t000312C6\t00000000\t0001\t0\n";
        let default = "eth0\t00000000\t010312C6\t0003\t0\n";
        let text = format!("{head}{own}{default}");
        assert_eq!(gateway_in(&text), Some(Ipv4Addr::new(198, 18, 3, 1)));
        assert_eq!(gateway_in(&format!("{head}{own}")), None);
    }
}
