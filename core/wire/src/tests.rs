//! Tests of both protocols: round trips, replies as clients need them, arbitrary bytes.

use std::string::String;
use std::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::frame::next_reply;
use super::*;
use crate::limits::{Limit, OUTPUT_MAX};
use crate::{Malformed, Refusal};

fn framing(protocol: Protocol, op: Op) -> Framing {
    match (protocol, op) {
        (Protocol::V1, _) | (_, Op::Init | Op::InitAck) => Framing::Line,
        _ => Framing::Counted,
    }
}

fn said(protocol: Protocol, reply: &Reply<'_>) -> String {
    let mut buf = [0; OUTPUT_MAX];
    let bytes = encode_reply(protocol, reply, None, &mut buf).unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn replies_of_pmi1() {
    use Reply as R;
    let refused = |op, refusal| R::Refused(op, Failure::Refusal(refusal));
    for (reply, line) in [
        (R::Init { version: 1, subversion: 2 }, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n"),
        (
            R::InitAck { rank: 1, size: 2, appnum: 3 },
            "cmd=initack rc=0 rank=1 size=2 appnum=3 debug=0\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n",
        ),
        (
            R::Maxes { kvsname: 256, key: 64, value: 1024 },
            "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n",
        ),
        (R::UniverseSize(Some(8)), "cmd=universe_size rc=0 size=8\n"),
        (R::UniverseSize(None), "cmd=universe_size rc=0 size=-1\n"),
        (R::Appnum(Some(0)), "cmd=appnum rc=0 appnum=0\n"),
        (R::Appnum(None), "cmd=appnum rc=0 appnum=-1\n"),
        (R::JobId("kvs_1".into()), "cmd=my_kvsname rc=0 kvsname=kvs_1\n"),
        (R::Done(Op::Put), "cmd=put_result rc=0\n"),
        (R::Found(Op::Get, "a b;c\\".into()), "cmd=get_result rc=0 value=a b;c\\\n"),
        (R::Missing(Op::Get), "cmd=get_result rc=1 msg=key_not_found value=unknown\n"),
        (R::Fence { tag: None }, "cmd=barrier_out rc=0\n"),
        (R::Fence { tag: Some(7) }, "cmd=barrier_out rc=0 tag=7\n"),
        (R::Done(Op::Publish), "cmd=publish_result rc=0 info=ok\n"),
        (R::Done(Op::Unpublish), "cmd=unpublish_result rc=0 info=ok\n"),
        (R::Port("p#1$".into()), "cmd=lookup_result rc=0 info=ok port=p#1$\n"),
        (R::Done(Op::Finalize), "cmd=finalize_ack rc=0\n"),
        (
            R::Spawned { jobid: "j".into(), codes: Codes::new(&[0, 2, 125]) },
            "cmd=spawn_result rc=0 errcodes=0,2,125\n",
        ),
        (
            refused(Op::Put, Refusal::Full(Limit::Keys, 64)),
            "cmd=put_result rc=2 msg=limit_keys_(64)_is_used_up,_raise_it_with_--limit_keys=N\n",
        ),
        (
            refused(Op::Lookup, Refusal::NoName),
            "cmd=lookup_result rc=14 info=failed msg=nobody_has_published_that_name\n",
        ),
        (
            R::NotSpawned { why: Failure::Refusal(Refusal::NotStarted), codes: Codes::new(&[2, 125]) },
            "cmd=spawn_result rc=14 msg=nothing_was_started,_errcodes_say_why errcodes=2,125\n",
        ),
        (refused(Op::Unknown, Refusal::Unsupported), "cmd=unknown_result rc=14 msg=command_not_supported\n"),
        // Texts that a line cannot carry, and replies that PMI-1 does not have.
        (
            R::Found(Op::Get, "a\nb".into()),
            "cmd=get_result rc=6 msg=the_value_holds_a_byte_that_this_protocol_cannot_carry\n",
        ),
        (R::Missing(Op::GetJobAttr), "cmd=unknown_result rc=14 msg=command_not_supported\n"),
    ] {
        assert_eq!(said(Protocol::V1, &reply), line);
    }
}

// Shows: pmi2.h, Messages | `rc`, `errmsg` | the result, and the reason of an error | done
// Shows: pmi2.h, Messages | `pmi-version`, `pmi-subversion`, `rank`, `size`, `appnum` | the reply to `fullinit` |
// done
#[test]
fn replies_of_pmi2() {
    use Reply as R;
    let spawner = Some("kvs_1".into());
    for (reply, message) in [
        (
            R::FullInit { rank: 0, size: 2, appnum: 0, debugged: true, verbose: false, spawner },
            "   132cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=0;\
             debugged=TRUE;pmiverbose=FALSE;spawner-jobid=kvs_1;",
        ),
        (R::JobId("kvs0".into()), "    39cmd=job-getid-response;rc=0;jobid=kvs0;"),
        (R::Done(Op::Put), "    26cmd=kvs-put-response;rc=0;"),
        (R::Fence { tag: None }, "    28cmd=kvs-fence-response;rc=0;"),
        (R::Found(Op::Get, "a;b".into()), "    48cmd=kvs-get-response;rc=0;found=TRUE;value=a;;b;"),
        (R::Missing(Op::Get), "    38cmd=kvs-get-response;rc=0;found=FALSE;"),
        (R::Found(Op::GetJobAttr, "2".into()), "    53cmd=info-getjobattr-response;rc=0;found=TRUE;value=2;"),
        (R::Missing(Op::GetNodeAttr), "    47cmd=info-getnodeattr-response;rc=0;found=FALSE;"),
        (R::Port("p".into()), "    45cmd=name-lookup-response;rc=0;port=p;value=p;"),
        (R::Done(Op::Connect), "    44cmd=job-connect-response;rc=0;kvscopy=FALSE;"),
        (
            R::Ring { count: 1, left: "ring0".into(), right: "".into() },
            "    64cmd=ring-response;rc=0;ring-count=1;ring-left=ring0;ring-right=;",
        ),
        (
            R::Spawned { jobid: "j".into(), codes: Codes::same(0, 3) },
            "    47cmd=spawn-response;rc=0;jobid=j;errcodes=0,0,0;",
        ),
        (
            R::Refused(Op::Put, Failure::Refusal(Refusal::EmptyKey)),
            "    50cmd=kvs-put-response;rc=4;errmsg=the key is empty;",
        ),
        (R::Done(Op::Finalize), "    27cmd=finalize-response;rc=0;"),
        (R::Init { version: 2, subversion: 0 }, "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n"),
    ] {
        let said = said(Protocol::V2, &reply);
        assert_eq!(said, message);
        if let Some((length, body)) = said.split_at_checked(6).filter(|(length, _)| length.starts_with(' ')) {
            assert_eq!(length.trim_start().parse(), Ok(body.len()));
        }
    }
    let nul = said(Protocol::V2, &R::Found(Op::Get, "a\0;b\x01".into()));
    assert_eq!(
        nul,
        "   111cmd=kvs-get-response;rc=6;errmsg=the value holds a byte that this protocol cannot carry;\
         escaped-value=a\x01\x01;;b\x01\x02;"
    );
    let line_feed = said(Protocol::V2, &R::Found(Op::Get, "a\nb".into()));
    assert!(line_feed.ends_with(";value=a\nb;"), "{line_feed}");
}

#[test]
fn thrid_comes_right_behind_the_name() {
    let mut buf = [0; 64];
    let reply = encode_reply(Protocol::V2, &Reply::Done(Op::Put), Some("0x7f".into()), &mut buf);
    assert_eq!(reply, Ok(&b"    37cmd=kvs-put-response;thrid=0x7f;rc=0;"[..]));
}

#[test]
fn what_does_not_fit_is_told_at_every_length() {
    for protocol in [Protocol::V1, Protocol::V2] {
        for reply in [
            Reply::Found(Op::Get, "a;b c".into()),
            Reply::Found(Op::Get, "a\0b".into()),
            Reply::Refused(Op::Put, Failure::Refusal(Refusal::NoKvs)),
        ] {
            let whole = said(protocol, &reply);
            for len in 0..whole.len() {
                let mut buf = std::vec![0; len];
                assert_eq!(encode_reply(protocol, &reply, None, &mut buf), Err(EncodeError::DoesNotFit));
            }
            let mut buf = std::vec![0; whole.len()];
            assert_eq!(encode_reply(protocol, &reply, None, &mut buf), Ok(whole.as_bytes()));
        }
    }
}

#[test]
fn what_other_servers_say_is_understood() {
    let reply = |bytes: &'static str, framing| {
        let frame = next_reply(bytes.as_bytes(), framing).unwrap().unwrap();
        match framing {
            Framing::Line => v1::decode_reply(&frame),
            Framing::Counted => v2::decode_reply(&frame).map(|answer| answer.reply),
        }
    };
    for (line, expected) in [
        ("cmd=get_result rc=1\n", Reply::Missing(Op::Get)),
        ("cmd=get_result rc=-1 msg=key_not_found value=unknown\n", Reply::Missing(Op::Get)),
        ("cmd=get_result rc=-1 msg=key_a_not_found value=unknown\n", Reply::Missing(Op::Get)),
        (
            "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))\n",
            Reply::Found(Op::Get, "(vector,(0,1,2))".into()),
        ),
        (
            "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
            Reply::Maxes { kvsname: 256, key: 64, value: 1024 },
        ),
        ("cmd=barrier_out tag=0\n", Reply::Fence { tag: Some(0) }),
        ("cmd=finalize_ack\n", Reply::Done(Op::Finalize)),
        ("cmd=lookup_result info=ok port=p\n", Reply::Port("p".into())),
        ("cmd=lookup_result info=no msg=x\n", Reply::Refused(Op::Lookup, Failure::Remote(-1, "x".into()))),
    ] {
        assert_eq!(reply(line, Framing::Line), Ok(expected), "{line}");
    }
    for (message, expected) in [
        ("    26cmd=kvs-get-response;rc=1;", Reply::Missing(Op::Get)),
        ("    34cmd=info-getjobattr-response;rc=1;", Reply::Missing(Op::GetJobAttr)),
        ("    45cmd=kvs-get-response;found=TRUE;value=a;rc=0;", Reply::Found(Op::Get, "a".into())),
        (
            "39    cmd=spawn-response;rc=0;jobid=29.144-1;",
            Reply::Spawned { jobid: "29.144-1".into(), codes: Codes::new(&[]) },
        ),
        (
            "    32cmd=spawn-response;rc=0;jobid=kvs;nerrs=0;",
            Reply::Spawned { jobid: "kvs".into(), codes: Codes::new(&[]) },
        ),
    ] {
        let fixed = std::format!("{:>6}{}", message.len() - 6, &message[6..]).leak();
        assert_eq!(reply(fixed, Framing::Counted), Ok(expected), "{message}");
    }
}

/// Bytes that a value may contain in both protocols. Bytes that are special in one of them are frequent.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => select(b"; =\\".to_vec()),
        6 => select(b"abc019-#$".to_vec()),
        1 => (1u8..=255).prop_filter("line feed", |&b| b != b'\n'),
    ];
    vec(byte, 0..12)
}

