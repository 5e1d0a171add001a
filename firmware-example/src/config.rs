//! Settings of the semihosting command line, such as `size=4`, which a debugger or QEMU provides.

use core::fmt::Write as _;

use cortex_m_semihosting::syscall1;
use heapless::String;
use hydrant_core::manage;
use smoltcp::wire::{Ipv4Address, Ipv4Cidr};

/// Settings of the board.
pub(crate) struct Config {
    /// `address=10.0.2.15/24`
    pub(crate) address: Ipv4Cidr,
    /// `gateway=10.0.2.2`. Without one the board reaches its own network only.
    pub(crate) gateway: Option<Ipv4Address>,
    /// `port=4100`: the management port.
    pub(crate) port: u16,
    /// `pmi-port=4000`: the port of clients.
    pub(crate) pmi_port: u16,
    /// `size=4`: serves a job of this many ranks from the start, and the next one after its end.
    pub(crate) size: Option<u32>,
    /// `jobid=board`: the name of that job.
    pub(crate) jobid: String<{ hydrant_core::limits::JOBID_MAX }>,
}

impl Config {
    /// Returns the settings for QEMU's network without a job.
    fn new() -> Config {
        let mut jobid = String::new();
        // The capacity is more than five bytes.
        let _ = jobid.write_str("board");
        Config {
            address: Ipv4Cidr::new(Ipv4Address::new(10, 0, 2, 15), 24),
            gateway: Some(Ipv4Address::new(10, 0, 2, 2)),
            port: manage::PORT,
            pmi_port: manage::PMI_PORT,
            size: None,
            jobid,
        }
    }

    /// Reads the command line. Invalid words are logged and ignored.
    // As a part of the caller, its temporaries would stay on the stack.
    #[inline(never)]
    pub(crate) fn read() -> Config {
        let mut config = Config::new();
        let mut line = [0; 256];
        for word in command_line(&mut line).split_ascii_whitespace() {
            if let Some((key, value)) = word.split_once('=')
                && config.set(key, value).is_none()
            {
                defmt::warn!("no such setting: {=str}", word);
            }
        }
        config
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "address" => {
                let (address, bits) = value.split_once('/')?;
                let bits = bits.parse().ok().filter(|&bits| bits <= 32)?;
                self.address = Ipv4Cidr::new(address.parse().ok()?, bits);
            }
            "gateway" => self.gateway = Some(value.parse().ok()?),
            "port" => self.port = value.parse().ok().filter(|&port| port > 0)?,
            "pmi-port" => self.pmi_port = value.parse().ok().filter(|&port| port > 0)?,
            "size" => self.size = Some(value.parse().ok()?),
            "jobid" => self.jobid = String::try_from(value).ok()?,
            _ => return None,
        }
        Some(())
    }
}

/// Returns the semihosting command line, or an empty string if there is none.
pub(crate) fn command_line(buf: &mut [u8]) -> &str {
    if !cfg!(feature = "semihosting") {
        return "";
    }
    let mut block = [buf.as_mut_ptr() as usize, buf.len()];
    // SAFETY: SYS_GET_CMDLINE writes at most that many bytes, a NUL included, to the address in the first word of its
    // block, and the length to the second word.
    let failed = unsafe { syscall1!(GET_CMDLINE, block.as_mut_ptr()) };
    let len = if failed == 0 { block[1].min(buf.len()) } else { 0 };
    core::str::from_utf8(&buf[..len]).unwrap_or_default().trim_end_matches('\0')
}
