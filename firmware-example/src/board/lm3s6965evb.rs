//! Texas Instruments LM3S6965: Cortex-M3, 256 KiB of flash, 64 KiB of RAM, 10/100 Ethernet. Register names are those
//! of its data sheet.

use super::Registers;

/// The board's name.
pub(crate) const NAME: &str = "lm3s6965evb";
/// Cycles of SysTick a second.
pub(crate) const CLOCK_HZ: u32 = 12_500_000;
/// The interrupt of the network.
pub(crate) const NIC_IRQ: u16 = 42;
/// The interrupt of the watchdog.
pub(crate) const WATCHDOG_IRQ: i16 = 18;

const SYSTEM: Registers = Registers(0x400F_E000);
const RCGC0: u32 = 0x100;
const RCGC0_WDT: u32 = 1 << 3;
const RCGC1: u32 = 0x104;
const RCGC2: u32 = 0x108;

const UART0: Registers = Registers(0x4000_C000);
const UART_DR: u32 = 0x00;
const UART_FR: u32 = 0x18;
const UART_FR_TXFF: u32 = 1 << 5;
const UART_CTL: u32 = 0x30;

/// The watchdog. It counts cycles of the processor's clock.
pub(super) const WATCHDOG: Registers = Registers(0x4000_0000);
const WDTTEST: u32 = 0x418;
/// It stands still while a debugger has stopped the processor.
const WDTTEST_STALL: u32 = 1 << 8;

const MAC: Registers = Registers(0x4004_8000);
const MAC_IACK: u32 = 0x00;
const MAC_IM: u32 = 0x04;
const MAC_RCTL: u32 = 0x08;
const MAC_TCTL: u32 = 0x0C;
const MAC_DATA: u32 = 0x10;
const MAC_IA0: u32 = 0x14;
const MAC_IA1: u32 = 0x18;
const MAC_THR: u32 = 0x1C;
const MAC_NP: u32 = 0x34;
const MAC_TR: u32 = 0x38;

/// Bytes that the card puts around a received frame: its length in front, the check sequence behind.
const AROUND: usize = 6;
/// Bytes of an Ethernet header, which the length of a frame to be sent does not count.
const HEADER: usize = 14;

/// Enables the devices of the drivers below.
pub(crate) fn start() {
    SYSTEM.write(RCGC0, RCGC0_WDT);
    SYSTEM.write(RCGC1, 1);
    SYSTEM.write(RCGC2, 0x5000_0000);
    UART0.write(UART_CTL, 0x301);
    WATCHDOG.write(WDTTEST, WDTTEST_STALL);
}

/// Writes to the serial line.
pub(crate) fn serial_write(bytes: &[u8]) {
    for &byte in bytes {
        while UART0.read(UART_FR) & UART_FR_TXFF != 0 {}
        UART0.write(UART_DR, u32::from(byte));
    }
}

/// The network's interrupt: quiet until [`Nic::listen`].
pub(crate) fn nic_interrupt() {
    MAC.write(MAC_IM, 0);
    MAC.write(MAC_IACK, 0x7F);
}

/// The Ethernet controller.
pub(crate) struct Nic {
    mac: [u8; 6],
}

impl Nic {
    /// Starts it. [`start`] has been called.
    pub(crate) fn new() -> Nic {
        MAC.write(MAC_RCTL, 0x10);
        MAC.write(MAC_IM, 0);
        let [a, b, c, d] = MAC.read(MAC_IA0).to_le_bytes();
        let [e, f, ..] = MAC.read(MAC_IA1).to_le_bytes();
        MAC.write(MAC_THR, 0x3F);
        MAC.write(MAC_TCTL, 0x0F);
        MAC.write(MAC_RCTL, 1);
        MAC.write(MAC_IACK, 0x7F);
        Nic { mac: [a, b, c, d, e, f] }
    }

    /// Returns the hardware address of the controller.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Has the interrupt come with the next frame.
    pub(crate) fn listen(&mut self) {
        MAC.write(MAC_IM, 1);
    }

    /// Reads the next frame and returns its length. None if no frame waits. A frame that does not fit has length 0.
    pub(crate) fn receive(&mut self, frame: &mut [u8]) -> Option<usize> {
        if MAC.read(MAC_NP) == 0 {
            return None;
        }
        let first = MAC.read(MAC_DATA);
        let [low, high, a, b] = first.to_le_bytes();
        let whole = usize::from(u16::from_le_bytes([low, high]));
        let words = whole.div_ceil(4).saturating_sub(1);
        let len = whole.saturating_sub(AROUND);
        let room = if len <= frame.len() { &mut frame[..len] } else { &mut [] };
        let (front, mut rest) = room.split_at_mut(room.len().min(2));
        front.copy_from_slice(&[a, b][..front.len()]);
        for _ in 0..words {
            let word = MAC.read(MAC_DATA).to_le_bytes();
            let (now, later) = rest.split_at_mut(rest.len().min(4));
            now.copy_from_slice(&word[..now.len()]);
            rest = later;
        }
        Some(if len <= frame.len() { len } else { 0 })
    }

    /// Sends a frame of at least a header.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        while MAC.read(MAC_TR) != 0 {}
        let (first, rest) = frame.split_at(2);
        let len = (frame.len() - HEADER) as u16;
        let [low, high] = len.to_le_bytes();
        MAC.write(MAC_DATA, u32::from_le_bytes([low, high, first[0], first[1]]));
        for chunk in rest.chunks(4) {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            MAC.write(MAC_DATA, u32::from_le_bytes(word));
        }
        MAC.write(MAC_TR, 1);
    }
}
