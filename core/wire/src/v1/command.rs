//! Commands of PMI-1.

use crate::command::{Command, Group, Members, Message, Op, Persistence};
use crate::fields::{Fields, Pairs, filled, integer, need, number};
use crate::frame::{Frame, Kind};
use crate::spawn::Spawn;
use crate::token::Text;
use crate::write::{EncodeError, Style, Writer};
use crate::{Malformed, Refusal};

/// Decodes a line or a block.
///
/// # Errors
/// [`Malformed`] for a frame that is no request. The connection must then be closed.
pub fn decode<'a>(frame: &Frame<'a>) -> Result<Message<'a>, Malformed> {
    Ok(match frame.kind {
        Kind::Block => Message { op: Op::Spawn, command: spawn(frame.body), thrid: None },
        _ => {
            let line = frame.body.strip_prefix(b"cmd=").ok_or(Malformed::NoCommand)?;
            let end = line.iter().position(|&b| b == b' ').unwrap_or(line.len());
            let (name, rest) = line.split_at(end);
            let rest = rest.get(1..).unwrap_or_default();
            let op = op(name);
            // Servers differ in where a value ends. As in flux, the value of `put` extends to the end of the line,
            // which loses nothing. The message of `abort` is free text.
            let last: &[u8] = match op {
                Op::Put => b"value",
                Op::Abort => b"message",
                _ => b"",
            };
            Message { op, command: command(op, Fields::new(Pairs::line(rest, last))), thrid: None }
        }
    })
}

fn op(name: &[u8]) -> Op {
    match name {
        b"init" => Op::Init,
        b"initack" => Op::InitAck,
        b"get_maxes" => Op::GetMaxes,
        b"get_universe_size" => Op::GetUniverseSize,
        b"get_appnum" => Op::GetAppnum,
        b"get_my_kvsname" => Op::GetJobId,
        b"put" => Op::Put,
        b"get" => Op::Get,
        b"barrier_in" => Op::Fence,
        b"publish_name" => Op::Publish,
        b"unpublish_name" => Op::Unpublish,
        b"lookup_name" => Op::Lookup,
        b"finalize" => Op::Finalize,
        b"abort" => Op::Abort,
        _ => Op::Unknown,
    }
}

#[cold]
fn spawn(body: &[u8]) -> Result<Command<'_>, Refusal> {
    match Pairs::block(body).next() {
        Some((b"mcmd", name)) if name == *b"spawn".as_slice() => Spawn::blocks(body).map(Command::Spawn),
        _ => Err(Refusal::Unsupported),
    }
}

fn command<'a>(op: Op, mut fields: Fields<'a>) -> Result<Command<'a>, Refusal> {
    Ok(match op {
        Op::Put => {
            let [kvs, key, value] = fields.pick([b"kvsname", b"key", b"value"]);
            Command::Put { kvs: filled(kvs), key: need(key)?, value: need(value)? }
        }
        Op::Get => {
            let [kvs, key] = fields.pick([b"kvsname", b"key"]);
            Command::Get { kvs: filled(kvs), key: need(key)?, source: None }
        }
        Op::Fence => {
            let [group] = fields.pick([b"group"]);
            Command::Fence { group: group.map(Group::decode).transpose()? }
        }
        Op::Init => {
            let [version, subversion] = fields.pick([b"pmi_version", b"pmi_subversion"]);
            Command::Init { version: number(need(version)?)?, subversion: subversion.map_or(Ok(0), number)? }
        }
        Op::InitAck => {
            let [pmiid] = fields.pick([b"pmiid"]);
            Command::InitAck { pmiid: number(need(pmiid)?)? }
        }
        Op::GetMaxes => Command::GetMaxes,
        Op::GetUniverseSize => Command::GetUniverseSize,
        Op::GetAppnum => Command::GetAppnum,
        Op::GetJobId => Command::GetJobId,
        Op::Publish => {
            let [name, port] = fields.pick([b"service", b"port"]);
            Command::Publish { name: need(name)?, port: need(port)?, persistence: Persistence::Job }
        }
        Op::Unpublish => {
            let [name] = fields.pick([b"service"]);
            Command::Unpublish { name: need(name)?, party: None }
        }
        Op::Lookup => {
            let [name] = fields.pick([b"service"]);
            Command::Lookup { name: need(name)?, wait: None, party: None }
        }
        Op::Abort => {
            // An abort has no reply, so malformed fields are ignored.
            let [code, message] = fields.pick([b"exitcode", b"message"]);
            Command::Abort {
                code: code.and_then(|code| integer(code).ok()),
                world: true,
                message: message.unwrap_or(Text::plain(b"")),
            }
        }
        Op::Finalize => Command::Finalize,
        _ => return Err(Refusal::Unsupported),
    })
}

