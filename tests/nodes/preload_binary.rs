//! `--preload-binary`: hosts without the program's file receive it.

use hydrant_tests::{Folder, Job, hydrant_bin};

/// Hosts whose daemons, except that of `n1`, have an empty folder in place of the program's.
fn elsewhere(folder: &Folder) -> String {
    let programs = folder.path("programs");
    let text = format!(
        "#!/bin/sh\nhost=$1; shift\n[ $host = n1 ] && exec \"$@\"\n\
         exec unshare --mount --propagation private sh -c 'mount -t tmpfs none {programs} && exec \"$@\"' sh \"$@\"\n"
    );
    let start = folder.executable("start", &text);
    format!("exec:{start} {{host}} {{args}}")
}

/// A folder with a program of the length of a shell.
fn with_program(name: &str) -> Folder {
    let folder = Folder::new(name);
    std::fs::create_dir(folder.path("programs")).expect("the folder is new");
    std::fs::copy("/bin/sh", folder.path("programs/sh")).expect("there is a shell");
    folder
}

fn job(folder: &Folder, options: &str) -> Job {
    let job =
        Job::hydrant("-hosts n[1-7]:1 -iface lo -radix 2 -n 7 -wdir / --bootstrap").arg(elsewhere(folder));
    job.words(options).arg(folder.path("programs/sh"))
}

#[test]
fn hosts_without_the_program_receive_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = with_program("preload");
    let missing = job(&folder, "").args(["-c", "true"]).run();
    missing.code(127).warns("programs/sh");
    let outcome = job(&folder, "--preload-binary").args(["-c", "readlink /proc/$$/exe"]).run();
    // n1 has the file. The others started it from memory.
    outcome.code(0).says("/memfd:hydrant-program (deleted)\n", 6).says("programs/sh\n", 1);
}

#[test]
fn scripts_and_several_programs_are_sent_too() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = with_program("preload-script");
    let script = folder.executable("programs/script", "#!/bin/sh\necho script $PMI_RANK $1\n");
    let options = "-hosts n[1-3]:1 -iface lo -wdir / --preload-binary --bootstrap";
    let job = Job::hydrant(options).arg(elsewhere(&folder)).words("-n 2").arg(&script).words("a : -n 1");
    let outcome = job.arg(folder.path("programs/sh")).args(["-c", "echo shell"]).run();
    outcome.code(0).says("script 0 a\n", 1).says("script 1 a\n", 1).says("shell\n", 1);
}

#[test]
fn files_that_are_too_large_or_missing_are_named() {
    let folder = with_program("preload-large");
    let large = folder.executable("programs/large", "#!/bin/sh\n");
    let file = std::fs::File::options().write(true).open(&large).expect("it was just made");
    file.set_len((512 << 20) + 1).expect("a sparse file is small");
    let job = || Job::hydrant("-hosts n[1-2] --bootstrap local --preload-binary");
    let outcome = job().arg(&large).run();
    outcome
        .code(1)
        .warns(&format!("--preload-binary: {large} has 536870913 bytes, and all programs together"));
    job().arg(folder.path("programs/none")).run().code(127).warns("programs/none");
    // Daemons of this machine have the file.
    job().words("-n 2").arg(hydrant_bin()).arg("--version").run().code(0);
}
