//! The functions of pmi2.h over Slurm's libpmi2, with right and with wrong arguments. The programs check each result
//! themselves; what they say is checked here.

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Outcome};

const WAYS: [&str; 2] = ["", "--pmi-port"];

/// A job of a program over the library, where there is one.
fn job(options: &str, program: &str, test: &str) -> Option<Job> {
    let peer = Peer::SlurmPmi2;
    peer.there().then(|| Job::hydrant(options).arg(peer.program(program)).arg(test))
}

fn run(options: &str, program: &str, test: &str) -> Option<Outcome> {
    job(options, program, test).map(Job::run)
}

/// For both ways to find the server, and for one rank and several.
fn each(test: &str, check: impl Fn(&Outcome, u32)) {
    WAYS.iter().for_each(|way| some(way, test, &check));
}

fn some(way: &str, test: &str, check: impl Fn(&Outcome, u32)) {
    for size in [1, 5] {
        let Some(outcome) = run(&format!("{way} -usize {size} -n {size}"), "pmi2_calls", test) else {
            return;
        };
        outcome.code(0).quiet();
        check(&outcome, size);
    }
}

#[test]
fn init_twice_rank_and_size() {
    // Over the port the library connects anew for it, and a rank is let in once.
    some("", "init", |outcome, size| {
        for rank in 0..size {
            outcome.says(&format!("rank {rank} of {size} appnum 0, {size} on this node, job named\n"), 1);
        }
    });
}

#[test]
fn put_fence_get() {
    each("kvs", |outcome, size| {
        outcome.says("kvs of rank ", size as usize);
    });
}

// Shows: pmi2.h, Attributes of the node | `PMI2_Info_PutNodeAttr` | an attribute for processes of the same node,
// without a barrier | done
// Also: nodes `dynamic::node_attributes_are_of_one_node`
// Shows: pmi2.h, Attributes of the node | `localRanksCount` | number of elements of `localRanks` | done
// Shows: pmi2.h, Attributes of the node | `localRanks` | ranks on this node | done: over hydrant's library however
// many; over Slurm's, which fails on longer values, up to 1,024 characters
// Also: libraries `pmi2::functions::all_local_ranks_of_hundreds`
// Shows: pmi2.h, Attributes of the node | `memSYSVid` | the id of a System V segment | free: the type is never
// `sysv`, because such a segment outlives a killed launcher
#[test]
fn node_attributes() {
    each("node", |outcome, size| {
        outcome.says("node of rank ", size as usize);
    });
}

// Shows: pmi2.h, Attributes of the job | `hasNameServ` | whether publish, lookup and unpublish work | done: `1`
// Shows: pmi2.h, Attributes of the job | `physTopology` | the network's topology | done: `complete` on one host,
// `hierarchical` on several; `--topology` or Slurm names the network
// Also: nodes `dynamic::the_network_between_hosts_is_an_attribute`
// Shows: pmi2.h, Attributes of the job | `isHeterogeneous` | whether nodes have different data models | done: `0`,
// because a daemon refuses a launcher of another byte order or size of pointers
// Also: hydrant-overlay `a_launcher_of_another_data_model_is_refused`
// Shows: pmi2.h, Attributes of the job | other names | extensions use the same functions and messages | done:
// `PMI_process_mapping`, `PMI_dead_processes`
// Also: launch `dynamic::the_dead_are_listed`
#[test]
fn job_attributes() {
    each("job", |outcome, size| {
        let mapping = format!("PMI_process_mapping: (vector,(0,1,{size}))\n");
        for line in [
            &format!("universeSize: {size}\n"),
            "hasNameServ: 1\n",
            "physTopology: complete\n",
            "physTopologyLevels: not found\n",
            "cartDims: not found\n",
            "isHeterogeneous: 0\n",
            &mapping,
            "PMI_dead_processes: \n",
            "no-such-attribute: not found\n",
            "mpi_reserved_ports: not found\n",
            "PMI_netinfo_of_task: not found\n",
        ] {
            outcome.says(line, 1);
        }
        for rank in 0..size {
            outcome.says(&format!("universe of rank {rank}: {size}\n"), 1);
        }
    });
}

