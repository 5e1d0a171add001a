//! Functions and items of Slurm's `spank.h`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use hydrant_reactor::printable;

/// Numbers of items of `spank_get_item`, all with one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Item {
    User = 0,
    Group = 1,
    JobId = 2,
    StepId = 3,
    Nodes = 4,
    Node = 5,
    LocalTasks = 6,
    TotalTasks = 7,
    Task = 11,
    ExitStatus = 13,
    TaskPid = 14,
}

/// `S_JOB_ARGV`, whose results are a number and an array of texts.
const ARGV: c_int = 9;
/// `S_JOB_ENV`, whose result is an array of texts.
const ENV: c_int = 10;
/// `S_JOB_LOCAL_TO_GLOBAL_ID`, which has an argument.
const LOCAL_TO_GLOBAL: c_int = 17;
/// `S_CTX_LOCAL`: srun.
const LOCAL: c_int = 1;
/// `S_CTX_REMOTE`: slurmstepd.
const REMOTE: c_int = 2;
const SUCCESS: c_int = 0;

/// Option of a program of Slurm: `struct spank_option`.
#[repr(C)]
struct SpankOption {
    name: *const c_char,
    arginfo: *const c_char,
    usage: *const c_char,
    has_arg: c_int,
    val: c_int,
    callback: Option<unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int>,
}

/// Function that Slurm calls with the value of an option.
pub(crate) type OptionCallback = unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;

unsafe extern "C" {
    fn spank_context() -> c_int;
    fn spank_option_register(spank: *mut c_void, option: *mut SpankOption) -> c_int;
    fn spank_get_item(spank: *mut c_void, item: c_int, ...) -> c_int;
    fn spank_getenv(spank: *mut c_void, name: *const c_char, buf: *mut c_char, len: c_int) -> c_int;
    fn spank_setenv(spank: *mut c_void, name: *const c_char, value: *const c_char, overwrite: c_int)
    -> c_int;
    fn spank_unsetenv(spank: *mut c_void, name: *const c_char) -> c_int;
    fn spank_strerror(error: c_int) -> *const c_char;
    fn slurm_spank_log(format: *const c_char, ...);
}

/// A call that Slurm refused.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {why}")]
pub(crate) struct SlurmError {
    call: &'static str,
    why: String,
}

fn check(call: &'static str, code: c_int) -> Result<(), SlurmError> {
    if code == SUCCESS {
        return Ok(());
    }
    // SAFETY: the function returns a constant text, or NULL, for every number.
    let why = unsafe { text(spank_strerror(code)) }.map_or_else(|| code.to_string(), str::to_owned);
    Err(SlurmError { call, why })
}

/// Which of Slurm's programs this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// srun.
    Local,
    /// slurmstepd.
    Remote,
    /// Another one.
    Other,
}

/// Returns which of Slurm's programs this is.
pub(crate) fn context() -> Context {
    // SAFETY: the function has no arguments.
    match unsafe { spank_context() } {
        LOCAL => Context::Local,
        REMOTE => Context::Remote,
        _ => Context::Other,
    }
}

/// Prints a line: on the terminal of srun, or on the standard error of the step.
pub(crate) fn print(line: &str) {
    // NUL is no printable character, so the text has none.
    let text = CString::new(&*printable(line)).unwrap_or_default();
    // SAFETY: the format takes one text.
    unsafe { slurm_spank_log(c"%s".as_ptr(), text.as_ptr()) };
}

/// Slurm's handle during one call of the plugin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spank(*mut c_void);

impl Spank {
    /// # Safety
    /// The handle is that of the callback that is running, and is used in it alone.
    pub(crate) unsafe fn new(handle: *mut c_void) -> Spank {
        Spank(handle)
    }

    /// Adds an option with an optional value to srun.
    pub(crate) fn register_option(
        self,
        name: &'static CStr,
        value: &'static CStr,
        usage: &'static CStr,
        callback: OptionCallback,
    ) -> Result<(), SlurmError> {
        let mut option = SpankOption {
            name: name.as_ptr(),
            arginfo: value.as_ptr(),
            usage: usage.as_ptr(),
            // Optional.
            has_arg: 2,
            val: 0,
            callback: Some(callback),
        };
        // SAFETY: Slurm copies the structure. Its texts live as long as the program.
        check("spank_option_register", unsafe { spank_option_register(self.0, &mut option) })
    }

