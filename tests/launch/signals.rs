//! Signals, terminals, and the shell's job control.

use hydrant_tests::terminal::Terminal;
use hydrant_tests::{Job, LISTENER, hydrant_path};
use rustix::process::Signal;

use crate::{RAW, raw, shell};

#[test]
fn signals_reach_every_rank() {
    let names = "SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGTERM SIGINT";
    let job = Job::hydrant("-n 3 python3 -c").arg(LISTENER).words(names).start();
    job.await_stdout("up\n", 3);
    for (signal, name) in [
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::HUP, "SIGHUP"),
        (Signal::QUIT, "SIGQUIT"),
    ] {
        job.signal(signal).await_stdout(&format!("got {name}\n"), 3);
    }
    job.signal(Signal::INT).await_stdout("got SIGINT\n", 3);
    // The ranks ignored the first interrupt. The second is final.
    job.signal(Signal::INT);
    job.wait().code(130);
}

#[test]
fn a_signal_that_ends_the_ranks_is_the_exit_code() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        // The shell starts nothing meanwhile: dash may lose a signal that comes while it does so.
        for job in [raw("-n 2", "init1\nsay up\nforever"), shell("-n 2", "echo up; while :; do :; done")] {
            let job = job.start();
            job.await_stdout("up\n", 2).signal(signal);
            job.wait().code(code).stderr_starts("hydrant: the job was ended by SIG");
        }
    }
}

#[test]
fn ranks_that_catch_a_signal_choose_the_exit_code() {
    for (signal, name) in [(Signal::USR1, "USR1"), (Signal::USR2, "USR2"), (Signal::INT, "INT")] {
        let script = format!("trap 'echo got; exit 3' {name}; echo up; while :; do :; done");
        let job = shell("-n 2", &script).start();
        job.await_stdout("up\n", 2).signal(signal);
        job.wait().code(3).stdout_is("up\nup\ngot\ngot\n");
    }
}

#[test]
fn a_prompt_is_shown_and_answered() {
    let mut terminal = Terminal::open();
    let script =
        r#"test $PMI_RANK = 0 || exit 0; printf "name? "; read name; echo "hi $name"; cat; echo over"#;
    // The launcher takes the shell's place: it leads the session.
    terminal.type_in(&format!("stty echo; exec {} run -n 2 sh -c '{script}'\n", hydrant_path()));
    terminal.expect("name? ");
    terminal.type_in("you\n");
    terminal.expect("hi you\r\n");
    terminal.type_in("more\n");
    terminal.expect("more\r\nmore\r\n");
    terminal.type_in("\x04");
    terminal.expect("over\r\n");
    assert_eq!(terminal.wait().code(), Some(0));
}

#[test]
fn control_c_ends_a_job_without_a_shell() {
    let mut terminal = Terminal::open();
    // The ranks start nothing meanwhile: dash may lose a signal that comes while it does so.
    terminal.type_in(&format!("exec {} run -n 2 sh -c 'echo up; while :; do :; done'\n", hydrant_path()));
    terminal.expect("up\r\nup\r\n");
    terminal.type_in("\x03");
    terminal.expect("the job was ended by SIGINT");
    assert_eq!(terminal.wait().code(), Some(130));
}

#[test]
fn control_c_under_a_shell_ends_the_job() {
    let mut terminal = Terminal::open();
    let hydrant = hydrant_path();
    terminal.type_in(&format!("{hydrant} run -n 2 {RAW} init1 fence1 say up forever; echo code=$?.\n"));
    terminal.expect("up");
    terminal.expect("up");
    terminal.type_in("\x03");
    terminal.expect("code=130.");
    terminal.expect("ready> ");
}

#[test]
fn control_z_stops_the_job_and_fg_goes_on() {
    let mut terminal = Terminal::open();
    let hydrant = hydrant_path();
    // Rank 0 reads the terminal, which only a job in the foreground may.
    let steps = "init1 fence1 only 0 say up cat all fence1 end1 only 0 say done";
    terminal.type_in(&format!("{hydrant} run -n 2 {RAW} {steps}\n"));
    terminal.expect("up");
    terminal.type_in("\x1a");
    terminal.expect("Stopped");
    terminal.expect("ready> ");
    terminal.type_in("echo stopped $?\n");
    terminal.expect("stopped 148");
    terminal.expect("ready> ");
    terminal.type_in("jobs\n");
    terminal.expect("Stopped");
    terminal.expect("ready> ");
    terminal.type_in("fg\n");
    terminal.expect("run -n 2");
    terminal.type_in("typed after all\n\x04");
    terminal.expect("typed after all");
    terminal.expect("done");
    terminal.expect("ready> ");
    terminal.type_in("echo ended $?\n");
    terminal.expect("ended 0");
}

#[test]
fn in_the_background_a_job_runs_to_its_end() {
    let mut terminal = Terminal::open();
    let hydrant = hydrant_path();
    terminal.type_in(&format!("{hydrant} run -n 2 {RAW} init1 fence1 end1 & wait $!; echo code=$?.\n"));
    terminal.expect("code=0.");
    terminal.expect("ready> ");
}

#[test]
fn in_the_background_a_job_leaves_the_terminals_input_to_the_shell() {
    let mut terminal = Terminal::open();
    let job = format!("{} run -n 1 sh -c 'echo up; read x; echo got $x'", hydrant_path());
    terminal.type_in(&format!("{job} & read y; echo shell $y; fg; echo ended $?\n"));
    terminal.expect("up\r\n");
    terminal.type_in("one\n");
    // Typed ahead: it is read once the job is in the foreground.
    terminal.type_in("two\n");
    terminal.expect("shell one\r\n");
    terminal.expect("got two\r\n");
    terminal.expect("ended 0");
}
