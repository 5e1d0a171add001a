//! Machines made of namespaces: three hosts with an sshd each, and one to start jobs from.
//!
//! Every machine has a network, files, a name and shared memory of its own, the hosts also process numbers. They have no
//! names that could be left behind: a machine is there for as long as its first process, which ends when this test's end
//! of a pipe does, however the test ends. The kernel then ends all other processes there.
//!
//! ```text
//!              eth0 10.77.0.0/24          eth1 10.78.0.0/24
//! login        10.77.0.1 (bridge)         10.78.0.1 (bridge)
//! a b c        10.77.0.2 to .4            10.78.0.2 to .4
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hydrant_tests::peers::Peer;
use hydrant_tests::{Job, hydrant_bin, reset_signals, within};

/// The hosts that have an sshd.
pub(crate) const HOSTS: [&str; 3] = ["a", "b", "c"];
/// What follows each machine's name in full.
pub(crate) const DOMAIN: &str = "site";
/// The machine that jobs are started from.
pub(crate) const LOGIN: &str = "login";
/// Where programs are on all machines.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// How long something that comes about may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What the first process of a machine runs, with the machine's name and the site's folder. It says its number as the
/// test knows it, because processes inside see another one.
const FIRST: &str = r#"
read -r pid rest </proc/self/stat
[ "$$" = 1 ] && mount -t proc proc /proc
echo "$1" >/proc/sys/kernel/hostname
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount --bind "$2/ssh" /etc/ssh
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/passwd" /etc/passwd
ip link set lo up
if [ "$$" = 1 ]; then
    mkdir /run/sshd
    /usr/sbin/sshd -D -E "$2/$1.log" </dev/null >/dev/null 2>&1 &
    while [ ! -s /run/sshd.pid ]; do kill -0 $!; sleep 0.01; done
fi
echo "$pid"
cat >/dev/null
[ "$$" = 1 ] || rm -rf "$2"
"#;

const SSHD_CONFIG: &str = "HostKey /etc/ssh/key
AuthorizedKeysFile /etc/ssh/key.pub
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
PidFile /run/sshd.pid
";

const SSH_CONFIG: &str = "IdentityFile /etc/ssh/key
UserKnownHostsFile /etc/ssh/known_hosts
StrictHostKeyChecking yes
";

/// A machine.
#[derive(Debug)]
struct Machine {
    first: Child,
    /// The process by which others enter it.
    pid: u32,
}

impl Machine {
    fn start(name: &str, dir: &Path) -> Machine {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--uts", "--ipc"]);
        if name != LOGIN {
            command.args(["--pid", "--fork", "--kill-child"]);
        }
        command.args(["--", "sh", "-euc", FIRST, "sh", name]).arg(dir);
        // Nothing of the test's environment is known on another machine. A group of its own hears no Ctrl-C.
        reset_signals(command.env_clear().env("PATH", PATH).process_group(0));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut first = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let mut line = String::new();
        let stdout = first.stdout.take().expect("standard output is piped");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        let log = || fs::read_to_string(dir.join(format!("{name}.log"))).unwrap_or_default();
        let pid = line.trim().parse().unwrap_or_else(|_| panic!("{name} did not come up\n{}", log()));
        Machine { first, pid }
    }

    /// A command that runs in it.
    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        reset_signals(command.args(self.entrance()).arg("--"));
        command
    }

    fn entrance(&self) -> [String; 5] {
        let target = format!("--target={}", self.pid);
        [&target, "--net", "--mount", "--uts", "--ipc"].map(str::to_owned)
    }

    /// Has `ip` do what the lines say.
    fn ip(&self, lines: &str) {
        let mut command = self.enter();
        let mut ip = command.args(["ip", "-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip starts");
        ip.stdin.take().expect("standard input is piped").write_all(lines.as_bytes()).expect("ip reads");
        let status = ip.wait().expect("ip is a child");
        assert!(status.success(), "ip: {status}\n{lines}");
    }

    /// The processes in it, with their command lines.
    fn processes(&self) -> BTreeSet<(u32, String)> {
        let network = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = network(self.pid).expect("the first process is there");
        let entries = fs::read_dir("/proc").expect("Linux has /proc").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        // Processes come and go while this reads.
        let words = |pid| Some((pid, fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?));
        let inside = pids.filter(|&pid| network(pid).is_some_and(|network| network == own));
        inside.filter_map(words).map(|(pid, words)| (pid, words.replace('\0', " "))).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.first.stdin.take());
        // Its own exit code says nothing.
        drop(self.first.wait());
    }
}

