//! Tests that run the examples.

#[path = "../examples/smallest.rs"]
mod smallest;
#[path = "../examples/tcp.rs"]
#[allow(dead_code, reason = "the test calls `serve` with a listener of its own")]
mod tcp;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

#[test]
fn the_smallest_host_serves_its_job() {
    smallest::main().expect("the requests are in order");
}

/// A PMI-1 client that sends a line and returns the reply.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr, rank: u32) -> Client {
        let stream = TcpStream::connect(address).expect("the host listens");
        let mut client = Client(BufReader::new(stream));
        let reply = client.ask(&format!("cmd=initack pmiid={rank}"));
        assert!(reply.starts_with("cmd=initack"), "{reply}");
        for field in ["size=2", &format!("rank={rank}"), "debug=0"] {
            assert_eq!(client.line(), format!("cmd=set {field}"));
        }
        let reply = client.ask("cmd=init pmi_version=1 pmi_subversion=1");
        assert!(reply.starts_with("cmd=response_to_init "), "{reply}");
        client
    }

    fn ask(&mut self, request: &str) -> String {
        writeln!(self.0.get_mut(), "{request}").expect("the host reads");
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the host answers");
        line.trim_end().to_owned()
    }
}

#[test]
fn the_tcp_host_serves_two_clients() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    let ranks = [0, 1].map(|rank| {
        thread::spawn(move || {
            let mut client = Client::connect(address, rank);
            client.ask(&format!("cmd=put kvsname=job_0 key=rank-{rank} value={rank}"));
            assert!(client.ask("cmd=barrier_in").starts_with("cmd=barrier_out"));
            let other = 1 - rank;
            let reply = client.ask(&format!("cmd=get kvsname=job_0 key=rank-{other}"));
            assert!(reply.ends_with(&format!("value={other}")), "{reply}");
            assert!(client.ask("cmd=finalize").starts_with("cmd=finalize_ack"));
        })
    });
    tcp::serve(listener).expect("both ranks finalize");
    for rank in ranks {
        rank.join().expect("the client got its answers");
    }
}