/// Encodes a command.
///
/// # Errors
/// [`EncodeError::Unsupported`] for a command that only PMI-2 has, or a look-up with a timeout. Others: see [`EncodeError`].
pub fn encode<'b>(command: &Command<'_>, buf: &'b mut [u8]) -> Result<&'b [u8], EncodeError> {
    let style = if matches!(command, Command::Spawn(_)) { Style::Line } else { Style::EscapedLine };
    let mut w = Writer::new(buf, style);
    match command {
        Command::Init { version, subversion } => {
            w.raw(b"cmd=init pmi_version=").number(*version);
            w.raw(b" pmi_subversion=").number(*subversion)
        }
        Command::InitAck { pmiid } => w.raw(b"cmd=initack pmiid=").number(*pmiid),
        Command::GetMaxes => w.raw(b"cmd=get_maxes"),
        Command::GetUniverseSize => w.raw(b"cmd=get_universe_size"),
        Command::GetAppnum => w.raw(b"cmd=get_appnum"),
        Command::GetJobId => w.raw(b"cmd=get_my_kvsname"),
        Command::Put { kvs, key, value } => {
            w.raw(b"cmd=put");
            field(&mut w, b" kvsname=", kvs);
            w.raw(b" key=").text(key).raw(b" value=").last(value)
        }
        Command::Get { kvs, key, .. } => {
            w.raw(b"cmd=get");
            field(&mut w, b" kvsname=", kvs);
            w.raw(b" key=").text(key)
        }
        Command::Fence { group } => {
            w.raw(b"cmd=barrier_in");
            match group {
                None => &mut w,
                Some(Group { members, tag }) => {
                    w.raw(b" group=");
                    match members {
                        Members::World => w.raw(b"WORLD"),
                        Members::Node => w.raw(b"NODE"),
                        Members::Ranks(list) => w.raw(list.as_bytes()),
                    };
                    w.raw(b":").number(*tag)
                }
            }
        }
        Command::Publish { name, port, persistence: Persistence::Job } => {
            w.raw(b"cmd=publish_name service=").text(name).raw(b" port=").text(port)
        }
        Command::Unpublish { name, party: None } => w.raw(b"cmd=unpublish_name service=").text(name),
        Command::Lookup { name, wait: None, party: None } => w.raw(b"cmd=lookup_name service=").text(name),
        Command::Abort { code, message, world: _ } => {
            w.raw(b"cmd=abort");
            if let Some(code) = code {
                w.raw(b" exitcode=").integer(*code);
            }
            w.raw(b" message=").last(message)
        }
        Command::Finalize => w.raw(b"cmd=finalize"),
        Command::Spawn(spawn) => {
            blocks(&mut w, spawn);
            return w.finish();
        }
        Command::FullInit { .. }
        | Command::Unpublish { .. }
        | Command::Lookup { .. }
        | Command::Publish { .. }
        | Command::PutNodeAttr { .. }
        | Command::GetNodeAttr { .. }
        | Command::GetJobAttr { .. }
        | Command::Connect { .. }
        | Command::Disconnect { .. }
        | Command::Ring { .. }
        | Command::PsetCount
        | Command::PsetName { .. }
        | Command::PsetInfo { .. }
        | Command::PsetMembers { .. }
        | Command::PsetDefine { .. }
        | Command::PsetCombine { .. }
        | Command::PsetNext { .. }
        | Command::PsetRetire { .. }
        | Command::PsetPrune => return Err(EncodeError::Unsupported),
    };
    w.raw(b"\n");
    w.finish()
}

fn field(w: &mut Writer<'_>, name: &[u8], value: &Option<Text<'_>>) {
    if let Some(value) = value {
        w.raw(name).text(value);
    }
}

fn blocks(w: &mut Writer<'_>, spawn: &Spawn<'_>) {
    for (number, program) in (1..).zip(spawn.programs()) {
        w.raw(b"mcmd=spawn\nnprocs=").number(program.maxprocs());
        w.raw(b"\nexecname=").text(&program.command());
        w.raw(b"\ntotspawns=").number(spawn.count());
        w.raw(b"\nspawnssofar=").number(number);
        let mut argc = 0;
        for arg in program.args() {
            argc += 1;
            w.raw(b"\narg").number(argc).raw(b"=").text(&arg);
        }
        w.raw(b"\nargcnt=").number(argc);
        if number == 1 {
            let pairs = [&b"preput_num"[..], b"preput_key_", b"preput_val_"];
            numbered(w, pairs, spawn.preput());
        }
        numbered(w, [b"info_num", b"info_key_", b"info_val_"], program.info());
        w.raw(b"\nendcmd\n");
    }
}

