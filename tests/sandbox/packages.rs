//! The packages for Python and JavaScript: front pages, and jobs inside an asyncio program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Once;

use hydrant_tests::peers::{Peer, node, python, wasmtime_python};
use hydrant_tests::{Folder, Job, plugin};

/// A path below `host-wasm`.
pub(crate) fn host_wasm(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host-wasm").join(path)
}

/// The folder of the package for `language`, with its records, which are generated once a run of the tests.
pub(crate) fn package(language: &str) -> PathBuf {
    static GENERATED: Once = Once::new();
    GENERATED.call_once(|| {
        Job::new(python()).arg(host_wasm("bindings")).run().code(0).quiet();
    });
    host_wasm(language)
}

/// The Python that has wasmtime, with the package where `packages` leads. It leaves no compiled files.
pub(crate) fn python_with(packages: &Path) -> Job {
    Job::new(wasmtime_python()).env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1")
}

/// The first block of a package's front page in that language.
fn block(page: &str, language: &str) -> String {
    let path = host_wasm(page);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let start = format!("\n```{language}\n");
    let block = text.split(&start).nth(1).and_then(|rest| rest.split("```").next());
    block.unwrap_or_else(|| panic!("{} has no block in {language}", path.display())).to_owned()
}

/// The package is installed as the front page says. Pip may not use the network.
#[test]
fn python_front_page() {
    if !Peer::Wasmtime.there() {
        return;
    }
    let folder = Folder::new("python-package");
    let installed = folder.0.join("installed");
    let pip = python_with(&installed)
        .words("-m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --target");
    let pip = pip.env("PIP_DISABLE_PIP_VERSION_CHECK", "1").env("TMPDIR", &folder.0);
    pip.arg(&installed).arg(host_wasm("python")).run().code(0);
    let script = folder.file("example.py", &block("python/README.md", "python"));
    let outcome = python_with(&installed).arg(script).arg(plugin()).run();
    outcome.code(0).quiet().stdout_is(&block("python/README.md", "text"));
}

#[test]
fn node_front_page() {
    if !Peer::Node.there() {
        return;
    }
    let folder = Folder::new("js-package");
    let modules = folder.0.join("node_modules");
    fs::create_dir(&modules).expect("the folder is new");
    symlink(package("js"), modules.join("hydrant-wasm")).expect("the folder is new");
    let script = folder.file("example.mjs", &block("js/README.md", "js"));
    let outcome = Job::new(node()).arg(script).arg(plugin()).run();
    outcome.code(0).quiet().stdout_is(&block("js/README.md", "text"));
}

/// A host that reads a field that is not there would wait for ever. The exit code of a failure is that of docs/wasm-abi.md.
#[test]
fn python_names_unknown_fields_and_exit_codes() {
    const SCRIPT: &str = r#"
import copy, pickle, pydoc
from hydrant_wasm import *
from hydrant_wasm.ranks import exit_code, exit_of_killed, failure
output = OutputBytes(conn=1, bytes=b"x")
assert copy.deepcopy(output) == pickle.loads(pickle.dumps(output)) == output
try:
    match output:
        case OutputBytes(data=data):
            print("matched")
    print("fell through")
except TypeError as error:
    print(error)
exits = [CauseDied(2, ExitSignal(9)), CauseNoFinalize(2, ExitCode(7)), CauseAbsent(2, ExitCode(0)), CauseAbsent(2, ExitLost()),
         CauseAbort(2, 5), CauseAbort(2, None), CauseAbort(2, 256), CauseAbort(2, 0)]
print([exit_code(cause) for cause in exits], failure(exits[0]))
print([exit_code(exit_of_killed(code)) for code in (5, -1, None, 256, 0)])
import hydrant_wasm.ranks
assert "A_SECRET_OF_MINE" not in pydoc.render_doc(hydrant_wasm.ranks)
assert "A_SECRET_OF_MINE" in hydrant_wasm.ranks.inherited_variables()
"#;
    if !Peer::Wasmtime.there() {
        return;
    }
    let job = python_with(&package("python")).env("A_SECRET_OF_MINE", "1").arg("-c").arg(SCRIPT);
    job.run().code(0).quiet().stdout_is(
        "OutputBytes has no field data; its fields: conn, bytes\n[137, 7, 1, 1, 5, 1, 1, 0] (137, 'rank 2 died')\n\
         [5, 255, 1, 1, 1]\n",
    );
}

