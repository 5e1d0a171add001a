//! Call to the debugger that has started this launcher.
//!
//! Such a debugger is a server of PMIx whose address is in `PMIX_LAUNCHER_RNDZ_URI`. The launcher introduces itself as the process
//! that the debugger has started, and asks for its job data, which have the directives for the job. From then on requests come
//! from the debugger, as from any tool of the run, the first of them maybe before the job data.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hydrant_core::wire::pmix::{
    Frame, HEADER_LEN, HELLO_MAX, Hello, Infos, Integers, JOB_INFO, Kind, Reader, Writer, keys, next_frame,
    status, write_header, write_tool_reply,
};
use hydrant_driver::{Client, Speaks};
use rustix::process::{getegid, geteuid};

/// Variable with the address of the debugger.
pub(crate) const VARIABLE: &str = "PMIX_LAUNCHER_RNDZ_URI";
/// Longest time until the debugger has answered all questions. It waits for the call itself for 2 s.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes from the debugger until then.
const RECEIVED_MAX: usize = 64 * 1024;
/// Tag of that request. libpmix counts its own from 100 on.
const TAG: u32 = 1 << 30;
/// `PMIX_LAUNCH_DIRECTIVES`.
const DIRECTIVES: &[u8] = b"pmix.lnch.dirs";
/// Key of the version of the debugger's library.
const VERSION: &[u8] = b"pmix.bfrops.mod";
/// Its first number, if the job data do not have it.
const OLDEST: u8 = 4;
/// Encoding of integers in all messages.
pub(crate) const INTEGERS: Integers = Integers::Flexible;

/// Why a call has failed.
#[derive(Debug, thiserror::Error)]
pub enum DebuggerCallError {
    /// The address cannot be read.
    #[error("it is no address of PMIx, such as NAME.0;tcp4://127.0.0.1:4711")]
    Address,
    /// The name that the debugger has given this process is too long.
    #[error("PMIX_NAMESPACE is longer than {HELLO_MAX} bytes")]
    Name,
    /// Nobody listens there.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// Whoever answers is no process of this user.
    #[error("not trusted: {0}")]
    Stranger(io::Error),
    /// The debugger does not know this process.
    #[error("the debugger refuses this launcher with status {0}")]
    Refused(i32),
    /// The debugger has closed the connection in the handshake, or has not answered in time.
    #[error("no answer: {0}")]
    Ended(io::Error),
    /// The answer is no message of PMIx, or too long.
    #[error("the answer cannot be read, or is longer than {RECEIVED_MAX} bytes")]
    Unreadable,
    /// There are directives that cannot be carried out.
    #[error("its launch directives ask for what hydrant does not do (status {0})")]
    Directives(i32),
    /// The table of tools is full.
    #[error("this run has no room for a tool")]
    NoRoom,
    /// The debugger has closed the connection later.
    #[error("the debugger has left before it released the job")]
    Left,
}

impl DebuggerCallError {
    /// Remedy, if there is a specific one.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            DebuggerCallError::Address
            | DebuggerCallError::Connect(_)
            | DebuggerCallError::Stranger(_)
            | DebuggerCallError::Refused(_)
            | DebuggerCallError::Ended(_) => Some(
                "start the launcher from its debugger, or unset PMIX_LAUNCHER_RNDZ_URI to run without one",
            ),
            DebuggerCallError::NoRoom => Some("raise --limit jobs, ranks and conns by 8"),
            _ => None,
        }
    }
}

/// A debugger that has been called.
#[derive(Debug)]
pub(crate) struct DebuggerCall {
    /// Its address.
    pub(crate) uri: String,
    pub(crate) client: Client,
    pub(crate) launcher: Launcher,
    /// Introduction of the debugger, as a tool that connects would have sent it, and what it has said so far.
    pub(crate) received: Vec<u8>,
    /// Body of the reply with the job data.
    job_data: Vec<u8>,
}

/// This process, as the debugger names it.
#[derive(Debug)]
pub(crate) struct Launcher {
    namespace: String,
    rank: u32,
}

impl Launcher {
    /// Returns whether an event with these attributes is meant for this process.
    pub(crate) fn is_meant(&self, infos: &Infos<'_>) -> bool {
        let listed = infos.find(keys::EVENT_CUSTOM_RANGE);
        listed.is_none_or(|listed| listed.contains(self.namespace.as_bytes(), self.rank))
    }
}

