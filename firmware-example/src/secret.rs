//! The secret that the board shares with its hosts, from the build, and ephemeral keys.
//!
//! These boards have no source of random numbers. An ephemeral key is a hash of the secret, of memory that survives a reset and
//! begins with what RAM held at power-on, and of the times at which frames have arrived, in ticks of the clock.

use core::cell::Cell;

use critical_section::Mutex;
use hydrant_embedded::noise;

use crate::time;

/// Text of the secret: of the file that `HYDRANT_SECRET_FILE` named at build time.
pub(crate) const TEXT: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/secret.rs"));
/// Whether the board has a secret. Without one it accepts every host.
pub(crate) const IS_SET: bool = TEXT.is_some();

/// Times of events, one mixed into the other.
static TIMES: Mutex<Cell<u64>> = Mutex::new(Cell::new(0));

/// Mixes the time of an event into the next keys.
pub(crate) fn stir() {
    mix(u64::from(time::ticks()));
}

/// Mixes a number into the next keys.
pub(crate) fn mix(number: u64) {
    if IS_SET {
        critical_section::with(|cs| {
            let times = TIMES.borrow(cs);
            let mixed = (times.get() ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            times.set(mixed.rotate_left(29));
        });
    }
}

/// Returns an ephemeral key that this board has not returned before, as far as its memory tells.
pub(crate) fn ephemeral(secret: &[u8; 32]) -> [u8; 32] {
    #[unsafe(link_section = ".uninit.SEED")]
    static mut SEED: [u8; 32] = [0; 32];
    let at = &raw mut SEED;
    let times = critical_section::with(|cs| TIMES.borrow(cs).get()).to_le_bytes();
    let now = (time::millis() << 24 | u64::from(time::ticks())).to_le_bytes();
    // SAFETY: this function runs in the main loop alone, and any bits are a valid seed. The accesses are volatile, because
    // the value survives from the previous start.
    let seed = unsafe { at.read_volatile() };
    let next = noise::hash(&[b"seed", secret, &seed, &times, &now]);
    // SAFETY: as above.
    unsafe { at.write_volatile(next) };
    noise::hash(&[b"key", secret, &next])
}