#[test]
fn node_names_unknown_fields_and_exit_codes() {
    const SCRIPT: &str = r#"
import { readFileSync } from "node:fs";
import * as hydrant from "hydrant-wasm";
const { exitCode, exitOfKilled, failure } = hydrant.ranks;
const server = hydrant.Plugin.load(process.argv[2]).server({ jobs: 1, ranks: 1, conns: 1, keys: 8, kvsBytes: 512 });
const attempt = (run) => { try { console.log("went on", run()); } catch (error) { console.log(error.message); } };
attempt(() => server.registerJob({ job: 0, name: "job-1", size: 1, universe: 2 }));
server.registerJob({ job: 0, name: "job-1", size: 1 });
server.opened({ conn: 0, job: 0, rank: 0 });
server.receive(0, Buffer.from("cmd=init pmi_version=1 pmi_subversion=1\n"));
for (const output of server.outputs()) {
  JSON.stringify(await output);
  attempt(() => output.data);
}
const died = (type, exit) => ({ type, rank: 2, exit });
const causes = [died("Died", { type: "Signal", value: 9 }), died("NoFinalize", { type: "Code", value: 7 }),
  died("Absent", { type: "Code", value: 0 }), died("Absent", { type: "Lost" }),
  ...[5, null, 256, 0].map((code) => ({ type: "Abort", rank: 2, code }))];
console.log(causes.map(exitCode).join(), failure(causes[0]).join());
console.log([5, -1, null, 256, 0].map((code) => exitCode(exitOfKilled(code))).join());
"#;
    if !Peer::Node.there() {
        return;
    }
    let folder = Folder::new("js-fields");
    let modules = folder.0.join("node_modules");
    fs::create_dir(&modules).expect("the folder is new");
    symlink(package("js"), modules.join("hydrant-wasm")).expect("the folder is new");
    let script = folder.file("fields.mjs", SCRIPT);
    let outcome = Job::new(node()).arg(script).arg(plugin()).run();
    outcome
        .code(0)
        .quiet()
        .says("no field universe; the fields: ", 1)
        .says("no field data; the fields: type, ", 2);
    outcome.says("137,7,1,1,5,1,1,0 137,rank 2 died\n5,255,1,1,1\n", 1);
}

/// Requests of 300 connections take two calls. A refused input names those before it, which are applied, and long requests of one
/// connection wait for replies.
const MANY: &str = "300 300\nNoSuchConn 14 False\n1 5000\n";

#[test]
fn python_passes_many_inputs_in_a_call() {
    const SCRIPT: &str = r#"
import sys
from hydrant_wasm import *
from hydrant_wasm.ranks import job_limits
server = Plugin.load(sys.argv[1]).server(job_limits(300))
server.register_job(0, "job-1", 300)
server.handle_all([InputOpened(rank, 0, rank) for rank in range(300)])
replies = lambda: sum(isinstance(output, OutputBytes) for output in server.outputs())
counts = []
for request in b"cmd=init pmi_version=1 pmi_subversion=1\n", b"cmd=get_maxes\n":
    server.receive_all({conn: request for conn in range(300)})
    counts.append(replies())
print(*counts)
server.receive(1, b"cmd=get_m")
try:
    server.receive_all({1: b"axes\n", 300: b"x", 2: b"cmd=get_maxes\n"})
except CallFailed as failed:
    print(type(failed.error.fault).__name__.removeprefix("Fault"), *[word for it in failed.consumed for word in (it.bytes, it.again)])
first = replies()
server.receive(0, b"cmd=get_maxes\n" * 5000)
print(first, replies())
"#;
    if !Peer::Wasmtime.there() {
        return;
    }
    let job = python_with(&package("python")).arg("-c").arg(SCRIPT).arg(plugin());
    job.run().code(0).quiet().stdout_is(MANY);
}

