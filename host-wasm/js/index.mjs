// Typed API over hydrant.wasm, hydrant's PMI server as a WebAssembly module. index.d.mts documents it.
import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";

import { InvalidRecord, Reader, bool, encode, known } from "./postcard.mjs";
import {
  ABI_VERSION, CallError, DEADLINE, FULL, INPUTS_MAX, Input, InputResult, Inputs, MESSAGE_MAX, MORE, MemorySpan, Output, Part, RECORD,
  ReserveCall, StartResult, TurnHead,
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

  constructor(call, error, consumed = []) {
    super(`${call}: ${JSON.stringify(error.type === "Fault" ? error.fault : error)}`);
    Object.assign(this, { call, error, consumed });
  }
}

export class Plugin {
  #module;

  constructor(path) {
    this.path = path;
    const file = readFileSync(path);
    try {
      this.#module = new WebAssembly.Module(file);
    } catch (cause) {
      throw new PluginError(`${path} is no WebAssembly module: ${cause.message}`, { cause });
    }
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
  #offered = []; // Outputs of the last return that the host has not taken.
  #taken = 0; // Replies of the last return that it has taken.
  #more = false; // Whether there may be others.
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
    return this.handleAll([input])[0];
  }

  handleAll(inputs) {
    const consumed = [];
    let parts = [];
    let length = 0;
    for (const input of inputs) {
      const plain = input.type === "Bytes";
      const bytes = plain ? input.bytes : encode(Input, input);
      const size = Part.LENGTH + bytes.length;
      if (size > this.#inputSize) throw tooLong(bytes);
      if (parts.length === INPUTS_MAX || length + size > this.#inputSize) {
        this.#apply(parts, length, consumed);
        [parts, length] = [[], 0];
      }
      parts.push({ conn: plain ? input.conn : RECORD, flags: plain && input.full ? FULL : 0, bytes });
      length += size;
    }
    if (parts.length > 0) this.#apply(parts, length, consumed);
    return consumed;
  }

  receive(conn, data) {
    this.receiveAll([[conn, data]]);
  }

  receiveAll(arrived) {
    const conns = new Set();
    for (const [conn, data] of arrived) {
      this.#held.set(conn, Buffer.concat([this.held(conn), data]));
      conns.add(conn);
    }
    this.#passHeld([...conns]);
  }

  closed({ conn }) {
    this.#held.delete(conn);
    this.#again.delete(conn);
    return super.closed({ conn });
  }

  poll() {
    if (this.#offered.length === 0 && this.#more) this.#returned("hydrant_poll", this.#export("hydrant_poll", this.#takes()), 0, []);
    const output = this.#offered.shift();
    if (output === undefined) {
      this.#more = false;
      return null;
    }
    if (output.reply) this.#taken += 1;
    return output.output;
  }

  *outputs() {
    for (let waiting = []; ; ) {
      for (let output; (output = this.poll()) !== null; ) {
        yield output;
        if (output.type === "Bytes") waiting.push(output.conn);
      }
      const conns = [...new Set(waiting)].filter((conn) => this.#again.has(conn));
      if (conns.length === 0) return;
      waiting = [];
      this.#passHeld(conns);
    }
  }

  timeoutIn() {
    return this.#pollAt === null ? null : Math.max(this.#pollAt - this.#clock(), 0);
  }

  snapshot() {
    const length = this.#export("hydrant_snapshot", this.#takes());
    const span = this.#decode("hydrant_snapshot", length, MemorySpan);
    return this.#memory(span.address, span.len).slice();
  }

  held(conn) {
    return this.#held.get(conn) ?? new Uint8Array();
  }

  // Passes held bytes until a message of each connection is incomplete or has to wait for a reply.
  #passHeld(conns) {
    while (conns.length > 0) {
      const held = conns.map((conn) => this.#held.get(conn));
      let consumed, refused;
      try {
        consumed = this.handleAll(conns.map((conn, at) => (
          known({ type: "Bytes", conn, bytes: held[at].subarray(0, MESSAGE_MAX), full: held[at].length >= MESSAGE_MAX })
        )));
      } catch (error) {
        if (!(error instanceof CallFailed)) throw error;
        [refused, consumed] = [error, error.consumed];
      }
      const left = [];
      consumed.forEach(({ bytes, again }, at) => {
        this.#held.set(conns[at], held[at].subarray(bytes));
        this.#again[again ? "add" : "delete"](conns[at]);
        if (!again && bytes > 0 && held[at].length > MESSAGE_MAX) left.push(conns[at]);
      });
      if (refused) throw refused;
      conns = left;
    }
  }

  // Applies the inputs of one call, and adds what the server has consumed of each.
  #apply(parts, length, consumed) {
    const input = this.#memory(this.#input, length);
    let at = 0;
    for (const { conn, flags, bytes } of parts) {
      Part.write(input, at, { conn, len: bytes.length + flags });
      input.set(bytes, at + Part.LENGTH);
      at += Part.LENGTH + bytes.length;
    }
    const taken = this.#takes();
    const left = this.#export("hydrant_handle", length, taken, BigInt(this.#clock()));
    this.#returned("hydrant_handle", left, parts.length, consumed);
  }

  #started({ pollAt, hasOutput }) {
    this.#pollAt = pollAt;
    this.#more = hasOutput;
    return this;
  }

  // The number of replies that the host has taken, for a call which withdraws the others.
  #takes() {
    const taken = this.#taken;
    this.#more ||= this.#offered.length > 0;
    this.#offered = [];
    this.#taken = 0;
    return taken;
  }

