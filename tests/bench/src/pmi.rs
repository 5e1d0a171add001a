//! The smallest PMI client that is still honest: one blocking write and one blocking read a request, and every
//! reply looked at. It speaks PMI-1 and PMI-2 so that one binary can be started by any process manager.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;

use anyhow::{Context, Result, bail};

/// Longest reply that a measured job is sent.
const REPLY_MAX: usize = 4096;

/// Which language to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Pmi {
    /// Lines of `key=value`.
    #[value(name = "1")]
    V1,
    /// Counted messages of `key=value;`.
    #[value(name = "2")]
    V2,
}

impl Pmi {
    /// `1` or `2`, as the command line takes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Pmi::V1 => "1",
            Pmi::V2 => "2",
        }
    }

    /// The fence's body.
    pub(crate) const fn fence(self) -> &'static str {
        match self {
            Pmi::V1 => "cmd=barrier_in",
            Pmi::V2 => "cmd=kvs-fence;",
        }
    }

    /// A whole message with that body: the words between the separators.
    pub(crate) fn message(self, body: &str) -> Vec<u8> {
        match self {
            Pmi::V1 => format!("{body}\n").into_bytes(),
            Pmi::V2 => format!("{:6}{body}", body.len()).into_bytes(),
        }
    }

    const fn separator(self) -> u8 {
        match self {
            Pmi::V1 => b' ',
            Pmi::V2 => b';',
        }
    }
}

/// A connection to a process manager.
pub(crate) struct Client {
    server: File,
    pmi: Pmi,
    /// PMI-1's kvsname, PMI-2's job id.
    kvs: String,
    reply: Box<[u8; REPLY_MAX]>,
    /// Where the reply's body stands in `reply`.
    body: Range<usize>,
}

impl Client {
    /// A client on a connected socket before any handshake. It takes the job's name to be as long
    /// as hydra's are.
    pub(crate) fn new(server: File, pmi: Pmi) -> Client {
        let kvs = "kvs_12345_0_123456789_vm".into();
        Client { server, pmi, kvs, reply: Box::new([0; REPLY_MAX]), body: 0..0 }
    }

    /// Joins the job and learns its name.
    pub(crate) fn init(&mut self, rank: u32) -> Result<()> {
        let pmi = self.pmi;
        let subversion = if pmi == Pmi::V1 { 1 } else { 0 };
        // PMI-2's handshake begins with a PMI-1 line too.
        self.pmi = Pmi::V1;
        self.ask(&format!("cmd=init pmi_version={} pmi_subversion={subversion}", pmi.name()))?;
        self.pmi = pmi;
        let (ask, field) = match pmi {
            Pmi::V1 => ("cmd=get_my_kvsname", "kvsname"),
            Pmi::V2 => {
                self.ask(&format!("cmd=fullinit;pmirank={rank};"))?;
                ("cmd=job-getid;", "jobid")
            }
        };
        self.ask(ask)?;
        self.kvs = String::from_utf8(self.field(field).context("the job has no name")?.to_vec())?;
        Ok(())
    }

    /// Stores a pair.
    pub(crate) fn put(&mut self, key: &str, value: &str) -> Result<()> {
        let body = match self.pmi {
            Pmi::V1 => format!("cmd=put kvsname={} key={key} value={value}", self.kvs),
            Pmi::V2 => format!("cmd=kvs-put;key={key};value={value};"),
        };
        self.ask(&body)
    }

    /// The message that asks for a value, for [`get`](Client::get).
    pub(crate) fn get_message(&self, key: &str) -> Vec<u8> {
        self.pmi.message(&match self.pmi {
            Pmi::V1 => format!("cmd=get kvsname={} key={key}", self.kvs),
            Pmi::V2 => format!("cmd=kvs-get;jobid={};key={key};", self.kvs),
        })
    }

    /// The PMI-2 message that asks for a value which this rank has put.
    pub(crate) fn get_message_from(&self, key: &str, rank: u32) -> Vec<u8> {
        Pmi::V2.message(&format!("cmd=kvs-get;jobid={};srcid={rank};key={key};", self.kvs))
    }

    /// Reads a value; `None` without a value.
    pub(crate) fn get(&mut self, message: &[u8]) -> Result<Option<&[u8]>> {
        self.send(message)?;
        Ok(self.field("value"))
    }

    /// PMI-1's barrier, PMI-2's fence.
    ///
    /// Hydra answers a PMI-2 fence at once and holds the first get behind it instead until every rank has
    /// fenced. So the gets behind a fence are right everywhere, but only [`sync`](Client::sync) is a barrier.
    pub(crate) fn fence(&mut self) -> Result<()> {
        self.ask(self.pmi.fence())
    }

    /// A barrier under every process manager, the way MPICH makes one of PMI-2.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.fence()?;
        if self.pmi == Pmi::V2 {
            let message = self.get_message("-NONEXIST-KEY");
            self.get(&message)?;
        }
        Ok(())
    }

    /// Leaves the job.
    pub(crate) fn finalize(&mut self) -> Result<()> {
        self.ask(match self.pmi {
            Pmi::V1 => "cmd=finalize",
            Pmi::V2 => "cmd=finalize;",
        })
    }

    /// A request that must succeed.
    fn ask(&mut self, body: &str) -> Result<()> {
        self.send(&self.pmi.message(body))?;
        match self.field("rc") {
            // Hydra answers a PMI-1 barrier without one.
            None | Some(b"0") => Ok(()),
            Some(_) => bail!(
                "asked {body:?}, was told {:?}",
                self.reply[self.body.clone()].escape_ascii().to_string()
            ),
        }
    }

    /// Sends one message and waits for the reply.
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.server
            .write_all(message)
            .and_then(|()| self.receive())
            .with_context(|| format!("asking {}", message.escape_ascii()))
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut have = 0;
        loop {
            have += match self.server.read(&mut self.reply[have..]) {
                Ok(0) if have == REPLY_MAX => return Err(io::Error::other("the reply is too long")),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if let Some(body) = self.whole(have)? {
                self.body = body;
                return Ok(());
            }
        }
    }

    /// The body of a reply of which `have` bytes are there; `None` when more must come.
    fn whole(&self, have: usize) -> io::Result<Option<Range<usize>>> {
        let end = match self.pmi {
            Pmi::V1 => return Ok((self.reply[have - 1] == b'\n').then_some(0..have - 1)),
            Pmi::V2 if have < 6 => return Ok(None),
            Pmi::V2 => {
                let length = std::str::from_utf8(&self.reply[..6])
                    .ok()
                    .and_then(|text| text.trim().parse::<usize>().ok());
                6 + length.ok_or_else(|| io::Error::other("the reply has no length"))?
            }
        };
        if have > end {
            return Err(io::Error::other("more than one reply came"));
        }
        Ok((have == end).then_some(6..end))
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        self.reply[self.body.clone()]
            .split(|&byte| byte == self.pmi.separator())
            .find_map(|word| word.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }
}
