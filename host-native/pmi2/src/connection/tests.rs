//! Against a server that says what a test tells it to, in the pieces that the test wants.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use hydrant_core::wire::Op;

use super::*;
use crate::Code;

/// The server's end of a connection.
struct Server(UnixStream);

impl Server {
    fn line(&mut self) {
        let mut byte = [0];
        while byte != *b"\n" {
            self.0.read_exact(&mut byte).unwrap();
        }
        self.0.write_all(b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n").unwrap();
    }

    /// The next request without its length.
    fn hear(&mut self) -> String {
        let mut length = [0; 6];
        self.0.read_exact(&mut length).unwrap();
        let length: usize = str::from_utf8(&length).unwrap().trim().parse().unwrap();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }

    fn say(&mut self, body: &str) {
        // Length and body apart, as Slurm's server sends them.
        self.0.write_all(format!("{:<6}", body.len()).as_bytes()).unwrap();
        for byte in body.as_bytes().chunks(7) {
            self.0.write_all(byte).unwrap();
        }
    }
}

fn environment() -> Environment {
    let place = Place::Fd { fd: 0, rank: 1, size: 2 };
    Environment { place, jobid: Some("7.0".into()), spawned: false, offer: None }
}

/// A connection that is introduced to a server of hydra 5's words, and that server.
fn connected() -> (Arc<Connection>, Server) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        let mut server = Server(theirs);
        server.line();
        assert_eq!(server.hear(), "cmd=fullinit;pmijobid=7.0;pmirank=1;threaded=FALSE;");
        server.say("cmd=fullinit-response;rc=0;rank=1;size=2;appnum=0;pmiverbose=0;");
        assert_eq!(server.hear(), "cmd=job-getid;thrid=0;");
        server.say("cmd=job-getid-response;thrid=0;rc=0;jobid=7.0;");
        server
    });
    let (connection, identity) =
        Connection::introduce(Transport::Socket(ours.into()), &environment()).unwrap();
    assert_eq!((identity.rank, identity.size), (1, 2));
    connection.tell(&Command::GetJobId).unwrap();
    (Arc::new(connection), server.join().unwrap())
}

type Asking = JoinHandle<Result<Vec<u8>, Error>>;

/// A thread that waits for an attribute.
fn wait(connection: &Arc<Connection>, key: &'static str) -> Asking {
    let connection = Arc::clone(connection);
    thread::spawn(move || {
        let command = Command::GetNodeAttr { key: key.into(), wait: true };
        connection.ask(&command, |reply| match reply {
            Reply::Found(Op::GetNodeAttr, value) => value.as_plain().map(<[u8]>::to_vec),
            _ => None,
        })
    })
}

/// Hears the next request, which waits for an attribute: its key and thread.
fn heard(server: &mut Server) -> (String, String) {
    let request = server.hear();
    let rest = request.strip_prefix("cmd=info-getnodeattr;thrid=").unwrap();
    let (thrid, rest) = rest.split_once(";key=").unwrap();
    (rest.split_once(';').unwrap().0.to_owned(), thrid.to_owned())
}

#[test]
fn each_thread_gets_its_own_reply() {
    let (connection, mut server) = connected();
    let threads: Vec<(&str, Asking)> = ["a", "b", "c"].map(|key| (key, wait(&connection, key))).into();
    let mut asked: Vec<_> = (0..3).map(|_| heard(&mut server)).collect();
    // The fourth finds no room until somebody has a reply; a request that waits for nobody goes ahead.
    let fourth = wait(&connection, "d");
    let teller = Arc::clone(&connection);
    let put =
        thread::spawn(move || teller.tell(&Command::Put { kvs: None, key: "k".into(), value: "v".into() }));
    assert_eq!(server.hear(), "cmd=kvs-put;thrid=3;key=k;value=v;");
    let (key, thrid) = asked.pop().unwrap();
    server.say(&format!("cmd=info-getnodeattr-response;thrid={thrid};rc=0;found=TRUE;value=of-{key};"));
    let (last, thrid) = heard(&mut server);
    assert_eq!(last, "d");
    asked.push((last, thrid));
    server.say("cmd=kvs-put-response;thrid=3;rc=0;");
    for (key, thrid) in asked {
        server.say(&format!("cmd=info-getnodeattr-response;thrid={thrid};rc=0;found=TRUE;value=of-{key};"));
    }
    put.join().unwrap().unwrap();
    for (key, thread) in threads.into_iter().chain([("d", fourth)]) {
        assert_eq!(thread.join().unwrap().unwrap(), format!("of-{key}").as_bytes());
    }
}

#[test]
fn everybody_hears_of_the_end() {
    let (connection, mut server) = connected();
    let threads = ["a", "b", "c"].map(|key| wait(&connection, key));
    for _ in &threads {
        heard(&mut server);
    }
    drop(server);
    for thread in threads {
        let error = thread.join().unwrap().unwrap_err();
        assert_eq!(error.code(), Code::Fail, "{error}");
    }
    assert_eq!(connection.tell(&Command::Fence { group: None }).unwrap_err().code(), Code::Fail);
    assert_eq!(connection.finalize().unwrap_err().code(), Code::Fail);
}

#[test]
fn rubbish_ends_the_conversation() {
    for rubbish in
        [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"     9cmd=what;", b"    28cmd=kvs-fence-response;rc=0;"]
    {
        let (connection, mut server) = connected();
        let thread = wait(&connection, "a");
        heard(&mut server);
        server.0.write_all(rubbish).unwrap();
        let error = thread.join().unwrap().unwrap_err();
        assert_eq!(error.code(), Code::Fail, "{error}");
        assert_eq!(connection.tell(&Command::Fence { group: None }).unwrap_err().code(), Code::Fail);
    }
}

#[test]
fn refusals_have_their_code() {
    let (connection, mut server) = connected();
    for (words, code) in [
        ("rc=2;errmsg=limit keys (64) is used up;", Code::NoMem),
        ("rc=1;", Code::Fail),
        ("rc=-1;", Code::Fail),
    ] {
        let teller = Arc::clone(&connection);
        let put = thread::spawn(move || {
            teller.tell(&Command::Put { kvs: None, key: "k".into(), value: "v".into() })
        });
        server.hear();
        server.say(&format!("cmd=kvs-put-response;thrid=0;{words}"));
        assert_eq!(put.join().unwrap().unwrap_err().code(), code);
    }
}

#[test]
fn who_is_refused_does_not_join() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        let mut server = Server(theirs);
        server.line();
        server.hear();
        server.say("cmd=fullinit-response;rc=3;errmsg=no such rank, or it is connected already;");
    });
    let refused = Connection::introduce(Transport::Socket(ours.into()), &environment());
    let error = refused.err().unwrap();
    assert_eq!(error.code(), Code::InvalidArg);
    assert!(error.to_string().ends_with("no such rank, or it is connected already"), "{error}");
    server.join().unwrap();
}
