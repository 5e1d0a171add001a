//! A program that a rank asks to have spawned, and what its info keys make of it (MPI 4.1, 11.8.4).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use hydrant_core::info::value::{list, strip};
use hydrant_core::wire::{Protocol, Text, decode_spawn};
use hydrant_placement::is_name_of;

use super::soft;
use crate::plan::{OWN_VARIABLES, Program};

/// A program as it was asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The command.
    pub(crate) command: OsString,
    maxprocs: u32,
    args: Vec<OsString>,
    info: Vec<(OsString, OsString)>,
}

/// Why what was asked for cannot be, with the `errno` that the spawner gets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskedError {
    /// Info key `host` names other machines.
    #[error("host {}: {there}", .host.display())]
    Host { host: OsString, there: String },
    /// Info key `soft` is no set of numbers, or holds none that could be started.
    #[error("soft '{}': {why}", .text.display())]
    Soft { text: OsString, why: &'static str },
    /// A line of info key `env` is no assignment.
    #[error("env '{}': write NAME=VALUE, one to a line", .0.display())]
    Env(OsString),
    /// Info key `env` sets what is the launcher's to set.
    #[error("env: hydrant sets {0} itself, to each rank's own value")]
    OwnVariable(&'static str),
    /// The file that info key `file` names cannot be read.
    #[error("file {}: {why}", .file.display())]
    File { file: PathBuf, why: io::Error },
    /// A line of it is no pair.
    #[error("file {} line {line}: write KEY=VALUE with an info key", .file.display())]
    Line { file: PathBuf, line: usize },
}

impl AskedError {
    /// The code that the spawner gets.
    pub(crate) fn errno(&self) -> u8 {
        let errno = match self {
            AskedError::Host { .. } => libc::EHOSTUNREACH,
            AskedError::File { why, .. } => why.raw_os_error().unwrap_or(libc::EIO),
            _ => libc::EINVAL,
        };
        errno.try_into().unwrap_or(u8::MAX)
    }
}

/// The machines that can be started on.
pub(crate) struct There<'a> {
    /// The one that has this name, as it is called here.
    pub(crate) host: &'a dyn Fn(&[u8]) -> Option<String>,
    /// In words, for somebody who asked for others.
    pub(crate) text: String,
}

impl There<'_> {
    /// This machine only.
    pub(crate) fn alone<T>(here: &str, with: impl FnOnce(&There<'_>) -> T) -> T {
        let host = |name: &[u8]| is_name_of(name, here).then(|| here.to_owned());
        with(&There { host: &host, text: format!("only this machine, {here}, can be started on") })
    }
}

impl Asked {
    /// The programs of a request that the core has checked.
    pub(crate) fn read(protocol: Protocol, request: &[u8]) -> Vec<Asked> {
        let text = |text: Text<'_>| OsString::from_vec(text.parts().flatten().copied().collect());
        let programs = decode_spawn(protocol, request).into_iter().flat_map(|spawn| spawn.programs());
        let asked = programs.map(|program| Asked {
            command: text(program.command()),
            maxprocs: program.maxprocs(),
            args: program.args().map(text).collect(),
            info: program.info().map(|(key, value)| (text(key), text(value))).collect(),
        });
        asked.collect()
    }

    /// The program to start, and the hosts that it may run on where that is said. What is not said is as with the
    /// spawner.
    pub(crate) fn program(
        &self,
        spawner: &Program,
        there: &There<'_>,
    ) -> Result<(Program, Vec<String>), AskedError> {
        let mut program = Program {
            ranks: self.maxprocs,
            command: self.command.clone(),
            args: self.args.clone(),
            env: spawner.env.clone(),
            wdir: spawner.wdir.clone(),
            path: None,
            psets: Vec::new(),
        };
        let mut hosts = Vec::new();
        let directory = spawner.wdir.as_deref().unwrap_or(Path::new(""));
        if let Some((_, file)) = self.info.iter().find(|(key, _)| key == "file") {
            for (key, value) in read_file(&directory.join(file))? {
                self.apply((&mut program, &mut hosts), directory, (&key, &value), there)?;
            }
        }
        // Last, because they hold over the file's.
        for (key, value) in &self.info {
            self.apply((&mut program, &mut hosts), directory, (key, value), there)?;
        }
        Ok((program, hosts))
    }

    fn apply(
        &self,
        (program, hosts): (&mut Program, &mut Vec<String>),
        directory: &Path,
        (key, value): (&OsStr, &OsStr),
        there: &There<'_>,
    ) -> Result<(), AskedError> {
        match key.as_bytes() {
            b"wdir" => program.wdir = Some(directory.join(value)),
            b"path" => program.path = Some(value.to_owned()),
            b"host" | b"hosts" => {
                let named = list(value.as_bytes()).map(|name| (there.host)(name));
                // A list of none names no machine that could be started on.
                let named = named.collect::<Option<Vec<_>>>().filter(|_| !strip(value.as_bytes()).is_empty());
                let unknown = || AskedError::Host { host: value.to_owned(), there: there.text.clone() };
                *hosts = named.ok_or_else(unknown)?;
            }
            b"soft" => {
                let count = soft::count(value.as_bytes(), self.maxprocs);
                program.ranks = count.map_err(|why| AskedError::Soft { text: value.to_owned(), why })?;
            }
            b"env" => {
                for line in value.as_bytes().split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
                    assign(&mut program.env, line)?;
                }
            }
            // The standard has others ignored.
            _ => {}
        }
        Ok(())
    }
}

