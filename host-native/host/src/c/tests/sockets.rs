//! Connections that are sockets of the library.

use std::ffi::{CString, c_char};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use hydrant_core::wire::Integers;
use hydrant_core::wire::pmix::{FIRST_BYTE, Writer, write_header};

use super::*;
use crate::c::types::{DISCONNECTED, NO_HANDSHAKE, NONE};

const ABORT: &[u8] = b"cmd=abort exitcode=7\n";

/// Returns the handshake of a rank, as libpmix 5 sends it.
fn hello(rank: u32) -> Vec<u8> {
    let name = &b"native\0\0\0\0\x08\0\0\0\0\0\0\0\0\0job-1\0"[..];
    let body = [name, &rank.to_be_bytes(), b"5.0.11\0v41\0\x01hash\0"].concat();
    [&[FIRST_BYTE; 8], &(body.len() as u32).to_le_bytes()[..], &[0; 4], &body].concat()
}

/// Returns the request of a PMIx client to abort its job with code 7.
fn pmix_abort() -> Vec<u8> {
    let mut body = vec![0; 64];
    let mut writer = Writer::new(Integers::Flexible, &mut body);
    writer.single();
    // PMIX_ABORT_CMD
    writer.byte(1);
    writer.single();
    writer.int32(7);
    writer.single();
    writer.string(b"");
    writer.array(0);
    let len = writer.finish().expect("it is short");
    [&write_header(1, len as u32)[..], &body[..len]].concat()
}

/// A rank's end of its connection, and its variables.
struct Forked {
    socket: UnixStream,
    variables: Vec<String>,
}

/// An array that ends in NULL.
fn array(inherited: &[&CStr]) -> Vec<*const c_char> {
    inherited.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// The variables of an environment that a call has written.
fn texts(mut env: *mut *mut c_char) -> Vec<String> {
    let mut variables = Vec::new();
    // SAFETY: an array that ends in NULL.
    while let Some(text) = unsafe { (*env).as_ref() } {
        // SAFETY: it consists of strings.
        variables.push(unsafe { CStr::from_ptr(text) }.to_str().expect("they are texts").to_owned());
        // SAFETY: there is an element behind one that is not NULL.
        env = unsafe { env.add(1) };
    }
    variables
}

/// Result of the call for a rank of job 0, with these variables of the host.
fn setup_fork(host: &Open, rank: u32, inherited: &[&CStr]) -> Result<Forked, i32> {
    let pointers = array(inherited);
    let (mut fd, mut env) = (0, ptr::null_mut());
    // SAFETY: an open host, an array that ends in NULL, and pointers to write to.
    let code = unsafe { hydrant_host_setup_fork(host.0, 0, rank, pointers.as_ptr(), &mut fd, &mut env) };
    if code != 0 {
        assert!(fd == -1 && env.is_null());
        return Err(code);
    }
    let variables = texts(env);
    // SAFETY: the call gives the socket away.
    let socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    socket.set_nonblocking(true).expect("it is a socket");
    Ok(Forked { socket, variables })
}

fn forked(host: &Open, rank: u32) -> UnixStream {
    setup_fork(host, rank, &[]).unwrap_or_else(|code| panic!("{code}: {}", message())).socket
}

fn exited(host: &Open, rank: u32, code: u32) -> i32 {
    // SAFETY: an open host.
    unsafe { hydrant_host_exited(host.0, 0, rank, 0, code) }
}

fn listen(host: &Open) -> i32 {
    // SAFETY: an open host.
    unsafe { hydrant_host_listen(host.0, 0, 0) }
}

/// Waits, and returns the outputs.
fn turn(host: &Open) -> Vec<HostOutput> {
    assert!(is_readable(host, PATIENCE));
    std::iter::from_fn(|| next(host)).map(|(output, _)| output).collect()
}

/// What there is to read.
fn read(mut socket: impl Read) -> String {
    let mut text = Vec::new();
    if let Err(error) = socket.read_to_end(&mut text) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    String::from_utf8(text).expect("replies are texts")
}

#[test]
fn a_rank_finds_its_server() {
    let host = registered(1);
    let inherited =
        [c"HOME=/root", c"PMI_RANK=7", c"PMIX_RANK=7", c"PMI_DEBUG=1", c"MPIR_CVAR_PMI_VERSION=2"];
    let Forked { mut socket, variables } = setup_fork(&host, 0, &inherited).expect("there is such a rank");
    let number = variables.iter().find_map(|text| text.strip_prefix("PMI_FD="));
    let fd = number.expect("PMI clients look for this variable").to_owned();
    let own = [format!("PMI_FD={fd}"), "PMI_RANK=0".to_owned(), "PMI_SIZE=1".to_owned()];
    let kept = ["HOME=/root", "PMI_DEBUG=1", "MPIR_CVAR_PMI_VERSION=2"].map(str::to_owned);
    assert_eq!(variables, [&kept[..], &own].concat());
    let flags = rustix::io::fcntl_getfd(&socket).expect("it is open");
    assert_eq!(flags, rustix::io::FdFlags::CLOEXEC);
    assert!(turn(&host).is_empty() && !is_readable(&host, AT_ONCE));
    socket.write_all(INIT).expect("it is empty");
    let outputs = turn(&host);
    assert_eq!(outputs.iter().map(|output| (output.kind, output.rank)).collect::<Vec<_>>(), [(2, 0)]);
    assert!(read(&socket).starts_with("cmd=response_to_init rc=0 ") && !is_readable(&host, AT_ONCE));
}

/// A socket takes a part of the replies, and the rest follows when it has been read.
#[test]
fn a_client_that_reads_late_gets_all_replies() {
    const REQUEST: &[u8] = b"cmd=get_maxes\n";
    let host = registered(1);
    let mut client = forked(&host, 0);
    client.write_all(INIT).expect("it is empty");
    let requests = REQUEST.repeat(1000);
    let (mut sent, mut full) = (0, 0);
    while full < 2 {
        match client.write(&requests[sent % requests.len()..]) {
            Ok(len) => (sent, full) = (sent + len, 0),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                full += 1;
            }
        }
        while next(&host).is_some() {}
    }
    // Neither side takes more, and the server does not spin.
    assert!(!is_readable(&host, AT_ONCE));
    let total = sent.next_multiple_of(REQUEST.len());
    let mut replies = String::new();
    while replies.lines().count() < 1 + total / REQUEST.len() {
        replies.push_str(&read(&client));
        let rest = &REQUEST[REQUEST.len() - (total - sent)..];
        sent += client.write(rest).unwrap_or(0);
        while next(&host).is_some() {}
    }
    assert!(replies.lines().skip(1).all(|line| line.starts_with("cmd=maxes ")));
    assert!(!is_readable(&host, AT_ONCE));
}

