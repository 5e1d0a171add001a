#!/usr/bin/env node
// MPI launcher that serves PMI with hydrant.wasm (docs/wasm-abi.md) in Node.js.
//
//     launch.mjs PLUGIN N PROGRAM [ARGUMENT...]
//
// starts N ranks on this machine and serves each over a socket of its own (PMI_FD). The exit code is that of the rank that
// failed first, 128 + N if signal N killed it or ended the launcher, and 1 if the job was aborted for another reason. The ranks
// are killed when the launcher ends, on Linux also when it is killed.
import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import { constants } from "node:os";

const ABI = 2;
const MESSAGE_MAX = 64 << 10;
// Variant numbers of inputs. Those of outputs and causes are in handleOutputs.
const [REGISTER_JOB, ATTR, OPENED, BYTES, CLOSED, EXITED] = [1, 11, 15, 17, 20, 21];
const CAUSES = ["aborted", "left without finalizing", "died", "left before a collective that waits for it"];

// Encodes numbers as postcard varints: seven bits a byte, lowest first. A time has more than 32 bits.
const numbers = (...values) => Buffer.from(values.flatMap(digits));
const digits = (n) => (n < 0x80 ? [n] : [(n % 0x80) | 0x80, ...digits(Math.floor(n / 0x80))]);
const blob = (data) => Buffer.concat([numbers(data.length), Buffer.from(data)]);

// Decoder of a record.
class Record {
  constructor(bytes) {
    this.rest = bytes;
  }

  take(length) {
    if (length > this.rest.length) throw new Error("the plugin's record is truncated");
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

// Instance of the plugin, with one server.
class Plugin {
  constructor(path, limits) {
    this.exports = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(path))).exports;
    if (this.export("abi_version") !== ABI) quit(1, `${path} has another ABI version than ${ABI}`);
    [this.input, this.inputSize, this.output] = ["input_address", "input_size", "output_address"].map((at) => this.export(at));
    this.call("reserve", Buffer.concat([limits, numbers(randomInt(2 ** 32))]));
  }

  export(name, ...values) {
    return this.exports[`hydrant_${name}`](...values) >>> 0;
  }

  // A copy, because the next call overwrites the buffer.
  record(length) {
    return new Record(Buffer.from(Buffer.from(this.exports.memory.buffer, this.output, length)));
  }

  call(name, record) {
    if (record.length > this.inputSize) throw new Error("record longer than the plugin's input buffer");
    record.copy(Buffer.from(this.exports.memory.buffer, this.input));
    const result = this.record(this.export(name, record.length));
    if (result.number() !== 0) quit(1, `${name} failed: ${result.rest.toString("hex")}`);
    return result;
  }

  // Applies an input. Returns Consumed: the number of bytes, and whether to send the rest again after a reply.
  handle(...parts) {
    const result = this.call("handle", Buffer.concat([numbers(Math.floor(performance.now())), ...parts]));
    return [result.number(), result.number()];
  }
}

const [path, count, program, ...args] = process.argv.slice(2);
const size = Number(count);
if (!program || !Number.isInteger(size) || size < 1) quit(2, "usage: launch.mjs PLUGIN N PROGRAM [ARGUMENT...]");
// Limits: jobs, ranks, conns, keys, kvs_bytes, groups, names, spawns, spawn_bytes, psets, links.
const server = new Plugin(path, numbers(1, size, size, 64 * size, size * 65536, 16, 16, 0, 0, 16, 0, 0));
const ranks = []; // By rank: process, socket, bytes that were not consumed, and whether to send them again.

function fail(code, why) {
  if (!process.exitCode) console.error(`launch.mjs: ${why}`); // Only the first failure is reported.
  process.exitCode ??= code;
}

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.on(signal, () => { fail(128 + constants.signals[signal], `ended by ${signal}`); kill(ranks); });
}

// A process that did not start has no pid. Killing it would send the signal to this process group.
const kill = (killed) => killed.filter(({ child }) => child.pid).forEach(({ child }) => child.kill("SIGKILL"));

function sendBytes(rank, data) {
  const [taken, again] = server.handle(numbers(BYTES, rank), blob(data), numbers(data.length >= MESSAGE_MAX ? 1 : 0));
  Object.assign(ranks[rank], { held: data.subarray(taken), again });
}

// Carries out the server's outputs until there are none.
function handleOutputs() {
  for (let length; (length = server.export("poll")) > 0; ) {
    const output = server.record(length);
    const [what, subject] = [output.number(), output.number()];
    if (what === 0) { // Bytes.
      ranks[subject].socket.write(output.take(output.number()));
      if (ranks[subject].again) sendBytes(subject, ranks[subject].held);
    } else if (what === 1) { // Close.
      ranks[subject].socket.destroy();
    } else if (what === 5) { // KillRank. There is one job.
      kill([ranks[output.number()]]);
    } else if (what === 6) { // AbortJob.
      const [cause, rank] = [output.number(), output.number()];
      const code = cause === 0 && output.number() ? output.number() >> 1 : 0;
      fail(code || 1, `rank ${rank} ${CAUSES[cause]}: the other ranks are killed`);
      kill(ranks);
    }
  }
}

// Has the kernel kill a rank when the launcher ends. Node cannot run code in a new process before its program.
const dieWithLauncher = process.platform === "linux" ? ["setpriv", "--pdeathsig", "KILL", "--"] : [];

function start(rank) {
  const env = { ...process.env, PMI_FD: 3, PMI_RANK: rank, PMI_SIZE: size };
  const stdio = [rank === 0 ? "inherit" : "ignore", "inherit", "inherit", "pipe"];
  const [command, ...rest] = [...dieWithLauncher, program, ...args];
  const child = spawn(command, rest, { env, stdio });
  const socket = child.stdio[3];
  ranks.push({ child, socket, held: Buffer.alloc(0), again: 0 });
  server.handle(numbers(OPENED, rank, 0, 1, rank));
  socket.on("data", (data) => {
    // In parts that fit into the input buffer together with the bytes that were not consumed.
    for (let at = 0; at < data.length; at += MESSAGE_MAX / 2) {
      sendBytes(rank, Buffer.concat([ranks[rank].held, data.subarray(at, at + MESSAGE_MAX / 2)]));
      handleOutputs();
    }
  });
  socket.on("error", () => {}); // "close" follows.
  socket.on("close", () => { server.handle(numbers(CLOSED, rank)); handleOutputs(); });
  child.on("error", (error) => { fail(127, error.message); kill(ranks); });
  // "close" follows the end of the socket, so everything that the rank sent has been handled.
  child.on("close", (code, signal) => {
    const exit = signal === null ? [0, code] : [1, constants.signals[signal]];
    if (code !== 0) fail(code ?? 128 + exit[1], `rank ${rank} ended with ${signal ?? code}`);
    server.handle(numbers(EXITED, 0, rank), Buffer.from(exit));
    handleOutputs();
  });
}

// With cleanup, and without spawn, lookup timeout and fence warning. So the server never needs a Timeout.
server.handle(numbers(REGISTER_JOB, 0), blob(`job-${process.pid}`), numbers(size, 0, 1, 2, 0, 0, 0, 0, 0));
server.handle(numbers(ATTR, 0), blob("PMI_process_mapping"), blob(`(vector,(0,1,${size}))`));
for (let rank = 0; rank < size; rank++) start(rank);
