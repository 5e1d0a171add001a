//! ST Nucleo-H743ZI: STM32H743, with a Cortex-M7 at 400 MHz, 2 MiB of flash, 1 MiB of RAM in several places, Ethernet on the chip.

use core::cell::RefCell;

use critical_section::Mutex;
use embassy_executor::Spawner;
use embassy_stm32::eth::{self, Ethernet, GenericPhy, PacketQueue, Sma};
use embassy_stm32::peripherals::{self, ETH, ETH_SMA, IWDG1};
use embassy_stm32::rng::{self, Rng};
use embassy_stm32::wdg::IndependentWatchdog;
use embassy_stm32::{Config, bind_interrupts, uid};
use static_cell::ConstStaticCell;

use super::{WATCHDOG, hardware_address};

/// The board's name.
pub(crate) const NAME: &str = "nucleo-h743zi";
/// Ranks of a job.
pub(crate) const RANKS: u32 = 128;
/// Draws of 64 bytes for a random number: the generator tests what it says.
pub(crate) const DRAWS: usize = 1;

/// The Ethernet controller.
pub(crate) type Device = Ethernet<'static, ETH, GenericPhy<Sma<'static, ETH_SMA>>>;
/// The watchdog.
pub(crate) type Watchdog = IndependentWatchdog<'static, IWDG1>;

bind_interrupts!(struct Irqs {
    ETH => eth::InterruptHandler;
    RNG => rng::InterruptHandler<peripherals::RNG>;
});

/// The generator of random numbers.
static GENERATOR: Mutex<RefCell<Option<Rng<'static, peripherals::RNG>>>> = Mutex::new(RefCell::new(None));

/// Clocks: 400 MHz from the internal oscillator, and 48 MHz for the generator of random numbers.
fn clocks() -> Config {
    use embassy_stm32::rcc::{
        AHBPrescaler, APBPrescaler, HSIPrescaler, Pll, PllDiv, PllMul, PllPreDiv, PllSource, Sysclk,
        VoltageScale,
    };
    let mut config = Config::default();
    let rcc = &mut config.rcc;
    rcc.hsi = Some(HSIPrescaler::DIV1);
    // For the compensation of fast pins.
    rcc.csi = true;
    rcc.hsi48 = Some(Default::default());
    rcc.pll1 = Some(Pll {
        source: PllSource::HSI,
        prediv: PllPreDiv::DIV4,
        mul: PllMul::MUL50,
        fracn: None,
        divp: Some(PllDiv::DIV2),
        divq: None,
        divr: None,
    });
    rcc.sys = Sysclk::PLL1_P;
    rcc.ahb_pre = AHBPrescaler::DIV2;
    rcc.apb1_pre = APBPrescaler::DIV2;
    rcc.apb2_pre = APBPrescaler::DIV2;
    rcc.apb3_pre = APBPrescaler::DIV2;
    rcc.apb4_pre = APBPrescaler::DIV2;
    rcc.voltage_scale = VoltageScale::Scale1;
    config
}

/// Starts the devices.
pub(crate) async fn start(_: Spawner) -> (Device, Watchdog) {
    static FRAMES: ConstStaticCell<PacketQueue<8, 16>> = ConstStaticCell::new(PacketQueue::new());
    let p = embassy_stm32::init(clocks());
    let mut core = cortex_m::Peripherals::take().expect("taken once");
    // The cache for data stays off: it would hide the frames that the controller writes.
    core.SCB.enable_icache();
    let mut watchdog = IndependentWatchdog::new(p.IWDG1, WATCHDOG.as_micros() as u32);
    watchdog.unleash();
    let generator = Rng::new(p.RNG, Irqs);
    critical_section::with(|cs| GENERATOR.borrow_ref_mut(cs).replace(generator));
    let device = Ethernet::new(
        FRAMES.take(),
        p.ETH,
        Irqs,
        p.PA1,
        p.PA7,
        p.PC4,
        p.PC5,
        p.PG13,
        p.PB13,
        p.PG11,
        hardware_address(&uid::uid()),
        p.ETH_SMA,
        p.PA2,
        p.PC1,
    );
    (device, watchdog)
}

/// Has the watchdog begin anew.
pub(crate) fn feed(watchdog: &mut Watchdog) {
    watchdog.pet();
}

/// Fills a buffer from the generator of random numbers.
pub(crate) fn random(bytes: &mut [u8]) {
    critical_section::with(|cs| {
        let mut generator = GENERATOR.borrow_ref_mut(cs);
        generator.as_mut().expect("started with the other devices").fill_bytes(bytes);
    });
}
