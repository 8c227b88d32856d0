// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::path::Path;

use crate::analysis::tests::fixture;
use crate::result::IoTime;
use crate::result::Phase;
use crate::result::RunResult;
use units::Ns;

/// Elements that HTML never closes.
const VOID: [&str; 4] = ["meta", "link", "br", "!DOCTYPE"];

/// Every element that is opened is closed, in order. Script and style are text.
pub(super) fn assert_balanced(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(
                open.pop(),
                Some(name),
                "before {}",
                &rest[..rest.len().min(80)]
            );
            continue;
        }
        let name = tag.split([' ', '\n']).next().unwrap();
        if VOID.contains(&name) || tag.ends_with('/') {
            continue;
        }
        open.push(name);
        if name == "script" || name == "style" {
            rest = &rest[rest.find(&format!("</{name}>")).expect("it ends")..];
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn the_page_is_whole_and_needs_nothing_else() {
    let page = super::page(&fixture()).unwrap();
    assert_balanced(&page);
    for outside in [
        "http:", "https:", " src=", "@import", "url(h", "fetch(", "XMLHttp",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    for shown in [
        "Fixed numbers",
        "one guest was lost",
        "Where the time of a request goes",
        "Timeline, 2 VMs per CPU",
        "the rate without sharing moved by -15 %",
        "2 round(s) are too few",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
}

#[test]
fn names_cannot_become_markup() {
    let mut result = fixture();
    let bad = "<script>alert(1)</script>\"&";
    result.scenario.title = bad.to_owned();
    result.warnings = vec![bad.to_owned()];
    for load in &mut result.scenario.loads {
        load.name = format!("{bad}{}", load.name);
    }
    for phase in result.phases.iter_mut().filter(|p| !p.load.is_empty()) {
        phase.load = format!("{bad}{}", phase.load);
    }
    let page = super::page(&result).unwrap();
    assert!(!page.contains("<script>alert"));
    assert_balanced(&page);
}

#[test]
fn every_round_is_a_dot() {
    let page = super::page(&fixture()).unwrap();
    // pulse: 2 rates of vanilla, 2 of ours, 2 ratios; disk: 1, 1, 1.
    assert_eq!(page.matches(r#"class="round" cx"#).count(), 9);
    // Time per request: solo twice, vanilla and ours twice each, of pulse only.
    assert_eq!(page.matches(r#"class="round small" cx"#).count(), 6);
}

#[test]
fn the_bar_of_a_request_adds_up() {
    let result = fixture();
    let analysis = crate::analysis::analyse(&result);
    let rows = super::times::table(&result, &analysis.loads[0]);
    // ours: 2 s of one thread over 5400 and 6000 requests per second.
    let mean = 1e6 / 5700.0;
    assert_eq!(
        rows[2].last().unwrap(),
        &format!("{mean:.0} [{:.0}..{:.0}]", 1e6 / 6000.0, 1e6 / 5400.0)
    );
    assert_eq!(rows[2][..2], ["2 VMs per CPU", "ours"]);
    // Device: 1100 of 2000 ms.
    assert_eq!(rows[2][3], format!("{:.0}", mean * 0.55));
}

/// One request in two seconds: the bar is longer by the time that this took, and not by the
/// half of what that one request took.
#[test]
fn a_round_that_stood_still_hides_no_other() {
    let mut result = fixture();
    let stuck = |p: &&mut Phase| p.load == "pulse" && p.arm == "ours";
    let phase = result.phases.iter_mut().find(stuck).unwrap();
    phase.io.as_mut().unwrap().ops_per_s = 0.5;
    let analysis = crate::analysis::analyse(&result);
    let rows = super::times::table(&result, &analysis.loads[0]);
    let last = rows[2].last().unwrap();
    assert!(last.ends_with("..2000000]"), "{last}");
    let shown: f64 = last.split(' ').next().unwrap().parse().unwrap();
    assert!((shown - 4e6 / 12_000.0).abs() < 30.0, "{last}");
    let picture = super::times::draw(&result, &analysis.loads[0]);
    assert!(picture.contains("a round beyond: 2000000 us"), "{picture}");
    // The other bars can be told apart: an axis of a millisecond, not of two seconds.
    assert!(picture.contains(">1000</text>") && !picture.contains(">2000</text>"));
}

#[test]
fn a_timeline_shows_states_gaps_and_moves() {
    let result = fixture();
    let timeline = result
        .phases
        .iter()
        .find_map(|p| p.timeline.as_ref())
        .unwrap();
    let strip = super::timeline::draw("ours", timeline);
    insta::assert_snapshot!(strip);
}

#[test]
fn without_records_there_are_no_empty_pictures() {
    let mut result = fixture();
    for phase in &mut result.phases {
        phase.io_time = None;
        phase.timeline = None;
    }
    let page = super::page(&result).unwrap();
    assert_balanced(&page);
    assert!(!page.contains("Timeline,") && !page.contains("Where the time of a request goes"));
    // A log that says nothing: no bar rather than one of length zero.
    for phase in &mut result.phases {
        phase.io_time = Some(IoTime::default());
        phase.window = Ns::ZERO;
    }
    assert_balanced(&super::page(&result).unwrap());
}

/// Numbers end at the right, whether or not there is a column of verdicts before them.
#[test]
fn only_words_begin_at_the_left() {
    let mut result = fixture();
    let header = |result: &RunResult| {
        let page = super::page(result).unwrap();
        let from = page.find("<caption>All numbers").unwrap();
        page[from..].split("</thead>").next().unwrap().to_owned()
    };
    let few = header(&result);
    assert!(few.contains(r#"class="n">of bound<"#) && !few.contains("verdict"));
    // Each round three times over.
    for more in [2, 4] {
        let phases = result.phases.clone().into_iter();
        let again = phases.filter(|phase| phase.round < 2).map(|phase| Phase {
            round: phase.round + more,
            ..phase
        });
        result.phases.extend(again.collect::<Vec<_>>());
    }
    let enough = header(&result);
    assert!(enough.contains(r#"scope="col">verdict<"#), "{enough}");
    assert!(enough.contains(r#"class="n">of bound<"#), "{enough}");
}

/// A real run: everything that is on the page for the fixture is there for it.
#[test]
fn a_real_run_has_all_its_pictures() {
    let json = include_str!("../../../testdata/recorded.json");
    let result = RunResult::parse(json, Path::new("recorded.json")).unwrap();
    let page = super::page(&result).unwrap();
    assert_balanced(&page);
    assert_eq!(
        page.matches(r#"<svg class="plot""#).count(),
        3,
        "one strip per arm"
    );
    let moves: usize = result
        .phases
        .iter()
        .filter_map(|p| Some(p.timeline.as_ref()?.moves.len()))
        .sum();
    assert!(moves > 10);
    assert_eq!(page.matches(r#"<g class="move "#).count(), moves);
    for phase in &result.phases {
        let Some(time) = &phase.io_time else { continue };
        assert_eq!(time.total(), phase.window * u64::from(time.threads));
    }
}
