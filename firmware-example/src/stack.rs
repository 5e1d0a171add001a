//! Stack usage. The stack begins at the end of RAM and grows down towards the tables. cortex-m-rt paints it at the
//! start.

unsafe extern "C" {
    static _stack_start: u32;
    static _stack_end: u32;
}

/// Paint value: cortex-m-rt's `STACK_PAINT_VALUE`.
const PAINT: u32 = 0xCCCC_CCCC;

/// Maximum number of bytes to search. Boards with much RAM have a larger stack.
const LOOK: usize = 64 * 1024;

/// Returns the maximum stack usage, in bytes.
pub(crate) fn used() -> u32 {
    let end = &raw const _stack_start;
    let size = end.addr() - (&raw const _stack_end).addr();
    let mut at = end.wrapping_byte_sub(size.min(LOOK));
    // SAFETY: the linker places both symbols around the stack, which is RAM. Memory below the stack pointer is unused,
    // and memory above it is only read.
    while at < end && unsafe { at.read_volatile() } == PAINT {
        at = at.wrapping_add(1);
    }
    (end.addr() - at.addr()) as u32
}

/// Stops the board when the stack has reached the tables.
pub(crate) fn check() {
    // SAFETY: as above. The stack has at least one word.
    let last = unsafe { (&raw const _stack_end).read_volatile() };
    if last != PAINT {
        defmt::panic!("the stack has grown into the tables");
    }
}
