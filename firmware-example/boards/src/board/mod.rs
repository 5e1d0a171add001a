//! Boards: pins, clocks and devices. The rest works on each of them.

#[cfg(feature = "esp32-c6")]
mod esp32_c6;
#[cfg(feature = "nucleo-h743zi")]
mod nucleo_h743zi;
#[cfg(feature = "w5500-evb-pico")]
mod w5500_evb_pico;
#[cfg(feature = "wiznet")]
mod wiznet;

use embassy_time::Duration;

#[cfg(feature = "esp32-c6")]
pub(crate) use esp32_c6::*;
#[cfg(feature = "nucleo-h743zi")]
pub(crate) use nucleo_h743zi::*;
#[cfg(feature = "w5500-evb-pico")]
pub(crate) use w5500_evb_pico::*;

/// Time without a turn of the executor until the watchdog resets the board.
const WATCHDOG: Duration = Duration::from_secs(7);

/// Returns the hardware address of a board without one: administered locally, from a number that no other chip has.
#[cfg(feature = "cortex")]
fn hardware_address(number: &[u8]) -> [u8; 6] {
    let [first, rest @ ..] = *hydrant_embedded::noise::hash(&[b"hardware address", number])
        .first_chunk::<6>()
        .expect("a hash has 32 bytes");
    let [a, b, c, d, e] = rest;
    // Of one station, and not of a maker.
    [first & !1 | 2, a, b, c, d, e]
}
