//! Tests of the PMIx format: captured messages, round trips, arbitrary bytes.

use std::vec;
use std::vec::Vec;

use proptest::collection::vec as bytes_of;
use proptest::prelude::*;

use super::*;
use crate::Malformed;

/// Open MPI 5.0.11, rank 0 of `hydrant.1`.
const HELLO: &str = "ffffffffffffffff36000000000000006e617469766500000000080000000000000000006879\
    6472616e742e310000000000352e302e31317263310076343100016861736800";
/// A commit of `key.0` for both scopes.
const COMMIT: &str = "02020201020115020c6b65792e30000316\
    76616c7565206f662030000202020115020c6b65792e3000031676616c7565206f66203000";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn a_handshake_names_the_rank_and_the_format() {
    let bytes = hex(HELLO);
    for len in 0..bytes.len() {
        assert_eq!(next_frame(&bytes[..len]), Ok(None));
    }
    let Ok(Some(Frame::Hello { len, body })) = next_frame(&bytes) else { panic!("it is complete") };
    assert_eq!(len as usize, bytes.len());
    let (kind, integers) = (Kind::Client, Integers::Flexible);
    let hello = Hello { kind, namespace: b"hydrant.1", rank: 0, major: 5, integers };
    assert_eq!(Hello::decode(body), Some(hello));
    // Truncated, a singleton, and a buffer that describes itself.
    assert!((0..body.len() - 5).all(|len| Hello::decode(&body[..len]).is_none()));
    let mut changed = body.to_vec();
    changed[19] = 9;
    assert_eq!(Hello::decode(&changed), None);
    let mut changed = body.to_vec();
    changed[body.len() - 6] = 2;
    assert_eq!(Hello::decode(&changed), None);
}

/// What is written is read again. The bytes of a client are those that libpmix writes.
#[test]
fn handshakes_are_written() {
    let mut buf = [7; 200];
    let captured = hex(HELLO);
    let hello = Hello {
        kind: Kind::Client,
        namespace: b"hydrant.1",
        rank: 0,
        major: 5,
        integers: Integers::Flexible,
    };
    let len = hello.write((0, 0), &mut buf).unwrap();
    let version = captured.windows(9).position(|part| part == b"5.0.11rc1").unwrap();
    let expected = [&captured[16..version], b"5.0.0", &captured[version + 9..]].concat();
    assert_eq!((&buf[16..len], buf[8] as usize), (&expected[..], expected.len()));
    for kind in [Kind::Client, Kind::ClientTool, Kind::Tool, Kind::NamedTool] {
        for (integers, major) in [(Integers::Flexible, 12), (Integers::Fixed, 3)] {
            let (namespace, rank) = if kind == Kind::Tool { (&b""[..], 0) } else { (&b"host:7"[..], 9) };
            let hello = Hello { kind, namespace, rank, major, integers };
            let len = hello.write((1, 2), &mut buf).unwrap();
            let Ok(Some(Frame::Hello { body, .. })) = next_frame(&buf[..len]) else { panic!("{kind:?}") };
            assert_eq!(Hello::decode(body), Some(hello));
            assert!((0..len).all(|short| hello.write((1, 2), &mut [0; 200][..short]).is_none()));
        }
    }
}

