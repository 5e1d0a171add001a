//! Gets through the server's memory, and all the ways in which there is none to be had.

use std::path::PathBuf;

use hydrant_tests::Job;
use hydrant_tests::Outcome;
use hydrant_tests::peers::clients_dir;

use super::support::{HYDRA_4, HYDRA_5, HYDRANT, Whose, prefix, program, sources};

fn source() -> PathBuf {
    sources().join("shared.c")
}

fn job(options: &str) -> Job {
    Job::hydrant(options).env("LD_LIBRARY_PATH", prefix().join("lib"))
}

fn run(test: &str, size: u32) -> Outcome {
    let job = HYDRANT[0].job(size, Whose::Own, Whose::Own, &source()).expect("hydrant is there");
    job.words(test).run()
}

#[test]
fn what_was_put_is_read_without_a_message() {
    for size in [1, 4, 16] {
        run("local", size).code(0).quiet().says("read rank ", size as usize);
    }
}

#[test]
fn ranks_cannot_write_to_it() {
    run("sealed", 3).code(0).quiet().says("read rank ", 3);
}

/// Gets go to the server after every defect of the offer.
#[test]
fn without_a_good_offer_the_server_is_asked() {
    let offered = Job::hydrant("-n 1 sh -c").arg("echo $HYDRANT_KVS").run();
    let offered = offered.stdout.trim();
    let words: Vec<&str> = offered.split(',').collect();
    let [version, path, device, inode, index, log, seed, space, jobid] = words[..] else {
        panic!("{offered:?} is no offer");
    };
    assert!(path.starts_with("/proc/") && jobid.starts_with("kvs_"), "{offered}");
    run("asked", 3).code(0).quiet().says("asked rank ", 3);
    for offer in [
        // Of a job that is over, whose file is gone.
        offered.to_owned(),
        "rubbish".to_owned(),
        format!("1,{path},{device},{inode},{index},{log},{seed},{space},{jobid}"),
        format!("{version},/dev/zero,{device},{inode},{index},{log},{seed},{space},{jobid}"),
    ] {
        run(&format!("asked {offer}"), 2).code(0).quiet().says("asked rank ", 2);
    }
}

/// Each change to the offer of the job itself, made by a shell between hydrant and the rank.
#[test]
fn an_offer_that_is_not_quite_right_is_declined() {
    let program = program(Whose::Own, &source());
    for (change, reason) in [
        ("s/^2,/9,/", "unknown version"),
        ("s/,kvs_/,other_/", "the offer is for job other_"),
        ("s/^2,[^,]*/2,\\/dev\\/null/", "another file"),
        ("s/^2,[^,]*/2,\\/proc\\/self\\/exe/", "another file"),
        ("s/^2,[^,]*/2,\\/no\\/such\\/path/", "No such file"),
        ("s/^\\(2,[^,]*,[^,]*\\),/\\1,1/", "another file"),
        ("s/^\\(2,[^,]*,[^,]*,[^,]*\\),[0-9]*,/\\1,4,/", "invalid lengths"),
        ("s/^\\(2,[^,]*,[^,]*,[^,]*\\),[0-9]*,/\\1,0,/", "invalid lengths"),
        ("s/^\\(2,[^,]*,[^,]*,[^,]*,[^,]*\\),[0-9]*,/\\1,4294967295,/", "another file"),
    ] {
        let script = format!("exec \"$0\" asked \"$(echo \"$HYDRANT_KVS\" | sed '{change}')\"");
        let outcome = job("-n 2 sh -c").arg(script).arg(&program).env("PMI2_DEBUG", "1").run();
        outcome.code(0).says("asked rank ", 2);
        outcome.warns("HYDRANT_KVS is not used: ").warns(reason);
    }
}

/// Where hydrant cannot make a file as long as the memory, its ranks are served all the same.
#[test]
fn where_there_is_no_shared_memory_the_server_is_asked() {
    let script = "ulimit -f 8; exec \"$@\"";
    let hydrant = hydrant_tests::hydrant_bin();
    let limited = Job::new("sh").args(["-c", script, "sh"]).arg(hydrant).words("run -n 2");
    let limited = limited.env("LD_LIBRARY_PATH", prefix().join("lib")).arg(program(Whose::Own, &source()));
    limited.arg("asked").run().code(0).quiet().says("asked rank ", 2);
    let shown = "echo \"kvs=$HYDRANT_KVS\"";
    Job::new("sh")
        .args(["-c", script, "sh"])
        .arg(hydrant)
        .words("run -n 1 sh -c")
        .arg(shown)
        .run()
        .says("kvs=\n", 1);
    Job::hydrant("--pmi-port -n 1 sh -c").arg(shown).run().code(0).says("kvs=\n", 1);
}

/// The variable is hydrant's own, and one that came from outside is not passed on.
#[test]
fn only_inherited_sockets_get_offers() {
    let job =
        Job::hydrant("--pmi-port -n 1 sh -c").arg("echo \"kvs=$HYDRANT_KVS\"").env("HYDRANT_KVS", "mine");
    job.run().code(0).says("kvs=\n", 1);
    Job::hydrant("-n 1 -env HYDRANT_KVS mine true").run().code(2).warns("HYDRANT_KVS");
}

/// Jobs of another launcher inside a rank inherit the offer and leave it alone.
#[test]
fn the_offer_of_an_outer_job_is_declined() {
    let kvs = clients_dir().join("pmi2_kvs.c");
    for launcher in [HYDRA_4[0], HYDRA_5[0]] {
        let Some(inner) = launcher.job(2, Whose::Own, Whose::Own, &kvs) else { return };
        let script = "unset PMI_FD PMI_RANK PMI_SIZE PMI_JOBID; exec \"$@\"";
        let outcome = inner.inside(job("-n 1 sh -c").args([script, "sh"])).env("PMI2_DEBUG", "1").run();
        outcome.code(0).says(" errs=0 ", 1).warns("HYDRANT_KVS is not used: the offer is for job kvs_");
    }
}
