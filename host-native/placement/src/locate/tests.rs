//! Tests of the search for hosts in options and environment.

use std::ffi::OsString;

use super::*;
use crate::job_map::{MapBy, Node};
use crate::test_file::TestFile;

const HOSTNAME: &str = "here.example";
const SLURM: [(&str, &str); 2] = [("SLURM_JOB_NODELIST", "n[01-02]"), ("SLURM_TASKS_PER_NODE", "4(x2)")];

/// Options without hosts.
fn allocation() -> PlacementOptions {
    PlacementOptions::default()
}

/// `-hosts`.
fn list(hosts: &str) -> PlacementOptions {
    PlacementOptions { hosts: HostSource::List(Hosts::parse(hosts).unwrap()), ..allocation() }
}

/// `-f`.
fn file(file: &TestFile) -> PlacementOptions {
    PlacementOptions { hosts: HostSource::File(file.path().to_owned()), ..allocation() }
}

fn with_bootstrap(options: PlacementOptions, bootstrap: Bootstrap) -> PlacementOptions {
    PlacementOptions { bootstrap: Some(bootstrap), ..options }
}

fn located(
    options: &PlacementOptions,
    programs: &mut [u32],
    variables: &[(&str, &str)],
) -> Result<Location, PlacementError> {
    located_with_slots(options, programs, variables).map(|(location, _)| location)
}

fn located_with_slots(
    options: &PlacementOptions,
    programs: &mut [u32],
    variables: &[(&str, &str)],
) -> Result<(Location, Option<u32>), PlacementError> {
    let value = |name: &str| -> Option<OsString> {
        variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
    };
    locate(options, programs, &Environment { hostname: HOSTNAME.to_owned(), variables: &value })
}

fn deployed(options: &PlacementOptions, ranks: u32, variables: &[(&str, &str)]) -> Deployment {
    match located(options, &mut [ranks], variables) {
        Ok(Location::Nodes(deployment)) => deployment,
        other => panic!("{other:?}"),
    }
}

#[test]
fn slots_of_an_allocation_and_of_named_hosts_are_counted() {
    let slots = |options: &PlacementOptions, variables: &[(&str, &str)]| {
        located_with_slots(options, &mut [1], variables).unwrap().1
    };
    assert_eq!(slots(&allocation(), &[]), None);
    assert_eq!(slots(&list("a:4,b:4"), &[]), Some(8));
    assert_eq!(slots(&list("here:3"), &[]), Some(3));
    assert_eq!(slots(&list("a,b:2"), &[]), Some(3));
    let step = [("SLURM_JOB_NODELIST", "n[1-2]"), ("SLURM_TASKS_PER_NODE", "4(x2)")];
    assert_eq!(slots(&allocation(), &step), Some(8));
    let one = PlacementOptions { nodes: Some(1), ..allocation() };
    assert_eq!(slots(&one, &step), Some(4));
}

#[test]
fn without_hosts_or_with_this_machine_alone_the_job_is_local() {
    let one = [("SLURM_JOB_NODELIST", "n01"), ("SLURM_TASKS_PER_NODE", "4"), ("SLURMD_NODENAME", "n01")];
    for (options, variables) in [
        (allocation(), &[] as &[(&str, &str)]),
        (with_bootstrap(allocation(), Bootstrap::Ssh), &[]),
        (list("here:2"), &[]),
        (list("localhost"), &SLURM),
        (list("here.example,here.example"), &[]),
        (allocation(), &one),
    ] {
        assert_eq!(located(&options, &mut [4], variables).unwrap(), Location::Local, "{options:?}");
    }
    // PBS may name a host by its name on another network (open-mpi/ompi#3133).
    let node_file = TestFile::new(b"here.ib0.hpc.example\nhere.ib0.hpc.example\n");
    let of_pbs = [("PBS_NODEFILE", node_file.name())];
    assert_eq!(located(&allocation(), &mut [2], &of_pbs).unwrap(), Location::Local);
    for (options, variables) in [
        (list("here.ib0.hpc.example"), &of_pbs as &[(&str, &str)]),
        (list("there"), &[]),
        (list("here,localhost"), &[]),
        (with_bootstrap(list("here"), Bootstrap::Local), &[]),
        (with_bootstrap(allocation(), Bootstrap::Local), &[]),
        (allocation(), &SLURM),
        (allocation(), &one[..2]),
    ] {
        assert!(matches!(located(&options, &mut [1], variables), Ok(Location::Nodes(_))), "{options:?}");
    }
}

