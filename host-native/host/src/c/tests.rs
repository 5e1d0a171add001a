//! Unit tests of the exported functions with the built-in server.

use std::ffi::CStr;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use hydrant_abi::ABI_VERSION;
use hydrant_core::fault::Malformed;
use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::trace::{Cause, Closing, Stream};
use hydrant_core::wire::Protocol;
use hydrant_core::wire::pmix::FIRST_BYTE;
use hydrant_core::{ConnId, Exit, JobId, Output, Rank, UpcallId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::{Code, number};
use super::*;

mod sockets;

const INIT: &[u8] = b"cmd=init pmi_version=1 pmi_subversion=1\n";

/// Host that is closed with this value.
struct Open(*mut HydrantHost);

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: the host is open.
        unsafe { hydrant_host_close(self.0) };
    }
}

fn settings(ranks: u32) -> HostSettings {
    let mut settings = MaybeUninit::uninit();
    // SAFETY: a structure to write to.
    assert_eq!(unsafe { hydrant_settings_init(settings.as_mut_ptr(), ABI_VERSION, ranks) }, 0);
    // SAFETY: the call has written it.
    unsafe { settings.assume_init() }
}

fn open(settings: &HostSettings) -> Result<Open, i32> {
    let mut host = ptr::null_mut();
    // SAFETY: valid settings, and a pointer to write to.
    let code = unsafe { hydrant_host_open(settings, &mut host) };
    assert_eq!(code == 0, !host.is_null());
    if code == 0 { Ok(Open(host)) } else { Err(code) }
}

/// A host with job 0 of so many ranks.
fn registered(ranks: u32) -> Open {
    let host = open(&settings(ranks)).expect("there is memory for it");
    let mut job = MaybeUninit::uninit();
    // SAFETY: a structure to write to, and a name.
    assert_eq!(unsafe { hydrant_job_init(job.as_mut_ptr(), 0, c"job-1".as_ptr(), ranks) }, 0);
    // SAFETY: an open host, and the job that the call has written.
    assert_eq!(unsafe { hydrant_host_register_job(host.0, job.as_ptr()) }, 0);
    host
}

/// The same with a connection of each rank, whose bytes the host carries.
fn with_job(ranks: u32) -> Open {
    let host = registered(ranks);
    for rank in 0..ranks {
        // SAFETY: an open host.
        assert_eq!(unsafe { hydrant_host_opened(host.0, rank, 0, rank) }, 0);
    }
    host
}

fn send(host: &Open, conn: u32, bytes: &[u8]) -> i32 {
    // SAFETY: an open host, and the bytes of a slice.
    unsafe { hydrant_host_bytes(host.0, conn, bytes.as_ptr().cast(), bytes.len()) }
}

fn room(host: &Open, conn: u32) -> usize {
    // SAFETY: an open host.
    unsafe { hydrant_host_room(host.0, conn) }
}

/// The next output with its bytes.
fn next(host: &Open) -> Option<(HostOutput, Vec<u8>)> {
    let mut output = HostOutput::NONE;
    // SAFETY: an open host, and a structure to write to.
    let code = unsafe { hydrant_host_next(host.0, &mut output) };
    assert!((0..=1).contains(&code), "{code}: {}", message());
    let bytes = if output.len == 0 {
        Vec::new()
    } else {
        // SAFETY: the output's bytes are valid until the next call.
        unsafe { std::slice::from_raw_parts(output.bytes, output.len) }.to_vec()
    };
    (code == 1).then_some((output, bytes))
}

fn message() -> String {
    // SAFETY: a text, until the next call fails.
    unsafe { CStr::from_ptr(hydrant_host_error()) }.to_str().expect("messages are texts").to_owned()
}

/// Whether the descriptor becomes readable within this time.
fn is_readable(host: &Open, time: Timespec) -> bool {
    // SAFETY: an open host.
    let fd = unsafe { hydrant_host_fd(host.0) };
    // SAFETY: the descriptor is open for as long as the host.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&time)).expect("the descriptor is valid") == 1
}

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
const PATIENCE: Timespec = Timespec { tv_sec: 100, tv_nsec: 0 };

