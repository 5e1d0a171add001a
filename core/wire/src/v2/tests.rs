//! Tests of values with NUL.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{decode, decode_reply, encode, encode_reply};
use crate::frame::next_reply;
use crate::limits::OUTPUT_MAX;
use crate::{Command, Framing, Op, Reply, Text, next_frame};

proptest! {
    /// Messages of MPICH end at their first NUL. Escaped values have none.
    #[test]
    fn a_value_of_pmi2_has_any_bytes(value in vec(prop_oneof![Just(0), Just(1), Just(b';'), any::<u8>()], 0..1025)) {
        let (key, value) = (Text::from("k"), Text::plain(&value));
        let mut buf = [0; OUTPUT_MAX];
        for command in [Command::Put { kvs: None, key, value }, Command::PutNodeAttr { key, value }] {
            let bytes = encode(&command, None, &mut buf).unwrap();
            prop_assert!(!bytes.contains(&0));
            let frame = next_frame(bytes, Framing::Counted).unwrap().unwrap();
            prop_assert_eq!(decode(&frame).unwrap().command, Ok(command));
        }
        for op in [Op::Get, Op::GetNodeAttr, Op::GetJobAttr] {
            let reply = Reply::Found(op, value);
            let bytes = encode_reply(&reply, Some("t".into()), &mut buf).unwrap();
            prop_assert!(!bytes.contains(&0));
            let frame = next_reply(bytes, Framing::Counted).unwrap().unwrap();
            prop_assert_eq!(decode_reply(&frame).unwrap().reply, reply);
        }
    }
}