/// Owner of the data that a command or reply borrows.
#[derive(Clone, Debug)]
struct Parts {
    op: u8,
    texts: [Vec<u8>; 4],
    numbers: [u32; 3],
    code: i32,
    flags: [bool; 2],
    lists: [Vec<Vec<u8>>; 2],
}

fn parts() -> impl Strategy<Value = Parts> {
    let texts = [text(), text(), text(), text()];
    let numbers = any::<[u32; 3]>().prop_map(|[m, n, k]| [m, n, k.max(1)]);
    let lists = [vec(text(), 0..4), vec(text(), 0..4)];
    (0u8..33, texts, numbers, any::<i32>(), any::<[bool; 2]>(), lists)
        .prop_map(|(op, texts, numbers, code, flags, lists)| Parts { op, texts, numbers, code, flags, lists })
}

fn command<'a>(
    parts: &'a Parts,
    programs: &'a [Program<'a>],
    preput: &'a [(Text<'a>, Text<'a>)],
) -> Command<'a> {
    let [a, b, c, _] = parts.texts.each_ref().map(|text| Text::plain(text));
    let [m, n, _] = parts.numbers;
    let filled = |text: Text<'a>| (!text.is_empty()).then_some(text);
    let group = |members| Command::Fence { group: Some(Group { members, tag: m }) };
    match parts.op {
        0 => Command::Init { version: m, subversion: n },
        1 => Command::InitAck { pmiid: m },
        2 => Command::FullInit {
            rank: parts.flags[0].then_some(m),
            jobid: filled(a),
            threaded: parts.flags[1],
        },
        3 => Command::GetMaxes,
        4 => Command::GetUniverseSize,
        5 => Command::GetAppnum,
        6 => Command::GetJobId,
        7 => Command::Put { kvs: filled(a).filter(|_| parts.flags[0]), key: b, value: c },
        8 => Command::Get { kvs: filled(a), key: b, source: None },
        9 => Command::Fence { group: None },
        10 => group(Members::World),
        11 => group(Members::Node),
        12 => group(Members::Ranks(RankList::new(b"0,4294967295,7").unwrap())),
        13 => Command::PutNodeAttr { key: a, value: b },
        14 => Command::GetNodeAttr { key: a, wait: parts.flags[0] },
        15 => Command::GetJobAttr { key: a },
        16 => {
            let persistence = if parts.flags[0] { Persistence::FirstRead } else { Persistence::Job };
            Command::Publish { name: a, port: b, persistence }
        }
        17 => Command::Unpublish { name: a, party: parts.flags[1].then_some(b) },
        18 => {
            Command::Lookup { name: a, wait: parts.flags[0].then_some(m), party: parts.flags[1].then_some(b) }
        }
        19 => Command::Connect { jobid: a },
        20 => Command::Disconnect { jobid: a },
        21 => Command::Ring { count: m, left: a, right: b },
        22 => Command::Abort { code: parts.flags[0].then_some(parts.code), world: true, message: a },
        23 => Command::PsetCount,
        24 => Command::PsetName { index: m },
        25 => Command::PsetInfo { name: a },
        26 => Command::PsetMembers { name: a, from: m },
        27 => Command::PsetDefine { name: a, members: RankRanges::new(b"7,0-3,12").unwrap() },
        28 => Command::PsetNext { after: m },
        29 => Command::PsetRetire { name: a },
        30 => Command::PsetPrune,
        31 => Command::PsetCombine { name: a, operation: SetOperation::Difference, operands: [b, c] },
        _ => Command::Spawn(Spawn::new(programs, preput)),
    }
}

