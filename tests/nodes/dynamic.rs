//! Requests of ranks on different hosts beyond put and get: spawned jobs on named hosts, attributes and process sets of
//! nodes, groups, connections, rings.

use hydrant_tests::Job;
use hydrant_tests::{SHAPES, hydrant_bin, nodes};

use crate::{RAW, raw, shell};

/// The message by which PMI-2 spawns `procs` shells with that script, on those hosts where some are named.
pub(crate) fn spawn(procs: u32, script: &str, hosts: &str) -> String {
    let script = script.replace(';', ";;");
    let info = match hosts {
        "" => "infokeycount=0;".to_owned(),
        _ => format!("infokeycount=1;infokey0=host;infoval0={hosts};"),
    };
    format!(
        "frame cmd=spawn;ncmds=1;preputcount=0;subcmd=sh;maxprocs={procs};argc=2;argv0=-c;argv1={script};{info}"
    )
}

const SAY: &str =
    "echo child $PMI_RANK of $PMI_SIZE on $PMI_HOSTNAME as $MPI_LOCALRANKID of $MPI_LOCALNRANKS";

#[test]
fn the_probe_finds_everything_right() {
    for (hosts, radix) in SHAPES {
        for way in ["", "--pmi-port", "--iface lo"] {
            let ranks = 2 * hosts;
            let options = format!("{} {way} -n {ranks}", nodes(hosts, 2, radix));
            let outcome = Job::hydrant(&options).arg(hydrant_bin()).arg("probe").run();
            outcome.code(0).quiet();
            outcome.says(&format!("exchanged {} cards and {} values", ranks * ranks, ranks * ranks), 1);
        }
    }
}

#[test]
fn ranks_know_their_hosts() {
    let outcome =
        shell("-n 8", "echo $PMI_RANK on $PMI_HOSTNAME as $MPI_LOCALRANKID of $MPI_LOCALNRANKS").run();
    let line = |rank: u32| format!("{rank} on n{} as {} of 2", rank / 2 + 1, rank % 2);
    assert_eq!(outcome.code(0).quiet().lines(), (0..8).map(line).collect::<Vec<_>>(), "{outcome}");
    let by_node = shell("-map-by node -n 8", "echo $PMI_RANK on $PMI_HOSTNAME as $MPI_LOCALRANKID").run();
    let line = |rank: u32| format!("{rank} on n{} as {}", rank % 4 + 1, rank / 4);
    assert_eq!(by_node.code(0).quiet().lines(), (0..8).map(line).collect::<Vec<_>>(), "{by_node}");
}

/// A missing program is named by its code alone, on whatever host its ranks would have run, beside another one that is missing
/// elsewhere. The code of a program is that of each of its processes in PMI-1.
#[test]
fn each_program_of_a_refused_spawn_has_its_code() {
    const PROGRAMS: [(&str, u32, &str); 4] = [
        ("true", 2, "n1"),
        ("/dev/null/missing", 1, "n2"),
        ("/dev/null", 2, "n2"),
        ("/dev/null/missing", 1, "n1"),
    ];
    let two: String = PROGRAMS
        .map(|(program, procs, host)| {
            format!("subcmd={program};maxprocs={procs};argc=0;infokeycount=1;infokey0=host;infoval0={host};")
        })
        .concat();
    let one: String = (1..).zip(PROGRAMS).map(|(at, (program, procs, host))| {
        let preput = if at == 1 { r"preput_num=0\n" } else { "" };
        format!(r"mcmd=spawn\nnprocs={procs}\nexecname={program}\ntotspawns=4\nspawnssofar={at}\nargcnt=0\n{preput}")
            + &format!(r"info_num=1\ninfo_key_0=host\ninfo_val_0={host}\nendcmd\n")
    }).collect();
    for steps in [
        format!(
            "init2\nframe cmd=spawn;ncmds=4;preputcount=0;{two}\nexpect cmd=spawn-response;rc=14;errcodes=125,20,13,20;\nend2"
        ),
        format!("init1\nsend {one}\nexpect cmd=spawn_result rc=14 errcodes=125,125,20,13,13,20\nend1"),
    ] {
        let outcome = raw(&format!("{} -n 1", nodes(2, 3, 2)), &steps).run();
        outcome.code(0).warns("spawned job 1 is ended before it began: host n");
    }
}

