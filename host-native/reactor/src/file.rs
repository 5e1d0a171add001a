//! Files that users name, opened for reading and writing by one set of rules.
//!
//! Reading takes regular files, pipes, terminals and `/dev/null`. No other device is read, because some have no end.
//!
//! Writing takes regular files of this user, pipes that a process reads, terminals, `/dev/null` and `/dev/full`. An existing file
//! of another user is refused, root's included, and so is a link that another user left in a folder that everybody may write to:
//! the owner could read what is written, or have chosen which file is lost. A path that names an open descriptor of this process
//! (`/dev/stdout`, `/dev/fd/N`) has been checked by who opened it.
//!
//! Neither waits without an end: [`Input`] and [`Output`] give up on a pipe that has no process at its other end.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fchmod, ftruncate, open};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::termios::isatty;

/// Most bytes of a file with text: hosts, options, boards or a network.
pub const TEXT_MAX: u64 = 16 << 20;

/// Seconds without a process at the other end of a pipe, or without a byte read from it, after which it is given up.
const PARTNER_SECONDS: i64 = 10;
/// Attempts to open a file for writing that others make and remove meanwhile.
const ATTEMPTS: usize = 16;

/// Why a file that the user named is not opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refuses.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The file is of a kind that is not taken.
    #[error("it is {0}, and only a regular file{others} is accepted", others = others(*.1))]
    Kind(&'static str, Taken),
    /// The file is longer than its limit.
    #[error("longer than {0} bytes")]
    TooLong(u64),
    /// No process writes to the pipe.
    #[error("no process has opened the pipe for writing within {PARTNER_SECONDS} s")]
    NoWriter,
    /// No process reads from the pipe.
    #[error("no process has the pipe open for reading")]
    NoReader,
    /// The process that has the pipe open does not read.
    #[error("nothing was read from it for {PARTNER_SECONDS} s")]
    Stalled,
    /// The file exists and another user owns it.
    #[error("the file exists and belongs to user {0}: remove it, or name another one")]
    Owner(u32),
    /// A link that another user made leads to the file.
    #[error("a link that user {0} made, in a folder that all users may write to")]
    Link(u32),
}

/// Which files a caller takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Regular files alone.
    Regular,
    /// Regular files, pipes, terminals and `/dev/null`.
    Streams,
}

fn others(taken: Taken) -> &'static str {
    if taken == Taken::Streams { ", a pipe, a terminal or /dev/null" } else { "" }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> io::Error {
        let kind = match error {
            FileError::System(error) => return error,
            FileError::Kind(..) => io::ErrorKind::InvalidInput,
            FileError::TooLong(_) => io::ErrorKind::FileTooLarge,
            FileError::NoWriter | FileError::Stalled => io::ErrorKind::TimedOut,
            FileError::NoReader => io::ErrorKind::BrokenPipe,
            FileError::Owner(_) | FileError::Link(_) => io::ErrorKind::PermissionDenied,
        };
        io::Error::new(kind, error)
    }
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> FileError {
        FileError::System(errno.into())
    }
}

/// Whom a new file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// This user alone: mode 600, which an existing file is given, too.
    Private,
    /// Whom the umask lets.
    Umask,
}

/// Reads a file of at most `max` bytes.
///
/// # Errors
/// The file cannot be read, is of a kind that is not taken, or is longer.
pub fn read(path: &Path, taken: Taken, max: u64) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    Input::open(path, taken)?.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(typed)?;
    if bytes.len() as u64 > max { Err(FileError::TooLong(max)) } else { Ok(bytes) }
}

/// Returns the error that an [`io::Error`] of this module holds.
fn typed(error: io::Error) -> FileError {
    error.downcast::<FileError>().unwrap_or_else(FileError::System)
}

/// File that is read.
#[derive(Debug)]
pub struct Input {
    file: File,
    /// A pipe or a terminal, which may have nothing to read yet.
    waits: bool,
    /// A process has the pipe open for writing, or had.
    has_writer: bool,
}