#[test]
fn a_job_is_served() {
    let host = with_job(2);
    assert_eq!(send(&host, 0, &INIT[..10]), 0);
    assert!(next(&host).is_none() && !is_readable(&host, AT_ONCE));
    assert_eq!(room(&host, 0), MESSAGE_MAX as usize - 10);
    assert_eq!(send(&host, 0, &INIT[10..]), 0);
    assert!(is_readable(&host, PATIENCE));
    let (joined, _) = next(&host).expect("the rank has joined");
    assert_eq!((joined.kind, joined.conn, joined.job, joined.rank), (2, 0, 0, 0));
    let (reply, bytes) = next(&host).expect("there is a reply");
    assert_eq!((reply.kind, reply.conn), (0, 0));
    assert!(bytes.starts_with(b"cmd=response_to_init rc=0 "));
    assert!(next(&host).is_none() && !is_readable(&host, AT_ONCE));
    assert_eq!(room(&host, 0), MESSAGE_MAX as usize);
}

/// A rank that closes its connection counts as lost after a delay, if another one waits for it.
#[test]
fn deadlines_make_the_descriptor_readable() {
    let host = with_job(2);
    for conn in [0, 1] {
        assert_eq!(send(&host, conn, INIT), 0);
    }
    while next(&host).is_some() {}
    assert_eq!(send(&host, 0, b"cmd=barrier_in\n"), 0);
    // SAFETY: an open host.
    assert_eq!(unsafe { hydrant_host_closed(host.0, 1) }, 0);
    assert!(next(&host).is_none() && !is_readable(&host, AT_ONCE));
    assert!(is_readable(&host, PATIENCE));
    let (abort, _) = next(&host).expect("the job is aborted");
    assert_eq!((abort.kind, abort.cause, abort.rank, abort.exit), (6, 3, 1, 2));
    while next(&host).is_some() {}
    assert!(!is_readable(&host, AT_ONCE));
}

/// Complete messages wait for replies to be taken, and the bytes of a client have a limit.
#[test]
fn messages_are_passed_again_when_replies_are_taken() {
    let host = with_job(1);
    assert_eq!(send(&host, 0, INIT), 0);
    while next(&host).is_some() {}
    let requests = b"cmd=get_maxes\n".repeat(4000);
    assert_eq!(send(&host, 0, &requests), 0);
    let left = room(&host, 0);
    assert!(left < MESSAGE_MAX as usize - 50_000, "{left}");
    assert_eq!(send(&host, 0, &vec![b' '; left + 1]), Code::Room as i32);
    // SAFETY: an open host.
    assert_eq!(unsafe { hydrant_host_blocked(host.0, 0) }, 0);
    assert!(next(&host).is_none() && !is_readable(&host, AT_ONCE));
    // SAFETY: an open host.
    assert_eq!(unsafe { hydrant_host_writable(host.0, 0) }, 0);
    assert!(is_readable(&host, PATIENCE));
    let mut replies = 0;
    while let Some((_, bytes)) = next(&host) {
        assert!(bytes.starts_with(b"cmd=maxes "));
        replies += 1;
    }
    assert_eq!((replies, room(&host, 0)), (4000, MESSAGE_MAX as usize));
}