fn reply<'a>(parts: &'a Parts, codes: &'a [u8]) -> Reply<'a> {
    let [a, b, _, _] = parts.texts.each_ref().map(|text| Text::plain(text));
    let [m, n, k] = parts.numbers;
    let filled = |text: Text<'a>| (!text.is_empty()).then_some(text);
    match parts.op % 30 {
        0 => Reply::Init { version: m, subversion: n },
        1 => Reply::InitAck { rank: m, size: n, appnum: k },
        2 => {
            let [debugged, verbose] = parts.flags;
            Reply::FullInit { rank: m, size: n, appnum: k, debugged, verbose, spawner: filled(a) }
        }
        3 => Reply::Maxes { kvsname: m, key: n, value: k },
        4 => Reply::UniverseSize(parts.flags[0].then_some(m)),
        5 => Reply::Appnum(parts.flags[0].then_some(m)),
        6 => Reply::JobId(a),
        7 => Reply::Found(Op::Get, a),
        8 => Reply::Missing(Op::Get),
        9 => Reply::Found(Op::GetNodeAttr, a),
        10 => Reply::Missing(Op::GetJobAttr),
        11 => Reply::Port(a),
        12 => Reply::Spawned { jobid: a, codes: Codes::new(codes) },
        13 => Reply::Ring { count: m, left: a, right: b },
        14 => Reply::Fence { tag: parts.flags[0].then_some(m) },
        15 => Reply::Done(Op::Put),
        16 => Reply::Done(Op::Publish),
        17 => Reply::Done(Op::Connect),
        18 => Reply::Done(Op::Finalize),
        19 => Reply::PsetCount(m),
        20 => Reply::PsetName(a),
        21 => Reply::PsetInfo { size: m, serial: m / 2 },
        22 => Reply::PsetMembers { members: a, jobid: filled(b), next: parts.flags[0].then_some(m) },
        23 => Reply::NotSpawned { why: Failure::Remote(parts.code | 1, a), codes: Codes::new(codes) },
        24 => Reply::PsetNext { name: a, serial: m },
        op => {
            let of = [Op::Put, Op::Get, Op::Lookup, Op::Spawn, Op::Unknown][usize::from(op) - 25];
            Reply::Refused(of, Failure::Remote(parts.code | 1, a))
        }
    }
}

