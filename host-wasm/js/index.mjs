// Typed API over hydrant.wasm, hydrant's PMI server as a WebAssembly module. index.d.mts documents it.
import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";

import { InvalidRecord, Reader, bool, encode } from "./postcard.mjs";
import {
  ABI_VERSION, CallError, HandleCall, HandleResult, Inputs, MESSAGE_MAX, MemorySpan, PollResult, ReserveCall, StartResult,
} from "./records.mjs";

export * as records from "./records.mjs";
export * as ranks from "./ranks.mjs";

export class PluginError extends Error {
  name = "PluginError";
}

export class AbiVersionError extends PluginError {
  name = "AbiVersionError";

  constructor(path, found) {
    super(`${path} has ABI version ${found}, and this package needs ${ABI_VERSION}`);
    this.found = found;
  }
}

export class CallFailed extends PluginError {
  name = "CallFailed";

  constructor(call, error) {
    super(`${call}: ${JSON.stringify(error.type === "Fault" ? error.fault : error)}`);
    Object.assign(this, { call, error });
  }
}

export class Plugin {
  #module;

  constructor(path) {
    this.path = path;
    this.#module = new WebAssembly.Module(readFileSync(path));
  }

  static load(path) {
    return new Plugin(path);
  }

  server(limits, { seed = randomInt(2 ** 32), clock } = {}) {
    return new Server(this.path, this.#module, clock).reserve({ limits, seed });
  }

  restore(snapshot, { clock } = {}) {
    return new Server(this.path, this.#module, clock).restore(snapshot);
  }
}

const now = () => Math.floor(performance.now());

export class Server extends Inputs {
  #exports;
  #clock;
  #input;
  #inputSize;
  #output;
  #pollAt = null;
  #hasOutput = false;
  #held = new Map(); // By connection: bytes that the server has not consumed.
  #again = new Set(); // Connections whose bytes wait for a reply.

  constructor(path, module, clock = now) {
    super();
    this.#exports = new WebAssembly.Instance(module).exports;
    this.#clock = clock;
    const version = this.#export("hydrant_abi_version");
    if (version !== ABI_VERSION) throw new AbiVersionError(path, version);
    this.#input = this.#export("hydrant_input_address");
    this.#inputSize = this.#export("hydrant_input_size");
    this.#output = this.#export("hydrant_output_address");
  }

  reserve(call) {
    return this.#started(this.#call("hydrant_reserve", encode(ReserveCall, call), StartResult));
  }

  restore(snapshot) {
    const length = this.#export("hydrant_snapshot_room", snapshot.length);
    const room = this.#decode("hydrant_snapshot_room", length, MemorySpan);
    this.#memory(room.address, room.len).set(snapshot);
    return this.#started(this.#decode("hydrant_restore", this.#export("hydrant_restore", snapshot.length), StartResult));
  }

  handle(input) {
    const result = this.#call("hydrant_handle", encode(HandleCall, { now: this.#clock(), input }), HandleResult);
    this.#started(result);
    return result.consumed;
  }

  receive(conn, data) {
    this.#held.set(conn, Buffer.concat([this.held(conn), data]));
    this.#passHeld(conn);
  }

  closed({ conn }) {
    this.#held.delete(conn);
    this.#again.delete(conn);
    return super.closed({ conn });
  }

  poll() {
    if (!this.#hasOutput) return null;
    const length = this.#export("hydrant_poll");
    this.#hasOutput = false;
    if (length === 0) return null;
    const reader = new Reader(this.#record(length));
    const result = this.#read("hydrant_poll", reader, () => PollResult.read(reader));
    this.#hasOutput = result.hasOutput;
    return result.output;
  }

  *outputs() {
    for (let output; (output = this.poll()) !== null; ) {
      yield output;
      if (output.type === "Bytes" && this.#again.has(output.conn)) this.#passHeld(output.conn);
    }
  }

  timeoutIn() {
    return this.#pollAt === null ? null : Math.max(this.#pollAt - this.#clock(), 0);
  }

  snapshot() {
    const span = this.#decode("hydrant_snapshot", this.#export("hydrant_snapshot"), MemorySpan);
    return this.#memory(span.address, span.len).slice();
  }

  held(conn) {
    return this.#held.get(conn) ?? new Uint8Array();
  }

  // Passes held bytes until a message is incomplete or has to wait for a reply.
  #passHeld(conn) {
    for (;;) {
      const held = this.#held.get(conn);
      const consumed = this.bytes({ conn, bytes: held.subarray(0, MESSAGE_MAX), full: held.length >= MESSAGE_MAX });
      this.#held.set(conn, held.subarray(consumed.bytes));
      this.#again[consumed.again ? "add" : "delete"](conn);
      if (consumed.again || consumed.bytes === 0 || held.length <= MESSAGE_MAX) return;
    }
  }

  #started({ pollAt, hasOutput }) {
    this.#pollAt = pollAt;
    this.#hasOutput = hasOutput;
    return this;
  }

  #export(name, ...values) {
    try {
      return this.#exports[name](...values) >>> 0;
    } catch (cause) {
      throw new PluginError(`${name}: ${cause.message}`, { cause });
    }
  }

  // A new view for each use, because the memory may have moved when it grew.
  #memory(address, length) {
    const { buffer } = this.#exports.memory;
    if (address + length > buffer.byteLength) throw new PluginError("an address beyond the plugin's memory");
    return new Uint8Array(buffer, address, length);
  }

  #record(length) {
    return this.#memory(this.#output, length).slice();
  }

  #call(name, record, result) {
    if (record.length > this.#inputSize) throw new RangeError(`${record.length} bytes are longer than the plugin's buffer`);
    this.#memory(this.#input, record.length).set(record);
    return this.#decode(name, this.#export(name, record.length), result);
  }

  // Decodes the record that a call left: a result, or an error.
  #decode(call, length, result) {
    const reader = new Reader(this.#record(length));
    const [failed, value] = this.#read(call, reader, () => {
      const failed = bool.read(reader);
      return [failed, (failed ? CallError : result).read(reader)];
    });
    if (failed) throw new CallFailed(call, value);
    return value;
  }

  #read(call, reader, read) {
    try {
      const value = read();
      reader.end();
      return value;
    } catch (cause) {
      throw cause instanceof InvalidRecord ? new PluginError(`${call}: ${cause.message}`, { cause }) : cause;
    }
  }
}