/// `pquery` of libpmix 4.2.2, which names itself, and a tool of libpmix 6 that does not.
#[test]
fn handshakes_of_tools_have_users_and_may_have_names() {
    let tail = b"4.2.2rc2\0v41\0\x01hash\0\x02\x02rest";
    let named = [&b"native\0\0\0\0\0\x04\0\0\0\x07\0\0\0\x08pquery.host.71\0\0\0\0\0"[..], tail].concat();
    let (integers, major) = (Integers::Flexible, 4);
    let hello = Hello { kind: Kind::NamedTool, namespace: b"pquery.host.71", rank: 0, major, integers };
    assert_eq!(Hello::decode(&named), Some(hello));
    let nameless = [&b"native\0\0\0\0\0\x03\0\0\0\x07\0\0\0\x08"[..], b"6.1.0\0v61\0\x01hash\0"].concat();
    let hello = Hello { kind: Kind::Tool, namespace: b"", rank: 0, major: 6, integers };
    assert_eq!(Hello::decode(&nameless), Some(hello));
    assert!((0..nameless.len() - 5).all(|len| Hello::decode(&nameless[..len]).is_none()));
    let mut buf = [7; 528];
    assert_eq!(write_tool_reply(Some(b"tool"), b"server", &mut buf), Some(528));
    assert_eq!((&buf[4..9], &buf[264..271]), (&b"tool\0"[..], &b"server\0"[..]));
    assert_eq!(write_tool_reply(None, b"server", &mut buf[..268]), Some(268));
    assert_eq!(write_tool_reply(None, b"server", &mut buf[..267]), None);
    assert_eq!(write_tool_reply(None, &[b'x'; 256], &mut buf), None, "without an end");
}

#[test]
fn lengths_are_limited() {
    let mut bytes = vec![0xff; 8];
    bytes.extend((HELLO_MAX + 1).to_le_bytes());
    bytes.extend([0; 4]);
    assert_eq!(next_frame(&bytes), Err(Malformed::TooLong));
    let mut bytes = vec![0; 8];
    bytes.extend(u32::MAX.to_be_bytes());
    bytes.extend([0; 4]);
    assert_eq!(next_frame(&bytes), Err(Malformed::TooLong));
}

#[test]
fn a_fence_of_a_whole_job_is_recognised_in_both_encodings() {
    let flexible = hex("02030201021468796472616e742e3100feffffff0f0201021a706d69782e636f6c6c656374000001 01");
    let fixed = hex("0000000103 00000001000f0000000000000001 000000010000000a68796472616e742e3100fffffffe \
         00000001000f0000000000000000");
    for (integers, bytes) in [(Integers::Flexible, flexible), (Integers::Fixed, fixed)] {
        let Ok(Ok(Command::Fence { procs, .. })) = decode(integers, &bytes) else { panic!("it is a fence") };
        assert_eq!(procs.iter().collect::<Vec<_>>(), [Proc { namespace: b"hydrant.1", rank: WILDCARD }]);
        assert!(procs.is_whole(b"hydrant.1") && !procs.is_whole(b"hydrant.2"));
    }
}

#[test]
fn a_spawn_is_read_in_both_encodings() {
    let flexible = hex("020902010214706d69782e706572730000030a6f6d706900 \
         020102102e2f612e6f75740004102e2f612e6f75740004780002224f4d50495f4d43415f6573733d706d6900 \
         00060114706d69782e776469720000030a2f746d7000");
    // As libpmix 3 of Open MPI 4.1.8 packs it: the numbers of arguments and processes are INT, that of variables is INT32.
    let fixed =
        hex("0000000109 00000001000f0000000000000001 000000010000000a706d69782e7065727300 00000000 0003 \
         000000056f6d706900 00000001000f0000000000000001 00000001 000000082e2f612e6f757400 000900000002 \
         000000082e2f612e6f757400 000000027800 00000001000000114f4d50495f4d43415f6573733d706d6900 00000000 \
         000900000003 000f0000000000000001 0000000a706d69782e7764697200 00000000 0003 000000052f746d7000");
    for (integers, bytes) in [(Integers::Flexible, flexible), (Integers::Fixed, fixed)] {
        let Ok(Ok(Command::Spawn { infos, apps })) = decode(integers, &bytes) else {
            panic!("it is a spawn")
        };
        assert_eq!((infos.len(), apps.len()), (1, 1));
        let app = apps.iter().next().expect("there is one");
        assert_eq!((app.command, app.processes, app.cwd), (&b"./a.out"[..], 3, None));
        assert_eq!(app.args.iter().collect::<Vec<_>>(), [&b"./a.out"[..], b"x"]);
        assert_eq!(app.env.iter().collect::<Vec<_>>(), [b"OMPI_MCA_ess=pmi"]);
        let options: Vec<_> = app.infos.iter().map(|info| (info.key, info.as_string())).collect();
        assert_eq!(options, [(&b"pmix.wdir"[..], Some(&b"/tmp"[..]))]);
    }
}

