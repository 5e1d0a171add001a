//! Command line that starts a process on a host: ssh, srun, qrsh, a user's command, or none.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::error::PlacementError;
use crate::hostlist;
use crate::hosts::Host;

/// Options of `srun` for a step of one process that shares the processors of other steps.
const SRUN_STEP: [&str; 5] = ["--nodes=1", "--ntasks=1", "--overlap", "--mpi=none", "--cpu-bind=none"];

/// Options of `srun` for a step of one process on each of several hosts. It goes on when a process ends or a host fails, and all
/// processes get its standard input.
const SRUN_STEP_OF_ALL: [&str; 8] = [
    "--ntasks-per-node=1",
    "--overlap",
    "--mpi=none",
    "--cpu-bind=none",
    "--input=all",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--no-kill",
];
/// Variables by which `srun` gives each task a part of the job's processors and GPUs. A daemon is the only task on its host and
/// serves all ranks there. `SLURM_CPUS_PER_TASK` has this effect since Slurm 23.11.
const SRUN_TASK_VARIABLES: [&str; 9] = [
    "SLURM_CPUS_PER_TASK",
    "SRUN_CPUS_PER_TASK",
    "SLURM_CPUS_PER_GPU",
    "SLURM_TRES_PER_TASK",
    "SLURM_TRES_BIND",
    "SLURM_GPUS_PER_TASK",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_TRES",
    "SLURM_GPU_BIND",
];
/// Most bytes of a list of hosts in a command. Linux allows 128 KiB for a word.
const NODELIST_MAX: usize = 100_000;

/// Method that starts a process on a host.
///
/// The started command stays while the process runs, forwards standard input to it, and returns its standard error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bootstrap {
    /// `ssh`.
    Ssh,
    /// Slurm's `srun`, as a step of the current job.
    Srun,
    /// Grid Engine's `qrsh -inherit`, as a task of the current job.
    Qrsh,
    /// The user's command: `{host}` in its words is the name of the host, `{args}` is the command to run there.
    Exec(Vec<OsString>),
    /// No command: the process runs on this machine, and names of hosts are labels.
    Local,
    /// No command: hosts join by themselves.
    Join,
}

impl Bootstrap {
    /// The method that suits the resource manager: `srun` in a Slurm job, `qrsh` in a Grid Engine job, otherwise ssh.
    pub fn for_environment(environment: &Environment<'_>) -> Bootstrap {
        if environment.is_slurm_job() {
            Bootstrap::Srun
        } else if environment.is_sge_job() {
            Bootstrap::Qrsh
        } else {
            Bootstrap::Ssh
        }
    }

