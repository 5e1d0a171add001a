//! Tests of opening jobs: the order of inputs, and what follows a refusal.

use std::cell::RefCell;
use std::rc::Rc;

use hydrant_core::server::Consumed;
use hydrant_core::{Backend, Limits, Output, Server, UpcallId};
use hydrant_iof::{Sinks, Stdin, Streams};
use hydrant_reactor::{OpenFiles, Reactor};

use super::super::nodes::ONLY_NODE;
use super::super::server::{PmiServer, ServerParts};
use super::super::token::IOF;
use super::super::{Outlets, Token};
use super::*;
use crate::backend::{Replaceable, RunBackend, Saved};
use crate::plan::Plan;

const JOB: JobId = JobId(0);

/// Backend that records its inputs and refuses the one that begins with `refused`.
struct FakeBackend {
    limits: Limits,
    refused: &'static str,
    inputs: Rc<RefCell<Vec<String>>>,
}

impl Replaceable for FakeBackend {
    fn save(&mut self) -> Result<Saved, RunError> {
        Err(RunError::ServerFailed)
    }

    fn retire(self: Box<Self>) {}
}

impl Backend for FakeBackend {
    fn handle(&mut self, _: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        let line = line(&input);
        let refused = !self.refused.is_empty() && line.starts_with(self.refused);
        self.inputs.borrow_mut().push(line);
        if refused { Err(Fault::Full(Limit::Psets, 3).into()) } else { Ok(Consumed::default()) }
    }

    fn poll<'b>(&mut self, _: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        Ok(None)
    }

    fn poll_at(&self) -> Option<Time> {
        None
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn bytes_max(&self) -> usize {
        usize::MAX
    }

    fn inspect(&mut self) -> Option<&Server<'_>> {
        None
    }
}

/// An input of an opened job as a line of text.
fn line(input: &Input<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match *input {
        Input::RegisterJob(spec) => format!("register {} of {} ranks", spec.job, spec.size),
        Input::Program { first, count, appnum, .. } => format!("program {appnum} {first}+{count}"),
        Input::MapRanks { first, count, node, .. } => format!("node {node} {first}+{count}"),
        Input::Preput { key, value, .. } => format!("preput {}={}", text(key), text(value)),
        Input::Attr { key, value, .. } => format!("attr {}={}", text(key), text(value)),
        Input::Pset { name, first, count, .. } => format!("pset {name} {first}+{count}"),
        Input::Define { name, members, other: None, .. } => format!("define {name} {}", text(members)),
        Input::Define { name, members, other: Some(other), .. } => {
            format!("define {name} {} with job {other}", text(members))
        }
        Input::DeregisterJob { job } => format!("deregister {job}"),
        ref other => format!("{other:?}"),
    }
}

/// A plan of programs, each with its number of ranks and its process set.
fn plan(programs: &[(u32, Option<&str>)]) -> Plan {
    let program = |&(ranks, pset): &(u32, Option<&str>)| Program {
        ranks,
        command: "/bin/true".into(),
        args: Vec::new(),
        env: Vec::new(),
        wdir: None,
        path: None,
        psets: pset.map(str::to_owned).into_iter().collect(),
    };
    Plan::new(programs.iter().map(program).collect())
}

/// A job of the plan's programs on nodes 0 and 1, spawned by a rank of node 1.
fn record(plan: &Plan) -> JobRecord {
    JobRecord {
        id: JOB,
        ordinal: 1,
        name: "kvs_1".to_owned(),
        programs: plan.programs.as_slice().into(),
        blocks: [0, 1, 0]
            .into_iter()
            .zip(0..)
            .map(|(node, first)| RankBlock { node, first, count: 1 })
            .collect(),
        mapping: "(vector,(0,2,1),(0,1,1))".to_owned(),
        universe_size: None,
        hosts: vec![(0, "a".to_owned()), (1, "b".to_owned())],
        spawned: Some(SpawnOrigin {
            node: 1,
            upcall: UpcallId(4),
            job: JobId(0),
            ranks: 2,
            rank: Rank(1),
            spawner: "kvs_0".to_owned(),
            preput: vec![(b"k".to_vec(), b"v".to_vec())],
            tool: None,
        }),
        submitted: None,
    }
}

/// The inputs that describe a job at a node, and the result.
fn described(record: &JobRecord, place: &Place, refused: &str) -> (Vec<String>, Result<(), RunError>) {
    let mut inputs = Vec::new();
    let result = describe_job(record, place, |input| {
        inputs.push(line(&input));
        let full = || BackendError::Fault(Fault::Full(Limit::Psets, 3));
        if inputs.last().is_some_and(|line| line == refused) { Err(full()) } else { Ok(()) }
    });
    (inputs, result)
}

