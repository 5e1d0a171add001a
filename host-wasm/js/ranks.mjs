// What a launcher owes its ranks: their environment, an end with its own, and the limits of their job.
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { endianness } from "node:os";

import { MESSAGE_MAX } from "./records.mjs";

const FOREIGN = /^(PMI|PMIX|PRTE|OMPI_COMM_WORLD)_/;
const PMIX_VERSIONS = ["41", "4", "3", "21"];
const REASONS = {
  Abort: "aborted",
  NoFinalize: "left without finalizing",
  Died: "died",
  Absent: "left before a collective that waits for it",
};
const hexByte = (byte) => Number(byte).toString(16).toUpperCase().padStart(2, "0");
// An IPv4 address and a port as in /proc/net/tcp: the address is a number in the machine's byte order.
const tableEnd = (address, port) => {
  const bytes = address.split(".").map(hexByte);
  return `${(endianness() === "LE" ? bytes.reverse() : bytes).join("")}:${hexByte(port >> 8)}${hexByte(port & 255)}`;
};

export function jobLimits(ranks) {
  return {
    jobs: 1, ranks, conns: 2 * ranks, keys: 64 * ranks, kvsBytes: 65536 * ranks, groups: 16, names: 16, psets: 16,
    // So few bytes are for files to remove and for text of PMIx clients only.
    spawns: 16, spawnBytes: 255,
    commitBytes: MESSAGE_MAX / 4,
  };
}

export const jobName = () => `job-${process.pid}-${randomBytes(8).toString("hex")}`;

export const processMapping = (size) => ({
  key: Buffer.from("PMI_process_mapping"),
  value: Buffer.from(`(vector,(0,1,${size}))`),
});

export const inheritedVariables = (environ = process.env) =>
  Object.fromEntries(Object.entries(environ).filter(([name]) => !FOREIGN.test(name)));

// MPICH 5 does not choose between PMI and PMIx by itself.
export const pmiVariables = (rank, size, fd) => ({ PMI_FD: fd, PMI_RANK: rank, PMI_SIZE: size, MPIR_CVAR_PMI_VERSION: 1 });

export const pmixVariables = (job, rank, port) => ({
  ...Object.fromEntries(PMIX_VERSIONS.map((version) => [`PMIX_SERVER_URI${version}`, `hydrant.0;tcp4://127.0.0.1:${port}`])),
  PMIX_NAMESPACE: job, PMIX_RANK: rank, PMIX_GDS_MODULE: "hash", PMIX_SECURITY_MODE: "native",
  // Builds of libpmix for debugging describe each value otherwise.
  PMIX_BFROP_BUFFER_TYPE: "PMIX_BFROP_BUFFER_NON_DESC",
  // libpmix 3 takes a server without a version for an old one.
  PMIX_VERSION: "4.1.0",
  // Open MPI 4 needs a launcher that it knows.
  JSM_JSRUN_PORT: 1,
});

// Node cannot run code in a new process before its program.
export const dieWithLauncher = process.platform === "linux" ? ["setpriv", "--pdeathsig", "KILL", "--"] : [];

export function exitCode(end) {
  switch (end.type) {
    case "Code": return end.value;
    case "Signal": return 128 + end.value;
    case "Lost": return 1;
    case "Abort": return end.code === 0 ? 0 : exitOfKilled(end.code).value;
    default: return exitCode(end.exit) || 1;
  }
}

// As a process would: a code has 8 bits.
export const exitOfKilled = (code) => ({ type: "Code", value: ((code ?? 1) & 0xff) || 1 });

export function failure(cause) {
  const died = cause.type !== "Abort" && cause.exit.type === "Signal";
  return [exitCode(cause), `rank ${cause.rank} ${REASONS[died ? "Died" : cause.type]}`];
}

// A closed socket has no inode and counts as root's.
export function clientUser({ remoteAddress, remotePort, localAddress, localPort }) {
  if (!remoteAddress || !localAddress) return undefined; // It is closed.
  const ends = `${tableEnd(remoteAddress, remotePort)} ${tableEnd(localAddress, localPort)}`;
  const rows = readFileSync("/proc/net/tcp", "latin1").split("\n").map((line) => line.trim().split(/ +/));
  const row = rows.find((row) => `${row[1]} ${row[2]}` === ends && row[9] !== "0");
  return row && Number(row[7]);
}
