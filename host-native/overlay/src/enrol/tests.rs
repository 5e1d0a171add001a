//! Hosts that enrol over loopback, and strangers.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::head::positions;
use super::hello::*;
use super::*;
use crate::incoming::INCOMING_MAX;
use crate::version::VERSION;

const SECRET: [u8; 32] = [7; 32];

fn applicant(address: SocketAddr, secret: [u8; 32]) -> Applicant {
    let application = Application { name: "here".to_owned(), slots: 3, program: None };
    Applicant { address: address.to_string(), secret, index: None, application, timeout: 30_000 }
}

fn terms() -> Terms {
    Terms { hosts: Some(1), ranks: None, with_programs: false, timeout: 60_000 }
}

fn enrolment() -> (Enrolment, SocketAddr) {
    let enrolment = Enrolment::listen(Some("lo"), None, Secrets::One(SECRET)).unwrap();
    let addr = enrolment.addrs().next().unwrap();
    (enrolment, addr)
}

#[test]
fn hosts_are_where_their_indices_say() {
    let of =
        |indices: &[i64]| positions(&indices.iter().map(|&at| u32::try_from(at).ok()).collect::<Vec<_>>());
    assert_eq!(of(&[-1, -1, -1]), [0, 1, 2], "in the order of arrival");
    assert_eq!(of(&[2, 0, 1]), [2, 0, 1]);
    assert_eq!(of(&[-1, 1, -1, 0]), [2, 1, 3, 0]);
    // Without a number of hosts, indices may have gaps.
    assert_eq!(of(&[9, -1, 4]), [1, 2, 0]);
    assert_eq!(of(&[5, -1, 1]), [0, 2, 1]);
    assert_eq!(of(&[]), [0; 0]);
}

#[test]
fn strangers_keep_no_host_out() {
    let (mut enrolment, addr) = enrolment();
    let silent: Vec<TcpStream> = (0..2 * INCOMING_MAX).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let mut odd = TcpStream::connect(addr).unwrap();
    odd.write_all(&[b'x'; HELLO_LEN]).unwrap();
    // A hello with the right secret that another host has sent.
    let (_, initiation) = crate::link::Initiator::new(&identity(None), &crate::link::Secret::of(SECRET));
    let mut replayed = TcpStream::connect(addr).unwrap();
    replayed.write_all(&[&MAGIC[..], &version_field(), &initiation].concat()).unwrap();
    let host = thread::spawn(move || applicant(addr, SECRET).enrol());
    enrolment.wait(&terms(), &mut |_| {}).unwrap();
    let hosts: Vec<_> = enrolment.hosts().map(|host| (&*host.application.name, host.addr.ip())).collect();
    assert_eq!(hosts, [("here", IpAddr::from([127, 0, 0, 1]))]);
    enrolment.dismiss("enough");
    let refused = host.join().unwrap().unwrap_err().to_string();
    assert_eq!(refused, format!("the run at {addr} refuses this host: enough"));
    assert_eq!(odd.read(&mut [0]).unwrap_or_default(), 0, "closed without an answer");
    drop(silent);
}

#[test]
fn hosts_of_another_version_or_secret_are_told() {
    let (mut enrolment, addr) = enrolment();
    let hosts = thread::spawn(move || {
        let mut other = TcpStream::connect(addr).unwrap();
        let mut hello = [0; HELLO_LEN];
        hello[..MAGIC.len()].copy_from_slice(&MAGIC);
        hello[MAGIC.len()..MAGIC.len() + 5].copy_from_slice(b"9.8.7");
        hello[MAGIC.len() + VERSION_LEN..][..8].copy_from_slice(b"hydrant\x01");
        other.write_all(&hello).unwrap();
        let mut verdict = [0; VERDICT_LEN];
        other.read_exact(&mut verdict).unwrap();
        assert_eq!(Verdict::from_byte(verdict[0]), Some(Verdict::Version));
        assert_eq!(version_text(&verdict[1..=VERSION_LEN]), VERSION);
        let error = applicant(addr, [8; 32]).enrol().unwrap_err();
        assert_eq!(error.to_string(), format!("the run at {addr} has another secret"));
        applicant(addr, SECRET).enrol()
    });
    let mut turned = Vec::new();
    let mut tell = |notice: Notice<'_>| {
        if let Notice::Turned(_, why) = notice {
            turned.push(why.to_owned());
        }
    };
    enrolment.wait(&terms(), &mut tell).unwrap();
    drop(enrolment);
    let error = hosts.join().unwrap().unwrap_err();
    assert!(matches!(error, EnrolError::Ended { .. }), "{error}");
    assert_eq!(turned, ["its hydrant is 9.8.7", "it has another secret"]);
}

#[test]
fn a_run_of_another_version_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let head = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; HELLO_LEN]).unwrap();
        let mut verdict = [0; VERDICT_LEN];
        verdict[0] = Verdict::Version as u8;
        verdict[1..7].copy_from_slice(b"10.0.0");
        stream.write_all(&verdict).unwrap();
    });
    let error = applicant(addr, SECRET).enrol().unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "hydrant here is {VERSION}, and that of the run at {addr} is 10.0.0: install the same version on all hosts"
        )
    );
    head.join().unwrap();
}

#[test]
fn an_answer_without_the_secret_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let head = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; HELLO_LEN]).unwrap();
        stream.write_all(&[0; VERDICT_LEN]).unwrap();
    });
    let error = applicant(addr, SECRET).enrol().unwrap_err().to_string();
    assert_eq!(error, format!("what answers at {addr} does not have the secret"));
    head.join().unwrap();
}