    /// The name, as in `--bootstrap`.
    pub fn name(&self) -> &'static str {
        match self {
            Bootstrap::Ssh => "ssh",
            Bootstrap::Srun => "srun",
            Bootstrap::Qrsh => "qrsh",
            Bootstrap::Exec(_) => "exec",
            Bootstrap::Local => "local",
            Bootstrap::Join => "join",
        }
    }

    /// The command that runs `words` on `host`. `program` replaces the usual `ssh`, `srun` or `qrsh`, and `args` follow its
    /// options.
    ///
    /// ssh and qrsh pass one text to a shell on the host, so the words are quoted for a shell. ssh runs in batch mode and
    /// never prompts, because the user may be several machines away.
    pub fn command(
        &self,
        program: Option<&Path>,
        args: &[OsString],
        environment: &Environment<'_>,
        host: &Host,
        words: &[OsString],
    ) -> Vec<OsString> {
        let start = |name: OsString, options: &[&str]| -> Vec<OsString> {
            let program = program.map_or(name, |program| program.as_os_str().to_owned());
            let options = options.iter().map(Into::into).chain(args.iter().cloned());
            std::iter::once(program).chain(options).collect()
        };
        match self {
            Bootstrap::Ssh => {
                let mut command = start("ssh".into(), &["-x", "-T", "-o", "BatchMode=yes"]);
                if let Some(user) = &host.user {
                    command.extend(["-l".into(), user.into()]);
                }
                command.extend(["--".into(), (&host.name).into(), shell_quote(words)]);
                command
            }
            Bootstrap::Srun => {
                let mut command = start("srun".into(), &SRUN_STEP);
                command.push(format!("--nodelist={}", host.name).into());
                command.extend_from_slice(words);
                command
            }
            // The job's own process may hold the only slot of its host. Grid Engine then refuses a task there.
            Bootstrap::Qrsh if environment.is_local(host) => words.to_vec(),
            Bootstrap::Qrsh => {
                let mut command = start(qrsh_path(environment), &["-inherit"]);
                command.extend([(&host.name).into(), shell_quote(words)]);
                command
            }
            Bootstrap::Exec(template) => fill_template(template, host, words),
            Bootstrap::Local | Bootstrap::Join => words.to_vec(),
        }
    }

    /// Variables of the environment that the commands of this method are started without.
    pub fn removed_variables(&self) -> &'static [&'static str] {
        match self {
            Bootstrap::Srun => &SRUN_TASK_VARIABLES,
            _ => &[],
        }
    }

    /// The command that runs `words` on all hosts and gives all of them its standard input. None if the method starts one process
    /// at a time, if a host is listed twice, and if the list is too long for a command.
    pub fn step_command(
        &self,
        program: Option<&Path>,
        args: &[OsString],
        hosts: &[Host],
        words: &[OsString],
    ) -> Option<Vec<OsString>> {
        let mut names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        let list = hostlist::compress(names.iter().copied());
        names.sort_unstable();
        let is_repeated = names.windows(2).any(|pair| pair[0] == pair[1]);
        if *self != Bootstrap::Srun || hosts.is_empty() || is_repeated || list.len() > NODELIST_MAX {
            return None;
        }
        let mut command = vec![program.map_or("srun".into(), |program| program.as_os_str().to_owned())];
        command.extend(
            [format!("--nodes={}", hosts.len()), format!("--ntasks={}", hosts.len())].map(OsString::from),
        );
        command.extend(SRUN_STEP_OF_ALL.map(OsString::from));
        command.extend_from_slice(args);
        command.push(format!("--nodelist={list}").into());
        command.extend_from_slice(words);
        Some(command)
    }

    /// The command that runs `words` on `host` for the user of this process. With `has_terminal`, the words get a terminal. ssh may
    /// prompt. `program` and `args` are as in [`command`](Bootstrap::command). `slurm_job` is the job that `srun` starts a step of.
    /// None with qrsh, which starts tasks from within its job only, and for hosts that have joined by themselves.
    pub fn interactive_command(
        &self,
        (program, args): (Option<&Path>, &[OsString]),
        host: &Host,
        slurm_job: Option<&str>,
        has_terminal: bool,
        words: &[OsString],
    ) -> Option<Vec<OsString>> {
        let start = |name: &str| program.map_or(name.into(), |program| program.as_os_str().to_owned());
        Some(match self {
            Bootstrap::Ssh => {
                let mut command = vec![start("ssh"), "-x".into()];
                command.extend(has_terminal.then(|| "-t".into()));
                command.extend_from_slice(args);
                if let Some(user) = &host.user {
                    command.extend(["-l".into(), user.into()]);
                }
                command.extend(["--".into(), (&host.name).into(), shell_quote(words)]);
                command
            }
            Bootstrap::Srun => {
                let mut command = vec![start("srun")];
                command.extend(SRUN_STEP.map(OsString::from));
                command.extend_from_slice(args);
                command.extend(slurm_job.map(|job| format!("--jobid={job}").into()));
                command.extend(has_terminal.then(|| "--pty".into()));
                command.push(format!("--nodelist={}", host.name).into());
                command.extend_from_slice(words);
                command
            }
            Bootstrap::Qrsh | Bootstrap::Join => return None,
            Bootstrap::Exec(template) => fill_template(template, host, words),
            Bootstrap::Local => words.to_vec(),
        })
    }

    /// Checks that this method can log in as the user of the host.
    ///
    /// # Errors
    /// [`PlacementError::User`].
    pub fn check_user(&self, host: &Host) -> Result<(), PlacementError> {
        match &host.user {
            Some(user) if *self != Bootstrap::Ssh => {
                let (host, user) = (host.name.clone(), user.clone());
                Err(PlacementError::User { host, user, bootstrap: self.name() })
            }
            _ => Ok(()),
        }
    }
}