/// Reads variables of the environment.
type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;

impl DebuggerCall {
    /// Calls the debugger that has started this process, if one has.
    pub(crate) fn from_environment() -> Result<Option<DebuggerCall>, (String, DebuggerCallError)> {
        let variable = |name: &str| std::env::var(name).ok();
        let Some(uri) = variable(VARIABLE) else { return Ok(None) };
        match DebuggerCall::new(&uri, &variable) {
            Ok(call) => Ok(Some(call)),
            Err(why) => Err((uri, why)),
        }
    }

    fn new(uri: &str, variable: Variables<'_>) -> Result<DebuggerCall, DebuggerCallError> {
        let (name, addr) = read_uri(uri).ok_or(DebuggerCallError::Address)?;
        // A debugger may start the launcher without its library.
        let namespace =
            variable("PMIX_NAMESPACE").unwrap_or_else(|| format!("hydrant-{}", std::process::id()));
        let rank = variable("PMIX_RANK").and_then(|rank| rank.parse().ok()).unwrap_or(0);
        let deadline = Instant::now() + TIMEOUT;
        let stream = TcpStream::connect_timeout(&addr, TIMEOUT).map_err(DebuggerCallError::Connect)?;
        Connection { stream: &stream, deadline }.introduce(&namespace, rank)?;
        let client = Client::called(stream, Speaks::Pmix).map_err(DebuggerCallError::Stranger)?;
        let asked = Connection { stream: &client.stream, deadline }.ask_for_job_data();
        let (job_data, early) = asked.map_err(|why| match why {
            DebuggerCallError::Ended(why) if why.kind() != io::ErrorKind::TimedOut => DebuggerCallError::Left,
            other => other,
        })?;
        let major = version(&job_data).ok_or(DebuggerCallError::Unreadable)?;
        let kind = Kind::NamedTool;
        let hello = Hello { kind, namespace: name.as_bytes(), rank: 0, major, integers: INTEGERS };
        let mut received = hello_of(&hello).ok_or(DebuggerCallError::Address)?;
        received.extend(early);
        let launcher = Launcher { namespace, rank };
        Ok(DebuggerCall { uri: uri.to_owned(), client, launcher, received, job_data })
    }

    /// Returns the directives for the job.
    pub(crate) fn directives(&self) -> Option<Infos<'_>> {
        match Reader::new(INTEGERS, &self.job_data).job_data()?.find(|info| info.key == DIRECTIVES) {
            Some(found) => found.as_infos(),
            None => Some(Infos::EMPTY),
        }
    }
}

/// The connection to a debugger until it is served.
struct Connection<'c> {
    stream: &'c TcpStream,
    deadline: Instant,
}

impl Connection<'_> {
    /// Performs the handshake of a tool that has its name already.
    fn introduce(&self, namespace: &str, rank: u32) -> Result<(), DebuggerCallError> {
        let kind = Kind::NamedTool;
        let hello = Hello { kind, namespace: namespace.as_bytes(), rank, major: 5, integers: INTEGERS };
        let hello = hello_of(&hello).ok_or(DebuggerCallError::Name)?;
        self.write(&hello)?;
        self.status()?;
        // The name of the debugger, which the address has too, and its rank.
        let mut process = vec![0; answer_len() - 2 * size_of::<i32>()];
        self.read_exact(&mut process)?;
        self.status()
    }

    fn status(&self) -> Result<(), DebuggerCallError> {
        let mut word = [0; size_of::<i32>()];
        self.read_exact(&mut word)?;
        match i32::from_be_bytes(word) {
            status::SUCCESS => Ok(()),
            code => Err(DebuggerCallError::Refused(code)),
        }
    }

    /// Returns the body of the reply, and the bytes of all other messages.
    fn ask_for_job_data(&self) -> Result<(Vec<u8>, Vec<u8>), DebuggerCallError> {
        let mut body = [0; 8];
        let mut writer = Writer::new(INTEGERS, &mut body);
        writer.single();
        writer.byte(JOB_INFO);
        let len = writer.len();
        self.write(&[&write_header(TAG, len as u32), &body[..len]].concat())?;
        let (mut received, mut others) = (Vec::new(), Vec::new());
        let mut room = [0; 4096];
        loop {
            while let Some(frame) = next_frame(&received).map_err(|_| DebuggerCallError::Unreadable)? {
                let Frame::Message { len, tag, body } = frame else {
                    return Err(DebuggerCallError::Unreadable);
                };
                let (body, len) = (body.to_vec(), len as usize);
                if tag == TAG {
                    others.extend(received.drain(..).skip(len));
                    return Ok((body, others));
                }
                others.extend(received.drain(..len));
            }
            if received.len() + others.len() + room.len() > RECEIVED_MAX {
                return Err(DebuggerCallError::Unreadable);
            }
            let len = self.read(&mut room)?;
            received.extend(&room[..len]);
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<(), DebuggerCallError> {
        // The connection is new, so its buffer takes all of them.
        (&mut &*self.stream).write_all(bytes).map_err(DebuggerCallError::Ended)
    }

    fn read_exact(&self, mut bytes: &mut [u8]) -> Result<(), DebuggerCallError> {
        while !bytes.is_empty() {
            let len = self.read(bytes)?;
            bytes = &mut bytes[len..];
        }
        Ok(())
    }

    /// Reads at least one byte.
    fn read(&self, bytes: &mut [u8]) -> Result<usize, DebuggerCallError> {
        let mut read = || {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match (&mut &*self.stream).read(bytes) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                // The time is over.
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
                result => result,
            }
        };
        loop {
            match read() {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map_err(DebuggerCallError::Ended),
            }
        }
    }
}

