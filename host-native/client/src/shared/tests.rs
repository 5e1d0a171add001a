//! A scripted server whose replies arrive in small pieces.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use hydrant_wire::client::Start;
use hydrant_wire::{Op, Protocol};

use super::*;

/// The server's end of the connection.
struct Server(UnixStream);

impl Server {
    /// Answers the init line.
    fn init(&mut self) {
        let mut byte = [0];
        while byte != *b"\n" {
            self.0.read_exact(&mut byte).unwrap();
        }
        self.0.write_all(b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n").unwrap();
    }

    /// Receives the next request, without its length.
    fn receive(&mut self) -> String {
        let mut length = [0; 6];
        self.0.read_exact(&mut length).unwrap();
        let length: usize = str::from_utf8(&length).unwrap().trim().parse().unwrap();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }

    fn reply(&mut self, body: &str) {
        // Length and body separately, as Slurm's server sends them.
        self.0.write_all(format!("{:<6}", body.len()).as_bytes()).unwrap();
        for byte in body.as_bytes().chunks(7) {
            self.0.write_all(byte).unwrap();
        }
    }
}

fn open(stream: UnixStream) -> Result<SharedConnection, Error> {
    let start = Start::Fd { rank: 1, size: 2 };
    Connection::open(stream.into(), Protocol::V2, start, Some("7.0")).and_then(SharedConnection::new)
}

/// A connection after its handshake with a server that replies as hydra 5 does, and that server.
fn connected() -> (Arc<SharedConnection>, Server) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        let mut server = Server(theirs);
        server.init();
        assert_eq!(server.receive(), "cmd=fullinit;pmijobid=7.0;pmirank=1;threaded=FALSE;");
        server.reply("cmd=fullinit-response;rc=0;rank=1;size=2;appnum=0;pmiverbose=0;");
        assert_eq!(server.receive(), "cmd=job-getid;thrid=0;");
        server.reply("cmd=job-getid-response;thrid=0;rc=0;jobid=7.0;");
        server
    });
    let connection = open(ours).unwrap();
    assert_eq!((connection.identity().rank, connection.identity().size), (1, 2));
    connection.execute(&Command::GetJobId).unwrap();
    (Arc::new(connection), server.join().unwrap())
}

type Waiting = JoinHandle<Result<Vec<u8>, Error>>;

/// Starts a thread that waits for an attribute.
fn wait(connection: &Arc<SharedConnection>, key: &'static str) -> Waiting {
    let connection = Arc::clone(connection);
    thread::spawn(move || {
        let command = Command::GetNodeAttr { key: key.into(), wait: true };
        connection.request(&command, |reply| match reply {
            Reply::Found(Op::GetNodeAttr, value) => value.as_plain().map(<[u8]>::to_vec),
            _ => None,
        })
    })
}

/// Receives the next request, which waits for an attribute. Returns its key and thread id.
fn attribute_request(server: &mut Server) -> (String, String) {
    let request = server.receive();
    let rest = request.strip_prefix("cmd=info-getnodeattr;thrid=").unwrap();
    let (thrid, rest) = rest.split_once(";key=").unwrap();
    (rest.split_once(';').unwrap().0.to_owned(), thrid.to_owned())
}

#[test]
fn each_thread_gets_its_own_reply() {
    let (connection, mut server) = connected();
    let threads: Vec<(&str, Waiting)> = ["a", "b", "c"].map(|key| (key, wait(&connection, key))).into();
    let mut requests: Vec<_> = (0..3).map(|_| attribute_request(&mut server)).collect();
    // The fourth waits until a reply has arrived. A request that does not wait for other processes is sent before it.
    let fourth = wait(&connection, "d");
    let sender = Arc::clone(&connection);
    let put = thread::spawn(move || {
        sender.execute(&Command::Put { kvs: None, key: "k".into(), value: "v".into() })
    });
    assert_eq!(server.receive(), "cmd=kvs-put;thrid=3;key=k;value=v;");
    let (key, thrid) = requests.pop().unwrap();
    server.reply(&format!("cmd=info-getnodeattr-response;thrid={thrid};rc=0;found=TRUE;value=of-{key};"));
    let (last, thrid) = attribute_request(&mut server);
    assert_eq!(last, "d");
    requests.push((last, thrid));
    server.reply("cmd=kvs-put-response;thrid=3;rc=0;");
    for (key, thrid) in requests {
        server.reply(&format!("cmd=info-getnodeattr-response;thrid={thrid};rc=0;found=TRUE;value=of-{key};"));
    }
    put.join().unwrap().unwrap();
    for (key, thread) in threads.into_iter().chain([("d", fourth)]) {
        assert_eq!(thread.join().unwrap().unwrap(), format!("of-{key}").as_bytes());
    }
}

#[test]
fn every_thread_gets_the_end_of_the_connection() {
    let (connection, mut server) = connected();
    let threads = ["a", "b", "c"].map(|key| wait(&connection, key));
    for _ in &threads {
        attribute_request(&mut server);
    }
    drop(server);
    for thread in threads {
        let error = thread.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Closed), "{error}");
    }
    let error = connection.execute(&Command::Fence { group: None }).unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    assert!(matches!(connection.finalize().unwrap_err(), Error::Closed));
}

#[test]
fn invalid_bytes_end_the_connection() {
    for invalid in
        [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"     9cmd=what;", b"    28cmd=kvs-fence-response;rc=0;"]
    {
        let (connection, mut server) = connected();
        let thread = wait(&connection, "a");
        attribute_request(&mut server);
        server.0.write_all(invalid).unwrap();
        let error = thread.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{error}");
        let error = connection.execute(&Command::Fence { group: None }).unwrap_err();
        assert!(matches!(error, Error::Closed), "{error}");
    }
}

#[test]
fn refusals_contain_the_servers_rc() {
    let (connection, mut server) = connected();
    for (words, wanted) in [("rc=2;errmsg=limit keys (64) is used up;", 2), ("rc=1;", 1), ("rc=-1;", -1)] {
        let sender = Arc::clone(&connection);
        let put = thread::spawn(move || {
            sender.execute(&Command::Put { kvs: None, key: "k".into(), value: "v".into() })
        });
        server.receive();
        server.reply(&format!("cmd=kvs-put-response;thrid=0;{words}"));
        let error = put.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Refused { rc, .. } if rc == wanted), "{error}");
    }
}

#[test]
fn a_refused_handshake_is_an_error() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        let mut server = Server(theirs);
        server.init();
        server.receive();
        server.reply("cmd=fullinit-response;rc=3;errmsg=no such rank, or it is connected already;");
    });
    let error = open(ours).err().unwrap();
    assert!(matches!(error, Error::Refused { rc: 3, .. }), "{error}");
    assert!(error.to_string().ends_with("no such rank, or it is connected already"), "{error}");
    server.join().unwrap();
}
