//! Tests of records on the wire.

use crate::protocol::{JobRecord, Order, RankBlock, decode, encode};
use crate::tests::record;

/// A job of `per` ranks on each node, in blocks or in turns.
fn job(nodes: u32, per: u32, in_turns: bool) -> JobRecord {
    let block = |node| RankBlock { node: node + 1, first: node * per, count: per };
    let turn = |rank| RankBlock { node: rank % nodes + 1, first: rank, count: 1 };
    let blocks =
        if in_turns { (0..nodes * per).map(turn).collect() } else { (0..nodes).map(block).collect() };
    let hosts = (1..=nodes).map(|node| (node, format!("n{node:05}"))).collect();
    JobRecord { blocks, hosts, ..record(0, 0, &[nodes * per]) }
}

fn sent(record: JobRecord) -> Vec<u8> {
    encode(&Order::StartJob(Box::new(record)))
}

#[test]
fn an_order_hardly_grows_with_the_nodes() {
    let small = sent(job(2, 16, false)).len();
    assert!(sent(job(10_000, 16, false)).len() < small + 32, "in blocks");
    assert!(sent(job(10_000, 16, true)).len() < small + 32 + 16 * 12, "in turns");
}

#[test]
fn lists_that_do_not_fit_are_refused() {
    let bytes = sent(job(3, 2, false));
    assert!(matches!(decode(&bytes), Some(Order::StartJob(_))));
    let list = b"n[00001-00003]";
    let at = bytes.windows(list.len()).position(|window| window == list).unwrap();
    for (find, replace) in [(b'3', b'2'), (b'3', b'9')] {
        let mut bytes = bytes.clone();
        let last = at + list.len() - 2;
        assert_eq!(bytes[last], find);
        bytes[last] = replace;
        assert_eq!(decode::<Order>(&bytes), None, "hosts and nodes differ");
    }
}

#[test]
fn records_are_decoded_as_they_were_encoded() {
    // Each number gives other nodes, blocks and names.
    for pattern in 0u32..2000 {
        let nodes: Vec<u32> = (1..12).filter(|node| pattern >> (node % 7) & 1 == 0).collect();
        let mut blocks = Vec::new();
        let mut first = 0;
        for at in 0..pattern % 9 {
            let Some(&node) = nodes.get((at * (1 + pattern % 3)) as usize) else { continue };
            let count = 1 + pattern / 5 % 2 * (at % 3);
            blocks.push(RankBlock { node, first, count });
            first += count;
        }
        let hosts = nodes.iter().map(|&node| (node, format!("n{}", node / (1 + pattern % 2)))).collect();
        let record = JobRecord { blocks, hosts, ..record(1, 1, &[1]) };
        let decoded = decode(&sent(record.clone()));
        assert_eq!(decoded, Some(Order::StartJob(Box::new(record))), "{pattern}");
    }
}
