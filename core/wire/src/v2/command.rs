//! Commands of PMI-2.

use super::ESCAPED_VALUE;
use crate::command::{Command, Message, Op, Persistence, RankRanges, SetOperation};
use crate::fields::{Fields, Pairs, boolean, filled, integer, need, number};
use crate::frame::{Frame, Kind};
use crate::spawn::Spawn;
use crate::token::Text;
use crate::v1;
use crate::write::{EncodeError, Style, Writer};
use crate::{Malformed, Refusal};

/// Decodes a counted message, or the line `init`.
///
/// # Errors
/// [`Malformed`] for a frame that is no request. The connection must then be closed.
pub fn decode<'a>(frame: &Frame<'a>) -> Result<Message<'a>, Malformed> {
    if frame.kind != Kind::Counted {
        return v1::decode(frame);
    }
    let body = frame.body.strip_prefix(b"cmd=").ok_or(Malformed::NoCommand)?;
    let end = body.iter().position(|&b| b == b';').unwrap_or(body.len());
    let (name, rest) = body.split_at(end);
    let op = op(name);
    let mut fields = Fields::new(Pairs::counted(rest.get(1..).unwrap_or_default()));
    Ok(Message { op, command: command(op, &mut fields), thrid: fields.thrid })
}

fn op(name: &[u8]) -> Op {
    match name {
        b"fullinit" => Op::FullInit,
        b"finalize" => Op::Finalize,
        b"abort" => Op::Abort,
        b"job-getid" => Op::GetJobId,
        b"job-connect" => Op::Connect,
        b"job-disconnect" => Op::Disconnect,
        b"kvs-put" => Op::Put,
        b"kvs-get" => Op::Get,
        b"kvs-fence" => Op::Fence,
        b"info-putnodeattr" => Op::PutNodeAttr,
        b"info-getnodeattr" => Op::GetNodeAttr,
        b"info-getjobattr" => Op::GetJobAttr,
        b"name-publish" => Op::Publish,
        b"name-unpublish" => Op::Unpublish,
        b"name-lookup" => Op::Lookup,
        b"spawn" => Op::Spawn,
        b"ring" => Op::Ring,
        b"pset-count" => Op::PsetCount,
        b"pset-name" => Op::PsetName,
        b"pset-info" => Op::PsetInfo,
        b"pset-members" => Op::PsetMembers,
        b"pset-define" => Op::PsetDefine,
        b"pset-combine" => Op::PsetCombine,
        b"pset-next" => Op::PsetNext,
        b"pset-retire" => Op::PsetRetire,
        b"pset-prune" => Op::PsetPrune,
        _ => Op::Unknown,
    }
}

