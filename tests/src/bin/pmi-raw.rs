//! A PMI client that says exactly what its arguments tell it, for what no library would say.
//!
//! The arguments are steps, done in order:
//!
//! | step | does |
//! |---|---|
//! | `only R,S…` / `all` | the following steps are for these ranks (by `PMI_RANK`) / for every rank |
//! | `send TEXT` | writes TEXT to the server; `\n`, `\0`, `\r`, `\\` are undone, `%r` is the rank, `%s` `PMI_SIZE`, `%j` `PMI_JOBID`, `%p` `PMI_PORT` |
//! | `frame TEXT` | the same as a PMI-2 message, its length in front |
//! | `expect TEXT` | reads one message; it must hold each of TEXT's fields (by blanks in PMI-1, `;` in PMI-2) |
//! | `refused TEXT` | reads one message; its `rc` must not be 0 and its `msg` or `errmsg` must hold TEXT |
//! | `ack1` | says by `initack` which rank it is, as PMI-1 over a port begins, replies included |
//! | `init1` / `init2` | the handshake of PMI-1 / PMI-2 as every library sends it, replies included |
//! | `fence1` / `fence2` | a whole fence |
//! | `fences1 N` / `fences2 N` | as many |
//! | `end1` / `end2` | finalize, with its reply |
//! | `hangup` | closes the connection |
//! | `eof` | the server must have closed the connection |
//! | `say TEXT` | a line on standard output |
//! | `cat` | copies standard input to standard output |
//! | `count` | says how many bytes standard input holds |
//! | `forever` | does nothing until a signal comes |
//! | `exit N` / `kill N` | exits with code N / kills itself with signal N |

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::process::exit;

use rustix::process::{Signal, getpid, kill_process};

/// The connection to the server.
enum Server {
    Inherited(File),
    Port(TcpStream),
    None,
}

impl Server {
    /// `PMI_FD`, else `PMI_PORT`, else none.
    fn connect() -> Server {
        if let Some(fd) = variable("PMI_FD").and_then(|fd| fd.parse::<RawFd>().ok()) {
            // SAFETY: the launcher left this descriptor open for this process, and nothing else here uses it.
            return Server::Inherited(unsafe { OwnedFd::from_raw_fd(fd) }.into());
        }
        match variable("PMI_PORT") {
            Some(port) => {
                Server::Port(TcpStream::connect(&port).unwrap_or_else(|e| fail(&format!("{port}: {e}"))))
            }
            None => Server::None,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let done = match self {
            Server::Inherited(file) => file.write_all(bytes),
            Server::Port(stream) => stream.write_all(bytes),
            Server::None => fail("no server: neither PMI_FD nor PMI_PORT is set"),
        };
        done.unwrap_or_else(|e| fail(&format!("writing: {e}")));
    }

    /// Fills the buffer; whether there was that much.
    fn read(&mut self, buf: &mut [u8]) -> bool {
        let done = match self {
            Server::Inherited(file) => file.read_exact(buf),
            Server::Port(stream) => stream.read_exact(buf),
            Server::None => fail("no server: neither PMI_FD nor PMI_PORT is set"),
        };
        // A server that closes with bytes of ours unread resets the connection.
        match done {
            Ok(()) => true,
            Err(e) if matches!(e.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                false
            }
            Err(e) => fail(&format!("reading: {e}")),
        }
    }

    /// One message, without its length or its line end.
    fn message(&mut self) -> Option<String> {
        let mut first = [0; 6];
        if !self.read(&mut first[..1]) {
            return None;
        }
        let mut message = Vec::new();
        if first[0] == b'c' {
            message.push(first[0]);
            let mut byte = [0];
            while self.read(&mut byte) && byte[0] != b'\n' {
                message.push(byte[0]);
            }
        } else {
            let whole = self.read(&mut first[1..]);
            let length = std::str::from_utf8(&first).ok().and_then(|text| text.trim().parse().ok());
            message.resize(length.unwrap_or_else(|| fail(&format!("no length: {first:?} ({whole})"))), 0);
            if !self.read(&mut message) {
                fail("half a message");
            }
        }
        Some(String::from_utf8_lossy(&message).into_owned())
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

fn rank() -> String {
    variable("PMI_RANK").or_else(|| variable("PMI_ID")).unwrap_or_else(|| "-".to_owned())
}

fn fail(what: &str) -> ! {
    eprintln!("pmi-raw rank {}: {what}", rank());
    exit(97)
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\' || c == '%') {
            (_, true) => match (c, chars.next()) {
                ('\\', Some('n')) => out.push(b'\n'),
                ('\\', Some('r')) => out.push(b'\r'),
                ('\\', Some('0')) => out.push(0),
                ('%', Some('r')) => out.extend(rank().bytes()),
                ('%', Some('s')) => out.extend(variable("PMI_SIZE").unwrap_or_default().bytes()),
                ('%', Some('j')) => out.extend(variable("PMI_JOBID").unwrap_or_default().bytes()),
                ('%', Some('p')) => out.extend(variable("PMI_PORT").unwrap_or_default().bytes()),
                (_, other) => out.extend(other.map(String::from).unwrap_or_default().bytes()),
            },
            (c, false) => out.extend(String::from(c).bytes()),
        }
    }
    out
}

fn separator(message: &str) -> char {
    if message.contains(';') { ';' } else { ' ' }
}

/// One message, which must hold all the fields.
fn expect(server: &mut Server, wanted: &str) -> String {
    let wanted = String::from_utf8_lossy(&unescape(wanted)).into_owned();
    let Some(message) = server.message() else { fail(&format!("closed instead of {wanted:?}")) };
    let separator = separator(&message);
    for field in wanted.split(separator).filter(|field| !field.is_empty()) {
        if !message.split(separator).any(|other| other == field) {
            fail(&format!("no {field:?} in {message:?}"));
        }
    }
    message
}

fn refused(server: &mut Server, why: &str) {
    let Some(message) = server.message() else { fail("closed instead of a refusal") };
    let accepted = message.split(separator(&message)).any(|field| field == "rc=0");
    let text = message.split_once("msg=").map_or("", |(_, text)| text);
    // PMI-1 has no blanks in values.
    if accepted || !text.replace('_', " ").contains(why) {
        fail(&format!("no refusal with {why:?}: {message:?}"));
    }
}

/// The steps that stand for several, in the words of the others.
fn whole(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "ack1" => &[
            ("send", r"cmd=initack pmiid=%r\n"),
            ("expect", "cmd=initack rc=0 rank=%r"),
            ("expect", "cmd=set size=%s"),
            ("expect", "cmd=set rank=%r"),
            ("expect", "cmd=set debug=0"),
        ],
        "init1" => &[
            ("send", r"cmd=init pmi_version=1 pmi_subversion=1\n"),
            ("expect", "cmd=response_to_init rc=0 pmi_version=1"),
        ],
        "init2" => &[
            ("send", r"cmd=init pmi_version=2 pmi_subversion=0\n"),
            ("expect", "cmd=response_to_init rc=0 pmi_version=2"),
            ("frame", "cmd=fullinit;pmirank=%r;"),
            ("expect", "cmd=fullinit-response;rc=0;rank=%r;"),
        ],
        "fence1" => &[("send", r"cmd=barrier_in\n"), ("expect", "cmd=barrier_out rc=0")],
        "fence2" => &[("frame", "cmd=kvs-fence;"), ("expect", "cmd=kvs-fence-response;rc=0;")],
        "end1" => &[("send", r"cmd=finalize\n"), ("expect", "cmd=finalize_ack rc=0")],
        "end2" => &[("frame", "cmd=finalize;"), ("expect", "cmd=finalize-response;rc=0;")],
        _ => &[],
    }
}