impl Input {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// The file cannot be opened, or is of a kind that is not taken.
    pub fn open(path: &Path, taken: Taken) -> Result<Input, FileError> {
        // Non-blocking, because the name may be a pipe's.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(open(path, flags, Mode::empty())?);
        let found = file.metadata()?;
        let streams = taken == Taken::Streams;
        let waits = streams && (found.file_type().is_fifo() || isatty(&file));
        if found.is_file() || waits || (streams && is_device(&found, &["/dev/null"])) {
            return Ok(Input { file, waits, has_writer: false });
        }
        Err(refused(&found, taken))
    }

    /// Metadata of the file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Waits for a byte, or a process that writes. Returns whether there may be one.
    fn wait(&self, timeout: Option<Timespec>) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => Ok(true),
            ready => Ok(ready? > 0),
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let timeout = Timespec { tv_sec: PARTNER_SECONDS, tv_nsec: 0 };
            match self.file.read(buffer) {
                // A pipe without a writer reads as one that has ended. Poll tells the two apart.
                Ok(0) if self.waits && !self.has_writer && !buffer.is_empty() => {
                    if !self.wait(Some(timeout))? {
                        return Err(FileError::NoWriter.into());
                    }
                    self.has_writer = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.waits => {
                    self.has_writer = true;
                    self.wait(None)?;
                }
                read => {
                    self.has_writer |= matches!(read, Ok(1..));
                    return read;
                }
            }
        }
    }
}

/// Opens an input that is empty: `/dev/null`, or on a machine without devices a pipe that nobody writes to.
///
/// # Errors
/// The process has no descriptor left.
pub fn empty_input() -> io::Result<OwnedFd> {
    match File::open("/dev/null") {
        Ok(null) => Ok(null.into()),
        Err(_) => Ok(io::pipe()?.0.into()),
    }
}

/// File that is written. A pipe whose process does not read for 10 s is an error.
#[derive(Debug)]
pub struct Output(File);

