// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::analysis::tests::fixture;

fn events() -> Vec<Event> {
    trace(&fixture()).unwrap().events
}

#[test]
fn slices_of_a_vcpu_follow_its_gaps() {
    let slices: Vec<(String, f64, f64)> = events()
        .into_iter()
        .filter(|e| e.ph == "X" && e.tid == 2)
        .map(|e| (e.name, e.ts, e.dur.unwrap()))
        .collect();
    let want = [
        ("off", 0.0, 3000.0),
        ("on", 3000.0, 12000.0),
        ("off", 15000.0, 5000.0),
    ];
    let want: Vec<(String, f64, f64)> = want
        .iter()
        .map(|(n, ts, dur)| ((*n).to_owned(), *ts, *dur))
        .collect();
    assert_eq!(slices, want);
}

#[test]
fn a_task_is_there_all_the_time_and_its_moves_with_it() {
    let events = events();
    let task: Vec<&Event> = events.iter().filter(|e| e.tid == 3).collect();
    let length: f64 = task.iter().filter_map(|e| e.dur).sum();
    assert!((length - 20_000.0).abs() < 1e-6);
    let slices = task.iter().filter(|e| e.ph == "X");
    assert_eq!(slices.clone().count(), 8);
    for pair in slices.collect::<Vec<_>>().windows(2) {
        assert!((pair[0].ts + pair[0].dur.unwrap() - pair[1].ts).abs() < 1e-6);
    }
    let moved: Vec<&&Event> = task.iter().filter(|e| e.ph == "i").collect();
    assert_eq!(moved.len(), 1);
    assert_eq!(
        (moved[0].name.as_str(), moved[0].ts),
        ("push to vCPU 1", 7500.0)
    );
}

#[test]
fn counters_count() {
    let events = events();
    let of = |name: &str| -> Vec<(f64, Value)> {
        let mine = events.iter().filter(|e| e.ph == "C" && e.name == name);
        mine.map(|e| (e.ts, e.args.clone())).collect()
    };
    let on: Vec<(f64, u64)> = of("vCPUs")
        .into_iter()
        .map(|(at, args)| (at, args["on"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        on,
        [
            (0.0, 1),
            (3000.0, 2),
            (8000.0, 1),
            (14000.0, 2),
            (15000.0, 1),
            (20000.0, 2)
        ]
    );
    // Waits end at 6 ms and, through a pending completion, at 17 ms: in the bins
    // that begin at 6 and at 16 ms.
    let rate: Vec<(f64, f64)> = of("I/O wake-ups")
        .into_iter()
        .map(|(at, args)| (at, args["per s"].as_f64().unwrap()))
        .filter(|(_, rate)| *rate > 0.0)
        .collect();
    assert_eq!(rate, [(6000.0, 500.0), (16000.0, 500.0)]);
}

/// What the format's document asks of each kind of event.
#[test]
fn every_event_has_what_its_kind_needs() {
    let json = serde_json::to_value(trace(&fixture()).unwrap()).unwrap();
    for event in json["traceEvents"].as_array().unwrap() {
        let has = |key: &str| event.get(key).is_some();
        assert!(has("name") && has("pid") && has("tid"), "{event}");
        // Else it would be the process's main thread.
        assert_ne!(event["pid"], event["tid"], "{event}");
        assert!(event["ts"].as_f64().unwrap() >= 0.0);
        match event["ph"].as_str().unwrap() {
            "X" => assert!(event["dur"].as_f64().unwrap() > 0.0, "{event}"),
            "i" => assert_eq!(event["s"], "t"),
            "C" => assert!(
                event["args"]
                    .as_object()
                    .unwrap()
                    .values()
                    .all(Value::is_number)
            ),
            "M" => assert!(
                event["args"].get("name").is_some() || event["args"].get("sort_index").is_some()
            ),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn without_a_timeline_there_is_no_trace() {
    let mut result = fixture();
    result.phases.iter_mut().for_each(|p| p.timeline = None);
    assert!(trace(&result).is_none());
}

/// A vCPU that sleeps is neither on nor has it been taken away.
#[test]
fn a_halted_vcpu_is_not_on_and_not_off() {
    let mut result = fixture();
    let mut timelines = result.phases.iter_mut().filter_map(|p| p.timeline.as_mut());
    let timeline = timelines.next().unwrap();
    timeline.vcpus[1].halts = vec![(Ns::from_ms(4), Ns::from_ms(6))];
    let events = trace(&result).unwrap().events;
    let slices = events.iter().filter(|e| e.ph == "X" && e.tid == 2);
    let names: Vec<(&str, f64)> = slices.map(|e| (e.name.as_str(), e.ts)).collect();
    let want = [
        ("off", 0.0),
        ("on", 3000.0),
        ("halted", 4000.0),
        ("on", 6000.0),
        ("off", 15000.0),
    ];
    assert_eq!(names, want);
    let counter = events.iter().filter(|e| e.ph == "C" && e.name == "vCPUs");
    let at_4 = counter.clone().find(|e| e.ts == 4000.0).unwrap();
    assert_eq!(at_4.args["on"], 1);
    let page = crate::report::html::page(&result).unwrap();
    assert_eq!(page.matches(r#"<path class="halted""#).count(), 1);
    assert!(page.contains("where it is halted"));
}
