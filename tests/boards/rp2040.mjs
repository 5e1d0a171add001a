// A W5500-EVB-Pico: rp2040js with the parts of the chip that it lacks, and a model of the W5500 at its pins.
//
//   node rp2040.mjs RP2040JS ELF
//
// Frames go in and out by standard input and output: two bytes of length, most significant first, and the frame. A line on standard
// error says when the board has found its link, and others say what ends it.
import fs from 'node:fs';
import path from 'node:path';

const [library, file] = process.argv.slice(2);
const { RP2040 } = await import(path.join(library, 'dist/esm/index.js'));
const { SimulationClock } = await import(path.join(library, 'dist/esm/clock/simulation-clock.js'));

const NANOS_PER_CYCLE = 8;
const NANOS_PER_BYTE = 256;
const FLASH = 0x10000000;

const clock = new SimulationClock();
const chip = new RP2040(clock);
const say = (text) => process.stderr.write(`${text}\n`);
const end = (why) => {
    say(why);
    process.exit(1);
};
chip.logger = { debug() {}, info() {}, warn() {}, error: (name, text) => say(`${name}: ${text}`) };
chip.onBreak = () => end('a breakpoint');
chip.peripherals[0x40058].onWatchdogTrigger = () => end('the watchdog resets the board');

// Stands for the chip's ROM: the first stack, and a look-up of functions (0x40) that finds one that copies words (0x70), and one that does nothing
// (0x60) for all others, which set up the flash.
const rom = new Uint16Array(2 * chip.bootrom.length);
rom.set([0x1f00, 0x2004]);
rom[0x14 / 2] = 0x100;
rom[0x18 / 2] = 0x41;
rom.set([0x4a03, 0x4291, 0xd001, 0x2061, 0x4770, 0x2071, 0x4770, 0x46c0, 0x3443], 0x40 / 2);
rom.set([0x4770], 0x60 / 2);
rom.set([0x2a00, 0xd005, 0x680b, 0x6003, 0x3104, 0x3004, 0x3a04, 0xe7f7, 0x4770], 0x70 / 2);
chip.loadBootrom(new Uint32Array(rom.buffer));
// The control of the flash's cache, which is at rest.
chip.peripherals[0x14000] = { readUint32: () => 0, writeUint32() {}, writeUint32Atomic() {} };
// The ring oscillator runs, and its bit is random.
chip.peripherals[0x40060].readUint32 = (offset) => (offset === 0x1c ? Math.round(Math.random()) : 0x80001000);
chip.peripherals[0x40060].writeUint32 = () => {};

// Segments of the image, where the flash has them.
const elf = fs.readFileSync(file);
for (let at = elf.readUInt32LE(28), left = elf.readUInt16LE(44); left > 0; at += 32, left--) {
    const [kind, from, , to, size] = [0, 4, 8, 12, 16].map((offset) => elf.readUInt32LE(at + offset));
    if (kind === 1 && size > 0) elf.copy(chip.flash, to - FLASH, from, from + size);
}

/** W5500 whose socket 0 takes frames as they are. Names of registers are those of the data sheet. */
class W5500 {
    common = Buffer.alloc(0x40);
    socket = Buffer.alloc(0x40);
    received = Buffer.alloc(0x4000);
    toSend = Buffer.alloc(0x4000);
    isOpen = false;
    /** Where received bytes are written to, and those to send are read from. Their other ends are in registers. */
    receivedTo = 0;
    sentTo = 0;

    constructor() {
        this.reset();
    }

    reset() {
        this.common.fill(0);
        this.socket.fill(0);
        this.isOpen = false;
        this.receivedTo = 0;
        this.sentTo = 0;
        this.common[0x39] = 4; // VERSIONR
        this.common[0x2e] = 0xbf; // PHYCFGR: a link
    }

    read(block, at) {
        if (block === 0) {
            if (at === 0x2e && this.isOpen) this.onLink?.();
            return this.common[at];
        }
        if (block === 3) return this.received[at & 0x3fff];
        // RX_RSR and TX_FSR: sending takes no time.
        this.socket.writeUInt16BE(this.waiting(), 0x26);
        this.socket.writeUInt16BE(0x4000, 0x20);
        return this.socket[at];
    }

