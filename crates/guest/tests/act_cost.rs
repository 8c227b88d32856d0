// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What adoption, moves, levers and release cost their caller. A measurement,
//! to be run alone on an idle machine:
//! `cargo test --release -p guest --test act_cost -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]

use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use guest::act;
use guest::act::Actor;
use guest::act::task::Roots;
use policy::guest::wakeup::Lever;
use units::Ns;
use units::Tid;
use units::VcpuId;

const ROUNDS: usize = 2000;

fn report(what: &str, mut samples: Vec<Duration>) {
    samples.sort_unstable();
    let at = |permille: usize| samples[samples.len() * permille / 1000];
    println!(
        "{what:<22} median {:>9.2?}  p10 {:>9.2?}  p90 {:>9.2?}  p99 {:>9.2?}  n {}",
        at(500),
        at(100),
        at(900),
        at(990),
        samples.len()
    );
}

#[test]
#[ignore = "a measurement"]
fn root_cost() {
    let dir = tempfile::tempdir().unwrap();
    let settings = act::Settings {
        journal: dir.path().join("journal"),
        ..act::Settings::default()
    };
    let start = Instant::now();
    let (actor, _) = Actor::start(settings).unwrap();
    report("start", vec![start.elapsed()]);
    let mut subject = Command::new("sleep").arg("600").spawn().unwrap();
    let key = Roots::default().key(Tid(subject.id())).unwrap();
    let cpus: Vec<VcpuId> = Roots::default().online().unwrap().iter().collect();
    let [mut adopt, mut moved, mut lever, mut on_fork, mut release] =
        std::array::from_fn::<_, 5, _>(|_| Vec::with_capacity(ROUNDS));
    let timed = |into: &mut Vec<Duration>, body: &mut dyn FnMut()| {
        let start = Instant::now();
        body();
        into.push(start.elapsed());
    };
    for _ in 0..ROUNDS {
        let mut held = None;
        timed(&mut adopt, &mut || held = Some(actor.adopt(key).unwrap()));
        let held = held.unwrap();
        for cpu in &cpus {
            timed(&mut moved, &mut || _ = actor.move_to(&held, *cpu).unwrap());
        }
        timed(&mut lever, &mut || {
            actor
                .set_lever(&held, Lever::EevdfSlice(Ns::from_us(100)))
                .unwrap();
        });
        timed(&mut on_fork, &mut || _ = actor.on_fork(&held, Tid(1)));
        timed(&mut release, &mut || _ = actor.release(&held).unwrap());
    }
    let mut sweep = Vec::new();
    let held = actor.adopt(key).unwrap();
    for _ in 0..100 {
        timed(&mut sweep, &mut || _ = actor.sweep_inherited());
    }
    drop(held);
    drop(actor);
    subject.kill().unwrap();
    subject.wait().unwrap();
    report("adopt", adopt);
    report("move_to (asleep)", moved);
    report("set_lever (slice)", lever);
    report("on_fork (clean)", on_fork);
    report("release (with lever)", release);
    report("sweep_inherited", sweep);
}