#[test]
fn a_client_that_closes_its_end_is_lost() {
    let host = registered(2);
    let [mut waiting, mut closing] = [0, 1].map(|rank| forked(&host, rank));
    for client in [&mut waiting, &mut closing] {
        client.write_all(INIT).expect("it is empty");
    }
    waiting.write_all(b"cmd=barrier_in\n").expect("there is room");
    while turn(&host).len() < 2 {}
    drop(closing);
    let mut outputs = Vec::new();
    while outputs.is_empty() {
        outputs = turn(&host);
    }
    let [abort] = outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((abort.kind, abort.cause, abort.rank, abort.exit), (6, 3, 1, 2));
}

/// The rank has joined and aborted, and its exit without finalize is no reason.
fn assert_is_aborted(outputs: &[HostOutput]) {
    let aborts: Vec<_> = outputs.iter().filter(|output| output.kind != 2).collect();
    let [abort] = aborts[..] else { panic!("{outputs:?}") };
    assert_eq!((abort.kind, abort.cause, abort.code, outputs.len()), (6, 0, 7, 2));
}

/// They come before the exit, also those that wait for replies.
#[test]
fn the_last_requests_of_a_rank_count() {
    let host = registered(1);
    let mut client = forked(&host, 0);
    let requests = [INIT, &b"cmd=get_maxes\n".repeat(100), ABORT].concat();
    client.write_all(&requests).expect("there is room");
    assert_eq!(exited(&host, 0, 3), 0);
    assert_is_aborted(&turn(&host));
    assert_eq!(exited(&host, 0, 3), Code::Fault as i32);
    // Fault::RankTaken
    assert_eq!(hydrant_host_fault(), 5);
    assert!(next(&host).is_none());
}

fn port_of(variables: &[String]) -> String {
    let address = variables.iter().find_map(|text| text.strip_prefix("PMIX_SERVER_URI41=hydrant.0;tcp4://"));
    address.expect("libpmix 4 looks for this variable").to_owned()
}

