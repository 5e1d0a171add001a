//! Replies of PMI-2.

use super::ESCAPED_VALUE;
use crate::Malformed;
use crate::command::Op;
use crate::fields::{Fields, Pairs, boolean, filled, integer, number};
use crate::frame::{Frame, Kind};
use crate::reply::{self, Codes, Failure, Reply};
use crate::token::Text;
use crate::v1;
use crate::write::{EncodeError, Style, Writer};

/// Reply with its thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The reply.
    pub reply: Reply<'a>,
    /// Thread id of the command.
    pub thrid: Option<Text<'a>>,
}

/// Encodes a reply. The command's `thrid` comes directly after the name. The reply to `init` is a line. A text that
/// the message cannot carry becomes an error reply with [`Unprintable`](crate::Refusal::Unprintable); a value with NUL
/// follows there in a field that [`decode_reply`] reads. A reply that PMI-2 does not have becomes one with
/// [`Unsupported`](crate::Refusal::Unsupported).
///
/// # Errors
/// [`EncodeError::DoesNotFit`].
pub fn encode_reply<'b>(
    reply: &Reply<'_>,
    thrid: Option<Text<'_>>,
    buf: &'b mut [u8],
) -> Result<&'b [u8], EncodeError> {
    if matches!(reply.op(), Op::Init | Op::InitAck) {
        return v1::encode_reply(reply, buf);
    }
    reply::encode(reply, Style::Counted, buf, |w, written| {
        put(w, written, thrid)?;
        if let (Reply::Refused(..), Reply::Found(_, value)) = (written, reply) {
            w.raw(ESCAPED_VALUE).raw(b"=").binary(value).raw(b";").count();
        }
        Ok(())
    })
}

fn name(op: Op) -> &'static [u8] {
    match op {
        Op::FullInit => b"fullinit-response",
        Op::Finalize => b"finalize-response",
        Op::GetJobId => b"job-getid-response",
        Op::Connect => b"job-connect-response",
        Op::Disconnect => b"job-disconnect-response",
        Op::Put => b"kvs-put-response",
        Op::Get => b"kvs-get-response",
        Op::Fence => b"kvs-fence-response",
        Op::PutNodeAttr => b"info-putnodeattr-response",
        Op::GetNodeAttr => b"info-getnodeattr-response",
        Op::GetJobAttr => b"info-getjobattr-response",
        Op::Publish => b"name-publish-response",
        Op::Unpublish => b"name-unpublish-response",
        Op::Lookup => b"name-lookup-response",
        Op::Spawn => b"spawn-response",
        Op::Ring => b"ring-response",
        Op::PsetCount => b"pset-count-response",
        Op::PsetName => b"pset-name-response",
        Op::PsetInfo => b"pset-info-response",
        Op::PsetMembers => b"pset-members-response",
        Op::PsetDefine => b"pset-define-response",
        Op::PsetCombine => b"pset-combine-response",
        Op::PsetNext => b"pset-next-response",
        Op::PsetRetire => b"pset-retire-response",
        Op::PsetPrune => b"pset-prune-response",
        Op::Init
        | Op::InitAck
        | Op::GetMaxes
        | Op::GetUniverseSize
        | Op::GetAppnum
        | Op::Abort
        | Op::Unknown => b"unknown-response",
    }
}

fn put(w: &mut Writer<'_>, reply: &Reply<'_>, thrid: Option<Text<'_>>) -> Result<(), EncodeError> {
    w.raw(b"      cmd=").raw(name(reply.op())).raw(b";");
    if let Some(thrid) = thrid {
        w.raw(b"thrid=").text(&thrid).raw(b";");
    }
    match reply {
        Reply::Refused(_, why) => failure(w, why),
        Reply::NotSpawned { why, codes } => {
            failure(w, why);
            put_codes(w, codes);
        }
        _ => {
            w.raw(b"rc=0;");
            success(w, reply)?;
        }
    }
    w.count();
    Ok(())
}

fn failure(w: &mut Writer<'_>, why: &Failure<'_>) {
    match why {
        Failure::Refusal(refusal) => {
            w.raw(b"rc=").integer(refusal.rc()).raw(b";errmsg=").display(refusal).raw(b";");
        }
        Failure::Remote(rc, message) => {
            w.raw(b"rc=").integer(*rc).raw(b";errmsg=").text(message).raw(b";");
        }
    }
}

fn put_codes(w: &mut Writer<'_>, codes: &Codes<'_>) {
    let mut first = true;
    for code in codes.iter() {
        w.raw(if first { b"errcodes=" } else { b"," }).integer(code);
        first = false;
    }
    if !first {
        w.raw(b";");
    }
}

