//! Invalid and hostile plugins, each written by hand. Each ends its own job alone, with an error that names it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::{JOB, LIMITS, SEED, job, sandbox};
use hydrant_abi::ABI_VERSION;
use hydrant_abi::turn::{DEADLINE, InputResult, MORE, Part, RECORD, TurnHead};
use hydrant_core::server::JobSpec;
use hydrant_core::{Backend, BackendError, ConnId, Input, Rank, Time};
use hydrant_wasm::{
    ClientBytes, FILE_MAX, Plugin, PluginError, PluginErrorKind, Sandbox, Settings, Violation,
};

/// Address of the plugins' output buffer.
const OUTPUT: u32 = 131_072;

/// Parts of a plugin in WebAssembly's text format. Each test replaces some.
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

/// Returns code that writes a record and returns its length.
fn leave(record: &[u8]) -> String {
    let store = |(at, byte): (usize, &u8)| {
        format!("(i32.store8 (i32.const {}) (i32.const {byte}))", OUTPUT as usize + at)
    };
    let stores: String = record.iter().enumerate().map(store).collect();
    format!("{stores} (i32.const {})", record.len())
}

/// Returns the bytes of a return: the results, each of which is what was consumed and `again`, and outputs.
fn returned(results: &[[u32; 2]], outputs: &[(u32, &[u8])], flags: u32) -> Vec<u8> {
    let (accepted, made) = (results.len() as u32, outputs.len() as u32);
    let mut bytes = vec![0; 2048];
    let head = TurnHead { results: accepted, outputs: made, flags, error: 0, poll_at: 5 };
    let mut rest = head.write(&mut bytes).expect("there is room");
    for &[bytes, again] in results {
        rest = InputResult { bytes, again }.write(rest).expect("there is room");
    }
    for (conn, bytes) in outputs {
        let room = Part { conn: *conn, len: bytes.len() as u32 }.write(rest).expect("there is room");
        let (place, behind) = room.split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        rest = behind;
    }
    let unused = rest.len();
    bytes.truncate(bytes.len() - unused);
    bytes
}

/// Returns code for `hydrant_handle` that accepts an input: so much consumed, and output pending or not.
fn accept(consumed: u32, again: u32, flags: u32) -> String {
    leave(&returned(&[[consumed, again]], &[], flags))
}

/// Returns code for `hydrant_poll` that returns an output's record.
fn say(record: &[u8]) -> String {
    leave(&returned(&[], &[(RECORD, record)], MORE))
}

impl Default for Made {
    fn default() -> Made {
        Made {
            head: String::new(),
            memory: "4 64".to_owned(),
            version: format!("(i32.const {ABI_VERSION})"),
            output: OUTPUT,
            handle: accept(0, 0, MORE),
            poll: leave(&returned(&[], &[], 0)),
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
            (func (export "hydrant_handle") (param i32 i32 i64) (result i32) {handle})
            (func (export "hydrant_poll") (param i32) (result i32) {poll})
            (func (export "hydrant_snapshot") (param i32) (result i32) {snapshot})
            (func (export "hydrant_snapshot_room") (param i32) (result i32) {begun})
            (func (export "hydrant_restore") (param i32) (result i32) {begun}))"#
        )
    }

    fn load(&self) -> Result<Sandbox, PluginError> {
        load(self.text().as_bytes())
    }

    /// Creates a server with a job and a connection.
    fn server(&self) -> Result<Plugin, BackendError> {
        let mut plugin = self.load()?.server(LIMITS, SEED)?;
        plugin.handle(Time(0), Input::RegisterJob(JobSpec::new(JOB, "kvs", 2)))?;
        plugin.handle(Time(0), Input::Opened { conn: ConnId(0), job: JOB, rank: Some(Rank(0)) })?;
        Ok(plugin)
    }

    /// Returns the error of a plugin whose every output is `said`.
    fn with_output(said: &[u8]) -> BackendError {
        Made::with_return(&returned(&[], &[(RECORD, said)], MORE))
    }

    /// Returns the error of a plugin whose every poll leaves `returned`.
    fn with_return(returned: &[u8]) -> BackendError {
        let plugin = Made { poll: leave(returned), ..Made::default() }.server().expect("it begins well");
        Made::poll_error(plugin)
    }

    /// Does the same on node 1 of four. Node 0 is its parent and node 2 its child. Rank 1 is on node 2.
    fn with_output_on_node(said: &[u8], then: Option<Input<'_>>) -> BackendError {
        let mut plugin = Made { poll: say(said), ..Made::default() }
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
        Made::poll_error(plugin)
    }

    fn poll_error(mut plugin: Plugin) -> BackendError {
        let mut buf = vec![0; LIMITS.output_max()];
        loop {
            match plugin.poll(&mut buf) {
                Ok(output) => assert!(output.is_some(), "it says something, or is found out"),
                Err(error) => return error,
            }
        }
    }
}

