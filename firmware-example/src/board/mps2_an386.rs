//! Arm MPS2 with the AN386 image: Cortex-M4, 4 MiB each of flash and RAM, a LAN9118. Register names are those of their
//! manuals.

use super::Registers;

/// The board's name.
pub(crate) const NAME: &str = "mps2-an386";
/// Cycles of SysTick a second.
pub(crate) const CLOCK_HZ: u32 = 25_000_000;
/// The interrupt of the network.
pub(crate) const NIC_IRQ: u16 = 13;
/// The interrupt of the watchdog, which cannot be masked.
pub(crate) const WATCHDOG_IRQ: i16 = -14;

/// The watchdog. It counts cycles of the processor's clock.
pub(super) const WATCHDOG: Registers = Registers(0x4000_8000);

const UART0: Registers = Registers(0x4000_4000);
const UART_DATA: u32 = 0x00;
const UART_STATE: u32 = 0x04;
const UART_STATE_TXFULL: u32 = 1;
const UART_CTRL: u32 = 0x08;
const UART_BAUDDIV: u32 = 0x10;

const LAN: Registers = Registers(0x4020_0000);
const RX_DATA: u32 = 0x00;
const TX_DATA: u32 = 0x20;
const RX_STATUS: u32 = 0x40;
const TX_STATUS: u32 = 0x48;
const IRQ_CFG: u32 = 0x54;
const INT_STS: u32 = 0x58;
const INT_EN: u32 = 0x5C;
const FIFO_INT: u32 = 0x68;
const TX_CFG: u32 = 0x70;
const HW_CFG: u32 = 0x74;
const RX_FIFO_INF: u32 = 0x7C;
const TX_FIFO_INF: u32 = 0x80;
const MAC_CSR_CMD: u32 = 0xA4;
const MAC_CSR_DATA: u32 = 0xA8;

/// Registers behind [`MAC_CSR_CMD`].
const MAC_CR: u32 = 1;
const ADDRH: u32 = 2;
const ADDRL: u32 = 3;

/// The bit of [`MAC_CSR_CMD`] that starts it, and that which makes it a read.
const CSR_BUSY: u32 = 1 << 31;
const CSR_READ: u32 = 1 << 30;
/// Interrupt bit: a frame has been received.
const RX_STATUS_FIFO_LEVEL: u32 = 1 << 3;
/// A received frame is spoilt.
const RX_ERROR: u32 = 1 << 15;
/// Bytes of the check sequence behind a received frame.
const CHECK: usize = 4;
/// A frame in one piece.
const FIRST_AND_LAST: u32 = 0x3000;

/// Enables the devices of the drivers below.
pub(crate) fn start() {
    UART0.write(UART_BAUDDIV, CLOCK_HZ / 115_200);
    UART0.write(UART_CTRL, 1);
}

/// Writes to the serial line.
pub(crate) fn serial_write(bytes: &[u8]) {
    for &byte in bytes {
        while UART0.read(UART_STATE) & UART_STATE_TXFULL != 0 {}
        UART0.write(UART_DATA, u32::from(byte));
    }
}

/// The network's interrupt: quiet until [`Nic::listen`].
pub(crate) fn nic_interrupt() {
    LAN.write(INT_EN, 0);
    LAN.write(INT_STS, u32::MAX);
}

fn mac_read(register: u32) -> u32 {
    LAN.write(MAC_CSR_CMD, CSR_BUSY | CSR_READ | register);
    while LAN.read(MAC_CSR_CMD) & CSR_BUSY != 0 {}
    LAN.read(MAC_CSR_DATA)
}

fn mac_write(register: u32, value: u32) {
    LAN.write(MAC_CSR_DATA, value);
    LAN.write(MAC_CSR_CMD, CSR_BUSY | register);
    while LAN.read(MAC_CSR_CMD) & CSR_BUSY != 0 {}
}

/// The Ethernet controller.
pub(crate) struct Nic {
    mac: [u8; 6],
}

impl Nic {
    /// Starts it. [`start`] has been called.
    pub(crate) fn new() -> Nic {
        LAN.write(HW_CFG, 1);
        while LAN.read(HW_CFG) & 1 != 0 {}
        LAN.write(HW_CFG, 0x0005_0000);
        let [a, b, c, d] = mac_read(ADDRL).to_le_bytes();
        let [e, f, ..] = mac_read(ADDRH).to_le_bytes();
        LAN.write(FIFO_INT, 0x4800_0000);
        LAN.write(INT_STS, u32::MAX);
        LAN.write(IRQ_CFG, 0x111);
        LAN.write(TX_CFG, 2);
        mac_write(MAC_CR, 0x0010_000C);
        Nic { mac: [a, b, c, d, e, f] }
    }

    /// Returns the hardware address of the controller.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Has the interrupt come with the next frame.
    pub(crate) fn listen(&mut self) {
        LAN.write(INT_EN, RX_STATUS_FIFO_LEVEL);
    }

    /// Reads the next frame and returns its length. None if no frame waits. A damaged frame, or one that does not fit,
    /// has length 0.
    pub(crate) fn receive(&mut self, frame: &mut [u8]) -> Option<usize> {
        if (LAN.read(RX_FIFO_INF) >> 16) & 0xFF == 0 {
            return None;
        }
        let status = LAN.read(RX_STATUS);
        let whole = ((status >> 16) & 0x3FFF) as usize;
        let len = whole.saturating_sub(CHECK);
        let good = status & RX_ERROR == 0 && len <= frame.len();
        let mut rest = if good { &mut frame[..len] } else { &mut [] };
        for _ in 0..whole.div_ceil(4) {
            let word = LAN.read(RX_DATA).to_le_bytes();
            let (now, later) = rest.split_at_mut(rest.len().min(4));
            now.copy_from_slice(&word[..now.len()]);
            rest = later;
        }
        Some(if good { len } else { 0 })
    }

    /// Sends a frame of at least a header.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        let len = frame.len() as u32;
        while LAN.read(TX_FIFO_INF) & 0xFFFF < len + 16 {}
        LAN.write(TX_DATA, FIRST_AND_LAST | len);
        LAN.write(TX_DATA, len);
        for chunk in frame.chunks(4) {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            LAN.write(TX_DATA, u32::from_le_bytes(word));
        }
        while (LAN.read(TX_FIFO_INF) >> 16) & 0xFF != 0 {
            LAN.read(TX_STATUS);
        }
    }
}
