//! Programs of a spawn request and their info keys (MPI 4.1, 11.8.4).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use hydrant_control::protocol::Program;
use hydrant_core::wire::{Protocol, Text, decode_spawn};
use hydrant_placement::hostfile::{self, Format, without_byte_order_mark};
use hydrant_placement::{Host, HostError, Hosts, LineError, is_name_of};
use hydrant_reactor::file::{self, FileError, Taken};

use crate::{OWN_VARIABLES, VARIABLES_OF_HOST, soft};

/// Longest file that an info key names, in bytes.
const FILE_MAX: u64 = 64 * 1024;

/// Program of a spawn request.
#[derive(Debug)]
pub struct RequestedProgram {
    /// Command.
    pub command: OsString,
    maxprocs: u32,
    args: Vec<OsString>,
    info: Vec<(OsString, OsString)>,
}

/// Program of a spawn request whose info keys have been read.
#[derive(Debug)]
pub struct WantedProgram {
    /// The program.
    pub program: Program,
    /// Hosts of key `host`.
    host: Option<Hosts>,
    /// File of key `hostfile` and its hosts.
    listed: Option<(PathBuf, Hosts)>,
    added: Hosts,
}

/// Invalid info of a spawn request.
#[derive(Debug, thiserror::Error)]
pub enum SpawnInfoError {
    /// Info key `host` with an unavailable host.
    #[error("host {host}: {available}")]
    Host {
        /// The host.
        host: String,
        /// The available hosts in words.
        available: String,
    },
    /// Info key `soft` that is malformed or has no acceptable number.
    #[error("soft '{}': {why}", .text.display())]
    Soft {
        /// The value.
        text: OsString,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Line of info key `env` without an assignment.
    #[error("env '{}': expected NAME=VALUE, one per line", .0.display())]
    Env(OsString),
    /// Host of the file of info key `hostfile` that is unavailable.
    #[error("hostfile {}: host {host}: {available}", .file.display())]
    ListedHost {
        /// The file.
        file: PathBuf,
        /// The host.
        host: String,
        /// The available hosts in words.
        available: String,
    },
    /// Info key `host` or `add-host` with an invalid list.
    #[error("{key} {}: {why}", .list.display())]
    Hosts {
        /// The key.
        key: &'static str,
        /// The value.
        list: OsString,
        /// What is wrong with it.
        why: HostError,
    },
    /// Info keys `add-host` and `add-hostfile` that disagree about a host.
    #[error("add-host: {0}")]
    Added(HostError),
    /// File of info key `hostfile` or `add-hostfile` with an invalid line.
    #[error("{key} {} line {line}: {why}", .file.display())]
    HostLine {
        /// The info key.
        key: &'static str,
        /// The file.
        file: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// What is wrong with it.
        why: LineError,
    },
    /// File of one of these keys without a host.
    #[error("{key} {} names no host", .file.display())]
    NoHost {
        /// The info key.
        key: &'static str,
        /// The file.
        file: PathBuf,
    },
    /// File that cannot be read.
    #[error("{key} {}: {why}", .file.display())]
    File {
        /// The info key.
        key: &'static str,
        /// The file.
        file: PathBuf,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// File that is a device, a pipe, a socket or a directory.
    #[error("{key} {}: not a regular file", .file.display())]
    NotRegular {
        /// The info key.
        key: &'static str,
        /// The file.
        file: PathBuf,
    },
    /// File that exceeds the limit.
    #[error("{key} {}: longer than {FILE_MAX} bytes, the limit of info key {key}", .file.display())]
    FileTooLong {
        /// The info key.
        key: &'static str,
        /// The file.
        file: PathBuf,
    },
    /// Line of the file of info key `file` without a pair.
    #[error("file {} line {line}: expected KEY=VALUE with an info key", .file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line, from 1 on.
        line: usize,
    },
}

impl SpawnInfoError {
    /// The error code for the spawning rank.
    pub fn errno(&self) -> u8 {
        let errno = match self {
            SpawnInfoError::Host { .. } | SpawnInfoError::ListedHost { .. } => libc::EHOSTUNREACH,
            SpawnInfoError::File { why, .. } => why.raw_os_error().unwrap_or(libc::EIO),
            SpawnInfoError::FileTooLong { .. } => libc::EFBIG,
            _ => libc::EINVAL,
        };
        errno.try_into().unwrap_or(u8::MAX)
    }
}

/// Hosts that can run spawned processes.
pub struct AvailableHosts<'a> {
    /// Returns the name of a host in this run, or `None` if the host is unavailable.
    pub find: &'a dyn Fn(&[u8]) -> Option<String>,
    /// The hosts in words, for error messages.
    pub description: String,
}

