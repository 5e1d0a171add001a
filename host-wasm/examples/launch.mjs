#!/usr/bin/env node
// MPI launcher that serves PMI and PMIx with hydrant.wasm through the package hydrant-wasm (host-wasm/js) in Node.js.
//
//     launch.mjs PLUGIN N PROGRAM [ARGUMENT...]
//
// starts N ranks on this machine and serves each over a socket of its own (PMI_FD), or over TCP on loopback if it is a PMIx
// client (Open MPI, on Linux). The exit code is that of the first failure, as hydrant has it: of the rank that failed, 128 + N if
// signal N killed it or ended the launcher, or of the abort. The ranks are killed when the launcher ends, on Linux also when it is
// killed.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { createServer } from "node:net";
import { constants } from "node:os";

import { Plugin, PluginError, ranks } from "../js/index.mjs";

const JOB = 0;
function quit(code, why) {
  console.error(`launch.mjs: ${why}`);
  process.exit(code);
}

const [path, count, program, ...args] = process.argv.slice(2);
const size = Number(count);
if (!program || !Number.isInteger(size) || size < 1) quit(2, "usage: launch.mjs PLUGIN N PROGRAM [ARGUMENT...]");
const server = load();
const processes = []; // By rank: child process, and files to remove after its exit.
const sockets = new Map(); // By connection. The ranks' own come first, then PMIx clients.
const arrived = []; // Connections and bytes, for the next call.
let timer;
let stopped = false;

function load() {
  try {
    return Plugin.load(path).server(ranks.jobLimits(size));
  } catch (error) {
    return quit(1, error.message);
  }
}

function fail(code, why) {
  if (process.exitCode === undefined) console.error(`launch.mjs: ${why}`); // Only the first failure is reported.
  process.exitCode ??= code;
}

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.on(signal, () => stop(128 + constants.signals[signal], `ended by ${signal}`));
}

// Ends the job without its server.
function stop(code, why) {
  fail(code, why);
  stopped = true;
  kill(processes);
}

// A process that did not start has no pid. Killing it would send the signal to this process group.
const kill = (killed) => killed.filter(({ child }) => child.pid).forEach(({ child }) => child.kill("SIGKILL"));

// Passes arrived bytes and an event to the server, and carries out its outputs. A plugin that fails ends the job.
function tell(event) {
  if (stopped) return;
  try {
    server.receiveAll(arrived.splice(0));
    event();
    handleOutputs();
  } catch (error) {
    if (!(error instanceof PluginError)) throw error;
    stop(1, `the plugin failed: ${error.message}`);
  }
}

// Carries out the server's outputs, and sets the timer for the next one.
function handleOutputs() {
  for (const output of server.outputs()) {
    switch (output.type) {
      case "Bytes":
        sockets.get(output.conn).write(output.bytes);
        break;
      case "Close": // After the last reply.
        sockets.get(output.conn).destroySoon();
        break;
      case "KillRank":
        fail(ranks.exitCode(ranks.exitOfKilled(output.code)), `rank ${output.rank} aborted itself`);
        kill([processes[output.rank]]);
        break;
      case "AbortJob": {
        const [code, reason] = ranks.failure(output.cause);
        fail(code, `${reason}: the other ranks are killed`);
        kill(processes);
        break;
      }
      case "RemoveFiles": // When the rank's process has exited.
        processes[output.rank].files.push(...Buffer.from(output.paths).toString().split(","));
        break;
      case "Log":
        (output.stream === "Stderr" ? process.stderr : process.stdout).write(output.text);
        break;
    }
  }
  clearTimeout(timer);
  const wait = server.timeoutIn();
  if (wait !== null) timer = setTimeout(() => tell(() => server.timeout()), wait).unref();
}

// Passes a connection to the server, with its rank if that is known.
function open(conn, socket, rank) {
  sockets.set(conn, socket);
  tell(() => server.opened({ conn, job: JOB, rank }));
  socket.on("data", (data) => {
    if (arrived.length === 0) setImmediate(tell, () => {}); // One call for all connections that are ready now.
    arrived.push([conn, data]);
  });
  socket.on("error", () => {}); // "close" follows.
  socket.on("close", () => { sockets.delete(conn); tell(() => server.closed({ conn })); });
}

// PMIx clients that run as this user. They send their rank in the handshake.
const listener = createServer((socket) => {
  const conn = Array.from({ length: size }, (_, at) => size + at).find((conn) => !sockets.has(conn));
  const ours = conn !== undefined && ranks.clientUser(socket) === process.getuid();
  ours ? open(conn, socket.setNoDelay(), null) : socket.destroy();
});
await once(listener.listen({ host: "127.0.0.1", port: 0, backlog: size }), "listening");
listener.unref();

function start(rank) {
  const pmix = ranks.pmixVariables(name, rank, listener.address().port);
  const env = { ...ranks.inheritedVariables(), ...ranks.pmiVariables(rank, size, 3), ...pmix };
  const stdio = [rank === 0 ? "inherit" : "ignore", "inherit", "inherit", "pipe"];
  const [command, ...rest] = [...ranks.dieWithLauncher, program, ...args];
  const child = spawn(command, rest, { env, stdio });
  processes.push({ child, files: [] });
  open(rank, child.stdio[3], rank);
  child.on("error", (error) => { fail(127, error.message); kill(processes); });
  // "close" follows the end of the socket, so everything that the rank sent has been handled.
  child.on("close", (code, signal) => {
    const exit = signal === null ? { type: "Code", value: code } : { type: "Signal", value: constants.signals[signal] };
    for (const file of processes[rank].files) rmSync(file, { force: true });
    tell(() => server.exited({ job: JOB, rank, exit })); // The rank may have aborted.
    if (code !== 0) fail(ranks.exitCode(exit), `rank ${rank} ended with ${signal ?? code}`);
  });
}

const name = ranks.jobName();
tell(() => server.registerJob({ job: JOB, name, size }));
tell(() => server.attr({ job: JOB, ...ranks.processMapping(size) }));
if (!stopped) for (let rank = 0; rank < size; rank++) start(rank);
