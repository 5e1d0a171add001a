//! Signals, terminals, and the shell's job control.

use hydrant_tests::Job;
use hydrant_tests::job::{LISTENER, hydrant_bin};
use hydrant_tests::terminal::Terminal;
use rustix::process::Signal;

use crate::{RAW, raw};

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
    // They shrugged off the first interrupt; the second is final.
    job.signal(Signal::INT);
    job.wait().code(130);
}

#[test]
fn a_signal_that_ends_the_ranks_is_the_exit_code() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let job = raw("-n 3", "init1\nsay up\nforever").start();
        job.await_stdout("up\n", 3).signal(signal);
        job.wait().code(code);
    }
}

#[test]
fn control_c_on_a_terminal_ends_the_job() {
    let mut terminal = Terminal::open();
    let hydrant = hydrant_bin().display();
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
    let hydrant = hydrant_bin().display();
    // Rank 0 reads the terminal, which only a job in the foreground may.
    let steps = "init1 fence1 only 0 say up cat all fence1 end1 only 0 say done";
    terminal.type_in(&format!("{hydrant} run -n 2 {RAW} {steps}\n"));
    terminal.expect("up");
    terminal.type_in("\x1a");
    terminal.expect("Stopped");
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
}

#[test]
fn in_the_background_it_runs_to_its_end() {
    let mut terminal = Terminal::open();
    let hydrant = hydrant_bin().display();
    terminal.type_in(&format!("{hydrant} run -n 2 {RAW} init1 fence1 end1 & wait $!; echo code=$?.\n"));
    terminal.expect("code=0.");
    terminal.expect("ready> ");
}