fn command<'a>(op: Op, fields: &mut Fields<'a>) -> Result<Command<'a>, Refusal> {
    Ok(match op {
        Op::Put => {
            let [key, value, escaped] = fields.pick([b"key", b"value", ESCAPED_VALUE]);
            Command::Put { kvs: None, key: need(key)?, value: need(value.or(escaped.map(Text::binary)))? }
        }
        Op::Get => {
            let [kvs, source, key] = fields.pick([b"jobid", b"srcid", b"key"]);
            // MPICH sends -1 without a hint.
            let source = source.and_then(|rank| number(rank).ok());
            Command::Get { kvs: filled(kvs), key: need(key)?, source }
        }
        Op::Fence => {
            fields.pick([]);
            Command::Fence { group: None }
        }
        Op::FullInit => full_init(fields)?,
        Op::PutNodeAttr => {
            let [key, value, escaped] = fields.pick([b"key", b"value", ESCAPED_VALUE]);
            Command::PutNodeAttr { key: need(key)?, value: need(value.or(escaped.map(Text::binary)))? }
        }
        Op::GetNodeAttr => {
            let [key, wait] = fields.pick([b"key", b"wait"]);
            Command::GetNodeAttr { key: need(key)?, wait: boolean(wait, false)? }
        }
        Op::GetJobAttr => Command::GetJobAttr { key: need(fields.pick([b"key"])[0])? },
        Op::Publish => {
            let [name, port, persistence] = fields.pick([b"name", b"port", b"persist"]);
            let persistence = Persistence::named(persistence)?;
            Command::Publish { name: need(name)?, port: need(port)?, persistence }
        }
        Op::Unpublish => {
            let [name, party] = fields.pick([b"name", b"for"]);
            Command::Unpublish { name: need(name)?, party }
        }
        Op::Lookup => {
            let [name, wait, party] = fields.pick([b"name", b"wait", b"for"]);
            Command::Lookup { name: need(name)?, wait: wait.map(number).transpose()?, party }
        }
        Op::Connect => Command::Connect { jobid: need(fields.pick([b"jobid"])[0])? },
        Op::Disconnect => Command::Disconnect { jobid: need(fields.pick([b"jobid"])[0])? },
        Op::Ring => {
            let [count, left, right] = fields.pick([b"ring-count", b"ring-left", b"ring-right"]);
            Command::Ring { count: number(need(count)?)?, left: need(left)?, right: need(right)? }
        }
        Op::PsetName => Command::PsetName { index: number(need(fields.pick([b"index"])[0])?)? },
        Op::PsetInfo => Command::PsetInfo { name: need(fields.pick([b"name"])[0])? },
        Op::PsetMembers => {
            let [name, from] = fields.pick([b"name", b"from"]);
            Command::PsetMembers { name: need(name)?, from: from.map_or(Ok(0), number)? }
        }
        Op::PsetDefine => {
            let [name, members] = fields.pick([b"name", b"members"]);
            let members = need(members)?.as_plain().and_then(RankRanges::new);
            Command::PsetDefine { name: need(name)?, members: members.ok_or(Refusal::BadField)? }
        }
        Op::PsetCombine => {
            let [name, operation, one, other] = fields.pick([b"name", b"operation", b"pset1", b"pset2"]);
            let operation = SetOperation::named(&need(operation)?).ok_or(Refusal::BadField)?;
            Command::PsetCombine { name: need(name)?, operation, operands: [need(one)?, need(other)?] }
        }
        Op::PsetNext => Command::PsetNext { after: fields.pick([b"after"])[0].map_or(Ok(0), number)? },
        Op::PsetRetire => Command::PsetRetire { name: need(fields.pick([b"name"])[0])? },
        Op::Abort => abort(fields),
        Op::Spawn => {
            fields.pick([]);
            Command::Spawn(Spawn::counted(fields.pairs())?)
        }
        _ => {
            fields.pick([]);
            match op {
                Op::Finalize => Command::Finalize,
                Op::GetJobId => Command::GetJobId,
                Op::PsetCount => Command::PsetCount,
                Op::PsetPrune => Command::PsetPrune,
                _ => return Err(Refusal::Unsupported),
            }
        }
    })
}

/// Decodes `fullinit`. MPICH sends `pmirank` only. Slurm's library sends `pmijobid`, `pmirank` and `threaded`, or
/// `srcid` if it has `PMI_ID`.
fn full_init<'a>(fields: &mut Fields<'a>) -> Result<Command<'a>, Refusal> {
    let [rank, srcid, jobid, threaded] = fields.pick([b"pmirank", b"srcid", b"pmijobid", b"threaded"]);
    Ok(Command::FullInit {
        rank: rank.or(srcid).map(number).transpose()?,
        jobid: filled(jobid),
        threaded: boolean(threaded, false)?,
    })
}

/// Decodes `abort`. MPICH 5 sends `exitcode` and `message`. MPICH 4 and Slurm's library send `isworld` and `msg`. An
/// abort has no reply, so malformed fields are ignored.
fn abort<'a>(fields: &mut Fields<'a>) -> Command<'a> {
    let [code, world, message, msg] = fields.pick([b"exitcode", b"isworld", b"message", b"msg"]);
    Command::Abort {
        code: code.and_then(|code| integer(code).ok()),
        world: boolean(world, true).unwrap_or(true),
        message: message.or(msg).unwrap_or(Text::plain(b"")),
    }
}

/// Encodes a command. `init` is a line. A value with NUL is escaped, which only servers read that have the attribute
/// [`ESCAPES_ATTR`](crate::limits::ESCAPES_ATTR).
///
/// # Errors
/// [`EncodeError::Unsupported`] for a command that only PMI-1 has, a `put` into another job's space, or a fence of a group.
/// Others: see [`EncodeError`].
pub fn encode<'b>(
    command: &Command<'_>,
    thrid: Option<Text<'_>>,
    buf: &'b mut [u8],
) -> Result<&'b [u8], EncodeError> {
    if matches!(command, Command::Init { .. }) {
        return v1::encode(command, buf);
    }
    let mut w = Writer::new(buf, Style::Counted);
    w.raw(b"      cmd=").raw(name(command).ok_or(EncodeError::Unsupported)?).raw(b";");
    if let Some(thrid) = thrid {
        w.raw(b"thrid=").text(&thrid).raw(b";");
    }
    put(&mut w, command);
    w.count();
    w.finish()
}

