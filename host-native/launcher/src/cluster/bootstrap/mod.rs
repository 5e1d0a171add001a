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
            Bootstrap::Exec(_) => "exec",
            Bootstrap::Local => "local",
        }
    }

    /// The words of the command that has `host` run `words`, with its standard input handed through. `program` is
    /// what is started instead of the `ssh` or `srun` in the `PATH`.
    ///
    /// ssh hands one text to a shell there, so the words are quoted for one; it asks for nothing, since whoever could
    /// answer may be several machines away.
    pub fn command(&self, program: Option<&Path>, host: &Host, words: &[OsString]) -> Vec<OsString> {
        let program =
            |name: &str| program.map_or_else(|| name.into(), |program| program.as_os_str().to_owned());
        let start = |name: &str, options: &[&str]| -> Vec<OsString> {
            std::iter::once(program(name)).chain(options.iter().map(Into::into)).collect()
        };
        match self {
            Bootstrap::Ssh => {
                let mut command = start("ssh", &["-x", "-T", "-o", "BatchMode=yes"]);
                if let Some(user) = &host.user {
                    command.extend(["-l".into(), user.into()]);
                }
                command.extend(["--".into(), (&host.name).into(), quoted(words)]);
                command
            }
            Bootstrap::Srun => {
                let options = ["--nodes=1", "--ntasks=1", "--overlap", "--mpi=none", "--cpu-bind=none"];
                let mut command = start("srun", &options);
                command.push(format!("--nodelist={}", host.name).into());
                command.extend_from_slice(words);
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
        let started =
            bootstrap.command(program.map(Path::new), host, &words(&["/opt/my apps/hydrant", "it's"]));
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
