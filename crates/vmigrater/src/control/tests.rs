// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both ends against each other, and against what may stand in the way.

use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;

use guest::report::Mode;
use guest::report::Report;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;

use super::client::ClientError;
use super::*;
use crate::exit::Exit;
use crate::exit::Failure;

/// A report with the given uptime, so that a test can tell two apart.
pub(crate) fn report(uptime_s: u64) -> Report {
    let text = format!(
        r#"{{"format":1,"version":"test","pid":7,"uptime_ns":{},"dry_run":false,"mode":"asleep",
        "source":"heartbeat","source_accuracy_ns":0,"detector_attached":false,"timers_armed":0,"wakeups":{{}},"wakeups_per_s":0.0,
        "loop_lag_p99_ns":0,"vcpus":[],"tasks":[],"io_inactivity_ns":0,"would_have_saved_ns":0,
        "io_phase_ns":0,"moves":{{}},"skipped":{{}},"failed":{{}},"n_migrate":0,"n_min":0,"p":null,
        "c_avg_ns":0,"lost_events":0,"lost_tasks":0,"programs":[]}}"#,
        uptime_s * 1_000_000_000
    );
    serde_json::from_str(&text).unwrap()
}

/// Answers `n` clients, woken by the socket alone; each report counts those
/// before it. Gives up after a while, so that a failing test ends.
fn serve(server: &Server, n: u64) {
    let served = Cell::new(0);
    let patience = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    while served.get() < n {
        let mut fds = [PollFd::new(server, PollFlags::IN)];
        if rustix::event::poll(&mut fds, Some(&patience)).unwrap() == 0 {
            return;
        }
        server.serve(|| report(served.replace(served.get() + 1)));
    }
}

#[test]
fn every_connection_gets_a_fresh_report() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let server = Server::bind(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&server, 2));
        for n in 0..2 {
            let (got, text) = fetch(&path).unwrap();
            assert_eq!(got, report(n));
            assert_eq!(got.mode, Mode::Asleep);
            assert!(text.ends_with("}\n"));
        }
    });
}

#[test]
fn only_the_owner_can_open_it_and_it_goes_with_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made/socket");
    let server = Server::bind(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    drop(server);
    assert!(!path.exists());
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_client_that_leaves_at_once_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let server = Server::bind(&path).unwrap();
    drop(UnixStream::connect(&path).unwrap());
    server.serve(|| report(0));
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&server, 1));
        fetch(&path).unwrap();
    });
}

#[test]
fn a_stale_socket_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    Server::bind(&path).unwrap();
}

#[test]
fn a_live_socket_is_left_alone_and_its_owner_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let _first = Server::bind(&path).unwrap();
    let error = Server::bind(&path).unwrap_err().to_string();
    assert!(
        error.contains(&format!("pid {}", std::process::id())),
        "{error}"
    );
    UnixStream::connect(&path).unwrap();
}

#[test]
fn files_and_foreign_sockets_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(matches!(
        Server::bind(&file),
        Err(ServerError::Exists {
            what: "not a socket",
            ..
        })
    ));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");

    let datagram = dir.path().join("datagram");
    let _other = UnixDatagram::bind(&datagram).unwrap();
    assert!(matches!(
        Server::bind(&datagram),
        Err(ServerError::Exists { .. })
    ));
    assert!(datagram.exists());
}

#[test]
fn a_path_that_is_too_long_is_an_error_not_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x".repeat(120));
    assert!(matches!(Server::bind(&path), Err(ServerError::Bind { .. })));
}

#[test]
fn the_client_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let missing = fetch(&dir.path().join("none")).unwrap_err();
    assert_eq!(Failure::from(missing).exit, Exit::NotRunning);

    let path = dir.path().join("foreign");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(listener.accept().unwrap()));
        let foreign = fetch(&path).unwrap_err();
        assert!(matches!(foreign, ClientError::Foreign { .. }), "{foreign}");
    });
}