#[test]
fn arguments_are_checked() {
    let host = with_job(1);
    let code = |error: Code| error as i32;
    // SAFETY: the functions check for NULL before they use a pointer.
    unsafe {
        assert_eq!(hydrant_settings_init(ptr::null_mut(), ABI_VERSION, 1), code(Code::Argument));
        assert_eq!(hydrant_settings_init(ptr::null_mut(), ABI_VERSION - 1, 1), code(Code::Argument));
        assert!(message().contains("build it again"));
        assert_eq!(hydrant_job_init(ptr::null_mut(), 0, c"job".as_ptr(), 1), code(Code::Argument));
        assert_eq!(hydrant_host_open(&settings(1), ptr::null_mut()), code(Code::Argument));
        let mut none = host.0;
        assert_eq!(hydrant_host_open(ptr::null(), &mut none), code(Code::Argument));
        assert!(none.is_null());
        let is_null = |result, missing| {
            assert_eq!(result, code(Code::Argument));
            assert_eq!((message(), hydrant_host_fault()), (format!("{missing} is NULL"), -1));
        };
        is_null(hydrant_host_blocked(ptr::null(), 0), "the host");
        is_null(hydrant_host_fd(ptr::null()), "the host");
        is_null(hydrant_host_next(host.0, ptr::null_mut()), "the output");
        is_null(hydrant_host_register_job(host.0, ptr::null()), "the job");
        is_null(hydrant_host_bytes(host.0, 0, ptr::null(), 1), "the data");
        is_null(hydrant_host_pset(host.0, 0, ptr::null(), 0, 1), "the name");
        is_null(hydrant_host_attr(host.0, 0, ptr::null(), 1, ptr::null(), 0), "the key");
        assert_eq!(hydrant_host_room(ptr::null(), 0), 0);
        assert_eq!(hydrant_host_bytes(host.0, 0, ptr::null(), 0), 0);
        assert_eq!(hydrant_host_bytes(host.0, 0, INIT.as_ptr().cast(), usize::MAX), code(Code::Argument));
        assert_eq!(hydrant_host_pset(host.0, 0, c"\xff".as_ptr(), 0, 1), code(Code::Argument));
        let long = [&[b'a'; 2000][..], &[0]].concat();
        assert_eq!(hydrant_host_pset(host.0, 0, long.as_ptr().cast(), 0, 1), code(Code::Argument));
        assert_eq!(hydrant_host_exited(host.0, 0, 0, 3, 0), code(Code::Argument));
        assert_eq!(hydrant_host_exited(host.0, 0, 0, 0, 256), code(Code::Argument));
        assert_eq!(hydrant_exit_code(3, 0), code(Code::Argument));
        assert_eq!(hydrant_host_spawn_complete(host.0, 0, 0, 99, ptr::null(), 0), code(Code::Argument));
        let huge = vec![0_u8; 1 << 20];
        let data = huge.as_ptr().cast();
        assert_eq!(hydrant_host_peer(host.0, 1, data, huge.len()), code(Code::Argument));
        hydrant_host_close(ptr::null_mut());
    }
    // The server has got none of them.
    assert_eq!(send(&host, 0, INIT), 0);
    assert!(next(&host).is_some());
}

#[test]
fn faults_have_numbers() {
    let host = with_job(1);
    // SAFETY: an open host.
    unsafe {
        assert_eq!(hydrant_host_opened(host.0, 0, 0, u32::MAX), Code::Fault as i32);
        // Fault::ConnInUse
        assert_eq!((hydrant_host_fault(), hydrant_host_limit()), (1, -1));
        assert_eq!(hydrant_host_opened(host.0, u32::MAX, 0, u32::MAX), Code::Fault as i32);
        assert_eq!((hydrant_host_fault(), message().as_str()), (0, "no such connection"));
    }
    assert_eq!((send(&host, 1, INIT), room(&host, 1)), (Code::Fault as i32, 0));
    let mut too_many = settings(1);
    too_many.limits.jobs = u32::MAX;
    too_many.limits.ranks = u32::MAX;
    assert_eq!(open(&too_many).err(), Some(Code::Memory as i32));
}

#[test]
fn a_host_serves_one_thread_at_a_time() {
    let host = with_job(1);
    // SAFETY: an open host.
    let held = unsafe { &*host.0 }.0.lock();
    // SAFETY: an open host.
    assert_eq!(unsafe { hydrant_host_blocked(host.0, 0) }, Code::Busy as i32);
    drop(held);
    // SAFETY: an open host.
    assert_eq!(unsafe { hydrant_host_blocked(host.0, 0) }, 0);
}

#[cfg(not(feature = "sandbox"))]
#[test]
fn a_plugin_needs_the_sandbox() {
    let mut settings = settings(1);
    settings.plugin = c"/nowhere/hydrant.wasm".as_ptr();
    assert_eq!(open(&settings).err(), Some(Code::NoSandbox as i32));
    assert!(message().starts_with("plugin /nowhere/hydrant.wasm: ") && message().contains("\nhint: "));
}

