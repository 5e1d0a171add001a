//! Commands in README.md and in the book, carried out as printed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, hydrant_bin};

/// Commands that need another machine, a job that runs, or a file with another name: only their names are checked.
const ELSEWHERE: [&str; 17] = [
    "serve ",
    "run -hosts \"$(flux ",
    "offload ",
    "run -hosts a:16,b:16,c:16 --offload ",
    "status ",
    "attach ",
    "debug ",
    "kill ",
    "replace ",
    "grow ",
    "shrink ",
    "up ",
    "run --on ",
    "down ",
    "replay --quiet --sandbox=",
    "run --bootstrap join ",
    "join ",
];

/// Commands that need a hydrant with the sandbox: they run where `HYDRANT_SANDBOX_BIN` names one, as in a whole run.
const SANDBOXED: &str = "hydrant run --sandbox ";

/// Command of a page, and whether its output there is that of a failed job.
struct Printed {
    command: String,
    fails: bool,
}

/// Returns the commands of hydrant in the code blocks of a page.
fn commands(page: &Path) -> Vec<Printed> {
    let text = fs::read_to_string(page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
    let mut found: Vec<Printed> = Vec::new();
    for line in text.split("```").skip(1).step_by(2).flat_map(str::lines) {
        if let Some(command) = line.strip_prefix("$ ").or(Some(line)).filter(|it| it.starts_with("hydrant "))
        {
            // Comments stand behind the command.
            let command = command.split("  #").next().unwrap_or_default().trim_end().to_owned();
            found.push(Printed { command, fails: false });
        } else if let Some(last) = found.last_mut() {
            let failed = [" died by ", " exited with code "];
            last.fails |= line.starts_with("hydrant: rank ") && failed.iter().any(|it| line.contains(it));
        }
    }
    found
}

/// Adapts a command to this machine: other hosts are daemons here, and large jobs are only planned.
fn adapted(command: &str) -> String {
    let names_hosts = command.contains(" -hosts ") || command.contains(" -f ");
    if command.starts_with(SANDBOXED) {
        return command.replacen("hydrant", "hydrant-sandbox", 1);
    }
    if !names_hosts || command.contains("--dry-run") || command.contains("--bootstrap") {
        return command.to_owned();
    }
    let option = if command.contains("-n 128") { "--dry-run" } else { "--bootstrap local" };
    command.replacen("hydrant run", &format!("hydrant run {option}"), 1)
}

/// Makes the programs and files that the pages name.
fn prepare() -> Folder {
    let folder = Folder::new("documents");
    let hello = Peer::Mpich5.program("mpi_hello");
    for name in ["hello", "a.out", "master", "worker", "o", "a"] {
        symlink(&hello, folder.path(name)).expect("the folder is new");
    }
    symlink(hydrant_bin(), folder.path("hydrant")).expect("the folder is new");
    if let Some(bin) = std::env::var_os("HYDRANT_SANDBOX_BIN") {
        symlink(bin, folder.path("hydrant-sandbox")).expect("the folder is new");
    }
    folder.file("hostfile", "a:4\nb slots=4\n");
    folder.file("data.txt", "1 2 3\n");
    fs::create_dir(folder.path("tables")).expect("the folder is new");
    folder.file("tables/a.bin", "table\n");
    folder.executable("crash", "#!/bin/sh\n[ $PMI_RANK = 2 ] && kill -SEGV $$\nexec sleep 600\n");
    folder
}

#[test]
fn commands_work_as_printed() {
    if !Peer::Mpich5.there() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages = fs::read_dir(root.join("docs")).expect("the book is part of the project");
    let mut pages: Vec<PathBuf> = pages.map(|page| page.expect("the folder can be read").path()).collect();
    pages.retain(|page| page.extension().is_some_and(|it| it == "md") && !page.ends_with("options.md"));
    pages.push(root.join("README.md"));
    pages.sort();
    let help = Job::command("--help").run().code(0).stdout.clone();
    let mut count = 0;
    let folder = prepare();
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").unwrap_or_default());
    for page in pages {
        for Printed { command, fails } in commands(&page) {
            let words = command.trim_start_matches("hydrant ").to_owned() + " ";
            if ELSEWHERE.iter().any(|start| words.starts_with(start)) {
                let verb = words.split(' ').next().unwrap_or_default();
                assert!(help.contains(&format!("\n  {verb} ")), "{command}");
                continue;
            }
            if command.starts_with(SANDBOXED) && !folder.0.join("hydrant-sandbox").exists() {
                println!("not run, no HYDRANT_SANDBOX_BIN: {command}");
                continue;
            }
            count += 1;
            let job = Job::new("sh").arg("-c").arg(adapted(&command)).dir(&folder.0).env("PATH", &path);
            let outcome = job.run();
            assert_eq!(outcome.status.success(), !fails, "{}: {command}\n{outcome}", page.display());
        }
    }
    assert!(count > 20, "{count} commands: the pages have another form");
}