fn say(text: &str) {
    // One write, so that lines of ranks that share a pipe stay whole.
    let line = format!("{text}\n");
    io::stdout().write_all(line.as_bytes()).unwrap_or_else(|e| fail(&format!("standard output: {e}")));
}

/// Does a step that takes a text.
fn act(server: &mut Server, step: &str, text: &str) {
    match step {
        "send" => server.write(&unescape(text)),
        "frame" => {
            let body = unescape(text);
            server.write(format!("{:<6}", body.len()).as_bytes());
            server.write(&body);
        }
        "expect" => drop(expect(server, text)),
        "refused" => refused(server, text),
        "say" => say(&String::from_utf8_lossy(&unescape(text))),
        "fences1" | "fences2" => {
            let times = text.parse().unwrap_or_else(|_| fail(&format!("{step} takes a number")));
            let fence = if step == "fences1" { "fence1" } else { "fence2" };
            for (step, text) in (0..times).flat_map(|_: u32| whole(fence)) {
                act(server, step, text);
            }
        }
        "exit" => exit(text.parse().unwrap_or_else(|_| fail("exit takes a number"))),
        "kill" => {
            let signal = text.parse().ok().and_then(Signal::from_named_raw);
            let signal = signal.unwrap_or_else(|| fail("kill takes a signal's number"));
            kill_process(getpid(), signal).unwrap_or_else(|e| fail(&format!("kill: {e}")));
        }
        _ => fail(&format!("no such step: {step}")),
    }
}

/// Does a step that takes nothing; whether there is such a step.
fn act_alone(server: &mut Server, step: &str) -> bool {
    match step {
        "hangup" => *server = Server::None,
        "eof" => {
            if let Some(message) = server.message() {
                fail(&format!("not closed, but {message:?}"));
            }
        }
        "cat" => {
            io::copy(&mut io::stdin(), &mut io::stdout()).unwrap_or_else(|e| fail(&format!("cat: {e}")));
        }
        "count" => {
            let bytes =
                io::copy(&mut io::stdin(), &mut io::sink()).unwrap_or_else(|e| fail(&format!("count: {e}")));
            say(&format!("{bytes} bytes"));
        }
        "forever" => loop {
            std::thread::park();
        },
        _ => {
            let steps = whole(step);
            for (step, text) in steps {
                act(server, step, text);
            }
            return !steps.is_empty();
        }
    }
    true
}

fn main() {
    let mut server = Server::connect();
    let mut args = env::args().skip(1);
    let mut mine = true;
    while let Some(step) = args.next() {
        match step.as_str() {
            "all" => mine = true,
            "only" => {
                let ranks = args.next().unwrap_or_default();
                mine = ranks.split(',').any(|one| one == rank());
            }
            "send" | "frame" | "expect" | "refused" | "say" | "fences1" | "fences2" | "exit" | "kill" => {
                let text = args.next().unwrap_or_else(|| fail(&format!("{step} needs a text")));
                if mine {
                    act(&mut server, &step, &text);
                }
            }
            _ if !mine => {}
            _ if act_alone(&mut server, &step) => {}
            _ => fail(&format!("no such step: {step}")),
        }
    }
}
