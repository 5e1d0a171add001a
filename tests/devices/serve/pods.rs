//! The flow of docs/kubernetes.md with plain processes: an indexed Job tells each pod its number by
//! `JOB_COMPLETION_INDEX`, and the pod's command makes it a rank of the server's.

use hydrant_tests::peers::Peer;
use hydrant_tests::{Job, free_ports, hydrant_bin, target_dir};

/// What the manifest has each pod run, `a.out` being the image's program.
fn command_of_the_manifest() -> String {
    let document = include_str!("../../../docs/kubernetes.md");
    let line = document.lines().find(|line| line.contains("PMI_ID=$JOB_COMPLETION_INDEX"));
    let line = line.expect("the manifest makes the pod's number its rank");
    line.trim().trim_start_matches("- ").trim_matches('\'').to_owned()
}

#[test]
fn pods_join_by_their_completion_index() {
    if !Peer::Mpich5.there() {
        return;
    }
    // The service has a port that is known beforehand.
    let [port] = free_ports();
    let address = format!("127.0.0.1:{port}");
    let server = Job::new(hydrant_bin()).words(&format!("serve --size 4 -v --pmi-port {address}")).start();
    server.await_stdout(&format!("PMI_PORT={address}"), 1);
    let dir = target_dir().join("clients");
    let program = Peer::Mpich5.program("mpi_allreduce");
    let script = command_of_the_manifest().replace("/app/a.out", &program.display().to_string());
    let pod = |index: u32| {
        let pod = Job::new("sh").args(["-c", &script]).dir(&dir);
        pod.env("PMI_PORT", &address).env("JOB_COMPLETION_INDEX", index.to_string()).start()
    };
    // Pods come in any order.
    let pods: Vec<_> = [2, 0, 3, 1].map(pod).into_iter().map(hydrant_tests::Running::wait).collect();
    super::succeed(&pods);
    pods[1].says("allreduce of 4: 0 wrong\n", 1);
    server.wait().code(0).warns("job 0 is over: every rank has left");
}
