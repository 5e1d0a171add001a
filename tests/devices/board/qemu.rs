//! A board: the firmware, built once, in a QEMU of its own.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, iter};

use hydrant_core::manage;
use hydrant_tests::peers::Peer;
use hydrant_tests::{Job, Running};
use hydrant_tests::{PATIENCE, free_ports, target_dir};
use object::{Object, ObjectSymbol};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

use super::forward;
use super::gdb::Gdb;
use super::log::Log;

/// A kind of board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Cortex-M3, 64 KiB of RAM.
    Lm3s6965evb,
    /// Cortex-M4, 4 MiB of RAM.
    Mps2An386,
}

impl Kind {
    /// The name that the firmware's build and QEMU have for it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Lm3s6965evb => "lm3s6965evb",
            Kind::Mps2An386 => "mps2-an386",
        }
    }

    /// Its network card, as QEMU calls it.
    const fn nic(self) -> &'static str {
        match self {
            Kind::Lm3s6965evb => "stellaris",
            Kind::Mps2An386 => "lan9118",
        }
    }

    /// Number of jobs of a run that it serves at the same time, each at a port of its own.
    const fn jobs(self) -> usize {
        match self {
            Kind::Lm3s6965evb => 2,
            Kind::Mps2An386 => 8,
        }
    }

    /// Sizes of firmware that serves nodes: runs of 16 ranks, four of them on each host. There is room for four more clients, or
    /// for one on a small board with links or spares.
    fn node_sizes(self, features: &str) -> Vec<(&'static str, &'static str)> {
        let is_short =
            self == Kind::Lm3s6965evb && (features.contains("links") || features.contains("spares"));
        let clients = if is_short { "5" } else { "8" };
        let sizes = [("HYDRANT_RANKS", "16"), ("HYDRANT_CLIENTS", clients)];
        sizes.into_iter().filter(|_| features.contains("nodes")).collect()
    }

    /// The firmware with these features, built here once. With a secret, it is that of [`secret_file`].
    pub(crate) fn firmware(self, features: &'static str, secret: bool) -> PathBuf {
        type Builds = Vec<((Kind, &'static str, bool), PathBuf)>;
        static BUILDING: Mutex<Builds> = Mutex::new(Vec::new());
        let mut built = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, elf)) = built.iter().find(|(build, _)| *build == (self, features, secret)) {
            return elf.clone();
        }
        // Builds of all features have the same name, and another process may build, too.
        let _lock = lock();
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware-example/build");
        let output = Command::new(build)
            .arg(self.name())
            .env("CARGO_TARGET_DIR", target_dir())
            // What cargo set for this test is not for another cargo.
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO")
            .env_remove("HYDRANT_RANKS")
            .env_remove("HYDRANT_CLIENTS")
            .envs(self.node_sizes(features))
            .env("HYDRANT_FEATURES", features)
            .env("HYDRANT_SECRET_FILE", if secret { secret_file() } else { PathBuf::new() })
            .stdin(Stdio::null())
            .output()
            .expect("firmware-example/build is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout);
        let file = PathBuf::from(said.lines().last().expect("it names the file"));
        let with = if secret { "-secret" } else { "" };
        let elf = target_dir().join(format!("firmware-{}-{features}{with}.elf", self.name()));
        // A board of another process may be reading the file of this name.
        let copy = elf.with_extension("new");
        fs::copy(&file, &copy).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        fs::rename(&copy, &elf).unwrap_or_else(|e| panic!("{}: {e}", elf.display()));
        built.push(((self, features, secret), elf.clone()));
        elf
    }
}

/// Takes the lock of firmware builds. Dropping the file releases it.
fn lock() -> fs::File {
    let path = target_dir().join("firmware.lock");
    let file = fs::File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    flock(&file, FlockOperation::LockExclusive).expect("the lock is released when its process ends");
    file
}

/// A file with the secret of boards that have one.
pub(crate) fn secret_file() -> PathBuf {
    let path = target_dir().join("board-secret");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .expect("there is room");
    file.write_all(b"0123456789abcdef\n").expect("there is room");
    path
}

/// A running board.
pub(crate) struct Board {
    qemu: Option<Running>,
    /// A port of this machine for each client: QEMU's network lets one in at a time through each of its own, to which
    /// these lead.
    clients: Vec<SocketAddr>,
    /// One for each host.
    hosts: Vec<SocketAddr>,
    log: Log,
    /// The firmware.
    elf: PathBuf,
    /// Where a debugger finds it.
    stub: PathBuf,
}

/// Clients of each job of a run that can reach a board.
const NODE_CLIENTS: usize = 4;
/// Connections to the management port that are forwarded.
const HOSTS: usize = 3;

