//! Facts about a machine that the checks read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

/// Largest number of bytes that are read of a file.
const FILE_MAX: u64 = 1 << 20;
/// Longest wait for the resolver.
const RESOLVER_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait for a connection over loopback.
const LOOPBACK_TIMEOUT: Duration = Duration::from_secs(3);

/// A resource limit. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Limit in effect.
    pub soft: Option<u64>,
    /// Limit up to which a process may raise the soft one.
    pub hard: Option<u64>,
}

/// Facts about a machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Directory below which system files are read: `/` on a real machine.
    pub root: PathBuf,
    /// Variables of the environment.
    pub variables: BTreeMap<OsString, OsString>,
    /// Name of the machine.
    pub hostname: String,
    /// Limit of open files.
    pub open_files: Limit,
    /// Limit of processes of the user.
    pub processes: Limit,
    /// Limit of locked memory in bytes.
    pub locked_memory: Limit,
    /// Size and free space of `/dev/shm` in bytes, if it can be written.
    pub shared_memory: Option<(u64, u64)>,
    /// Processors that this process may use.
    pub processors: Option<usize>,
    /// Result of a connection over the loopback interface.
    pub loopback: Result<(), String>,
    /// Whether the machine's name has an address; `None` if the resolver did not answer in time.
    pub name_resolves: Option<bool>,
}

impl Machine {
    /// Facts about this machine.
    ///
    /// Opens one connection over loopback and resolves the machine's name. Both have a timeout of 3 seconds. A resolver that
    /// does not answer keeps a thread until it does.
    pub fn current() -> Machine {
        let limit = |resource| {
            let limit = getrlimit(resource);
            Limit { soft: limit.current, hard: limit.maximum }
        };
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Machine {
            root: PathBuf::from("/"),
            variables: std::env::vars_os().collect(),
            name_resolves: resolves(hostname.clone()),
            hostname,
            open_files: limit(Resource::Nofile),
            processes: limit(Resource::Nproc),
            locked_memory: limit(Resource::Memlock),
            shared_memory: shared_memory(Path::new("/dev/shm")),
            processors: std::thread::available_parallelism().ok().map(usize::from),
            loopback: loopback().map_err(|error| error.to_string()),
        }
    }

    /// Value of a variable. An empty value counts as unset.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsString> {
        self.variables.get(std::ffi::OsStr::new(name)).filter(|value| !value.is_empty())
    }

    /// Path of a system file.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Text of a system file. A file that cannot be read has none.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        read(&self.path(path))
    }
}

/// Text of a regular file, up to [`FILE_MAX`]. Does not block on a FIFO.
pub(crate) fn read(path: &Path) -> Option<String> {
    let file: File = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().ok().filter(|known| known.is_file())?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn shared_memory(dir: &Path) -> Option<(u64, u64)> {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).ok()?;
    let system = rustix::fs::statvfs(dir).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
    Some((bytes(system.f_blocks), bytes(system.f_bavail)))
}

fn loopback() -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    TcpStream::connect_timeout(&listener.local_addr()?, LOOPBACK_TIMEOUT).map(drop)
}

fn resolves(hostname: String) -> Option<bool> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let found = (hostname.as_str(), 0)
            .to_socket_addrs()
            .is_ok_and(|mut all: std::vec::IntoIter<SocketAddr>| all.next().is_some());
        let _ = sender.send(found);
    });
    receiver.recv_timeout(RESOLVER_TIMEOUT).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A directory that is removed with its contents.
    pub(crate) struct Root(PathBuf);

    impl Root {
        pub(crate) fn new(name: &str) -> Root {
            let path = std::env::temp_dir().join(format!("hydrant-doctor-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).expect("the folder for temporary files is writable");
            Root(path)
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().expect("it is below the root")).expect("it is writable");
            std::fs::write(path, text).expect("it is writable");
        }

        /// A machine with these files, ample limits and no variables.
        pub(crate) fn machine(&self) -> Machine {
            Machine {
                root: self.0.clone(),
                variables: BTreeMap::new(),
                hostname: "node".to_owned(),
                open_files: Limit { soft: Some(1024), hard: Some(1 << 20) },
                processes: Limit::default(),
                locked_memory: Limit::default(),
                shared_memory: Some((8 << 30, 8 << 30)),
                processors: Some(4),
                loopback: Ok(()),
                name_resolves: Some(true),
            }
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let machine = Machine::current();
        assert!(!machine.hostname.is_empty());
        assert!(machine.variables.contains_key(std::ffi::OsStr::new("PATH")));
    }

    #[test]
    fn only_regular_files_are_read() {
        let root = Root::new("read");
        root.write("file", "text");
        assert_eq!(root.machine().read("file").as_deref(), Some("text"));
        assert_eq!(root.machine().read("/file").as_deref(), Some("text"));
        assert_eq!(read(Path::new("/dev/zero")), None);
        assert_eq!(root.machine().read("missing"), None);
    }
}
