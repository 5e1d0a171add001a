#!/usr/bin/env node
// An MPI launcher on hydrant's core as a WebAssembly plugin (docs/wasm-abi.md), with what Node.js brings.
//
//     launch.mjs PLUGIN N PROGRAM [ARGUMENT...]
//
// starts N ranks on this machine and serves each over a socket of its own (PMI_FD). Its exit code is that of the rank
// that failed first, 128 plus the signal's number where it died by one, 1 where the job had to be ended for another reason.
import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import { constants } from "node:os";

const ABI = 1;
const MESSAGE_MAX = 64 << 10;
// Inputs, by their place among their like; outputs and causes have theirs where they are read.
const [JOB, ATTR, OPENED, BYTES, CLOSED, EXITED] = [1, 11, 15, 17, 20, 21];
const CAUSES = ["aborted", "left without finalizing", "died", "left while others wait for it"];

// Numbers as postcard writes them: seven bits a byte, the lowest first. A time has more than 32 bits.
const numbers = (...values) => Buffer.from(values.flatMap(digits));
const digits = (n) => (n < 0x80 ? [n] : [(n % 0x80) | 0x80, ...digits(Math.floor(n / 0x80))]);
const blob = (data) => Buffer.concat([numbers(data.length), Buffer.from(data)]);

// Reads a record from the front.
class Record {
  constructor(bytes) {
    this.rest = bytes;
  }

  take(length) {
    if (length > this.rest.length) throw new Error("the plugin's record ends too early");
    const front = this.rest.subarray(0, length);
    this.rest = this.rest.subarray(length);
    return front;
  }

  number() {
    const [byte] = this.take(1);
    return byte < 0x80 ? byte : (byte & 0x7f) + 0x80 * this.number();
  }
}

function quit(code, why) {
  console.error(`launch.mjs: ${why}`);
  process.exit(code);
}

// The core. It answers calls and can do nothing else.
class Plugin {
  constructor(path, limits) {
    this.exports = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(path))).exports;
    if (this.ask("abi_version") !== ABI) quit(1, `${path} does not speak version ${ABI} of the ABI`);
    [this.input, this.room, this.output] = ["input_address", "input_size", "output_address"].map((at) => this.ask(at));
    this.call("reserve", Buffer.concat([limits, numbers(randomInt(2 ** 32))]));
  }

  ask(name, ...values) {
    return this.exports[`hydrant_${name}`](...values) >>> 0;
  }

  // A copy, since the next call writes another one there.
  record(length) {
    return new Record(Buffer.from(Buffer.from(this.exports.memory.buffer, this.output, length)));
  }

  call(name, record) {
    if (record.length > this.room) throw new Error("the plugin has no room for this record");
    record.copy(Buffer.from(this.exports.memory.buffer, this.input));
    const answer = this.record(this.ask(name, record.length));
    if (answer.number() !== 0) quit(1, `the plugin refuses to ${name}: ${answer.rest.toString("hex")}`);
    return answer;
  }

  // How many bytes were taken, and whether the rest is wanted again once a reply is on its way.
  tell(...parts) {
    const answer = this.call("handle", Buffer.concat([numbers(Math.floor(performance.now())), ...parts]));
    return [answer.number(), answer.number()];
  }
}

const [path, count, program, ...args] = process.argv.slice(2);
const size = Number(count);
if (!program || !Number.isInteger(size) || size < 1) quit(2, "usage: launch.mjs PLUGIN N PROGRAM [ARGUMENT...]");
// Jobs, ranks, connections, keys, bytes of keys and values, groups, names, spawns, bytes of one, sets, links.
const core = new Plugin(path, numbers(1, size, size, 64 * size, size * 65536, 16, 16, 0, 0, 16, 0));
const ranks = []; // By rank: its process, its socket, what the core has not taken, and whether it wants that again.

function fail(code, why) {
  if (!process.exitCode) console.error(`launch.mjs: ${why}`); // The first failure counts.
  process.exitCode ??= code;
}

// One that was never started has no pid, and a signal to it would be one to this process and all its like.
const kill = (killed) => killed.filter(({ child }) => child.pid).forEach(({ child }) => child.kill("SIGKILL"));

function handIn(rank, data) {
  const [taken, again] = core.tell(numbers(BYTES, rank), blob(data), numbers(data.length >= MESSAGE_MAX ? 1 : 0));
  Object.assign(ranks[rank], { held: data.subarray(taken), again });
}

// Does what the core says until it says nothing more.
function obey() {
  for (let length; (length = core.ask("poll")) > 0; ) {
    const says = core.record(length);
    const [what, subject] = [says.number(), says.number()];
    if (what === 0) { // Bytes.
      ranks[subject].socket.write(says.take(says.number()));
      if (ranks[subject].again) handIn(subject, ranks[subject].held);
    } else if (what === 1) { // Close.
      ranks[subject].socket.destroy();
    } else if (what === 5) { // KillRank, in the only job.
      kill([ranks[says.number()]]);
    } else if (what === 6) { // AbortJob.
      const [cause, rank] = [says.number(), says.number()];
      const code = cause === 0 && says.number() ? says.number() >> 1 : 0;
      fail(code || 1, `rank ${rank} ${CAUSES[cause]}: the others are ended`);
      kill(ranks);
    }
  }
}

function start(rank) {
  const env = { ...process.env, PMI_FD: 3, PMI_RANK: rank, PMI_SIZE: size };
  const stdio = [rank === 0 ? "inherit" : "ignore", "inherit", "inherit", "pipe"];
  const child = spawn(program, args, { env, stdio });
  const socket = child.stdio[3];
  ranks.push({ child, socket, held: Buffer.alloc(0), again: 0 });
  core.tell(numbers(OPENED, rank, 0, 1, rank));
  socket.on("data", (data) => {
    // In parts that the plugin has room for behind what it holds.
    for (let at = 0; at < data.length; at += MESSAGE_MAX / 2) {
      handIn(rank, Buffer.concat([ranks[rank].held, data.subarray(at, at + MESSAGE_MAX / 2)]));
      obey();
    }
  });
  socket.on("error", () => {}); // "close" follows.
  socket.on("close", () => { core.tell(numbers(CLOSED, rank)); obey(); });
  child.on("error", (error) => { fail(127, error.message); kill(ranks); });
  // Behind its last words: "close" comes when its socket has closed, too.
  child.on("close", (code, signal) => {
    const exit = signal === null ? [0, code] : [1, constants.signals[signal]];
    if (code !== 0) fail(code ?? 128 + exit[1], `rank ${rank} ended with ${signal ?? code}`);
    core.tell(numbers(EXITED, 0, rank), Buffer.from(exit));
    obey();
  });
}

// Failures end it, nobody spawned it, nothing waits or is warned of: so the core never asks to be woken.
core.tell(numbers(JOB, 0), blob(`job-${process.pid}`), numbers(size, 0, 1, 2, 0, 0, 0, 0, 0));
core.tell(numbers(ATTR, 0), blob("PMI_process_mapping"), blob(`(vector,(0,1,${size}))`));
for (let rank = 0; rank < size; rank++) start(rank);