fn name(command: &Command<'_>) -> Option<&'static [u8]> {
    Some(match command {
        Command::FullInit { .. } => b"fullinit",
        Command::GetJobId => b"job-getid",
        Command::Put { kvs: None, .. } => b"kvs-put",
        Command::Get { .. } => b"kvs-get",
        Command::Fence { group: None } => b"kvs-fence",
        Command::PutNodeAttr { .. } => b"info-putnodeattr",
        Command::GetNodeAttr { .. } => b"info-getnodeattr",
        Command::GetJobAttr { .. } => b"info-getjobattr",
        Command::Publish { .. } => b"name-publish",
        Command::Unpublish { .. } => b"name-unpublish",
        Command::Lookup { .. } => b"name-lookup",
        Command::Spawn(_) => b"spawn",
        Command::Connect { .. } => b"job-connect",
        Command::Disconnect { .. } => b"job-disconnect",
        Command::Ring { .. } => b"ring",
        Command::PsetCount => b"pset-count",
        Command::PsetName { .. } => b"pset-name",
        Command::PsetInfo { .. } => b"pset-info",
        Command::PsetMembers { .. } => b"pset-members",
        Command::PsetDefine { .. } => b"pset-define",
        Command::PsetCombine { .. } => b"pset-combine",
        Command::PsetNext { .. } => b"pset-next",
        Command::PsetRetire { .. } => b"pset-retire",
        Command::PsetPrune => b"pset-prune",
        Command::Abort { .. } => b"abort",
        Command::Finalize => b"finalize",
        _ => return None,
    })
}

fn field(w: &mut Writer<'_>, name: &[u8], value: &Text<'_>) {
    w.raw(name).raw(b"=").text(value).raw(b";");
}

fn flag(value: bool) -> Text<'static> {
    Text::plain(if value { b"TRUE" } else { b"FALSE" })
}

fn put(w: &mut Writer<'_>, command: &Command<'_>) {
    match command {
        Command::FullInit { rank, jobid, threaded } => {
            if let Some(jobid) = jobid {
                field(w, b"pmijobid", jobid);
            }
            if let Some(rank) = rank {
                w.raw(b"pmirank=").number(*rank).raw(b";");
            }
            field(w, b"threaded", &flag(*threaded));
        }
        Command::Put { key, value, .. } | Command::PutNodeAttr { key, value } => {
            field(w, b"key", key);
            if value.holds_nul() {
                w.raw(ESCAPED_VALUE).raw(b"=").binary(value).raw(b";");
            } else {
                field(w, b"value", value);
            }
        }
        Command::Get { kvs, key, source } => {
            if let Some(kvs) = kvs {
                field(w, b"jobid", kvs);
            }
            if let Some(rank) = source {
                w.raw(b"srcid=").number(*rank).raw(b";");
            }
            field(w, b"key", key);
        }
        Command::GetNodeAttr { key, wait } => {
            field(w, b"key", key);
            field(w, b"wait", &flag(*wait));
        }
        Command::GetJobAttr { key } => field(w, b"key", key),
        Command::Publish { name, port, persistence } => {
            field(w, b"name", name);
            field(w, b"port", port);
            if let Some(persistence) = persistence.name() {
                field(w, b"persist", &Text::plain(persistence));
            }
        }
        Command::Unpublish { name, party } => {
            field(w, b"name", name);
            party.iter().for_each(|party| field(w, b"for", party));
        }
        Command::Lookup { name, wait, party } => {
            field(w, b"name", name);
            if let Some(wait) = wait {
                w.raw(b"wait=").number(*wait).raw(b";");
            }
            party.iter().for_each(|party| field(w, b"for", party));
        }
        Command::Connect { jobid } | Command::Disconnect { jobid } => field(w, b"jobid", jobid),
        Command::Ring { count, left, right } => {
            w.raw(b"ring-count=").number(*count).raw(b";");
            field(w, b"ring-left", left);
            field(w, b"ring-right", right);
        }
        Command::PsetName { index } => {
            w.raw(b"index=").number(*index).raw(b";");
        }
        Command::PsetInfo { name } | Command::PsetRetire { name } => field(w, b"name", name),
        Command::PsetNext { after } => {
            w.raw(b"after=").number(*after).raw(b";");
        }
        Command::PsetMembers { name, from } => {
            field(w, b"name", name);
            w.raw(b"from=").number(*from).raw(b";");
        }
        Command::PsetDefine { name, members } => {
            field(w, b"name", name);
            w.raw(b"members=").raw(members.as_bytes()).raw(b";");
        }
        Command::PsetCombine { name, operation, operands: [one, other] } => {
            field(w, b"name", name);
            w.raw(b"operation=").raw(operation.name()).raw(b";");
            field(w, b"pset1", one);
            field(w, b"pset2", other);
        }
        Command::Abort { code, world, message } => {
            if let Some(code) = code {
                w.raw(b"exitcode=").integer(*code).raw(b";");
            }
            field(w, b"isworld", &flag(*world));
            // Slurm's server and hydra 4 read `msg`, hydra 5 reads `message`.
            field(w, b"msg", message);
            field(w, b"message", message);
        }
        Command::Spawn(spawn) => put_spawn(w, spawn),
        _ => {}
    }
}

