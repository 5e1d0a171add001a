//! The plugin, and a job for it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use hydrant_core::server::JobSpec;
use hydrant_core::trace::Exit;
use hydrant_core::wire::pmix::{WILDCARD, Writer, kind};
use hydrant_core::{ConnId, Input, JobId, Limits, Rank, Time};
use hydrant_tests::pmix::{hello, message};
use hydrant_wasm::{Sandbox, Settings};

pub(crate) const JOB: JobId = JobId(0);
pub(crate) const SEED: u32 = 7;
pub(crate) const LIMITS: Limits = Limits {
    jobs: 2,
    ranks: 4,
    conns: 6,
    keys: 64,
    kvs_bytes: 8192,
    groups: 2,
    names: 4,
    spawns: 2,
    spawn_bytes: 2048,
    psets: 4,
    commit_bytes: 256,
    ..Limits::NONE
};

/// `hydrant.wasm`: what `HYDRANT_WASM` names, or made here, once.
pub(crate) fn file() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        if let Some(file) = std::env::var_os("HYDRANT_WASM") {
            return file.into();
        }
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../build");
        let mut command = Command::new(build);
        // What cargo set for this test is not for another cargo.
        command.env("CARGO_TARGET_DIR", target_dir()).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        command.env_remove("LD_LIBRARY_PATH");
        let output = command.output().expect("host-wasm/build is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it prints a path").trim_end().into()
    })
}

/// The build directory, from where the test itself lies: `target/debug/deps/test`.
pub(crate) fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("the system tells a process its program");
    exe.ancestors().nth(3).expect("a test lies in deps of a profile of the build directory").to_path_buf()
}

/// The plugin, compiled once a test program.
pub(crate) fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    let settings = || Settings { cache: Some(target_dir().join("hydrant-cache")), ..patient() };
    SANDBOX.get_or_init(|| Sandbox::load(file(), &settings()).expect("the plugin is whole"))
}

/// A deadline that no honest plugin misses, however busy the machine is.
pub(crate) fn patient() -> Settings {
    Settings { deadline: Duration::from_secs(60), ..Settings::default() }
}

/// A PMI-2 message.
pub(crate) fn counted(body: &str) -> Vec<u8> {
    format!("{:6}{body}", body.len()).into_bytes()
}

/// What a PMIx client of a job `kvs_3` of one rank sends: its handshake, job info, files to remove, commit, get, a get that
/// waits, fence, finalize.
fn pmix_requests() -> Vec<Vec<u8>> {
    let name = "kvs_3";
    let key_value = b"\x02\x0ckey.0\0\x03\x16value of 0\0";
    let get = |key: &'static [u8]| {
        move |writer: &mut Writer<'_>| {
            writer.single();
            writer.string(name.as_bytes());
            writer.single();
            writer.uint32(0);
            writer.array(0);
            writer.single();
            writer.string(key);
        }
    };
    let data = |writer: &mut Writer<'_>| {
        for scope in [1, 2] {
            let head = [2, scope, 2, 1, key_value.len() as u8];
            writer.raw(&head);
            writer.raw(key_value);
        }
    };
    let cleanup = |writer: &mut Writer<'_>| {
        writer.array(0);
        writer.array(1);
        writer.info(b"pmix.reg.cleanup", kind::STRING);
        writer.string(b"/dev/shm/segment");
    };
    let fence = |writer: &mut Writer<'_>| {
        writer.array(1);
        writer.proc(name.as_bytes(), WILDCARD);
        writer.array(0);
    };
    vec![
        hello(name, 0),
        message(101, 0, |_| {}),
        message(102, 18, cleanup),
        message(103, 2, data),
        message(104, 4, get(b"key.0")),
        message(105, 4, get(b"key.1")),
        message(106, 3, fence),
        message(107, 5, |_| {}),
    ]
}

/// What happens in a job, in the order in which its host says so.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Tell(Input<'static>),
    Says(u32, Vec<u8>),
}

impl Event {
    pub(crate) fn input(&self) -> Input<'_> {
        match self {
            Event::Tell(input) => *input,
            Event::Says(conn, bytes) => Input::Bytes { conn: ConnId(*conn), bytes, full: false },
        }
    }
}