fn is_pset(op: Op) -> bool {
    op.changes_psets()
        || matches!(op, Op::PsetCount | Op::PsetName | Op::PsetNext | Op::PsetInfo | Op::PsetMembers)
}

fn check_command(command: Command<'_>, protocol: Protocol) {
    let mut buf = [0; 4096];
    let encoded = match protocol {
        Protocol::V1 => v1::encode(&command, &mut buf),
        Protocol::V2 => v2::encode(&command, Some("t;1".into()), &mut buf),
    };
    let bytes = match encoded {
        Ok(bytes) => bytes,
        Err(why) => {
            assert_eq!(why, EncodeError::Unsupported);
            let only_v1 =
                matches!(command.op(), Op::InitAck | Op::GetMaxes | Op::GetUniverseSize | Op::GetAppnum)
                    || matches!(
                        command,
                        Command::Put { kvs: Some(_), .. } | Command::Fence { group: Some(_) }
                    );
            let only_v2 =
                matches!(command.op(), Op::FullInit | Op::PutNodeAttr | Op::GetNodeAttr | Op::GetJobAttr)
                    || matches!(command.op(), Op::Connect | Op::Disconnect | Op::Ring)
                    || matches!(
                        command,
                        Command::Lookup { wait: Some(_), .. }
                            | Command::Lookup { party: Some(_), .. }
                            | Command::Unpublish { party: Some(_), .. }
                            | Command::Publish { persistence: Persistence::FirstRead, .. }
                    )
                    || is_pset(command.op());
            assert!(if protocol == Protocol::V1 { only_v2 } else { only_v1 }, "{command:?}");
            return;
        }
    };
    let framing = framing(protocol, command.op());
    for end in 0..bytes.len() {
        assert_eq!(next_frame(&bytes[..end], framing), Ok(None));
    }
    let mut more = bytes.to_vec();
    more.extend_from_slice(b"    14cmd=");
    let frame = next_frame(&more, framing).unwrap().unwrap();
    assert_eq!(frame.len as usize, bytes.len());
    let message = decode(&frame).unwrap();
    assert_eq!((message.op, message.command), (command.op(), Ok(command)));
    assert_eq!(message.thrid, (framing == Framing::Counted).then_some("t;1".into()));
}