#[test]
fn arguments_are_longer_than_keys() {
    let long = [b"a".repeat(1000), vec![0]].concat();
    let mut bytes = hex("0209020002010200 02 d20f");
    bytes.extend(&long);
    bytes.extend(hex("00 00 02 00"));
    let Ok(Ok(Command::Spawn { apps, .. })) = decode(Integers::Flexible, &bytes) else {
        panic!("it is a spawn")
    };
    let app = apps.iter().next().expect("there is one");
    assert_eq!(app.args.iter().collect::<Vec<_>>(), [&long[..1000]]);
}

#[test]
fn committed_data_are_searched_for_a_key() {
    let bytes = hex(COMMIT);
    let Ok(Ok(Command::Commit(commit))) = decode(Integers::Flexible, &bytes) else {
        panic!("it is a commit")
    };
    assert_eq!(commit.local, commit.remote);
    let holds = |data: &[u8], wanted: &[u8]| Commit::contains(Integers::Flexible, data, |key| key == wanted);
    assert!(holds(commit.local.put, b"key.0"));
    assert!(!holds(commit.local.put, b"key.1"));
    // What cannot be decoded may hold any key.
    assert!(holds(&commit.local.put[..5], b"key.1"));
    assert!(!holds(b"", b"key.1"));
}

/// KVAL packs with values of type STRING.
fn packs(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = vec![0; 32 * pairs.len()];
    let mut writer = Writer::new(Integers::Flexible, &mut bytes);
    for (key, value) in pairs {
        writer.key(key.as_bytes(), kind::STRING);
        writer.string(value.as_bytes());
    }
    let len = writer.finish().expect("it fits");
    bytes.truncate(len);
    bytes
}

fn applied_in(changes: Changes<'_>, known: &[u8], comparisons: u32) -> Option<Vec<u8>> {
    let mut after = Vec::new();
    let mut add = |piece: &[u8]| after.extend_from_slice(piece);
    changes.apply_to(Integers::Flexible, known, comparisons, &mut add)?;
    Some(after)
}

fn applied(changes: Changes<'_>, known: &[u8]) -> Vec<u8> {
    applied_in(changes, known, u32::MAX).expect("it takes few comparisons")
}

#[test]
fn changes_apply_by_key() {
    let known = packs(&[("a", "1"), ("b", "2"), ("c", "3")]);
    let put = packs(&[("b", "new"), ("d", "4")]);
    let removed = packs(&[("c", ""), ("x", "")]);
    let after = packs(&[("a", "1"), ("b", "new"), ("d", "4")]);
    assert_eq!(applied(Changes { removed: &removed, put: &put }, &known), after);
    assert_eq!(applied(Changes { removed: &[], put: &known }, &known), known, "all data again");
    let turned = packs(&[("c", "3"), ("a", "1"), ("b", "2")]);
    assert_eq!(applied(Changes { removed: &[], put: &turned }, &known), turned, "in another order");
    assert_eq!(applied(Changes { removed: &removed, put: &packs(&[("c", "back")]) }, &known), {
        packs(&[("a", "1"), ("b", "2"), ("c", "back")])
    });
}

#[test]
fn changes_of_the_same_order_take_few_comparisons() {
    let keys: Vec<_> = (0..500).map(|key| std::format!("key{key}")).collect();
    let known = packs(&keys.iter().map(|key| (&key[..], "1")).collect::<Vec<_>>());
    let other = packs(&[("other", "1")]);
    for (removed, put, most) in [(&[][..], &known[..], 500), (&known, &[], 500), (&other, &known, 1000)] {
        let changes = Changes { removed, put };
        assert_eq!(applied_in(changes, &known, most).as_deref(), Some(put));
        assert_eq!(applied_in(changes, &known, most - 1), None);
    }
}

