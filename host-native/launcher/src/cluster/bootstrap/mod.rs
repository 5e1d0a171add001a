//! How a node starts the daemons of its children: by ssh, by the batch system, by a command of the user's, or here.
//!
//! Whatever starts a daemon has to stay for as long as the daemon does, to hand on its standard input, and to bring
//! back what the daemon says on its standard error. The daemon's command line is `hydrant daemon` and says nothing
//! else; all that it has to know comes over standard input, as a [`Record`].

mod process;
mod record;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::Surroundings;
use super::error::ClusterError;
use super::hosts::Host;
use crate::plan::Bootstrap;
pub(super) use process::Process;
pub(crate) use record::{Record, RecordError, Settings};

impl Bootstrap {
    /// As errors and plans call it.
    pub fn name(&self) -> &'static str {
        match self {
            Bootstrap::Ssh => "ssh",
            Bootstrap::Srun => "srun",
            Bootstrap::Qrsh => "qrsh",
            Bootstrap::Exec(_) => "exec",
            Bootstrap::Local => "local",
        }
    }

    /// The words of the command by which this machine has `host` run `words`, with its standard input handed through.
    /// `program` is what is started instead of the usual `ssh`, `srun` or `qrsh`.
    ///
    /// ssh and qrsh hand one text to a shell there, so the words are quoted for one; ssh asks for nothing, since
    /// whoever could answer may be several machines away.
    pub fn command(
        &self,
        program: Option<&Path>,
        around: &Surroundings<'_>,
        host: &Host,
        words: &[OsString],
    ) -> Vec<OsString> {
        let start = |name: OsString, options: &[&str]| -> Vec<OsString> {
            let program = program.map_or(name, |program| program.as_os_str().to_owned());
            std::iter::once(program).chain(options.iter().map(Into::into)).collect()
        };
        match self {
            Bootstrap::Ssh => {
                let mut command = start("ssh".into(), &["-x", "-T", "-o", "BatchMode=yes"]);
                if let Some(user) = &host.user {
                    command.extend(["-l".into(), user.into()]);
                }
                command.extend(["--".into(), (&host.name).into(), quoted(words)]);
                command
            }
            Bootstrap::Srun => {
                let options = ["--nodes=1", "--ntasks=1", "--overlap", "--mpi=none", "--cpu-bind=none"];
                let mut command = start("srun".into(), &options);
                command.push(format!("--nodelist={}", host.name).into());
                command.extend_from_slice(words);
                command
            }
            // The job's own process may hold the only slot of its host, and then no task is let in there.
            Bootstrap::Qrsh if around.is_here(host) => words.to_vec(),
            Bootstrap::Qrsh => {
                let mut command = start(qrsh(around), &["-inherit", &host.name]);
                command.push(quoted(words));
                command
            }
            Bootstrap::Exec(template) => filled(template, host, words),
            Bootstrap::Local => words.to_vec(),
        }
    }

    /// Whether this way can start something on that host.
    pub(super) fn check(&self, host: &Host) -> Result<(), ClusterError> {
        match &host.user {
            Some(user) if *self != Bootstrap::Ssh => {
                let (host, user) = (host.name.clone(), user.clone());
                Err(ClusterError::User { host, user, bootstrap: self.name() })
            }
            _ => Ok(()),
        }
    }
}

/// Where Grid Engine has its `qrsh`: its jobs have that folder in their environment, but not in their `PATH`.
fn qrsh(around: &Surroundings<'_>) -> OsString {
    match (around.variable("SGE_ROOT"), around.variable("ARC")) {
        (Some(root), Some(arch)) => Path::new(&root).join("bin").join(arch).join("qrsh").into(),
        _ => "qrsh".into(),
    }
}

/// `{host}` is the host's name. `{args}` alone is the words; as part of a word it is the words as one text, quoted.
fn filled(template: &[OsString], host: &Host, words: &[OsString]) -> Vec<OsString> {
    let mut command = Vec::new();
    for word in template {
        if word == "{args}" {
            command.extend_from_slice(words);
            continue;
        }
        let word = replace(word.as_bytes(), b"{host}", host.name.as_bytes());
        command.push(OsString::from_vec(replace(&word, b"{args}", quoted(words).as_bytes())));
    }
    command
}

fn replace(text: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, what) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(with);
        rest = &rest[at + what.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// Words as one text from which a shell makes these words again.
pub(super) fn quoted(words: &[OsString]) -> OsString {
    let mut text = OsString::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            text.push(" ");
        }
        text.push(quoted_word(word));
    }
    text
}

fn quoted_word(word: &OsStr) -> OsString {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(b);
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(plain) {
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
            of_sge.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        };
        let around = Surroundings { host: "n1".to_owned(), variables: &variables };
        let words = words(&["/opt/my apps/hydrant", "it's"]);
        let started = bootstrap.command(program.map(Path::new), &around, host, &words);
        started.iter().map(|word| format!("[{}]", word.to_str().unwrap())).collect()
    }

    #[test]
    fn each_way_has_its_command() {
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
        // The name by which SGE knows the host that the job's own process is on.
        assert_eq!(command(&Bootstrap::Qrsh, None, &Host::new("n1.q")), "[/opt/my apps/hydrant][it's]");
        assert_eq!(command(&Bootstrap::Local, None, &host), "[/opt/my apps/hydrant][it's]");
        let own = Bootstrap::Exec(words(&["nsenter", "--net=/run/netns/{host}", "{args}"]));
        assert_eq!(command(&own, None, &host), "[nsenter][--net=/run/netns/n7][/opt/my apps/hydrant][it's]");
        let own = Bootstrap::Exec(words(&["rsh", "{host}", "exec {args}"]));
        assert_eq!(command(&own, None, &host), r"[rsh][n7][exec '/opt/my apps/hydrant' 'it'\''s']");
    }

    #[test]
    fn a_shell_reads_the_words_that_were_quoted() {
        let odd = words(&["", "a b", "'", "$HOME `x` \\ \"", "*", "a\nb", "plain-1.0/x"]);
        let text = quoted(&odd);
        let script = OsString::from_iter([OsStr::new("printf '%s\\0' "), &text]);
        let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
        let read: Vec<&[u8]> = output.stdout.strip_suffix(b"\0").unwrap().split(|&byte| byte == 0).collect();
        assert_eq!(read, odd.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
    }
}