#[test]
fn a_job_accepts_clients_until_it_is_over() {
    let host = registered(2);
    assert_eq!(listen(&host), 0);
    let variables = setup_fork(&host, 0, &[]).expect("there is such a rank").variables;
    for own in ["PMIX_NAMESPACE=job-1", "PMIX_RANK=0", "MPIR_CVAR_PMI_VERSION=1"] {
        assert!(variables.iter().any(|text| text == own), "{variables:?}");
    }
    let address = port_of(&variables);
    let connect = || TcpStream::connect(&address);
    let mut client = connect().expect("it listens");
    client.write_all(&hello(1)).expect("it is empty");
    let mut outputs = Vec::new();
    while outputs.is_empty() {
        outputs = turn(&host);
    }
    assert_eq!((outputs[0].kind, outputs[0].rank), (2, 1));
    // Also one that speaks PMI-1.
    for text in [&b"GET / HTTP/1.1\r\n"[..], b"cmd=initack pmiid=0\n"] {
        let mut stranger = connect().expect("it listens");
        stranger.write_all(text).expect("it is empty");
        outputs.clear();
        while outputs.is_empty() {
            outputs = turn(&host);
        }
        let [closed] = outputs[..] else { panic!("{outputs:?}") };
        assert_eq!((closed.kind, closed.rank, closed.closing, closed.malformed), (DISCONNECTED, NONE, 0, 3));
    }
    // SAFETY: an open host.
    assert_eq!(unsafe { hydrant_host_deregister_job(host.0, 0) }, 0);
    assert!(turn(&host).is_empty());
    let mut reply = Vec::new();
    client.read_to_end(&mut reply).expect("the end follows");
    assert!(!reply.is_empty());
    assert_eq!(connect().map(drop).map_err(|error| error.kind()), Err(ErrorKind::ConnectionRefused));
}

/// It has no connection to inherit.
#[test]
fn a_rank_elsewhere_has_the_variables_of_the_port() {
    let host = registered(2);
    let setup = |rank, inherited: &[&CStr]| {
        let (pointers, mut env) = (array(inherited), ptr::null_mut());
        // SAFETY: an open host, an array that ends in NULL, and a pointer to write to.
        let code = unsafe { hydrant_host_setup_env(host.0, 0, rank, pointers.as_ptr(), &mut env) };
        if code == 0 { Ok(texts(env)) } else { Err((code, env.is_null())) }
    };
    assert_eq!(setup(0, &[]), Err((Code::Argument as i32, true)), "there is no port");
    assert_eq!(listen(&host), 0);
    assert_eq!(setup(2, &[]), Err((Code::Fault as i32, true)));
    let variables = setup(1, &[c"HOME=/", c"PMI_FD=9", c"OMPI_COMM_WORLD_RANK=0"]).expect("there is one");
    assert_eq!(variables[0], "HOME=/");
    assert!(variables.contains(&"PMIX_RANK=1".to_owned()), "{variables:?}");
    assert!(!variables.iter().any(|text| text.starts_with("PMI_FD=") || text.starts_with("OMPI_")));
    let mut client = TcpStream::connect(port_of(&variables)).expect("it listens");
    client.write_all(&hello(1)).expect("it is empty");
    while !turn(&host).iter().any(|output| (output.kind, output.rank) == (2, 1)) {}
}

/// A client that has connected, asked and ended at once has been heard.
#[test]
fn the_last_requests_of_a_client_that_has_not_been_accepted_count() {
    let host = registered(1);
    assert_eq!(listen(&host), 0);
    let address = port_of(&setup_fork(&host, 0, &[]).expect("there is such a rank").variables);
    let mut client = TcpStream::connect(address).expect("it listens");
    client.write_all(&[hello(0), pmix_abort()].concat()).expect("it is empty");
    assert_eq!(exited(&host, 0, 3), 0);
    assert_is_aborted(&turn(&host));
}

/// Clients without a handshake take the place of each other, and none of a rank's.
#[test]
fn strangers_have_a_limit() {
    let host = registered(2);
    assert_eq!(listen(&host), 0);
    let mut ranks = [0, 1].map(|rank| setup_fork(&host, rank, &[]).expect("there is such a rank"));
    let address = port_of(&ranks[0].variables);
    let strangers: Vec<TcpStream> =
        (0..40).map(|_| TcpStream::connect(&address).expect("it listens")).collect();
    let mut outputs = Vec::new();
    while outputs.len() < strangers.len() - 2 {
        outputs.extend(turn(&host));
    }
    let all = outputs.iter().all(|output| (output.kind, output.closing) == (DISCONNECTED, NO_HANDSHAKE));
    assert!(all, "{outputs:?}");
    for rank in &mut ranks {
        rank.socket.write_all(INIT).expect("it is empty");
    }
    while turn(&host).len() < 2 {}
}