fn truth(value: bool) -> &'static [u8] {
    if value { b"TRUE" } else { b"FALSE" }
}

fn success(w: &mut Writer<'_>, reply: &Reply<'_>) -> Result<(), EncodeError> {
    match reply {
        // Slurm's PMI2_Init fails without one of these.
        Reply::FullInit { rank, size, appnum, debugged, verbose, spawner } => {
            w.raw(b"pmi-version=2;pmi-subversion=0;rank=").number(*rank);
            w.raw(b";size=").number(*size).raw(b";appnum=").number(*appnum);
            w.raw(b";debugged=").raw(truth(*debugged));
            w.raw(b";pmiverbose=").raw(truth(*verbose)).raw(b";");
            if let Some(spawner) = spawner {
                w.raw(b"spawner-jobid=").text(spawner).raw(b";");
            }
        }
        Reply::JobId(jobid) => {
            w.raw(b"jobid=").text(jobid).raw(b";");
        }
        Reply::Found(Op::Get | Op::GetNodeAttr | Op::GetJobAttr, value) => {
            w.raw(b"found=TRUE;value=").text(value).raw(b";");
        }
        Reply::Missing(Op::Get | Op::GetNodeAttr | Op::GetJobAttr) => {
            w.raw(b"found=FALSE;");
        }
        // MPICH reads `port`. Slurm's library reads `value`.
        Reply::Port(port) => {
            w.raw(b"port=").text(port).raw(b";value=").text(port).raw(b";");
        }
        Reply::Spawned { jobid, codes } => {
            w.raw(b"jobid=").text(jobid).raw(b";");
            put_codes(w, codes);
        }
        Reply::Ring { count, left, right } => {
            w.raw(b"ring-count=").number(*count).raw(b";ring-left=").text(left);
            w.raw(b";ring-right=").text(right).raw(b";");
        }
        Reply::PsetCount(count) => {
            w.raw(b"count=").number(*count).raw(b";");
        }
        Reply::PsetName(name) => {
            w.raw(b"name=").text(name).raw(b";");
        }
        Reply::PsetNext { name, serial } => {
            w.raw(b"name=").text(name).raw(b";serial=").number(*serial).raw(b";");
        }
        Reply::PsetInfo { size, serial } => {
            w.raw(b"size=").number(*size).raw(b";serial=").number(*serial).raw(b";");
        }
        Reply::PsetMembers { members, jobid, next } => {
            w.raw(b"members=").text(members).raw(b";");
            if let Some(jobid) = jobid {
                w.raw(b"jobid=").text(jobid).raw(b";");
            }
            if let Some(next) = next {
                w.raw(b"next=").number(*next).raw(b";");
            }
        }
        Reply::Done(Op::Connect | Op::Disconnect) => {
            w.raw(b"kvscopy=FALSE;");
        }
        Reply::Fence { tag: None } | Reply::Done(_) => {}
        _ => return Err(EncodeError::Unsupported),
    }
    Ok(())
}

/// Decodes a counted reply, or the line for `init`.
///
/// # Errors
/// [`Malformed`] if it is not a reply of PMI-2, or lacks a required field.
pub fn decode_reply<'a>(frame: &Frame<'a>) -> Result<Answer<'a>, Malformed> {
    if frame.kind != Kind::Counted {
        return v1::decode_reply(frame).map(|reply| Answer { reply, thrid: None });
    }
    let body = frame.body.strip_prefix(b"cmd=").ok_or(Malformed::NoCommand)?;
    let end = body.iter().position(|&b| b == b';').unwrap_or(body.len());
    let (name, rest) = body.split_at(end);
    let op = op(name).ok_or(Malformed::NoCommand)?;
    let mut fields = Fields::new(Pairs::counted(rest.get(1..).unwrap_or_default()));
    let [rc, message] = fields.pick([b"rc", b"errmsg"]);
    let thrid = fields.thrid;
    let rc = rc.and_then(|rc| integer(rc).ok()).ok_or(Malformed::Structure)?;
    let reply = if rc == 0 {
        read(op, &mut fields).ok_or(Malformed::Structure)?
    } else {
        match (op, filled(message)) {
            (Op::Get | Op::GetNodeAttr | Op::GetJobAttr, _)
                if let [Some(value)] = fields.pick([ESCAPED_VALUE]) =>
            {
                Reply::Found(op, value.binary())
            }
            (Op::Spawn, message) => {
                let why = Failure::Remote(rc, message.unwrap_or(Text::plain(b"")));
                match fields.pick([b"errcodes"])[0].and_then(|codes| Codes::decode(codes.as_plain()?)) {
                    Some(codes) => Reply::NotSpawned { why, codes },
                    None => Reply::Refused(op, why),
                }
            }
            // hydra 5 reports a missing key without a message: `cmd=kvs-get-response;rc=1;`.
            (Op::Get | Op::GetNodeAttr | Op::GetJobAttr, None) => Reply::Missing(op),
            (_, message) => Reply::Refused(op, Failure::Remote(rc, message.unwrap_or(Text::plain(b"")))),
        }
    };
    Ok(Answer { reply, thrid })
}

