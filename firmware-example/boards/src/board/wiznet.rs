//! W5500: an Ethernet controller behind SPI, which hands frames over as they are.

use embassy_net_wiznet::chip::W5500;
use embassy_net_wiznet::{Device, Runner, State};
use embedded_hal::digital::OutputPin;
use embedded_hal_async::digital::Wait;
use embedded_hal_async::spi::SpiDevice;
use static_cell::ConstStaticCell;

/// Clock of the bus: the data sheet guarantees 33.3 MHz.
pub(super) const SPI_HZ: u32 = 33_000_000;

/// Resets the controller. Returns the device of the network, and what a task is to run.
///
/// # Panics
/// The controller does not answer. The watchdog then has the board try again.
pub(super) async fn start<SPI: SpiDevice, INT: Wait, RST: OutputPin>(
    hardware_address: [u8; 6],
    spi: SPI,
    interrupt: INT,
    reset: RST,
) -> (Device<'static>, Runner<'static, W5500, SPI, INT, RST>) {
    // The controller itself holds 16 KiB of received frames.
    static FRAMES: ConstStaticCell<State<4, 4>> = ConstStaticCell::new(State::new());
    let started = embassy_net_wiznet::new(hardware_address, FRAMES.take(), spi, interrupt, reset);
    started
        .await
        .unwrap_or_else(|why| defmt::panic!("no W5500 on the SPI bus: {}", defmt::Debug2Format(&why)))
}
