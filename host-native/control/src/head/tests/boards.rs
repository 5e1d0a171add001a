//! Tests of the head before the first job of a run whose boards may be linked.

use super::*;
use crate::protocol::BoardReport;

/// A run on three nodes that have got the settings.
fn begun() -> Run {
    let mut first = first_job(3, 2);
    first.setup.boards.link = Some([1; 16]);
    first.setup.boards.targets = vec![(1, "dpu-1".into()), (2, "dpu-2".into())];
    let mut run = Run::new(config(3), first);
    run.event(Event::AllJoined);
    run.sent.clear();
    run
}

fn at(node: u32) -> Report {
    Report::Board(BoardReport::At { addr: format!("192.0.2.{node}:4100"), links: 2 })
}

fn are_linked(run: &Run) -> Vec<bool> {
    let formed = run.others.iter().filter_map(|action| match action {
        Action::FormTree { are_linked } => Some(*are_linked),
        _ => None,
    });
    let linked: Vec<bool> = formed.collect();
    let orders = run.sent.iter().filter_map(|(to, order)| match order {
        Order::FormTree { are_linked } if *to == Destination::All => Some(*are_linked),
        _ => None,
    });
    assert_eq!(orders.collect::<Vec<_>>(), linked, "the head and the nodes are in one tree");
    linked
}

fn is_started(run: &Run) -> bool {
    run.sent.iter().any(|(_, order)| matches!(order, Order::StartJob(_)))
}

#[test]
fn the_first_job_starts_when_boards_are_linked_and_the_tree_is_formed() {
    let mut run = begun();
    run.report(1, at(1));
    run.report(1, at(7));
    run.report(3, Report::Board(BoardReport::None));
    assert_eq!(run.sent, []);
    run.report(2, at(2));
    let addrs = vec![(1, "192.0.2.1:4100".into()), (2, "192.0.2.2:4100".into())];
    assert_eq!(run.sent, [(Destination::All, Order::LinkBoards(addrs))]);
    run.report(2, Report::BoardLinked(Ok(())));
    run.report(2, Report::BoardLinked(Ok(())));
    assert_eq!(are_linked(&run), []);
    run.report(1, Report::BoardLinked(Ok(())));
    assert_eq!(are_linked(&run), [true]);
    for node in 1..=3 {
        assert!(!is_started(&run));
        run.report(node, Report::Ready);
    }
    assert!(is_started(&run) && run.printed.is_empty());
}

fn started(run: &mut Run) -> Vec<JobId> {
    let started = run.take_sent().into_iter().filter_map(|(to, order)| match order {
        Order::StartRanks(job) if to == Destination::All => Some(job),
        _ => None,
    });
    started.collect()
}

// Fault: A message of another board is faster than the order to start its job
// Outcome: no rank has begun, so there is none
// Guarantee: Where boards are linked, ranks start when all nodes have opened the job
#[test]
fn ranks_start_when_all_nodes_have_opened_the_job() {
    let mut run = begun();
    for (node, report) in [(1, at(1)), (2, at(2)), (3, at(3))] {
        run.report(node, report);
    }
    (1..=3).for_each(|node| run.report(node, Report::BoardLinked(Ok(()))));
    (1..=3).for_each(|node| run.report(node, Report::Ready));
    let opened = |ordinal| Report::JobOpened { job: FIRST, ordinal };
    run.rejects(4, &opened(0));
    // An earlier job that had the number.
    run.report(2, opened(7));
    for node in [2, 1] {
        run.report(node, opened(0));
        assert_eq!(started(&mut run), []);
    }
    run.rejects(1, &opened(0));
    run.report(3, opened(0));
    assert_eq!(started(&mut run), [FIRST]);
    (1..=3).for_each(|node| run.start(node, FIRST, &[2 * node - 2, 2 * node - 1]));
    (1..=3).for_each(|node| run.succeed(node));
    run.ended(0, &[]);
}

#[test]
fn a_job_that_a_node_cannot_open_is_canceled_before_it_starts() {
    let mut run = begun();
    for (node, report) in [(1, at(1)), (2, at(2)), (3, at(3))] {
        run.report(node, report);
    }
    (1..=3).for_each(|node| run.report(node, Report::BoardLinked(Ok(()))));
    (1..=3).for_each(|node| run.report(node, Report::Ready));
    run.take_sent();
    (1..=2).for_each(|node| run.report(node, Report::JobOpened { job: FIRST, ordinal: 0 }));
    run.report(3, Report::StartFailed { job: FIRST, error: start_error("no such file") });
    assert_eq!(run.take_sent(), [to_all(Order::CancelJob(FIRST))]);
    (1..=3).for_each(|node| run.report(node, Report::JobDone(FIRST)));
    run.ended(127, &["host n3: no such file"]);
}

/// The other nodes get the address that the user has named.
#[test]
fn boards_are_linked_at_the_address_for_other_boards() {
    let mut first = first_job(2, 2);
    first.setup.boards.link = Some([1; 16]);
    first.setup.boards.targets = vec![(1, "dpu-1".into()), (2, "dpu-2".into())];
    let mut run = Run::new(Config { link_addrs: vec![(1, "198.51.100.9:6000".into())], ..config(2) }, first);
    run.event(Event::AllJoined);
    run.sent.clear();
    run.report(1, at(1));
    run.report(2, at(2));
    let addrs = vec![(1, "198.51.100.9:6000".into()), (2, "192.0.2.2:4100".into())];
    assert_eq!(run.sent, [(Destination::All, Order::LinkBoards(addrs))]);
}

#[test]
fn boards_use_their_hosts_if_one_cannot_be_linked() {
    let mut run = begun();
    for (node, report) in [(1, at(1)), (2, at(2)), (3, Report::Board(BoardReport::WithoutLinks))] {
        run.report(node, report);
    }
    assert_eq!((are_linked(&run), run.printed.len()), (vec![false], 0));
    let mut run = begun();
    for (node, report) in [(1, at(1)), (2, Report::Board(BoardReport::None)), (3, at(3))] {
        run.report(node, report);
    }
    run.report(3, Report::BoardLinked(Err("board dpu-3 has no link to board dpu-1: refused".into())));
    run.report(1, Report::BoardLinked(Ok(())));
    assert_eq!(are_linked(&run), [false]);
    let note = "note: boards exchange messages by way of their hosts: host n3: board dpu-3 has no link to board dpu-1: \
                refused";
    assert_eq!(run.printed, [note]);
    // Nothing follows from late reports.
    run.report(3, Report::BoardLinked(Ok(())));
    run.report(1, at(1));
    assert_eq!(are_linked(&run), [false]);
}

/// Node 1 is the root, and node 2 its only child with a board.
#[test]
fn boards_use_their_hosts_if_one_has_too_few_links_for_its_place() {
    for (node, are_able) in [(1, false), (2, true)] {
        let mut run = begun();
        for of in [1, 2] {
            let links = u32::from(of != node);
            let addr = format!("192.0.2.{of}:4100");
            run.report(of, Report::Board(BoardReport::At { addr, links }));
        }
        run.report(3, Report::Board(BoardReport::None));
        let is_linking = run.sent.iter().any(|(_, order)| matches!(order, Order::LinkBoards(_)));
        assert_eq!((is_linking, are_linked(&run).is_empty()), (are_able, are_able));
        let note = "note: boards exchange messages by way of their hosts: host n1: board dpu-1 accepts 0 links of other boards, \
                    and its place takes 1 (name its host later)";
        assert_eq!(run.printed, if are_able { vec![] } else { vec![note] });
    }
}
