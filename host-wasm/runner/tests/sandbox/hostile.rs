//! Plugins that mean harm, made by hand: each ends its own job with an error that names it, and nothing else.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::{JOB, LIMITS, SEED, job, sandbox};
use hydrant_core::server::JobSpec;
use hydrant_core::{Backend, ConnId, Input, Rank, Time};
use hydrant_wasm::{Error, FILE_MAX, Nonsense, Plugin, PluginError, Sandbox, Settings, Why};

/// Where the plugins below leave their records.
const OUTPUT: u32 = 131_072;
/// `Ok(Handled)`: nothing consumed, no tick, and more to be said.
const HANDLED: &[u8] = &[0, 0, 0, 0, 1];

/// A plugin in WebAssembly's text format, of which each test changes something.
#[derive(Clone)]
struct Made {
    head: String,
    memory: String,
    version: String,
    output: u32,
    handle: String,
    poll: String,
    snapshot: String,
}

/// Leaves a record, and returns its length.
fn leave(record: &[u8]) -> String {
    let store = |(at, byte): (usize, &u8)| {
        format!("(i32.store8 (i32.const {}) (i32.const {byte}))", OUTPUT as usize + at)
    };
    let stores: String = record.iter().enumerate().map(store).collect();
    format!("{stores} (i32.const {})", record.len())
}

impl Default for Made {
    fn default() -> Made {
        Made {
            head: String::new(),
            memory: "4 64".to_owned(),
            version: "(i32.const 1)".to_owned(),
            output: OUTPUT,
            handle: leave(HANDLED),
            poll: "(i32.const 0)".to_owned(),
            snapshot: leave(&[0, 0, 0]),
        }
    }
}

impl Made {
    fn text(&self) -> String {
        let Made { head, memory, version, output, handle, poll, snapshot } = self;
        let begun = leave(&[0, 0, 0]);
        format!(
            r#"(module {head}
            (memory (export "memory") {memory})
            (func (export "hydrant_abi_version") (result i32) {version})
            (func (export "hydrant_input_address") (result i32) (i32.const 1024))
            (func (export "hydrant_input_size") (result i32) (i32.const 65536))
            (func (export "hydrant_output_address") (result i32) (i32.const {output}))
            (func (export "hydrant_output_size") (result i32) (i32.const 65536))
            (func (export "hydrant_reserve") (param i32) (result i32) {begun})
            (func (export "hydrant_handle") (param i32) (result i32) {handle})
            (func (export "hydrant_poll") (result i32) {poll})
            (func (export "hydrant_snapshot") (result i32) {snapshot})
            (func (export "hydrant_snapshot_room") (param i32) (result i32) {begun})
            (func (export "hydrant_restore") (param i32) (result i32) {begun}))"#
        )
    }

    fn load(&self) -> Result<Sandbox, PluginError> {
        load(self.text().as_bytes())
    }

    /// A server of it, with a job and a connection.
    fn server(&self) -> Result<Plugin, Error> {
        let mut plugin = self.load()?.server(LIMITS, SEED)?;
        plugin.handle(Time(0), Input::RegisterJob(JobSpec::new(JOB, "kvs", 2)))?;
        plugin.handle(Time(0), Input::Opened { conn: ConnId(0), job: JOB, rank: Some(Rank(0)) })?;
        Ok(plugin)
    }

    /// What becomes of one that says this.
    fn says(said: &[u8]) -> Error {
        let plugin = Made { poll: leave(said), ..Made::default() }.server().expect("it begins well");
        Made::heard(plugin)
    }

    /// The same on node 1 of four, with node 0 above and node 2 below. Rank 1 is on node 2.
    fn says_on_node(said: &[u8], then: Option<Input<'_>>) -> Error {
        let mut plugin = Made { poll: leave(said), ..Made::default() }
            .load()
            .and_then(|sandbox| sandbox.server(LIMITS, SEED).map_err(|error| panic!("{error}")))
            .expect("it is one");
        let place = |first, node| Input::MapRanks { job: JOB, first: Rank(first), count: 1, node };
        let opened = Input::Opened { conn: ConnId(0), job: JOB, rank: Some(Rank(0)) };
        let node = Input::Node { node: 1, nodes: 4, radix: 2 };
        let job = Input::RegisterJob(JobSpec::new(JOB, "kvs", 2));
        for input in [node, job, place(0, 1), place(1, 2), opened].into_iter().chain(then) {
            plugin.handle(Time(0), input).expect("it begins well");
        }
        Made::heard(plugin)
    }

    fn heard(mut plugin: Plugin) -> Error {
        let mut buf = vec![0; LIMITS.output_max()];
        loop {
            match plugin.poll(&mut buf) {
                Ok(output) => assert!(output.is_some(), "it says something, or is found out"),
                Err(error) => return error,
            }
        }
    }
}

