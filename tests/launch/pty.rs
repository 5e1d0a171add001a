//! Pseudo-terminals for the output of ranks.

use hydrant_tests::terminal::Terminal;
use hydrant_tests::{Fleet, Job, hydrant_path, nodes};

use crate::shell;

/// Program that keeps its output unless it is a terminal, and dies.
const DIES: [&str; 3] = ["python3", "-Ec", "import os; print('before'); os.kill(os.getpid(), 9)"];

#[test]
fn output_before_a_death_is_seen_on_a_terminal() {
    let mut terminal = Terminal::open();
    let [python, option, script] = DIES;
    terminal.type_in(&format!("{} run -l -n 1 {python} {option} \"{script}\"\n", hydrant_path()));
    terminal.expect("[0] before\r\n");
    terminal.expect("died by SIGKILL");
    terminal.expect("ready> ");
}

#[test]
fn pipes_and_files_get_pipes_unless_asked_for() {
    Job::hydrant("-n 1").args(DIES).run().code(137).says("before\n", 0);
    Job::hydrant("-n 1 --pty never").args(DIES).run().code(137).says("before\n", 0);
    Job::hydrant("-n 1 --pty always").args(DIES).run().code(137).says("before\n", 1);
    let both = "test -t 1 && test -t 2 && echo terminals";
    shell("-n 1 --pty always", both).run().code(0).stdout_is("terminals\n");
}

#[test]
fn a_pseudo_terminal_loses_and_changes_no_byte() {
    // Each line ends in a carriage return, and the job has more than all buffers hold.
    let script =
        "i=0; while [ $i -lt 40000 ]; do printf 'abc\\tdefghijklmno %d\\004\\r\\n' $i; i=$((i+1)); done";
    let outcome = shell("-n 2 --pty always -l", script).run();
    let mut next = [0; 2];
    for line in outcome.code(0).stdout.split_inclusive('\n') {
        let (label, rest) = line.split_once("] ").expect("each line has a label");
        let rank: usize = label[1..].parse().expect("the label is a rank");
        assert_eq!(rest, format!("abc\tdefghijklmno {}\u{4}\r\n", next[rank]));
        next[rank] += 1;
    }
    assert_eq!(next, [40_000; 2]);
}

#[test]
fn the_window_has_a_size_and_changes_it() {
    let script = r#"trap "stty size <&1; exit 0" WINCH; stty size <&1; echo up; while :; do :; done"#;
    let fleet = Fleet::new(&nodes(2, 1, 2));
    let in_fleet = format!("--on {} -n 2", fleet.name);
    for options in ["-n 1".to_owned(), format!("-n 2 {}", nodes(2, 1, 2)), in_fleet] {
        let mut terminal = Terminal::open();
        terminal.resize(33, 77);
        terminal.type_in(&format!("{} run {options} sh -c '{script}'\n", hydrant_path()));
        let ranks = if options == "-n 1" { 1 } else { 2 };
        let before = (0..ranks).map(|_| terminal.expect("up\r\n")).collect::<String>();
        assert_eq!(before.matches("33 77\r\n").count(), ranks, "{before:?}");
        terminal.resize(44, 99);
        (0..ranks).for_each(|_| drop(terminal.expect("44 99\r\n")));
        terminal.expect("ready> ");
    }
    fleet.end();
}