#[test]
fn a_ring_of_one_and_of_many() {
    each("ring", |outcome, size| {
        for rank in 0..size {
            outcome.says(&format!("ring of rank {rank}: {rank} of {size}\n"), 1);
        }
    });
}

#[test]
fn a_ring_of_hundreds() {
    let Some(outcome) = run("-n 200", "pmi2_calls", "ring") else { return };
    outcome.code(0).quiet().says("ring of rank ", 200);
}

#[test]
fn names() {
    each("names", |outcome, size| {
        outcome.says("names of rank ", size as usize);
    });
}

#[test]
fn aborting_oneself_leaves_the_others() {
    for way in WAYS {
        let Some(outcome) = run(&format!("{way} -n 4"), "pmi2_jobs", "one") else { return };
        assert_ne!(outcome.status.code(), Some(0), "{outcome}");
        outcome.says(" survived\n", 3).warns("rank 3").warns("this rank; alone");
    }
}

#[test]
fn aborting_the_world_ends_all_ranks() {
    for way in WAYS {
        let Some(outcome) = run(&format!("{way} -n 4"), "pmi2_jobs", "world") else { return };
        assert_ne!(outcome.status.code(), Some(0), "{outcome}");
        outcome.says("survived", 0).warns("rank 0").warns("the whole; world");
    }
}

#[test]
fn spawning_with_arguments_info_and_preputs() {
    for way in WAYS {
        let Some(outcome) = run(&format!("{way} -n 1"), "pmi2_jobs", "spawn") else { return };
        outcome.code(0).quiet().says("spawned\n", 1);
        let here = std::env::current_dir().expect("a test has a folder");
        for rank in 0..2 {
            let args = "4:[][two words][semi;colon][]";
            outcome.says(&format!("child {rank} of 3 program 0 in / env=of;info with {args}\n"), 1);
        }
        outcome.says(&format!("child 2 of 3 program 1 in {} env=- with 0:\n", here.display()), 1);
    }
}

#[test]
fn every_rank_spawns_at_once() {
    for way in WAYS {
        let Some(outcome) = run(&format!("{way} -n 6"), "pmi2_jobs", "many") else { return };
        outcome.code(0).quiet().says(" spawned\n", 6);
        outcome.says("child 0 of 2 program 0 ", 6).says("child 1 of 2 program 0 ", 6);
    }
}

/// Each wrong spawn is an error for its asker, who goes on.
#[test]
fn spawning_what_is_not_there() {
    for way in WAYS {
        let Some(outcome) = run(&format!("{way} -n 2"), "pmi2_jobs", "missing") else { return };
        outcome.code(0).says("child", 0).says(" goes on\n", 2);
    }
}

// Shows: pmi2.h, Job | `PMI2_Job_Connect` | not collective | done
// Shows: pmi2.h, Job | `PMI2_Job_Connect` | connected jobs may call it again | done
// Shows: pmi2.h, Job | `PMI2_Job_Disconnect` `jobid` | ends the connection | done: of these two jobs only
// Also: libraries `pmi2::runs::two_runs_read_each_other`, hydrant-core
// `those_who_have_parted_stay_apart_when_others_connect`
// Shows: pmi2.h, Key-value space | `PMI2_KVS_Get` `jobid` | the space of another job | done: while connected
// Also: launch `runs::the_end_of_a_run_ends_its_connections`
#[test]
fn connecting_and_disconnecting() {
    for way in WAYS {
        let folder = Folder::new("connect");
        let Some(job) = job(&format!("{way} -n 1"), "pmi2_jobs", "connect") else { return };
        let outcome = job.arg(folder.0.join("pipe")).run();
        outcome.code(0).quiet().says("connected\n", 1).says("child 0 of 1 ", 1);
    }
}
