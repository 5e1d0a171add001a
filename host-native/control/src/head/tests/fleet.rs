//! Fleets.

use hydrant_core::UpcallId;

use super::*;
use crate::protocol::ToolOptions;

/// A fleet on so many hosts that takes submissions.
fn fleet(nodes: u32) -> Run {
    let none = FirstJob { programs: Vec::new(), blocks: Vec::new(), ..first_job(nodes, 0) };
    let mut run = Run::new(Config { stays: true, ..config(nodes) }, none);
    run.event(Event::AllJoined);
    run.take_sent();
    run
}

// Fault: The first job of a fleet is that of a tool of PMIx, and cannot be started
// Outcome: the tool is told, and the fleet goes on
// Guarantee: A fleet has no job of the command line, whose failure would be its own
#[test]
fn the_first_job_of_a_tool_is_not_that_of_the_command_line() {
    let mut run = fleet(1);
    let upcall = UpcallId(3);
    let program = SpawnProgram { program: program(1), hosts: Vec::new(), spread: None, stopped: Stopped::No };
    let (programs, options) = (vec![program], ToolOptions::default());
    let tool = "tool".to_owned();
    run.event(Event::ToolSpawns { upcall, job: JobId(63), tool, nonce: 1, programs, options });
    let [(Destination::All, Order::StartJob(record))] = &run.take_sent()[..] else { panic!("it is started") };
    assert!(!record.is_of_command_line(), "{record:?}");
    run.report(1, Report::StartFailed { job: record.id, error: start_error("no such program") });
    run.report(1, Report::JobDone(record.id));
    let codes = vec![2];
    let answer = Action::AnswerTool { upcall, started: false, limit: None, codes };
    assert!(run.others.contains(&answer), "{:?}", run.others);
    assert_eq!(run.printed, ["spawned job 1 is ended before it began: host n1: no such program"]);
    assert_eq!((run.finished, run.head.exit_code()), (None, 0));
}