/// Loads a module, as text or as bytes.
fn load(module: &[u8]) -> Result<Sandbox, PluginError> {
    let dir = tempfile::tempdir().expect("there is room for a file");
    let file = dir.path().join("hostile.wasm");
    let bytes = wat::parse_bytes(module).map_or_else(|_| module.to_vec(), |bytes| bytes.into_owned());
    fs::write(&file, bytes).expect("there is room for a file");
    Sandbox::load(&file, &Settings { deadline: Duration::from_millis(300), cache: None })
}

/// What is wrong with the plugin, whose file the error names.
#[track_caller]
fn why(error: impl Into<Error>) -> Why {
    match error.into() {
        Error::Plugin(PluginError { file, why }) => {
            assert!(file.ends_with("hostile.wasm"), "{}", file.display());
            why
        }
        Error::Fault(why) => panic!("{why} is said to be the host's fault"),
    }
}

macro_rules! assert_why {
    ($error:expr, $pattern:pat $(if $guard:expr)?) => {
        match why($error) {
            $pattern $(if $guard)? => {}
            other => panic!("{other:?}"),
        }
    };
}

#[test]
fn what_is_no_plugin_is_not_run() {
    assert_why!(load(b"rubbish").unwrap_err(), Why::Module(_));
    assert_why!(load(&vec![0; FILE_MAX as usize + 1]).unwrap_err(), Why::TooLong(len) if len == FILE_MAX + 1);
    assert_why!(load(b"(module)").unwrap_err(), Why::Export("memory"));
    let import = r#"(import "env" "system" (func))"#.to_owned();
    let made = Made { head: import, ..Made::default() };
    assert_why!(made.load().unwrap_err(), Why::Import(name) if name == "env.system");
    let made = Made { memory: "4".to_owned(), ..Made::default() };
    assert_why!(made.load().unwrap_err(), Why::Unbounded);
    let made = load(br#"(module (memory (export "memory") 1 1))"#).unwrap();
    assert_why!(made.server(LIMITS, SEED).unwrap_err(), Why::Export("hydrant_abi_version"));
    let made = Made { version: "(i32.const 7)".to_owned(), ..Made::default() };
    let error = made.server().unwrap_err();
    assert!(error.to_string().contains("speaks version 7 of the ABI, and this host version 1"), "{error}");
    let missing = PathBuf::from("/nowhere/hostile.wasm");
    assert_why!(Sandbox::load(&missing, &Settings::default()).unwrap_err(), Why::Read(_));
}

#[test]
fn a_call_that_does_not_end_is_ended() {
    let forever = "(loop $again (br $again)) (unreachable)".to_owned();
    let handle = Made { handle: forever.clone(), ..Made::default() };
    assert_why!(handle.server().unwrap_err(), Why::Deadline(_));
    let version = Made { version: forever.clone(), ..Made::default() };
    assert_why!(version.server().unwrap_err(), Why::Deadline(_));
    let start = "(func $start (loop $again (br $again))) (start $start)".to_owned();
    assert_why!(Made { head: start, ..Made::default() }.server().unwrap_err(), Why::Deadline(_));
    let mut poll = Made { poll: forever, ..Made::default() }.server().unwrap();
    assert_why!(poll.poll(&mut vec![0; LIMITS.output_max()]).unwrap_err(), Why::Deadline(_));
    assert_why!(poll.handle(Time(1), Input::Timeout).unwrap_err(), Why::Over);
    let recursion =
        "(func $deep (param i32) (result i32) (i32.add (i32.const 1) (call $deep (local.get 0))))";
    let deep = Made {
        head: recursion.to_owned(),
        handle: "(call $deep (i32.const 0))".to_owned(),
        ..Made::default()
    };
    assert_why!(deep.server().unwrap_err(), Why::Trap(what) if what.contains("stack"));
}

#[test]
fn memory_ends_where_the_cap_is() {
    // It traps as soon as it gets no more, and goes on for ever if it always does.
    let greedy =
        "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 64)) (i32.const -1)))) (unreachable)";
    let made = Made { memory: "4 65536".to_owned(), handle: greedy.to_owned(), ..Made::default() };
    assert_why!(made.server().unwrap_err(), Why::Trap(_));
    let made = Made { memory: "65536 65536".to_owned(), ..Made::default() };
    assert_why!(made.server().unwrap_err(), Why::Trap(what) if what.contains("memory"));
}

#[test]
fn traps_are_told() {
    let made = Made { handle: "(unreachable)".to_owned(), ..Made::default() };
    assert_why!(made.server().unwrap_err(), Why::Trap(what) if what.contains("unreachable"));
    let beyond = "(i32.load (i32.const 0x7fffffff))".to_owned();
    assert_why!(Made { handle: beyond, ..Made::default() }.server().unwrap_err(), Why::Trap(_));
}

#[test]
fn outputs_that_cannot_be_are_not_believed() {
    let nonsense = |said: &[u8]| match why(Made::says(said)) {
        Why::Nonsense(nonsense) => nonsense,
        other => panic!("{other:?}"),
    };
    // Bytes for connection 5, which is not open; for one that no server has; and none for one that is.
    assert_eq!(nonsense(&[0, 5, 1, b'x', 1]), Nonsense::Conn(ConnId(5)));
    assert_eq!(nonsense(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, b'x', 1]), Nonsense::Conn(ConnId(u32::MAX)));
    assert_eq!(nonsense(&[0, 0, 0, 1]), Nonsense::Length(0));
    // The same reply again and again.
    let Nonsense::Endless(most) = nonsense(&[0, 0, 1, b'x', 1]) else { panic!("it must end somewhere") };
    assert!(most < 100, "{most}");
    // Closed twice; a rank that the job does not have, and one of another job; a request that nobody can have made.
    assert_eq!(nonsense(&[1, 0, 1, 1]), Nonsense::Closed(ConnId(0)));
    assert_eq!(nonsense(&[2, 0, 0, 2, 1]), Nonsense::Rank(JOB, Rank(2)));
    assert_eq!(nonsense(&[2, 0, 1, 0, 1]), Nonsense::Job(hydrant_core::JobId(1)));
    assert_eq!(nonsense(&[3, 9, 0, 0, 1, 1, b'x', 1]), Nonsense::Upcall(9));
    // A fence of more ranks than there are, a message for a node where there is one, an end for the second time.
    assert_eq!(nonsense(&[8, 0, 1, 3, 0, 1]), Nonsense::Late { arrived: 1, size: 3, ranks: 2 });
    assert_eq!(nonsense(&[7, 0, 1, b'x', 1]), Nonsense::Node(0));
    assert_eq!(nonsense(&[6, 0, 0, 0, 0, 0, 1]), Nonsense::Ended(JOB));
}

