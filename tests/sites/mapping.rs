//! `PMI_process_mapping` as real MPI libraries read it. All daemons run on this machine, which the libraries do not see.

use hydrant_tests::Job;
use hydrant_tests::peers::{Peer, intel_lib};

/// Options, and the lowest rank that is on the same node, for each rank.
const LAYOUTS: [(&str, &[u32]); 5] = [
    ("-hosts a:3,b:1,c:2 -n 6", &[0, 0, 0, 3, 4, 4]),
    ("-hosts a:3,b:1,c:2 -map-by node -n 6", &[0, 1, 2, 0, 2, 0]),
    ("-hosts a:2,b:1 -n 7", &[0, 0, 2, 0, 0, 2, 0]),
    ("-hosts a:2,b:2 -rank-by node -n 4", &[0, 1, 0, 1]),
    ("-hosts a:3,b:2,c:1 -n 2 PROGRAM : -n 3", &[0, 0, 0, 3, 3]),
];

/// Has a program of one library say what it sees, in each layout.
fn all_layouts(program: &std::path::Path, environment: impl Fn(Job) -> Job) {
    let name = program.to_str().expect("the build directory's path is text");
    for (options, firsts) in LAYOUTS {
        let job = Job::hydrant("-bootstrap local").words(&options.replace("PROGRAM", name)).arg(program);
        let outcome = environment(job).run();
        outcome.code(0);
        let size = firsts.len();
        for (rank, first) in firsts.iter().enumerate() {
            let same = |ranks: &[u32]| ranks.iter().filter(|other| *other == first).count();
            let (within, here) = (same(&firsts[..rank]), same(firsts));
            let end = format!(": {within} of {here} with {first}");
            let start = format!("rank {rank} of {size} on ");
            let says_so = |line: &&str| line.starts_with(&start) && line.ends_with(&end);
            assert_eq!(outcome.stdout.lines().filter(says_so).count(), 1, "{start}...{end}: {outcome}");
        }
    }
}

#[test]
fn mpich_5_reads_it_as_it_is_meant() {
    if Peer::Mpich5.there() {
        all_layouts(&Peer::Mpich5.program("mpi_nodes"), |job| job);
    }
}

#[test]
fn mpich_4_reads_it_as_it_is_meant() {
    if Peer::Mpich4.there() {
        all_layouts(&Peer::Mpich4.program("mpi_nodes"), |job| job);
    }
}

#[test]
fn intel_mpi_reads_it_as_it_is_meant() {
    // Intel's library has MPICH's ABI, and finds its network's parts by what mpivars.sh would set.
    if Peer::Intel.there() && Peer::Mpich5.there() {
        let library = |job: Job| {
            job.env("LD_LIBRARY_PATH", intel_lib())
                .env("FI_PROVIDER_PATH", intel_lib())
                .env("FI_PROVIDER", "tcp")
        };
        all_layouts(&Peer::Mpich5.program("mpi_nodes"), library);
    }
}
