// Types of ranks.mjs.
import type { Cause, Exit, Limits } from "./records.mjs";

/**
 * Limits of a server for one job of so many ranks on this machine: PMI and PMIx, without spawns. A rank has 64 pairs and 64 KiB,
 * and a second connection for PMIx.
 */
export function jobLimits(ranks: number): Limits;
/** A name for `registerJob`. A PMIx client that knows the name may join, so a part of it is random. */
export function jobName(): string;
/** Key and value of the attribute by which MPICH knows that all ranks are on one host. */
export function processMapping(size: number): { key: Uint8Array; value: Uint8Array };
/** An environment without the variables of other launchers and servers. */
export function inheritedVariables(environ?: Record<string, string | undefined>): Record<string, string | undefined>;
/** Variables of a rank that inherits the descriptor `fd` of its connection. */
export function pmiVariables(rank: number, size: number, fd: number): Record<string, string | number>;
/** Variables by which libpmix and Open MPI find the server at a TCP port of the loopback interface (docs/pmix.md). */
export function pmixVariables(job: string, rank: number, port: number): Record<string, string | number>;
/** Words in front of a rank's command, by which the kernel kills the rank when the launcher ends. Empty except on Linux. */
export const dieWithLauncher: string[];
/** Exit code of a launcher whose server ends a job, and the reason, such as "rank 2 died". */
export function failure(cause: Cause): [code: number, reason: string];
/**
 * Exit code of a launcher, as that of hydrant, for the end of a process or the cause of an abort. The first failure counts. Of a
 * process it is as shells have it: 128 + N for signal N, and 1 for an unknown end. Of an abort it is the code, in 8 bits, or 1, and 0
 * only for code 0. Of the other causes it is that of the exit, at least 1.
 */
export function exitCode(end: Exit | Cause): number;
/**
 * Exit of a rank that asked to be killed with this code (the output "KillRank"), in place of the signal by which its process dies. A
 * rank that had to be killed has not succeeded: code 0 and none count as 1.
 */
export function exitOfKilled(code: number | null): Exit;
/**
 * The user of the process at the client's end of an IPv4 connection on this machine, on Linux: of a `net.Socket` that the host has
 * accepted. A host passes connections to the server only if their user is that of the job.
 */
export function clientUser(socket: {
  remoteAddress?: string; remotePort?: number; localAddress?: string; localPort?: number;
}): number | undefined;