impl AvailableHosts<'_> {
    /// Calls `with` for this machine only.
    pub fn alone<T>(here: &str, with: impl FnOnce(&AvailableHosts<'_>) -> T) -> T {
        let find = |name: &[u8]| is_name_of(name, here).then(|| here.to_owned());
        with(&AvailableHosts { find: &find, description: format!("only this machine, {here}, is available") })
    }
}

impl RequestedProgram {
    /// Decodes the programs of a request that the server has validated.
    pub fn decode(protocol: Protocol, request: &[u8]) -> Vec<RequestedProgram> {
        let text = |text: Text<'_>| OsString::from_vec(text.parts().flatten().copied().collect());
        let programs = decode_spawn(protocol, request).into_iter().flat_map(|spawn| spawn.programs());
        let requested = programs.map(|program| RequestedProgram {
            command: text(program.command()),
            maxprocs: program.maxprocs(),
            args: program.args().map(text).collect(),
            info: program.info().map(|(key, value)| (text(key), text(value))).collect(),
        });
        requested.collect()
    }

    /// Reads the info keys. Other attributes are those of the spawning program.
    ///
    /// # Errors
    /// A value is invalid, or a file cannot be read.
    pub fn read(&self, spawner: &Program) -> Result<WantedProgram, SpawnInfoError> {
        let program = Program {
            ranks: self.maxprocs,
            command: self.command.clone(),
            args: self.args.clone(),
            env: spawner.env.clone(),
            wdir: spawner.wdir.clone(),
            path: None,
            psets: Vec::new(),
        };
        let mut wanted = WantedProgram { program, host: None, listed: None, added: Hosts::default() };
        let directory = spawner.wdir.as_deref().unwrap_or(Path::new(""));
        if let Some((_, file)) = self.info.iter().find(|(key, _)| key == "file") {
            for (key, value) in read_file(&directory.join(file))? {
                self.apply(&mut wanted, directory, (&key, &value))?;
            }
        }
        // Last, because they override those of the file.
        for (key, value) in &self.info {
            self.apply(&mut wanted, directory, (key, value))?;
        }
        Ok(wanted)
    }

    fn apply(
        &self,
        wanted: &mut WantedProgram,
        directory: &Path,
        (key, value): (&OsStr, &OsStr),
    ) -> Result<(), SpawnInfoError> {
        let WantedProgram { program, host, listed, added } = wanted;
        let mut add = |hosts: &Hosts| added.add_of_program(hosts).map_err(SpawnInfoError::Added);
        match key.as_bytes() {
            b"wdir" => program.wdir = Some(directory.join(value)),
            b"path" => program.path = Some(value.to_owned()),
            b"host" | b"hosts" => *host = Some(parse_hosts("host", value)?),
            b"hostfile" => {
                let file = directory.join(value);
                let hosts = read_hosts("hostfile", &file)?;
                *listed = Some((file, hosts));
            }
            b"add-host" => add(&parse_hosts("add-host", value)?)?,
            b"add-hostfile" => add(&read_hosts("add-hostfile", &directory.join(value))?)?,
            b"soft" => {
                let count = soft::count(value.as_bytes(), self.maxprocs);
                program.ranks = count.map_err(|why| SpawnInfoError::Soft { text: value.to_owned(), why })?;
            }
            b"env" => {
                for line in value.as_bytes().split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
                    assign(&mut program.env, line)?;
                }
            }
            // The MPI standard requires other keys to be ignored.
            _ => {}
        }
        Ok(())
    }
}

impl WantedProgram {
    /// Hosts that are to be in the run before the program is started (`add-host`, `add-hostfile`). Those that are there have the
    /// names that they have in the run.
    ///
    /// # Errors
    /// Two of them are the same host, with different users.
    pub fn added(&self, available: &AvailableHosts<'_>) -> Result<Hosts, SpawnInfoError> {
        let mut hosts = Hosts::default();
        for host in self.added.iter() {
            let known = (available.find)(host.name.as_bytes());
            let host = Host { name: known.unwrap_or_else(|| host.name.clone()), ..host.clone() };
            hosts.add(host).map_err(SpawnInfoError::Added)?;
        }
        Ok(hosts)
    }

