//! Ranks in containers that bubblewrap makes of this machine's own files, without root: namespaces of users, processes and mounts.
//! `tests/containers` runs more versions in images, for the table of `docs/containers.md`.

use std::fs;

use hydrant_tests::peers::{Peer, peers_dir};
use hydrant_tests::{Folder, Job, target_dir};

const PEERS: [Peer; 2] = [Peer::Mpich5, Peer::OpenMpi5];
/// Passes the variables of the job on, and `HOME`, which Open MPI needs.
const CLEARED: &str = r#"kept=()
while IFS='=' read -r -d '' name value; do
    case $name in PMI_* | PMIX_* | MPIR_CVAR_* | OMPI_* | OPAL_* | UCX_* | HYDRANT_* | HOME) kept+=(--setenv "$name" "$value") ;; esac
done < <(env -0)
exec bwrap --bind / / --dev-bind /dev /dev --unshare-user --clearenv "${kept[@]}" "$@""#;

/// A sum over four ranks, each in a container of its own.
fn sums(options: &str, container: impl Fn(Job, &Folder) -> Job) {
    for peer in PEERS {
        if !Peer::Bubblewrap.there() || !peer.there() {
            continue;
        }
        let folder = Folder::new("container");
        let job = Job::hydrant(&format!("-n 4 {options}")).assign(peer.variables(&folder.0));
        let job = container(job, &folder).arg(peer.program("mpi_allreduce"));
        job.run().code(0).says("allreduce of 4: 0 wrong\n", 1);
    }
}

/// Runs a program with another user id, a root that cannot be written, and nothing of this machine's `/dev`, `/tmp` and processes.
fn private(job: Job, folder: &Folder) -> Job {
    let job = job.words("bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --dir").arg(&folder.0);
    let of_tests = [target_dir(), fs::canonicalize(peers_dir()).expect("peers are there")];
    let job = of_tests.iter().fold(job, |job, dir| job.arg("--ro-bind").arg(dir).arg(dir));
    job.words("--unshare-user --unshare-pid --unshare-ipc --unshare-uts --uid 1234 --gid 1234")
}

// Fault: Ranks are in user namespaces of their own, and the MPI library reads the memory of other processes
// Outcome: MPICH 5 aborts the job, and UCX prints errors
// Guarantee: `--shared-memory segments` has MPICH, Open MPI and UCX share segments alone
#[test]
fn ranks_share_segments_but_no_users() {
    sums("--shared-memory segments", |job, _| job.words("bwrap --dev-bind / / --unshare-user"));
}

// Fault: Ranks of a host have a `/dev/shm` and process ids of their own
// Outcome: MPICH waits for good, and Open MPI reads its own memory in place of another rank's and crashes
// Guarantee: `--shared-memory none` has each rank count as on a node of its own
#[test]
fn ranks_share_only_the_network() {
    sums("--shared-memory none", private);
    sums("--shared-memory none --pmi-port", private);
}

#[test]
fn ranks_keep_the_variables_of_the_job_alone() {
    let cleared = |job: Job, _: &Folder| job.args(["bash", "-c", CLEARED, "bash"]);
    sums("--shared-memory segments", cleared);
}

/// Container runtimes close what they do not know.
#[test]
fn a_rank_without_inherited_descriptors_is_served_by_port() {
    let closing = "import os, sys; os.closerange(3, 4096); os.execvp(sys.argv[1], sys.argv[1:])";
    let job = |job: Job, _: &Folder| {
        job.args(["python3", "-c", closing]).words("bwrap --dev-bind / / --unshare-user")
    };
    sums("--shared-memory segments --pmi-port", job);
}

/// MPICH needs no network: the socket of PMI is inherited.
#[test]
fn ranks_without_a_network_share_segments() {
    if Peer::Bubblewrap.there() && Peer::Mpich5.there() {
        let job =
            Job::hydrant("-n 4 --shared-memory segments bwrap --dev-bind / / --unshare-user --unshare-net");
        job.arg(Peer::Mpich5.program("mpi_allreduce")).run().code(0).says("allreduce of 4: 0 wrong\n", 1);
    }
}

#[test]
fn variables_of_a_program_are_left_alone() {
    let script = "echo $UCX_TLS $OMPI_MCA_btl";
    let job = Job::hydrant("--shared-memory none -n 1 -env UCX_TLS tcp sh -c").arg(script);
    let job = job.words(": -n 1 -env OMPI_MCA_btl self,sm sh -c").arg(script);
    job.env_remove("UCX_TLS").env_remove("OMPI_MCA_btl").run().code(0).says("tcp\n", 1).says("self,sm\n", 1);
}
