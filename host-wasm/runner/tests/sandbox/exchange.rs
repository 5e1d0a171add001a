//! Migration of a running server between native code and plugins.

use crate::common::{Event, LIMITS, SEED, job, sandbox};
use hydrant_core::{Backend, ConnId, Input, Server, Time};
use hydrant_driver::MappedStorage;
use hydrant_wasm::{ClientBytes, Plugin, Validator};

/// Result of an input, and the outputs that follow it.
type Step = (String, Vec<String>);

/// Applies one input to a backend.
fn step(core: &mut impl Backend, now: Time, event: &Event) -> Step {
    let result = core.handle(now, event.input());
    let mut buf = vec![0; LIMITS.output_max()];
    let mut said = Vec::new();
    while let Some(output) = core.poll(&mut buf).expect("the plugin is honest") {
        said.push(format!("{output:?}"));
    }
    (format!("{result:?} and a deadline at {:?}", core.poll_at()), said)
}

fn saved(server: &Server<'_>) -> Vec<u8> {
    let mut buf = vec![0; server.snapshot_len()];
    server.snapshot(&mut buf).expect("its length was asked for").to_vec()
}

/// Runs the job natively. Returns each step and the snapshot after it.
fn natively() -> Vec<(Step, Vec<u8>)> {
    let mut slabs = MappedStorage::new(&LIMITS);
    let mut server = Server::new(LIMITS, slabs.lend(), SEED).expect("the slabs are as long as they must be");
    let one = |(now, event): (Time, Event)| (step(&mut server, now, &event), saved(&server));
    job().into_iter().map(one).collect()
}

/// Returns the validator after the first `steps` steps.
fn validator(steps: usize) -> Validator {
    let mut validator = Validator::new(LIMITS);
    let mut slabs = MappedStorage::new(&LIMITS);
    let mut server = Server::new(LIMITS, slabs.lend(), SEED).expect("the slabs are as long as they must be");
    let mut buf = vec![0; LIMITS.output_max()];
    for (now, event) in job().into_iter().take(steps) {
        let consumed = server.handle(now, event.input()).expect("the job is in order");
        validator.check_input(now, &event.input(), consumed, server.poll_at()).expect("the server is honest");
        while let Some(output) = server.poll(&mut buf).expect("the buffer is long enough") {
            validator.check_output(&output).expect("the server is honest");
        }
    }
    validator
}

#[test]
fn the_job_has_outputs_of_every_kind() {
    let said: Vec<String> = natively().into_iter().flat_map(|((_, said), _)| said).collect();
    for kind in ["Bytes", "Close", "Joined", "Spawn", "AbortJob", "StalledFence", "RemoveFiles"] {
        assert!(said.iter().any(|said| said.starts_with(kind)), "no {kind}");
    }
}

#[test]
fn plugin_and_native_server_have_equal_outputs() {
    let mut plugin = sandbox().server(LIMITS, SEED).expect("the plugin is whole");
    for ((now, event), (expected, state)) in job().into_iter().zip(natively()) {
        assert_eq!(step(&mut plugin, now, &event), expected, "{event:?}");
        assert!(plugin.snapshot().expect("the plugin is honest") == state, "{event:?}");
    }
}

