//! `hydrant run --sandbox` as a user sees it: jobs that run, and plugins that end their own.

mod faulty;
mod hosts;
mod launchers;
mod made;
mod nodes;
mod packages;
mod replace;
mod spare;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use hydrant_abi::ABI_VERSION;
use hydrant_tests::Job;
use hydrant_tests::{hydrant_bin, target_dir};
use made::{HANDLED, QUIET, hostile, says};

/// `hydrant` with the sandbox: `HYDRANT_SANDBOX_BIN`, or built here, once.
fn bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        if let Some(bin) = std::env::var_os("HYDRANT_SANDBOX_BIN") {
            return bin.into();
        }
        made(Path::new(env!("CARGO_MANIFEST_DIR")).join("../host-wasm/build-launcher"))
    })
}

/// `hydrant.wasm`: `HYDRANT_WASM`, or built here, once.
fn plugin() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        if let Some(file) = std::env::var_os("HYDRANT_WASM") {
            return file.into();
        }
        made(Path::new(env!("CARGO_MANIFEST_DIR")).join("../host-wasm/build"))
    })
}

/// What a build script makes, whose path it prints.
fn made(script: PathBuf) -> PathBuf {
    let mut command = Command::new(&script);
    // What cargo set for this test is not for another cargo.
    for variable in ["LD_LIBRARY_PATH", "RUSTUP_TOOLCHAIN", "CARGO"] {
        command.env_remove(variable);
    }
    let output = command.env("CARGO_TARGET_DIR", target_dir()).output().expect("the script is there");
    assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints a path").trim_end().into()
}

fn sandboxed(file: &Path, args: &str) -> Job {
    let cache = target_dir().join("hydrant-cache");
    Job::new(bin())
        .env("XDG_CACHE_HOME", cache)
        .arg("run")
        .arg(format!("--sandbox={}", file.display()))
        .words(args)
}

/// What ranks do that say something, and then sit there for longer than the test is patient, unless they are ended.
const WAITING: &str = "printf 'cmd=init pmi_version=1 pmi_subversion=1\\n' >&$PMI_FD; exec sleep 1000";

/// Ranks that send the beginning of a message, which a plugin need not consume, and wait.
const BEGINNING: &str = "printf 'cmd=init ' >&$PMI_FD; exec sleep 1000";

/// The job is over with one line on standard error, which names the plugin and says this.
#[track_caller]
fn ended(file: &Path, why: &str) {
    ended_while(WAITING, file, why);
}

/// The same with ranks that run a script.
#[track_caller]
fn ended_while(script: &str, file: &Path, why: &str) {
    let outcome = sandboxed(file, "-n 2 bash -c").arg(script).run();
    outcome.code(1);
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    let [line] = lines[..] else { panic!("one line, not {lines:?}") };
    assert!(line.contains(&file.display().to_string()) && line.contains(why), "{line}");
}

#[test]
fn a_job_runs_in_it() {
    let outcome = sandboxed(plugin(), "-n 4").arg(bin()).arg("probe").run();
    outcome.code(0).says("4 ranks on 1 host", 1);
    // Where it is found by itself.
    let outcome =
        Job::new(bin()).env("HYDRANT_WASM", plugin()).words("run --sandbox -n 2").arg(bin()).arg("probe");
    outcome.run().code(0).says("2 ranks on 1 host", 1);
}

/// The launcher's ports, with the plugin behind them. Needs root to become another user.
#[test]
fn another_user_is_closed_out() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let network = "ip link set lo up; ip addr add 192.0.2.2/32 dev lo
        ip -6 addr add 2001:db8::2/128 dev lo nodad; exec python3 -c \"$@\"";
    let job = Job::new("unshare").words("--net sh -ec").arg(network).arg("sh");
    let job = job.env("XDG_CACHE_HOME", target_dir().join("hydrant-cache"));
    let job = job.arg(include_str!("../launch/two_users.py")).arg(bin());
    job.arg(format!("--sandbox={}", plugin().display())).run().code(0).says("as it should be", 1);
}

#[test]
fn limits_and_failures_are_as_without_it() {
    let outcome = sandboxed(plugin(), "--limit ranks=1 -n 2 true").run();
    outcome.code(1).warns("--limit ranks=N");
    sandboxed(plugin(), "-n 2 sh -c").arg("exit 3").run().code(3);
    sandboxed(plugin(), "-n 1 ./nowhere").run().code(127);
}

#[test]
fn one_that_never_answers_is_ended() {
    ended(
        &hostile("endless", ABI_VERSION, "(loop $again (br $again)) (unreachable)", "(i32.const 0)"),
        "no response within 5 s",
    );
}

#[test]
fn one_that_breaks_off_is_ended() {
    ended(&hostile("trap", ABI_VERSION, "(unreachable)", "(i32.const 0)"), "trapped");
}

// Fault: A plugin accepts every input and consumes or answers nothing
// Outcome: the job ends; one line names the plugin and the connection
// Guarantee: A complete message is consumed at once, or deferred if four replies are owed
// Also: hydrant-wasm `hostile::a_plugin_without_progress_is_refused`
#[test]
fn one_that_consumes_nothing_is_ended() {
    // Every input is accepted, without output.
    ended(&hostile("idle", ABI_VERSION, QUIET, "(i32.const 0)"), "is not consumed");
}

#[test]
fn one_that_talks_of_connections_that_are_not_there_is_ended() {
    // Bytes for connection 9.
    let poll = says(0x7801_0900, 4);
    ended_while(BEGINNING, &hostile("stranger", ABI_VERSION, HANDLED, &poll), "connection 9 is not open");
}

#[test]
fn one_that_speaks_of_more_than_it_has_is_ended() {
    ended(&hostile("long", ABI_VERSION, "(i32.const -1)", "(i32.const 0)"), "longer than its buffer");
}

#[test]
fn one_of_another_version_or_none_at_all_is_not_run() {
    let error = format!("ABI version 99, this host needs {ABI_VERSION}");
    ended(&hostile("version", 99, "(unreachable)", "(unreachable)"), &error);
    ended(Path::new("/nowhere/hydrant.wasm"), "cannot be read");
    ended(Path::new("/bin/sh"), "not a valid WebAssembly module");
}

#[test]
fn a_build_without_it_says_how_to_get_it() {
    if hydrant_bin() == bin() {
        return;
    }
    let outcome = Job::new(hydrant_bin()).words("run --sandbox -n 1 true").run();
    outcome.code(1).warns("--features sandbox");
}
