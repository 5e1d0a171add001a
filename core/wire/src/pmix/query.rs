//! Requests that a server passes to its host.

use super::command::{Command, decode};
use super::{HostCall, Info, Infos, Integers, Queries, Reader, Writer};

/// Beginning of a request with queries.
const COMMAND: &[u8] = b"cmd=pmix-query;";
/// Beginning of a request that is passed on as it is.
const REQUEST: &[u8] = b"cmd=pmix-request;";

/// Returns whether a request of an upcall is one of these or a [`HostCall`], and not one that a name service may carry out.
pub fn is_for_host(request: &[u8]) -> bool {
    request.starts_with(COMMAND) || request.starts_with(REQUEST) || HostCall::read(request).is_some()
}

/// Request with the queries of a client (the attribute `pmix.query`). The host answers with the body of the
/// reply: a STATUS, and an array of INFOs with the answers of the server and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostQuery<'a> {
    /// Encoding of the client's integers.
    pub integers: Integers,
    /// What the server has answered itself.
    pub answered: Infos<'a>,
    /// All queries.
    pub queries: Queries<'a>,
}

impl<'a> HostQuery<'a> {
    /// Starts a request at the front of `buf`, with room for this number of answers. They follow, and then
    /// [`finish`](Self::finish).
    pub fn begin(integers: Integers, answers: u32, buf: &mut [u8]) -> Writer<'_> {
        let mut writer = Writer::new(integers, buf);
        writer.raw(COMMAND);
        writer.byte(integers as u8);
        writer.array(answers);
        writer
    }

    /// Ends a request with the queries of the client. Returns its length, or `None` if it does not fit.
    pub fn finish(writer: &mut Writer<'_>, queries: &Queries<'_>) -> Option<usize> {
        writer.array(queries.len());
        writer.raw(queries.as_bytes());
        writer.finish()
    }

    /// Writes a request with a monitor as its query and first qualifier. Returns its length, or `None` if it does not fit.
    pub fn write_one(
        integers: Integers,
        monitor: &Info<'_>,
        infos: &Infos<'_>,
        buf: &mut [u8],
    ) -> Option<usize> {
        let mut writer = HostQuery::begin(integers, 0, buf);
        writer.array(1);
        writer.count(1);
        writer.string(monitor.key);
        writer.size(1 + u64::from(infos.len()));
        writer.info(monitor.key, monitor.kind);
        writer.raw(monitor.value);
        writer.raw(infos.as_bytes());
        writer.finish()
    }

    /// Reads a request. Returns `None` for another one.
    pub fn read(request: &'a [u8]) -> Option<HostQuery<'a>> {
        let (&integers, body) = request.strip_prefix(COMMAND)?.split_first()?;
        let integers = Integers::of_byte(integers)?;
        let mut reader = Reader::new(integers, body);
        Some(HostQuery { integers, answered: reader.infos()?, queries: reader.queries()? })
    }
}

/// Request of a client that the server passes on as it is. The host answers with the body of the reply: a STATUS, and
/// what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRequest<'a> {
    /// Encoding of the client's integers.
    pub integers: Integers,
    /// The request.
    pub command: Command<'a>,
}

impl<'a> HostRequest<'a> {
    /// Writes a request with the body of a client's message to the front of `buf`. Returns its length, or `None` if it does not
    /// fit.
    pub fn write(integers: Integers, body: &[u8], buf: &mut [u8]) -> Option<usize> {
        let mut writer = Writer::new(integers, buf);
        writer.raw(REQUEST);
        writer.byte(integers as u8);
        writer.raw(body);
        writer.finish()
    }

    /// Reads a request. Returns `None` for another one.
    pub fn read(request: &'a [u8]) -> Option<HostRequest<'a>> {
        let (&integers, body) = request.strip_prefix(REQUEST)?.split_first()?;
        let integers = Integers::of_byte(integers)?;
        let command = decode(integers, body).ok()?.ok()?;
        Some(HostRequest { integers, command })
    }
}
