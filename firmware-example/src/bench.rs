//! Benchmark of requests on the board, in clock ticks, printed by semihosting. It replaces the firmware if the feature
//! `bench` is enabled.

use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;
use cortex_m_semihosting::{debug, hprintln};
use hydrant_core::server::{Input, JobSpec, Output};
use hydrant_core::{ConnId, Fault, JobId, Rank, Server, Time};

use crate::{board, memory};

/// Number of repetitions of each request.
const TIMES: u32 = 64;
/// Period of SysTick in ticks.
const ROUND: u32 = 1 << 24;
const NOW: Time = Time(0);

/// A server, and a clock.
struct Bench {
    server: Server<'static>,
    reply: &'static mut [u8],
}

impl Bench {
    fn ask(&mut self, conn: ConnId, bytes: &[u8]) {
        let told = self.server.handle(NOW, Input::Bytes { conn, bytes, full: false });
        assert!(told.is_ok_and(|took| took.bytes as usize == bytes.len()));
        while let Ok(Some(output)) = self.server.poll(self.reply) {
            assert!(!matches!(output, Output::Close { .. }));
        }
    }

    /// The ticks of so many requests, each made by `request` in its buffer.
    fn time(&mut self, name: &str, times: u32, conns: &[u32], request: impl Fn(u32, &mut [u8]) -> usize) {
        let mut ticks = 0;
        for at in 0..times {
            let mut line = [0; 96];
            let len = request(at, &mut line);
            let before = SYST::get_current();
            for &conn in conns {
                self.ask(ConnId(conn), &line[..len]);
            }
            // It counts down.
            ticks += before.wrapping_sub(SYST::get_current()) % ROUND;
        }
        hprintln!("{} {} {} {}", name, times, ticks, board::CLOCK_HZ);
    }
}

/// Prints the ticks of each request and ends the session.
pub(crate) fn run(syst: &mut SYST) -> ! {
    syst.set_clock_source(SystClkSource::Core);
    syst.set_reload(ROUND - 1);
    syst.clear_current();
    syst.enable_counter();
    let done = measure();
    debug::exit(if done.is_ok() { debug::EXIT_SUCCESS } else { debug::EXIT_FAILURE });
    unreachable!("the debugger ends the session")
}

fn measure() -> Result<(), Fault> {
    let (reply, _) = memory::scratch();
    let mut bench = Bench { server: Server::new(memory::LIMITS, memory::storage(), memory::SEED)?, reply };
    let (job, size) = (JobId(0), 8);
    bench.server.handle(NOW, Input::RegisterJob(JobSpec::new(job, "kvs", size)))?;
    for rank in 0..size {
        bench.server.handle(NOW, Input::Opened { conn: ConnId(rank), job, rank: Some(Rank(rank)) })?;
        bench.ask(ConnId(rank), b"cmd=init pmi_version=1 pmi_subversion=1\n");
    }
    // A business card's length.
    bench.time("put", TIMES, &[0], |at, line| {
        text(line, b"cmd=put kvsname=kvs key=card-00 value=", at, &[b'v'; 40])
    });
    bench.time("get", TIMES, &[0], |at, line| text(line, b"cmd=get kvsname=kvs key=card-00", at, b""));
    bench.time("fence-of-8", TIMES, &[0, 1, 2, 3, 4, 5, 6, 7], |_, line| {
        let fence = b"cmd=barrier_in\n";
        line[..fence.len()].copy_from_slice(fence);
        fence.len()
    });
    Ok(())
}

/// Writes a request about key number `at`. Returns its length.
fn text(line: &mut [u8], before: &[u8], at: u32, value: &[u8]) -> usize {
    let digits = [b'0' + (at / 10) as u8, b'0' + (at % 10) as u8];
    line[..before.len()].copy_from_slice(before);
    let key = before.windows(2).position(|two| two == b"00").unwrap_or_default();
    line[key..key + 2].copy_from_slice(&digits);
    let end = before.len() + value.len();
    line[before.len()..end].copy_from_slice(value);
    line[end] = b'\n';
    end + 1
}