/// Three hosts and a machine to start from, with what runs on each when it is idle.
#[derive(Debug)]
pub(crate) struct Site {
    dir: PathBuf,
    hosts: [Machine; 3],
    login: Machine,
    idle: [BTreeSet<(u32, String)>; 3],
}

/// The site of this run of the tests, for one test at a time.
pub(crate) struct Shared(MutexGuard<'static, Option<Site>>);

impl std::ops::Deref for Shared {
    type Target = Site;

    fn deref(&self) -> &Site {
        self.0.as_ref().expect("only a site that was started is handed out")
    }
}

impl Site {
    /// The one that all tests share; `None` where it may be missing.
    pub(crate) fn shared() -> Option<Shared> {
        // Never dropped: it ends when this process does.
        static SITE: LazyLock<Mutex<Option<Site>>> = LazyLock::new(|| Mutex::new(Site::start()));
        // A test that failed has ended its job.
        let site = SITE.lock().unwrap_or_else(PoisonError::into_inner);
        site.is_some().then_some(Shared(site))
    }

    /// A new one; `None` where it may be missing.
    pub(crate) fn start() -> Option<Site> {
        if !Peer::Ssh.there() {
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("hydrant-site-{}-{number}", std::process::id()));
        configure(&dir);
        // The last to end is this one, which removes the folder.
        let login = Machine::start(LOGIN, &dir);
        let hosts = HOSTS.map(|name| Machine::start(name, &dir));
        connect(&login, &hosts);
        let mut site = Site { dir, hosts, login, idle: Default::default() };
        site.settle();
        Some(site)
    }

    /// Copies a program to a folder that the machine to start from has for itself. Returns the copy's path.
    pub(crate) fn program_of_login(&self, program: &Path) -> String {
        let copy = format!("/run/{}", program.file_name().expect("a file has a name").to_string_lossy());
        let status = self.login.enter().arg("cp").arg(program).arg(&copy).status().expect("cp starts");
        assert!(status.success(), "cp: {status}");
        copy
    }

    /// `hydrant run ARGS`, as a user on the login machine types it.
    pub(crate) fn hydrant(&self, args: &str) -> Job {
        self.on_login(hydrant_bin()).arg("run").words(args)
    }

    /// A program on the login machine.
    pub(crate) fn on_login(&self, program: impl AsRef<std::ffi::OsStr>) -> Job {
        Job::new("nsenter").args(self.login.entrance()).arg("--").arg(program)
    }

    /// A program on a machine, which sees the processes of that machine alone.
    pub(crate) fn on(&self, machine: &str, program: impl AsRef<std::ffi::OsStr>) -> Job {
        if machine == LOGIN {
            return self.on_login(program);
        }
        let entrance = self.hosts[number(machine)].entrance();
        Job::new("nsenter").args(entrance).args(["--pid", "--"]).arg(program)
    }

    /// Takes what runs on the hosts for what runs there when they are idle.
    pub(crate) fn settle(&mut self) {
        self.idle = [0, 1, 2].map(|host: usize| self.hosts[host].processes());
    }

    /// The folder that is gone when the site is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A program that ends with the host or the login machine on which it runs, and knows nothing of the test's environment.
    pub(crate) fn inside(&self, machine: &str, program: &str) -> Command {
        let machine = if machine == LOGIN { &self.login } else { &self.hosts[number(machine)] };
        let mut command = Command::new("nsenter");
        command.args(machine.entrance()).args(["--pid", "--", program]).env_clear().env("PATH", PATH);
        command
    }

    /// The processes that came to a host since it was idle.
    pub(crate) fn guests(&self, host: &str) -> BTreeSet<(u32, String)> {
        let host = number(host);
        self.hosts[host].processes().difference(&self.idle[host]).cloned().collect()
    }

    /// The processes on the login machine.
    pub(crate) fn login_processes(&self) -> BTreeSet<(u32, String)> {
        self.login.processes()
    }

    /// Asserts that nothing is left on any host, but for what is about to end.
    #[track_caller]
    pub(crate) fn is_idle(&self) {
        let left = || HOSTS.map(|host| self.guests(host));
        let idle = || left().iter().all(BTreeSet::is_empty);
        assert!(within(PATIENCE, idle), "left on {HOSTS:?}: {:#?}", left());
    }

    /// Cuts a host off all networks, at the far end of its cables.
    pub(crate) fn cut(&self, host: &str) {
        self.login.ip(&format!("link set {host}0 down\nlink set {host}1 down\n"));
    }

    /// Connects a host that was cut off again.
    pub(crate) fn mend(&self, host: &str) {
        self.login.ip(&format!("link set {host}0 up\nlink set {host}1 up\n"));
    }

    /// The addresses and ports of the login machine's connections, but for those of ssh.
    pub(crate) fn connections(&self) -> Vec<String> {
        self.sockets("established dport != :22")
    }

    /// The addresses and ports at which something listens on the login machine.
    pub(crate) fn listening(&self) -> Vec<String> {
        self.sockets("listening")
    }

    fn sockets(&self, state: &str) -> Vec<String> {
        let mut command = self.login.enter();
        let words = format!("ss --no-header --numeric --tcp state {state}");
        let output = command.args(words.split(' ')).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert!(output.status.success(), "{command:?}: {}", output.status);
        let table = String::from_utf8(output.stdout).expect("addresses are text");
        let address = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
        table.lines().filter_map(address).collect()
    }
}

fn number(host: &str) -> usize {
    HOSTS.iter().position(|name| *name == host).unwrap_or_else(|| panic!("no host {host}"))
}

/// One key serves all users and machines: they are the same person on the same files.
fn configure(dir: &Path) {
    let ssh = dir.join("ssh");
    fs::create_dir_all(&ssh).unwrap_or_else(|e| panic!("{}: {e}", ssh.display()));
    let write = |path: PathBuf, text: &str| {
        fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    };
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "site", "-f"]).arg(ssh.join("key"));
    let status = keygen.status().unwrap_or_else(|e| panic!("{keygen:?}: {e}"));
    assert!(status.success(), "{keygen:?}: {status}");
    let key = fs::read_to_string(ssh.join("key.pub")).expect("ssh-keygen made it");
    let names = HOSTS.map(|host| format!("{host},{host}.{DOMAIN}"));
    write(ssh.join("known_hosts"), &format!("{} {key}", names.join(",")));
    write(ssh.join("sshd_config"), SSHD_CONFIG);
    write(ssh.join("ssh_config"), SSH_CONFIG);
    // A plain shell, which reads nothing of the home folder: what stands there may take long, or wait for others.
    let people = fs::read_to_string("/etc/passwd").expect("a system has users");
    let plain = |line: &str| match line.rsplit_once(':').filter(|_| line.starts_with("root:")) {
        Some((root, _)) => format!("{root}:/bin/sh\n"),
        None => format!("{line}\n"),
    };
    write(dir.join("passwd"), &people.lines().map(plain).collect::<String>());
    let mut names = format!("127.0.0.1 localhost\n10.77.0.1 {LOGIN}.{DOMAIN} {LOGIN}\n");
    for (number, host) in (2..).zip(HOSTS) {
        let _ = writeln!(names, "10.77.0.{number} {host}.{DOMAIN} {host}");
    }
    write(dir.join("hosts"), &names);
}

/// Two networks that all machines are in.
fn connect(login: &Machine, hosts: &[Machine; 3]) {
    for (net, subnet) in [(0, 77), (1, 78)] {
        let mut here = format!(
            "link add eth{net} type bridge\naddress add 10.{subnet}.0.1/24 dev eth{net}\nlink set eth{net} up\n"
        );
        for (name, host) in HOSTS.iter().zip(hosts) {
            let pid = host.pid;
            let _ = writeln!(here, "link add {name}{net} type veth peer name eth{net} netns {pid}");
            let _ = writeln!(here, "link set {name}{net} master eth{net} up");
        }
        login.ip(&here);
        for (number, host) in (2..).zip(hosts) {
            let address = format!("address add 10.{subnet}.0.{number}/24 dev eth{net}");
            host.ip(&format!("{address}\nlink set eth{net} up\n"));
        }
    }
}
