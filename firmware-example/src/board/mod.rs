//! Boards: devices and their addresses. The rest of the firmware works on each of them.

#[cfg(feature = "lm3s6965evb")]
mod lm3s6965evb;
#[cfg(feature = "lm3s6965evb")]
pub(crate) use lm3s6965evb::*;

#[cfg(feature = "mps2-an386")]
mod mps2_an386;
#[cfg(feature = "mps2-an386")]
pub(crate) use mps2_an386::*;

#[cfg(all(feature = "lm3s6965evb", feature = "mps2-an386"))]
compile_error!("choose one board, not two");

mod watchdog;
pub(crate) use watchdog::*;

/// Longest frame, its header included. The board tells its peers, but QEMU's network ignores that on connections that the board
/// has made. On these the receive buffer limits the frames, too.
pub(crate) const FRAME: usize =
    if cfg!(feature = "links") && !cfg!(feature = "lm3s6965evb") { 1514 } else { 640 };

/// A block of 32-bit registers.
#[derive(Clone, Copy)]
struct Registers(u32);

impl Registers {
    /// Reads the register at that offset.
    fn read(self, offset: u32) -> u32 {
        // SAFETY: the boards' modules name device registers alone, which are always there and may be read in any order.
        unsafe { ((self.0 + offset) as *const u32).read_volatile() }
    }

    /// Writes the register at that offset.
    fn write(self, offset: u32, value: u32) {
        // SAFETY: as above. No register of these devices makes them access memory, so Rust's memory is unchanged.
        unsafe { ((self.0 + offset) as *mut u32).write_volatile(value) }
    }
}
