//! Program files and shared libraries that daemons receive from the head (`--preload-binary`, `--preload-libs`).
//!
//! The head sends the files in pieces down the tree, once over each link, and no faster than the slowest daemon stores
//! them. A daemon keeps a file in sealed memory. Its ranks are started from there, and their dynamic linker loads the libraries
//! from there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hydrant_control::protocol::{FilePiece, FileUse, Program, ProgramFile, encode};
use rustix::fs::{Access, access};
use sha2::{Digest, Sha256};

use crate::LaunchError;
use crate::libraries::libraries;
use crate::resolve::resolve;
use crate::sys::executable_memory;

/// Most bytes of all files: they lie in the memory of each host.
const FILES_MAX: u64 = 512 << 20;
/// Most different files: a daemon has a descriptor for each.
const FILES: usize = 256;
/// Bytes of a piece.
const PIECE: usize = 64 * 1024;

/// Error of a file that is sent along.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramFileError {
    /// The program is not found at the head.
    #[error(transparent)]
    Program(#[from] LaunchError),
    /// The file cannot be read.
    #[error("cannot send {} to the hosts: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// The libraries of a program are not found.
    #[error("--preload-libs: cannot list the libraries of {}: {why}", path.display())]
    Libraries {
        /// The program.
        path: PathBuf,
        /// Reason given by the dynamic linker or the operating system.
        why: String,
    },
    /// The files are too large.
    #[error(
        "cannot send {} to the hosts: it has {len} bytes, and all program files and libraries together may have {FILES_MAX}",
        path.display()
    )]
    TooLarge {
        /// The first file that does not fit.
        path: PathBuf,
        /// Its length.
        len: u64,
    },
    /// The programs have too many different files.
    #[error("cannot send the programs to the hosts: they have more than {FILES} files and libraries")]
    TooMany,
    /// The host has no memory for the file, or its programs cannot lie in memory.
    #[error("cannot store {}: {why}", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// The received bytes are not those of the file that the head has described.
    #[error("{} was changed while it was sent", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
}

/// Files of the programs, at the head.
#[derive(Debug, Default)]
pub struct FileSender {
    files: Vec<(PathBuf, File, u64)>,
    /// A daemon lacks a file.
    is_wanted: bool,
    file: usize,
    offset: u64,
}

impl FileSender {
    /// Opens the files of programs and describes them. `with_libraries` sends the libraries as well, and has no host look for a
    /// file of its own: all hosts would read from one file system.
    ///
    /// # Errors
    /// A program or one of its libraries is not found, cannot be read, or exceeds a limit.
    pub fn open(
        programs: &[Program],
        with_libraries: bool,
    ) -> Result<(FileSender, Vec<ProgramFile>), ProgramFileError> {
        let mut files = Described { use_own: !with_libraries, ..Described::default() };
        for (appnum, program) in (0..).zip(programs) {
            let found = resolve(program)?;
            let path = program.wdir.as_deref().unwrap_or(Path::new("")).join(found);
            let path = std::path::absolute(&path).map_err(|why| ProgramFileError::Read { path, why })?;
            let libraries = match with_libraries {
                true => libraries(program, &path)
                    .map_err(|why| ProgramFileError::Libraries { path: path.clone(), why })?,
                false => Vec::new(),
            };
            for (place, path) in (0..).zip([path].into_iter().chain(libraries)) {
                files.add(path, FileUse { appnum, place })?;
            }
        }
        Ok((files.sender, files.described))
    }

    /// A daemon lacks a file, so all files are sent.
    pub fn want(&mut self) {
        self.is_wanted = true;
    }

    /// The next piece, if files are wanted.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, ProgramFileError> {
        while let Some((path, file, len)) = self.files.get(self.file).filter(|_| self.is_wanted) {
            let rest = len - self.offset;
            if rest == 0 {
                (self.file, self.offset) = (self.file + 1, 0);
                continue;
            }
            let mut bytes = vec![0; PIECE.min(usize::try_from(rest).unwrap_or(PIECE))];
            let read = file.read_exact_at(&mut bytes, self.offset);
            read.map_err(|why| ProgramFileError::Read { path: path.clone(), why })?;
            self.offset += bytes.len() as u64;
            return Ok(Some(encode(&FilePiece { file: self.file as u32, bytes: &bytes })));
        }
        Ok(None)
    }
}

/// Files to be sent, with their descriptions in the same order.
#[derive(Default)]
struct Described {
    sender: FileSender,
    described: Vec<ProgramFile>,
    by_path: BTreeMap<PathBuf, usize>,
    total: u64,
    use_own: bool,
}