#[test]
fn nodes_speak_for_their_own_ranks_and_to_their_neighbours() {
    let nonsense = |said: &[u8], then| match why(Made::says_on_node(said, then)) {
        Why::Nonsense(nonsense) => nonsense,
        other => panic!("{other:?}"),
    };
    // Joined, Kill and a spawn of a rank that is elsewhere.
    for said in [&[2, 0, 0, 1, 1][..], &[5, 0, 1, 0, 0, 1], &[3, 0, 0, 1, 1, 1, b'x', 1]] {
        assert_eq!(nonsense(said, None), Nonsense::Elsewhere(JOB, Rank(1)));
    }
    // That everybody has come to job 0's fence, for a node that is not next to it, for itself, for one that takes nothing.
    let arrive = |node| [7, node, 4, 1, 0, 0, 0, 1];
    assert_eq!(nonsense(&arrive(4), None), Nonsense::Node(4));
    assert_eq!(nonsense(&arrive(1), None), Nonsense::Node(1));
    assert_eq!(nonsense(&arrive(0), Some(Input::PeerBlocked { node: 0 })), Nonsense::Blocked(0));
    // Again and again, of which no more can be founded than the six inputs.
    assert_eq!(nonsense(&arrive(2), Some(Input::PeerBlocked { node: 0 })), Nonsense::Unfounded(2, 7));
    assert_eq!(nonsense(&[7, 0, 1, 99, 1], None), Nonsense::Message(0));
}