/// Path of `qrsh`. Grid Engine names its folder in the environment of a job, but does not add it to `PATH`.
fn qrsh_path(environment: &Environment<'_>) -> OsString {
    match (environment.variable("SGE_ROOT"), environment.variable("ARC")) {
        (Some(root), Some(arch)) => Path::new(&root).join("bin").join(arch).join("qrsh").into(),
        _ => "qrsh".into(),
    }
}

/// Fills in a template. `{host}` is the name of the host. `{args}` as a whole word is all words; as part of a word it is
/// one quoted text.
fn fill_template(template: &[OsString], host: &Host, words: &[OsString]) -> Vec<OsString> {
    let mut command = Vec::new();
    for word in template {
        if word == "{args}" {
            command.extend_from_slice(words);
            continue;
        }
        let word = replace(word.as_bytes(), b"{host}", host.name.as_bytes());
        command.push(OsString::from_vec(replace(&word, b"{args}", shell_quote(words).as_bytes())));
    }
    command
}

fn replace(text: &[u8], pattern: &[u8], with: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, pattern) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(with);
        rest = &rest[at + pattern.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// Joins words into one text that a shell splits into the same words.
pub fn shell_quote(words: &[OsString]) -> OsString {
    let mut text = OsString::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            text.push(" ");
        }
        text.push(quote_word(word));
    }
    text
}