impl Output {
    /// Opens a file for writing, as [`create`] does.
    ///
    /// # Errors
    /// Those of [`create`].
    pub fn create(path: &Path, access: Access) -> Result<Output, FileError> {
        Ok(Output(create(path, access)?.into()))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(&self.0, PollFlags::OUT)];
                    let timeout = Timespec { tv_sec: PARTNER_SECONDS, tv_nsec: 0 };
                    match poll(&mut fds, Some(&timeout)) {
                        Ok(0) => return Err(FileError::Stalled.into()),
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a file for writing: a new one, or an existing one, which is emptied. Writing to it does not block.
///
/// # Errors
/// The file cannot be opened, is of a kind that is not taken, or another user has made it.
pub fn create(path: &Path, access: Access) -> Result<OwnedFd, FileError> {
    create_or_append(path, access, false)
}

/// As [`create`], and appends to an existing file.
///
/// # Errors
/// Those of [`create`].
pub fn append(path: &Path, access: Access) -> Result<OwnedFd, FileError> {
    create_or_append(path, access, true)
}

fn create_or_append(path: &Path, access: Access, appends: bool) -> Result<OwnedFd, FileError> {
    if let Some(fd) = descriptor(path) {
        return open_descriptor(path, fd);
    }
    let mode = Mode::from_raw_mode(if access == Access::Private { 0o600 } else { 0o666 });
    let append = if appends { OFlags::APPEND } else { OFlags::empty() };
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | append;
    for _ in 0..ATTEMPTS {
        // A file that this call makes is this user's. The name of a link exists.
        match open(path, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Err(Errno::EXIST) => {}
            made => return Ok(made?),
        }
        let link = match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_symlink() => check_link(path, &found).map(|()| true)?,
            Ok(_) => false,
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let follow = if link { OFlags::empty() } else { OFlags::NOFOLLOW };
        match open(path, flags | follow, Mode::empty()) {
            // A link to a file that does not exist yet.
            Err(Errno::NOENT) if link => return Ok(open(path, flags | OFlags::CREATE, mode)?),
            // Another process has replaced the file since.
            Err(Errno::NOENT) => {}
            Err(Errno::LOOP) if !link => {}
            Err(Errno::NXIO) => {
                let found = fs::metadata(path)?;
                let is_pipe = found.file_type().is_fifo();
                return Err(if is_pipe { FileError::NoReader } else { refused(&found, Taken::Streams) });
            }
            opened => return take_over(opened?, access, appends),
        }
    }
    Err(FileError::System(io::ErrorKind::AlreadyExists.into()))
}

/// Checks an existing file that is open for writing, empties it, and takes its mode away from others.
fn take_over(fd: OwnedFd, access: Access, appends: bool) -> Result<OwnedFd, FileError> {
    let file = File::from(fd);
    let found = file.metadata()?;
    if isatty(&file) || is_device(&found, &["/dev/null", "/dev/full"]) {
        return Ok(file.into());
    }
    if !found.is_file() && !found.file_type().is_fifo() {
        return Err(refused(&found, Taken::Streams));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(FileError::Owner(found.uid()));
    }
    if found.is_file() {
        if access == Access::Private && found.mode() & 0o077 != 0 {
            fchmod(&file, Mode::from_raw_mode(0o600))?;
        }
        if !appends {
            ftruncate(&file, 0)?;
        }
    }
    Ok(file.into())
}

/// As Linux's `protected_symlinks`, which a machine may have switched off.
fn check_link(path: &Path, link: &Metadata) -> Result<(), FileError> {
    let folder = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    let folder = fs::metadata(folder)?;
    let trusted = [geteuid().as_raw(), folder.uid()].contains(&link.uid());
    if trusted || folder.mode() & 0o002 == 0 { Ok(()) } else { Err(FileError::Link(link.uid())) }
}

/// Returns the open descriptor of this process that a path names.
fn descriptor(path: &Path) -> Option<RawFd> {
    let path = path.as_os_str().as_bytes();
    let number = match path {
        b"/dev/stdout" => return Some(1),
        b"/dev/stderr" => return Some(2),
        _ => path.strip_prefix(b"/dev/fd/").or_else(|| path.strip_prefix(b"/proc/self/fd/"))?,
    };
    std::str::from_utf8(number).ok()?.parse().ok().filter(|&fd: &RawFd| fd >= 0)
}

/// Opens a descriptor of this process once more. Where it may block, the copy is another description, so that the flags of the
/// first stay as they are. A regular file is not emptied, and written behind what others have written by the same descriptor.
fn open_descriptor(path: &Path, fd: RawFd) -> Result<OwnedFd, FileError> {
    // SAFETY: the call takes numbers. A number that is not open makes it fail.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: the call above has made the descriptor.
    let copy = File::from(unsafe { OwnedFd::from_raw_fd(copy) });
    if !copy.metadata()?.is_file() {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match open(path, flags, Mode::empty()) {
            // A socket, or a terminal of another user.
            Err(Errno::NXIO | Errno::ACCESS) => {}
            opened => return Ok(opened?),
        }
    }
    Ok(copy.into())
}

/// Whether a device is one of these.
fn is_device(found: &Metadata, paths: &[&str]) -> bool {
    let same = |path: &&str| fs::metadata(path).is_ok_and(|device| device.rdev() == found.rdev());
    found.file_type().is_char_device() && paths.iter().any(same)
}

/// The error for a file of a kind that is not taken.
fn refused(found: &Metadata, taken: Taken) -> FileError {
    let kind = match found.file_type() {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    FileError::Kind(kind, taken)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("hydrant-file-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn pipe(&self) -> PathBuf {
            let path = self.0.join("pipe");
            mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn refusal<T>(result: Result<T, FileError>) -> String {
        result.err().expect("the file is refused").to_string()
    }

    #[test]
    fn reading_has_an_end() {
        let folder = Folder::new("read");
        let path = folder.file("text", "abc", 0o600);
        let at = |path: &str, max| read(Path::new(path), Taken::Streams, max);
        assert_eq!(read(&path, Taken::Regular, 3).unwrap(), b"abc");
        assert_eq!(refusal(read(&path, Taken::Regular, 2)), "longer than 2 bytes");
        assert_eq!(at("/dev/null", 1).unwrap(), b"");
        for device in ["/dev/zero", "/dev/full"] {
            assert!(refusal(at(device, 1)).starts_with("it is a device, and only"), "{device}");
        }
        assert!(refusal(read(&folder.0, Taken::Streams, 1)).starts_with("it is a directory"));
        let missing = at("/dev/null/missing", 1).unwrap_err();
        assert!(matches!(missing, FileError::System(_)), "{missing}");
    }

    #[test]
    fn a_pipe_is_read_to_its_end() {
        let folder = Folder::new("pipe");
        let path = folder.pipe();
        assert!(refusal(read(&path, Taken::Regular, 9)).ends_with("only a regular file is accepted"));
        let write = || fs::write(&path, "abc").unwrap();
        let bytes = std::thread::scope(|threads| {
            threads.spawn(write);
            read(&path, Taken::Streams, 9).unwrap()
        });
        assert_eq!(bytes, b"abc");
        let (empty, _) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&empty));
        assert_eq!(read(Path::new(&path), Taken::Streams, 9).unwrap(), b"");
    }

    #[test]
    fn a_pipe_without_a_reader_is_refused() {
        let folder = Folder::new("unread");
        let path = folder.pipe();
        assert_eq!(refusal(create(&path, Access::Umask)), "no process has the pipe open for reading");
        let mut reader = Input::open(&path, Taken::Streams).unwrap();
        Output::create(&path, Access::Private).unwrap().write_all(b"abc").unwrap();
        let mut bytes = [0; 3];
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"abc");
    }

    #[test]
    fn files_are_private_or_follow_the_umask() {
        let folder = Folder::new("mode");
        let open = folder.file("open", "before", 0o666);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        drop(append(&open, Access::Umask).unwrap());
        assert_eq!((mode(&open), fs::read(&open).unwrap()), (0o666, b"before".to_vec()));
        drop(create(&open, Access::Private).unwrap());
        assert_eq!((mode(&open), fs::read(&open).unwrap()), (0o600, Vec::new()));
        let new = folder.0.join("new");
        drop(create(&new, Access::Private).unwrap());
        assert_eq!(mode(&new), 0o600);
        let link = folder.0.join("link");
        symlink("later", &link).unwrap();
        drop(create(&link, Access::Umask).unwrap());
        assert!(folder.0.join("later").exists());
        assert!(create(&folder.0, Access::Umask).is_err());
        assert!(create(Path::new("/dev/null"), Access::Private).is_ok());
        assert!(refusal(create(Path::new("/dev/zero"), Access::Umask)).starts_with("it is a device"));
    }

    #[test]
    fn a_descriptor_is_written_where_it_stands() {
        let folder = Folder::new("descriptor");
        let path = folder.file("log", "", 0o644);
        let mut log = File::options().write(true).open(&path).unwrap();
        log.write_all(b"before ").unwrap();
        let name = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&log));
        Output::create(Path::new(&name), Access::Private).unwrap().write_all(b"behind").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before behind");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        assert!(create(Path::new("/dev/fd/99999"), Access::Umask).is_err());
    }

    /// Other users exist for root alone.
    #[test]
    fn what_another_user_made_is_refused() {
        if !geteuid().is_root() {
            return;
        }
        let folder = Folder::new("owner");
        let path = folder.file("file", "theirs", 0o666);
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        assert!(refusal(create(&path, Access::Umask)).contains("belongs to user 12345"));
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        let (link, own) = (folder.0.join("link"), folder.file("own", "mine", 0o600));
        symlink(&own, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(12345), None).unwrap();
        assert!(create(&link, Access::Umask).is_ok(), "only this user could make the link");
        fs::write(&own, "mine").unwrap();
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(refusal(create(&link, Access::Umask)).contains("a link that user 12345 made"));
        assert_eq!(fs::read(&own).unwrap(), b"mine");
    }
}
