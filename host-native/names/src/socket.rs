//! Socket of a name server, for processes of the same user only.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use hydrant_control::{ALIAS_PREFIX, alias, query_name};
use hydrant_reactor::{accept_stream, local, peer_user, stream_socket};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, bind, connect, listen};
use rustix::process::{geteuid, umask};

use crate::error::NameServiceError;

/// Maximum number of connections that wait to be accepted. The system also has a limit, usually 4,096.
const BACKLOG: i32 = 4096;
/// Last part of the name of a client's socket.
const CLIENT: &str = "names";

/// Listening socket of a name server. Its file is removed on drop.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

/// Result of accepting a connection.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// A process of this user, and the alias of the job that its socket is bound to.
    Admitted(OwnedFd, Option<String>),
    /// A process of that user.
    Foreign(u32),
    /// No connection waits.
    None,
}

impl Listener {
    /// Listens at `path`. Replaces the socket of a name server that has ended. With `private`, the directory must be one that
    /// only this user can enter: another user may have made it first below `/tmp`.
    pub(crate) fn open(path: &Path, private: bool) -> Result<Listener, NameServiceError> {
        let failed = |why: io::Error| NameServiceError::Listen { path: path.to_owned(), why };
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        // Two name servers that start at the same time must not both find a stale socket and replace each other's.
        let follow = if private { OFlags::NOFOLLOW } else { OFlags::empty() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
        let held = match rustix::fs::open(dir, flags, Mode::empty()) {
            Ok(held) => held,
            Err(Errno::NOTDIR | Errno::LOOP) if private => return Err(unsafe_dir(dir, "it is no directory")),
            Err(errno) => return Err(failed(errno.into())),
        };
        if private {
            check_private(dir, &held)?;
        }
        match rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN) => return Err(NameServiceError::Busy { dir: dir.to_owned() }),
            Err(errno) => return Err(failed(errno.into())),
        }
        remove_stale(path)?;
        Listener::bind(path).map_err(failed)
    }

    fn bind(path: &Path) -> io::Result<Listener> {
        let fd = stream_socket(AddressFamily::UNIX)?;
        let before = umask(Mode::from_raw_mode(0o177));
        let bound = bind(&fd, &SocketAddrUnix::new(path)?);
        umask(before);
        bound?;
        let file = identity(path)?;
        let listener = Listener { fd, path: path.to_owned(), file };
        listen(&listener.fd, BACKLOG)?;
        Ok(listener)
    }

    /// Accepts the next connection.
    pub(crate) fn accept(&self) -> io::Result<Accepted> {
        loop {
            return match accept_stream(&self.fd) {
                Ok(fd) => Ok(match peer_user(&fd)? {
                    user if user == geteuid().as_raw() => {
                        let alias = local::peer_name(&fd).as_deref().and_then(alias_of);
                        Accepted::Admitted(fd, alias)
                    }
                    user => Accepted::Foreign(user),
                }),
                Err(Errno::AGAIN) => Ok(Accepted::None),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => Err(errno.into()),
            };
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // No other name server replaces the file while this one listens, but the file may have been removed.
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Refuses a directory that belongs to another user, or that other users can enter.
fn check_private(dir: &Path, held: &OwnedFd) -> Result<(), NameServiceError> {
    let found = rustix::fs::fstat(held)
        .map_err(|errno| NameServiceError::Listen { path: dir.to_owned(), why: errno.into() })?;
    let mode = Mode::from_raw_mode(found.st_mode);
    if found.st_uid != geteuid().as_raw() {
        return Err(unsafe_dir(dir, &format!("it belongs to user {}", found.st_uid)));
    }
    match mode.intersects(Mode::RWXG | Mode::RWXO) {
        true => Err(unsafe_dir(dir, &format!("its mode is {:o}, not 700", mode.bits() & 0o777))),
        false => Ok(()),
    }
}

fn unsafe_dir(dir: &Path, why: &str) -> NameServiceError {
    NameServiceError::UnsafeDir { dir: dir.to_owned(), why: why.to_owned() }
}

/// Removes a socket without a listener.
fn remove_stale(path: &Path) -> Result<(), NameServiceError> {
    let failed = |why: io::Error| NameServiceError::Listen { path: path.to_owned(), why };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(NameServiceError::NoSocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match SocketAddrUnix::new(path).and_then(|address| reach(&address, None)) {
        // A full backlog means that the name server is running.
        Ok(_) | Err(Errno::AGAIN) => Err(NameServiceError::Taken { path: path.to_owned() }),
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(failed),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Connects to the user's own name server at `path` without blocking. The name server knows the connection by `jobid`, if
/// one is given and no other socket of this machine is bound to it.
pub(crate) fn join(path: &Path, jobid: Option<&str>) -> Result<OwnedFd, NameServiceError> {
    let no_server = |why: io::Error| NameServiceError::NoServer { path: path.to_owned(), why };
    let reached = SocketAddrUnix::new(path).and_then(|address| reach(&address, jobid));
    let fd = reached.map_err(|errno| no_server(errno.into()))?;
    match peer_user(&fd).map_err(no_server)? {
        user if user == geteuid().as_raw() => Ok(fd),
        user => Err(NameServiceError::Foreign { path: path.to_owned(), user }),
    }
}

/// Connects to the query socket of a job of this user's in another run, without blocking.
pub(crate) fn visit(jobid: &str) -> io::Result<OwnedFd> {
    let stream = local::connect_now(&query_name(jobid, 0))?;
    stream.set_nonblocking(true)?;
    Ok(stream.into())
}

fn reach(address: &SocketAddrUnix, jobid: Option<&str>) -> Result<OwnedFd, Errno> {
    let fd = stream_socket(AddressFamily::UNIX)?;
    if let Some(jobid) = jobid {
        match local::bind_peer(&fd, &client_name(jobid)) {
            Ok(()) | Err(Errno::ADDRINUSE) => {}
            Err(errno) => return Err(errno),
        }
    }
    connect(&fd, address)?;
    Ok(fd)
}

/// Name that a job's connection is bound to. It tells the name server the alias of the job.
fn client_name(jobid: &str) -> String {
    format!("hydrant/{}/{CLIENT}", alias(jobid))
}

/// Returns the alias in the name of a client's socket.
fn alias_of(name: &str) -> Option<String> {
    let alias = name.strip_prefix("hydrant/")?.strip_suffix(CLIENT)?.strip_suffix('/')?;
    alias.starts_with(ALIAS_PREFIX).then(|| alias.to_owned())
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, remove_dir_all, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// The message of a failed start in a private directory. None if it succeeds.
    fn refusal(dir: &Path) -> Option<String> {
        Listener::open(&dir.join("names"), true).err().map(|error| error.to_string())
    }

    #[test]
    fn the_socket_of_a_job_is_bound_to_its_alias() {
        let path = std::env::temp_dir().join(format!("hydrant-names-of-job-{}", std::process::id()));
        let listener = Listener::open(&path, false).unwrap();
        let jobid = format!("kvs_test-{}", std::process::id());
        let first = join(&path, Some(&jobid)).unwrap();
        let accepted = |listener: &Listener| match listener.accept() {
            Ok(Accepted::Admitted(_, jobid)) => jobid,
            other => panic!("{other:?}"),
        };
        assert_eq!(accepted(&listener), Some(alias(&jobid)));
        let second = join(&path, Some(&jobid)).unwrap();
        assert_eq!(accepted(&listener), None, "the name is in use");
        drop((first, second));
        let third = join(&path, Some(&jobid)).unwrap();
        assert_eq!(accepted(&listener), Some(alias(&jobid)));
        assert_eq!(alias_of("hydrant/run-1/names"), None, "no alias");
        drop(third);
        assert_eq!(visit("nobodys").unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    // Fault: Another user makes the default folder of the name service first
    // Outcome: the name service does not start, and names the folder
    // Guarantee: The folder is this user's, has mode 0700, and is no symbolic link
    #[test]
    fn a_private_directory_is_this_users_alone() {
        let parent = std::env::temp_dir().join(format!("hydrant-names-{}", std::process::id()));
        create_dir(&parent).unwrap();
        let (dir, link) = (parent.join("dir"), parent.join("link"));
        assert_eq!(refusal(&dir), None, "a missing directory is created");
        assert_eq!(refusal(&dir), None);
        symlink(&dir, &link).unwrap();
        assert!(refusal(&link).unwrap().ends_with("it is no directory"));
        assert!(Listener::open(&link.join("names"), false).is_ok(), "a path of the user's choice");
        set_permissions(&dir, Permissions::from_mode(0o750)).unwrap();
        assert!(refusal(&dir).unwrap().ends_with("its mode is 750, not 700"));
        set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        if geteuid().is_root() {
            chown(&dir, Some(65534), None).unwrap();
            assert!(refusal(&dir).unwrap().ends_with("it belongs to user 65534"));
        }
        remove_dir_all(&parent).unwrap();
    }
}