fn quote_word(word: &OsStr) -> OsString {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(b);
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return word.to_owned();
    }
    let mut text = vec![b'\''];
    text.extend(replace(bytes, b"'", b"'\\''"));
    text.push(b'\'');
    OsString::from_vec(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(Into::into).collect()
    }

    fn command(bootstrap: &Bootstrap, program: Option<&str>, host: &Host) -> String {
        let variables = |name: &str| {
            let of_sge =
                [("SGE_ROOT", "/opt/sge"), ("ARC", "lx-amd64"), ("PE_HOSTFILE", "/x"), ("HOSTNAME", "n1.q")];
            of_sge.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
        };
        let environment = Environment { hostname: "n1".to_owned(), variables: &variables };
        let words = words(&["/opt/my apps/hydrant", "it's"]);
        let started = bootstrap.command(program.map(Path::new), &[], &environment, host, &words);
        started.iter().map(|word| format!("[{}]", word.to_str().unwrap())).collect()
    }

    #[test]
    fn each_method_has_its_command() {
        let host = Host { user: Some("joe".to_owned()), ..Host::new("n7") };
        assert_eq!(
            command(&Bootstrap::Ssh, None, &host),
            r"[ssh][-x][-T][-o][BatchMode=yes][-l][joe][--][n7]['/opt/my apps/hydrant' 'it'\''s']"
        );
        assert_eq!(
            command(&Bootstrap::Srun, Some("/s/srun"), &Host::new("n7")),
            "[/s/srun][--nodes=1][--ntasks=1][--overlap][--mpi=none][--cpu-bind=none][--nodelist=n7]\
             [/opt/my apps/hydrant][it's]"
        );
        let inherit = r"-inherit][n7]['/opt/my apps/hydrant' 'it'\''s']";
        let of_job = Host::new("n7");
        assert_eq!(
            command(&Bootstrap::Qrsh, None, &of_job),
            format!("[/opt/sge/bin/lx-amd64/qrsh][{inherit}")
        );
        assert_eq!(command(&Bootstrap::Qrsh, Some("/q"), &of_job), format!("[/q][{inherit}"));
        // Grid Engine's name of the host of the job's own process.
        assert_eq!(command(&Bootstrap::Qrsh, None, &Host::new("n1.q")), "[/opt/my apps/hydrant][it's]");
        assert_eq!(command(&Bootstrap::Local, None, &host), "[/opt/my apps/hydrant][it's]");
        let own = Bootstrap::Exec(words(&["nsenter", "--net=/run/netns/{host}", "{args}"]));
        assert_eq!(command(&own, None, &host), "[nsenter][--net=/run/netns/n7][/opt/my apps/hydrant][it's]");
        let own = Bootstrap::Exec(words(&["rsh", "{host}", "exec {args}"]));
        assert_eq!(command(&own, None, &host), r"[rsh][n7][exec '/opt/my apps/hydrant' 'it'\''s']");
    }

    #[test]
    fn srun_starts_all_with_one_command() {
        let command = |bootstrap: &Bootstrap, hosts: &[&str]| {
            let hosts: Vec<Host> = hosts.iter().map(|host| Host::new(host)).collect();
            let started = bootstrap.step_command(None, &[], &hosts, &words(&["/hydrant", "daemon"]))?;
            Some(started.iter().map(|word| format!("[{}]", word.to_str().unwrap())).collect::<String>())
        };
        let all = "[srun][--nodes=3][--ntasks=3][--ntasks-per-node=1][--overlap][--mpi=none][--cpu-bind=none]\
                   [--input=all][--kill-on-bad-exit=0][--wait=0][--no-kill][--nodelist=n[1-2],x][/hydrant][daemon]";
        assert_eq!(command(&Bootstrap::Srun, &["n1", "n2", "x"]).as_deref(), Some(all));
        assert_eq!(command(&Bootstrap::Srun, &["n1", "n2", "n1"]), None);
        assert_eq!(command(&Bootstrap::Ssh, &["n1", "n2"]), None);
    }

    #[test]
    fn a_user_gets_a_terminal() {
        let command = |bootstrap: &Bootstrap, host: &Host, has_terminal| {
            let words = words(&["gdb", "-p", "7 8"]);
            let program = Some(Path::new("/p"));
            let start = (program, &[OsString::from("-p2")][..]);
            let started = bootstrap.interactive_command(start, host, Some("31"), has_terminal, &words)?;
            Some(started.iter().map(|word| format!("[{}]", word.to_str().unwrap())).collect::<String>())
        };
        let host = Host { user: Some("joe".to_owned()), ..Host::new("n7") };
        let ssh = |option: &str| Some(format!("[/p][-x]{option}[-p2][-l][joe][--][n7][gdb -p '7 8']"));
        assert_eq!(command(&Bootstrap::Ssh, &host, true), ssh("[-t]"));
        assert_eq!(command(&Bootstrap::Ssh, &host, false), ssh(""));
        let srun = "[/p][--nodes=1][--ntasks=1][--overlap][--mpi=none][--cpu-bind=none][-p2][--jobid=31][--pty]\
                    [--nodelist=n7][gdb][-p][7 8]";
        assert_eq!(command(&Bootstrap::Srun, &host, true).as_deref(), Some(srun));
        assert_eq!(command(&Bootstrap::Qrsh, &host, true), None);
        let own = Bootstrap::Exec(words(&["rsh", "{host}", "exec {args}"]));
        assert_eq!(command(&own, &host, true).as_deref(), Some("[rsh][n7][exec gdb -p '7 8']"));
    }

    #[test]
    fn a_shell_reads_quoted_words() {
        let odd = words(&["", "a b", "'", "$HOME `x` \\ \"", "*", "a\nb", "plain-1.0/x"]);
        let text = shell_quote(&odd);
        let script = OsString::from_iter([OsStr::new("printf '%s\\0' "), &text]);
        let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
        let read: Vec<&[u8]> = output.stdout.strip_suffix(b"\0").unwrap().split(|&byte| byte == 0).collect();
        assert_eq!(read, odd.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
    }
}