/// Applies bytes of several connections by one call of `handle`, or another input.
fn step_together<C: Backend>(
    core: &mut C,
    handle: impl FnOnce(&mut C, &mut [ClientBytes<'_>]),
    now: Time,
    events: &[Event],
) -> Step {
    if let [event @ Event::Tell(_)] = events {
        return step(core, now, event);
    }
    let said = events.iter().filter_map(|event| match event {
        Event::Says(conn, bytes) => Some(ClientBytes::new(ConnId(*conn), bytes, false)),
        Event::Tell(_) => None,
    });
    let mut received: Vec<ClientBytes<'_>> = said.collect();
    handle(core, &mut received);
    let mut buf = vec![0; LIMITS.output_max()];
    let mut said = Vec::new();
    while let Some(output) = core.poll(&mut buf).expect("the plugin is honest") {
        said.push(format!("{output:?}"));
    }
    let consumed: Vec<_> = received.iter().map(|bytes| bytes.consumed).collect();
    (format!("{consumed:?} and a deadline at {:?}", core.poll_at()), said)
}

#[test]
fn one_call_for_several_connections_has_the_outputs_of_one_for_each() {
    let mut slabs = MappedStorage::new(&LIMITS);
    let mut server = Server::new(LIMITS, slabs.lend(), SEED).expect("the slabs are as long as they must be");
    let mut plugin = sandbox().server(LIMITS, SEED).expect("the plugin is whole");
    let mut most = 0;
    for group in job().chunk_by(|(_, one), (_, other)| match (one, other) {
        (Event::Says(one, _), Event::Says(other, _)) => one < other,
        _ => false,
    }) {
        let (now, events) = (group[0].0, group.iter().map(|(_, event)| event.clone()).collect::<Vec<_>>());
        let one_by_one = |server: &mut Server<'_>, received: &mut [ClientBytes<'_>]| {
            for ClientBytes { conn, bytes, full, consumed } in received {
                let input = Input::Bytes { conn: *conn, bytes, full: *full };
                *consumed = server.handle(now, input).expect("the job is in order");
            }
        };
        let together = |plugin: &mut Plugin, received: &mut [ClientBytes<'_>]| {
            plugin.handle_bytes(now, received).expect("the job is in order");
        };
        let expected = step_together(&mut server, one_by_one, now, &events);
        assert_eq!(step_together(&mut plugin, together, now, &events), expected, "{events:?}");
        assert!(plugin.snapshot().expect("the plugin is honest") == saved(&server), "{events:?}");
        most = most.max(events.len());
    }
    assert_eq!(most, 3, "all ranks of the job speak at once");
}

#[test]
fn a_running_job_survives_the_exchange_of_its_plugin_before_every_input() {
    let mut plugin = sandbox().server(LIMITS, SEED).expect("the plugin is whole");
    for ((now, event), (expected, _)) in job().into_iter().zip(natively()) {
        plugin = plugin.move_to(sandbox()).expect("a plugin takes over from another");
        assert_eq!(step(&mut plugin, now, &event), expected, "{event:?}");
    }
}

#[test]
fn what_was_saved_natively_goes_on_in_the_sandbox_and_back_at_every_step() {
    let expected = natively();
    let events = job();
    for (at, pair) in events.windows(2).enumerate() {
        let saved_natively = &expected[at].1;
        let mut plugin: Plugin =
            sandbox().restore(saved_natively, validator(at + 1)).expect("a server wrote the snapshot");
        let (now, event) = &pair[1];
        assert_eq!(step(&mut plugin, *now, event), expected[at + 1].0, "{event:?} in the sandbox");
        let back = plugin.snapshot().expect("the plugin is honest");
        assert!(back == expected[at + 1].1, "{event:?} in the sandbox");
        let mut slabs = MappedStorage::new(&LIMITS);
        let mut server = Server::restore(&back, slabs.lend()).expect("a plugin wrote the snapshot");
        if let Some((now, event)) = events.get(at + 2) {
            assert_eq!(step(&mut server, *now, event), expected[at + 2].0, "{event:?} back outside");
        }
    }
}

#[test]
fn a_damaged_snapshot_is_refused_by_name() {
    let (_, mut state) = natively().swap_remove(20);
    let at = state.len() / 2;
    state[at] ^= 1;
    let error = sandbox().restore(&state, validator(21)).expect_err("its digest is wrong");
    assert!(error.to_string().contains("digest"), "{error}");
    let other = hydrant_core::Limits { jobs: 1, ..LIMITS };
    state[at] ^= 1;
    let error = sandbox().restore(&state, Validator::new(other)).expect_err("the host has other limits");
    assert!(error.to_string().contains("limits"), "{error}");
}