    /// Returns a number of the step or of the current task. All items of the enum are 32 bits long.
    pub(crate) fn item(self, item: Item) -> Result<u32, SlurmError> {
        let mut value: u32 = 0;
        // SAFETY: Slurm writes a number of 32 bits for each of these items.
        check("spank_get_item", unsafe { spank_get_item(self.0, item as c_int, &raw mut value) })?;
        Ok(value)
    }

    /// Returns the rank of a task of this node.
    pub(crate) fn rank(self, task: u32) -> Result<u32, SlurmError> {
        let mut rank: u32 = 0;
        // SAFETY: Slurm takes a number and writes a number of 32 bits.
        check("spank_get_item", unsafe { spank_get_item(self.0, LOCAL_TO_GLOBAL, task, &raw mut rank) })?;
        Ok(rank)
    }

    /// Returns a variable of the step's environment, if it is there, text, and shorter than 4 KiB.
    pub(crate) fn variable(self, name: &CStr) -> Option<String> {
        let mut buf = [0_u8; 4096];
        let (start, len) = (buf.as_mut_ptr().cast(), buf.len() as c_int);
        // SAFETY: the buffer has that length. Slurm ends the text within it.
        let code = unsafe { spank_getenv(self.0, name.as_ptr(), start, len) };
        let text = CStr::from_bytes_until_nul(&buf).ok().filter(|_| code == SUCCESS)?;
        text.to_str().ok().map(str::to_owned)
    }

    /// Returns the names of all variables of the step's environment.
    pub(crate) fn variable_names(self) -> Result<Vec<CString>, SlurmError> {
        let mut texts: *const *const c_char = ptr::null();
        // SAFETY: Slurm writes the address of its array, which it keeps during this call of the plugin.
        check("spank_get_item", unsafe { spank_get_item(self.0, ENV, &raw mut texts) })?;
        let mut names = Vec::new();
        // SAFETY: the array ends with NULL.
        while let Some(&start) = unsafe { texts.as_ref() }.filter(|start| !start.is_null()) {
            // SAFETY: each entry before is a text, which lives as long as the array.
            let text = unsafe { CStr::from_ptr(start) }.to_bytes();
            let name = text.split(|&byte| byte == b'=').next().unwrap_or_default();
            names.extend(CString::new(name));
            // SAFETY: NULL has not come.
            texts = unsafe { texts.add(1) };
        }
        Ok(names)
    }

    /// Returns the command of the step.
    pub(crate) fn command(self) -> Result<CString, SlurmError> {
        let (mut count, mut words): (c_int, *const *const c_char) = (0, ptr::null());
        // SAFETY: Slurm writes the number and the address of its array, which it keeps during this call of the plugin.
        let code = unsafe { spank_get_item(self.0, ARGV, &raw mut count, &raw mut words) };
        check("spank_get_item", code)?;
        // SAFETY: the array has so many texts. It ends with NULL, if it is there.
        let first = unsafe { words.as_ref() }.filter(|first| !first.is_null());
        // SAFETY: each entry is a text, which lives as long as the array.
        Ok(first.map_or_else(CString::default, |&first| unsafe { CStr::from_ptr(first) }.to_owned()))
    }

    /// Sets a variable of the task, or of the step before there are tasks.
    pub(crate) fn set_variable(self, name: &str, value: &str) -> Result<(), SlurmError> {
        let name = CString::new(name).unwrap_or_default();
        let value = CString::new(value).unwrap_or_default();
        // SAFETY: Slurm copies both texts.
        check("spank_setenv", unsafe { spank_setenv(self.0, name.as_ptr(), value.as_ptr(), 1) })
    }

    /// Removes a variable. One that is not there is no error.
    pub(crate) fn remove_variable(self, name: &CStr) {
        // SAFETY: Slurm reads the name.
        let _ = unsafe { spank_unsetenv(self.0, name.as_ptr()) };
    }
}

/// Returns the words of the plugin's line in plugstack.conf that are text.
///
/// # Safety
/// `words` points to `count` texts, which live during the call, or `count` is 0.
pub(crate) unsafe fn words<'a>(count: c_int, words: *const *const c_char) -> Vec<&'a str> {
    let count = usize::try_from(count).unwrap_or(0);
    if words.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: guaranteed by the caller.
    let words = unsafe { std::slice::from_raw_parts(words, count) };
    // SAFETY: guaranteed by the caller.
    words.iter().filter_map(|&word| unsafe { text(word) }).collect()
}

/// Returns a text, if there is one and it is UTF-8.
///
/// # Safety
/// `text` is NULL or a text that lives during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if ptr::eq(text, ptr::null()) {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}
