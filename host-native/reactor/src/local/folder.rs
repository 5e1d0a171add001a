//! Names as files of a folder that only this user may enter: `/tmp/hydrant-UID`. A file that a killed process left behind is
//! removed when a listener takes its name.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::geteuid;

/// File of a listening socket, removed when it is dropped.
#[derive(Debug)]
pub(super) struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the folder, which is made if it does not exist.
///
/// # Errors
/// The folder is another user's, or others may enter it.
fn folder() -> io::Result<PathBuf> {
    let user = geteuid().as_raw();
    let path = PathBuf::from(format!("/tmp/hydrant-{user}"));
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&path)?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        Ok(path)
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is not private", path.display())))
    }
}

/// File of a name. A name has no `%`, which stands for the slash here.
fn file(name: &str) -> io::Result<PathBuf> {
    if name.is_empty() || name.contains(['%', '\0']) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(folder()?.join(name.replace('/', "%")))
}

pub(super) fn listen(name: &str, backlog: i32) -> io::Result<(UnixListener, Name)> {
    let path = file(name)?;
    if UnixStream::connect(&path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        fs::remove_file(&path)?;
    }
    let socket = UnixListener::bind(&path)?;
    let name = Name(path);
    socket.set_nonblocking(true)?;
    rustix::net::listen(&socket, backlog)?;
    Ok((socket, name))
}

/// Connects to the socket of a name. The listening process must be one of this user.
///
/// # Errors
/// No process of this user listens under the name, or its queue of connections is full.
pub fn connect(name: &str) -> io::Result<UnixStream> {
    super::check_user(UnixStream::connect(file(name)?)?)
}

/// As [`connect`], which never waits.
///
/// # Errors
/// As [`connect`].
pub fn connect_now(name: &str) -> io::Result<UnixStream> {
    connect(name)
}

/// Does nothing: the other end of a connection has no name here.
///
/// # Errors
/// None.
pub fn bind_peer(_: impl AsFd, _: &str) -> Result<(), Errno> {
    Ok(())
}

/// Returns no name.
pub fn peer_name(_: impl AsFd) -> Option<String> {
    None
}

/// Returns the names of listening sockets that begin with a prefix, sorted.
///
/// # Errors
/// The folder cannot be read.
pub fn list(prefix: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder()?)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(|name| name.replace('%', "/")) else { continue };
        if !name.starts_with(prefix) {
            continue;
        }
        // A refused connection is no reason to remove the file: the queue of the process that listens may be full.
        if UnixStream::connect(entry.path()).is_ok() {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}