/// Loads a module in text or binary format.
fn load(module: &[u8]) -> Result<Sandbox, PluginError> {
    let dir = tempfile::tempdir().expect("there is room for a file");
    let file = dir.path().join("hostile.wasm");
    let bytes = wat::parse_bytes(module).map_or_else(|_| module.to_vec(), |bytes| bytes.into_owned());
    fs::write(&file, bytes).expect("there is room for a file");
    Sandbox::load(&file, &Settings { deadline: Duration::from_millis(300), ..Settings::default() })
}

/// Returns the kind of a plugin's error, which must name the plugin's file.
#[track_caller]
fn kind(error: impl Into<BackendError>) -> PluginErrorKind {
    let BackendError::Other(error) = error.into() else { panic!("a fault is no error of the plugin") };
    let PluginError { file, kind } = *error.downcast().expect("the plugin has failed");
    assert!(file.ends_with("hostile.wasm"), "{}", file.display());
    kind
}

macro_rules! assert_kind {
    ($error:expr, $pattern:pat $(if $guard:expr)?) => {
        match kind($error) {
            $pattern $(if $guard)? => {}
            other => panic!("{other:?}"),
        }
    };
}

#[test]
fn invalid_files_are_refused() {
    assert_kind!(load(b"rubbish").unwrap_err(), PluginErrorKind::InvalidModule(_));
    assert_kind!(load(&vec![0; FILE_MAX as usize + 1]).unwrap_err(), PluginErrorKind::TooLong { len, .. } if len == FILE_MAX + 1);
    assert_kind!(load(b"(module)").unwrap_err(), PluginErrorKind::MissingExport("memory"));
    let import = r#"(import "env" "system" (func))"#.to_owned();
    let made = Made { head: import, ..Made::default() };
    assert_kind!(made.load().unwrap_err(), PluginErrorKind::Import(name) if name == "env.system");
    let made = Made { memory: "4".to_owned(), ..Made::default() };
    assert_kind!(made.load().unwrap_err(), PluginErrorKind::UnboundedMemory);
    let made = load(br#"(module (memory (export "memory") 1 1))"#).unwrap();
    assert_kind!(
        made.server(LIMITS, SEED).unwrap_err(),
        PluginErrorKind::MissingExport("hydrant_abi_version")
    );
    let made = Made { version: "(i32.const 99)".to_owned(), ..Made::default() };
    let error = made.server().unwrap_err();
    let expected = format!("ABI version 99, this host needs {ABI_VERSION}");
    assert!(error.to_string().contains(&expected), "{error}");
    let missing = PathBuf::from("/nowhere/hostile.wasm");
    assert_kind!(Sandbox::load(&missing, &Settings::default()).unwrap_err(), PluginErrorKind::Read(_));
}

#[test]
fn a_call_ends_at_its_deadline() {
    let forever = "(loop $again (br $again)) (unreachable)".to_owned();
    let handle = Made { handle: forever.clone(), ..Made::default() };
    assert_kind!(handle.server().unwrap_err(), PluginErrorKind::Timeout(_));
    let version = Made { version: forever.clone(), ..Made::default() };
    assert_kind!(version.server().unwrap_err(), PluginErrorKind::Timeout(_));
    let start = "(func $start (loop $again (br $again))) (start $start)".to_owned();
    assert_kind!(Made { head: start, ..Made::default() }.server().unwrap_err(), PluginErrorKind::Timeout(_));
    let mut poll = Made { poll: forever, ..Made::default() }.server().unwrap();
    assert_kind!(poll.poll(&mut vec![0; LIMITS.output_max()]).unwrap_err(), PluginErrorKind::Timeout(_));
    assert_kind!(poll.handle(Time(1), Input::Timeout).unwrap_err(), PluginErrorKind::Failed);
    let recursion =
        "(func $deep (param i32) (result i32) (i32.add (i32.const 1) (call $deep (local.get 0))))";
    let deep = Made {
        head: recursion.to_owned(),
        handle: "(call $deep (i32.const 0))".to_owned(),
        ..Made::default()
    };
    assert_kind!(deep.server().unwrap_err(), PluginErrorKind::Trap(what) if what.contains("stack"));
}

#[test]
fn memory_is_capped() {
    // It traps when its memory cannot grow.
    let greedy =
        "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 64)) (i32.const -1)))) (unreachable)";
    let made = Made { memory: "4 65536".to_owned(), handle: greedy.to_owned(), ..Made::default() };
    assert_kind!(made.server().unwrap_err(), PluginErrorKind::Trap(_));
    let made = Made { memory: "65536 65536".to_owned(), ..Made::default() };
    assert_kind!(made.server().unwrap_err(), PluginErrorKind::Trap(what) if what.contains("memory"));
}

#[test]
fn traps_are_reported() {
    let made = Made { handle: "(unreachable)".to_owned(), ..Made::default() };
    assert_kind!(made.server().unwrap_err(), PluginErrorKind::Trap(what) if what.contains("unreachable"));
    let beyond = "(i32.load (i32.const 0x7fffffff))".to_owned();
    assert_kind!(Made { handle: beyond, ..Made::default() }.server().unwrap_err(), PluginErrorKind::Trap(_));
}

// Fault: A plugin names a file of the user to remove
// Outcome: the plugin is ended, and its job with it
// Guarantee: Only names in the bytes of a client are removed
#[test]
fn invalid_outputs_are_refused() {
    let violation = |said: &[u8]| match kind(Made::with_output(said)) {
        PluginErrorKind::Violation(violation) => violation,
        other => panic!("{other:?}"),
    };
    // Bytes for connection 5, which is not open, and for one that is out of range. No bytes for an open one.
    assert_eq!(violation(&[0, 5, 1, b'x']), Violation::UnknownConn(ConnId(5)));
    assert_eq!(
        violation(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, b'x']),
        Violation::UnknownConn(ConnId(u32::MAX))
    );
    assert_eq!(violation(&[0, 0, 0]), Violation::InvalidLength(0));
    // The same reply without end.
    let Violation::TooManyOutputs(most) = violation(&[0, 0, 1, b'x']) else {
        panic!("it must end somewhere")
    };
    assert!(most < 100, "{most}");
    // A connection closed twice. A rank that the job does not have, and one of another job. An upcall out of range.
    assert_eq!(violation(&[1, 0, 1]), Violation::ClosedTwice(ConnId(0)));
    assert_eq!(violation(&[2, 0, 0, 2]), Violation::UnknownRank(JOB, Rank(2)));
    assert_eq!(violation(&[2, 0, 1, 0]), Violation::UnknownJob(hydrant_core::JobId(1)));
    assert_eq!(violation(&[3, 9, 0, 0, 1, 1, b'x']), Violation::InvalidUpcall(9));
    // A fence of more ranks than there are. A message where there is one node. A second abort.
    assert_eq!(violation(&[8, 0, 1, 3, 0]), Violation::StalledFence { arrived: 1, size: 3, ranks: 2 });
    assert_eq!(violation(&[7, 0, 1, b'x']), Violation::NotNeighbour(0));
    assert_eq!(violation(&[6, 0, 0, 0, 0, 0]), Violation::AbortedTwice(JOB));
    // Files to remove that no client has named.
    assert_eq!(violation(&[9, 0, 0, 4, b'/', b'e', b't', b'c']), Violation::UnnamedFiles(JOB, Rank(0)));
}

