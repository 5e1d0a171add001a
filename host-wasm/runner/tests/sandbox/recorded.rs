//! Recorded jobs of a real MPI library, replayed on a server that moves between native code and a plugin before every input.

use std::fs::File;
use std::io::BufReader;

use hydrant_core::server::{Consumed, Record};
use hydrant_core::{Backend, Input, Limits, Output, Server, Time};
use hydrant_driver::MappedStorage;
use hydrant_record::Reader;
use hydrant_tests::peers::Peer;
use hydrant_tests::{Job, hydrant_bin};
use hydrant_wasm::{Plugin, Validator};

use crate::common::{sandbox, target_dir};

/// The current server.
enum Place {
    Outside(Box<Server<'static>>),
    Inside(Box<Plugin>),
}

impl Place {
    /// Moves the server to the other place by a snapshot.
    fn move_over(self, validator: &Validator) -> Place {
        match self {
            Place::Outside(server) => {
                let mut buf = vec![0; server.snapshot_len()];
                let saved = server.snapshot(&mut buf).expect("its length was asked for");
                let plugin = sandbox().restore(saved, validator.clone());
                Place::Inside(Box::new(plugin.expect("a server wrote the snapshot")))
            }
            Place::Inside(mut plugin) => {
                let saved = plugin.snapshot().expect("the plugin is honest");
                let slabs = Box::leak(Box::new(MappedStorage::new(validator.limits()))).lend();
                Place::Outside(Box::new(Server::restore(&saved, slabs).expect("a plugin wrote the snapshot")))
            }
        }
    }

    fn handle(&mut self, now: Time, input: Input<'_>) -> (Consumed, Option<Time>) {
        match self {
            Place::Outside(server) => {
                (server.handle(now, input).expect("it was taken when it was recorded"), server.poll_at())
            }
            Place::Inside(plugin) => {
                (plugin.handle(now, input).expect("it was taken when it was recorded"), plugin.poll_at())
            }
        }
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Option<Output<'b>> {
        match self {
            Place::Outside(server) => server.poll(buf).expect("the buffer is long enough"),
            Place::Inside(plugin) => plugin.poll(buf).expect("the plugin is honest"),
        }
    }
}

/// Replays a recording. Returns its number of inputs.
fn play(mut recording: Reader<BufReader<File>>) -> u64 {
    let (limits, seed): (Limits, u32) = (recording.begin().limits, recording.begin().seed);
    let slabs = Box::leak(Box::new(MappedStorage::new(&limits))).lend();
    let server = Server::new(limits, slabs, seed).expect("the slabs are as long as the limits say");
    let mut place = Place::Outside(Box::new(server));
    let mut validator = Validator::new(limits);
    let mut buf = vec![0; limits.output_max()];
    let mut inputs = 0;
    let mut made = None;
    while let Some(entry) = recording.next_record().expect("the recording is whole") {
        match entry.record {
            Record::Begin { .. } | Record::End { .. } => {}
            Record::Input { now, input } => {
                inputs += 1;
                place = place.move_over(&validator);
                let (consumed, wake) = place.handle(now, input);
                validator.check_input(now, &input, consumed, wake).expect("the core is honest");
                made = Some((consumed, wake));
            }
            Record::Took { consumed, wake } => assert_eq!(made, Some((consumed, wake)), "input {inputs}"),
            Record::Output(recorded) => {
                validator.check_output(&recorded).expect("the core was honest");
                assert_eq!(place.poll(&mut buf), Some(recorded), "input {inputs}");
            }
            Record::Silence => assert_eq!(place.poll(&mut buf), None, "input {inputs}"),
            other => panic!("the job went well, and its recording holds {other:?}"),
        }
    }
    inputs
}

#[test]
fn a_recorded_job_goes_on_in_another_core_before_every_input() {
    for (peer, program, args, ranks) in [
        (Peer::Mpich5, "mpi_hello", "", 4),
        (Peer::Mpich5, "mpi_spawn", "world 3", 2),
        (Peer::Mpich5, "mpi_sessions", "1 3", 3),
        (Peer::OpenMpi5, "mpi_hello", "", 4),
        (Peer::OpenMpi5, "mpi_spawn", "world 3", 2),
    ] {
        if !peer.there() {
            continue;
        }
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let file = target_dir().join(format!("exchange-{program}-{}.rec", std::process::id()));
        let job = Job::new(hydrant_bin()).words(&format!("run --record {} -n {ranks}", file.display()));
        let job = job.args(["-env", "TMPDIR"]).arg(folder.path());
        job.arg(peer.program(program)).words(args).run().code(0);
        let recording = Reader::new(BufReader::new(File::open(&file).expect("the job was recorded")));
        let inputs = play(recording.expect("a recording begins so"));
        let _ = std::fs::remove_file(&file);
        assert!(inputs > 20, "{program}: {inputs} inputs are hardly a job");
    }
}