/// Returns the text as in PMI-1's `msg`, which a blank ends.
fn underscored(text: &[u8]) -> Vec<u8> {
    text.iter().map(|&b| if b == b' ' { b'_' } else { b }).collect()
}

fn check_reply(reply: Reply<'_>, protocol: Protocol) {
    let mut buf = [0; 4096];
    let bytes = encode_reply(protocol, &reply, Some("t;1".into()), &mut buf).unwrap();
    let framing = framing(protocol, reply.op());
    for end in 0..bytes.len() {
        assert_eq!(next_reply(&bytes[..end], framing), Ok(None));
    }
    let frame = next_reply(bytes, framing).unwrap().unwrap();
    assert_eq!(frame.len as usize, bytes.len());
    let decoded = match protocol {
        Protocol::V1 => v1::decode_reply(&frame).unwrap(),
        Protocol::V2 => v2::decode_reply(&frame).unwrap().reply,
    };
    let unsupported = Refusal::Unsupported.rc();
    match (decoded, reply) {
        // Replies that this protocol does not have become refusals.
        (Reply::Refused(_, Failure::Remote(rc, _)), reply)
            if rc == unsupported && !matches!(reply, Reply::Refused(..) | Reply::NotSpawned { .. }) =>
        {
            let op = reply.op();
            let only_v2 = matches!(op, Op::FullInit | Op::GetNodeAttr | Op::GetJobAttr | Op::Ring)
                || matches!(reply, Reply::Done(Op::Connect))
                || is_pset(op);
            let only_v1 = matches!(op, Op::GetMaxes | Op::GetUniverseSize | Op::GetAppnum)
                || matches!(reply, Reply::Fence { tag: Some(_) });
            assert!(if protocol == Protocol::V1 { only_v2 } else { only_v1 }, "{reply:?}");
        }
        (Reply::Refused(a, Failure::Remote(x, said)), Reply::Refused(b, Failure::Remote(y, text))) => {
            let text: Vec<u8> = text.parts().flatten().copied().collect();
            let text = if protocol == Protocol::V1 { underscored(&text) } else { text };
            assert_eq!((a, x), (b, y));
            assert!(said == *text.as_slice());
        }
        // A line contains its reason as one word. Without a started process there may be no codes.
        (
            Reply::NotSpawned { why: Failure::Remote(x, _), codes: a },
            Reply::NotSpawned { why: Failure::Remote(y, _), codes: b },
        ) => assert_eq!((x, a), (y, b)),
        (Reply::Refused(Op::Spawn, Failure::Remote(x, _)), Reply::NotSpawned { why, codes }) => {
            assert_eq!(
                (
                    Failure::Remote(
                        x,
                        match why {
                            Failure::Remote(_, text) => text,
                            _ => "".into(),
                        }
                    ),
                    codes.iter().count()
                ),
                (why, 0)
            );
        }
        // A refused get with an empty or a known message is a miss.
        (Reply::Missing(Op::Get), Reply::Refused(Op::Get, Failure::Remote(..))) => {}
        (Reply::Spawned { codes: a, .. }, Reply::Spawned { codes: b, .. }) if protocol == Protocol::V1 => {
            assert_eq!(a, b);
        }
        // PMI-1 has only one reply for these.
        (Reply::Done(op), Reply::Done(Op::Connect)) if protocol == Protocol::V1 => {
            assert_eq!(op, Op::Unknown)
        }
        (decoded, reply) => assert_eq!(decoded, reply),
    }
}