#[test]
fn node_passes_many_inputs_in_a_call() {
    const SCRIPT: &str = r#"
import { CallFailed, Plugin, ranks } from "hydrant-wasm";
const server = Plugin.load(process.argv[2]).server(ranks.jobLimits(300));
server.registerJob({ job: 0, name: "job-1", size: 300 });
const conns = Array.from({ length: 300 }, (_, conn) => conn);
server.handleAll(conns.map((conn) => ({ type: "Opened", conn, job: 0, rank: conn })));
const replies = () => [...server.outputs()].filter(({ type }) => type === "Bytes").length;
const counts = ["cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=get_maxes\n"].map((request) => {
  server.receiveAll(conns.map((conn) => [conn, Buffer.from(request)]));
  return replies();
});
console.log(...counts);
server.receive(1, Buffer.from("cmd=get_m"));
try {
  server.receiveAll([[1, Buffer.from("axes\n")], [300, Buffer.from("x")], [2, Buffer.from("cmd=get_maxes\n")]]);
} catch (error) {
  if (!(error instanceof CallFailed)) throw error;
  const { bytes, again } = error.consumed[0];
  console.log(error.error.fault.type ?? error.error.fault, bytes, again ? "True" : "False");
}
const first = replies();
server.receive(0, Buffer.from("cmd=get_maxes\n".repeat(5000)));
console.log(first, replies());
"#;
    if !Peer::Node.there() {
        return;
    }
    let folder = Folder::new("js-many");
    let modules = folder.0.join("node_modules");
    fs::create_dir(&modules).expect("the folder is new");
    symlink(package("js"), modules.join("hydrant-wasm")).expect("the folder is new");
    let script = folder.file("many.mjs", SCRIPT);
    Job::new(node()).arg(script).arg(plugin()).run().code(0).quiet().stdout_is(MANY);
}

/// Jobs of mpi4py side by side. The third one aborts, and the others end well.
const JOBS: &str = r#"
import asyncio, sys
from hydrant_wasm import Plugin
sys.path.insert(0, sys.argv[1])
from launch_asyncio import mpi_job

def program(code):
    return [sys.argv[2], "-c", f"from mpi4py import MPI; w = MPI.COMM_WORLD; {code}"]

async def main():
    plugin = Plugin.load(sys.argv[3])
    total = program("total = w.allreduce(w.rank); w.rank == 0 and print('total', total, flush=True)")
    abort = program("w.rank == 1 and w.Abort(7); w.barrier()")
    jobs = mpi_job(plugin, 2, total), mpi_job(plugin, 4, total), mpi_job(plugin, 2, abort)
    sums = await asyncio.gather(*jobs, return_exceptions=True)
    print(sums[:2], sums[2].code, sums[2])

asyncio.run(main())
"#;

#[test]
fn asyncio_serves_jobs_of_mpi4py() {
    if !Peer::Wasmtime.there() || !Peer::Mpich5.there() {
        return;
    }
    let job = python_with(&package("python")).arg("-c").arg(JOBS);
    let outcome = job.arg(host_wasm("examples")).arg(python()).arg(plugin()).run();
    outcome.code(0).says("total 1\n", 1).says("total 6\n", 1);
    outcome.says("[None, None] 7 rank 1 aborted: the other ranks are killed\n", 1);
}

/// A client at another loopback address may have the port of a rank's client: the addresses tell them apart.
#[test]
fn node_knows_the_user_of_each_client_by_both_addresses() {
    const SCRIPT: &str = r#"
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { ranks } from "hydrant-wasm";
const server = createServer({ allowHalfOpen: true });
await once(server.listen({ host: "127.0.0.1", port: 0 }), "listening");
const client = async (localAddress, localPort) => {
  const theirs = connect({ host: "127.0.0.1", port: server.address().port, localAddress, localPort });
  const [ours] = await once(server, "connection");
  return [theirs, ours];
};
const [rank, ours] = await client("127.0.0.1");
const [stranger, other] = await client("127.0.0.9", ours.remotePort);
const users = () => [ours, other].map((socket) => ranks.clientUser(socket) === process.getuid());
console.log(ours.remotePort === other.remotePort, users().join());
other.resume();
stranger.destroy();
await once(other, "end");
console.log(users().join());
process.exit(0);
"#;
    if !Peer::Node.there() {
        return;
    }
    let folder = Folder::new("js-users");
    let modules = folder.0.join("node_modules");
    fs::create_dir(&modules).expect("the folder is new");
    symlink(package("js"), modules.join("hydrant-wasm")).expect("the folder is new");
    let script = folder.file("users.mjs", SCRIPT);
    Job::new(node()).arg(script).run().code(0).quiet().stdout_is("true true,true\ntrue,false\n");
}