#[test]
fn options_override_the_environment() {
    let names = |deployment: &Deployment| -> Vec<String> {
        deployment.job_map.nodes().iter().map(|node| node.host.name.clone()).collect()
    };
    let found = deployed(&allocation(), 8, &SLURM);
    assert_eq!((found.resource_manager, &found.bootstrap), (Some(ResourceManager::Slurm), &Bootstrap::Srun));
    assert_eq!(names(&found), ["n01", "n02"]);
    let named = deployed(&list("n02,x"), 8, &SLURM);
    assert_eq!((named.resource_manager, &named.bootstrap), (None, &Bootstrap::Srun));
    assert_eq!(names(&named), ["n02", "x"]);
    let by_ssh = with_bootstrap(allocation(), Bootstrap::Ssh);
    assert_eq!(deployed(&by_ssh, 1, &SLURM).bootstrap, Bootstrap::Ssh);
    assert_eq!(deployed(&list("a,b"), 1, &[]).bootstrap, Bootstrap::Ssh);
    // An invalid allocation is ignored if hosts are named.
    let invalid = [("SLURM_JOB_NODELIST", "n[1")];
    assert!(located(&list("a,b"), &mut [1], &invalid).is_ok());
    assert!(located(&allocation(), &mut [1], &invalid).is_err());
}

#[test]
fn programs_without_a_number_fill_the_hosts() {
    let filled = |options: PlacementOptions, fill: &[u32], programs: &[u32], variables: &[(&str, &str)]| {
        let mut programs = programs.to_vec();
        let options = PlacementOptions { fill: fill.to_vec(), ..options };
        located(&options, &mut programs, variables).unwrap();
        programs
    };
    let with = |hosts, policy| PlacementOptions { policy, ..list(hosts) };
    let ppn = |ppn| MappingPolicy { ppn: Some(ppn), ..MappingPolicy::default() };
    let by_node = MappingPolicy { map_by: MapBy::Node, ..MappingPolicy::default() };
    assert_eq!(filled(allocation(), &[0], &[1], &[]), [1]);
    assert_eq!(filled(allocation(), &[0], &[1], &SLURM), [8]);
    assert_eq!(filled(allocation(), &[], &[2], &SLURM), [2]);
    assert_eq!(filled(allocation(), &[0, 2], &[1, 1, 1], &SLURM), [8, 1, 8]);
    assert_eq!(filled(list("here:3"), &[0], &[1], &[]), [3]);
    assert_eq!(filled(list("a:3,b"), &[0], &[1], &[]), [4]);
    assert_eq!(filled(with("a:3,b", ppn(2)), &[0], &[1], &[]), [4]);
    assert_eq!(filled(with("a:3,b", ppn(1)), &[0], &[1], &[]), [2]);
    assert_eq!(filled(with("a:3,b", by_node), &[0], &[1], &[]), [4]);
    // Without hosts this machine is the only one.
    let alone = PlacementOptions { policy: ppn(4), nodes: Some(1), ..allocation() };
    assert_eq!(filled(alone.clone(), &[0], &[1], &[]), [4]);
    let two = PlacementOptions { nodes: Some(2), ..alone };
    let error = located(&two, &mut [4], &[]).unwrap_err();
    assert_eq!(error.to_string(), "--nodes 2, but there is 1 host; name more hosts, or remove the option");
    let limited = TestFile::new(b"a slots=2 max_slots=3\nb max_slots=1\n");
    let options = PlacementOptions { policy: ppn(9), ..file(&limited) };
    assert_eq!(filled(options, &[0], &[1], &[]), [4]);
    for count in [u32::MAX, u32::MAX / 2, u32::MAX / 4] {
        let options = PlacementOptions { fill: vec![0, 1], ..list(&format!("a:{count},b:{count}")) };
        let error = located(&options, &mut [1, 1], &[]).unwrap_err();
        assert!(matches!(error, PlacementError::Ranks(_)), "{count}: {error}");
    }
}

#[test]
fn a_job_uses_no_more_nodes_than_it_has_ranks() {
    let with_nodes = |nodes, options| PlacementOptions { nodes: Some(nodes), ..options };
    let four = with_nodes(4, list("a,b,c,d,e"));
    let sizes = |options: &PlacementOptions, ranks| -> Vec<u32> {
        deployed(options, ranks, &[]).job_map.nodes().iter().map(Node::size).collect()
    };
    assert_eq!(sizes(&four, 4), [1; 4]);
    assert_eq!(four.surplus_nodes(4), None);
    assert_eq!(sizes(&four, 2), [1; 2]);
    let notice = four.surplus_nodes(2);
    assert_eq!(notice.as_deref(), Some("--nodes 4, but the job has 2 ranks: 2 hosts are used"));
    let notice = four.surplus_nodes(1);
    assert_eq!(notice.as_deref(), Some("--nodes 4, but the job has 1 rank: 1 host is used"));
    // The hosts that are not used need not be there.
    assert_eq!(located(&with_nodes(9, allocation()), &mut [1], &[]).unwrap(), Location::Local);
    // Neither a rank map nor programs that fill the hosts leave hosts out.
    let mapped = PlacementOptions { rank_map: vec![3], ..four.clone() };
    assert_eq!(sizes(&mapped, 1), [0, 0, 0, 1]);
    assert_eq!(mapped.surplus_nodes(1), None);
    let filled = PlacementOptions { fill: vec![0], ..four };
    assert_eq!(sizes(&filled, 1), [1; 4]);
}

