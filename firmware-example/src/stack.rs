//! How much of the stack has been in use. It begins at the end of RAM and grows down towards the tables; at the start
//! cortex-m-rt paints it.

unsafe extern "C" {
    static _stack_start: u32;
    static __euninit: u32;
}

/// What it is painted with: cortex-m-rt's `STACK_PAINT_VALUE`.
const PAINT: u32 = 0xCCCC_CCCC;

/// Where to look at most, in bytes: boards with much RAM leave the stack all that is over.
const LOOK: usize = 64 * 1024;

/// The most of it that has been in use, in bytes.
pub(crate) fn used() -> u32 {
    let end = &raw const _stack_start;
    let size = end.addr() - (&raw const __euninit).addr();
    let mut at = end.wrapping_byte_sub(size.min(LOOK));
    // SAFETY: the linker puts both symbols around the stack, which is RAM, and nothing but the stack is there: what is
    // below the stack pointer is nobody's, and what is above is read as it is.
    while at < end && unsafe { at.read_volatile() } == PAINT {
        at = at.wrapping_add(1);
    }
    (end.addr() - at.addr()) as u32
}

/// Stops the board when the stack has reached the tables.
pub(crate) fn check() {
    // SAFETY: as above; a stack of at least one word is there.
    let last = unsafe { (&raw const __euninit).read_volatile() };
    if last != PAINT {
        defmt::panic!("the stack has grown into the tables");
    }
}