  // Reads a return, and adds what the server has consumed of each input.
  #returned(call, length, inputs, consumed) {
    const bytes = this.#record(length);
    this.#valid(call, () => {
      const { results, outputs, flags, error, pollAt } = TurnHead.read(bytes, 0);
      this.#pollAt = flags & DEADLINE ? pollAt : null;
      this.#more = (flags & MORE) !== 0;
      if (results > inputs || (results < inputs && error === 0)) {
        throw new PluginError(`${call}: ${results} results of ${inputs} inputs`);
      }
      const end = TurnHead.LENGTH + results * InputResult.LENGTH;
      for (let at = TurnHead.LENGTH; at < end; at += InputResult.LENGTH) {
        const result = InputResult.read(bytes, at);
        consumed.push({ bytes: result.bytes, again: result.again !== 0 });
      }
      if (error > 0) throw new CallFailed(call, CallError.read(new Reader(part(bytes, end, error))), consumed);
      for (let at = end, left = outputs; left > 0; left -= 1) {
        const { conn, len } = Part.read(bytes, at);
        const data = part(bytes, at + Part.LENGTH, len);
        const reply = conn !== RECORD;
        this.#offered.push({ reply, output: reply ? known({ type: "Bytes", conn, bytes: data }) : Output.read(new Reader(data)) });
        at += Part.LENGTH + len;
      }
    });
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
    if (record.length > this.#inputSize) throw tooLong(record);
    this.#memory(this.#input, record.length).set(record);
    return this.#decode(name, this.#export(name, record.length), result);
  }

  // Decodes the record that a call left: a result, or an error.
  #decode(call, length, result) {
    const reader = new Reader(this.#record(length));
    const [failed, value] = this.#valid(call, () => {
      const failed = bool.read(reader);
      const value = (failed ? CallError : result).read(reader);
      reader.end();
      return [failed, value];
    });
    if (failed) throw new CallFailed(call, value);
    return value;
  }

  #valid(call, read) {
    try {
      return read();
    } catch (cause) {
      throw cause instanceof InvalidRecord ? new PluginError(`${call}: ${cause.message}`, { cause }) : cause;
    }
  }
}

const tooLong = (record) => new RangeError(`${record.length} bytes are longer than the plugin's buffer`);

// Bytes of a return.
function part(bytes, at, length) {
  if (at + length > bytes.length) throw new InvalidRecord("the return is truncated");
  return bytes.subarray(at, at + length);
}