/// Runs `body` with an engine on this machine, and returns the inputs that the backend got.
fn with_engine(
    plan: &Plan,
    limits: Limits,
    refused: &'static str,
    body: impl FnOnce(&mut Engine<'_>),
) -> Vec<String> {
    let inputs = Rc::default();
    let backend = FakeBackend { limits, refused, inputs: Rc::clone(&inputs) };
    let reactor = Reactor::new(Token::Signals).unwrap();
    let outlets =
        Outlets { stdin: Stdin::sent(IOF), streams: Streams::raw(None, IOF), sinks: Sinks::uplink(IOF) };
    let core = PmiServer::local(RunBackend::new(Box::new(backend), None, None, None));
    let mut engine =
        Engine::new(plan, reactor, OpenFiles::reserve(0).unwrap(), outlets, ServerParts::new(core)).unwrap();
    engine.host = "here".to_owned();
    body(&mut engine);
    drop(engine);
    inputs.take()
}

/// Opens a job of the plan's programs, all of whose ranks run here.
fn open(engine: &mut Engine<'_>) -> Result<JobId, RunError> {
    let programs = engine.plan.programs.clone();
    let ranks = size(&programs)?;
    let blocks = vec![RankBlock { node: ONLY_NODE, first: 0, count: ranks }];
    let (id, ordinal) = (engine.jobs.free_id(), engine.jobs.count());
    let name = format!("kvs_{ordinal}");
    let (mapping, hosts) = (format!("(vector,(0,1,{ranks}))"), vec![(ONLY_NODE, "here".to_owned())]);
    let record = JobRecord {
        id,
        ordinal,
        name,
        programs: programs.into(),
        blocks,
        mapping,
        universe_size: None,
        hosts,
        spawned: None,
        submitted: None,
    };
    engine.open_here(record, None).map_err(|mut errors| errors.swap_remove(0).1)?;
    Ok(id)
}

#[test]
fn a_job_is_registered_before_its_programs_attributes_and_sets() {
    let plan = plan(&[(2, Some("app://both")), (1, Some("app://both"))]);
    let mut inputs = with_engine(&plan, Limits::for_ranks(3), "", |engine| {
        assert_eq!(open(engine).unwrap(), JOB);
        let job = &engine.jobs[JOB];
        assert_eq!((job.run.ranks.count(), job.ordinal), (3, 0));
        assert!(job.run.launcher.is_some() && job.run.port.is_none());
    });
    let expected = [
        "register 0 of 3 ranks",
        "program 0 0+2",
        "program 1 2+1",
        "attr PMI_process_mapping=(vector,(0,1,3))",
        "attr pmix.hname.0=here",
        "pset hydrant://node/here 0+3",
        "pset hydrant://app/0 0+2",
        "pset hydrant://app/1 2+1",
        "pset app://both 0+3",
        "attr pmix.query=TRUE",
        "attr pmix.argv.0=/bin/true",
        "attr pmix.argv.1=/bin/true",
    ];
    // The machine of the test may have fewer processors than the job has ranks.
    inputs.retain(|input| input != "attr pmix.ndosub=TRUE");
    let here = std::env::current_dir().unwrap();
    for program in [1, 0] {
        assert_eq!(inputs.pop().unwrap(), format!("attr pmix.wdir.{program}={}", here.display()));
    }
    let address = inputs.pop().unwrap();
    assert!(address.starts_with("attr text:pmix.srvr.uri=hydrant.0;tcp4://127.0.0.1:"), "{address}");
    assert_eq!(inputs, expected);
}

#[test]
fn command_lines_are_told_in_parts_as_far_as_there_is_room() {
    let of = |args: &[&str]| Program {
        args: args.iter().map(|arg| arg.into()).collect(),
        wdir: Some("/tmp".into()),
        ..plan(&[(1, None)]).programs.remove(0)
    };
    let (short, long) = (of(&["one", "two"]), of(&[&"x".repeat(2000)]));
    let told = |programs: &[Program], limits: Limits| {
        let told = texts(programs, LocalFacts::default(), &limits);
        told.into_iter()
            .map(|(key, value)| (String::from_utf8(key).unwrap(), value.len()))
            .collect::<Vec<_>>()
    };
    let part = |name: &str, len| (format!("pmix.argv.{name}"), len);
    let wdir = |program: u32| (format!("pmix.wdir.{program}"), 4);
    let all = told(&[short.clone(), long.clone()], Limits::for_ranks(2));
    assert_eq!(all, [part("0", 17), part("1", 1024), part("1.1", 986), wdir(0), wdir(1)]);
    // Small tables are for the data of ranks.
    let small = Limits { kvs_bytes: 65_536, keys: 64, ..Limits::for_ranks(2) };
    let told_little = told(&[short.clone(), long.clone(), short.clone()], small);
    assert_eq!(told_little, [part("0", 17), wdir(0), wdir(1), wdir(2)]);
    assert_eq!(told(&[of(&[&"x".repeat(ARGV_MAX)])], Limits::for_ranks(2)), [wdir(0)]);
    // Places of ranks come behind them.
    let places = [0, 3].map(|rank| (rank, ["0-3".to_owned(), "SK0".to_owned()])).to_vec();
    let local = || LocalFacts { places: places.clone(), ..LocalFacts::default() };
    let told = |limits| texts(std::slice::from_ref(&short), local(), &limits);
    let names = ["pmix.argv.0", "text:pmix.cpuset@0", "text:pmix.locstr@0", "text:pmix.cpuset@3"];
    let told_all = told(Limits::for_ranks(2));
    assert!(names.iter().all(|name| told_all.iter().any(|(key, _)| key == name.as_bytes())));
    let little = told(Limits { keys: 64, ..Limits::for_ranks(2) });
    assert_eq!(little.len(), 4, "one rank of two fits, and the working directory");
}

#[test]
fn a_topology_is_given_as_a_whole_or_not_at_all() {
    let plan = plan(&[(1, None)]);
    let given = |limits: Limits, refused, len: usize| {
        let inputs = with_engine(&plan, limits, refused, |engine| {
            engine.give_topology(JOB, &vec![b'x'; len], 0).unwrap()
        });
        let names = inputs.iter().map(|input| input.split_once('=').unwrap().0.to_owned());
        names.collect::<Vec<_>>()
    };
    let parts = ["attr text:pmix.hwlocxml2.2", "attr text:pmix.hwlocxml2.1", "attr text:pmix.hwlocxml2"];
    let limits = Limits::for_ranks(1);
    assert_eq!(given(limits, "", 2500), parts, "the one that makes it a text is the last");
    assert_eq!(given(limits, parts[1], 2500), parts[..2]);
    assert_eq!(given(Limits { kvs_bytes: 65_536, ..limits }, "", 2500), [""; 0]);
    assert_eq!(given(limits, "", limits.text_max() + 1), [""; 0]);
    assert_eq!(given(limits, "", 0), [""; 0]);
}

#[test]
fn a_refused_set_is_named_and_the_job_is_deregistered() {
    let plan = plan(&[(2, None)]);
    let inputs = with_engine(&plan, Limits::for_ranks(2), "pset hydrant://app/0", |engine| {
        match open(engine).unwrap_err() {
            RunError::Pset { name, why: Fault::Full(Limit::Psets, 3) } => {
                assert_eq!(name, "hydrant://app/0");
            }
            error => panic!("{error:?}"),
        }
        assert_eq!((engine.jobs.len(), engine.jobs.free_id()), (0, JOB));
    });
    assert_eq!(inputs[inputs.len() - 2..], ["pset hydrant://app/0 0+2", "deregister 0"]);
}

/// The server's reason for refusing an input.
fn fault<T>(result: Result<T, RunError>) -> Fault {
    match result.map(drop) {
        Err(RunError::Driver(error)) => error.fault().expect("a refused input"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_registration_is_not_undone() {
    let plan = plan(&[(2, None)]);
    let inputs = with_engine(&plan, Limits::for_ranks(2), "register", |engine| {
        assert_eq!(fault(open(engine)), Fault::Full(Limit::Psets, 3));
    });
    assert_eq!(inputs, ["register 0 of 2 ranks"]);
}

#[test]
fn a_dropped_job_is_deregistered_once() {
    let plan = plan(&[(1, None)]);
    let inputs = with_engine(&plan, Limits::for_ranks(1), "", |engine| {
        open(engine).unwrap();
        engine.drop_job(JOB).unwrap();
        engine.drop_job(JOB).unwrap();
        assert_eq!(engine.jobs.len(), 0);
    });
    assert_eq!(inputs.iter().filter(|line| *line == "deregister 0").count(), 1);
    assert_eq!(inputs.last().unwrap(), "deregister 0");
}

#[test]
fn limits_refuse_a_job_before_it_is_registered() {
    let plan = plan(&[(2, None)]);
    let no_jobs = Limits { jobs: 0, ..Limits::for_ranks(2) };
    let inputs = with_engine(&plan, no_jobs, "", |engine| {
        assert_eq!(fault(open(engine)), Fault::Full(Limit::Jobs, 0));
    });
    assert!(inputs.is_empty(), "{inputs:?}");
    // The ranks of the first job count too.
    let three = Limits { jobs: 2, conns: 3, ..Limits::for_ranks(4) };
    let inputs = with_engine(&plan, three, "", |engine| {
        open(engine).unwrap();
        assert_eq!(fault(open(engine)), Fault::Full(Limit::Conns, 3));
        assert_eq!(engine.jobs.len(), 1);
    });
    assert_eq!(inputs.iter().filter(|line| line.starts_with("register")).count(), 1);
}

#[test]
fn placement_and_preput_follow_the_programs_on_several_nodes() {
    let record = record(&plan(&[(3, None)]));
    let (inputs, result) = described(&record, &Place::Node(0), "");
    result.unwrap();
    let expected = [
        "program 0 0+3",
        "node 0 0+1",
        "node 1 1+1",
        "node 0 2+1",
        "preput k=v",
        "attr PMI_process_mapping=(vector,(0,2,1),(0,1,1))",
        "attr pmix.hname.0=a,b",
        "attr pmix.parent=1",
        "define hydrant://node/a 0,2",
        "pset hydrant://node/b 1+1",
        "pset hydrant://job/kvs_1 0+3",
        "pset hydrant://app/0 0+3",
        "pset hydrant://job/kvs_0 0+2",
        "define hydrant://job/kvs_1/with-parent 0-2 with job 0",
    ];
    assert_eq!(inputs, expected);
}

#[test]
fn the_spawner_s_node_has_the_preput_already() {
    let record = record(&plan(&[(3, None)]));
    let preput = |inputs: &[String]| inputs.iter().filter(|line| line.starts_with("preput")).count();
    assert_eq!(preput(&described(&record, &Place::Node(1), "").0), 0);
    assert_eq!(preput(&described(&record, &Place::Node(2), "").0), 1);
}

#[test]
fn nothing_follows_a_refused_input() {
    let record = record(&plan(&[(3, None)]));
    let (inputs, result) = described(&record, &Place::Node(0), "preput k=v");
    assert_eq!(inputs, ["program 0 0+3", "node 0 0+1", "node 1 1+1", "node 0 2+1", "preput k=v"]);
    assert_eq!(fault(result), Fault::Full(Limit::Psets, 3));
    let (inputs, result) = described(&record, &Place::Node(0), "define hydrant://node/a 0,2");
    assert_eq!(inputs.last().unwrap(), "define hydrant://node/a 0,2");
    assert!(matches!(result, Err(RunError::Pset { name, .. }) if name == "hydrant://node/a"));
}

#[test]
fn a_job_has_between_one_and_two_to_the_31_ranks() {
    let sized = |ranks: &[u32]| {
        let program = plan(&[(1, None)]).programs.remove(0);
        let programs: Vec<_> = ranks.iter().map(|&ranks| Program { ranks, ..program.clone() }).collect();
        size(&programs).map_err(|error| error.to_string())
    };
    assert_eq!(sized(&[i32::MAX as u32 - 1, 1]), Ok(i32::MAX as u32));
    assert_eq!(sized(&[]).unwrap_err(), "cannot run a job of 0 ranks: give from 1 to 2147483647 with -n");
    assert_eq!(
        sized(&[u32::MAX, 1]).unwrap_err(),
        "cannot run a job of 4294967296 ranks: give from 1 to 2147483647 with -n"
    );
    assert!(sized(&[i32::MAX as u32, 1]).is_err());
}

#[test]
fn the_host_has_the_name_that_ranks_use() {
    let mut programs = plan(&[(2, None), (1, None)]).programs;
    assert_eq!(name_for_ranks(&programs, "here").as_deref(), Some("here"));
    programs[0].env.push((PMIX_HOSTNAME.into(), "pod".into()));
    assert_eq!(name_for_ranks(&programs, "here"), None, "the other program has another name");
    programs[1].env.push((PMIX_HOSTNAME.into(), "pod".into()));
    assert_eq!(name_for_ranks(&programs, "here").as_deref(), Some("pod"));
    for program in &mut programs {
        program.env = vec![(PMIX_HOSTNAME.into(), "n".repeat(256).into())];
    }
    assert_eq!(name_for_ranks(&programs, "here"), None, "a reply has no room for it");
}
