// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulated seconds, and the event queue alone: `cargo bench -p sim`.

mod block;

use criterion::BatchSize;
use criterion::Criterion;
use criterion::Throughput;
use criterion::criterion_group;
use criterion::criterion_main;
use sim::event::Event;
use sim::ids::Vcpu;
use sim::queue::Agenda;
use sim::queue::QueueKind;
use units::Ns;
use units::Time;

/// A tenth of a simulated second of 96 vCPUs after one of warm-up.
fn engine(c: &mut Criterion) {
    let mut group = c.benchmark_group("engine");
    group.sample_size(10);
    for name in ["mixed", "round-robin"] {
        let Some(load) = block::Load::named(name) else {
            continue;
        };
        let warm = || {
            let mut sim = block::simulation(load, 1);
            sim.run_until(Time::ZERO + Ns::from_secs(1));
            sim
        };
        let mut one = warm();
        let before = one.events();
        one.run_until(Time::ZERO + Ns::from_ms(1100));
        group.throughput(Throughput::Elements(one.events() - before));
        group.bench_function(format!("{name}, 96 vCPUs"), |b| {
            b.iter_batched(
                warm,
                |mut sim| sim.run_until(Time::ZERO + Ns::from_ms(1100)),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

/// One event out, one in, with so many waiting; half of them renewed before.
fn queue(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    group.throughput(Throughput::Elements(1));
    for waiting in [100u32, 10_000] {
        for kind in [QueueKind::Wheel, QueueKind::Tree] {
            let mut agenda = Agenda::new(kind);
            for n in 0..waiting {
                let at = Time(u64::from(n) * 7919 % 1_000_000);
                agenda.at(
                    at,
                    Event::HostTimer {
                        token: u64::from(n),
                    },
                );
            }
            let mut n = 0u64;
            group.bench_function(format!("{kind:?}, {waiting} waiting"), |b| {
                b.iter(|| {
                    n += 1;
                    let event = agenda.next(Time(u64::MAX));
                    let later = Ns(n * 7919 % 1_000_000);
                    let vcpu = Vcpu(n as u32 % waiting);
                    let epoch = n as u32;
                    agenda.at(agenda.now() + later, Event::Work { vcpu, epoch });
                    if let Some(event @ Event::HostTimer { .. }) = event {
                        agenda.at(agenda.now() + later, event);
                    }
                    event
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, engine, queue);
criterion_main!(benches);
