// Types of index.mjs.
import { CallError, ConnId, Consumed, Input, Inputs, Limits, Output } from "./records.mjs";

export * as ranks from "./ranks.mjs";
export * as records from "./records.mjs";
export type * from "./records.mjs";

/** Failure of a plugin. The host ends the jobs of its server. */
export class PluginError extends Error {}

/** A plugin with another version of the ABI. */
export class AbiVersionError extends PluginError {
  found: number;
}

/**
 * A refused call. The server is unchanged. `call` is the name of the export. An error of type "Fault" is the host's: the server
 * refused an input. `consumed` has the results of the inputs of `handleAll` before that one, which are applied.
 */
export class CallFailed extends PluginError {
  call: string;
  error: CallError;
  consumed: Consumed[];
}

/** Returns milliseconds that do not decrease. */
export type Clock = () => number;

/** hydrant.wasm, compiled. Its servers share the code and nothing else. */
export class Plugin {
  /** Compiles a file. Throws the error of `readFileSync`, and `PluginError` if the file is no WebAssembly module. */
  static load(path: string): Plugin;
  path: string;
  /**
   * Creates a server. `limits` are the capacities of its tables. `seed` is that of a hash table, of 32 bits, and random by default.
   * Throws `AbiVersionError`, and `CallFailed` if the plugin's memory is too small for the limits.
   */
  server(limits: Limits, options?: { seed?: number; clock?: Clock }): Server;
  /** Creates a server from a snapshot. `clock` continues that of the server which was saved. */
  restore(snapshot: Uint8Array, options?: { clock?: Clock }): Server;
}

/**
 * A server: an instance of the plugin. A method for each input applies it at the time of the clock. After each input, or several,
 * the host carries out `outputs`. A method throws `CallFailed` if the server refuses the input, and `PluginError` if the plugin
 * fails. A host gives up a failed server.
 */
export class Server extends Inputs {
  private constructor();
  /** Applies an input. The methods of the inputs call this one. */
  handle(input: Input): Consumed;
  /**
   * Applies inputs in their order, up to `INPUTS_MAX` in a call of the plugin, and returns what is consumed of each. The inputs behind
   * one that is refused are not applied.
   */
  handleAll(inputs: Iterable<Input>): Consumed[];
  /**
   * Passes bytes of a client to the server, in place of the input "Bytes". The bytes that the server does not consume are kept. A
   * host does not read from a connection while it is blocked.
   */
  receive(conn: ConnId, data: Uint8Array): void;
  /** Passes bytes of many clients to the server, as `receive` does, with few calls. */
  receiveAll(arrived: Iterable<[ConnId, Uint8Array]>): void;
  /** Takes the next output, if there is one. Use `outputs`, which also passes bytes that wait for a reply. */
  poll(): Output | null;
  /** Yields the outputs until there is none. The host carries out each before it takes the next one, and may apply inputs. */
  outputs(): Generator<Output, void>;
  /** The milliseconds until the host calls `timeout`, unless another input comes first, or null for never. */
  timeoutIn(): number | null;
  /** Saves the server, for `Plugin.restore`. Bytes that it has not consumed are not part of it: see `held`. */
  snapshot(): Uint8Array;
  /** The bytes of a connection that the server has not consumed. */
  held(conn: ConnId): Uint8Array;
}
