// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network and the client at its other end.
//!
//! A *send* (a request with `write`) takes its turn on the wire and is
//! acknowledged when the client has it: a stream is sends, several in flight. A
//! *receive* (without `write`) completes with the next message of the client for
//! this task; the client sends one every `interval` and waits for the answer, the
//! next send of that task, before it sends another: request and response. The
//! device keeps the client's round trip times.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use units::Ns;
use units::Time;

use super::Device;
use super::DeviceCx;
use super::Io;
use crate::ids::VmId;
use crate::program::Latencies;

/// Settings of [`Net`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetSettings {
    /// Bytes per second of the wire, all VMs together.
    pub rate: u64,
    /// Time under way in one direction, the client's own time included.
    pub under_way: Ns,
    /// Sigma of its logarithm, in thousandths.
    pub spread_permille: u32,
    /// Time from one message of a client to the next one.
    pub interval: Ns,
}

/// VM and task.
type Peer = (u32, u32);

/// What belongs to one peer's client.
#[derive(Debug, Default)]
struct Client {
    /// When the message was sent that has not been answered.
    sent: Option<Time>,
    /// Messages that have arrived and not been taken.
    arrived: u32,
    /// Receives that wait.
    posted: VecDeque<Io>,
    last_sent: Time,
    started: bool,
    round_trips: Latencies,
}

/// A network.
#[derive(Debug)]
pub struct Net {
    settings: NetSettings,
    clients: BTreeMap<Peer, Client>,
    /// Sends under way, by token.
    sends: BTreeMap<u64, Io>,
    next: u64,
    wire_free: Time,
}

/// Tokens of clients: the rest is VM and task.
const CLIENT: u64 = 1 << 63;
/// With [`CLIENT`]: the message arrives; without: it is sent.
const ARRIVES: u64 = 1 << 62;

fn token(peer: Peer, arrives: bool) -> u64 {
    let kind = if arrives { CLIENT | ARRIVES } else { CLIENT };
    // VM numbers are small: 30 bits are enough.
    kind | u64::from(peer.0 & 0x3fff_ffff) << 32 | u64::from(peer.1)
}

impl Net {
    /// A quiet network.
    #[must_use]
    pub const fn new(settings: NetSettings) -> Self {
        Self {
            settings,
            clients: BTreeMap::new(),
            sends: BTreeMap::new(),
            next: 0,
            wire_free: Time::ZERO,
        }
    }

    fn under_way(&self, cx: &mut DeviceCx<'_>) -> Ns {
        cx.random()
            .log_normal(self.settings.under_way, self.settings.spread_permille)
    }

    /// A receive is posted.
    fn receive(&mut self, peer: Peer, io: Io, cx: &mut DeviceCx<'_>) {
        let interval = self.settings.interval;
        let client = self.clients.entry(peer).or_default();
        if client.arrived > 0 {
            client.arrived -= 1;
            cx.complete(io);
            return;
        }
        client.posted.push_back(io);
        if !client.started {
            client.started = true;
            let phase = Ns(cx.random().below(interval.as_ns()));
            cx.after(phase, token(peer, false));
        }
    }

    /// The client sends its next message.
    fn client_sends(&mut self, peer: Peer, cx: &mut DeviceCx<'_>) {
        let now = cx.now();
        if let Some(client) = self.clients.get_mut(&peer) {
            client.sent = Some(now);
            client.last_sent = now;
        }
        let delay = self.under_way(cx);
        cx.after(delay, token(peer, true));
    }

    fn arrives(&mut self, peer: Peer, cx: &mut DeviceCx<'_>) {
        if let Some(client) = self.clients.get_mut(&peer) {
            match client.posted.pop_front() {
                Some(io) => cx.complete(io),
                None => client.arrived += 1,
            }
        }
    }

    /// The client has a task's send.
    fn delivered(&mut self, io: Io, cx: &mut DeviceCx<'_>) {
        let now = cx.now();
        let peer = (io.vm.0, io.task.0);
        if let Some(client) = self.clients.get_mut(&peer)
            && let Some(sent) = client.sent.take()
        {
            client.round_trips.record(now.since(sent));
            let next = (client.last_sent + self.settings.interval).since(now);
            cx.after(next, token(peer, false));
        }
        cx.complete(io);
    }
}

impl Device for Net {
    fn is_copied(&self) -> bool {
        true
    }

    fn submit(&mut self, io: Io, cx: &mut DeviceCx<'_>) {
        if !io.request.write {
            self.receive((io.vm.0, io.task.0), io, cx);
            return;
        }
        let transfer = Ns(u64::from(io.request.bytes)).scaled(1_000_000_000, self.settings.rate);
        self.wire_free = self.wire_free.max(cx.now()) + transfer;
        let delay = self.wire_free.since(cx.now()) + self.under_way(cx);
        let token = self.next;
        self.next += 1;
        self.sends.insert(token, io);
        cx.after(delay, token);
    }

    fn event(&mut self, token: u64, cx: &mut DeviceCx<'_>) {
        if token & CLIENT == 0 {
            if let Some(io) = self.sends.remove(&token) {
                self.delivered(io, cx);
            }
            return;
        }
        let peer = (
            (token >> 32 & 0x3fff_ffff) as u32,
            (token & u64::from(u32::MAX)) as u32,
        );
        if token & ARRIVES == 0 {
            self.client_sends(peer, cx);
        } else {
            self.arrives(peer, cx);
        }
    }

    fn in_flight(&self) -> u64 {
        let posted: usize = self.clients.values().map(|c| c.posted.len()).sum();
        (posted + self.sends.len()) as u64
    }

    fn open_window(&mut self) {
        for client in self.clients.values_mut() {
            client.round_trips = Latencies::default();
        }
    }

    fn round_trips(&self, vm: VmId) -> Latencies {
        let mut all = Latencies::default();
        for (_, client) in self.clients.iter().filter(|(peer, _)| peer.0 == vm.0) {
            all.merge(&client.round_trips);
        }
        all
    }
}