    /// Finds the hosts that the program may run on: those of `host`, otherwise those of `hostfile`. None are all hosts of the run,
    /// with those that have joined, as with PRRTE.
    ///
    /// # Errors
    /// A host is unavailable.
    pub fn hosts(&self, available: &AvailableHosts<'_>) -> Result<Vec<Host>, SpawnInfoError> {
        let available_host = |host: &Host| {
            let name = (available.find)(host.name.as_bytes())?;
            Some(Host { name, ..host.clone() })
        };
        if let Some(hosts) = &self.host {
            let unknown = |host: &Host| SpawnInfoError::Host {
                host: host.name.clone(),
                available: available.description.clone(),
            };
            return hosts.iter().map(|host| available_host(host).ok_or_else(|| unknown(host))).collect();
        }
        let Some((file, hosts)) = &self.listed else { return Ok(Vec::new()) };
        let unknown = |host: &Host| SpawnInfoError::ListedHost {
            file: file.clone(),
            host: host.name.clone(),
            available: available.description.clone(),
        };
        hosts.iter().map(|host| available_host(host).ok_or_else(|| unknown(host))).collect()
    }
}

/// Parses the value of a key that names hosts, with an optional number of slots each.
fn parse_hosts(key: &'static str, list: &OsStr) -> Result<Hosts, SpawnInfoError> {
    Hosts::parse(&list.to_string_lossy()).map_err(|why| SpawnInfoError::Hosts {
        key,
        list: list.to_owned(),
        why,
    })
}

fn assign(env: &mut Vec<(OsString, OsString)>, line: &[u8]) -> Result<(), SpawnInfoError> {
    let equals = line.iter().position(|&byte| byte == b'=').filter(|&at| at > 0);
    let at = equals.ok_or_else(|| SpawnInfoError::Env(OsStr::from_bytes(line).to_owned()))?;
    let (name, value) = (OsStr::from_bytes(&line[..at]), OsStr::from_bytes(&line[at + 1..]));
    // Programs pass their own environment on.
    if OWN_VARIABLES.iter().chain(&VARIABLES_OF_HOST).any(|own| *own == name) {
        return Ok(());
    }
    env.retain(|(known, _)| known != name);
    env.push((name.to_owned(), value.to_owned()));
    Ok(())
}

/// Reads the hosts of a file, as those of `-hostfile`.
fn read_hosts(key: &'static str, file: &Path) -> Result<Hosts, SpawnInfoError> {
    let hosts = hostfile::parse(&read_regular(key, file)?, Format::Words);
    let invalid = |(line, why)| SpawnInfoError::HostLine { key, file: file.to_owned(), line, why };
    let hosts = hosts.map_err(invalid)?;
    if hosts.is_empty() {
        return Err(SpawnInfoError::NoHost { key, file: file.to_owned() });
    }
    Ok(hosts)
}

/// Reads the pairs of a file: `KEY=VALUE`, one per line. Empty lines and lines that start with `#` are skipped.
fn read_file(file: &Path) -> Result<Vec<(OsString, OsString)>, SpawnInfoError> {
    let text = read_regular("file", file)?;
    let mut pairs = Vec::new();
    for (line, text) in (1..).zip(without_byte_order_mark(&text).split(|&byte| byte == b'\n')) {
        let text = text.trim_ascii();
        if text.is_empty() || text[0] == b'#' {
            continue;
        }
        let equals = text.iter().position(|&byte| byte == b'=').filter(|&at| at > 0);
        let at = equals.ok_or_else(|| SpawnInfoError::Line { file: file.to_owned(), line })?;
        let part = |bytes: &[u8]| OsStr::from_bytes(bytes.trim_ascii()).to_owned();
        pairs.push((part(&text[..at]), part(&text[at + 1..])));
    }
    Ok(pairs)
}

