//! Headers of program files: architecture and shared libraries.

use std::ffi::{CStr, OsStr};
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use object::elf::{self, ELFMAG, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{LittleEndian, ReadCache};

/// Maximum numbers of segments, of bytes of the dynamic section, of the dynamic linker's path and of a name, and of libraries.
const SEGMENTS_MAX: u16 = 64;
const DYNAMIC_MAX: u64 = 64 << 10;
const LINKER_MAX: u64 = 4096;
const NAME_MAX: u64 = 4096;
const LIBRARIES_MAX: usize = 256;

/// Kind of a file that the system does not execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoExec {
    /// Text, which a shell may run.
    Script,
    /// Program of this architecture.
    Program(&'static str),
    /// Other data.
    Data,
}

/// Returns the kind of a file by its first bytes. Does not block.
pub fn kind(file: &Path) -> NoExec {
    let mut start = [0; 256];
    let len = open(file).and_then(|file| file.read_at(&mut start, 0).ok()).unwrap_or(0);
    let start = &start[..len];
    if !start.starts_with(&ELFMAG) {
        return if start.contains(&0) { NoExec::Data } else { NoExec::Script };
    }
    let machine = start.get(18..).and_then(|rest| rest.first_chunk());
    let is_little = start.get(5) == Some(&1);
    let number =
        machine.map(|&bytes| if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) });
    NoExec::Program(match number {
        Some(elf::EM_386) => "x86 (32 bits)",
        Some(elf::EM_MIPS) => "MIPS",
        Some(elf::EM_PPC) => "PowerPC (32 bits)",
        Some(elf::EM_PPC64) => "ppc64",
        Some(elf::EM_S390) => "s390x",
        Some(elf::EM_ARM) => "arm (32 bits)",
        Some(elf::EM_X86_64) => "x86_64",
        Some(elf::EM_AARCH64) => "aarch64",
        Some(elf::EM_RISCV) => "riscv",
        Some(elf::EM_LOONGARCH) => "loongarch",
        _ => "another architecture",
    })
}

/// Opens a regular file. A FIFO must not block.
fn open(path: &Path) -> Option<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().is_ok_and(|known| known.is_file()).then_some(file)
}

/// Returns the names of the shared libraries that a program needs. A file that is no program of this machine's kind has
/// none. Reads a bounded part of the file and does not block.
pub fn needed_libraries(program: &Path) -> Vec<String> {
    read_program(program).needed
}

/// Returns the file of the first shared library that a program needs and for which `is_it` holds, as the dynamic linker
/// finds it with this value of `LD_LIBRARY_PATH`, without its cache. Reads a bounded part of the program and does not block.
pub fn library_file(
    program: &Path,
    library_path: Option<&OsStr>,
    is_it: impl Fn(&str) -> bool,
) -> Option<PathBuf> {
    let Libraries { needed, rpath, runpath, .. } = read_program(program);
    let name = needed.into_iter().find(|name| is_it(name))?;
    // RPATH counts only without RUNPATH.
    let first = rpath.filter(|_| runpath.is_none());
    let origin = std::fs::canonicalize(program).ok()?;
    let own = |list: String| {
        let origin = origin.parent().unwrap_or(Path::new("/")).to_string_lossy();
        list.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin)
    };
    let of_user = library_path.and_then(|list| list.to_str()).map(str::to_owned);
    let lists = [first.map(&own), of_user, runpath.map(own)];
    let folders = lists.iter().flatten().flat_map(|list| list.split(':')).filter(|folder| !folder.is_empty());
    folders.map(|folder| Path::new(folder).join(&name)).find(|file| file.exists())
}

/// Returns the name of a shared library (`DT_SONAME`), by which others need it. Reads a bounded part of the file and does
/// not block.
pub fn shared_object_name(library: &Path) -> Option<String> {
    read_program(library).name
}

/// Name and needed libraries of a program or library, and the folders where it looks for them.
#[derive(Default)]
struct Libraries {
    name: Option<String>,
    needed: Vec<String>,
    rpath: Option<String>,
    runpath: Option<String>,
}

fn read_program(program: &Path) -> Libraries {
    open(program).and_then(|file| read(&file)).unwrap_or_default()
}

/// Returns the segments of a program of this machine's kind.
fn segments<'d>(data: &'d ReadCache<&File>) -> Option<&'d [elf::ProgramHeader64<LittleEndian>]> {
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    if header.e_phnum(LittleEndian) > SEGMENTS_MAX {
        return None;
    }
    header.program_headers(LittleEndian, data).ok()
}