fn put_spawn(w: &mut Writer<'_>, spawn: &Spawn<'_>) {
    w.raw(b"ncmds=").number(spawn.count()).raw(b";");
    numbered(w, [b"preputcount", b"ppkey", b"ppval"], || spawn.preput());
    for program in spawn.programs() {
        field(w, b"subcmd", &program.command());
        w.raw(b"maxprocs=").number(program.maxprocs());
        w.raw(b";argc=").number(program.args().count() as u32).raw(b";");
        for (i, arg) in (0..).zip(program.args()) {
            w.raw(b"argv").number(i).raw(b"=").text(&arg).raw(b";");
        }
        numbered(w, [b"infokeycount", b"infokey", b"infoval"], || program.info());
    }
}

fn numbered<'a, I: Iterator<Item = (Text<'a>, Text<'a>)>>(
    w: &mut Writer<'_>,
    [count, key, value]: [&[u8]; 3],
    pairs: impl Fn() -> I,
) {
    w.raw(count).raw(b"=").number(pairs().count() as u32).raw(b";");
    for (i, (name, text)) in (0..).zip(pairs()) {
        w.raw(key).number(i).raw(b"=").text(&name).raw(b";");
        w.raw(value).number(i).raw(b"=").text(&text).raw(b";");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Framing, next_frame};

    fn asks(bytes: &[u8]) -> Message<'_> {
        let frame = next_frame(bytes, Framing::Counted).unwrap().unwrap();
        assert_eq!(frame.len as usize, bytes.len());
        decode(&frame).unwrap()
    }

    fn asked(command: Command<'static>) -> Message<'static> {
        Message { op: command.op(), command: Ok(command), thrid: None }
    }

    fn joins(rank: u32, jobid: Option<&'static str>) -> Command<'static> {
        Command::FullInit { rank: Some(rank), jobid: jobid.map(Text::from), threaded: false }
    }

    // Shows: pmi2.h, Messages | `pmijobid`, `pmirank`, `srcid`, `threaded` | who the client is | done
    // Also: launch `port::slurms_and_mpichs_ways_to_say_who_one_is`
    #[test]
    fn each_library_says_who_it_is_in_its_own_way() {
        for (bytes, command) in [
            (&b"    23cmd=fullinit;pmirank=1;"[..], joins(1, None)),
            (b"44    cmd=fullinit;pmirank=0;threaded=FALSE;\0\0\0\0\0\0", joins(0, None)),
            (b"54    cmd=fullinit;pmijobid=29.149;pmirank=0;threaded=FALSE;", joins(0, Some("29.149"))),
            (b"36    cmd=fullinit;srcid=1;threaded=FALSE;", joins(1, None)),
        ] {
            assert_eq!(asks(bytes), asked(command));
        }
    }

    // Shows: pmi2.h, Messages | `jobid` | a job's id | done
    // Also: libraries `pmi2::functions::every_code_where_it_belongs`
    // Shows: pmi2.h, Messages | `key`, `value`, `found`, `wait` | pairs, whether there is one, whether to wait for it |
    // done
    // Also: hydrant-wire `replies_of_pmi2`, launch `dynamic::a_node_attribute_is_waited_for`
    #[test]
    fn captured_messages() {
        let get = |kvs, key| Command::Get { kvs: Some(Text::from(kvs)), key: Text::from(key), source: None };
        for (bytes, command) in [
            (&b"    13cmd=finalize;"[..], Command::Finalize),
            (b"20    cmd=job-getid;\0\0\0\0\0\0", Command::GetJobId),
            (b"20    cmd=kvs-fence;\0;valu", Command::Fence { group: None }),
            (b"43    cmd=kvs-get;jobid=29.144;srcid=-1;key=bc-0;", get("29.144", "bc-0")),
            (b"    35cmd=kvs-get;jobid=kvs0;key=b-0-0-0;", get("kvs0", "b-0-0-0")),
            (
                b"41    cmd=kvs-put;key=semi-0;value=a;;b=c;;;;d;",
                Command::Put { kvs: None, key: "semi-0".into(), value: "a;b=c;;d".into() },
            ),
            (
                b"52    cmd=info-getnodeattr;key=-bcast-1-0;wait=TRUE;\0\0\0\0\0\0",
                Command::GetNodeAttr { key: "-bcast-1-0".into(), wait: true },
            ),
            (
                b"33    cmd=name-lookup;name=s;wait=2500;",
                Command::Lookup { name: "s".into(), wait: Some(2500), party: None },
            ),
            (
                b"41    cmd=info-getnodeattr;key=nope;wait=FALSE;",
                Command::GetNodeAttr { key: "nope".into(), wait: false },
            ),
            (
                b"45    cmd=info-putnodeattr;key=na;value=hello-node;",
                Command::PutNodeAttr { key: "na".into(), value: "hello-node".into() },
            ),
            (
                b"37    cmd=info-getjobattr;key=universeSize;",
                Command::GetJobAttr { key: "universeSize".into() },
            ),
            (
                b"55    cmd=ring;ring-count=1;ring-left=ring0;ring-right=ring0;",
                Command::Ring { count: 1, left: "ring0".into(), right: "ring0".into() },
            ),
        ] {
            assert_eq!(asks(bytes), asked(command));
        }
    }

    // Shows: pmi2.h, Messages | `isworld`, `msg` | whom an abort ends, and its message | done
    // Also: launch `spawn::a_rank_that_aborts_itself_ends_alone`
    #[test]
    fn abort_in_both_dialects() {
        let message = "application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1".into();
        let abort = |code, world, message| asked(Command::Abort { code, world, message });
        let mpich4 =
            b"93    cmd=abort;isworld=TRUE;msg=application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1;\
            \x7f\x00\x00\xd0\xe7\xa4";
        assert_eq!(asks(mpich4), abort(None, true, message));
        let mpich5 = b"    40cmd=abort;exitcode=-1;message=all of it;";
        assert_eq!(asks(mpich5), abort(Some(-1), true, "all of it".into()));
        assert_eq!(asks(b"    25cmd=abort;isworld=FALSE; "), abort(None, false, "".into()));
        assert_eq!(asks(b"    27cmd=abort;exitcode=;isworld"), abort(None, true, "".into()));
    }

    // Shows: pmi2.h, Messages | `thrid` | the thread that a reply belongs to | done
    // Also: libraries `pmi2::functions::threads_under_hydrant`
    #[test]
    fn threads_are_told_apart_wherever_thrid_stands() {
        for bytes in [&b"    29cmd=kvs-get;thrid=0x7f;key=a;"[..], b"    29cmd=kvs-get;key=a;thrid=0x7f;"] {
            let command = Command::Get { kvs: None, key: "a".into(), source: None };
            assert_eq!(asks(bytes), Message { thrid: Some("0x7f".into()), ..asked(command) });
        }
        let refused = asks(b"    23cmd=pset-list;thrid=ab;");
        let (op, command) = (Op::Unknown, Err(Refusal::Unsupported));
        assert_eq!(refused, Message { op, command, thrid: Some("ab".into()) });
    }

    // Shows: pmi2.h, Messages | `TRUE`, `FALSE` | truth values | done: others are refused
    #[test]
    fn refusals_name_what_was_asked() {
        for (bytes, op, refusal) in [
            (&b"     4cmd="[..], Op::Unknown, Refusal::Unsupported),
            (b"    22cmd=kvs-put;key=abcd;x", Op::Put, Refusal::MissingField),
            (b"    25cmd=kvs-put;key=a;value=b", Op::Put, Refusal::MissingField),
            (b"    24cmd=fullinit;pmirank=-1;", Op::FullInit, Refusal::BadField),
            (b"    37cmd=info-getnodeattr;key=na;wait=yes;", Op::GetNodeAttr, Refusal::BadField),
            (b"    31cmd=name-lookup;name=s;wait=-1;", Op::Lookup, Refusal::BadField),
            (b"    44cmd=ring;ring-count=x;ring-left=;ring-right;", Op::Ring, Refusal::BadField),
        ] {
            assert_eq!(asks(bytes), Message { op, command: Err(refusal), thrid: None });
        }
    }
}
