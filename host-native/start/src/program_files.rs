//! Files that daemons receive from the head: programs (`--preload-binary`), shared libraries (`--preload-libs`), and others
//! (`--preload-files`).
//!
//! The head sends the files in pieces down the tree, once over each link, and no faster than the slowest daemon stores
//! them. A daemon keeps a file in sealed memory. Its ranks are started from there, and their dynamic linker loads the libraries
//! from there. Other files lie in the [folder of the run](crate::job_folder).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use hydrant_control::protocol::{FileCopy, FilePiece, FileUse, Program, ProgramFile, encode};
use rustix::fs::{Access, access};
use sha2::{Digest, Sha256};

use crate::LaunchError;
use crate::job_folder::JobFolder;
use crate::libraries::libraries;
use crate::resolve::resolve;
use crate::sys::executable_memory;

/// Most bytes of all files: they lie in the memory or the folder for temporary files of each host.
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
        "cannot send {} to the hosts: it has {len} bytes, and all program files, libraries and other files together may have \
         {FILES_MAX}",
        path.display()
    )]
    TooLarge {
        /// The first file that does not fit.
        path: PathBuf,
        /// Its length.
        len: u64,
    },
    /// There are too many different files.
    #[error("cannot send the files to the hosts: programs, libraries and other files are more than {FILES}")]
    TooMany,
    /// The file is a directory, a device or a pipe.
    #[error("cannot send {} to the hosts: it is no regular file", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
    },
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
    /// Opens the files of programs and others, and describes them. `with_libraries` sends the libraries as well, and has no host
    /// look for a file of its own: all hosts would read from one file system. `others` are relative paths, which the files have
    /// in the [folder of the run](FileReceiver::folder) too.
    ///
    /// # Errors
    /// A file is not found, cannot be read, or exceeds a limit.
    pub fn open(
        programs: &[Program],
        with_libraries: bool,
        others: &[PathBuf],
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
        for name in others {
            files.add_other(name)?;
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
        let (file, opened) = self.describe(&path)?;
        self.by_path.insert(path.clone(), self.described.len());
        self.push(path, opened, ProgramFile { use_own: self.use_own, uses: vec![by], ..file })
    }

    /// Adds a file for the folder of the run. Files with the same bytes are sent once.
    fn add_other(&mut self, path: &Path) -> Result<(), ProgramFileError> {
        let name = path.as_os_str();
        if self.described.iter().flat_map(|file| &file.copies).any(|copy| copy.name == name) {
            return Ok(());
        }
        let (file, opened) = self.describe(path)?;
        let found = opened.metadata().map_err(|why| ProgramFileError::Read { path: path.to_owned(), why })?;
        let copy = FileCopy { name: name.to_owned(), mode: found.mode() };
        let is_same = |other: &&mut ProgramFile| !other.copies.is_empty() && other.digest == file.digest;
        match self.described.iter_mut().find(is_same) {
            Some(same) => {
                same.copies.push(copy);
                Ok(())
            }
            None => self.push(path.to_owned(), opened, ProgramFile { copies: vec![copy], ..file }),
        }
    }

    /// Opens and describes a file that nothing uses yet.
    fn describe(&self, path: &Path) -> Result<(ProgramFile, File), ProgramFileError> {
        let read = |why| ProgramFileError::Read { path: path.to_owned(), why };
        // A pipe without a writer would keep the opening waiting.
        if !std::fs::metadata(path).map_err(read)?.is_file() {
            return Err(ProgramFileError::NoFile { path: path.to_owned() });
        }
        let file = File::open(path).map_err(read)?;
        let len = file.metadata().map_err(read)?.len();
        if self.total.saturating_add(len) > FILES_MAX {
            return Err(ProgramFileError::TooLarge { path: path.to_owned(), len });
        }
        let digest = digest(&file, len).map_err(read)?;
        let (path, uses, copies) = (path.to_owned().into(), Vec::new(), Vec::new());
        Ok((ProgramFile { path, len, digest, use_own: false, uses, copies }, file))
    }

    fn push(&mut self, path: PathBuf, opened: File, file: ProgramFile) -> Result<(), ProgramFileError> {
        if self.described.len() == FILES {
            return Err(ProgramFileError::TooMany);
        }
        self.total += file.len;
        self.sender.files.push((path, opened, file.len));
        self.described.push(file);
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

/// Files from the head, at a daemon.
#[derive(Debug, Default)]
pub struct FileReceiver {
    files: Vec<(ProgramFile, Place)>,
    folder: Option<JobFolder>,
}

/// Where a daemon has a file.
#[derive(Debug)]
enum Place {
    /// At the head's path: the host has the same file.
    Disk,
    /// Not yet: the received bytes and their hash. They are in memory, or at the file's first place in the folder of the run.
    Incoming { store: File, hash: Sha256, received: u64 },
    /// In sealed memory.
    Memory(OwnedFd),
    /// In the folder of the run.
    Folder,
}

impl FileReceiver {
    /// Looks which files this host has, and makes room for the others: in memory, or in a new folder at `folder`.
    ///
    /// # Errors
    /// There is no memory, or the folder cannot be made.
    pub fn new(files: Vec<ProgramFile>, folder: PathBuf) -> Result<FileReceiver, ProgramFileError> {
        let copied = files.iter().find(|file| !file.copies.is_empty());
        let folder = copied.map(|file| JobFolder::create(folder).map_err(|why| store_error(file, why)));
        let mut receiver = FileReceiver { files: Vec::new(), folder: folder.transpose()? };
        for file in files {
            let place = receiver.place(&file)?;
            receiver.files.push((file, place));
        }
        Ok(receiver)
    }

    fn place(&self, file: &ProgramFile) -> Result<Place, ProgramFileError> {
        if file.use_own && is_here(file) {
            return Ok(Place::Disk);
        }
        let store = match (file.copies.first(), &self.folder) {
            (Some(copy), Some(folder)) => folder.file(Path::new(&copy.name)),
            _ => executable_memory().map(File::from).map_err(io::Error::from),
        };
        let store = store.map_err(|why| store_error(file, why))?;
        if file.len == 0 {
            self.complete(file, &store)
        } else {
            Ok(Place::Incoming { store, hash: Sha256::new(), received: 0 })
        }
    }

    /// Makes a file ready for ranks, all of whose bytes are stored.
    fn complete(&self, file: &ProgramFile, store: &File) -> Result<Place, ProgramFileError> {
        let failed = |why| store_error(file, why);
        let Some((first, others)) = file.copies.split_first() else {
            let memory: OwnedFd = store.try_clone().map_err(failed)?.into();
            crate::sys::seal(&memory).map_err(|errno| failed(errno.into()))?;
            return Ok(Place::Memory(memory));
        };
        for copy in others {
            let folder = self.folder.as_ref().expect("a file with copies has made the folder");
            // Ranks may write to one without changing the other.
            let mut own = folder.file(Path::new(&copy.name)).map_err(failed)?;
            let mut bytes = File::open(folder.path().join(&first.name)).map_err(failed)?;
            io::copy(&mut bytes, &mut own)
                .and_then(|_| JobFolder::finish(&own, copy.mode))
                .map_err(failed)?;
        }
        JobFolder::finish(store, first.mode).map_err(failed)?;
        Ok(Place::Folder)
    }

    /// Whether a file is missing.
    pub fn is_incomplete(&self) -> bool {
        self.files.iter().any(|(_, place)| matches!(place, Place::Incoming { .. }))
    }

    /// Stores a piece. Returns whether it was the last one.
    pub fn take(&mut self, piece: &FilePiece<'_>) -> Result<bool, ProgramFileError> {
        let Some((file, place)) = self.files.get_mut(piece.file as usize) else { return Ok(false) };
        let Place::Incoming { store, hash, received } = place else { return Ok(false) };
        *received += piece.bytes.len() as u64;
        if *received > file.len {
            return Err(ProgramFileError::Changed { path: file.path.clone().into() });
        }
        hash.update(piece.bytes);
        store.write_all(piece.bytes).map_err(|why| store_error(file, why))?;
        if *received < file.len {
            return Ok(false);
        }
        if hash.finalize_reset()[..] != file.digest {
            return Err(ProgramFileError::Changed { path: file.path.clone().into() });
        }
        let store = store.try_clone().map_err(|why| store_error(file, why))?;
        let (file, _) = &self.files[piece.file as usize];
        let complete = self.complete(file, &store)?;
        self.files[piece.file as usize].1 = complete;
        Ok(!self.is_incomplete())
    }

    /// The folder with files for ranks, if there are any.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(JobFolder::path)
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
        self.files.iter().filter(|(_, place)| !matches!(place, Place::Disk | Place::Folder)).count() as u64
    }
}

/// The path of a file for ranks.
fn path((file, place): &(ProgramFile, Place)) -> PathBuf {
    match place {
        Place::Memory(fd) => format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()).into(),
        Place::Disk | Place::Incoming { .. } | Place::Folder => file.path.clone().into(),
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
    use crate::job_folder::new_job_folder;
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

    fn received(files: Vec<ProgramFile>) -> Result<FileReceiver, ProgramFileError> {
        FileReceiver::new(files, new_job_folder())
    }

    /// All pieces of a sender, in a receiver. Returns how often it was told that it has all.
    fn pass(sender: &mut FileSender, receiver: &mut FileReceiver) -> u32 {
        sender.want();
        let mut ends = 0;
        while let Some(piece) = sender.next_piece().unwrap() {
            ends += u32::from(receiver.take(&decode(&piece).unwrap()).unwrap());
        }
        ends
    }

    #[test]
    fn files_with_the_same_bytes_are_sent_once_and_lie_in_the_folder() {
        let here = new_job_folder();
        let source = JobFolder::create(here.clone()).unwrap();
        for (name, text) in [("a", "text"), ("sub/b", "text"), ("empty", ""), ("run", "#!/bin/sh\n")] {
            source.file(Path::new(name)).unwrap().write_all(text.as_bytes()).unwrap();
        }
        JobFolder::finish(&File::open(here.join("run")).unwrap(), 0o755).unwrap();
        let names = ["a", "sub/b", "empty", "run", "a"];
        let paths = names.map(|name| here.join(name));
        let (mut sender, mut files) = FileSender::open(&[], false, &paths).unwrap();
        assert_eq!(files.iter().map(|file| file.copies.len()).collect::<Vec<_>>(), [2, 1, 1]);
        // The command takes no absolute paths.
        for copy in files.iter_mut().flat_map(|file| &mut file.copies) {
            copy.name = Path::new(&copy.name).strip_prefix(&here).unwrap().into();
        }
        let mut receiver = received(files.clone()).unwrap();
        assert_eq!((pass(&mut sender, &mut receiver), receiver.descriptors()), (1, 0));
        let folder = receiver.folder().unwrap().to_owned();
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(["a", "sub/b", "empty", "run"].map(read), ["text", "text", "", "#!/bin/sh\n"]);
        let mode = |name: &str| std::fs::metadata(folder.join(name)).unwrap().mode() & 0o777;
        assert_eq!((mode("a"), mode("run"), mode("")), (0o600, 0o700, 0o700));
        assert_ne!(
            std::fs::metadata(folder.join("a")).unwrap().ino(),
            std::fs::metadata(folder.join("sub/b")).unwrap().ino()
        );
        drop(receiver);
        assert!(!folder.exists());
        // A head that is not one.
        files[0].copies[0].name = "../out".into();
        let error = received(files).unwrap_err().to_string();
        assert!(error.ends_with("the name leads out of the job's folder"), "{error}");
        let refused = FileSender::open(&[], false, std::slice::from_ref(&here)).unwrap_err().to_string();
        assert!(refused.ends_with("it is no regular file"), "{refused}");
    }

    #[test]
    fn a_host_without_the_file_gets_all_of_it() {
        let own = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
        let programs = [program("/bin/sh"), program(&own), program("/bin/sh")];
        let (mut sender, files) = FileSender::open(&programs, false, &[]).unwrap();
        let users = |file: &ProgramFile| file.uses.iter().map(|by| by.appnum).collect::<Vec<_>>();
        assert_eq!(files.iter().map(users).collect::<Vec<_>>(), [vec![0, 2], vec![1]]);
        let mut receiver = received(elsewhere(&files)).unwrap();
        assert!(receiver.is_incomplete() && sender.next_piece().unwrap().is_none(), "not wanted yet");
        assert_eq!((pass(&mut sender, &mut receiver), receiver.is_incomplete()), (1, false));
        let stored = receiver.of_program(2).unwrap();
        assert_eq!(std::fs::read(&stored).unwrap(), std::fs::read("/bin/sh").unwrap());
        let output = std::process::Command::new(&stored).args(["-c", "echo runs"]).output().unwrap();
        assert_eq!(output.stdout, b"runs\n");
        assert!(File::options().write(true).open(&stored).and_then(|mut file| file.write_all(b"x")).is_err());
    }

    #[test]
    fn a_host_with_the_same_file_needs_nothing() {
        let (_, files) = FileSender::open(&[program("/bin/sh")], false, &[]).unwrap();
        let mut receiver = received(files.clone()).unwrap();
        assert!(!receiver.is_incomplete());
        assert_eq!(receiver.of_program(0).as_deref(), Some(Path::new("/bin/sh")));
        assert!(!receiver.take(&FilePiece { file: 0, bytes: b"for others" }).unwrap());
        let other = ProgramFile { digest: [7; 32], ..files[0].clone() };
        assert!(received(vec![other]).unwrap().is_incomplete());
    }

    #[test]
    fn other_bytes_are_refused() {
        let (mut sender, files) = FileSender::open(&[program("/bin/sh")], false, &[]).unwrap();
        sender.want();
        let wrong = ProgramFile { digest: [7; 32], ..files[0].clone() };
        let mut receiver = received(vec![wrong]).unwrap();
        let error = loop {
            let piece = sender.next_piece().unwrap().expect("the last piece is an error");
            if let Err(error) = receiver.take(&decode(&piece).unwrap()) {
                break error.to_string();
            }
        };
        assert_eq!(error, "/bin/sh was changed while it was sent");
        let short = ProgramFile { len: 1, ..files[0].clone() };
        let mut receiver = received(elsewhere(&[short])).unwrap();
        assert!(receiver.take(&FilePiece { file: 0, bytes: b"xx" }).is_err(), "more than announced");
    }
}