/// Bytes of one rank are the host's to carry, those of the other are not.
#[test]
fn both_kinds_of_connections_belong_to_one_job() {
    let host = registered(2);
    let mut client = forked(&host, 0);
    // Two ranks have four connections.
    // SAFETY: an open host.
    assert_eq!(unsafe { hydrant_host_opened(host.0, 3, 0, 1) }, 0);
    client.write_all(&[INIT, b"cmd=barrier_in\n"].concat()).expect("it is empty");
    assert_eq!(send(&host, 3, &[INIT, b"cmd=barrier_in\n"].concat()), 0);
    let mut replies = String::new();
    while let Some((output, bytes)) = next(&host) {
        assert!(output.kind == 2 || output.conn == 3, "{output:?}");
        replies.push_str(std::str::from_utf8(&bytes).expect("replies are texts"));
    }
    for replies in [replies, read(&client)] {
        assert!(replies.ends_with("cmd=barrier_out rc=0\n"), "{replies}");
    }
}

#[test]
fn sockets_of_the_library_are_not_the_hosts() {
    let host = registered(2);
    let mut client = forked(&host, 0);
    // SAFETY: an open host.
    let codes = unsafe {
        [
            hydrant_host_bytes(host.0, 0, INIT.as_ptr().cast(), INIT.len()),
            hydrant_host_blocked(host.0, 0),
            hydrant_host_writable(host.0, 0),
            hydrant_host_verified(host.0, 0),
            hydrant_host_closed(host.0, 0),
        ]
    };
    assert_eq!((codes, room(&host, 0)), ([Code::Argument as i32; 5], 0));
    assert_eq!(
        message(),
        "connection 0 is a socket of the library, which reads, writes and closes it: `closed` is for connections whose \
         bytes the host carries (`opened`)"
    );
    // SAFETY: an open host.
    assert_eq!(unsafe { hydrant_host_opened(host.0, 0, 0, 1) }, Code::Fault as i32);
    // Fault::ConnInUse
    assert_eq!(hydrant_host_fault(), 1);
    // Fault::RankTaken, Fault::NoSuchRank
    for (rank, fault) in [(0, 5), (2, 4)] {
        assert_eq!(setup_fork(&host, rank, &[]).err(), Some(Code::Fault as i32));
        assert_eq!(hydrant_host_fault(), fault);
    }
    assert_eq!((listen(&host), listen(&host)), (0, Code::Argument as i32));
    assert_eq!(message(), "job 0 has a port already");
    let (mut fd, mut env) = (0, ptr::null_mut());
    // SAFETY: an open host, and pointers to write to or NULL.
    unsafe {
        // Fault::NoSuchJob
        let code = hydrant_host_setup_fork(host.0, 1, 0, ptr::null(), &mut fd, &mut env);
        assert_eq!((code, hydrant_host_fault()), (Code::Fault as i32, 2));
        assert_eq!(hydrant_host_listen(host.0, 1, 0), Code::Fault as i32);
        let code = hydrant_host_setup_fork(host.0, 0, 1, ptr::null(), ptr::null_mut(), &mut env);
        assert_eq!(code, Code::Argument as i32);
    }
    // None of them has changed anything.
    client.write_all(INIT).expect("it is empty");
    while turn(&host).is_empty() {}
    drop(forked(&host, 1));
}

#[test]
fn a_job_without_a_name_gets_a_random_one() {
    let host = open(&settings(1)).expect("there is memory for it");
    let mut job = MaybeUninit::uninit();
    // SAFETY: a structure to write to, an open host, and the job that the call has written.
    unsafe {
        assert_eq!(hydrant_job_init(job.as_mut_ptr(), 0, ptr::null(), 1), 0);
        assert_eq!(hydrant_host_register_job(host.0, job.as_ptr()), 0);
    }
    assert_eq!(listen(&host), 0);
    let variables = setup_fork(&host, 0, &[]).expect("there is such a rank").variables;
    let name = variables.iter().find_map(|text| text.strip_prefix("PMIX_NAMESPACE="));
    let name = CString::new(name.expect("libpmix looks for this variable")).expect("it was a string");
    let (prefix, secret) = (format!("job-{}-", std::process::id()), name.to_str().expect("it was a text"));
    assert_eq!(secret.strip_prefix(&prefix).map(str::len), Some(16), "{secret}");
}