#[test]
fn spawned_ranks_run_where_they_are_asked_for() {
    for (hosts, procs, expected) in [
        ("n3", 2, vec!["child 0 of 2 on n3 as 0 of 2", "child 1 of 2 on n3 as 1 of 2"]),
        (
            "n4,n1",
            3,
            vec![
                "child 0 of 3 on n4 as 0 of 2",
                "child 1 of 3 on n4 as 1 of 2",
                "child 2 of 3 on n1 as 0 of 1",
            ],
        ),
        // Free slots first, from where the last rank went; then the turn of all hosts behind it.
        (
            "",
            5,
            vec![
                "child 0 of 5 on n2 as 0 of 1",
                "child 1 of 5 on n3 as 0 of 2",
                "child 2 of 5 on n3 as 1 of 2",
                "child 3 of 5 on n4 as 0 of 2",
                "child 4 of 5 on n4 as 1 of 2",
            ],
        ),
    ] {
        let steps = format!(
            "init2\nonly 0\n{}\nexpect cmd=spawn-response;rc=0;\nall\nfence2\nend2",
            spawn(procs, SAY, hosts)
        );
        let outcome = raw("-n 3", &steps).run();
        assert_eq!(outcome.code(0).quiet().lines(), expected, "{outcome}");
    }
}

#[test]
fn a_host_that_is_not_in_the_run_is_refused() {
    let steps = format!(
        "init2\nonly 1\n{}\nrefused nothing was started\nall\nfence2\nend2\nsay done",
        spawn(1, SAY, "n9")
    );
    let outcome = raw("-n 4", &steps).run();
    outcome.code(0).says("done", 4).says("child", 0);
    outcome.warns("nothing is spawned for rank 1: sh: host n9: this run's hosts are n1, n2, n3, n4\n");
}

#[test]
fn spawned_ranks_meet_and_find_what_was_put_for_them() {
    let child = "init2 frame 'cmd=info-getjobattr;key=universeSize;' expect 'cmd=info-getjobattr-response;rc=0;found=TRUE;value=8;' fence2 end2 say met";
    let script = format!("exec {RAW} {child}");
    for asker in [0, 7] {
        let steps = format!(
            "init2\nonly {asker}\n{}\nexpect cmd=spawn-response;rc=0;\nall\nfence2\nend2\nsay done",
            spawn(6, &script, "n4,n2,n1")
        );
        raw("-n 8", &steps).run().code(0).quiet().says("met\n", 6).says("done\n", 8);
    }
}

#[test]
fn node_attributes_are_of_one_node() {
    // Even ranks put, odd ranks wait for it: each pair is one host.
    let steps = "init2
        only 0,2,4,6
        frame cmd=info-putnodeattr;key=whose;value=%r;
        expect cmd=info-putnodeattr-response;rc=0;
        only 1
        frame cmd=info-getnodeattr;key=whose;wait=TRUE;
        expect cmd=info-getnodeattr-response;rc=0;found=TRUE;value=0;
        only 7
        frame cmd=info-getnodeattr;key=whose;wait=TRUE;
        expect cmd=info-getnodeattr-response;rc=0;found=TRUE;value=6;
        all
        fence2
        end2
        say done";
    raw("-n 8", steps).run().code(0).quiet().says("done", 8);
}

/// A network of several hosts is hierarchical: one between the hosts, one in each host.
// Shows: pmi2.h, Attributes of the job | `physTopologyLevels` | the levels of a hierarchical one | done
// Also: libraries `pmi2::functions::attributes_that_the_user_gives`
#[test]
fn the_network_between_hosts_is_an_attribute() {
    let steps = "init2
        frame cmd=info-getjobattr;key=physTopology;
        expect cmd=info-getjobattr-response;rc=0;found=TRUE;value=hierarchical;
        frame cmd=info-getjobattr;key=physTopologyLevels;
        expect cmd=info-getjobattr-response;rc=0;found=TRUE;value=complete,complete,complete;
        frame cmd=info-getnodeattr;key=cartCoords;
        expect cmd=info-getnodeattr-response;rc=0;found=FALSE;
        end2
        say done";
    let slurm = ("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node");
    raw("-n 8", steps).env(slurm.0, slurm.1).run().code(0).quiet().says("done", 8);
    let small = shell("-n 8 --topology cart:3", "true").run();
    small.code(2).warns("--topology has 3 places, but there are 4 hosts");
}

#[test]
fn groups_and_rings_cross_nodes() {
    let steps = r"init1
        only 0,1
        send cmd=barrier_in group=0,1:6\n
        expect cmd=barrier_out rc=0 tag=6
        only 1,6
        send cmd=barrier_in group=1,6:6\n
        expect cmd=barrier_out rc=0 tag=6
        all
        send cmd=barrier_in group=WORLD:8\n
        expect cmd=barrier_out rc=0 tag=8
        send cmd=barrier_in group=NODE:9\n
        expect cmd=barrier_out rc=0 tag=9
        fence1
        end1
        say done";
    raw("-n 8", steps).run().code(0).quiet().says("done", 8);
    let by_port = steps.replace("init1", "ack1\ninit1");
    raw("--pmi-port -n 8", &by_port).run().code(0).quiet().says("done", 8);
}

