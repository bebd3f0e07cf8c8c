//! Every obstacle and warning, by observations that differ from a good one in one thing.

use super::*;
use crate::examination::{CertificateMessage, ServerHello};

const ROUND_TRIP: Duration = Duration::from_millis(10);

fn good() -> Observation {
    Observation {
        end: End::Complete,
        first_answer: Some(Duration::from_millis(12)),
        answer: Some(Duration::from_millis(13)),
        is_retry: false,
        id_bytes: Some(8),
        flight: vec![1_200, 1_200, 700],
        hello: Some(ServerHello {
            suite: 0x1301,
            group: Some(X25519MLKEM768),
            extensions: KEY_SHARE_FIRST.to_vec(),
            is_retry: false,
        }),
        certificate: Some(CertificateMessage {
            bytes: 2_000,
            is_compressed: false,
        }),
        chain: Some(Ok(())),
        idle_timeout_ms: Some(30_000),
        has_preferred_address: false,
    }
}

fn classic() -> Observation {
    changed(|seen| hello_of(seen).group = Some(X25519))
}

fn changed(change: impl Fn(&mut Observation)) -> Observation {
    let mut seen = good();
    change(&mut seen);
    seen
}

fn hello_of(seen: &mut Observation) -> &mut ServerHello {
    seen.hello.as_mut().unwrap()
}

fn judged(change: impl Fn(&mut Observation)) -> Verdict {
    let visits = [changed(&change), changed(&change), changed(&change)];
    judge(&visits, Some(&classic()), Some(ROUND_TRIP))
}

/// QR1-27.
#[test]
fn a_good_site_has_a_profile_and_nothing_is_said_about_it() {
    let mut visits = [good(), good(), good()];
    visits[0].answer = Some(Duration::from_millis(500));
    let verdict = judge(&visits, Some(&classic()), Some(ROUND_TRIP));
    assert_eq!((verdict.obstacles, verdict.warnings), (Vec::new(), Vec::new()));
    let expected = Profile {
        suite: 0x1301,
        group: X25519MLKEM768,
        id_bytes: 8,
        certificate_bytes: 2_000,
        is_version_first: false,
        answer_delay: Duration::from_millis(13),
    };
    assert_eq!(verdict.profile, Some(expected));
    let turned = judged(|seen| hello_of(seen).extensions.reverse());
    assert_eq!(turned.warnings, []);
    assert!(turned.profile.is_some_and(|profile| profile.is_version_first));
}

fn certificate(bytes: usize, is_compressed: bool) -> Verdict {
    judged(move |seen| seen.certificate = Some(CertificateMessage { bytes, is_compressed }))
}

/// QR1-27.
#[test]
fn each_obstacle_is_told_and_leaves_no_profile() {
    let of_the_end = |end: End| judged(move |seen| seen.end = end.clone());
    for (verdict, obstacle) in [
        (judge(&[], None, None), Obstacle::Unreachable),
        (of_the_end(End::Silent), Obstacle::Unreachable),
        (of_the_end(End::OtherVersions), Obstacle::OtherVersions),
        (of_the_end(End::HelloRetry), Obstacle::HelloRetry),
        (of_the_end(End::Closed(Some(0x178))), Obstacle::NoHttp3),
        (
            of_the_end(End::Closed(Some(0x128))),
            Obstacle::Closed(Some(0x128)),
        ),
        (of_the_end(End::Closed(None)), Obstacle::Closed(None)),
        (
            of_the_end(End::Failed("odd".into())),
            Obstacle::Failed("odd".into()),
        ),
        (of_the_end(End::Incomplete), Obstacle::Incomplete),
        (judged(|seen| seen.is_retry = true), Obstacle::AlwaysRetry),
        (judged(|seen| seen.id_bytes = Some(0)), Obstacle::IdBytes(0)),
        (judged(|seen| seen.id_bytes = Some(7)), Obstacle::IdBytes(7)),
        (certificate(479, false), Obstacle::CertificateBytes(479)),
        (certificate(32_769, true), Obstacle::CertificateBytes(32_769)),
        (
            judged(|seen| seen.has_preferred_address = true),
            Obstacle::PreferredAddress,
        ),
        (
            judged(|seen| hello_of(seen).suite = 0x1304),
            Obstacle::Suite(0x1304),
        ),
        (
            judged(|seen| hello_of(seen).group = Some(0x17)),
            Obstacle::Group(Some(0x17)),
        ),
        (judged(|seen| hello_of(seen).group = None), Obstacle::Group(None)),
    ] {
        assert_eq!(verdict.obstacles, [obstacle], "{verdict:?}");
        assert_eq!(verdict.profile, None);
        assert!(!verdict.obstacles[0].to_string().is_empty());
    }
    assert_eq!(judged(|seen| seen.id_bytes = Some(20)).obstacles, []);
}

#[test]
fn each_warning_is_told_and_the_site_fits() {
    let good_three = [good(), good(), good()];
    let far = Duration::from_millis(200);
    let unlike = [good(), changed(|seen| seen.id_bytes = Some(9)), good()];
    let some_retry = [good(), changed(|seen| seen.is_retry = true), good()];
    for (verdict, warning) in [
        (
            judge(&good_three, Some(&classic()), Some(far)),
            Warning::FarAway(far),
        ),
        (
            judge(&good_three, Some(&classic()), None),
            Warning::NoVersionNegotiation,
        ),
        (
            judge(&good_three, Some(&good()), Some(ROUND_TRIP)),
            Warning::ClassicFails,
        ),
        (
            judge(&unlike, Some(&classic()), Some(ROUND_TRIP)),
            Warning::Unsteady,
        ),
        (
            judge(&some_retry, Some(&classic()), Some(ROUND_TRIP)),
            Warning::SometimesRetry,
        ),
        (certificate(2_000, true), Warning::CompressedCertificate),
        (
            judged(|seen| seen.chain = Some(Err("expired".into()))),
            Warning::Chain("expired".into()),
        ),
        (
            judged(|seen| hello_of(seen).group = Some(X25519)),
            Warning::NoHybrid,
        ),
        (
            judged(|seen| hello_of(seen).extensions.push(41)),
            Warning::Extensions(vec![51, 43, 41]),
        ),
    ] {
        assert_eq!(verdict.warnings, [warning], "{verdict:?}");
        assert!(
            verdict.obstacles.is_empty() && verdict.profile.is_some(),
            "{verdict:?}"
        );
        assert!(!verdict.warnings[0].to_string().is_empty());
    }
}

#[test]
fn one_lost_visit_is_no_obstacle() {
    let visits = [changed(|seen| seen.end = End::Silent), good(), good()];
    let verdict = judge(&visits, Some(&classic()), Some(ROUND_TRIP));
    assert_eq!(verdict.obstacles, []);
    assert_eq!(verdict.warnings, [Warning::Unsteady]);
}

#[test]
fn only_silence_is_out_of_reach() {
    let judged_as = |end: End| judged(|seen| seen.end = end.clone());
    assert!(judged_as(End::Silent).is_out_of_reach() && judged_as(End::Incomplete).is_out_of_reach());
    assert!(!judged_as(End::Complete).is_out_of_reach());
    assert!(!judged_as(End::Closed(Some(NO_APPLICATION_PROTOCOL))).is_out_of_reach());
    let always_retry = judged(|seen| (seen.end, seen.is_retry) = (End::Incomplete, true));
    assert!(!always_retry.is_out_of_reach());
    assert_eq!(always_retry.obstacles.len(), 2);
    assert!(
        always_retry.reasons().contains("; "),
        "{}",
        always_retry.reasons()
    );
}