impl Board {
    /// Starts one that `clients` clients can reach, with settings for its command line; nothing where QEMU may be
    /// missing and is.
    pub(crate) fn start(kind: Kind, clients: usize, settings: &str) -> Option<Board> {
        Board::started(Board::launch(kind, "pmix", false, clients, settings)?)
    }

    /// Starts one that serves nodes of runs, whose client port is also that of this machine. The large one has lazy
    /// fences. Each job of a run has a port.
    pub(crate) fn of_node(kind: Kind, secret: bool) -> Option<Board> {
        let features = match kind {
            Kind::Lm3s6965evb => "pmix,nodes",
            Kind::Mps2An386 => "pmix,nodes,cluster",
        };
        Board::of_node_with(kind, features, secret)
    }

    /// The same with these features.
    pub(crate) fn of_node_with(kind: Kind, features: &'static str, secret: bool) -> Option<Board> {
        let (port, listeners) = listeners(kind.jobs());
        let settings = format!("pmi-port={port}");
        let mut board = Board::started(Board::launch(kind, features, secret, NODE_CLIENTS, &settings)?)?;
        for (listener, clients) in listeners.into_iter().zip(board.clients.chunks(NODE_CLIENTS)) {
            forward::through(listener, clients.to_vec());
        }
        board.clients.clear();
        Some(board)
    }

    /// The small board with a secret.
    pub(crate) fn with_secret(clients: usize) -> Option<Board> {
        Board::started(Board::launch(Kind::Lm3s6965evb, "pmix", true, clients, "")?)
    }

    /// The large board with tasks of Embassy in place of the loop.
    pub(crate) fn with_tasks(clients: usize) -> Option<Board> {
        Board::started(Board::launch(Kind::Mps2An386, "pmix,embassy", false, clients, "")?)
    }

    fn started(mut board: Board) -> Option<Board> {
        let qemu = board.qemu.as_ref().expect("it has just been started");
        // The monitor prompts when it has answered.
        qemu.await_stdout("(qemu) ", 2);
        let (clients, hosts) = forwarded(&qemu.stdout());
        board.clients = clients.into_iter().map(forward::to).collect();
        board.hosts = hosts;
        board.await_log("ranks");
        Some(board)
    }

    /// The same without waiting for anything: a small board that stops by itself and is not reachable.
    pub(crate) fn doomed(settings: &str) -> Option<Board> {
        Board::launch(Kind::Lm3s6965evb, "pmix", false, 0, settings)
    }

