//! The conversation with hydrant: PMI-2 over a socket of its own, one question at a time.

use std::env;
use std::ffi::c_int;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process;

use hydrant_core::client::{Client, Start};
use hydrant_core::limits::{MESSAGE_MAX, PSET_NAME_MAX};
use hydrant_core::wire::{Command, Failure, Protocol, RankRanges, Reply, Text};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::geteuid;

use crate::abi::{Class, Error};

/// Where hydrant answers queries; it tells its ranks.
const ADDRESS: &str = "HYDRANT_QUERY";

/// An open conversation.
pub(crate) struct Channel {
    stream: UnixStream,
    client: Client,
    pid: u32,
    received: Vec<u8>,
    broken: bool,
}

/// An answer that was not what was asked for.
enum Refused {
    /// No such set, or none that this process is in: `PMI2_ERR_INVALID_ARG`.
    Unknown(String),
    /// A limit is used up: `PMI2_ERR_NOMEM`.
    Full(String),
    /// Anything else: a member has died, a name is taken.
    Other(String),
}

/// Writes all of it. Where nobody is there that is an error, not a signal for the program that this is a part of.
fn write(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match send(stream, bytes, SendFlags::NOSIGNAL) {
            Ok(len) => bytes = &bytes[len..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn other(text: impl std::fmt::Display) -> Error {
    Error::new(Class::Other, format!("hydrant cannot be asked for process sets: {text}"))
}

/// The effective user of the process that listens.
///
/// rustix's `socket_peercred` cannot hold a peer outside of this process's pid namespace, whose number is 0.
fn user_of(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is a `ucred`, which `peer` is, and `len` says its size; both live for the call.
    let failed = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(peer.uid) }
}

impl Channel {
    /// Connects, and says who this is.
    pub(crate) fn open() -> Result<Channel, Error> {
        let variable = |name| env::var(name).map_err(|_| other(format!("{name} is not in the environment")));
        let rank = variable("PMI_RANK")?.parse().map_err(|_| other("PMI_RANK is no number"))?;
        let address = variable(ADDRESS)?;
        let connect = || {
            let name = address.strip_prefix('@').ok_or(io::ErrorKind::InvalidInput)?;
            let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
            if user_of(&stream)? == geteuid().as_raw() {
                Ok(stream)
            } else {
                Err(io::Error::from(io::ErrorKind::PermissionDenied))
            }
        };
        let stream = connect().map_err(|why| other(format!("{ADDRESS}={address}: {why}")))?;
        let client = Client::new(Protocol::V2, Start::Port { id: rank });
        let mut channel = Channel { stream, client, pid: process::id(), received: Vec::new(), broken: false };
        let mut buf = [0; 64];
        while let Some(request) = channel.client.introduce(&mut buf).map_err(other)? {
            write(&channel.stream, request).map_err(other)?;
            channel.receive(|reply| match reply {
                Reply::Refused(_, why) => Err(other(text(why))),
                _ => Ok(()),
            })?;
        }
        Ok(channel)
    }

    /// Whether this process opened it, and not one that it was forked from.
    pub(crate) fn is_mine(&self) -> bool {
        self.pid == process::id()
    }

    /// Whether nothing more can be asked.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// How many sets this process is in.
    pub(crate) fn count(&mut self) -> Result<u32, Error> {
        let read = |reply: Reply<'_>| match reply {
            Reply::PsetCount(count) => Some(count),
            _ => None,
        };
        self.ask(&Command::PsetCount, read)?.map_err(|why| why.into_error())
    }

    /// The name of the set with that index.
    pub(crate) fn name(&mut self, index: u32) -> Result<Option<String>, Error> {
        let read = |reply: Reply<'_>| match reply {
            Reply::PsetName(name) => name.as_str().map(str::to_owned),
            _ => None,
        };
        known(self.ask(&Command::PsetName { index }, read)?)
    }

    /// How many processes are in a set.
    pub(crate) fn size(&mut self, name: &[u8]) -> Result<Option<u32>, Error> {
        let Some(name) = sendable(name) else { return Ok(None) };
        let read = |reply: Reply<'_>| match reply {
            Reply::PsetInfo { size } => Some(size),
            _ => None,
        };
        known(self.ask(&Command::PsetInfo { name }, read)?)
    }

    /// The ranks in a set, in rising order.
    pub(crate) fn members(&mut self, name: &[u8]) -> Result<Option<Vec<c_int>>, Error> {
        let Some(name) = sendable(name) else { return Ok(None) };
        let mut members = Vec::new();
        let mut from = 0;
        loop {
            let read = |reply: Reply<'_>| match reply {
                Reply::PsetMembers { members, next } => {
                    let ranks = RankRanges::new(members.as_plain()?)?;
                    Some((ranks.iter().map(|rank| rank as c_int).collect::<Vec<_>>(), next))
                }
                _ => None,
            };
            let Some((some, next)) = known(self.ask(&Command::PsetMembers { name, from }, read)?)? else {
                return Ok(None);
            };
            members.extend(some);
            match next.filter(|&next| next > from) {
                Some(next) => from = next,
                None => return Ok(Some(members)),
            }
        }
    }

    /// Defines a set of these ranks, which are written as `0-3,7`.
    pub(crate) fn define(&mut self, name: &[u8], members: &str) -> Result<(), Error> {
        let bad = |text: &str| Error::new(Class::Arg, text);
        let limit = format!("a process set's name has 1 to {PSET_NAME_MAX} printable characters");
        let name = sendable(name).ok_or_else(|| bad(&limit))?;
        let members = RankRanges::new(members.as_bytes()).ok_or_else(|| bad("these ranks are no set"))?;
        let read = |reply: Reply<'_>| matches!(reply, Reply::Done(_)).then_some(());
        self.ask(&Command::PsetDefine { name, members }, read)?.map_err(|why| match why {
            Refused::Full(text) => Error::new(Class::NoMem, text),
            Refused::Unknown(text) | Refused::Other(text) => Error::new(Class::Arg, text),
        })
    }

    /// Asks one question. `read` gives nothing for a reply of another kind, which ends the conversation.
    fn ask<T>(
        &mut self,
        command: &Command<'_>,
        read: impl FnOnce(Reply<'_>) -> Option<T>,
    ) -> Result<Result<T, Refused>, Error> {
        let mut buf = vec![0; MESSAGE_MAX as usize];
        // A question that cannot be written has not been asked.
        let request = self.client.request(command, &mut buf).map_err(other)?;
        if let Err(why) = write(&self.stream, request) {
            self.broken = true;
            return Err(other(why));
        }
        self.receive(|reply| match reply {
            Reply::Refused(_, why) => Ok(Err(refused(why))),
            reply => read(reply).map(Ok).ok_or_else(|| other("the answer is to another question")),
        })
    }

    fn receive<T>(&mut self, read: impl FnOnce(Reply<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let result = self.receive_one(read);
        self.broken |= result.is_err();
        result
    }

    fn receive_one<T>(&mut self, read: impl FnOnce(Reply<'_>) -> Result<T, Error>) -> Result<T, Error> {
        loop {
            if let Some(received) = self.client.receive(&self.received).map_err(other)? {
                let result = read(received.reply);
                let consumed = received.consumed as usize;
                self.received.drain(..consumed);
                return result;
            }
            let mut buf = [0; 4096];
            match self.stream.read(&mut buf) {
                Ok(0) => return Err(other("it has closed the connection")),
                Ok(len) => self.received.extend_from_slice(&buf[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(other(error)),
            }
        }
    }
}

impl Refused {
    fn into_error(self) -> Error {
        match self {
            Refused::Unknown(text) => Error::new(Class::Arg, text),
            Refused::Full(text) => Error::new(Class::NoMem, text),
            // Of the questions about a set, only one with a dead member is refused otherwise.
            Refused::Other(text) => Error::new(Class::ProcAborted, text),
        }
    }
}

/// An unknown set is an answer.
fn known<T>(answer: Result<T, Refused>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Refused::Unknown(_)) => Ok(None),
        Err(why) => Err(why.into_error()),
    }
}

fn refused(why: Failure<'_>) -> Refused {
    let said = text(why);
    match why {
        Failure::Remote(2, _) => Refused::Full(said),
        Failure::Remote(3, _) => Refused::Unknown(said),
        _ => Refused::Other(said),
    }
}

fn text(why: Failure<'_>) -> String {
    match why {
        Failure::Refusal(refusal) => refusal.to_string(),
        Failure::Remote(_, text) => {
            let bytes: Vec<u8> = text.parts().flatten().copied().collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }
}

/// A name that a set can have.
fn sendable(name: &[u8]) -> Option<Text<'_>> {
    let printable = name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b';');
    (!name.is_empty() && name.len() <= PSET_NAME_MAX && printable).then(|| Text::plain(name))
}

/// Ranks as `0-3,7`.
pub(crate) fn ranges(ranks: &[c_int]) -> Result<String, Error> {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    ranks.dedup();
    if ranks.first().is_some_and(|&first| first < 0) {
        return Err(Error::new(Class::Arg, "a rank is negative"));
    }
    let mut parts = Vec::new();
    for run in ranks.chunk_by(|a, b| a + 1 == *b) {
        parts.push(match run {
            [first, .., last] => format!("{first}-{last}"),
            run => run[0].to_string(),
        });
    }
    Ok(parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_written_in_ranges() {
        assert_eq!(ranges(&[7, 0, 2, 1, 3, 2]).unwrap(), "0-3,7");
        assert_eq!(ranges(&[5]).unwrap(), "5");
        assert_eq!(ranges(&[c_int::MAX, c_int::MAX - 1]).unwrap(), "2147483646-2147483647");
        assert_eq!(ranges(&[1, -1]).unwrap_err().class, Class::Arg);
    }
}
