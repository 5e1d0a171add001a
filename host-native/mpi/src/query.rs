//! Requests for process sets to hydrant: PMI-2 over a query socket, one request at a time.

use std::env;
use std::ffi::c_int;
use std::process;

use hydrant_client::{Connection, Error as ClientError, QueryAddress, Socket};
use hydrant_wire::client::Start;
use hydrant_wire::limits::PSET_NAME_MAX;
use hydrant_wire::{Command, Protocol, RankRanges, Reply, SetOperation, Text, ranges, write_ranges};

use crate::abi::Class;
use crate::error::Error;

/// `PMI2_ERR_NOMEM`: a limit of the server is used up.
const RC_FULL: i32 = 2;
/// `PMI2_ERR_INVALID_ARG`: no such process set, or this process is not a member.
const RC_UNKNOWN: i32 = 3;

/// Members of one job: the job id of another job, and ranks.
pub(crate) type Part = (Option<String>, Vec<c_int>);

/// A connection to hydrant's query socket.
pub(crate) struct QueryConnection {
    connection: Connection,
    pid: u32,
}

impl QueryConnection {
    /// Connects and performs the handshake.
    pub(crate) fn open() -> Result<QueryConnection, Error> {
        let connect = || {
            let QueryAddress { address, rank } = QueryAddress::read(env::var_os)?;
            let socket = Socket::query(&address)?;
            Connection::open(socket, Protocol::V2, Start::Port { id: rank }, None)
        };
        Ok(QueryConnection { connection: connect().map_err(Error::Query)?, pid: process::id() })
    }

    /// Whether requests can be sent: no error has ended the connection, and it was not inherited by a fork.
    pub(crate) fn is_usable(&self) -> bool {
        self.connection.is_usable() && self.pid == process::id()
    }

    /// Returns name and serial number of the first set after the one with serial number `after`, or `None` if there is
    /// none.
    pub(crate) fn next(&mut self, after: u32) -> Result<Option<(String, u32)>, Error> {
        let read = |reply: &Reply<'_>| match reply {
            Reply::PsetNext { name, serial } if *serial > after => Some((name.as_str()?.to_owned(), *serial)),
            _ => None,
        };
        found(self.connection.request(&Command::PsetNext { after }, read))
    }

    /// Returns number of members and serial number of a set, or `None` if there is no such set.
    pub(crate) fn info(&mut self, name: &[u8]) -> Result<Option<(u32, u32)>, Error> {
        let Some(name) = valid_name(name) else { return Ok(None) };
        let read = |reply: &Reply<'_>| match reply {
            Reply::PsetInfo { size, serial } => Some((*size, *serial)),
            _ => None,
        };
        found(self.connection.request(&Command::PsetInfo { name }, read))
    }

    /// Returns the members of a set in parts: ranks in ascending order, and the job id of another job. Returns `None` if
    /// there is no such set.
    pub(crate) fn members(&mut self, name: &[u8]) -> Result<Option<Vec<Part>>, Error> {
        let Some(name) = valid_name(name) else { return Ok(None) };
        let mut parts = Vec::new();
        let mut from = 0;
        loop {
            let read = |reply: &Reply<'_>| match reply {
                Reply::PsetMembers { members, jobid, next } => {
                    let ranks =
                        RankRanges::new(members.as_plain()?)?.iter().map(|rank| rank as c_int).collect();
                    let jobid = match jobid {
                        Some(jobid) => Some(jobid.as_str()?.to_owned()),
                        None => None,
                    };
                    Some(((jobid, ranks), *next))
                }
                _ => None,
            };
            let reply = self.connection.request(&Command::PsetMembers { name, from }, read);
            let Some((part, next)) = found(reply)? else { return Ok(None) };
            parts.push(part);
            match next.filter(|&next| next > from) {
                Some(next) => from = next,
                None => return Ok(Some(parts)),
            }
        }
    }

    /// Defines a set of these ranks, written as `0-3,7`.
    pub(crate) fn define(&mut self, name: &[u8], members: &str) -> Result<(), Error> {
        let name = valid_name(name).ok_or(Error::PsetName)?;
        let members = RankRanges::new(members.as_bytes()).ok_or(Error::InvalidRanks)?;
        self.connection.execute(&Command::PsetDefine { name, members }).map_err(change_error)
    }

    /// Defines a set from two sets of this process.
    pub(crate) fn combine(
        &mut self,
        name: &[u8],
        operation: SetOperation,
        operands: [&[u8]; 2],
    ) -> Result<(), Error> {
        let name = valid_name(name).ok_or(Error::PsetName)?;
        let operands = operands.map(Text::plain);
        self.connection.execute(&Command::PsetCombine { name, operation, operands }).map_err(change_error)
    }

    /// Retires a set.
    pub(crate) fn retire(&mut self, name: &[u8]) -> Result<(), Error> {
        let name = valid_name(name).ok_or(Error::PsetName)?;
        self.connection.execute(&Command::PsetRetire { name }).map_err(change_error)
    }

    /// Removes the retired sets of this process.
    pub(crate) fn prune(&mut self) -> Result<(), Error> {
        self.connection.execute(&Command::PsetPrune).map_err(change_error)
    }
}

/// Converts the error of a change of the sets.
fn change_error(error: ClientError) -> Error {
    match error {
        ClientError::Refused { rc: RC_FULL, text, .. } => Error::Refused { class: Class::NoMem, text },
        ClientError::Refused { text, .. } => Error::Refused { class: Class::Arg, text },
        error => Error::Query(error),
    }
}

/// Converts the error of a request about a set.
fn query_error(error: ClientError) -> Error {
    match error {
        ClientError::Refused { rc: RC_UNKNOWN, text, .. } => Error::Refused { class: Class::Arg, text },
        ClientError::Refused { rc: RC_FULL, text, .. } => Error::Refused { class: Class::NoMem, text },
        // The server refuses these requests for one other reason: a dead member.
        ClientError::Refused { text, .. } => Error::Refused { class: Class::ProcAborted, text },
        error => Error::Query(error),
    }
}

/// Converts the refusal of an unknown set to `None`.
fn found<T>(reply: Result<T, ClientError>) -> Result<Option<T>, Error> {
    match reply {
        Ok(value) => Ok(Some(value)),
        Err(ClientError::Refused { rc: RC_UNKNOWN, .. }) => Ok(None),
        Err(error) => Err(query_error(error)),
    }
}

/// Returns the name as a text if a set can have that name.
fn valid_name(name: &[u8]) -> Option<Text<'_>> {
    let printable = name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b';');
    (!name.is_empty() && name.len() <= PSET_NAME_MAX && printable).then(|| Text::plain(name))
}

/// Writes ranks as `0-3,7`.
pub(crate) fn format_ranks(ranks: &[c_int]) -> Result<String, Error> {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    ranks.dedup();
    if ranks.first().is_some_and(|&first| first < 0) {
        return Err(Error::NegativeRank);
    }
    let mut text = String::new();
    write_ranges(ranges(ranks.into_iter().map(|rank| rank as u32)), &mut text)
        .expect("a String takes all text");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_written_in_ranges() {
        assert_eq!(format_ranks(&[7, 0, 2, 1, 3, 2]).unwrap(), "0-3,7");
        assert_eq!(format_ranks(&[5]).unwrap(), "5");
        assert_eq!(format_ranks(&[c_int::MAX, c_int::MAX - 1]).unwrap(), "2147483646-2147483647");
        assert_eq!(format_ranks(&[1, -1]).unwrap_err().class(), Class::Arg);
    }
}
