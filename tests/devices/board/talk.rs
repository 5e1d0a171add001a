//! A PMI client inside the test: quick to start, and able to do what no library does.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use hydrant_tests::PATIENCE;

/// A connection to the board.
pub(crate) struct Talk {
    stream: TcpStream,
}

impl Talk {
    pub(crate) fn connect(addr: SocketAddr) -> Talk {
        let stream = TcpStream::connect(addr).expect("the port is forwarded");
        stream.set_read_timeout(Some(PATIENCE / 4)).expect("the time is not 0");
        stream.set_nodelay(true).expect("TCP has the option");
        Talk { stream }
    }

    /// Joins as a rank, in PMI-1.
    pub(crate) fn rank(addr: SocketAddr, rank: u32) -> Talk {
        let mut talk = Talk::connect(addr);
        talk.say(format!("cmd=initack pmiid={rank}\n").as_bytes());
        for wanted in ["cmd=initack rc=0", "cmd=set size=", "cmd=set rank=", "cmd=set debug="] {
            let line = talk.line();
            assert!(line.starts_with(wanted), "{line} is not {wanted}");
        }
        talk.ask("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init rc=0");
        talk
    }

    /// Joins as a rank, in PMI-2.
    pub(crate) fn rank2(addr: SocketAddr, rank: u32) -> Talk {
        let mut talk = Talk::connect(addr);
        talk.ask("cmd=init pmi_version=2 pmi_subversion=0", "cmd=response_to_init rc=0");
        talk.ask2(&format!("cmd=fullinit;pmirank={rank};"), "cmd=fullinit-response;rc=0;");
        talk
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the board reads");
    }

    /// The next line; empty where the board has closed the connection.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while matches!(self.stream.read(&mut byte), Ok(1)) && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).into_owned()
    }

    /// The next PMI-2 message; empty where the board has closed the connection.
    pub(crate) fn frame(&mut self) -> String {
        let mut length = [0; 6];
        if self.stream.read_exact(&mut length).is_err() {
            return String::new();
        }
        let length = std::str::from_utf8(&length).expect("digits").trim().parse().expect("a length");
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("the whole message");
        String::from_utf8_lossy(&body).into_owned()
    }

    /// Says a line and wants one that begins so.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str, wanted: &str) -> String {
        self.say(format!("{line}\n").as_bytes());
        let reply = self.line();
        assert!(reply.starts_with(wanted), "{line}: {reply} is not {wanted}");
        reply
    }

    pub(crate) fn say2(&mut self, body: &str) {
        self.say(format!("{:<6}{body}", body.len()).as_bytes());
    }

    /// Says a message of PMI-2 and wants one that begins so.
    #[track_caller]
    pub(crate) fn ask2(&mut self, body: &str, wanted: &str) -> String {
        self.say2(body);
        let reply = self.frame();
        assert!(reply.starts_with(wanted), "{body}: {reply} is not {wanted}");
        reply
    }

    /// Finalizes and leaves, in PMI-1.
    pub(crate) fn leave(mut self) {
        self.ask("cmd=finalize", "cmd=finalize_ack rc=0");
    }

    /// Whether the board closes the connection, after any reply.
    pub(crate) fn closed(mut self) -> bool {
        let mut rest = Vec::new();
        // A reset is as good an end as any; running out of time is none.
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    pub(crate) fn shutdown(&self) {
        self.stream.shutdown(Shutdown::Write).expect("the connection is open");
    }
}
