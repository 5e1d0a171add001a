//! Streams, signals and files, whose other end is on another host.

use std::fs;

use hydrant_tests::Job;
use hydrant_tests::terminal::Terminal;
use hydrant_tests::{LISTENER, hydrant_bin, nodes};
use rustix::process::Signal;

use crate::{RAW, raw, shell};

/// More than any buffer on the way holds.
const MUCH: usize = 6 << 20;

#[test]
fn input_is_rank_0s_and_arrives_whole() {
    let input: Vec<u8> = (0..MUCH).map(|at| (at * 7 % 251) as u8).collect();
    raw("-n 8", "only 0\ncount").input(input).run().code(0).quiet().says(&format!("{MUCH} bytes\n"), 1);
    raw("-n 8", "count").input("three").run().code(0).says("5 bytes\n", 1).says("0 bytes\n", 7);
    // Rank 0 on the last host of three levels.
    let job = Job::hydrant(&nodes(16, 1, 2)).words("-n 16 sh -c").arg("test $PMI_RANK != 0 || cat");
    job.input("one\ntwo\n").run().code(0).quiet().says("one\ntwo\n", 1);
}

#[test]
fn input_goes_to_the_ranks_that_the_user_names() {
    // More than a rank may be behind, with its pipe.
    const SOME: usize = 500_000;
    let count = |options: &str| raw(options, "count").input(vec![b'x'; SOME]).run();
    count("-s all -n 8").code(0).quiet().says(&format!("{SOME} bytes\n"), 8);
    count("-s 5 -n 8").code(0).says(&format!("{SOME} bytes\n"), 1).says("\n", 8);
    // Ranks of whole hosts leave. The last host has no ranks.
    let job = Job::hydrant(&nodes(5, 1, 2)).words("-s all -n 4 sh -c");
    let job = job.arg("test $PMI_RANK -lt 2 && exit 0; exec wc -c");
    job.input(vec![0; SOME]).run().code(0).says(&format!("{SOME}\n"), 2);
}

#[test]
fn a_file_is_input_too() {
    let outcome = Job::new("sh").arg("-c").arg("exec \"$0\" \"$@\" < Cargo.toml").arg(hydrant_bin());
    let outcome =
        outcome.arg("run").words(&nodes(2, 1, 2)).words("-n 2 sh -c").arg("test $PMI_RANK != 0 || cat");
    let expected = fs::read_to_string("Cargo.toml").expect("tests start beside it");
    assert_eq!(outcome.run().code(0).quiet().stdout, expected);
}

#[test]
fn who_writes_to_rank_0_notices_that_it_left() {
    let script = "yes | \"$0\" \"$@\"; echo done";
    let job = Job::new("bash").arg("-c").arg(script).arg(hydrant_bin());
    let job = job.arg("run").words(&nodes(2, 1, 2)).words("-n 2 sh -c").arg("test $PMI_RANK != 0 || head -1");
    let outcome = job.run();
    assert_eq!(outcome.code(0).quiet().stdout, "y\ndone\n");
}

#[test]
fn much_output_waits_for_a_slow_reader_and_is_whole() {
    let script = "yes line-$PMI_RANK-of-many-that-are-long-enough | head -n 100000";
    let command = "\"$0\" \"$@\" | (dd bs=1 count=200000 status=none; cat) | sort | uniq -c";
    for links in ["", "--iface lo"] {
        let job = Job::new("sh").arg("-c").arg(command).arg(hydrant_bin()).arg("run");
        let outcome = job.words(&nodes(4, 2, 2)).words(links).words("-n 8 sh -c").arg(script).run();
        let expected = (0..8).map(|rank| format!(" 100000 line-{rank}-of-many-that-are-long-enough"));
        assert_eq!(outcome.code(0).quiet().lines(), expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_reader_that_has_enough_ends_the_job() {
    let job = Job::new("sh").arg("-c").arg("\"$0\" \"$@\" | head -n 2").arg(hydrant_bin());
    let outcome = job.arg("run").words(&nodes(4, 2, 2)).words("-n 8 yes").run();
    assert_eq!(outcome.code(0).quiet().stdout, "y\ny\n");
}

#[test]
fn lines_have_labels_and_files_have_hosts() {
    let outcome = shell("-l -n 4", "printf 'a\\nb'; echo err >&2").run();
    outcome.code(0);
    for rank in 0..4 {
        outcome
            .says(&format!("[{rank}] a\n"), 1)
            .says(&format!("[{rank}] b"), 1)
            .warns(&format!("[{rank}] err\n"));
    }
    let folder = std::env::temp_dir().join(format!("hydrant-tests-nodes-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the system has a folder for such things");
    let pattern = folder.join("%h.%r");
    let job = Job::hydrant(&nodes(2, 2, 2)).words("-n 4 -outfile-pattern").arg(&pattern);
    let outcome = job.words("sh -c").arg("echo $PMI_RANK").run();
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let files = ["n1.0", "n1.1", "n2.2", "n2.3"].map(read);
    fs::remove_dir_all(&folder).expect("it was made above");
    outcome.code(0).quiet();
    assert_eq!(files, ["0\n", "1\n", "2\n", "3\n"]);
}

#[test]
fn signals_reach_every_rank() {
    let names = "SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGTERM SIGINT";
    let job = Job::hydrant(&nodes(4, 2, 2)).words("-n 8 python3 -c").arg(LISTENER).words(names).start();
    job.await_stdout("up\n", 8);
    for (signal, name) in [(Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2"), (Signal::HUP, "SIGHUP")] {
        job.signal(signal).await_stdout(&format!("got {name}\n"), 8);
    }
    job.signal(Signal::INT).await_stdout("got SIGINT\n", 8);
    // They shrugged off the first interrupt; the second is final.
    job.signal(Signal::INT);
    job.wait().code(130);
}

#[test]
fn a_signal_that_ends_the_ranks_is_the_exit_code() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let job = raw("-n 8", "init1\nsay up\nforever").start();
        job.await_stdout("up\n", 8).signal(signal);
        job.wait().code(code);
    }
}

#[test]
fn a_terminal_is_rank_0s_input_and_its_interrupt_everybodys() {
    let mut terminal = Terminal::open();
    let (hydrant, options) = (hydrant_bin().display(), "-hosts a,b --bootstrap local");
    terminal.type_in(&format!("{hydrant} run {options} -l -n 2 {RAW} only 0 cat; echo code=$?.\n"));
    terminal.type_in("a line\n");
    terminal.expect("[0] a line");
    terminal.type_in("\x04");
    terminal.expect("code=0.");
    terminal
        .type_in(&format!("{hydrant} run {options} -n 2 {RAW} init1 fence1 say up forever; echo code=$?.\n"));
    terminal.expect("up");
    terminal.expect("up");
    terminal.type_in("\x03");
    terminal.expect("code=130.");
}
