//! Replies of PMI-1.

use crate::Malformed;
use crate::command::Op;
use crate::fields::{Fields, Pairs, integer, number};
use crate::frame::Frame;
use crate::reply::{self, Codes, Failure, Reply};
use crate::token::Text;
use crate::write::{EncodeError, Style, Writer};

/// Encodes a reply. A text that a line cannot carry becomes an error reply with
/// [`Unprintable`](crate::Refusal::Unprintable). A reply that PMI-1 does not have becomes one with
/// [`Unsupported`](crate::Refusal::Unsupported).
///
/// # Errors
/// [`EncodeError::DoesNotFit`].
pub fn encode_reply<'b>(reply: &Reply<'_>, buf: &'b mut [u8]) -> Result<&'b [u8], EncodeError> {
    reply::encode(reply, Style::Line, buf, put)
}

fn name(op: Op) -> &'static [u8] {
    match op {
        Op::Init => b"response_to_init",
        Op::InitAck => b"initack",
        Op::GetMaxes => b"maxes",
        Op::GetUniverseSize => b"universe_size",
        Op::GetAppnum => b"appnum",
        Op::GetJobId => b"my_kvsname",
        Op::Put => b"put_result",
        Op::Get => b"get_result",
        Op::Fence => b"barrier_out",
        Op::Publish => b"publish_result",
        Op::Unpublish => b"unpublish_result",
        Op::Lookup => b"lookup_result",
        Op::Spawn => b"spawn_result",
        Op::Finalize => b"finalize_ack",
        Op::FullInit
        | Op::PutNodeAttr
        | Op::GetNodeAttr
        | Op::GetJobAttr
        | Op::Connect
        | Op::Disconnect
        | Op::Ring
        | Op::PsetCount
        | Op::PsetName
        | Op::PsetInfo
        | Op::PsetMembers
        | Op::PsetDefine
        | Op::PsetCombine
        | Op::PsetNext
        | Op::PsetRetire
        | Op::PsetPrune
        | Op::Abort
        | Op::Unknown => b"unknown_result",
    }
}

/// Returns whether older clients expect `info=ok` instead of `rc=0`.
fn has_info(op: Op) -> bool {
    matches!(op, Op::Publish | Op::Unpublish | Op::Lookup)
}

fn start(w: &mut Writer<'_>, op: Op) {
    w.raw(b"cmd=").raw(name(op)).raw(b" rc=0");
    if has_info(op) {
        w.raw(b" info=ok");
    }
}

fn put(w: &mut Writer<'_>, reply: &Reply<'_>) -> Result<(), EncodeError> {
    if let Reply::Refused(op, failure) = reply {
        refused(w, *op, failure, Codes::same(0, 0));
        return Ok(());
    }
    if let Reply::NotSpawned { why, codes } = reply {
        refused(w, Op::Spawn, why, *codes);
        return Ok(());
    }
    if let Reply::Missing(op @ Op::Get) = reply {
        w.raw(b"cmd=").raw(name(*op)).raw(b" rc=1 msg=key_not_found value=unknown\n");
        return Ok(());
    }
    start(w, reply.op());
    match reply {
        Reply::Init { version, subversion } => {
            w.raw(b" pmi_version=").number(*version).raw(b" pmi_subversion=").number(*subversion)
        }
        Reply::InitAck { rank, size, appnum } => {
            w.raw(b" rank=").number(*rank).raw(b" size=").number(*size);
            w.raw(b" appnum=").number(*appnum).raw(b" debug=0");
            w.raw(b"\ncmd=set size=").number(*size).raw(b"\ncmd=set rank=").number(*rank);
            w.raw(b"\ncmd=set debug=0")
        }
        Reply::Found(Op::Get, value) => w.raw(b" value=").text(value),
        Reply::Maxes { kvsname, key, value } => {
            w.raw(b" kvsname_max=").number(*kvsname).raw(b" keylen_max=").number(*key);
            w.raw(b" vallen_max=").number(*value)
        }
        Reply::UniverseSize(size) => known(w.raw(b" size="), *size),
        Reply::Appnum(appnum) => known(w.raw(b" appnum="), *appnum),
        Reply::JobId(jobid) => w.raw(b" kvsname=").text(jobid),
        Reply::Port(port) => w.raw(b" port=").text(port),
        Reply::Spawned { jobid: _, codes } => {
            put_codes(w, codes);
            &mut *w
        }
        Reply::Fence { tag: Some(tag) } => w.raw(b" tag=").number(*tag),
        Reply::Fence { tag: None } | Reply::Done(_) => &mut *w,
        Reply::Missing(_)
        | Reply::Refused(..)
        | Reply::FullInit { .. }
        | Reply::Found(..)
        | Reply::NotSpawned { .. }
        | Reply::PsetCount(_)
        | Reply::PsetName(_)
        | Reply::PsetNext { .. }
        | Reply::PsetInfo { .. }
        | Reply::PsetMembers { .. }
        | Reply::Ring { .. } => return Err(EncodeError::Unsupported),
    };
    w.raw(b"\n");
    Ok(())
}