#[test]
fn values_with_other_qualifiers_stay() {
    let [one, other] = ["one", "other"].map(|value| packs(&[("pmix.qual.val", value)]));
    let both = [&one[..], &other].concat();
    assert_eq!(applied(Changes { removed: &[], put: &other }, &one), both);
    assert_eq!(applied(Changes { removed: &[], put: &other }, &both), both);
}

#[test]
fn bytes_that_cannot_be_decoded_stay_until_there_are_new_ones() {
    let (pair, new) = (packs(&[("a", "1")]), packs(&[("b", "2")]));
    let known = [&pair[..], b"\x02??"].concat();
    let after = [&pair[..], &new, b"\x02??"].concat();
    assert_eq!(applied(Changes { removed: &[], put: &new }, &known), after);
    let put = [&new[..], b"\x02!"].concat();
    assert_eq!(applied(Changes { removed: &[], put: &put }, &after), [&pair[..], &put].concat());
}

#[test]
fn a_get_has_options_and_a_key() {
    let bytes = hex("0204021468796472616e742e31000201 0200 020c6b65792e3100");
    let Ok(Ok(Command::Get { proc, infos, key })) = decode(Integers::Flexible, &bytes) else {
        panic!("it is a get")
    };
    assert_eq!((proc.namespace, proc.rank, key), (&b"hydrant.1"[..], 1, Some(&b"key.1"[..])));
    assert!(infos.is_empty());
    let bytes = hex("0204021468796472616e742e310002feffffff0f0201021e706d69782e696d6d6564696174650000\
         0101021e706d69782e68776c6f63786d6c3200");
    let Ok(Ok(Command::Get { proc, infos, key })) = decode(Integers::Flexible, &bytes) else {
        panic!("it is a get")
    };
    assert_eq!((proc.rank, key), (WILDCARD, Some(&b"pmix.hwlocxml2"[..])));
    assert!(infos.is_set(b"pmix.immediate") && !infos.is_set(b"pmix.timeout"));
}

#[test]
fn a_message_without_a_command_is_malformed() {
    assert_eq!(decode(Integers::Flexible, b""), Ok(Ok(Command::Heartbeat)));
    assert_eq!(decode(Integers::Flexible, b"\x02"), Err(Malformed::Structure));
    assert_eq!(decode(Integers::Flexible, b"\x04\x00"), Err(Malformed::Structure));
    assert_eq!(decode(Integers::Flexible, b"\x02\x03"), Ok(Err(Unreadable)));
    assert_eq!(decode(Integers::Flexible, b"\x02\x63"), Ok(Ok(Command::Unsupported)));
}

#[test]
fn nesting_is_limited() {
    // An array of one array of one array…
    let nested = |depth: usize| {
        let mut bytes = vec![];
        for _ in 0..depth {
            bytes.extend([kind::DATA_ARRAY as u8, 1]);
        }
        bytes.extend([kind::BOOL as u8, 1, 1]);
        bytes
    };
    let skips = |bytes: &[u8]| Reader::new(Integers::Flexible, bytes).skip(kind::DATA_ARRAY).is_some();
    assert!(skips(&nested(4)));
    assert!(!skips(&nested(DEPTH_MAX as usize + 1)));
    assert!(!skips(&nested(1000)));
    // A count without elements.
    assert!(!skips(&[kind::BOOL as u8, 0xff, 0xff, 0xff, 0xff, 0x0f, 1]));
}

#[test]
fn integers_are_folded() {
    let mut buf = [0; 16];
    for (number, bytes) in [(-46, &[0x5b][..]), (1, &[2]), (0, &[0]), (-402, &[0xa3, 6])] {
        let mut writer = Writer::new(Integers::Flexible, &mut buf);
        writer.int32(number);
        let len = writer.finish().unwrap();
        assert_eq!(&buf[..len], bytes);
    }
    let mut writer = Writer::new(Integers::Flexible, &mut buf);
    writer.uint32(WILDCARD);
    assert_eq!(buf[..5], [0xfe, 0xff, 0xff, 0xff, 0x0f]);
}