    fn launch(
        kind: Kind,
        features: &'static str,
        secret: bool,
        clients: usize,
        settings: &str,
    ) -> Option<Board> {
        if !Peer::Qemu.there() {
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let elf = kind.firmware(features, secret);
        let name = format!("board-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let serial = std::env::temp_dir().join(name);
        fs::write(&serial, []).expect("there is room for a log");
        let stub = serial.with_extension("gdb");
        let setting = |name| settings.split_whitespace().find_map(|word| word.strip_prefix(name));
        let address = setting("address=");
        let address = address.and_then(|address| address.split('/').next()).unwrap_or("10.0.2.15");
        let mut nic = format!("user,model={}", kind.nic());
        let port = setting("pmi-port=").map_or(manage::PMI_PORT, |port| port.parse().expect("a port"));
        let jobs = if features.contains("nodes") { kind.jobs() } else { 1 };
        let ports = (port..).take(jobs).flat_map(|port| iter::repeat_n(port, clients));
        for port in ports.chain([manage::PORT; HOSTS]) {
            nic += &format!(",hostfwd=tcp:127.0.0.1:0-{address}:{port}");
        }
        let mut semihosting = "enable=on,target=native,arg=hydrant".to_owned();
        semihosting.extend(settings.split_whitespace().map(|word| format!(",arg={word}")));
        let mut qemu = Job::new("qemu-system-arm")
            .words("-display none -monitor stdio -M")
            .args([kind.name(), "-serial", &format!("file:{}", serial.display())])
            .args(["-gdb", &format!("unix:{},server=on,wait=off", stub.display())])
            .args(["-semihosting-config", &semihosting, "-nic", &nic, "-kernel"])
            .arg(&elf)
            .hold_input()
            .start();
        qemu.send(b"info usernet\n").expect("the monitor reads");
        let log = Log::new(&elf, serial);
        Some(Board { qemu: Some(qemu), clients: Vec::new(), hosts: Vec::new(), log, elf, stub })
    }

    /// The small board.
    pub(crate) fn small(clients: usize, settings: &str) -> Option<Board> {
        Board::start(Kind::Lm3s6965evb, clients, settings)
    }

    /// Where a client connects.
    pub(crate) fn client(&self, at: usize) -> SocketAddr {
        self.clients[at]
    }

    /// Where a host connects.
    pub(crate) fn host(&self, at: usize) -> SocketAddr {
        self.hosts[at]
    }

    /// A program that finds the board as rank `rank` of `size` finds its process manager.
    pub(crate) fn rank(&self, program: impl AsRef<std::ffi::OsStr>, rank: u32, size: u32) -> Job {
        Job::new(program)
            .env("PMI_PORT", self.client(rank as usize).to_string())
            .env("PMI_ID", rank.to_string())
            .env("PMI_RANK", rank.to_string())
            .env("PMI_SIZE", size.to_string())
    }

    /// Waits until the log holds `text`, behind where the last such call found its own.
    #[track_caller]
    pub(crate) fn await_log(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE / 4;
        loop {
            if let Some(line) = self.log.find(text) {
                return line;
            }
            assert!(Instant::now() < deadline, "no {text:?} in the board's log:\n{}", self.log.text());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// All of the log.
    pub(crate) fn log_text(&mut self) -> String {
        self.log.find("\0");
        self.log.text()
    }

    /// Attaches a debugger, which stops the board.
    pub(crate) fn debug(&self) -> Gdb {
        Gdb::attach(&self.stub)
    }

    /// The address of a symbol of the firmware that is not Rust's own.
    pub(crate) fn symbol(&self, name: &str) -> u32 {
        let bytes = fs::read(&self.elf).unwrap_or_else(|e| panic!("{}: {e}", self.elf.display()));
        let file = object::File::parse(&*bytes).expect("the firmware is a program");
        let symbol = file.symbol_by_name(name).unwrap_or_else(|| panic!("the firmware has no {name}"));
        symbol.address() as u32
    }

    /// Sends QEMU a signal, such as the one that freezes the board.
    pub(crate) fn signal(&self, signal: Signal) {
        self.qemu.as_ref().expect("the board runs").signal(signal);
    }

    /// Resets the board, as its reset button does.
    pub(crate) fn reset(&mut self) {
        let qemu = self.qemu.as_mut().expect("the board runs");
        qemu.send(b"system_reset\n").expect("the monitor reads");
    }

    /// Stops the processor, and waits until it stands still. The board's network goes on.
    pub(crate) fn halt(&mut self) {
        self.command("stop\ninfo status\n", "VM status: paused");
    }

    /// Lets the processor go on.
    pub(crate) fn go_on(&mut self) {
        self.command("cont\ninfo status\n", "VM status: running");
    }

    /// Gives the monitor commands, and waits until it has said `text` once more.
    fn command(&mut self, commands: &str, text: &str) {
        let qemu = self.qemu.as_mut().expect("the board runs");
        let said = qemu.stdout().matches(text).count();
        qemu.send(commands.as_bytes()).expect("the monitor reads");
        qemu.await_stdout(text, said + 1);
    }

    /// Waits until the board has stopped, and gives the code with which it did.
    pub(crate) fn stopped(&mut self) -> Option<i32> {
        self.qemu.take().expect("waited for once").wait().status.code()
    }

    /// Whether the board has not stopped.
    pub(crate) fn runs(&self) -> bool {
        TcpStream::connect(self.host(HOSTS - 1)).is_ok() && !self.log.text().contains("ERROR")
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the board's log:\n{}", self.log_text());
        }
        // Without them there is nothing to look at.
        let _ = fs::remove_file(self.log.path());
        let _ = fs::remove_file(&self.stub);
    }
}

/// The lowest of `count` consecutive free ports, and listeners at all of them.
fn listeners(count: usize) -> (u16, Vec<TcpListener>) {
    let listen = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
    let found = (0..1000).find_map(|_| {
        let [first] = free_ports();
        Some((first, (first..).take(count).map(listen).collect::<Option<_>>()?))
    });
    found.expect("there are free ports")
}

/// The ports of this machine that lead to clients' and hosts' ports, as QEMU's monitor tells them. Those to the same port of
/// the board are together.
fn forwarded(said: &str) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
    let (mut clients, mut hosts) = (Vec::new(), Vec::new());
    for line in said.lines().filter(|line| line.contains("HOST_FORWARD")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = |at: usize| words.get(at).and_then(|word| word.parse::<u16>().ok()).expect("a port");
        let to = port(5);
        let all = if to == manage::PORT { &mut hosts } else { &mut clients };
        all.push((to, SocketAddr::from((Ipv4Addr::LOCALHOST, port(3)))));
    }
    clients.sort_by_key(|&(to, _)| to);
    let addresses = |all: Vec<(u16, SocketAddr)>| all.into_iter().map(|(_, address)| address).collect();
    (addresses(clients), addresses(hosts))
}
