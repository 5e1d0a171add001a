//! WIZnet W5500-EVB-Pico: RP2040, with two Cortex-M0+ of which one is used, 2 MiB of flash, 264 KiB of RAM, and a W5500.

use embassy_executor::Spawner;
use embassy_net_wiznet::Runner;
use embassy_net_wiznet::chip::W5500;
use embassy_rp::bind_interrupts;
use embassy_rp::clocks::RoscRng;
use embassy_rp::dma;
use embassy_rp::flash::Flash;
use embassy_rp::gpio::{Input, Level, Output, Pull};
use embassy_rp::peripherals::{DMA_CH0, DMA_CH1, SPI0};
use embassy_rp::spi::{Async, Config, Spi};
use embassy_time::Delay;
use embedded_hal_bus::spi::ExclusiveDevice;

use super::{WATCHDOG, hardware_address, wiznet};

pub(crate) use embassy_rp::watchdog::Watchdog;

/// The board's name.
pub(crate) const NAME: &str = "w5500-evb-pico";
/// Ranks of a job.
pub(crate) const RANKS: u32 = 64;
/// Draws of 64 bytes for a random number. The ring oscillator is slower than the processor, so most bits equal those before, and
/// nothing tests them: 32,768 bits are hashed to 256.
pub(crate) const DRAWS: usize = 64;
/// Bytes of flash.
const FLASH: usize = 2 << 20;

/// The Ethernet controller.
pub(crate) type Device = embassy_net_wiznet::Device<'static>;
type Bus = ExclusiveDevice<Spi<'static, SPI0, Async>, Output<'static>, Delay>;

bind_interrupts!(struct Irqs {
    DMA_IRQ_0 => dma::InterruptHandler<DMA_CH0>, dma::InterruptHandler<DMA_CH1>;
});

#[embassy_executor::task]
async fn ethernet(runner: Runner<'static, W5500, Bus, Input<'static>, Output<'static>>) -> ! {
    runner.run().await
}

/// Starts the devices.
pub(crate) async fn start(spawner: Spawner) -> (Device, Watchdog) {
    let p = embassy_rp::init(Default::default());
    let mut watchdog = Watchdog::new(p.WATCHDOG);
    watchdog.pause_on_debug(true);
    watchdog.start(WATCHDOG);
    let mut number = [0; 8];
    let mut flash = Flash::<_, _, FLASH>::new_blocking(p.FLASH);
    if let Err(why) = flash.blocking_unique_id(&mut number) {
        defmt::panic!("the flash has no number: {}", defmt::Debug2Format(&why));
    }
    let mut config = Config::default();
    config.frequency = wiznet::SPI_HZ;
    let spi = Spi::new(p.SPI0, p.PIN_18, p.PIN_19, p.PIN_16, p.DMA_CH0, p.DMA_CH1, Irqs, config);
    let bus = ExclusiveDevice::new(spi, Output::new(p.PIN_17, Level::High), Delay);
    let bus = bus.unwrap_or_else(|never| match never {});
    let interrupt = Input::new(p.PIN_21, Pull::Up);
    let reset = Output::new(p.PIN_20, Level::High);
    let (device, runner) = wiznet::start(hardware_address(&number), bus, interrupt, reset).await;
    spawner.spawn(ethernet(runner).expect("spawned once"));
    (device, watchdog)
}

/// Has the watchdog begin anew.
pub(crate) fn feed(watchdog: &mut Watchdog) {
    watchdog.feed(WATCHDOG);
}

/// Fills a buffer from the ring oscillator.
pub(crate) fn random(bytes: &mut [u8]) {
    RoscRng.fill_bytes(bytes);
}