#[test]
fn records_that_cannot_be_are_not_read() {
    assert_why!(Made::says(&[99]), Why::Record(_));
    // A reply that says it is longer than its record.
    assert_why!(Made::says(&[0, 0, 100, b'x', 1]), Why::Record(_));
    for len in ["(i32.const 65537)", "(i32.const -1)"] {
        let made = Made { handle: len.to_owned(), ..Made::default() };
        assert_why!(made.server().unwrap_err(), Why::Record(_));
    }
    let made = Made { output: u32::MAX - 4, ..Made::default() };
    assert_why!(made.server().unwrap_err(), Why::Record(_));
    // More bytes done with than there were; a tick at once, again and again; a refusal of what is in order.
    let made = Made { handle: leave(&[0, 3, 0, 0, 1]), ..Made::default() };
    assert_why!(made.server().unwrap_err(), Why::Nonsense(Nonsense::Consumed { done: 3, given: 0 }));
    let mut made = Made { handle: leave(&[0, 0, 0, 1, 5, 0]), ..Made::default() }.server().unwrap();
    assert_why!(made.handle(Time(5), Input::Timeout).unwrap_err(), Why::Nonsense(Nonsense::Wake(5)));
    let made = Made { handle: leave(&[1, 2]), ..Made::default() };
    assert_why!(made.server().unwrap_err(), Why::Refused);
    // A snapshot behind the end of the memory, and room for one that is none.
    let made = Made { snapshot: leave(&[0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]), ..Made::default() };
    assert_why!(made.server().unwrap().snapshot().unwrap_err(), Why::Record(_));
    let mut honest = sandbox().server(LIMITS, SEED).unwrap();
    let (saved, known) = (honest.snapshot().unwrap(), honest.known().clone());
    assert_why!(Made::default().load().unwrap().restore(&saved, known).unwrap_err(), Why::Record(_));
}

#[test]
fn others_go_on_while_one_is_ended() {
    let mut honest = sandbox().server(LIMITS, SEED).unwrap();
    let hostile = Made { handle: "(loop $again (br $again)) (unreachable)".to_owned(), ..Made::default() };
    let endless = std::thread::spawn(move || hostile.server().unwrap_err());
    let mut buf = vec![0; LIMITS.output_max()];
    let mut said = 0;
    for (at, (now, event)) in job().into_iter().enumerate() {
        honest.handle(now, event.input()).unwrap();
        while honest.poll(&mut buf).unwrap().is_some() {
            said += 1;
        }
        if at % 8 == 0 {
            let made = Made { handle: "(unreachable)".to_owned(), ..Made::default() };
            assert_why!(made.server().unwrap_err(), Why::Trap(_));
        }
    }
    assert!(said > 20, "{said}");
    assert_why!(endless.join().unwrap(), Why::Deadline(_));
}
