//! Messages of the status socket: a length of four bytes (little-endian), and a postcard record.
//!
//! Clients of another version do not find the socket, whose name has [the version](crate::address::VERSION). A client sends one
//! request and waits for its reply.

use hydrant_placement::{Bootstrap, Host};
use serde::{Deserialize, Serialize};

use crate::record::{Job, Rank, Run, Text};

/// Longest request in bytes, without its length.
pub(crate) const REQUEST_MAX: usize = 4096 + 64;
/// Longest reply in bytes, without its length.
pub(crate) const REPLY_MAX: usize = 256 * 1024;

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The run. The reply is [`Reply::Run`].
    Run,
    /// The first running job whose number is at least this. The reply is [`Reply::Job`].
    Job(u32),
    /// The ranks of a job from `first` on, at most [`RANKS_MAX`](crate::record::RANKS_MAX). The reply is [`Reply::Ranks`].
    Ranks {
        /// Number of the job.
        job: u32,
        /// First rank.
        first: u32,
    },
    /// How to start a command on the host of a rank. The reply is [`Reply::Access`].
    Access {
        /// Number of the job.
        job: u32,
        /// The rank.
        rank: u32,
    },
    /// Treat this signal as if it had been sent to the run. The reply is [`Reply::Done`].
    Signal(i32),
    /// Put another core in the place of the PMI servers': one in the plugin at this absolute path, or without one in hydrant's
    /// processes. The reply is [`Reply::Done`].
    Replace(Option<Text>),
    /// Make these hosts, as in `-hosts`, hosts of the run. The reply is [`Reply::Done`] when all have joined.
    Grow(String),
    /// Have these hosts leave the run. The reply is [`Reply::Done`] when the daemons of all have ended.
    Shrink {
        /// The hosts, as in `-hosts`.
        hosts: String,
        /// End their ranks. Otherwise hosts with ranks are refused.
        force: bool,
    },
    /// Copy the output of all ranks from now on. Replies are [`Reply::Done`], and [`Reply::Output`] and [`Reply::Lost`] until the
    /// connection closes.
    Attach,
}

/// Reply to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The run.
    Run(Run),
    /// A job. None behind the last one.
    Job(Option<Job>),
    /// Ranks in ascending order. Empty behind the last one, or if the job has ended.
    Ranks(Vec<Rank>),
    /// How to start a command on the host of a rank. None without such a rank, or if the run starts nothing on other hosts.
    Access(Option<Access>),
    /// The request was carried out.
    Done,
    /// The request was refused, for this reason.
    Refused(String),
    /// Output of a rank.
    Output {
        /// Ordinal of its job.
        job: u32,
        /// The rank.
        rank: u32,
        /// Standard error instead of standard output.
        stderr: bool,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// So many bytes of output are missing here, because the client did not read.
    Lost(u64),
    /// The run ends with this exit code.
    Ended(u8),
}

/// How a run starts processes on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The host.
    pub host: Host,
    /// Method that starts processes there.
    pub bootstrap: Bootstrap,
    /// Program that replaces `ssh` or `srun`.
    pub program: Option<Text>,
    /// Further arguments of `ssh` or `srun`.
    pub args: Vec<Text>,
    /// Slurm's job of the run.
    pub slurm_job: Option<String>,
}

/// Returns the message of a record.
pub fn encode(record: &impl Serialize) -> Vec<u8> {
    let body = postcard::to_stdvec(record).expect("records of this crate have known lengths");
    let mut message = (body.len() as u32).to_le_bytes().to_vec();
    message.extend(body);
    message
}

/// Returns the length of the message that begins with `bytes`. None if its beginning is missing.
pub fn message_len(bytes: &[u8]) -> Option<usize> {
    let head = bytes.first_chunk()?;
    Some(4 + u32::from_le_bytes(*head) as usize)
}

/// Decodes a message that fills `bytes`.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes.get(4..)?) {
        Ok((record, [])) => Some(record),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_decode_as_encoded() {
        let request = Request::Ranks { job: u32::MAX, first: u32::MAX };
        let message = encode(&request);
        assert!(message.len() <= REQUEST_MAX);
        assert_eq!(message_len(&message), Some(message.len()));
        assert_eq!(message_len(&message[..3]), None);
        assert_eq!(decode(&message), Some(request));
        assert_eq!(decode::<Request>(&[&message[..], b"x"].concat()), None);
        assert_eq!(decode::<Request>(b"\x01\0\0\0\xff"), None);
        assert_eq!(decode::<Request>(b"\x01"), None);
    }
}