#[test]
fn invalid_replies_are_refused() {
    let error = |outputs: &[(u32, &[u8])]| kind(Made::with_return(&returned(&[], outputs, 0)));
    // The first reply is valid. The others are for a connection that is not open, and empty.
    for (reply, expected) in [
        ((5, &b"x"[..]), Violation::UnknownConn(ConnId(5))),
        ((RECORD - 1, b"x"), Violation::UnknownConn(ConnId(RECORD - 1))),
        ((0, b""), Violation::InvalidLength(0)),
    ] {
        match error(&[(0, b"x"), reply]) {
            PluginErrorKind::Violation(violation) => assert_eq!(violation, expected),
            other => panic!("{other:?}"),
        }
    }
    // Longer than its return, by a byte and by far. Fewer outputs than the head says.
    let whole = returned(&[], &[(0, b"xy")], MORE);
    assert_kind!(Made::with_return(&whole[..whole.len() - 1]), PluginErrorKind::InvalidRecord(_));
    let mut long = whole.clone();
    long[TurnHead::LEN + 7] = 0xff;
    assert_kind!(Made::with_return(&long), PluginErrorKind::InvalidRecord(_));
    let mut many = whole;
    many[4..8].fill(0xff);
    assert_kind!(Made::with_return(&many), PluginErrorKind::InvalidRecord(_));
    // More at once than a server can have pending.
    let replies = [(0, &b"x"[..]); 100];
    assert_kind!(
        Made::with_return(&returned(&[], &replies, MORE)),
        PluginErrorKind::Violation(Violation::TooManyOutputs(_))
    );
}

