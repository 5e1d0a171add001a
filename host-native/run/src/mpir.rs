//! MPIR Process Acquisition Interface 1.1: the table of processes that debuggers read from an MPI starter process.
//!
//! A debugger that attaches to the starter reads `MPIR_proctable`. A debugger that runs the starter sets
//! `MPIR_being_debugged` and stops at `MPIR_Breakpoint`, where the table is complete. Processes need no gate
//! (`MPIR_partial_attach_ok`): they wait for the starter, which serves them and is stopped.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// Value of `MPIR_debug_state`: the table is complete.
const SPAWNED: c_int = 1;

/// A process of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process<'a> {
    /// Its host.
    pub(crate) host: &'a CStr,
    /// File that it runs.
    pub(crate) program: &'a CStr,
    /// Its process id on that host.
    pub(crate) pid: u32,
}

/// Debugger of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Debugger {
    /// None has set `MPIR_being_debugged`.
    Absent,
    /// One has, and was stopped at `MPIR_Breakpoint`.
    Present,
}

/// `MPIR_PROCDESC`, as debuggers read it.
#[repr(C)]
struct ProcessDescription {
    host_name: *const c_char,
    executable_name: *const c_char,
    pid: c_int,
}

// A debugger reads and writes these. `used` keeps them where this program does not, and keeps their values in memory.

#[used]
// SAFETY: the name belongs to the MPIR interface, and no other crate defines it.
#[unsafe(no_mangle)]
static MPIR_proctable: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
#[used]
// SAFETY: as above.
#[unsafe(no_mangle)]
static MPIR_proctable_size: AtomicI32 = AtomicI32::new(0);
#[used]
// SAFETY: as above.
#[unsafe(no_mangle)]
static MPIR_being_debugged: AtomicI32 = AtomicI32::new(0);
#[used]
// SAFETY: as above.
#[unsafe(no_mangle)]
static MPIR_debug_state: AtomicI32 = AtomicI32::new(0);
#[used]
// SAFETY: as above.
#[unsafe(no_mangle)]
static MPIR_debug_abort_string: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
/// Its presence means that this process starts the job and is no rank of it.
#[used]
// SAFETY: as above.
#[unsafe(no_mangle)]
static MPIR_i_am_starter: AtomicI32 = AtomicI32::new(1);
/// Its presence means that a debugger need not attach to all processes to let them run.
#[used]
// SAFETY: as above.
#[unsafe(no_mangle)]
static MPIR_partial_attach_ok: AtomicI32 = AtomicI32::new(1);

/// A debugger stops here.
// SAFETY: as above.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn MPIR_Breakpoint() {
    black_box(MPIR_debug_state.load(Ordering::Relaxed));
}

/// Shows debuggers these processes, whose position is their rank. Stops at `MPIR_Breakpoint` if a debugger runs this process.
///
/// The table stays in memory until the end of the process.
pub(crate) fn publish(processes: &[Process<'_>]) -> Debugger {
    let mut names = Names(Vec::new());
    let describe = |process: &Process<'_>| ProcessDescription {
        host_name: names.get(process.host),
        executable_name: names.get(process.program),
        pid: process.pid as c_int,
    };
    let table: Vec<ProcessDescription> = processes.iter().map(describe).collect();
    let table = Vec::leak(table);
    MPIR_proctable.store(table.as_mut_ptr().cast(), Ordering::Relaxed);
    MPIR_proctable_size.store(table.len() as c_int, Ordering::Relaxed);
    MPIR_debug_state.store(SPAWNED, Ordering::Relaxed);
    if MPIR_being_debugged.load(Ordering::Relaxed) == 0 {
        return Debugger::Absent;
    }
    black_box(MPIR_Breakpoint as extern "C" fn())();
    Debugger::Present
}

/// Returns whether a debugger runs this process and waits for the table.
pub(crate) fn is_awaited() -> bool {
    MPIR_being_debugged.load(Ordering::Relaxed) != 0
}

/// Texts that the table points to, each stored once in a row of the same.
struct Names(Vec<&'static CStr>);

impl Names {
    fn get(&mut self, name: &CStr) -> *const c_char {
        // Ranks of one host and program are mostly neighbours, so the text is among the latest.
        let known = self.0.iter().rev().take(4).find(|known| **known == name).copied();
        let kept = known.unwrap_or_else(|| {
            let kept: &'static CStr = Box::leak(name.to_owned().into_boxed_c_str());
            self.0.push(kept);
            kept
        });
        kept.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_in_a_row_are_stored_once() {
        let mut names = Names(Vec::new());
        let (a, b) = (names.get(c"n1"), names.get(c"./a.out"));
        assert_eq!((names.get(c"n1"), names.get(c"./a.out")), (a, b));
        assert_eq!(names.0, [c"n1", c"./a.out"]);
    }
}
