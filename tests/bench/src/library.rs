//! A rank that talks through a libpmi2, whichever it is told to load: the measured program is the same over each.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use libloading::os::unix::{Library, Symbol};

use crate::rank::{Moments, key, now, value, write_digits};

/// `PMI2_MAX_VALLEN` and a NUL.
const ROOM: usize = 1025;

/// `PMI2_ID_NULL`
const ANY_RANK: c_int = -1;

type Init = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int, *mut c_int) -> c_int;
type Done = unsafe extern "C" fn() -> c_int;
type Put = unsafe extern "C" fn(*const c_char, *const c_char) -> c_int;
type Get = unsafe extern "C" fn(*const c_char, c_int, *const c_char, *mut c_char, c_int, *mut c_int) -> c_int;

/// The functions of pmi2.h that are measured.
struct Pmi2 {
    put: Symbol<Put>,
    fence: Symbol<Done>,
    get: Symbol<Get>,
    finalize: Symbol<Done>,
    rank: u32,
    size: u32,
    value: [u8; ROOM],
    _library: Library,
}

fn check(name: &str, code: c_int) -> Result<()> {
    ensure!(code == 0, "{name} gave {code}");
    Ok(())
}

impl Pmi2 {
    /// Loads the library and joins the job.
    fn init(library: &OsStr) -> Result<Pmi2> {
        let shown = Path::new(library).display();
        // SAFETY: what runs on loading is the library's own start, which expects nothing of its caller.
        let library = unsafe { Library::new(library) }.with_context(|| format!("cannot load {shown}"))?;
        // SAFETY: the types are those of pmi2.h.
        let (init, put, fence, get, finalize) = unsafe {
            (
                library.get::<Init>(b"PMI2_Init")?,
                library.get(b"PMI2_KVS_Put")?,
                library.get(b"PMI2_KVS_Fence")?,
                library.get(b"PMI2_KVS_Get")?,
                library.get(b"PMI2_Finalize")?,
            )
        };
        let (mut spawned, mut size, mut rank, mut appnum) = (0, 0, 0, 0);
        // SAFETY: four places to write to.
        check("PMI2_Init", unsafe { init(&mut spawned, &mut size, &mut rank, &mut appnum) })?;
        let (rank, size) = (u32::try_from(rank)?, u32::try_from(size)?);
        Ok(Pmi2 { put, fence, get, finalize, rank, size, value: [0; ROOM], _library: library })
    }

    fn put(&self, key: &str, value: &str) -> Result<()> {
        let (key, value) = (CString::new(key)?, CString::new(value)?);
        // SAFETY: two strings.
        check("PMI2_KVS_Put", unsafe { (self.put)(key.as_ptr(), value.as_ptr()) })
    }

    fn fence(&self) -> Result<()> {
        // SAFETY: there is nothing to get wrong.
        check("PMI2_KVS_Fence", unsafe { (self.fence)() })
    }

    /// A value, which is empty where there is none.
    fn get(&mut self, key: &CStr) -> &[u8] {
        let (value, mut len) = (self.value.as_mut_ptr().cast(), 0);
        // SAFETY: NULL for the own job, a string, as much room as is said, and a place to write to.
        let code =
            unsafe { (self.get)(std::ptr::null(), ANY_RANK, key.as_ptr(), value, ROOM as c_int, &mut len) };
        let len = usize::try_from(len).ok().filter(|_| code == 0);
        self.value.get(..len.unwrap_or(0)).unwrap_or_default()
    }

    /// Waits until all are here. hydra answers a fence at once and holds the first get behind it instead.
    fn sync(&mut self) -> Result<()> {
        self.fence()?;
        self.get(c"-NONEXIST-KEY");
        Ok(())
    }

    /// Put, fence, and get of all values, `passes` times.
    fn exchange(&mut self, passes: u32) -> Result<Moments> {
        let mut wanted = value(0).into_bytes();
        let mut name = CString::new(key(0))?.into_bytes_with_nul();
        let at = name.len() - 1 - crate::rank::DIGITS;
        self.put(&key(self.rank), &value(self.rank))?;
        let put = now();
        self.sync()?;
        let fence = now();
        let mut errors = 0;
        for _ in 0..passes {
            for other in (self.rank + 1..self.size).chain(0..=self.rank) {
                write_digits(&mut name[at..], other);
                write_digits(&mut wanted, other);
                errors += u64::from(self.get(CStr::from_bytes_with_nul(&name)?) != wanted);
            }
        }
        Ok(Moments { start: put, put, fence, end: now(), errors })
    }
}

/// A rank of a job over that library, without the memory that the server shares where `socket` says so. Rank 0 prints
/// the job's moments.
pub(crate) fn under_manager(library: &OsStr, socket: bool, passes: u32) -> Result<()> {
    if socket {
        // SAFETY: no other thread is there to read the environment.
        unsafe { std::env::remove_var("HYDRANT_KVS") };
    }
    let mut pmi = Pmi2::init(library)?;
    let mine = pmi.exchange(passes)?;
    pmi.put(&format!("t-{}", pmi.rank), &mine.to_string())?;
    pmi.sync()?;
    if pmi.rank == 0 {
        let mut all = mine;
        for other in 1..pmi.size {
            let key = CString::new(format!("t-{other}"))?;
            all = all.merge(std::str::from_utf8(pmi.get(&key))?.parse()?);
        }
        println!("{all}");
    }
    // SAFETY: there is nothing to get wrong.
    check("PMI2_Finalize", unsafe { (pmi.finalize)() })
}

/// Whether a library of that name or path can be loaded.
pub(crate) fn loads(library: &OsStr) -> bool {
    // SAFETY: as in `init`.
    !library.as_bytes().is_empty() && unsafe { Library::new(library) }.is_ok()
}
