//! `libhydrant_host.so`: the launcher of `host-wasm/examples` in C, and failures of plugins inside a C program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use hydrant_abi::ABI_VERSION;
use hydrant_tests::{Job, library, plugin, target_dir};

use super::packages::host_wasm;
use super::{BEGINNING, HANDLED, bin, hostile, says};

/// The folder with the library, as `libhydrant_host.so.0`: with the sandbox or without it.
pub(crate) fn c_libraries(sandbox: bool) -> PathBuf {
    static WITHOUT: OnceLock<PathBuf> = OnceLock::new();
    // Puts the other library aside while it builds.
    let bin = bin();
    if sandbox {
        let folder = bin.with_file_name("sandbox");
        let built = folder.join("libhydrant_host.so.0").is_file();
        assert!(built, "no library in {}: run host-wasm/build-launcher", folder.display());
        return folder;
    }
    let without = WITHOUT.get_or_init(|| {
        let folder = work().join("without");
        fs::create_dir_all(&folder).expect("the build directory can be written to");
        let link = folder.join("libhydrant_host.so.0");
        drop(fs::remove_file(&link));
        symlink(library("hydrant-host", "libhydrant_host.so"), link).expect("the name was removed");
        folder
    });
    without.clone()
}

fn work() -> PathBuf {
    target_dir().join("hosts")
}

/// Builds a program of one file with the library.
fn built(source: &Path, options: &[&str]) -> PathBuf {
    let program = work().join(source.file_stem().expect("a source has a name"));
    let mut command = Command::new("cc");
    command.args(["-O1", "-Wall", "-Wextra", "-Werror"]).args(options).arg("-o").arg(&program).arg(source);
    command.arg("-I").arg(host_wasm("../host-native/host/include"));
    let output = command.arg(c_libraries(false).join("libhydrant_host.so.0")).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// The launcher in C, without arguments.
fn launcher(sandbox: bool) -> Job {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| built(&host_wasm("examples/launch.c"), &["-std=gnu11"]));
    Job::new(program).env("LD_LIBRARY_PATH", c_libraries(sandbox))
}

/// The same with a plugin.
fn sandboxed(file: &Path) -> Job {
    launcher(true).arg("-p").arg(file).arg("-c").arg(work().join("cache"))
}

/// The launcher in C with the built-in server or with `hydrant.wasm`.
pub(crate) fn c_launcher(sandbox: bool) -> Job {
    if sandbox { sandboxed(plugin()) } else { launcher(false) }
}

/// The launcher goes on, and ends its ranks.
#[test]
fn a_plugin_that_fails_ends_the_job() {
    // Bytes for connection 9.
    let poll = says(0x7801_0900, 4);
    for (name, handle, poll, why) in [
        ("host-trap", "(unreachable)", "(i32.const 0)", "trapped"),
        ("host-stranger", HANDLED, &*poll, "connection 9 is not open"),
    ] {
        let file = hostile(name, ABI_VERSION, handle, poll);
        let outcome = sandboxed(&file).words("2 bash -c").arg(BEGINNING).run();
        outcome.code(1).warns(&format!("launch: plugin {}: ", file.display())).warns(why);
    }
}

/// The process goes on with another server.
#[test]
fn failures_of_plugins_have_codes() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("sandbox/hosts.c");
    let program = built(&source, &["-std=c99", "-pedantic"]);
    let trap = hostile("host-codes", ABI_VERSION, "(unreachable)", "(i32.const 0)");
    let job = Job::new(program).env("LD_LIBRARY_PATH", c_libraries(true));
    let outcome = job.arg(work().join("cache")).arg(trap).arg(plugin()).run();
    outcome.code(0).quiet().stdout_is("done\n");
}