/// The kind is the variant's number in the ABI.
#[test]
fn outputs_have_the_numbers_of_the_abi() {
    let (conn, job, rank, upcall, spawn) = (ConnId(5), JobId(6), Rank(7), UpcallId(8), UpcallId(9));
    let outputs = [
        Output::Bytes { conn, bytes: b"reply" },
        Output::Close { conn, why: Closing::Malformed(Malformed::TooLong) },
        Output::Joined { conn, job, rank },
        Output::Spawn { spawn, job, rank, protocol: Protocol::V2, request: b"spawn" },
        Output::Upcall { upcall, job, rank, protocol: Protocol::V2, request: b"upcall" },
        Output::KillRank { job, rank, code: Some(-3), message: "killed" },
        Output::AbortJob { job, cause: Cause::Died { rank, exit: Exit::Signal(9) }, message: "died" },
        Output::Peer { node: 4, bytes: b"peer" },
        Output::StalledFence { job, arrived: 2, size: 3, missing: "0-1" },
        Output::RemoveFiles { job, rank, paths: b"/a,/b" },
        Output::Log { job, rank, stream: Stream::Stderr, text: b"text" },
        Output::Connected { job, other: JobId(3), connected: true },
    ];
    let made = HostOutput::of_output;
    for (expected, output) in (0..).zip(outputs) {
        let made = made(output);
        assert_eq!((made.kind, number(&output)), (expected, expected));
        let has_bytes =
            !matches!(output, Output::Close { .. } | Output::Joined { .. } | Output::Connected { .. });
        assert_eq!(made.bytes.is_null(), !has_bytes);
    }
    let close = made(outputs[1]);
    assert_eq!((close.closing, close.malformed), (0, 1));
    let kill = made(outputs[5]);
    assert_eq!((kill.code_given, kill.code, kill.exit_code), (1, -3, 253));
    let connected = made(outputs[11]);
    assert_eq!((connected.job, connected.other, connected.connected), (6, 3, 1));
    let abort = made(outputs[6]);
    assert_eq!((abort.rank, abort.cause, abort.exit, abort.exit_number, abort.exit_code), (7, 2, 1, 9, 137));
    assert_eq!(hydrant_exit_code(1, 9), 137);
}

fn await_client(port: *const HydrantPort) {
    // SAFETY: the port is open.
    let fd = unsafe { BorrowedFd::borrow_raw(hydrant_port_fd(port)) };
    let readable = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
    assert_eq!(readable.expect("the descriptor is open"), 1);
}

/// The variables lead to the port, which returns each client once.
#[test]
fn a_port_accepts_pmix_clients() {
    let mut port = ptr::null_mut();
    // SAFETY: a pointer to write to.
    assert_eq!(unsafe { hydrant_port_open(0, &mut port) }, 0);
    let mut text = [0; 1024];
    let variables = |text: &mut [u8]| {
        // SAFETY: an open port, a string, and the bytes of a slice.
        unsafe { hydrant_port_variables(port, c"job-1".as_ptr(), 7, text.as_mut_ptr().cast(), text.len()) }
    };
    let len = variables(&mut text);
    assert_eq!(variables(&mut text[..len as usize - 1]), Code::Argument as i32);
    let text = std::str::from_utf8(&text[..len as usize]).expect("names and values are texts");
    assert!(text.ends_with("\0PMIX_RANK=7\0\0") && text.starts_with("PMIX_NAMESPACE=job-1\0"), "{text}");
    let address = text.split('\0').find_map(|text| text.strip_prefix("PMIX_SERVER_URI41=hydrant.0;tcp4://"));
    let address = address.expect("libpmix 4 looks for this variable");
    let mut fd = 0;
    // A client of PMI is closed. Its first byte makes the port readable.
    let mut other = TcpStream::connect(address).expect("it listens");
    other.write_all(b"cmd=init").expect("the port is open");
    await_client(port);
    // SAFETY: an open port, and a number to write to, as below.
    assert_eq!((unsafe { hydrant_port_accept(port, &mut fd) }, fd), (0, -1));
    assert!(!matches!(other.read(&mut [0]), Ok(1..)));
    let mut client = TcpStream::connect(address).expect("it listens");
    client.write_all(&[FIRST_BYTE]).expect("the port is open");
    await_client(port);
    // SAFETY: as above.
    assert_eq!(unsafe { hydrant_port_accept(port, &mut fd) }, 1);
    // SAFETY: the call gives the socket away.
    let socket = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    assert_eq!(socket.peer_addr().expect("it is connected"), client.local_addr().expect("it is connected"));
    // SAFETY: as above.
    assert_eq!((unsafe { hydrant_port_accept(port, &mut fd) }, fd), (0, -1));
    let mut second = ptr::null_mut();
    let number = socket.local_addr().expect("it is connected").port();
    // SAFETY: a pointer to write to.
    assert_eq!(unsafe { hydrant_port_open(number, &mut second) }, Code::System as i32);
    assert!(second.is_null() && message().contains("cannot listen at 127.0.0.1"), "{}", message());
    // SAFETY: the port is open, and NULL is permitted.
    unsafe { (hydrant_port_close(port), hydrant_port_close(second)) };
}
