//! Boards that are DPUs in all but name: Debian for arm64 with systemd, hydrant's package and its unit, on machines with two
//! network cards in QEMU. `tests/run dpu` runs these tests, in a network namespace that [`Board`] expects.

mod board;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

use hydrant_tests::offload::{mpich_spawns, open_mpi_spawns, passes_fences_without_hosts};
use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, hydrant_bin, nodes, target_dir, tell};

use board::Board;

/// A PMI client that does what its arguments say; see its source for the steps.
const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");

/// Ranks of the job whose exchange is measured: each gets a value of every rank, by as many round trips to the emulated board.
const RANKS: u32 = 32;

/// What `tests/dpu/image` has made.
fn image(file: &str) -> PathBuf {
    let path = target_dir().join("dpu").join(file);
    assert!(path.exists(), "no {}: use tests/run dpu", path.display());
    path
}

/// `hydrant run` over so many hosts of this machine with these slots each, whose boards are those.
fn run(folder: &Folder, boards: &[Board], hosts: u32, slots: u32, options: &str) -> Job {
    let secret = folder.path("secret");
    fs::copy(image("secret"), &secret).expect("there is room");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("the file is this user's");
    let line = |board: &Board| format!("n{0} 10.9.0.{0}:4100 10.9.1.{0}:4100\n", board.number);
    let boards = folder.file("boards", &boards.iter().map(line).collect::<String>());
    let job = Job::new(hydrant_bin()).arg("run").words(&nodes(hosts, slots, 2));
    job.args(["--offload-file", &boards, "--offload-secret", &secret]).words(options)
}

#[test]
fn a_board_serves_mpi_libraries_and_comes_back() {
    let folder = Folder::new("dpu");
    let mut boards = [Board::start(1)];
    let run = |boards: &[Board], options: &str| run(&folder, boards, 1, RANKS, options);
    let probe = |boards: &[Board], ranks: u32| {
        let outcome = run(boards, &format!("-n {ranks}")).arg(hydrant_bin()).arg("probe").run();
        outcome.code(0).says(&format!("exchanged {} cards", ranks * ranks), 1);
    };
    boards[0].install();
    probe(&boards, 4);
    tell(&format!("dpu: from power on to the end of the first job {:.1} s", boards[0].age().as_secs_f64()));

    let before = boards[0].processor_seconds();
    let started = Instant::now();
    probe(&boards, RANKS);
    let (seconds, used) = (started.elapsed().as_secs_f64(), boards[0].processor_seconds() - before);
    let memory = boards[0].memory_kib();
    tell(&format!(
        "dpu: exchange of {RANKS} ranks {seconds:.2} s, {used:.2} s of the board's processor; {memory} KiB resident"
    ));

    let hello = run(&boards, "-n 4").arg(Peer::Mpich5.program("mpi_hello")).run();
    hello.code(0).quiet().says(" of 4, program 0, ", 4);
    mpich_spawns(|options| run(&boards, options));
    let files = Folder::new("dpu-ompi");
    let sum = run(&boards, "-n 4").assign(Peer::OpenMpi5.variables(&files.0));
    sum.arg(Peer::OpenMpi5.program("mpi_allreduce")).run().code(0).says("allreduce of 4: 0 wrong\n", 1);
    open_mpi_spawns(run(&boards, "-n 2"));

    // The unit is enabled.
    boards[0].reboot();
    boards[0].await_server();
    probe(&boards, 4);

    let job = run(&boards, "-n 2").arg(RAW).steps("init2\nfence2\nsay up\nforever").start();
    job.await_stdout("up\n", 2);
    // The disk has what the server has said of the probe and of this job.
    boards[0].shell("journalctl --sync && sync");
    boards[0].power_off();
    job.wait().code(1).warns("10.9.0.1:4100");
    boards[0].power_on();
    boards[0].await_server();
    probe(&boards, 4);
    let journal = boards[0].shell("journalctl --boot -1 --unit hydrant-board --output cat");
    assert_eq!(journal.matches(" has node 1").count(), 2, "{journal}");
    boards.into_iter().for_each(Board::end);
}

/// Boards exchange messages by their second cards.
#[test]
fn linked_boards_end_fences_while_their_hosts_are_stopped() {
    let folder = Folder::new("dpu-links");
    let mut boards = [1, 2].map(Board::start);
    boards.iter_mut().for_each(Board::install);
    passes_fences_without_hosts(RAW, run(&folder, &boards, 2, 2, "-n 4"), 2, 4);
    let sum = run(&folder, &boards, 2, 2, "-v -n 4").arg(Peer::Mpich5.program("mpi_allreduce")).run();
    sum.code(0).says("allreduce of 4: 0 wrong\n", 1).warns("hydrant: boards exchange messages directly\n");
    boards.into_iter().for_each(Board::end);
}