impl Described {
    fn add(&mut self, path: PathBuf, by: FileUse) -> Result<(), ProgramFileError> {
        if let Some(&at) = self.by_path.get(&path) {
            self.described[at].uses.push(by);
            return Ok(());
        }
        if self.described.len() == FILES {
            return Err(ProgramFileError::TooMany);
        }
        let read = |why| ProgramFileError::Read { path: path.clone(), why };
        let file = File::open(&path).map_err(read)?;
        let len = file.metadata().map_err(read)?.len();
        self.total = self.total.saturating_add(len);
        if self.total > FILES_MAX {
            return Err(ProgramFileError::TooLarge { path, len });
        }
        let digest = digest(&file, len).map_err(read)?;
        self.by_path.insert(path.clone(), self.described.len());
        let (name, use_own) = (path.clone().into(), self.use_own);
        self.described.push(ProgramFile { path: name, len, digest, use_own, uses: vec![by] });
        self.sender.files.push((path, file, len));
        Ok(())
    }
}

/// SHA-256 of the first `len` bytes.
fn digest(file: &File, len: u64) -> io::Result<[u8; 32]> {
    let (mut hash, mut buffer, mut rest) = (Sha256::new(), vec![0; PIECE], file.take(len));
    loop {
        match rest.read(&mut buffer)? {
            0 => return Ok(hash.finalize().into()),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// Files of the programs, at a daemon.
#[derive(Debug, Default)]
pub struct FileReceiver {
    files: Vec<(ProgramFile, Place)>,
}

/// Where a daemon has a file.
#[derive(Debug)]
enum Place {
    /// At the head's path: the host has the same file.
    Disk,
    /// Not yet: the received bytes and their hash.
    Incoming { memory: File, hash: Sha256, received: u64 },
    /// In sealed memory.
    Memory(OwnedFd),
}

impl FileReceiver {
    /// Looks which files this host has, and makes room for the others.
    pub fn new(files: Vec<ProgramFile>) -> Result<FileReceiver, ProgramFileError> {
        let place = |file: ProgramFile| {
            let place = match file.use_own && is_here(&file) {
                true => Place::Disk,
                false => {
                    let memory = executable_memory().map_err(|errno| store_error(&file, errno.into()))?;
                    Place::Incoming { memory: memory.into(), hash: Sha256::new(), received: 0 }
                }
            };
            Ok((file, place))
        };
        Ok(FileReceiver { files: files.into_iter().map(place).collect::<Result<_, ProgramFileError>>()? })
    }

    /// Whether a file is missing.
    pub fn is_incomplete(&self) -> bool {
        self.files.iter().any(|(_, place)| matches!(place, Place::Incoming { .. }))
    }

    /// Stores a piece. Returns whether it was the last one.
    pub fn take(&mut self, piece: &FilePiece<'_>) -> Result<bool, ProgramFileError> {
        let Some((file, place)) = self.files.get_mut(piece.file as usize) else { return Ok(false) };
        let Place::Incoming { memory, hash, received } = place else { return Ok(false) };
        *received += piece.bytes.len() as u64;
        if *received > file.len {
            return Err(ProgramFileError::Changed { path: file.path.clone().into() });
        }
        hash.update(piece.bytes);
        memory.write_all(piece.bytes).map_err(|why| store_error(file, why))?;
        if *received < file.len {
            return Ok(false);
        }
        if hash.finalize_reset()[..] != file.digest {
            return Err(ProgramFileError::Changed { path: file.path.clone().into() });
        }
        let memory = memory.try_clone().map_err(|why| store_error(file, why))?.into();
        crate::sys::seal(&memory).map_err(|errno| store_error(file, errno.into()))?;
        *place = Place::Memory(memory);
        Ok(!self.is_incomplete())
    }

    /// The file of a program, if it was sent along. Memory has a path as long as this process runs.
    pub fn of_program(&self, appnum: u32) -> Option<PathBuf> {
        let is_program = |by: &FileUse| by.appnum == appnum && by.place == 0;
        self.files.iter().find(|(file, _)| file.uses.iter().any(is_program)).map(path)
    }

    /// The libraries of a program that were sent along, in the order of loading.
    pub fn libraries(&self, appnum: u32) -> Vec<PathBuf> {
        let place = |file: &ProgramFile| {
            file.uses.iter().find(|by| by.appnum == appnum && by.place > 0).map(|by| by.place)
        };
        let by_place: BTreeMap<_, _> =
            self.files.iter().filter_map(|entry| Some((place(&entry.0)?, path(entry)))).collect();
        by_place.into_values().collect()
    }

    /// Number of descriptors of the files in memory.
    pub fn descriptors(&self) -> u64 {
        self.files.iter().filter(|(_, place)| !matches!(place, Place::Disk)).count() as u64
    }
}

/// The path of a file for ranks.
fn path((file, place): &(ProgramFile, Place)) -> PathBuf {
    match place {
        Place::Memory(fd) => format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()).into(),
        Place::Disk | Place::Incoming { .. } => file.path.clone().into(),
    }
}

/// Whether this host has the same file at the same path.
fn is_here(file: &ProgramFile) -> bool {
    let path = Path::new(&file.path);
    let same =
        |found: File| Ok(digest(&found, file.len)? == file.digest && found.metadata()?.len() == file.len);
    let is_file = std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == file.len);
    is_file && access(path, Access::EXEC_OK).is_ok() && File::open(path).and_then(same).unwrap_or(false)
}

fn store_error(file: &ProgramFile, why: io::Error) -> ProgramFileError {
    ProgramFileError::Store { path: file.path.clone().into(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hydrant_control::protocol::decode;

    fn program(command: &str) -> Program {
        Program {
            ranks: 1,
            command: command.into(),
            args: Vec::new(),
            env: Vec::new(),
            wdir: None,
            path: None,
            psets: Vec::new(),
        }
    }

    /// Files as a host gets them that has them at another place.
    fn elsewhere(files: &[ProgramFile]) -> Vec<ProgramFile> {
        files.iter().map(|file| ProgramFile { path: "/nowhere/program".into(), ..file.clone() }).collect()
    }

    #[test]
    fn a_host_without_the_file_gets_all_of_it() {
        let own = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
        let programs = [program("/bin/sh"), program(&own), program("/bin/sh")];
        let (mut sender, files) = FileSender::open(&programs, false).unwrap();
        let users = |file: &ProgramFile| file.uses.iter().map(|by| by.appnum).collect::<Vec<_>>();
        assert_eq!(files.iter().map(users).collect::<Vec<_>>(), [vec![0, 2], vec![1]]);
        let mut receiver = FileReceiver::new(elsewhere(&files)).unwrap();
        assert!(receiver.is_incomplete() && sender.next_piece().unwrap().is_none(), "not wanted yet");
        sender.want();
        let mut ends = 0;
        while let Some(piece) = sender.next_piece().unwrap() {
            ends += u32::from(receiver.take(&decode(&piece).unwrap()).unwrap());
        }
        assert_eq!((ends, receiver.is_incomplete()), (1, false));
        let stored = receiver.of_program(2).unwrap();
        assert_eq!(std::fs::read(&stored).unwrap(), std::fs::read("/bin/sh").unwrap());
        let output = std::process::Command::new(&stored).args(["-c", "echo runs"]).output().unwrap();
        assert_eq!(output.stdout, b"runs\n");
        assert!(File::options().write(true).open(&stored).and_then(|mut file| file.write_all(b"x")).is_err());
    }

    #[test]
    fn a_host_with_the_same_file_needs_nothing() {
        let (_, files) = FileSender::open(&[program("/bin/sh")], false).unwrap();
        let mut receiver = FileReceiver::new(files.clone()).unwrap();
        assert!(!receiver.is_incomplete());
        assert_eq!(receiver.of_program(0).as_deref(), Some(Path::new("/bin/sh")));
        assert!(!receiver.take(&FilePiece { file: 0, bytes: b"for others" }).unwrap());
        let other = ProgramFile { digest: [7; 32], ..files[0].clone() };
        assert!(FileReceiver::new(vec![other]).unwrap().is_incomplete());
    }

    #[test]
    fn other_bytes_are_refused() {
        let (mut sender, files) = FileSender::open(&[program("/bin/sh")], false).unwrap();
        sender.want();
        let wrong = ProgramFile { digest: [7; 32], ..files[0].clone() };
        let mut receiver = FileReceiver::new(vec![wrong]).unwrap();
        let error = loop {
            let piece = sender.next_piece().unwrap().expect("the last piece is an error");
            if let Err(error) = receiver.take(&decode(&piece).unwrap()) {
                break error.to_string();
            }
        };
        assert_eq!(error, "/bin/sh was changed while it was sent");
        let short = ProgramFile { len: 1, ..files[0].clone() };
        let mut receiver = FileReceiver::new(elsewhere(&[short])).unwrap();
        assert!(receiver.take(&FilePiece { file: 0, bytes: b"xx" }).is_err(), "more than announced");
    }
}
