//! `hydrant status`, `kill` and `attach` for jobs over several daemons.

use hydrant_tests::{Job, nodes};

use crate::RAW;

#[test]
fn daemons_tell_what_their_ranks_wait_for() {
    for (hosts, radix) in [(2, 2), (4, 2)] {
        let last = 2 * hosts - 1;
        let steps = format!("init1\nonly {last}\nsay up\nforever\nall\nfence1");
        let options = format!("run -n {} {}", 2 * hosts, nodes(hosts, 2, radix));
        let job = Job::command(&options).arg(RAW).steps(&steps).start();
        job.await_stdout("up\n", 1);
        let pid = job.pid().to_string();
        let watch = Job::command("status --watch=0.1").arg(&pid).start();
        watch.await_stdout(&format!("{last} ranks in fence 1 for "), 1);
        let shown = watch.stdout();
        assert!(shown.contains(&format!(", missing: rank {last}\n")), "{shown}");
        assert!(shown.contains(&format!("  n{hosts}  ")), "{shown}");
        Job::command("kill").arg(&pid).run().code(0).quiet();
        job.wait().code(143);
        watch.wait().code(0);
    }
}

#[test]
fn output_of_all_hosts_is_followed() {
    let script = "echo up $PMI_RANK; trap 'echo got $PMI_RANK; exit 3' USR1; while :; do :; done";
    let job = Job::command(&format!("run -n 2 {} sh -c", nodes(2, 1, 2))).arg(script).start();
    job.await_stdout("up ", 2);
    let pid = job.pid().to_string();
    let attached = Job::command("attach").arg(&pid).start();
    attached.await_stderr("following the output of job");
    Job::command("kill -s USR1").arg(&pid).run().code(0).quiet();
    attached.wait().code(3).says("[0] got 0\n", 1).says("[1] got 1\n", 1).says("up", 0);
    job.wait().code(3);
}
