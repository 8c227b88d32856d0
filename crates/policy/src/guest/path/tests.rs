// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is learnt from which requests, with and without a prior.

use proptest::prelude::*;

use super::*;

const A: VcpuId = VcpuId(0);
const B: VcpuId = VcpuId(1);
const C: VcpuId = VcpuId(2);

/// As in path.h.
const SILENT: usize = 4096;

fn after(prior: Prior, requests: &[(VcpuId, VcpuId)]) -> Path {
    let mut path = Path::new(prior);
    for (submitted, completed) in requests {
        path.learn(*submitted, *completed, false);
    }
    path
}

fn completion(prior: Prior, requests: &[(VcpuId, VcpuId)]) -> Completion {
    after(prior, requests).completion()
}

#[test]
fn without_a_prior_four_crossings_in_a_row_fix_it_and_two_submitters_make_it_follow() {
    assert_eq!(completion(Prior::None, &[]), Completion::Unknown);
    assert_eq!(
        completion(Prior::None, &[(A, B), (A, B), (A, B)]),
        Completion::Unknown
    );
    assert_eq!(
        completion(Prior::None, &[(A, B); 4]),
        Completion::On(B),
        "four"
    );
    assert_eq!(
        completion(Prior::None, &[(A, B), (A, B), (A, B), (A, A), (A, B)]),
        Completion::Unknown,
        "not in a row"
    );
    assert_eq!(completion(Prior::None, &[(A, A); 9]), Completion::Unknown);
    assert_eq!(
        completion(Prior::None, &[(A, A), (B, B)]),
        Completion::FollowsTask
    );
}

#[test]
fn what_was_learnt_stays_until_eight_contradict_it() {
    let mut path = after(Prior::None, &[(A, B); 4]);
    for _ in 0..1000 {
        path.learn(B, B, false);
    }
    for _ in 0..7 {
        path.learn(A, A, false);
    }
    assert_eq!(path.completion(), Completion::On(B));
    path.learn(A, A, false);
    assert_eq!(path.completion(), Completion::FollowsTask);
}

#[test]
fn a_prior_is_believed_from_the_start() {
    for (prior, completion) in [
        (Prior::None, Completion::Unknown),
        (Prior::Follows, Completion::FollowsTask),
        (Prior::At(B), Completion::On(B)),
        (Prior::SentOnFrom(B), Completion::On(B)),
    ] {
        assert_eq!(Path::new(prior).completion(), completion);
        assert!(!Path::new(prior).is_unasked());
    }
    let nobody_asked = Path {
        prior: UNASKED,
        ..Path::new(Prior::None)
    };
    assert!(nobody_asked.is_unasked());
    assert_eq!(nobody_asked.completion(), Completion::Unknown);
}

#[test]
fn at_home_a_reader_gives_no_evidence_and_stays_there() {
    assert_eq!(completion(Prior::At(B), &[(B, B); 100]), Completion::On(B));
}

#[test]
fn one_crossing_confirms_a_prior_and_then_it_is_learnt() {
    let path = after(Prior::At(B), &[(A, B)]);
    assert_eq!(path.completion(), Completion::On(B));
    assert!(path.is_learnt() && !Path::new(Prior::At(B)).is_learnt());
    // Seven contradictions leave it, as they would if it had been learnt alone.
    let mut requests = vec![(A, B)];
    requests.extend([(A, A); 7]);
    assert_eq!(completion(Prior::At(B), &requests), Completion::On(B));
}

#[test]
fn a_wrong_prior_is_unlearnt_after_four_that_speak_against_it() {
    // It follows, in truth.
    assert_eq!(completion(Prior::At(B), &[(A, A); 3]), Completion::On(B));
    assert_eq!(completion(Prior::At(B), &[(A, A); 4]), Completion::Unknown);
    let mut requests = vec![(B, B)];
    requests.extend([(A, A); 4]);
    assert_eq!(completion(Prior::At(B), &requests), Completion::FollowsTask);
    // It is fixed elsewhere.
    assert_eq!(completion(Prior::At(B), &[(A, C); 4]), Completion::On(C));
    assert_eq!(
        completion(Prior::At(B), &[(B, C), (A, C), (B, A), (B, A)]),
        Completion::Unknown,
        "four against it, no four alike"
    );
    // It does not follow, in truth.
    assert_eq!(completion(Prior::Follows, &[(A, B); 4]), Completion::On(B));
    assert_eq!(
        completion(Prior::Follows, &[(A, B), (A, A), (A, B), (A, A), (A, B)]),
        Completion::FollowsTask,
        "submitters that move at the wrong moment"
    );
    assert_eq!(
        completion(Prior::Follows, &[(A, B), (B, B)].repeat(4)),
        Completion::Unknown,
        "a submitter that goes to and fro"
    );
}