/// Length of the answer to the handshake of a tool that names itself.
pub(crate) fn answer_len() -> usize {
    let mut room = [0; HELLO_MAX as usize];
    write_tool_reply(None, b"", &mut room).expect("the answer to a handshake fits where a handshake does")
}

/// Returns a handshake as a message. None if its name is too long.
fn hello_of(hello: &Hello<'_>) -> Option<Vec<u8>> {
    let mut room = vec![0; HEADER_LEN + HELLO_MAX as usize];
    let len = hello.write((geteuid().as_raw(), getegid().as_raw()), &mut room)?;
    room.truncate(len);
    Some(room)
}

/// Returns the namespace and the address in `NAMESPACE.RANK;tcp4://ADDRESS:PORT`.
fn read_uri(uri: &str) -> Option<(&str, SocketAddr)> {
    let (process, rest) = uri.split_once(';')?;
    let (namespace, _) = process.rsplit_once('.').filter(|(namespace, _)| !namespace.is_empty())?;
    let address = rest.split(';').find_map(|part| {
        part.trim().strip_prefix("tcp4://").or_else(|| part.trim().strip_prefix("tcp6://"))
    })?;
    Some((namespace, address.parse().ok()?))
}

/// Returns the first number of the version of the debugger's library. None if the job data cannot be read.
fn version(reply: &[u8]) -> Option<u8> {
    let version = Reader::new(INTEGERS, reply).job_data()?.find(|info| info.key == VERSION);
    let major = version.and_then(|info| {
        let digits = info.as_string()?.split(|&byte| byte == b'.').next()?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    });
    Some(major.unwrap_or(OLDEST))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Job data of libpmix 5.0.11, as far as they matter here.
    const JOB_DATA: &str = "0212766d3a3638343a31000216706d69782e6a6f626964001612766d3a3638343a3100ffffffff0f0218706d69782e70\
        6172656e7400160e766d3a3638340000021e706d69782e6c6e63682e64697273002718041c706d69782e6462672e696e\
        6974000001011c706d69782e6e6f74652e6a65760000010120706d69782e6677642e7374646f75740000010120706d69\
        782e6677642e737464657272000001010220706d69782e6266726f70732e6d6f64000314352e302e313172633100";
    /// A request of a debugger: it registers for an event.
    const REQUEST: &str = "00000000000000650000000800000000020d020102730200";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digits).collect()
    }

    /// Calls a debugger that reads a handshake and does what `answer` says.
    fn call(
        answer: impl FnOnce(TcpStream, Vec<u8>) + Send + 'static,
    ) -> Result<DebuggerCall, DebuggerCallError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("host:71.0;tcp4://{}", listener.local_addr().unwrap());
        let debugger = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut header = [0; HEADER_LEN];
            stream.read_exact(&mut header).unwrap();
            let mut body = vec![0; u32::from_le_bytes(*header[8..].first_chunk().unwrap()) as usize];
            stream.read_exact(&mut body).unwrap();
            answer(stream, body);
        });
        let variables = |name: &str| match name {
            "PMIX_NAMESPACE" => Some("vm:684:1".to_owned()),
            "PMIX_RANK" => Some("0".to_owned()),
            _ => None,
        };
        let called = DebuggerCall::new(&uri, &variables);
        debugger.join().unwrap();
        called
    }

    /// Accepts the handshake and answers the request for job data with these bytes.
    fn with_data(answer: Vec<u8>) -> Result<DebuggerCall, DebuggerCallError> {
        call(move |mut stream, _| {
            stream.write_all(&vec![0; answer_len()]).unwrap();
            stream.read_exact(&mut [0; HEADER_LEN + 2]).unwrap();
            // The launcher may have read enough before the end.
            let _ = stream.write_all(&answer);
        })
    }

    fn reply(tag: u32, body: &[u8]) -> Vec<u8> {
        [&write_header(tag, body.len() as u32), body].concat()
    }

    #[test]
    fn the_directives_are_read_and_early_requests_are_kept() {
        let (data, request) = (bytes(JOB_DATA), bytes(REQUEST));
        let sent = [request.clone(), reply(TAG, &data), request.clone()].concat();
        let called = with_data(sent).unwrap();
        let directives = called.directives().unwrap();
        assert!(directives.is_set(keys::DEBUG_STOP_IN_INIT) && directives.is_set(keys::FWD_STDERR));
        assert_eq!(directives.len(), 4);
        let Ok(Some(Frame::Hello { len, body })) = next_frame(&called.received) else {
            panic!("a handshake")
        };
        let hello = Hello::decode(body).unwrap();
        assert_eq!((hello.kind, hello.namespace, hello.major), (Kind::NamedTool, &b"host:71"[..], 5));
        let rest = &called.received[len as usize..];
        assert!(rest.starts_with(&request), "{rest:?}");
    }

    #[test]
    fn a_debugger_knows_its_launcher_by_the_handshake() {
        let called = call(|mut stream, hello| {
            let hello = Hello::decode(&hello).unwrap();
            assert_eq!((hello.kind, hello.namespace, hello.rank), (Kind::NamedTool, &b"vm:684:1"[..], 0));
            stream.write_all(&(-27_i32).to_be_bytes()).unwrap();
        });
        assert!(matches!(called, Err(DebuggerCallError::Refused(-27))), "{called:?}");
    }

    #[test]
    fn job_data_without_directives_are_none() {
        let called = with_data(reply(TAG, &bytes(&JOB_DATA[..22]))).unwrap();
        assert!(called.directives().unwrap().is_empty());
    }

    // Fault: A debugger closes the connection, or answers with what is no reply or too long
    // Outcome: the launcher says so and runs nothing
    // Guarantee: What a debugger sends is bounded and checked
    #[test]
    fn answers_that_cannot_be_read_are_refused() {
        let called = call(|_, _| {});
        assert!(matches!(called, Err(DebuggerCallError::Ended(_))), "{called:?}");
        let called = with_data(Vec::new());
        assert!(matches!(called, Err(DebuggerCallError::Left)), "{called:?}");
        let endless = reply(7, &[0; 1000]).repeat(RECEIVED_MAX / 1000);
        for answer in [vec![0xff; 64], reply(TAG, b"\x02\x12short"), endless] {
            let called = with_data(answer);
            assert!(matches!(called, Err(DebuggerCallError::Unreadable)), "{called:?}");
        }
    }

    #[test]
    fn addresses_are_read_as_libpmix_writes_them() {
        let read = |uri| read_uri(uri).map(|(name, addr)| (name.to_owned(), addr.to_string()));
        let found = |name: &str, addr: &str| Some((name.to_owned(), addr.to_owned()));
        assert_eq!(read("vm:684.0;tcp4://127.0.0.1:4711"), found("vm:684", "127.0.0.1:4711"));
        assert_eq!(read("a.b.0;tcp6://[::1]:80"), found("a.b", "[::1]:80"));
        for uri in [
            "",
            "vm.0",
            "vm;tcp4://127.0.0.1:1",
            ".0;tcp4://127.0.0.1:1",
            "vm.0;tcp4://host:1",
            "vm.0;usock:/x",
        ] {
            assert_eq!(read(uri), None, "{uri}");
        }
    }
}