/// Types of values for which libpmix has no place in a value: VALUE, APP, INFO, PDATA, BUFFER and KVAL.
const WITHOUT_PLACE: [u16; 6] = [21, 23, 24, 25, 26, 28];

/// Returns a log of two values, the first of this type with these bytes, and the second a STRING.
fn log_of(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    let mut writer = Writer::new(Integers::Flexible, &mut bytes);
    writer.raw(&[2, 16, 2, 0]);
    writer.array(2);
    writer.info(b"first", kind);
    writer.raw(value);
    writer.info(b"second", kind::STRING);
    writer.string(b"text");
    writer.array(0);
    let len = writer.finish().expect("it fits");
    bytes.truncate(len);
    bytes
}

/// Returns the keys of the values of a log.
fn keys_of(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    match decode(Integers::Flexible, bytes) {
        Ok(Ok(Command::Log(infos, _))) => Some(infos.iter().map(|info| info.key).collect()),
        _ => None,
    }
}

#[test]
fn process_ids_of_hosts_are_read() {
    // As libpmix 7 packs them: host, number of the host, type of a process id, process id.
    let ids: &[u8] = &[6, b'n', b'1', 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 14, 0x87, 0x01, 0, 2, 14, 7];
    let value = [&[39, 73, 2][..], ids].concat();
    let info = [&[4, b'k', 0, 0][..], &value].concat();
    let read = Reader::new(Integers::Flexible, &info).info().expect("it is whole");
    let mut ids = read.array(kind::NODE_PID, Reader::node_pid).expect("it is an array of them");
    assert_eq!(ids.next(), Some(NodePid { host: Some(b"n1"), number: u32::MAX, pid: 135 }));
    assert_eq!(ids.next(), Some(NodePid { host: None, number: 2, pid: 7 }));
    assert_eq!(ids.next(), None);
    for len in 0..info.len() {
        assert_eq!(Reader::new(Integers::Flexible, &info[..len]).info(), None);
    }
}

// Fault: A PMIx client sends a value of a type for which libpmix has no place in a value (VALUE, APP, INFO, PDATA, BUFFER,
// KVAL), by which up to 784 bytes behind the value were written before OpenPMIx 6.1.1
// Outcome: the value is read over, or the request is refused
// Guarantee: A value has the bytes of its message alone
#[test]
fn values_of_types_without_a_place_stay_within_their_bytes() {
    let value: &[u8] = &[3, 4, b'x', 0];
    let info = [&[4, b'k', 0, 0][..], value].concat();
    let pair = [&[4, b'k', 0][..], value].concat();
    let data = [&[4, b'n', 0, 7][..], &pair].concat();
    let buffer: &[u8] = &[1, 2, b'a', b'b'];
    for (kind, value) in WITHOUT_PLACE.into_iter().zip([value, b"", &info, &data, buffer, &pair]) {
        let message = log_of(kind, value);
        let keys = (kind != 23).then(|| vec![&b"first"[..], b"second"]);
        assert_eq!(keys_of(&message), keys, "type {kind}");
        for len in 2..message.len() {
            assert_eq!(keys_of(&message[..len]), None, "type {kind}, {len} bytes");
        }
    }
}

// Fault: A PMIx client sends a message that ends inside an integer, as the three bytes that crashed OpenPMIx before 6.1.1
// Outcome: the request is refused, or the connection closed
// Guarantee: No byte behind a message is read
#[test]
fn a_message_that_ends_within_an_integer_is_refused() {
    for bytes in
        [&[0x80][..], &[2, 3, 0x80], &[2, 4, 0x80], &[2, 4, 0xff], &[0xff; 3], &[0x80; 8], &[2, 3, 2]]
    {
        // More bytes follow in the buffer, as a message of another client would.
        let more = [bytes, &[1; 16]].concat();
        let result = decode(Integers::Flexible, &more[..bytes.len()]);
        assert!(matches!(result, Err(Malformed::Structure) | Ok(Err(Unreadable))), "{bytes:?}");
    }
    for len in 0..9 {
        assert_eq!(Reader::new(Integers::Flexible, &[0x80; 9][..len]).size(), None);
        assert_eq!(Reader::new(Integers::Fixed, &[0; 10][..len]).size(), None);
    }
}