#[test]
fn a_plugin_without_progress_is_refused() {
    let init = b"cmd=init pmi_version=1 pmi_subversion=1\n";
    let violation = |of_bytes: [u32; 3], bytes: &[u8]| {
        let [consumed, again, flags] = of_bytes;
        // `of_bytes` for bytes of a connection.
        let handle = format!(
            "(if (result i32) (i32.ne (i32.load (i32.const 1024)) (i32.const -1)) (then {}) (else {}))",
            accept(consumed, again, flags),
            accept(0, 0, MORE)
        );
        let mut plugin = Made { handle, ..Made::default() }.server().expect("it begins well");
        let result = plugin.handle(Time(0), Input::Bytes { conn: ConnId(0), bytes, full: false });
        let result = result.and_then(|_| plugin.poll(&mut vec![0; LIMITS.output_max()]).map(drop));
        result.map_err(|error| match kind(error) {
            PluginErrorKind::Violation(violation) => violation,
            other => panic!("{other:?}"),
        })
    };
    // Nothing is consumed. Only an incomplete message may be left.
    for flags in [0, MORE] {
        assert_eq!(violation([0, 0, flags], init), Err(Violation::NotConsumed(ConnId(0))));
        assert_eq!(violation([0, 0, flags], &init[..39]), Ok(()));
    }
    // Deferred until a reply is taken, but none is owed.
    assert_eq!(violation([0, 1, 0], init), Err(Violation::NotConsumed(ConnId(0))));
    // Consumed, and no reply.
    for flags in [0, MORE] {
        assert_eq!(violation([40, 0, flags], init), Err(Violation::NoReply(ConnId(0))));
    }
}

#[test]
fn each_connection_of_a_call_with_several_is_checked() {
    let init = b"cmd=init pmi_version=1 pmi_subversion=1\n";
    let violation = |results: &[[u32; 2]], replies: &[(u32, &[u8])]| -> Result<(), BackendError> {
        let handle = format!(
            "(if (result i32) (i32.ne (i32.load (i32.const 1024)) (i32.const -1)) (then {}) (else {}))",
            leave(&returned(results, replies, 0)),
            accept(0, 0, MORE)
        );
        let mut plugin = Made { handle, ..Made::default() }.server().expect("it begins well");
        plugin.handle(Time(0), Input::Opened { conn: ConnId(1), job: JOB, rank: Some(Rank(1)) })?;
        let mut received = [0, 1].map(|conn| ClientBytes::new(ConnId(conn), init, false));
        plugin.handle_bytes(Time(0), &mut received)?;
        assert_eq!(received.map(|bytes| bytes.consumed.bytes), [40, 40]);
        let mut buf = vec![0; LIMITS.output_max()];
        while plugin.poll(&mut buf)?.is_some() {}
        Ok(())
    };
    let [none, first, second] = [&[][..], &[(0, &b"x"[..])], &[(1, &b"x"[..])]];
    let both = [(0, &b"x"[..]), (1, b"y")];
    violation(&[[40, 0]; 2], &both).expect("both have a reply");
    for (results, replies, expected) in [
        ([[40, 0], [0, 0]], none, Violation::NotConsumed(ConnId(1))),
        ([[41, 0], [40, 0]], none, Violation::Consumed { consumed: 41, given: 40 }),
        ([[40, 0]; 2], first, Violation::NoReply(ConnId(1))),
        ([[40, 0]; 2], second, Violation::NoReply(ConnId(0))),
    ] {
        assert_kind!(violation(&results, replies).unwrap_err(), PluginErrorKind::Violation(violation) if violation == expected);
    }
    // Fewer results and more than inputs.
    for results in [&[[40, 0]][..], &[[40, 0]; 3]] {
        assert_kind!(violation(results, &both).unwrap_err(), PluginErrorKind::InvalidRecord(_));
    }
}

