//! Debugger of a board, over QEMU's stub: puts the firmware into states that it does not reach by itself.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use hydrant_tests::PATIENCE;

/// The program counter's number among the registers.
const PC: usize = 15;

/// Where the program status register is in the text of all registers: behind 16 of 4 bytes, eight of 12, and one of 4
/// that a Cortex-M does not have.
const XPSR: usize = 2 * (16 * 4 + 8 * 12 + 4);
/// What it says of the instruction set, always.
const THUMB: u32 = 1 << 24;
/// The number of the exception whose handler runs, and the state of a block of conditional instructions.
const HANDLER_OR_CONDITION: u32 = 0x0600_FDFF;

/// A debugger, which the board stands still for as long as it likes.
pub(crate) struct Gdb {
    stub: UnixStream,
}

impl Gdb {
    /// Attaches to a board, which stops it.
    pub(crate) fn attach(socket: &Path) -> Gdb {
        let stub = UnixStream::connect(socket).unwrap_or_else(|e| panic!("{}: {e}", socket.display()));
        stub.set_read_timeout(Some(PATIENCE / 4)).expect("the time is not 0");
        let mut gdb = Gdb { stub };
        // For all threads, of which a board has one. What QEMU says of the stop comes before the answer.
        gdb.done("Hg0");
        gdb
    }

    /// Whether the board has stopped between two instructions of a program, which any others may follow: not in the
    /// handler of an exception, which no interrupt of the same priority ends.
    pub(crate) fn may_jump(&mut self) -> bool {
        self.say("g");
        let all = self.packet();
        let text = all.get(XPSR..XPSR + 8).unwrap_or_else(|| panic!("no program status register in {all}"));
        let xpsr = u32::from_str_radix(text, 16).expect("registers are hexadecimal").swap_bytes();
        assert_ne!(xpsr & THUMB, 0, "{xpsr:#x} is no program status register");
        xpsr & HANDLER_OR_CONDITION == 0
    }

    /// Has the board go on at `address`.
    pub(crate) fn jump(&mut self, address: u32) {
        self.set(PC, address);
    }

    /// Sets register number `register`: all of them are read and written, because QEMU takes a single one only from
    /// those who have read its description of them.
    pub(crate) fn set(&mut self, register: usize, value: u32) {
        self.say("g");
        let mut all = self.packet();
        all.replace_range(8 * register..8 * (register + 1), &format!("{:08x}", value.swap_bytes()));
        self.done(&format!("G{all}"));
    }

    /// Writes to the board's memory.
    pub(crate) fn write(&mut self, address: u32, bytes: &[u8]) {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.done(&format!("M{address:x},{:x}:{text}", bytes.len()));
    }

    /// Stops the board when it comes to `address`, which is even.
    pub(crate) fn break_at(&mut self, address: u32) {
        self.done(&format!("Z0,{address:x},2"));
    }

    /// Has the board go on, until it stops where it is to.
    pub(crate) fn run_to_break(&mut self) {
        self.say("c");
        let stopped = self.packet();
        assert!(stopped.starts_with("T05"), "{stopped}");
    }

    /// Has the board go on by itself.
    pub(crate) fn detach(mut self) {
        self.done("D");
    }

    /// Says what is answered with `OK`.
    #[track_caller]
    fn done(&mut self, command: &str) {
        self.say(command);
        let mut answer = self.packet();
        while answer.starts_with('T') {
            answer = self.packet();
        }
        assert_eq!(answer, "OK", "{command}");
    }

    fn say(&mut self, command: &str) {
        let sum = command.bytes().fold(0, u8::wrapping_add);
        self.stub.write_all(format!("${command}#{sum:02x}").as_bytes()).expect("QEMU reads");
    }

    /// The next packet, without the `$`, the `#` and the sum that are around it, and the acknowledgements before it.
    fn packet(&mut self) -> String {
        let mut packet = Vec::new();
        while packet.last() != Some(&b'#') {
            let mut byte = [0];
            self.stub.read_exact(&mut byte).unwrap_or_else(|e| panic!("no packet from QEMU: {e}"));
            packet.push(byte[0]);
        }
        self.stub.read_exact(&mut [0; 2]).expect("the packet's sum");
        // QEMU may have ended behind it.
        let _ = self.stub.write_all(b"+");
        let packet = String::from_utf8(packet).expect("packets are text");
        packet.trim_start_matches('+').trim_matches(['$', '#']).to_owned()
    }
}
