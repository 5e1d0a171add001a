//! Lazy fences: gets that fetch pairs from other hosts.

use hydrant_tests::{Folder, Job, SHAPES};
use hydrant_tests::{hydrant_bin, nodes};

use crate::{RAW, raw};

#[test]
fn the_probe_finds_everything_right() {
    for (hosts, radix) in SHAPES {
        for options in ["--fence lazy", "--fence lazy --pmi-port", "--fence auto"] {
            let ranks = 2 * hosts;
            let options = format!("{} {options} -n {ranks}", nodes(hosts, 2, radix));
            let outcome = Job::hydrant(&options).arg(hydrant_bin()).arg("probe").run();
            outcome.code(0).quiet();
            outcome.says(&format!("exchanged {} cards and {} values", ranks * ranks, ranks * ranks), 1);
        }
    }
}

/// Two ranks on each of four hosts, by PMI-2. Ranks 0 and 7 are on different branches of the tree.
#[test]
fn hints_lead_to_the_value_good_or_bad() {
    let found = "found=TRUE;value=v%r";
    let steps = "init2\nframe cmd=kvs-put;key=k%r;value=v%r;\nexpect rc=0\nfence2\n\
        frame cmd=kvs-get;srcid=%r;key=k%r;\nexpect rc=0;FOUND\n\
        only 0\nframe cmd=kvs-get;srcid=7;key=k7;\nexpect rc=0;found=TRUE;value=v7\n\
        only 1\nframe cmd=kvs-get;srcid=2;key=k6;\nexpect rc=0;found=TRUE;value=v6\n\
        only 2\nframe cmd=kvs-get;srcid=-1;key=k5;\nexpect rc=0;found=TRUE;value=v5\n\
        only 4\nframe cmd=kvs-get;srcid=999;key=none;\nexpect rc=0;found=FALSE\n\
        all\nfence2\nframe cmd=kvs-put;key=k%r;value=new%r;\nexpect rc=0\nfence2\n\
        only 0\nframe cmd=kvs-get;srcid=7;key=k7;\nexpect rc=0;found=TRUE;value=new7\n\
        only 6\nframe cmd=kvs-get;srcid=1;key=k1;\nexpect rc=0;found=TRUE;value=new1\n\
        all\nend2";
    for options in ["-n 8", "-n 8 --pmi-port", "-n 8 -map-by node"] {
        let steps = steps.replace("FOUND", found);
        raw(&format!("--fence lazy {options}"), &steps).run().code(0).quiet();
    }
}

#[test]
fn pmi1_has_no_hints_and_finds_every_value() {
    let steps = "init1\nsend cmd=put kvsname=%j key=k%r value=v%r\\n\nexpect cmd=put_result rc=0\nfence1\n\
        only 0\nsend cmd=get kvsname=%j key=k7\\n\nexpect cmd=get_result rc=0 value=v7\n\
        only 5\nsend cmd=get kvsname=%j key=k2\\n\nexpect cmd=get_result rc=0 value=v2\n\
        all\nfence1\nend1";
    raw("--fence lazy -n 8", steps).run().code(0).quiet();
}

/// The rank of the last host reads what that of the first host has put, through the head. No other pair moves.
#[test]
fn only_what_is_asked_for_moves() {
    let folder = Folder::new("lazy-record");
    let steps = "init2\nframe cmd=kvs-put;key=k%r;value=v%r;\nexpect rc=0\nfence2\n\
        only 3\nframe cmd=kvs-get;srcid=0;key=k0;\nexpect rc=0;found=TRUE;value=v0\nall\nfence2\nend2";
    for (mode, asks, moved) in [("lazy", true, [true, false, false, false]), ("collect", false, [true; 4])] {
        let file = folder.path(&format!("{mode}.rec"));
        let options = format!("run --fence {mode} --record {file} -n 4 {}", nodes(4, 1, 2));
        Job::command(&options).arg(RAW).steps(steps).run().code(0).quiet();
        let replay = Job::command("replay").arg(&file).run();
        replay.code(0);
        let text = &replay.stdout;
        for (rank, moved) in moved.into_iter().enumerate() {
            let pair = format!("k{rank}=v{rank}");
            assert_eq!(text.contains(&pair), moved, "{mode}: pairs of rank {rank} at the head\n{text}");
        }
        assert_eq!(text.matches("asks for pairs of job 0, rank 0").count() > 0, asks, "{text}");
    }
}

#[test]
fn a_job_whose_rank_waits_for_a_pair_ends_when_another_fails() {
    let steps =
        "init2\nonly 7\nexit 3\nonly 0 1 2 3 4 5 6\nframe cmd=kvs-get;srcid=7;key=k;\nexpect rc=0\nfence2";
    let steps = steps.replace("0 1 2 3 4 5 6", "0,1,2,3,4,5,6");
    raw("--fence lazy -n 8", &steps).run().code(3);
}

/// On 65 hosts. Rank 0 names one rank, rank 1 more than a quarter of the ranks, and rank 2 none.
#[test]
fn auto_says_what_each_host_gets() {
    let many: String = (10..30)
        .map(|rank| {
            format!("frame cmd=kvs-get;srcid={rank};key=k{rank};\nexpect rc=0;found=TRUE;value=v{rank}\n")
        })
        .collect();
    // One rank after the other: what one gets passes through the nodes of others.
    let publish = |name| format!("frame cmd=name-publish;name={name};port=p;\nexpect rc=0");
    let await_name = |name| format!("frame cmd=name-lookup;name={name};wait=1000000;\nexpect rc=0;port=p");
    let steps = format!(
        "init2\nframe cmd=kvs-put;key=k%r;value=v%r;\nexpect rc=0\nfence2\n\
         only 0\nframe cmd=kvs-get;srcid=64;key=k64;\nexpect rc=0;found=TRUE;value=v64\n{}\n\
         only 1\n{}\n{many}{}\n\
         only 2\n{}\nframe cmd=kvs-get;srcid=-1;key=k5;\nexpect rc=0;found=TRUE;value=v5\n\
         all\nfence2\nend2",
        publish("first"),
        await_name("first"),
        publish("second"),
        await_name("second"),
    );
    let options = format!("run -v --fence auto -n 65 {}", nodes(65, 1, 16));
    let outcome = Job::command(&options).arg(RAW).steps(&steps).run();
    outcome.code(0);
    for (line, count) in [
        ("the first fence moves no values: 65 hosts, more than 64", 1),
        ("gets values of 1 of 64 other hosts: fences bring it only these", 1),
        ("gets values of 17 of 64 other hosts: fences bring it all values", 1),
        ("gets values without their ranks: fences bring it all values", 1),
        ("gets values of 0 of 64 other hosts: fences bring it only these", 62),
    ] {
        assert_eq!(outcome.stderr.matches(line).count(), count, "{line}\n{}", outcome.stderr);
    }
}

#[test]
fn auto_collects_on_few_hosts() {
    let options = format!("run -v --fence auto -n 4 {}", nodes(4, 1, 2));
    let outcome = Job::command(&options).arg(RAW).steps("init2\nfence2\nend2").run();
    outcome.code(0).warns("fences collect all values: 4 hosts, of at most 64");
}

#[test]
fn other_modes_are_refused() {
    Job::command("run --fence eager -n 1 true").run().code(2).warns("expected collect, lazy or auto");
}