/// Bytes that resemble messages: pieces of real ones, in any order, truncated anywhere.
fn near_valid() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"cmd=",
        b"mcmd=spawn\n",
        b"put",
        b"get",
        b"kvs-put",
        b"kvs-get",
        b"spawn",
        b"fullinit",
        b"abort",
        b"init",
        b"barrier_in",
        b"initack",
        b"ring",
        b"get_result",
        b"kvs-get-response",
        b"spawn-response",
        b" ",
        b";",
        b";;",
        b"\n",
        b"\\",
        b"=",
        b"\0",
        b"key=",
        b"value=",
        b"kvsname=",
        b"group=",
        b"WORLD:",
        b"0,1",
        b"rc=",
        b"0",
        b"1",
        b"-1",
        b"TRUE",
        b"ncmds=1;",
        b"preputcount=1;",
        b"ppkey0=",
        b"ppval0=",
        b"subcmd=a;",
        b"maxprocs=1;",
        b"argc=1;",
        b"argv0=",
        b"infokeycount=0;",
        b"execname=a\n",
        b"nprocs=1\n",
        b"totspawns=1\n",
        b"totspawns=2\n",
        b"arg1=x\n",
        b"argcnt=1\n",
        b"info_num=1\n",
        b"info_key_0=k\n",
        b"info_val_0=v\n",
        b"preput_num=0\n",
        b"endcmd\n",
        b"    14",
        b"20    ",
        b"000030",
        b"errcodes=",
        b"found=",
        b"thrid=",
    ];
    let piece = prop_oneof![
        8 => select(pieces.to_vec()).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..4),
    ];
    vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Decodes all that can be decoded. Nothing may panic.
