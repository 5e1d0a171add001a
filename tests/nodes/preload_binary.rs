//! `--preload-binary` and `--preload-libs`: hosts receive the program's file and its libraries.

use hydrant_tests::peers::{Peer, peers_dir};
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
        .warns(&format!("cannot send {large} to the hosts: it has 536870913 bytes, and all program files"));
    job().arg(folder.path("programs/none")).run().code(127).warns("programs/none");
    // Daemons of this machine have the file.
    job().words("-n 2").arg(hydrant_bin()).arg("--version").run().code(0);
}

#[test]
fn hosts_read_no_library_from_their_disk() {
    if !rustix::process::geteuid().is_root() || !Peer::Mpich5.there() {
        return;
    }
    let folder = Folder::new("preload-libs");
    // No host has the MPI library, nor the program.
    let program = Peer::Mpich5.program("mpi_allreduce");
    let programs = program.parent().expect("a file is in a folder").display();
    let hidden = [peers_dir().display().to_string(), programs.to_string()];
    let mounts = hidden.map(|hidden| format!("mount -t tmpfs none {hidden} && ")).concat();
    let text = format!(
        "#!/bin/sh\nexec unshare --mount --propagation private sh -c '{mounts}exec \"$@\"' sh \"$@\"\n"
    );
    let start = format!("exec:{} {{args}}", folder.executable("start", &text));
    let job = |option: &str| {
        let job = Job::hydrant("-hosts n[1-2]:1 -iface lo -n 2 -wdir / --bootstrap").arg(&start);
        job.words(option).arg(&program)
    };
    job("--preload-binary").run().code(127).warns("error while loading shared libraries: libmpi.so");
    // The user's own libraries stay first.
    let outcome = job("--preload-libs -env LD_PRELOAD /own.so").run();
    outcome.warns("object '/own.so' from LD_PRELOAD cannot be preloaded");
    outcome.code(0).says("allreduce of 2: 0 wrong\n", 1);
}

#[test]
fn a_library_that_is_not_found_is_named() {
    let folder = Folder::new("preload-missing");
    std::fs::write(folder.path("own.c"), "int main(void) { extern int own(void); return own(); }\n")
        .expect("a new file");
    std::fs::write(folder.path("lib.c"), "int own(void) { return 0; }\n").expect("a new file");
    let compile = |words: &str| {
        let status = std::process::Command::new("cc").current_dir(&folder.0).args(words.split(' ')).status();
        assert!(status.expect("there is a compiler").success(), "cc {words}");
    };
    compile("-shared -o libown.so -Wl,-soname,libown.so lib.c");
    compile("-o own own.c -L. -lown");
    std::fs::remove_file(folder.path("libown.so")).expect("it was just made");
    let job = Job::hydrant("-hosts n[1-2] --bootstrap local --preload-libs -n 2").arg(folder.path("own"));
    job.run().code(1).warns("--preload-libs: cannot list the libraries of").warns("libown.so");
}