// Fault: A PMIx client sends twenty bytes that claim 2^40 elements, which took all memory before OpenPMIx 6.1.1
// Outcome: the request is refused
// Guarantee: A number of elements takes neither memory nor time that its bytes do not
#[test]
fn a_number_of_elements_costs_what_its_bytes_cost() {
    for element in [kind::BOOL, kind::STRING, kind::INFO, kind::PROC, kind::DATA_ARRAY, 0] {
        let mut bytes = [0; 20];
        let mut writer = Writer::new(Integers::Flexible, &mut bytes);
        writer.data_type(element);
        writer.size(1 << 40);
        let mut reader = Reader::new(Integers::Flexible, &bytes);
        // The array that is absent has no number, and the value ends before it.
        assert_eq!(reader.skip(kind::DATA_ARRAY).is_some(), element == 0);
        assert_eq!(keys_of(&log_of(kind::DATA_ARRAY, &bytes)), None);
    }
    // Elements of a request: keys of a query, processes of a fence.
    for command in [&[2, 3, 2][..], &[2, 15, 2], &[2, 13, 2]] {
        let claim = [command, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x20], &[0; 11]].concat();
        assert_eq!(decode(Integers::Flexible, &claim), Ok(Err(Unreadable)));
    }
}

// Fault: A PMIx client sends a data array without a type of elements, after which OpenPMIx before 6.1.1 misread the message
// Outcome: the array is absent, and what follows is read
// Guarantee: What libpmix from 6.1.1 on writes is read as it reads it
#[test]
fn an_array_without_a_type_has_no_number_of_elements() {
    assert_eq!(keys_of(&log_of(kind::DATA_ARRAY, &[0])), Some(vec![&b"first"[..], b"second"]));
}

// Fault: A PMIx client sends a text that does not end, or one of negative length, which OpenPMIx before 6.1.1 allocated
// Outcome: the request is refused
// Guarantee: A text ends with its only NUL
#[test]
fn a_text_has_one_end_and_no_negative_length() {
    for text in [&[4, b'x', b'y'][..], &[6, b'x', 0, 0], &[1], &[3, b'x', 0], &[0xff, 0xff, 0xff, 0xff, 0x0f]]
    {
        assert_eq!(keys_of(&log_of(kind::STRING, text)), None, "{text:?}");
    }
}

#[test]
fn a_monitor_has_a_code_and_options() {
    let mut bytes = [0; 128];
    for integers in [Integers::Flexible, Integers::Fixed] {
        let mut writer = Writer::new(integers, &mut bytes);
        writer.single();
        writer.byte(19);
        writer.single();
        writer.info(b"pmix.monitor.mbeat", 0);
        writer.status(-3000);
        writer.array(1);
        writer.info(b"pmix.monitor.btime", kind::UINT32);
        writer.uint32(5);
        let len = writer.finish().unwrap();
        let Ok(Ok(Command::Monitor { monitor, code, infos })) = decode(integers, &bytes[..len]) else {
            panic!("it is a monitor")
        };
        assert_eq!((monitor.key, code), (&b"pmix.monitor.mbeat"[..], -3000));
        assert_eq!(infos.find(b"pmix.monitor.btime").and_then(|info| info.as_u32()), Some(5));
    }
}