fn read(bytes: &[u8], framing: Framing) {
    let mut rest = bytes;
    while let Ok(Some(frame)) = next_reply(rest, framing) {
        assert!(frame.len > 0 && frame.len as usize <= rest.len());
        let _ = std::format!("{:?} {:?}", v1::decode_reply(&frame), v2::decode_reply(&frame));
        for message in [v1::decode(&frame), v2::decode(&frame)] {
            let _ = std::format!("{message:?}");
            if let Ok(Message { command: Ok(Command::Spawn(spawn)), .. }) = message {
                assert_eq!(spawn.programs().count(), spawn.count() as usize);
                assert!(
                    spawn.programs().all(|program| program.maxprocs() > 0 && !program.command().is_empty())
                );
            }
        }
        rest = &rest[frame.len as usize..];
    }
}

proptest! {
    #[test]
    fn commands_round_trip(parts in parts()) {
        let list = |i: usize| parts.lists[i].iter().map(|text| Text::plain(text)).collect::<Vec<_>>();
        let (args, values) = (list(0), list(1));
        let info: Vec<_> = args.iter().copied().zip(values.iter().copied()).collect();
        let programs = [
            Program { command: "a b;c\\".into(), maxprocs: parts.numbers[2], args: &args, info: &info },
            Program { command: "endcmd".into(), maxprocs: 1, args: &values, info: &[] },
        ];
        let programs = if parts.flags[0] { &programs[..] } else { &programs[..1] };
        for protocol in [Protocol::V1, Protocol::V2] {
            check_command(command(&parts, programs, &info), protocol);
        }
    }

    // Fault: A PMI-1 server replies with a universe size or program number of -1 (hydra, Slurm)
    // Outcome: the number is not known; the connection stays usable
    // Guarantee: -1 is no malformed reply
    #[test]
    fn replies_round_trip(parts in parts(), codes in vec(any::<u8>(), 0..5)) {
        for protocol in [Protocol::V1, Protocol::V2] {
            check_reply(reply(&parts, &codes), protocol);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in near_valid()) {
        for framing in [Framing::Line, Framing::Counted] {
            read(&bytes, framing);
        }
        let counted = [std::format!("{:>6}", bytes.len() + 4).as_bytes(), b"cmd=", &bytes].concat();
        read(&counted, Framing::Counted);
        read(&[b"cmd=", &bytes[..], b"\n"].concat(), Framing::Line);
        read(&[b"mcmd=spawn\n", &bytes[..], b"\nendcmd\n"].concat(), Framing::Line);
    }

    /// A frame does not depend on the bytes after it. Malformed bytes remain malformed when others follow.
    #[test]
    fn framing_does_not_depend_on_splits(bytes in near_valid()) {
        for framing in [Framing::Line, Framing::Counted] {
            let whole = next_frame(&bytes, framing);
            for end in 0..bytes.len() {
                match next_frame(&bytes[..end], framing) {
                    Ok(None) => {}
                    found => prop_assert_eq!(found, whole),
                }
            }
        }
    }
}

#[test]
fn semicolons_blanks_and_backslashes_survive() {
    for text in [";", ";;", "a;", ";a", " ", "  a ", "\\", "\\\\", "a\\ ;\\;", "=", "value=;"] {
        for protocol in [Protocol::V1, Protocol::V2] {
            let text = Text::from(text);
            check_command(Command::Put { kvs: None, key: text, value: text }, protocol);
            check_reply(Reply::Found(Op::Get, text), protocol);
        }
    }
}

#[test]
fn a_first_byte_is_enough_for_rubbish() {
    assert_eq!(next_frame(b"GET / HTTP/1.1\r\n", Framing::Counted), Err(Malformed::Length));
    assert_eq!(next_frame(b"\x16\x03\x01", Framing::Line), Err(Malformed::NoCommand));
}
