//! `--profile` over several hosts.

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, nodes};
use serde_json::Value;

use crate::RAW;

/// Runs a job on two hosts with two ranks each, and returns its profile.
fn profile(folder: &Folder, job: impl FnOnce(Job) -> Job) -> Value {
    let file = folder.path("result.json");
    let options = format!("{} -n 4 --profile --json={file}", nodes(2, 2, 2));
    let outcome = job(Job::hydrant(&options)).run();
    outcome.code(0).warns(" 4 ranks on 2 hosts, PMI").warns("hydrant: daemons ");
    let mut result: Value = serde_json::from_str(&folder.read("result.json")).expect("the file is JSON");
    let profile = result["jobs"][0]["profile"].take();
    assert_eq!((profile["ranks"].as_u64(), profile["hosts"].as_u64()), (Some(4), Some(2)), "{profile}");
    let phases = profile["phases"].as_array().expect("the phases are an array");
    let starting = || phases.iter().filter(|phase| phase["in_start_up"] == true);
    let sum: u64 = starting().filter_map(|phase| phase["sum_ms"].as_u64()).sum();
    assert_eq!(Some(sum), profile["start_up"]["sum_ms"].as_u64(), "{profile}");
    assert_eq!(starting().take(2).map(|phase| &phase["name"]).collect::<Vec<_>>(), ["daemons", "setup"]);
    let daemons: Vec<&Value> =
        phases[0]["slowest"].as_array().into_iter().flatten().map(|slow| &slow["host"]).collect();
    assert_eq!(daemons.len(), 2, "{profile}");
    assert!(daemons.contains(&&"n1".into()) && daemons.contains(&&"n2".into()), "{profile}");
    let ranks = starting().skip(2).flat_map(|phase| phase["slowest"].as_array().into_iter().flatten());
    let is_placed = |slow: &Value| {
        let host = slow["rank"].as_u64().map(|rank| if rank < 2 { "n1" } else { "n2" });
        slow["host"].as_str() == host
    };
    assert!(ranks.clone().count() > 0 && ranks.clone().all(is_placed), "{profile}");
    profile
}

#[test]
fn ranks_of_all_hosts_are_in_one_table() {
    let folder = Folder::new("profile");
    let profile = profile(&folder, |job| job.arg(RAW).steps("init1\nfence1\nfence1\nend1"));
    let fences: Vec<_> = profile["fences"].as_array().into_iter().flatten().collect();
    assert_eq!(fences.iter().map(|fence| fence["ranks"].as_u64()).collect::<Vec<_>>(), [Some(4), Some(4)]);
    assert_eq!(profile["first_fence"]["ranks"].as_u64(), Some(4), "{profile}");
}

#[test]
fn the_start_of_mpich_is_split() {
    if !Peer::Mpich5.there() {
        return;
    }
    let folder = Folder::new("profile-mpich");
    let profile = profile(&folder, |job| job.arg(Peer::Mpich5.program("mpi_hello")));
    assert!(profile["fences"][0]["name"] == "fence 1" && profile["fences"][0]["ranks"] == 4, "{profile}");
    assert!(profile["first_fence"]["libraries"].as_u64().is_some_and(|count| count > 10), "{profile}");
}

#[test]
fn the_start_of_open_mpi_is_split() {
    if !Peer::OpenMpi5.there() {
        return;
    }
    let folder = Folder::new("profile-openmpi");
    let variables = Peer::OpenMpi5.variables(&folder.0);
    let hello = |job: Job| job.arg(Peer::OpenMpi5.program("mpi_hello")).assign(variables.clone());
    let plain = profile(&folder, hello);
    assert!(plain["fences"][0]["ranks"] == 4 && plain["first_fence"]["ranks"] == 4, "{plain}");
    let without = profile(&folder, |job| hello(job.words("--mca btl ^ofi")));
    let is_named = |profile: &Value| {
        let hints = profile["hints"].as_array().into_iter().flatten().filter_map(Value::as_str);
        hints.into_iter().any(|hint| hint.contains("'--mca btl ^ofi'"))
    };
    // A busy machine hides the sleep behind waits for a processor; without the component there is none to be named.
    assert!(!is_named(&without), "{without}");
}
