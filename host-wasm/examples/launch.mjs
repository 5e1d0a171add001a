#!/usr/bin/env node
// MPI launcher that serves PMI and PMIx with hydrant.wasm (docs/wasm-abi.md) in Node.js.
//
//     launch.mjs PLUGIN N PROGRAM [ARGUMENT...]
//
// starts N ranks on this machine and serves each over a socket of its own (PMI_FD), or over TCP on loopback if it is a PMIx
// client (Open MPI, on Linux). The exit code is that of the rank that failed first, 128 + N if signal N killed it or ended the
// launcher, and 1 if the job was aborted for another reason. The ranks are killed when the launcher ends, on Linux also when it
// is killed.
import { spawn } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { once } from "node:events";
import { readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { constants, endianness } from "node:os";

const ABI = 4;
const MESSAGE_MAX = 64 << 10;
// Variant numbers of inputs. Those of outputs and causes are in handleOutputs.
const [REGISTER_JOB, ATTR, OPENED, BYTES, CLOSED, EXITED, TIMEOUT] = [1, 11, 15, 17, 20, 21, 22];
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

  // Applies an input. Returns Consumed (the number of bytes, and whether to send the rest again after a reply) and the
  // milliseconds until the server needs a Timeout, if it does.
  handle(...parts) {
    const now = Math.floor(performance.now());
    const result = this.call("handle", Buffer.concat([numbers(now), ...parts]));
    return [result.number(), result.number(), result.number() ? Math.max(result.number() - now, 0) : undefined];
  }
}

const [path, count, program, ...args] = process.argv.slice(2);
const size = Number(count);
if (!program || !Number.isInteger(size) || size < 1) quit(2, "usage: launch.mjs PLUGIN N PROGRAM [ARGUMENT...]");
// Limits: jobs, ranks, conns, keys, kvs_bytes, groups, names, spawns, spawn_bytes, psets, links, commit_bytes. So few bytes of
// spawns are for RemoveFiles and Log only.
const server = new Plugin(path, numbers(1, size, 2 * size, 64 * size, size * 65536, 16, 16, 16, 255, 16, 0, MESSAGE_MAX / 4));
const ranks = []; // By rank: process, and files to remove after its exit.
// By connection: socket, bytes that were not consumed, and whether to send them again. The ranks' own come first, then PMIx.
const conns = new Map();
let timer;

function fail(code, why) {
  if (!process.exitCode) console.error(`launch.mjs: ${why}`); // Only the first failure is reported.
  process.exitCode ??= code;
}

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.on(signal, () => { fail(128 + constants.signals[signal], `ended by ${signal}`); kill(ranks); });
}

// A process that did not start has no pid. Killing it would send the signal to this process group.
const kill = (killed) => killed.filter(({ child }) => child.pid).forEach(({ child }) => child.kill("SIGKILL"));

// Applies an input, and a Timeout when the server needs one. Returns Consumed.
function handle(...parts) {
  const [taken, again, wait] = server.handle(...parts);
  clearTimeout(timer);
  if (wait !== undefined) timer = setTimeout(() => { handle(numbers(TIMEOUT)); handleOutputs(); }, wait).unref();
  return [taken, again];
}

function sendBytes(conn, data) {
  const [taken, again] = handle(numbers(BYTES, conn), blob(data), numbers(data.length >= MESSAGE_MAX ? 1 : 0));
  Object.assign(conns.get(conn), { held: data.subarray(taken), again });
}

// Carries out the server's outputs until there are none.
function handleOutputs() {
  for (let length; (length = server.export("poll")) > 0; ) {
    const output = server.record(length);
    const [what, subject] = [output.number(), output.number()];
    if (what === 0) { // Bytes.
      conns.get(subject).socket.write(output.take(output.number()));
      if (conns.get(subject).again) sendBytes(subject, conns.get(subject).held);
    } else if (what === 1) { // Close, after the last reply.
      conns.get(subject).socket.destroySoon();
    } else if (what === 5) { // KillRank. There is one job.
      kill([ranks[output.number()]]);
    } else if (what === 6) { // AbortJob.
      const [cause, rank] = [output.number(), output.number()];
      const code = cause === 0 && output.number() ? output.number() >> 1 : 0;
      fail(code || 1, `rank ${rank} ${CAUSES[cause]}: the other ranks are killed`);
      kill(ranks);
    } else if (what === 9) { // RemoveFiles, when the rank's process has exited.
      ranks[output.number()].files.push(...output.take(output.number()).toString().split(","));
    } else if (what === 10) { // Log, text of the rank for standard output (0) or standard error (1).
      output.number();
      (output.number() ? process.stderr : process.stdout).write(output.take(output.number()));
    }
  }
}