/// Reads a regular file of at most [`FILE_MAX`] bytes, which the rank names.
fn read_regular(key: &'static str, path: &Path) -> Result<Vec<u8>, SpawnInfoError> {
    let file = path.to_owned();
    file::read(path, Taken::Regular, FILE_MAX).map_err(|error| match error {
        FileError::Kind(..) => SpawnInfoError::NotRegular { key, file },
        FileError::TooLong(_) => SpawnInfoError::FileTooLong { key, file },
        error => SpawnInfoError::File { key, file, why: error.into() },
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FileType, Mode};

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

    fn requested(info: &[(&str, &str)]) -> Result<Program, SpawnInfoError> {
        let info = info.iter().map(|&(key, value)| (key.into(), value.into())).collect();
        let (command, args) = ("child".into(), vec![String::new().into()]);
        let request = RequestedProgram { command, maxprocs: 4, args, info };
        let wanted = request.read(&spawner())?;
        AvailableHosts::alone("node7.example.org", |hosts| wanted.hosts(hosts))?;
        Ok(wanted.program)
    }

    #[test]
    fn other_attributes_are_those_of_the_spawner() {
        let program = requested(&[("no-such-key", "x")]).unwrap();
        let Program { wdir, env, path, psets, .. } = spawner();
        assert_eq!((program.wdir, program.env), (wdir, env));
        assert_eq!((program.ranks, program.args), (4, vec![OsString::new()]));
        assert_eq!((program.path, program.psets), (None, Vec::new()));
        assert!(path.is_some() && !psets.is_empty());
    }

    #[test]
    fn keys_change_attributes() {
        let pairs = [("wdir", "sub"), ("path", "/a:/b"), ("soft", "1:3"), ("env", "A=7\nC=x=y\n")];
        let program = requested(&pairs).unwrap();
        assert_eq!(program.wdir, Some("/tmp/sub".into()));
        assert_eq!((program.path, program.ranks), (Some("/a:/b".into()), 3));
        let env = [("B", "2"), ("A", "7"), ("C", "x=y")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(program.env, env);
    }

    #[test]
    fn variables_that_the_launcher_sets_are_dropped() {
        let variables = "PMI_RANK=3\nPMIX_RANKS=3\nPMIX_RANK=3\nPMIX_HOSTNAME=far\nPMI_DEBUG=1";
        let program = requested(&[("env", variables)]).unwrap();
        let env = [("A", "1"), ("B", "2"), ("PMIX_RANKS", "3"), ("PMI_DEBUG", "1")];
        assert_eq!(program.env, env.map(|(name, value)| (name.into(), value.into())));
    }

    #[test]
    fn only_this_machine_is_available() {
        for here in ["node7", "node7.example.org", "localhost, 127.0.0.1 "] {
            assert!(requested(&[("host", here)]).is_ok(), "{here}");
        }
        for there in ["node8", "node7,node8", "node8:2"] {
            assert_eq!(
                requested(&[("host", there)]).unwrap_err().errno(),
                libc::EHOSTUNREACH as u8,
                "{there}"
            );
        }
    }

    /// The hosts of a program with these keys, `a:SLOTS` each, in a run on node7 and c, and those that are to join.
    fn hosts(info: &[(&str, &str)]) -> Result<(String, String), String> {
        let info = info.iter().map(|&(key, value)| (key.into(), value.into())).collect();
        let request = RequestedProgram { command: "child".into(), maxprocs: 4, args: Vec::new(), info };
        let wanted = request.read(&spawner()).map_err(|error| error.to_string())?;
        let there = ["node7".to_owned(), "c".to_owned()];
        let find = |name: &[u8]| there.iter().find(|there| there.as_bytes() == name).cloned();
        let available = AvailableHosts { find: &find, description: "only node7 and c".to_owned() };
        let shown = |hosts: &[Host]| {
            let host = |host: &Host| format!("{}:{}", host.name, host.ranks_per_turn());
            hosts.iter().map(host).collect::<Vec<_>>().join(" ")
        };
        let found = wanted.hosts(&available).map_err(|error| error.to_string())?;
        let added = wanted.added(&available).map_err(|error| error.to_string())?;
        Ok((shown(&found), shown(added.as_slice())))
    }

    #[test]
    fn hosts_are_those_of_the_first_key_that_names_some() {
        let file = std::env::temp_dir().join(format!("hydrant-spawn-hosts-{}", std::process::id()));
        std::fs::write(&file, "# hosts\nc slots=3\nnode7\n").unwrap();
        let path = file.to_str().unwrap();
        let found = |info: &[(&str, &str)]| hosts(info);
        let pair = |one: &str, other: &str| Ok((one.to_owned(), other.to_owned()));
        assert_eq!(found(&[]), pair("", ""));
        assert_eq!(found(&[("hostfile", path)]), pair("c:3 node7:1", ""));
        assert_eq!(found(&[("hostfile", path), ("host", "node7")]), pair("node7:1", ""));
        assert_eq!(found(&[("host", "c:2,node7")]), pair("c:2 node7:1", ""));
        assert_eq!(found(&[("add-host", "c:2")]), pair("", "c:2"));
        assert_eq!(found(&[("add-hostfile", path), ("add-host", "c:2")]), pair("", "c:3 node7:1"));
        assert_eq!(found(&[("add-host", "c:2"), ("host", "node7")]), pair("node7:1", "c:2"));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(found(&[("add-host", "d")]), pair("", "d:1"));
    }

    // Fault: A spawn's info key `hostfile` or `add-hostfile` names a file with an invalid line, without a host, or with a host
    // that is not there, or `host` or `add-host` has an invalid list
    // Outcome: the spawn is refused, and the reason names the key, the file and the line
    // Guarantee: Files of hosts that a rank names are read as those of `-hostfile`
    #[test]
    fn files_of_hosts_are_refused_with_their_line() {
        let file = std::env::temp_dir().join(format!("hydrant-spawn-lines-{}", std::process::id()));
        let path = file.to_str().unwrap();
        for (text, why) in [
            ("c\nd slots=x\n", " line 2: invalid number of slots 'x'"),
            ("# none\n", " names no host"),
            ("c\nd\n", ": host d: only node7 and c"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = hosts(&[("hostfile", path)]).unwrap_err();
            assert!(error.starts_with(&format!("hostfile {path}{why}")), "{error}");
        }
        std::fs::write(&file, "c user=-l\n").unwrap();
        let error = hosts(&[("add-hostfile", path)]).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(error.starts_with(&format!("add-hostfile {path} line 1: invalid user name")), "{error}");
        let error = hosts(&[("add-host", "a,-l")]).unwrap_err();
        assert!(error.starts_with("add-host a,-l: invalid host name '-l'"), "{error}");
        for key in ["host", "add-host"] {
            let error = hosts(&[(key, "")]).unwrap_err();
            assert!(error.starts_with(&format!("{key} : empty host name")), "{error}");
        }
        let missing = hosts(&[("hostfile", "no-such-file")]).unwrap_err();
        assert!(missing.starts_with("hostfile /tmp/no-such-file: No such file"), "{missing}");
    }

    #[test]
    fn a_file_has_pairs() {
        let file = std::env::temp_dir().join(format!("hydrant-spawn-info-{}", std::process::id()));
        std::fs::write(&file, "# pairs\n\n wdir = /usr \nenv=A=3\nenv=D=4\nsoft=2\n").unwrap();
        let name = file.to_str().unwrap();
        let program = requested(&[("wdir", "/var"), ("file", name)]).unwrap();
        std::fs::write(&file, "wdir=/usr\nnonsense\n").unwrap();
        let error = requested(&[("file", name)]).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert_eq!((program.wdir, program.ranks), (Some("/var".into()), 2));
        assert!(
            program.env.contains(&("D".into(), "4".into()))
                && program.env.contains(&("A".into(), "3".into()))
        );
        assert!(matches!(error, SpawnInfoError::Line { line: 2, .. }), "{error}");
        assert_eq!(requested(&[("file", name)]).unwrap_err().errno(), libc::ENOENT as u8);
    }

    // Fault: A spawn's info key `file` names a FIFO, a device, a directory or a long file
    // Outcome: the spawn is refused with the reason
    // Guarantee: A file that a rank names is a regular one of at most 65,536 bytes
    #[test]
    fn only_a_regular_file_of_bounded_length_is_read() {
        let dir = std::env::temp_dir().join(format!("hydrant-spawn-file-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (fifo, long) = (dir.join("fifo"), dir.join("long"));
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let error = |path: &Path| requested(&[("file", path.to_str().unwrap())]).unwrap_err();
        let irregular = [&fifo, &dir, Path::new("/dev/zero")].map(error);
        std::fs::write(&long, vec![b'\n'; FILE_MAX as usize]).unwrap();
        let fits = requested(&[("file", long.to_str().unwrap())]).is_ok();
        std::fs::write(&long, vec![b'\n'; FILE_MAX as usize + 1]).unwrap();
        let too_long = error(&long);
        std::fs::remove_dir_all(&dir).unwrap();
        for error in irregular {
            assert!(matches!(error, SpawnInfoError::NotRegular { .. }), "{error}");
            assert_eq!(error.errno(), libc::EINVAL as u8);
        }
        assert!(fits);
        assert_eq!(too_long.errno(), libc::EFBIG as u8);
        let text = too_long.to_string();
        assert!(text.ends_with("long: longer than 65536 bytes, the limit of info key file"), "{text}");
    }

    #[test]
    fn malformed_values_are_invalid() {
        for pair in [("soft", "x"), ("soft", "9"), ("env", "novalue"), ("env", "=x")] {
            assert_eq!(requested(&[pair]).unwrap_err().errno(), libc::EINVAL as u8, "{pair:?}");
        }
    }
}