/// A job of three ranks, with everything that a server has a table for.
pub(crate) fn job() -> Vec<(Time, Event)> {
    use Event::{Says, Tell};
    let mut events = vec![
        Tell(Input::RegisterJob(JobSpec {
            lookup_wait: 50,
            fence_warning: 10,
            ..JobSpec::new(JOB, "kvs_1", 3)
        })),
        Tell(Input::Attr { job: JOB, key: b"PMI_process_mapping", value: b"(vector,(0,1,3))" }),
        Tell(Input::Pset { job: JOB, name: "low", first: Rank(0), count: 2 }),
    ];
    for rank in 0..3 {
        events.push(Tell(Input::Opened { conn: ConnId(rank), job: JOB, rank: Some(Rank(rank)) }));
        events.push(Says(rank, b"cmd=init pmi_version=2 pmi_subversion=0\n".to_vec()));
        events.push(Says(rank, counted(&format!("cmd=fullinit;pmirank={rank};threaded=TRUE;"))));
    }
    let all_three = |body: &str| (0..3).map(|rank| Says(rank, counted(body))).collect::<Vec<_>>();
    let one = |rank, body: &str| Says(rank, counted(body));
    for rank in 0..3 {
        events.push(one(rank, &format!("cmd=kvs-put;key=k{rank};value=v{rank};")));
    }
    events.extend(all_three("cmd=kvs-fence;"));
    events.extend(all_three("cmd=kvs-get;jobid=kvs_1;key=k1;"));
    events.push(one(0, "cmd=info-getnodeattr;key=shm;wait=TRUE;thrid=5;"));
    events.push(one(1, "cmd=info-putnodeattr;key=shm;value=1;"));
    events.push(one(2, "cmd=name-lookup;name=here;"));
    events.push(one(1, "cmd=name-publish;name=here;port=tag;"));
    events.push(one(2, "cmd=name-lookup;name=nowhere;"));
    events.extend([1, 0, 2].map(|rank| one(rank, "cmd=ring;ring-count=2;ring-left=l;ring-right=r;")));
    events.push(one(
        0,
        "cmd=spawn;ncmds=1;preputcount=1;ppkey0=a;ppval0=b;subcmd=x;maxprocs=1;argc=0;infokeycount=0;",
    ));
    let (spawn, second) = (hydrant_core::UpcallId(0), JobId(1));
    events.push(Tell(Input::RegisterJob(JobSpec { spawn: Some(spawn), ..JobSpec::new(second, "kvs_2", 1) })));
    events.push(Tell(Input::SpawnComplete { spawn, started: true, full: None, codes: &[0] }));
    events.push(Tell(Input::Opened { conn: ConnId(3), job: second, rank: Some(Rank(0)) }));
    events.push(Says(3, b"cmd=init pmi_version=1 pmi_subversion=1\n".to_vec()));
    events.push(Says(3, b"cmd=get kvsname=kvs_2 key=a\ncmd=barr".to_vec()));
    events.push(Says(3, b"cmd=barrier_in\ncmd=finalize\n".to_vec()));
    events.push(Tell(Input::Exited { job: second, rank: Rank(0), exit: Exit::Code(0) }));
    events.push(Tell(Input::Closed { conn: ConnId(3) }));
    events.push(Tell(Input::DeregisterJob { job: second }));
    // The same number again, with a PMIx client.
    events.push(Tell(Input::RegisterJob(JobSpec::new(second, "kvs_3", 1))));
    events.push(Tell(Input::Opened { conn: ConnId(4), job: second, rank: None }));
    events.extend(pmix_requests().into_iter().map(|message| Says(4, message)));
    events.push(Tell(Input::Exited { job: second, rank: Rank(0), exit: Exit::Code(0) }));
    events.push(Tell(Input::Closed { conn: ConnId(4) }));
    events.push(Tell(Input::DeregisterJob { job: second }));
    events.push(Tell(Input::Blocked { conn: ConnId(1) }));
    events.extend([0, 1].map(|rank| one(rank, "cmd=kvs-fence;")));
    // By then the fence is late, and the look-up is over.
    events.push(Tell(Input::Timeout));
    events.push(one(2, "cmd=kvs-fence;"));
    events.push(Tell(Input::Writable { conn: ConnId(1) }));
    events.push(Says(2, b"     9rubbish".to_vec()));
    events.push(one(0, "cmd=abort;isworld=TRUE;msg=enough;"));
    events
        .extend((0..3).map(|rank| Tell(Input::Exited { job: JOB, rank: Rank(rank), exit: Exit::Signal(9) })));
    events.extend((0..3).map(|conn| Tell(Input::Closed { conn: ConnId(conn) })));
    events.push(Tell(Input::DeregisterJob { job: JOB }));
    (0..).map(|step| Time(step * 10)).zip(events).collect()
}