// Passes a connection to the server, with its rank if that is known.
function open(conn, socket, rank) {
  conns.set(conn, { socket, held: Buffer.alloc(0), again: 0 });
  handle(numbers(OPENED, conn, 0), rank);
  socket.on("data", (data) => {
    // In parts that fit into the input buffer together with the bytes that were not consumed.
    for (let at = 0; at < data.length; at += MESSAGE_MAX / 2) {
      sendBytes(conn, Buffer.concat([conns.get(conn).held, data.subarray(at, at + MESSAGE_MAX / 2)]));
      handleOutputs();
    }
  });
  socket.on("error", () => {}); // "close" follows.
  socket.on("close", () => { handle(numbers(CLOSED, conn)); conns.delete(conn); handleOutputs(); });
}

// Returns the user of the process at the first end of a loopback connection, from the system's table of TCP sockets. A closed
// socket has no inode and counts as root's.
function userOf(...ports) {
  const loopback = endianness() === "LE" ? "0100007F" : "7F000001";
  const ends = ports.map((port) => `${loopback}:${port.toString(16).toUpperCase().padStart(4, "0")}`).join(" ");
  const rows = readFileSync("/proc/net/tcp", "latin1").split("\n").map((line) => line.trim().split(/ +/));
  return Number(rows.find((row) => `${row[1]} ${row[2]}` === ends && row[9] !== "0")?.[7]);
}

// PMIx clients that run as this user. They send their rank in the handshake.
const listener = createServer((socket) => {
  const conn = Array.from({ length: size }, (_, at) => size + at).find((conn) => !conns.has(conn));
  const ours = conn !== undefined && userOf(socket.remotePort, socket.localPort) === process.getuid();
  ours ? open(conn, socket.setNoDelay(), numbers(0)) : socket.destroy();
});
await once(listener.listen({ host: "127.0.0.1", port: 0, backlog: size }), "listening");
listener.unref();
const job = `job-${process.pid}-${randomBytes(8).toString("hex")}`; // A PMIx client that knows the name may join.

// The variables by which libpmix and Open MPI find the server (docs/pmix.md). Open MPI 4 needs a launcher that it knows.
// MPICH 5 does not choose between PMI and PMIx by itself.
const inherited = Object.entries(process.env).filter(([name]) => !/^(PMIX|PRTE)_/.test(name));
const uri = `hydrant.0;tcp4://127.0.0.1:${listener.address().port}`;
const environment = {
  ...Object.fromEntries(inherited),
  ...Object.fromEntries(["41", "4", "3", "21"].map((version) => [`PMIX_SERVER_URI${version}`, uri])),
  PMIX_NAMESPACE: job, PMIX_GDS_MODULE: "hash", PMIX_SECURITY_MODE: "native", JSM_JSRUN_PORT: 1, MPIR_CVAR_PMI_VERSION: 1,
};

// Has the kernel kill a rank when the launcher ends. Node cannot run code in a new process before its program.
const dieWithLauncher = process.platform === "linux" ? ["setpriv", "--pdeathsig", "KILL", "--"] : [];

function start(rank) {
  const env = { ...environment, PMI_FD: 3, PMI_RANK: rank, PMI_SIZE: size, PMIX_RANK: rank };
  const stdio = [rank === 0 ? "inherit" : "ignore", "inherit", "inherit", "pipe"];
  const [command, ...rest] = [...dieWithLauncher, program, ...args];
  const child = spawn(command, rest, { env, stdio });
  ranks.push({ child, files: [] });
  open(rank, child.stdio[3], numbers(1, rank));
  child.on("error", (error) => { fail(127, error.message); kill(ranks); });
  // "close" follows the end of the socket, so everything that the rank sent has been handled.
  child.on("close", (code, signal) => {
    const exit = signal === null ? [0, code] : [1, constants.signals[signal]];
    if (code !== 0) fail(code ?? 128 + exit[1], `rank ${rank} ended with ${signal ?? code}`);
    for (const file of ranks[rank].files) rmSync(file, { force: true });
    handle(numbers(EXITED, 0, rank), Buffer.from(exit));
    handleOutputs();
  });
}

// With cleanup, and without spawn, lookup timeout and fence warning.
handle(numbers(REGISTER_JOB, 0), blob(job), numbers(size, 0, 1, 2, 0, 0, 0, 0, 0));
handle(numbers(ATTR, 0), blob("PMI_process_mapping"), blob(`(vector,(0,1,${size}))`));
for (let rank = 0; rank < size; rank++) start(rank);