/// Reads what the dynamic linker reads.
fn read(file: &File) -> Option<Libraries> {
    let data = &ReadCache::new(file);
    let segments = segments(data)?;
    let dynamic = segments.iter().find(|segment| segment.p_type(LittleEndian) == elf::PT_DYNAMIC)?;
    if dynamic.p_filesz(LittleEndian) > DYNAMIC_MAX {
        return None;
    }
    let entries = dynamic.dynamic(LittleEndian, data).ok()??;
    let tagged = |tag| entries.iter().filter(move |entry| entry.tag32(LittleEndian) == Some(tag));
    let value = |tag| tagged(tag).map(|entry| entry.d_val(LittleEndian)).next();
    let (address, len) = (value(elf::DT_STRTAB)?, value(elf::DT_STRSZ)?);
    let start = segments.iter().filter(|segment| segment.p_type(LittleEndian) == elf::PT_LOAD).find_map(
        |segment| {
            let at = address.checked_sub(segment.p_vaddr(LittleEndian))?;
            (at < segment.p_filesz(LittleEndian)).then(|| segment.p_offset(LittleEndian).checked_add(at))?
        },
    )?;
    let end = start.checked_add(len)?;
    let name = |entry: &elf::Dyn64<LittleEndian>| {
        let at = start.checked_add(entry.d_val(LittleEndian))?;
        let mut bytes = [0; NAME_MAX as usize];
        let room = end.checked_sub(at)?.min(NAME_MAX) as usize;
        let read = file.read_at(&mut bytes[..room], at).ok()?;
        // Not memchr, as object does: its first call asks for the processor's features, which takes a virtual machine long.
        CStr::from_bytes_until_nul(&bytes[..read]).ok()?.to_str().ok().map(str::to_owned)
    };
    let path = |tag| tagged(tag).find_map(name);
    let needed = tagged(elf::DT_NEEDED).take(LIBRARIES_MAX).filter_map(name).collect();
    let [name, rpath, runpath] = [elf::DT_SONAME, elf::DT_RPATH, elf::DT_RUNPATH].map(path);
    Some(Libraries { name, needed, rpath, runpath })
}

/// Returns the dynamic linker that a program names (`PT_INTERP`). None for a static program, and for a file that is no program of
/// this machine's kind. Reads a bounded part of the file and does not block.
pub fn dynamic_linker(program: &Path) -> Option<PathBuf> {
    let file = open(program)?;
    let data = &ReadCache::new(&file);
    let segment = segments(data)?.iter().find(|segment| segment.p_type(LittleEndian) == elf::PT_INTERP)?;
    if segment.p_filesz(LittleEndian) > LINKER_MAX {
        return None;
    }
    let name = segment.interpreter(LittleEndian, data).ok()??;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// Returns the interpreter that the first line of a script names. A carriage return at its end is a part of the name.
pub fn script_interpreter(path: &Path) -> Option<PathBuf> {
    let mut start = [0; 256];
    let len = open(path)?.read_at(&mut start, 0).ok()?;
    let line = start[..len].strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let name = line.split(|&byte| byte == b' ' || byte == b'\t').find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First bytes of an ELF file of 64 bits, little-endian.
    const IDENT: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];

    #[test]
    fn files_are_told_apart_by_their_first_bytes() {
        let path = std::env::temp_dir().join(format!("hydrant-kind-{}", std::process::id()));
        let mut program = [0; 64];
        program[..6].copy_from_slice(&IDENT);
        program[18] = 183;
        let mut big = program;
        (big[5], big[18], big[19]) = (2, 0, 22);
        for (bytes, expected) in [
            (b"echo".as_slice(), NoExec::Script),
            (b"", NoExec::Script),
            (b"\x01\0", NoExec::Data),
            (&program, NoExec::Program("aarch64")),
            (&big, NoExec::Program("s390x")),
            (&IDENT, NoExec::Program("another architecture")),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(kind(&path), expected);
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_libraries_of_this_program_are_found() {
        let own = std::env::current_exe().expect("the system knows this program");
        let libraries = needed_libraries(&own);
        assert!(libraries.iter().any(|name| name.starts_with("libc.so.")), "{libraries:?}");
    }

    #[test]
    fn other_files_need_none() {
        for path in ["/dev/null/none", "/", "/dev/zero", "/proc/self/environ", "/etc/passwd"] {
            assert_eq!(needed_libraries(Path::new(path)), [""; 0], "{path}");
        }
    }

    /// Each byte of the headers is set to its complement, and the file is cut at many places.
    #[test]
    fn a_damaged_file_does_no_harm() {
        let own = std::env::current_exe().expect("the system knows this program");
        let mut start = vec![0; 4096];
        File::open(&own).and_then(|file| file.read_exact_at(&mut start, 0)).expect("it can be read");
        let folder = std::env::temp_dir().join(format!("hydrant-needed-{}", std::process::id()));
        for at in (0..64 + 12 * 56).chain([start.len()]) {
            let mut damaged = start.clone();
            if let Some(byte) = damaged.get_mut(at) {
                *byte = !*byte;
            }
            damaged.truncate(at.max(64) * 4);
            std::fs::write(&folder, &damaged).expect("the folder for temporary files is writable");
            needed_libraries(&folder);
        }
        std::fs::remove_file(&folder).expect("it was written");
    }
}