fn numbered<'a>(
    w: &mut Writer<'_>,
    [count, key, value]: [&[u8]; 3],
    pairs: impl Iterator<Item = (Text<'a>, Text<'a>)>,
) {
    let mut there = 0;
    for (name, text) in pairs {
        w.raw(b"\n").raw(key).number(there).raw(b"=").text(&name);
        w.raw(b"\n").raw(value).number(there).raw(b"=").text(&text);
        there += 1;
    }
    w.raw(b"\n").raw(count).raw(b"=").number(there);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RankList;
    use crate::frame::{Framing, next_frame};
    use std::vec::Vec;

    fn asks(line: &str) -> Result<Command<'_>, (Op, Refusal)> {
        let frame = next_frame(line.as_bytes(), Framing::Line).unwrap().unwrap();
        assert_eq!(frame.len as usize, line.len());
        let message = decode(&frame).unwrap();
        message.command.map_err(|refusal| (message.op, refusal))
    }

    #[test]
    fn captured_lines() {
        let kvs = Some(Text::from("kvs_7983_0_1613086391_vm"));
        for (line, command) in [
            ("cmd=init pmi_version=1 pmi_subversion=1\n", Command::Init { version: 1, subversion: 1 }),
            ("cmd=init pmi_version=2 pmi_subversion=0\n", Command::Init { version: 2, subversion: 0 }),
            ("cmd=initack pmiid=1\n", Command::InitAck { pmiid: 1 }),
            ("cmd=get_maxes\n", Command::GetMaxes),
            ("cmd=get_appnum\n", Command::GetAppnum),
            ("cmd=get_universe_size\n", Command::GetUniverseSize),
            ("cmd=get_my_kvsname\n", Command::GetJobId),
            (
                "cmd=get kvsname=kvs_7983_0_1613086391_vm key=PMI_process_mapping\n",
                Command::Get { kvs, key: "PMI_process_mapping".into(), source: None },
            ),
            (
                "cmd=put kvsname=kvs_7983_0_1613086391_vm key=-bcast-1-0 value=2F6465\n",
                Command::Put { kvs, key: "-bcast-1-0".into(), value: "2F6465".into() },
            ),
            ("cmd=barrier_in\n", Command::Fence { group: None }),
            ("cmd=finalize\n", Command::Finalize),
            (
                "cmd=abort exitcode=7 message=abort\n",
                Command::Abort { code: Some(7), world: true, message: "abort".into() },
            ),
        ] {
            assert_eq!(asks(line), Ok(command));
        }
    }

    #[test]
    fn put_takes_the_rest_of_the_line() {
        let put = Command::Put { kvs: None, key: "k".into(), value: "a b=c  \r".into() };
        assert_eq!(asks("cmd=put kvsname= key=k value=a b=c  \r\n"), Ok(put));
        let empty = Command::Put { kvs: None, key: "".into(), value: "".into() };
        assert_eq!(asks("cmd=put key= value=\n"), Ok(empty));
    }

    #[test]
    fn abort_is_read_as_far_as_it_can_be() {
        let free = Command::Abort { code: Some(-1), world: true, message: "of rank 3, by rank 3".into() };
        assert_eq!(asks("cmd=abort exitcode=-1 message=of rank 3, by rank 3\n"), Ok(free));
        let bare = Command::Abort { code: None, world: true, message: "".into() };
        assert_eq!(asks("cmd=abort\n"), Ok(bare));
        assert_eq!(asks("cmd=abort exitcode=x\n"), Ok(bare));
    }

    #[test]
    fn groups() {
        for (line, members, tag) in [
            ("cmd=barrier_in group=WORLD:3\n", Members::World, 3),
            ("cmd=barrier_in group=NODE\n", Members::Node, 0),
            // hydra fails on a list of one rank.
            ("cmd=barrier_in group=5:0\n", Members::Ranks(RankList::new(b"5").unwrap()), 0),
            ("cmd=barrier_in group=0,1,5:9\n", Members::Ranks(RankList::new(b"0,1,5").unwrap()), 9),
        ] {
            assert_eq!(asks(line), Ok(Command::Fence { group: Some(Group { members, tag }) }));
        }
        for group in
            ["", ":1", "0,,1:1", "0,1,:1", "0:x", "0:", "-1:0", "WORLD:1:2", "world:1", "4294967296:0"]
        {
            let line = std::format!("cmd=barrier_in group={group}\n");
            assert_eq!(asks(&line), Err((Op::Fence, Refusal::BadGroup)), "{line}");
        }
        let ranks: Vec<u32> = RankList::new(b"0,1,5").unwrap().iter().collect();
        assert_eq!(ranks, [0, 1, 5]);
    }

    #[test]
    fn refusals_name_what_was_asked() {
        for (line, refused) in [
            ("cmd=\n", (Op::Unknown, Refusal::Unsupported)),
            ("cmd=create_kvs\n", (Op::Unknown, Refusal::Unsupported)),
            ("cmd=init\n", (Op::Init, Refusal::MissingField)),
            ("cmd=init pmi_version=one\n", (Op::Init, Refusal::BadField)),
            ("cmd=initack pmiid=-1\n", (Op::InitAck, Refusal::BadField)),
            ("cmd=put key=a\n", (Op::Put, Refusal::MissingField)),
            ("cmd=get kvsname=a key\n", (Op::Get, Refusal::MissingField)),
            ("cmd=lookup_name\n", (Op::Lookup, Refusal::MissingField)),
            ("mcmd=other\nendcmd\n", (Op::Spawn, Refusal::Unsupported)),
        ] {
            assert_eq!(asks(line), Err(refused), "{line}");
        }
    }
}
