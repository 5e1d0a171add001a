//! `hydrant status`, `kill` and `attach` for jobs over several daemons, and the progress of their start.

use std::fs::OpenOptions;
use std::io::Write;

use hydrant_tests::terminal::Terminal;
use hydrant_tests::{Folder, Job, hydrant_path, nodes};

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

#[test]
fn a_command_runs_on_the_host_of_a_rank() {
    let folder = Folder::new("debug-elsewhere");
    let script =
        "#!/bin/sh\nwhile test $1 != --; do WAY=$1; shift; done\nTHERE=$2 WAY=$WAY exec sh -c \"$3\"\n";
    let ssh = folder.executable("ssh", script);
    let options = "run -hosts n1,n2 --iface lo -n 2 sh -c";
    let job =
        Job::command(options).env("HYDRA_LAUNCHER_EXEC", &ssh).env("HYDRA_LAUNCHER_EXTRA_ARGS", "-p2222");
    let job = job.arg("echo $PMI_RANK=$$; exec sleep 600").start();
    job.await_stdout("=", 2);
    let pid = job.pid().to_string();
    let debug = |rank: &str, command: &str| {
        Job::command("debug --rank").args([rank, &pid, "--", "sh", "-c", command]).run()
    };
    for (rank, host) in [("0", "n1"), ("1", "n2")] {
        let outcome = debug(rank, "echo $THERE $WAY {}");
        let way = format!("{host} -p2222 ");
        let process =
            outcome.code(0).stdout.strip_prefix(&way).expect("it runs on the host, as its daemon does");
        assert!(job.stdout().contains(&format!("{rank}={process}")), "{} {process}", job.stdout());
    }
    debug("1", "exit 7").code(7);
    Job::command("kill").arg(&pid).run().code(0);
    job.wait().code(143);
}

#[test]
fn a_long_start_shows_its_progress_on_a_terminal() {
    let folder = Folder::new("progress");
    // A gate for each host, in the place of ssh: its arguments are five options, the host and the command.
    let gates = ["n1", "n2"].map(|host| {
        let gate = folder.fifo(host);
        // Opened for both directions, which waits for no reader.
        OpenOptions::new().read(true).write(true).open(gate).expect("the gate is there")
    });
    let ssh = folder.executable(
        "ssh",
        &format!("#!/bin/sh\nshift 5\nread line < {}/$1\nexec sh -c \"$2\"\n", folder.path("")),
    );
    let mut terminal = Terminal::open();
    let options = format!("-hosts n1,n2 --bootstrap ssh --bootstrap-exec {ssh} --iface lo");
    terminal.type_in(&format!("{} run {options} -n 2 echo up\n", hydrant_path()));
    terminal.expect("hydrant: 0 of 2 hosts have joined");
    let [mut first, mut second] = gates;
    first.write_all(b"go\n").expect("a gate is a pipe");
    terminal.expect("\r\x1b[Khydrant: 1 of 2 hosts have joined");
    second.write_all(b"go\n").expect("a gate is a pipe");
    let before = terminal.expect("up\r\n");
    assert!(before.ends_with("\r\x1b[K"), "{before:?}");
    terminal.expect("up\r\n");
    assert_eq!(terminal.expect("ready> "), "");
}

#[test]
fn ranks_that_have_joined_are_counted_on_all_hosts() {
    let folder = Folder::new("joined");
    let gates = ["0", "1"].map(|rank| {
        let gate = folder.fifo(rank);
        // Opened for both directions, which waits for no reader.
        OpenOptions::new().read(true).write(true).open(gate).expect("the gate is there")
    });
    let path = folder.path("");
    let text = format!("#!/bin/sh\nread line < {path}/$PMI_RANK\nexec {RAW} init1 fence1 say up end1\n");
    let program = folder.executable("rank", &text);
    let mut terminal = Terminal::open();
    terminal.type_in(&format!("{} run -n 2 {} {program}\n", hydrant_path(), nodes(2, 1, 2)));
    let [mut first, mut second] = gates;
    first.write_all(b"go\n").expect("a gate is a pipe");
    terminal.expect("hydrant: 1 of 2 ranks have joined");
    second.write_all(b"go\n").expect("a gate is a pipe");
    let before = terminal.expect("up\r\n");
    assert!(before.ends_with("\r\x1b[K"), "{before:?}");
    terminal.expect("up\r\n");
    assert_eq!(terminal.expect("ready> "), "");
}

#[test]
fn the_result_of_a_run_on_several_hosts_is_json() {
    let script = "test $PMI_RANK = 1 && kill -9 $$; exit 0";
    let job = Job::command(&format!("run --json -n 2 {} sh -c", nodes(2, 1, 2))).arg(script).run();
    job.code(137).says("\"form\": \"result\"", 1).says("\"signal\": 9", 1).says("\"ranks\": \"1\"", 1);
}