fn op(name: &[u8]) -> Option<Op> {
    Some(match name {
        b"fullinit-response" => Op::FullInit,
        b"finalize-response" => Op::Finalize,
        b"job-getid-response" => Op::GetJobId,
        b"job-connect-response" => Op::Connect,
        b"job-disconnect-response" => Op::Disconnect,
        b"kvs-put-response" => Op::Put,
        b"kvs-get-response" => Op::Get,
        b"kvs-fence-response" => Op::Fence,
        b"info-putnodeattr-response" => Op::PutNodeAttr,
        b"info-getnodeattr-response" => Op::GetNodeAttr,
        b"info-getjobattr-response" => Op::GetJobAttr,
        b"name-publish-response" => Op::Publish,
        b"name-unpublish-response" => Op::Unpublish,
        b"name-lookup-response" => Op::Lookup,
        b"spawn-response" => Op::Spawn,
        b"ring-response" => Op::Ring,
        b"pset-count-response" => Op::PsetCount,
        b"pset-name-response" => Op::PsetName,
        b"pset-info-response" => Op::PsetInfo,
        b"pset-members-response" => Op::PsetMembers,
        b"pset-define-response" => Op::PsetDefine,
        b"pset-combine-response" => Op::PsetCombine,
        b"pset-next-response" => Op::PsetNext,
        b"pset-retire-response" => Op::PsetRetire,
        b"pset-prune-response" => Op::PsetPrune,
        b"unknown-response" => Op::Unknown,
        _ => return None,
    })
}

fn read<'a>(op: Op, fields: &mut Fields<'a>) -> Option<Reply<'a>> {
    let plain = |field: Option<Text<'_>>| field.and_then(|text| number(text).ok());
    Some(match op {
        Op::FullInit => {
            let [rank, size, appnum, spawner] = fields.pick([b"rank", b"size", b"appnum", b"spawner-jobid"]);
            let [debugged, verbose] = fields.pick([b"debugged", b"pmiverbose"]);
            // Slurm's server sends `appnum=-1` for a single program.
            let appnum = plain(appnum).unwrap_or(0);
            let is_set = |field: Option<Text<'_>>| field.is_some_and(|text| text == b"TRUE"[..]);
            Reply::FullInit {
                rank: plain(rank)?,
                size: plain(size)?,
                appnum,
                debugged: is_set(debugged),
                verbose: is_set(verbose),
                spawner: filled(spawner),
            }
        }
        Op::GetJobId => Reply::JobId(fields.pick([b"jobid"])[0]?),
        Op::Get | Op::GetNodeAttr | Op::GetJobAttr => {
            let [found, value] = fields.pick([b"found", b"value"]);
            if boolean(found, value.is_some()).ok()? { Reply::Found(op, value?) } else { Reply::Missing(op) }
        }
        Op::Lookup => {
            let [port, value] = fields.pick([b"port", b"value"]);
            Reply::Port(port.or(value)?)
        }
        Op::Spawn => {
            let [jobid, codes] = fields.pick([b"jobid", b"errcodes"]);
            let codes = codes.unwrap_or(Text::plain(b"")).as_plain()?;
            Reply::Spawned { jobid: jobid.unwrap_or(Text::plain(b"")), codes: Codes::decode(codes)? }
        }
        Op::Ring => {
            let [count, left, right] = fields.pick([b"ring-count", b"ring-left", b"ring-right"]);
            Reply::Ring { count: plain(count)?, left: left?, right: right? }
        }
        Op::PsetCount => Reply::PsetCount(plain(fields.pick([b"count"])[0])?),
        Op::PsetName => Reply::PsetName(fields.pick([b"name"])[0]?),
        Op::PsetNext => {
            let [name, serial] = fields.pick([b"name", b"serial"]);
            Reply::PsetNext { name: name?, serial: plain(serial)? }
        }
        Op::PsetInfo => {
            let [size, serial] = fields.pick([b"size", b"serial"]);
            Reply::PsetInfo { size: plain(size)?, serial: plain(serial)? }
        }
        Op::PsetMembers => {
            let [members, jobid, next] = fields.pick([b"members", b"jobid", b"next"]);
            Reply::PsetMembers { members: members?, jobid, next: plain(next) }
        }
        Op::Fence => Reply::Fence { tag: None },
        _ => Reply::Done(op),
    })
}
