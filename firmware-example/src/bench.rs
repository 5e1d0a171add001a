//! Benchmark of a sequence of inputs on the board: what each costs the core, in ticks of the clock. It replaces the firmware if
//! the feature `bench` is enabled.
//!
//! The second word of the command line is a file of the debugger's machine: records, each after its length in four bytes.
//! [`Record::Begin`] begins a sequence with a new server. Each [`Record::Input`] is answered by a line: the ticks until the
//! server has nothing more to say, and the bytes of its replies. Without a file the limits of the board are printed.
//! `handshake` and a file with the first message of a host that has the secret [`TEXT`] measure Noise: an answer, and the
//! encryption of a record.

use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;
use cortex_m_semihosting::{debug, hprint, hprintln, syscall};
use hydrant_core::server::{Input, Output, Record};
use hydrant_core::{Fault, Server, Time, manage};
use hydrant_embedded::{Board as _, noise};

use crate::memory::ThisBoard;
use crate::{board, config, memory};

/// Text of the secret of [`handshake`].
const TEXT: &[u8] = b"0123456789abcdef";
/// Period of SysTick in ticks.
const ROUND: u32 = 1 << 24;
/// Longest record. Some inputs are longer than the buffers of the firmware.
const RECORD_MAX: usize = 16 * 1024;

/// File of the debugger's machine.
struct File(usize);

impl File {
    fn open(path: &str) -> Option<File> {
        let mut name = [0; 256];
        name.get_mut(..path.len())?.copy_from_slice(path.as_bytes());
        // SAFETY: SYS_OPEN reads the path, which ends with a NUL behind its length. Mode 1 is `rb`.
        let handle = unsafe { syscall!(OPEN, name.as_ptr(), 1, path.len()) };
        (handle as isize != -1).then_some(File(handle))
    }

    /// Fills the buffer. Returns false at the end of the file.
    fn read(&self, buf: &mut [u8]) -> bool {
        // SAFETY: SYS_READ writes at most that many bytes to the buffer.
        let missing = unsafe { syscall!(READ, self.0, buf.as_mut_ptr(), buf.len()) };
        missing == 0
    }
}

/// Prints the ticks of each input and ends the session.
pub(crate) fn run(syst: &mut SYST) -> ! {
    syst.set_clock_source(SystClkSource::Core);
    syst.set_reload(ROUND - 1);
    syst.clear_current();
    syst.enable_counter();
    let mut line = [0; 256];
    let mut words = config::command_line(&mut line).split_ascii_whitespace().skip(1);
    let done = match (words.next(), words.next()) {
        (Some("handshake"), Some(path)) => handshake(path),
        (Some(path), _) => play(path),
        (None, _) => print_limits(),
    };
    debug::exit(if done.is_some() { debug::EXIT_SUCCESS } else { debug::EXIT_FAILURE });
    unreachable!("the debugger ends the session")
}

/// Prints the limits as postcard in hexadecimal.
fn print_limits() -> Option<()> {
    let mut buf = [0; 128];
    for byte in postcard::to_slice(&ThisBoard::LIMITS, &mut buf).ok()? {
        hprint!("{:02x}", byte);
    }
    hprintln!();
    Some(())
}

/// Answers a host, encrypts a record of 64 bytes and one of the longest, and does both parts of a handshake with another board.
fn handshake(path: &str) -> Option<()> {
    let file = File::open(path)?;
    let mut first = [0; noise::MESSAGE];
    file.read(&mut first).then_some(())?;
    let key = noise::secret(TEXT);
    hprintln!("{}", board::CLOCK_HZ);
    let before = SYST::get_current();
    let (mut transport, _) = noise::answer(&key, &first, || [7; 32]).ok()?;
    hprintln!("{}", before.wrapping_sub(SYST::get_current()) % ROUND);
    let mut buf = [0; manage::PREFIX + manage::RECORD_MAX + noise::OVERHEAD];
    for len in [64, manage::PREFIX + manage::RECORD_MAX] {
        let before = SYST::get_current();
        transport.seal(&mut buf, len).ok()?;
        hprintln!("{}", before.wrapping_sub(SYST::get_current()) % ROUND);
    }
    let before = SYST::get_current();
    let (mut initiator, first) = noise::begin(&key, [8; 32]).ok()?;
    let begun = before.wrapping_sub(SYST::get_current()) % ROUND;
    let (_, second) = noise::answer(&key, &first, || [7; 32]).ok()?;
    let before = SYST::get_current();
    initiator.complete(&second).ok()?;
    hprintln!("{}", begun + before.wrapping_sub(SYST::get_current()) % ROUND);
    Some(())
}

/// Plays a file of records.
fn play(path: &str) -> Option<()> {
    let file = File::open(path)?;
    let [reply, _] = memory::scratch();
    let tables = memory::tables();
    let mut server = Server::new(ThisBoard::LIMITS, tables.lend(), hydrant_embedded::SEED).ok()?;
    hprintln!("{}", board::CLOCK_HZ);
    let (mut len, mut record) = ([0; 4], [0; RECORD_MAX]);
    while file.read(&mut len) {
        let record = record.get_mut(..u32::from_le_bytes(len) as usize)?;
        if !file.read(record) {
            return None;
        }
        match postcard::from_bytes(record).ok()? {
            Record::Begin { .. } => server.restart().then_some(())?,
            Record::Input { now, input } => {
                // SysTick counts down.
                let before = SYST::get_current();
                let said = apply(&mut server, now, input, reply).ok()?;
                let ticks = before.wrapping_sub(SYST::get_current()) % ROUND;
                hprintln!("{} {}", ticks, said);
            }
            _ => {}
        }
    }
    Some(())
}

/// Gives the server an input, and takes all outputs. Returns the bytes of its replies. A refused input is none of a failure:
/// hosts may make mistakes.
fn apply(server: &mut Server<'_>, now: Time, input: Input<'_>, reply: &mut [u8]) -> Result<usize, Fault> {
    let mut said = 0;
    // The caller compares what comes of it.
    let _ = server.handle(now, input);
    let _ = server.take_limit_hit();
    while let Some(output) = server.poll(reply)? {
        if let Output::Bytes { bytes, .. } = output {
            said += bytes.len();
        }
    }
    Ok(said)
}
