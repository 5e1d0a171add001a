//! Espressif ESP32-C6-DevKitC-1: RISC-V at 160 MHz, 8 MiB of flash, 512 KiB of RAM, with a W5500 module at its pins.

use embassy_executor::Spawner;
use embassy_net_wiznet::Runner;
use embassy_net_wiznet::chip::W5500;
use embassy_time::Delay;
use embedded_hal_bus::spi::ExclusiveDevice;
use esp_hal::Async;
use esp_hal::clock::CpuClock;
use esp_hal::efuse;
use esp_hal::gpio::{Input, InputConfig, Level, Output, OutputConfig, Pull};
use esp_hal::interrupt::software::SoftwareInterruptControl;
use esp_hal::peripherals::TIMG0;
use esp_hal::rng::{Trng, TrngSource};
use esp_hal::spi::master::{Config, Spi};
use esp_hal::time::{Duration, Rate};
use esp_hal::timer::timg::{MwdtStage, TimerGroup, Wdt};

use super::{WATCHDOG, wiznet};

// Espressif's loader starts no image without it.
esp_bootloader_esp_idf::esp_app_desc!();

/// The board's name.
pub(crate) const NAME: &str = "esp32-c6";
/// Ranks of a job.
pub(crate) const RANKS: u32 = 96;
/// Draws of 64 bytes for a random number: twice as much as needed, because nothing tests what the generator says.
pub(crate) const DRAWS: usize = 2;

/// The Ethernet controller.
pub(crate) type Device = embassy_net_wiznet::Device<'static>;
/// The watchdog.
pub(crate) type Watchdog = Wdt<TIMG0<'static>>;
type Bus = ExclusiveDevice<Spi<'static, Async>, Output<'static>, Delay>;

#[embassy_executor::task]
async fn ethernet(runner: Runner<'static, W5500, Bus, Input<'static>, Output<'static>>) -> ! {
    runner.run().await
}

/// Starts the devices.
pub(crate) async fn start(spawner: Spawner) -> (Device, Watchdog) {
    let p = esp_hal::init(esp_hal::Config::default().with_cpu_clock(CpuClock::max()));
    let timers = TimerGroup::new(p.TIMG0);
    let software = SoftwareInterruptControl::new(p.SW_INTERRUPT);
    esp_rtos::start(timers.timer0, software.software_interrupt0);
    let mut watchdog = timers.wdt;
    watchdog.set_timeout(MwdtStage::Stage0, Duration::from_micros(WATCHDOG.as_micros()));
    watchdog.enable();
    // Noise of the converter, for ever: without it, and without a radio, the generator's numbers follow from each other.
    core::mem::forget(TrngSource::new(p.RNG, p.ADC1));
    let config = Config::default().with_frequency(Rate::from_hz(wiznet::SPI_HZ));
    let spi = Spi::new(p.SPI2, config).expect("the clock is one that the bus can have");
    let spi = spi.with_sck(p.GPIO6).with_mosi(p.GPIO7).with_miso(p.GPIO2).into_async();
    let select = Output::new(p.GPIO10, Level::High, OutputConfig::default());
    let bus = ExclusiveDevice::new(spi, select, Delay).unwrap_or_else(|never| match never {});
    let interrupt = Input::new(p.GPIO3, InputConfig::default().with_pull(Pull::Up));
    let reset = Output::new(p.GPIO11, Level::High, OutputConfig::default());
    let address = efuse::base_mac_address();
    let address = *address.as_bytes().first_chunk().expect("an address has six bytes");
    let (device, runner) = wiznet::start(address, bus, interrupt, reset).await;
    spawner.spawn(ethernet(runner).expect("spawned once"));
    (device, watchdog)
}

/// Has the watchdog begin anew.
pub(crate) fn feed(watchdog: &mut Watchdog) {
    watchdog.feed();
}

/// Fills a buffer from the generator of random numbers.
pub(crate) fn random(bytes: &mut [u8]) {
    Trng::try_new().expect("its source is never dropped").read(bytes);
}