#[test]
fn what_is_refuted_does_not_come_back() {
    let mut path = after(Prior::At(B), &[(A, A); 4]);
    path.learn(C, B, false);
    assert_eq!(
        path.completion(),
        Completion::Unknown,
        "one crossing confirms nothing"
    );
    // Learnt, and contradicted: the prior that agreed with it goes too.
    let mut requests = vec![(A, B)];
    requests.extend([(A, A); 8]);
    assert_eq!(completion(Prior::At(B), &requests), Completion::Unknown);
}

#[test]
fn a_prior_that_nothing_has_tested_is_doubted_after_long() {
    let mut path = after(Prior::At(B), &[(B, B); SILENT - 1]);
    assert_eq!(path.completion(), Completion::On(B));
    path.learn(B, B, false);
    assert_eq!(path.completion(), Completion::Unknown);
    let (mut right, mut wrong) = (path, path);
    right.learn(A, B, false);
    assert_eq!(right.completion(), Completion::On(B), "it was right");
    for _ in 0..SILENT {
        right.learn(B, B, false);
    }
    assert_eq!(
        right.completion(),
        Completion::On(B),
        "and now it is learnt"
    );
    wrong.learn(A, A, false);
    assert_eq!(wrong.completion(), Completion::FollowsTask);
}

#[test]
fn a_completion_that_is_sent_on_is_no_evidence_of_where_it_arrived() {
    // Of before the prior was asked for: then it seemed to follow.
    let seemed = after(Prior::None, &[(A, A), (B, B)]);
    let told = Path {
        prior: Prior::SentOnFrom(B).word(),
        ..seemed
    };
    assert_eq!(told.completion(), Completion::On(B));
    let many = [(A, A), (B, B), (C, C)].repeat(2 * SILENT);
    assert_eq!(completion(Prior::SentOnFrom(B), &many), Completion::On(B));
    // But nothing can have arrived on a vCPU that was away.
    let mut path = Path::new(Prior::SentOnFrom(B));
    for _ in 0..4 {
        assert_eq!(path.completion(), Completion::On(B));
        path.learn(A, A, true);
    }
    assert_eq!(path.completion(), Completion::Unknown);
    path.learn(C, C, false);
    path.learn(A, A, false);
    assert_eq!(path.completion(), Completion::FollowsTask);
}

fn prior() -> impl Strategy<Value = Prior> {
    prop_oneof![
        Just(Prior::None),
        Just(Prior::Follows),
        (0u32..4).prop_map(|n| Prior::At(VcpuId(n))),
        (0u32..4).prop_map(|n| Prior::SentOnFrom(VcpuId(n))),
    ]
}

/// A device as it really is: `None` follows, else all completions arrive on one vCPU.
fn truth() -> impl Strategy<Value = Option<VcpuId>> {
    prop::option::of((0u32..4).prop_map(VcpuId))
}

proptest! {
    /// Whatever the prior says: once requests have come from everywhere, a device that
    /// follows is known to, and one that does not is at most unknown.
    #[test]
    fn a_device_that_is_used_from_everywhere_is_not_mistaken(
        prior in prior(), truth in truth(), from in prop::collection::vec(0u32..4, 0..200),
    ) {
        // The vCPU that a wrong prior of this kind names may be away and prove it.
        let absent = matches!(prior, Prior::SentOnFrom(_));
        let mut path = Path::new(prior);
        for n in from.into_iter().chain((0..4).cycle().take(64)) {
            let submitted = VcpuId(n);
            path.learn(submitted, truth.unwrap_or(submitted), absent);
        }
        match truth {
            None => prop_assert_eq!(path.completion(), Completion::FollowsTask),
            // Crossings that requests of its own interrupt are no four in a row.
            Some(home) if path.completion() == Completion::Unknown => {
                prop_assert_ne!(prior, Prior::At(home));
                prop_assert_ne!(prior, Prior::SentOnFrom(home));
            }
            Some(home) => prop_assert_eq!(path.completion(), Completion::On(home)),
        }
    }

    /// With a prior that is right nothing else is ever believed, whoever submits where.
    #[test]
    fn a_right_prior_is_never_given_up_for_another_belief(
        vcpu in 0u32..4, from in prop::collection::vec(0u32..4, 0..300),
    ) {
        let home = VcpuId(vcpu);
        let mut path = Path::new(Prior::At(home));
        for n in from {
            path.learn(VcpuId(n), home, false);
            prop_assert_eq!(path.completion(), Completion::On(home));
        }
        let mut path = Path::new(Prior::SentOnFrom(home));
        for n in 0..300 {
            path.learn(VcpuId(n % 4), VcpuId(n % 4), false);
            prop_assert_eq!(path.completion(), Completion::On(home));
        }
    }
}