#[test]
fn outputs_for_other_nodes_ranks_and_non_neighbours_are_refused() {
    let violation = |said: &[u8], then| match kind(Made::with_output_on_node(said, then)) {
        PluginErrorKind::Violation(violation) => violation,
        other => panic!("{other:?}"),
    };
    // Joined, KillRank and Spawn of a rank on another node.
    for said in [&[2, 0, 0, 1][..], &[5, 0, 1, 0, 0], &[3, 0, 0, 1, 1, 1, b'x']] {
        assert_eq!(violation(said, None), Violation::RemoteRank(JOB, Rank(1)));
    }
    // Completion of job 0's fence: for a node that is not a neighbour, for itself, and for a blocked neighbour.
    let arrive = |node| [7, node, 5, 1, 0, 0, 0, 0];
    assert_eq!(violation(&arrive(4), None), Violation::NotNeighbour(4));
    assert_eq!(violation(&arrive(1), None), Violation::NotNeighbour(1));
    assert_eq!(violation(&arrive(0), Some(Input::PeerBlocked { node: 0 })), Violation::BlockedPeer(0));
    // Without end. The six inputs can cause no more than six.
    assert_eq!(violation(&arrive(2), Some(Input::PeerBlocked { node: 0 })), Violation::ExcessMessage(2, 7));
    assert_eq!(violation(&[7, 0, 1, 99], None), Violation::MalformedMessage(0));
}

#[test]
fn invalid_records_are_refused() {
    assert_kind!(Made::with_output(&[99]), PluginErrorKind::InvalidRecord(_));
    // A reply whose length exceeds its record.
    assert_kind!(Made::with_output(&[0, 0, 100, b'x']), PluginErrorKind::InvalidRecord(_));
    for len in ["(i32.const 65537)", "(i32.const -1)"] {
        let made = Made { handle: len.to_owned(), ..Made::default() };
        assert_kind!(made.server().unwrap_err(), PluginErrorKind::InvalidRecord(_));
    }
    let made = Made { output: u32::MAX - 4, ..Made::default() };
    assert_kind!(made.server().unwrap_err(), PluginErrorKind::InvalidRecord(_));
    // More bytes consumed than given. A deadline that has passed. An error in response to a valid call.
    let made = Made { handle: accept(3, 0, MORE), ..Made::default() };
    assert_kind!(
        made.server().unwrap_err(),
        PluginErrorKind::Violation(Violation::Consumed { consumed: 3, given: 0 })
    );
    let mut made = Made { handle: accept(0, 0, DEADLINE), ..Made::default() }.server().unwrap();
    assert_kind!(
        made.handle(Time(5), Input::Timeout).unwrap_err(),
        PluginErrorKind::Violation(Violation::PastDeadline(5))
    );
    let mut refusal = returned(&[], &[], 0);
    // The length of the error's record, and the record.
    refusal[12] = 1;
    refusal.push(2);
    let made = Made { handle: leave(&refusal), ..Made::default() };
    assert_kind!(made.server().unwrap_err(), PluginErrorKind::UnexpectedError(_));
    let made = Made { handle: leave(&refusal[..24]), ..Made::default() };
    assert_kind!(made.server().unwrap_err(), PluginErrorKind::InvalidRecord(_));
    // No result, two, and none at all.
    for results in [&[][..], &[[0, 0]; 2]] {
        let made = Made { handle: leave(&returned(results, &[], 0)), ..Made::default() };
        assert_kind!(made.server().unwrap_err(), PluginErrorKind::InvalidRecord(_));
    }
    let made = Made { handle: "(i32.const 0)".to_owned(), ..Made::default() };
    assert_kind!(made.server().unwrap_err(), PluginErrorKind::InvalidRecord(_));
    // A snapshot beyond the end of the memory, and memory of length 0 for a snapshot.
    let made = Made { snapshot: leave(&[0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]), ..Made::default() };
    assert_kind!(made.server().unwrap().snapshot().unwrap_err(), PluginErrorKind::InvalidRecord(_));
    let mut honest = sandbox().server(LIMITS, SEED).unwrap();
    let (saved, validator) = (honest.snapshot().unwrap(), honest.validator().clone());
    assert_kind!(
        Made::default().load().unwrap().restore(&saved, validator).unwrap_err(),
        PluginErrorKind::InvalidRecord(_)
    );
}

#[test]
fn other_plugins_continue_when_one_fails() {
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
            assert_kind!(made.server().unwrap_err(), PluginErrorKind::Trap(_));
        }
    }
    assert!(said > 20, "{said}");
    assert_kind!(endless.join().unwrap(), PluginErrorKind::Timeout(_));
}