    write(block, at, byte) {
        if (block === 2) this.toSend[at & 0x3fff] = byte;
        else if (block === 1 && at === 1) this.command(byte);
        else if (block === 1 && at === 2) this.socket[2] &= ~byte; // IR
        else if (block === 1) this.socket[at] = byte;
        else if (at === 0 && byte & 0x80) this.reset();
        else this.common[at] = byte;
        this.interrupt();
    }

    command(command) {
        if (command === 1) this.isOpen = true;
        if (command === 0x20) {
            const to = this.socket.readUInt16BE(0x24); // TX_WR
            const frame = Buffer.alloc((to - this.sentTo) & 0xffff);
            frame.forEach((_, at) => (frame[at] = this.toSend[(this.sentTo + at) & 0x3fff]));
            this.sentTo = to;
            this.onFrame(frame);
        }
        if (command === 0x40 && this.waiting() > 0) this.socket[2] |= 4;
    }

    /** Bytes that have been received and not read. */
    waiting() {
        return (this.receivedTo - this.socket.readUInt16BE(0x28)) & 0xffff; // RX_RD
    }

    /** Takes a frame for this address or for all, if there is room. */
    receive(frame) {
        const isMine = frame[0] & 1 || frame.subarray(0, 6).equals(this.common.subarray(9, 15));
        const bytes = Buffer.alloc(2 + frame.length);
        if (!this.isOpen || !isMine || this.waiting() + bytes.length > 0x4000) return;
        bytes.writeUInt16BE(bytes.length);
        frame.copy(bytes, 2);
        for (const byte of bytes) {
            this.received[this.receivedTo & 0x3fff] = byte;
            this.receivedTo = (this.receivedTo + 1) & 0xffff;
        }
        this.socket[2] |= 4;
        this.interrupt();
    }

    interrupt() {
        this.onInterrupt((this.common[0x18] & 1) !== 0 && (this.socket[2] & this.socket[0x2c]) !== 0); // SIMR, IR, IMR
    }
}

const w5500 = new W5500();
let wasFound = false;
w5500.onLink = () => {
    if (!wasFound) say('link');
    wasFound = true;
};
w5500.onInterrupt = (isPending) => chip.gpio[21].setInputValue(!isPending);
w5500.onFrame = (frame) => {
    const length = Buffer.alloc(2);
    length.writeUInt16BE(frame.length);
    process.stdout.write(Buffer.concat([length, frame]));
};
w5500.interrupt();

// A transfer: two bytes of address, one with the block and the direction, and data.
let head = [];
let answer = 0;
const transferred = clock.createAlarm(() => chip.spi[0].completeTransmit(answer));
chip.gpio[17].addListener(() => (head = []));
chip.spi[0].onTransmit = (byte) => {
    answer = 0;
    if (head.length < 3) head.push(byte);
    else {
        const [block, at] = [head[2] >> 3, (head[0] << 8) | head[1]];
        if (head[2] & 4) w5500.write(block, at, byte);
        else answer = w5500.read(block, at);
        [head[0], head[1]] = [((at + 1) >> 8) & 0xff, (at + 1) & 0xff];
    }
    transferred.schedule(NANOS_PER_BYTE);
};

let input = Buffer.alloc(0);
process.stdin.on('end', () => process.exit(0));
process.stdin.on('data', (bytes) => {
    input = Buffer.concat([input, bytes]);
    while (input.length >= 2 && input.length >= 2 + input.readUInt16BE(0)) {
        const length = input.readUInt16BE(0);
        w5500.receive(input.subarray(2, 2 + length));
        input = input.subarray(2 + length);
    }
});

// The board's clock is never ahead of the machine's.
const began = process.hrtime.bigint();
const ahead = () => clock.nanos - Number(process.hrtime.bigint() - began);
chip.core.PC = FLASH;
const run = () => {
    for (let left = 100000; left > 0; left--) {
        if (chip.core.waiting) {
            const spare = -ahead();
            if (spare <= 0) break;
            clock.tick(Math.min(clock.nanosToNextAlarm || spare, spare));
        } else {
            clock.tick(chip.core.executeInstruction() * NANOS_PER_CYCLE);
        }
    }
    if (chip.core.waiting) setTimeout(run, 1);
    else setImmediate(run);
};
run();