#[test]
fn requests_to_the_host_are_read_as_written() {
    let mut room = [0; 64];
    let integers = Integers::Fixed;
    let len = HostCall::write_file(b"/tmp/x", &mut room).unwrap();
    assert_eq!(HostCall::read(&room[..len]), Some(HostCall::File(b"/tmp/x")));
    assert_eq!(HostCall::write_file(b"/tmp/x", &mut room[..len - 1]), None);
    let len = HostCall::write_syslog(integers, true, 5, b"full", &mut room).unwrap();
    let log = HostCall::Syslog { integers, global: true, priority: 5, text: b"full" };
    assert_eq!(HostCall::read(&room[..len]), Some(log));
    assert_eq!(HostCall::write_syslog(integers, true, 5, b"full", &mut room[..len - 1]), None);
    let text = HelpText { file: b"help.txt", topic: b"a topic", text: b"full", to_stdout: false };
    let len = HostCall::write_help(integers, &text, &mut room).unwrap();
    assert_eq!(HostCall::read(&room[..len]), Some(HostCall::Help { integers, text }));
    assert_eq!(HostCall::write_help(integers, &text, &mut room[..len - 1]), None);
    assert_eq!(HostCall::read(&room[..len - 5]), None, "no topic");
    assert_eq!(HostCall::read(b"cmd=pmix-host;\x01\x09\0\x03full"), None, "an unknown encoding");
    assert_eq!(HostCall::read(b"cmd=pmix-host;\x02\x03"), None, "a query without answers");
    let file = FileState { size: 1, accessed: u64::MAX, modified: 3 };
    assert_eq!(FileState::read(&file.to_bytes()), Some(file));
    assert_eq!(FileState::read(&file.to_bytes()[..23]), None);
}

fn either() -> impl Strategy<Value = Integers> {
    prop_oneof![Just(Integers::Flexible), Just(Integers::Fixed)]
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        integers in either(),
        int in any::<i32>(),
        uint in any::<u32>(),
        size in any::<u64>(),
        text in bytes_of(1u8.., 0..80),
    ) {
        let write = |writer: &mut Writer<'_>| {
            writer.status(int);
            writer.uint32(uint);
            writer.size(size);
            writer.key(&text, kind::BYTE_OBJECT);
            writer.blob_of(|writer| writer.proc(&text, uint));
            writer.null_string();
        };
        let mut measured = Writer::new(integers, &mut []);
        write(&mut measured);
        prop_assert_eq!(measured.finish(), if measured.is_empty() { Some(0) } else { None });
        let mut buf = vec![0; measured.len()];
        let mut writer = Writer::new(integers, &mut buf);
        write(&mut writer);
        prop_assert_eq!(writer.finish(), Some(measured.len()));
        let mut reader = Reader::new(integers, &buf);
        prop_assert_eq!(reader.single().and_then(|()| reader.int32()), Some(int));
        prop_assert_eq!(reader.uint32(), Some(uint));
        prop_assert_eq!(reader.size(), Some(size));
        let info = reader.key_value().unwrap();
        prop_assert_eq!(info.key, &text[..]);
        let mut inner = Reader::new(integers, info.as_blob().unwrap());
        prop_assert_eq!(inner.proc(), Some(Proc { namespace: &text, rank: uint }));
        prop_assert_eq!(reader.string(), Some(None));
        prop_assert!(reader.is_at_end() && inner.is_at_end());
    }

    #[test]
    fn arbitrary_bytes_are_read_without_panic(integers in either(), bytes in bytes_of(any::<u8>(), 0..300)) {
        let _ = next_frame(&bytes);
        let _ = Hello::decode(&bytes);
        let _ = decode(integers, &bytes);
        let _ = Commit::contains(integers, &bytes, |_| false);
    }

    #[test]
    fn arbitrary_arguments_are_read_without_panic(
        integers in either(),
        command in 0u8..40,
        bytes in bytes_of(prop_oneof![0u8..4, any::<u8>()], 0..200),
    ) {
        let mut writer_room = [0; 8];
        let mut writer = Writer::new(integers, &mut writer_room);
        writer.single();
        writer.byte(command);
        let len = writer.len();
        let message = [&writer_room[..len], &bytes].concat();
        if let Ok(Ok(Command::Spawn { infos, apps })) = decode(integers, &message) {
            prop_assert!(infos.iter().count() == infos.len() as usize);
            prop_assert!(apps.iter().count() == apps.len() as usize);
        }
    }
}
