//! Barriers, and the processes of a node.

use std::ffi::{c_char, c_int};
use std::fmt::Write;

use hydrant_client::c::{CallError, Code, OutBuffer, array, count, text};
use hydrant_client::ranks_on_node_of;
use hydrant_wire::{Command, Group, Members, RankList, Text};

use super::{call, number, report};
use crate::process::Process;

/// Addresses that `PMI_Barrier_group` takes in place of a list: `PMI_GROUP_WORLD`, `PMI_GROUP_SELF`, `PMI_GROUP_NODE`.
const WORLD: usize = 0;
const SELF: usize = 1;
const NODE: usize = 2;

/// Waits for all processes of the job.
#[unsafe(no_mangle)]
pub extern "C" fn PMI_Barrier() -> c_int {
    call("PMI_Barrier", || Process::current()?.execute(&Command::Fence { group: None }))
}

/// Waits for some processes of the job.
///
/// # Safety
/// `group` is one of the constants of pmi.h or an array of `count` ranks; `tag` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Barrier_group(group: *const c_int, count_: c_int, tag: *const c_char) -> c_int {
    call("PMI_Barrier_group", || {
        let process = Process::current()?;
        if process.subversion < 2 {
            return Err(CallError::Unsupported("the PMI server has no group barriers: it speaks PMI 1.1"));
        }
        // SAFETY: a valid pointer by the contract of pmi.h.
        let tag = unsafe { text(tag) }.map_or(0, hash);
        let fence = |members| process.execute(&Command::Fence { group: Some(Group { members, tag }) });
        match group.addr() {
            WORLD => fence(Members::World),
            SELF => Ok(()),
            NODE => fence(Members::Node),
            _ => {
                // SAFETY: a valid pointer by the contract of pmi.h.
                let ranks = unsafe { array(group, count(count_, Code::InvalidArg)?) }.unwrap_or_default();
                let list = list(ranks)?;
                let ranks = RankList::new(list.as_bytes());
                fence(Members::Ranks(
                    ranks.ok_or(CallError::Argument(Code::InvalidArg, "the group is empty"))?,
                ))
            }
        }
    })
}

/// Writes ranks with commas.
fn list(ranks: &[c_int]) -> Result<String, CallError> {
    let mut list = String::new();
    for (i, &rank) in ranks.iter().enumerate() {
        let rank = u32::try_from(rank);
        let rank = rank.map_err(|_| CallError::Argument(Code::InvalidArg, "a rank is negative"))?;
        let comma = if i == 0 { "" } else { "," };
        write!(list, "{comma}{rank}").expect("a String takes any text");
    }
    Ok(list)
}

/// Returns the number that stands for a tag: FNV-1a without the sign, as MPICH's client computes it.
fn hash(tag: &[u8]) -> u32 {
    let hash =
        tag.iter().fold(2_166_136_261_u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619));
    hash.cast_signed().unsigned_abs()
}

/// Returns the ranks of the job that share the node of this process.
fn clique(process: &Process) -> Result<Vec<c_int>, CallError> {
    let identity = process.identity;
    let mapping = process.get(Text::from(process.kvsname.as_str()), Text::from("PMI_process_mapping"));
    let mapping = mapping.ok().and_then(|mapping| String::from_utf8(mapping).ok());
    let ranks = mapping.and_then(|mapping| ranks_on_node_of(&mapping, identity.rank, identity.size));
    Ok(ranks.ok_or(CallError::NoNodeSize)?.into_iter().map(number).collect())
}

/// Gets the number of processes of the job that share the node.
///
/// # Safety
/// `size` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_clique_size(size: *mut c_int) -> c_int {
    let size_of = |process: &Process| Ok(c_int::try_from(clique(process)?.len()).unwrap_or(c_int::MAX));
    // SAFETY: a valid pointer by the contract of pmi.h.
    unsafe { report("PMI_Get_clique_size", size, size_of) }
}

/// Gets the ranks of the job that share the node.
///
/// # Safety
/// `ranks` is NULL or an array of `length` integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_clique_ranks(ranks: *mut c_int, length: c_int) -> c_int {
    call("PMI_Get_clique_ranks", || {
        let process = Process::current()?;
        // SAFETY: a valid pointer by the contract of pmi.h.
        let buffer = unsafe { OutBuffer::nonempty(ranks, length, Code::InvalidLength)? };
        let clique = clique(&process)?;
        if buffer.put(&clique) == clique.len() { Ok(()) } else { Err(CallError::Truncated) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ranks() {
        assert_eq!(list(&[3, 0, 12]).unwrap(), "3,0,12");
        assert_eq!(list(&[]).unwrap(), "");
        assert!(list(&[1, -1]).is_err());
    }

    #[test]
    fn tags_are_numbers_that_an_int_holds() {
        assert_eq!(hash(b"").cast_signed(), 2_128_831_035);
        assert_eq!(hash(b"a"), 0xe40c_292c_u32.cast_signed().unsigned_abs());
        assert!((0..=255_u8).all(|byte| hash(&[byte]) <= i32::MAX.unsigned_abs()));
    }
}