#[test]
fn a_name_is_found_on_every_host_until_its_job_ends() {
    // Rank 6 waits on another host for what rank 1 publishes.
    let steps = "init2
        only 6
        frame cmd=name-lookup;name=svc;wait=1000000;
        expect cmd=name-lookup-response;rc=0;port=p;
        only 1
        frame cmd=name-publish;name=svc;port=p;
        expect cmd=name-publish-response;rc=0;
        frame cmd=name-publish;name=svc;port=q;
        refused published already
        frame cmd=name-lookup;name=none;
        refused nobody has published
        frame cmd=name-publish;name=other;port=r;
        expect cmd=name-publish-response;rc=0;
        frame cmd=name-unpublish;name=other;
        expect cmd=name-unpublish-response;rc=0;
        all
        fence2
        only 3
        frame cmd=name-lookup;name=svc;
        expect cmd=name-lookup-response;rc=0;port=p;
        frame cmd=name-lookup;name=other;
        refused nobody has published
        all
        fence2
        end2
        say done";
    raw("-n 8", steps).run().code(0).quiet().says("done", 8);
    // The look-up waits before the child exists, because the name goes with the child.
    let spawned = format!(
        "init2
        only 1
        frame cmd=name-lookup;name=child;wait=1000000;
        all
        fence2
        only 0
        {}
        expect cmd=spawn-response;rc=0;
        only 1
        expect cmd=name-lookup-response;rc=0;port=c;
        all
        fence2
        end2",
        spawn(
            1,
            &format!("exec {RAW} init2 frame 'cmd=name-publish;name=child;port=c;' expect 'rc=0;' end2"),
            "n4"
        ),
    );
    raw("-n 8", &spawned).run().code(0).quiet();
}

#[test]
fn a_process_set_that_one_defines_is_everybodys() {
    let steps = "init2
        only 5
        frame cmd=pset-define;name=odd;members=1,3,5,7;
        expect cmd=pset-define-response;rc=0;
        frame cmd=pset-define;name=odd;members=1,3;
        refused other members
        all
        fence2
        only 1
        frame cmd=pset-info;name=odd;
        expect cmd=pset-info-response;rc=0;size=4;
        frame cmd=pset-info;name=hydrant://node/n1;
        expect cmd=pset-info-response;rc=0;size=2;
        frame cmd=pset-info;name=hydrant://node/n2;
        refused no such process set
        all
        fence2
        end2
        say done";
    raw("-n 8", steps).run().code(0).quiet().says("done", 8);
}

#[test]
fn a_process_set_leaves_all_nodes() {
    let steps = "init2
        only 5
        frame cmd=pset-define;name=odd;members=1,3,5,7;
        expect cmd=pset-define-response;rc=0;
        frame cmd=pset-retire;name=mpi://WORLD;
        refused mpi://
        frame cmd=pset-retire;name=odd;
        expect cmd=pset-retire-response;rc=0;
        all
        fence2
        only 1
        frame cmd=pset-info;name=odd;
        expect cmd=pset-info-response;rc=0;size=4;
        frame cmd=pset-define;name=odd;members=1,2;
        refused retired
        all
        fence2
        only 0
        frame cmd=pset-prune;
        expect cmd=pset-prune-response;rc=0;
        all
        fence2
        only 7
        frame cmd=pset-info;name=odd;
        expect cmd=pset-info-response;rc=0;size=4;
        frame cmd=pset-prune;
        expect cmd=pset-prune-response;rc=0;
        all
        fence2
        only 2
        frame cmd=pset-define;name=odd;members=1,2;
        expect cmd=pset-define-response;rc=0;
        all
        fence2
        only 1
        frame cmd=pset-info;name=odd;
        expect cmd=pset-info-response;rc=0;size=2;
        all
        fence2
        end2
        say done";
    raw("-n 8", steps).run().code(0).quiet().says("done", 8);
}

#[test]
fn hosts_without_ranks_take_part() {
    let steps = "init1\nfence1\nend1\nsay done";
    let job = Job::hydrant(&nodes(9, 4, 3)).words("-n 3").arg(RAW).steps(steps);
    job.run().code(0).quiet().says("done", 3);
}