/// Writes a number, or -1 if it is not known.
fn known<'w, 'b>(w: &'w mut Writer<'b>, number: Option<u32>) -> &'w mut Writer<'b> {
    match number {
        Some(number) => w.number(number),
        None => w.integer(-1),
    }
}

fn put_codes(w: &mut Writer<'_>, codes: &Codes<'_>) {
    for (i, code) in codes.iter().enumerate() {
        w.raw(if i == 0 { b" errcodes=" } else { b"," }).integer(code);
    }
}

/// Encodes an error reply. All PMI-1 clients read `msg`. MPICH 5 reads `errmsg` too.
#[cold]
fn refused(w: &mut Writer<'_>, op: Op, failure: &Failure<'_>, codes: Codes<'_>) {
    w.raw(b"cmd=").raw(name(op)).raw(b" rc=");
    match failure {
        Failure::Refusal(refusal) => w.integer(refusal.rc()),
        Failure::Remote(rc, _) => w.integer(*rc),
    };
    if has_info(op) {
        w.raw(b" info=failed");
    }
    match failure {
        Failure::Refusal(refusal) => w.raw(b" msg=").display(refusal),
        Failure::Remote(_, message) if message.is_empty() => &mut *w,
        Failure::Remote(_, message) => w.raw(b" msg=").token(message),
    };
    put_codes(w, &codes);
    w.raw(b"\n");
}

/// Decodes a reply: a line, or the four lines for `initack` (see [`crate::frame::next_reply`]).
///
/// # Errors
/// [`Malformed`] if it is not a reply of PMI-1, or lacks a required field.
pub fn decode_reply<'a>(frame: &Frame<'a>) -> Result<Reply<'a>, Malformed> {
    let line = frame.body.strip_prefix(b"cmd=").ok_or(Malformed::NoCommand)?;
    // The first of hydra 4's four lines for `initack` is the name alone.
    let end = line.iter().position(|&b| b == b' ' || b == b'\n').unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let op = op(name).ok_or(Malformed::NoCommand)?;
    let last: &[u8] = match op {
        Op::Get => b"value",
        Op::Lookup => b"port",
        Op::GetJobId => b"kvsname",
        _ => b"",
    };
    let mut fields = Fields::new(Pairs::reply(rest, last));
    // Servers before MPICH 4.1 omit `rc` in replies that cannot be errors.
    let [rc, message, info] = fields.pick([b"rc", b"msg", b"info"]);
    let rc = match rc {
        Some(rc) => integer(rc).map_err(|_| Malformed::Structure)?,
        None if has_info(op) && info.is_some_and(|info| info != *b"ok".as_slice()) => -1,
        None => 0,
    };
    if rc != 0 {
        let message = message.unwrap_or(Text::plain(b""));
        let why = Failure::Remote(rc, message);
        let codes = fields.pick([b"errcodes"])[0].and_then(|codes| Codes::decode(codes.as_plain()?));
        return Ok(match (op, codes) {
            (Op::Get, _) if is_miss(&message) => Reply::Missing(op),
            (Op::Spawn, Some(codes)) => Reply::NotSpawned { why, codes },
            _ => Reply::Refused(op, why),
        });
    }
    success(op, &mut fields).ok_or(Malformed::Structure)
}