fn assign(env: &mut Vec<(OsString, OsString)>, line: &[u8]) -> Result<(), AskedError> {
    let equals = line.iter().position(|&byte| byte == b'=').filter(|&at| at > 0);
    let at = equals.ok_or_else(|| AskedError::Env(OsStr::from_bytes(line).to_owned()))?;
    let (name, value) = (OsStr::from_bytes(&line[..at]), OsStr::from_bytes(&line[at + 1..]));
    if let Some(own) = OWN_VARIABLES.iter().find(|own| **own == name) {
        return Err(AskedError::OwnVariable(own));
    }
    env.retain(|(known, _)| known != name);
    env.push((name.to_owned(), value.to_owned()));
    Ok(())
}

/// The pairs of a file: `KEY=VALUE`, one to a line. Empty lines and those that start with `#` say nothing.
fn read_file(file: &Path) -> Result<Vec<(OsString, OsString)>, AskedError> {
    let text = std::fs::read(file).map_err(|why| AskedError::File { file: file.to_owned(), why })?;
    let mut pairs = Vec::new();
    for (line, text) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let text = text.trim_ascii();
        if text.is_empty() || text[0] == b'#' {
            continue;
        }
        let equals = text.iter().position(|&byte| byte == b'=').filter(|&at| at > 0);
        let at = equals.ok_or_else(|| AskedError::Line { file: file.to_owned(), line })?;
        let part = |bytes: &[u8]| OsStr::from_bytes(bytes.trim_ascii()).to_owned();
        pairs.push((part(&text[..at]), part(&text[at + 1..])));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spawner() -> Program {
        Program {
            ranks: 1,
            command: "parent".into(),
            args: vec!["-x".into()],
            env: vec![("A".into(), "1".into()), ("B".into(), "2".into())],
            wdir: Some("/tmp".into()),
            path: Some("/nowhere".into()),
            psets: vec!["mine".to_owned()],
        }
    }

    fn asked(info: &[(&str, &str)]) -> Result<Program, AskedError> {
        let info = info.iter().map(|&(key, value)| (key.into(), value.into())).collect();
        let (command, args) = ("child".into(), vec![String::new().into()]);
        let asked = Asked { command, maxprocs: 4, args, info };
        There::alone("node7.example.org", |there| Ok(asked.program(&spawner(), there)?.0))
    }

    #[test]
    fn what_is_not_said_is_the_spawners() {
        let program = asked(&[("no-such-key", "x")]).unwrap();
        let Program { wdir, env, path, psets, .. } = spawner();
        assert_eq!((program.wdir, program.env), (wdir, env));
        assert_eq!((program.ranks, program.args), (4, vec![OsString::new()]));
        assert_eq!((program.path, program.psets), (None, Vec::new()));
        assert!(path.is_some() && !psets.is_empty());
    }

    #[test]
    fn keys_change_it() {
        let pairs = [("wdir", "sub"), ("path", "/a:/b"), ("soft", "1:3"), ("env", "A=7\nC=x=y\n")];
        let program = asked(&pairs).unwrap();
        assert_eq!(program.wdir, Some("/tmp/sub".into()));
        assert_eq!((program.path, program.ranks), (Some("/a:/b".into()), 3));
        let env = [("B", "2"), ("A", "7"), ("C", "x=y")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(program.env, env);
    }

    #[test]
    fn only_this_machine_is_there() {
        for here in ["node7", "node7.example.org", "localhost, 127.0.0.1 "] {
            assert!(asked(&[("host", here)]).is_ok(), "{here}");
        }
        for there in ["node8", "node7,node8", ""] {
            assert_eq!(asked(&[("host", there)]).unwrap_err().errno(), libc::EHOSTUNREACH as u8, "{there}");
        }
    }

    #[test]
    fn a_file_holds_pairs_too() {
        let file = std::env::temp_dir().join(format!("hydrant-asked-{}", std::process::id()));
        std::fs::write(&file, "# pairs\n\n wdir = /usr \nenv=A=3\nenv=D=4\nsoft=2\n").unwrap();
        let name = file.to_str().unwrap();
        let program = asked(&[("wdir", "/var"), ("file", name)]).unwrap();
        std::fs::write(&file, "wdir=/usr\nnonsense\n").unwrap();
        let error = asked(&[("file", name)]).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert_eq!((program.wdir, program.ranks), (Some("/var".into()), 2));
        assert!(
            program.env.contains(&("D".into(), "4".into()))
                && program.env.contains(&("A".into(), "3".into()))
        );
        assert!(matches!(error, AskedError::Line { line: 2, .. }), "{error}");
        assert_eq!(asked(&[("file", name)]).unwrap_err().errno(), libc::ENOENT as u8);
    }

    #[test]
    fn nonsense_is_invalid() {
        for pair in [("soft", "x"), ("soft", "9"), ("env", "novalue"), ("env", "=x"), ("env", "PMI_RANK=3")] {
            assert_eq!(asked(&[pair]).unwrap_err().errno(), libc::EINVAL as u8, "{pair:?}");
        }
    }
}