#[test]
fn grid_engine_jobs_start_daemons_by_qrsh() {
    let of_job =
        |hosts| [("PE_HOSTFILE", hosts), ("HOSTNAME", "n1.q"), ("SGE_ROOT", "/opt/sge"), ("ARC", "lx-amd64")];
    let hosts = TestFile::new(b"n1.q 2 all.q@n1.q UNDEFINED\nn2.q 2 all.q@n2.q UNDEFINED\n");
    assert_eq!(deployed(&allocation(), 4, &of_job(hosts.name())).bootstrap, Bootstrap::Qrsh);
    // Grid Engine's name of this machine differs from the host name.
    let one = TestFile::new(b"n1.q 4 all.q@n1.q UNDEFINED\n");
    assert_eq!(located(&allocation(), &mut [4], &of_job(one.name())).unwrap(), Location::Local);
    let in_slurm = [&SLURM[..], &of_job(hosts.name())].concat();
    assert_eq!(deployed(&allocation(), 1, &in_slurm).bootstrap, Bootstrap::Srun);
}

#[test]
fn max_slots_hold_on_this_machine() {
    let host_file = TestFile::new(b"localhost max_slots=2\n");
    let error = located(&file(&host_file), &mut [3], &[]).unwrap_err();
    assert!(matches!(error, PlacementError::Full { ranks: 3, capacity: 2 }), "{error}");
    assert_eq!(located(&file(&host_file), &mut [2], &[]).unwrap(), Location::Local);
}

#[test]
fn only_ssh_supports_users() {
    let host_file = TestFile::new(b"a user=joe\nlocalhost user=joe\n");
    assert!(matches!(located(&file(&host_file), &mut [1], &[]), Ok(Location::Nodes(_))));
    let error = located(&with_bootstrap(file(&host_file), Bootstrap::Srun), &mut [1], &[]).unwrap_err();
    assert!(matches!(error, PlacementError::User { bootstrap: "srun", .. }), "{error}");
}

#[test]
fn hosts_of_programs_are_the_hosts_of_the_job_or_among_them() {
    let with = |options: PlacementOptions, own: &[(u32, &str)]| PlacementOptions {
        program_hosts: own.iter().map(|&(program, list)| (program, Hosts::parse(list).unwrap())).collect(),
        ..options
    };
    let mapped =
        |options: &PlacementOptions, mut programs: Vec<u32>, variables: &[(&str, &str)]| match located(
            options,
            &mut programs,
            variables,
        ) {
            Ok(Location::Nodes(deployment)) => {
                let of_node = |node: &Node| format!("{}:{}", node.host.name, node.size());
                deployment.job_map.nodes().iter().map(of_node).collect::<Vec<_>>().join(" ")
            }
            Ok(Location::Local) => "local".to_owned(),
            Err(error) => error.to_string(),
        };
    let apart = with(allocation(), &[(0, "a"), (1, "b")]);
    assert_eq!(mapped(&apart, vec![1, 2], &[]), "a:1 b:2");
    // Programs that all name hosts need no allocation, as one list of hosts.
    assert_eq!(mapped(&apart, vec![1, 2], &SLURM), "a:1 b:2");
    assert_eq!(mapped(&with(allocation(), &[(0, "a:2")]), vec![1, 2], &[]), "a:3");
    assert_eq!(mapped(&with(allocation(), &[(1, "n02")]), vec![5, 2], &SLURM), "n01:4 n02:3");
    assert_eq!(mapped(&with(list("a:2,b:2"), &[(0, "b")]), vec![1, 3], &[]), "a:2 b:2");
    assert_eq!(
        mapped(&with(allocation(), &[(0, "here"), (1, "localhost")]), vec![1, 1], &[]),
        "here:1 localhost:1"
    );
    assert_eq!(mapped(&with(allocation(), &[(0, "here"), (1, "here")]), vec![1, 1], &[]), "local");
    let none = "-host of program 1 names c, and the hosts of the job are a, b";
    assert_eq!(mapped(&with(list("a,b"), &[(1, "c")]), vec![1, 1], &[]), none);
    let users = with(allocation(), &[(0, "joe@a"), (1, "a")]);
    assert_eq!(mapped(&users, vec![1, 1], &[]), "-host: host a is named twice, with different users");
    let mut filled = vec![1, 1, 1];
    let fill = PlacementOptions { fill: vec![0, 1, 2], ..with(allocation(), &[(0, "a:2"), (1, "b:3,c")]) };
    located(&fill, &mut filled, &[]).unwrap();
    assert_eq!(filled, [2, 4, 6]);
}

#[test]
fn a_default_bootstrap_starts_no_daemon_for_this_machine() {
    let by_exec = |hosts| PlacementOptions { default_bootstrap: Some(Bootstrap::Ssh), ..list(hosts) };
    assert_eq!(located(&by_exec("here"), &mut [1], &[]).unwrap(), Location::Local);
    assert_eq!(deployed(&by_exec("there"), 1, &SLURM).bootstrap, Bootstrap::Ssh);
}