/// Returns whether an error message means a missing key. It is empty in hydra 5, `key_KEY_not_found` in hydra 4, and
/// `key_not_found` in others.
fn is_miss(message: &Text<'_>) -> bool {
    message.as_plain().is_some_and(|message| {
        message.is_empty() || message.starts_with(b"key_") && message.ends_with(b"not_found")
    })
}

fn op(name: &[u8]) -> Option<Op> {
    Some(match name {
        b"response_to_init" => Op::Init,
        b"initack" => Op::InitAck,
        b"maxes" => Op::GetMaxes,
        b"universe_size" => Op::GetUniverseSize,
        b"appnum" => Op::GetAppnum,
        b"my_kvsname" => Op::GetJobId,
        b"put_result" => Op::Put,
        b"get_result" => Op::Get,
        b"barrier_out" => Op::Fence,
        b"publish_result" => Op::Publish,
        b"unpublish_result" => Op::Unpublish,
        b"lookup_result" => Op::Lookup,
        b"spawn_result" => Op::Spawn,
        b"finalize_ack" => Op::Finalize,
        b"unknown_result" => Op::Unknown,
        _ => return None,
    })
}

/// Parses a number. -1 stands for a number that the server does not know.
fn unless_unknown(field: Text<'_>) -> Option<Option<u32>> {
    if field == *b"-1".as_slice() { Some(None) } else { number(field).ok().map(Some) }
}

fn success<'a>(op: Op, fields: &mut Fields<'a>) -> Option<Reply<'a>> {
    let plain = |field: Option<Text<'_>>| field.and_then(|text| number(text).ok());
    Some(match op {
        Op::Init => {
            let [version, subversion] = fields.pick([b"pmi_version", b"pmi_subversion"]).map(plain);
            Reply::Init { version: version?, subversion: subversion? }
        }
        Op::InitAck => {
            let [rank, size, appnum] = fields.pick([b"rank", b"size", b"appnum"]).map(plain);
            Reply::InitAck { rank: rank?, size: size?, appnum: appnum.unwrap_or(0) }
        }
        Op::GetMaxes => {
            let names = [&b"kvsname_max"[..], b"keylen_max", b"vallen_max"];
            let [kvsname, key, value] = fields.pick(names).map(plain);
            Reply::Maxes { kvsname: kvsname?, key: key?, value: value? }
        }
        Op::GetUniverseSize => Reply::UniverseSize(unless_unknown(fields.pick([b"size"])[0]?)?),
        Op::GetAppnum => Reply::Appnum(unless_unknown(fields.pick([b"appnum"])[0]?)?),
        Op::GetJobId => Reply::JobId(fields.pick([b"kvsname"])[0]?),
        Op::Get => Reply::Found(op, fields.pick([b"value"])[0]?),
        Op::Lookup => Reply::Port(fields.pick([b"port"])[0]?),
        Op::Spawn => {
            let [codes] = fields.pick([b"errcodes"]);
            let codes = codes.unwrap_or(Text::plain(b"")).as_plain()?;
            Reply::Spawned { jobid: Text::plain(b""), codes: Codes::decode(codes)? }
        }
        Op::Fence => Reply::Fence { tag: plain(fields.pick([b"tag"])[0]) },
        _ => Reply::Done(op),
    })
}
