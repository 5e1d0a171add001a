//! `hydrant run --offload --record`: recordings of nodes that boards serve.

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, hydrant_bin};
use rustix::process::Signal;

use super::RAW;
use super::fleet::{Fleet, HERE};
use super::links::Front;

/// Boards of the first two of three hosts, and a folder for recordings.
struct Recorded {
    fleet: Fleet,
    folder: Folder,
}

impl Recorded {
    fn start() -> Recorded {
        Recorded { fleet: Fleet::start(&HERE[..2]), folder: Folder::new("recorded") }
    }

    /// `hydrant run OPTIONS`.
    fn run(&self, options: &str) -> Job {
        self.fleet.run(3, 6, "--record").arg(self.folder.path("run.rec")).words(options)
    }

    /// The recordings of all nodes replay, and those of boards have `text` at least so often.
    fn replay(&self, text: &str, times: usize) {
        for end in ["", ".n1", ".n2", ".n3"] {
            let file = self.folder.path(&format!("run.rec{end}"));
            let replay = Job::new(hydrant_bin()).arg("replay").arg(&file).run();
            replay.code(0).says("all the same", 1);
            let found = replay.stdout.matches(text).count();
            assert!(found >= times || ["", ".n3"].contains(&end), "{file}: {found} of {text}: {replay}");
        }
    }
}

/// Boards exchange messages directly, or by way of their hosts.
#[test]
fn each_node_of_a_run_has_a_recording_that_replays() {
    for is_linked in [true, false] {
        let mut recorded = Recorded::start();
        let address = recorded.fleet.address(0).to_owned();
        let mut check = |job: fn(&Recorded) -> Job, text: &str, times: usize| {
            // Board 1 can be reached by its host only.
            let front = (!is_linked).then(|| Front::new(&address, 1));
            if let Some(front) = &front {
                recorded.fleet.move_board(0, front.address.clone());
            }
            let outcome = job(&recorded).run();
            outcome.code(0);
            assert_ne!(
                is_linked,
                outcome.stderr.contains("note: boards exchange messages by way"),
                "{outcome}"
            );
            recorded.replay(text, times);
        };
        check(|recorded| recorded.run("-n 14").arg(hydrant_bin()).arg("probe"), "> cmd=finalize", 6);
        if Peer::Mpich5.there() {
            let sum = |recorded: &Recorded| recorded.run("-n 14").arg(Peer::Mpich5.program("mpi_allreduce"));
            check(sum, "> cmd=finalize", 6);
            let spawn = |recorded: &Recorded| {
                recorded.run("-usize 18 -n 14").arg(Peer::Mpich5.program("mpi_spawn")).words("self 2")
            };
            check(spawn, "! start spawn", 6);
        }
        recorded.fleet.end();
    }
}

/// The board of the second host is killed. Its recording has what came before.
// Fault: A board of a recorded run is killed
// Outcome: the recording replays, up to what the host had received
// Guarantee: The host writes the file
// Also: devices `serve::offload::a_recorded_board_that_is_lost_ends_the_ranks`,
// `board::recording::the_recording_of_a_board_that_is_killed_replays`
#[test]
fn the_recording_of_a_board_that_is_killed_has_what_came_before() {
    let mut recorded = Recorded::start();
    let steps = "init2\nframe cmd=kvs-put;key=k%r;value=v%r;\nexpect rc=0\nfence2\nsay up\nforever";
    let job = recorded.run("-n 14").arg(RAW).steps(steps).start();
    job.await_stdout("up\n", 14);
    let (board, address) = recorded.fleet.boards.remove(1);
    board.signal(Signal::KILL);
    job.wait().code(1).warns(&format!("host n2 (node 2): board {address} is lost: "));
    recorded.replay("cmd=kvs-fence", 6);
    board.wait().signaled(Signal::KILL);
    recorded.fleet.end();
}
