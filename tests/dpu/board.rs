//! A board: a machine in a QEMU of its own.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use hydrant_tests::{Folder, Job, Running};
use rustix::process::Signal;

use crate::image;

/// A board with a disk of its own. The devices `dpu0-N` and `dpu1-N` of this namespace are the other ends of its network cards,
/// which have the addresses 10.9.0.N and 10.9.1.N.
pub(crate) struct Board {
    pub(crate) number: u32,
    /// While there is power.
    qemu: Option<Running>,
    since: Instant,
    /// Number of commands of the shell so far.
    commands: u32,
    disk: PathBuf,
    /// Has the disk.
    _folder: Folder,
}

impl Board {
    /// Gives a new board power, and waits for its shell.
    pub(crate) fn start(number: u32) -> Board {
        let folder = Folder::new(&format!("dpu{number}"));
        let disk = folder.0.join("disk");
        let copied = Command::new("cp").arg("--sparse=always").args([&image("disk"), &disk]).status();
        assert!(copied.is_ok_and(|status| status.success()), "there is room for {}", disk.display());
        let mut board =
            Board { number, qemu: None, since: Instant::now(), commands: 0, disk, _folder: folder };
        board.power_on();
        board
    }

    /// Gives it power, and waits for its shell.
    pub(crate) fn power_on(&mut self) {
        let number = self.number;
        let mut job = Job::new("qemu-system-aarch64")
            .words("-M virt -cpu cortex-a72 -smp 2 -m 512 -display none -serial stdio -monitor none -append")
            .arg("console=ttyAMA0 quiet loglevel=1 systemd.show_status=0")
            .args(["-kernel".into(), image("kernel"), "-initrd".into(), image("initrd")])
            .args(["-drive", &format!("if=none,id=disk,format=raw,file={}", self.disk.display())])
            .args(["-device", "virtio-blk-device,drive=disk"]);
        for card in 0..2 {
            let tap = format!("tap,id=card{card},ifname=dpu{card}-{number},script=no,downscript=no");
            let device = format!("virtio-net-device,netdev=card{card},mac=52:54:00:00:0{card}:0{number}");
            job = job.args(["-netdev", &tap, "-device", &device]);
        }
        self.since = Instant::now();
        self.qemu = Some(job.hold_input().start());
        self.await_shell(1);
    }

    /// Waits for the shell that follows the start `boots` of this QEMU.
    fn await_shell(&mut self, boots: usize) {
        self.qemu().await_stdout("# ", boots);
        self.qemu().send(b"stty -echo; PS1=\n").expect("the console reads");
        self.shell("true");
    }

    fn qemu(&mut self) -> &mut Running {
        self.qemu.as_mut().expect("the board has power").renew_patience()
    }

    /// Runs a command, which succeeds. Returns what it has written.
    #[track_caller]
    pub(crate) fn shell(&mut self, command: &str) -> String {
        self.commands += 1;
        let (begin, end) = (format!("begin-{}:", self.commands), format!("end-{}:", self.commands));
        // The console shows what is typed: there the words are no marks.
        let line = format!("echo 'begin''-{0}:'; {command}; echo 'end''-{0}:'$?.\n", self.commands);
        let qemu = self.qemu();
        qemu.send(line.as_bytes()).expect("the console reads");
        let said = qemu.await_stdout(&end, 1).stdout();
        qemu.await_stdout(&format!("{end}0."), 1);
        let (_, said) = said.split_once(&begin).unwrap_or_else(|| panic!("no {begin} in {said}"));
        let (said, _) = said.split_once(&end).unwrap_or_else(|| panic!("no {end} in {said}"));
        said.trim().replace('\r', "")
    }

    /// Installs hydrant's package, and enables its unit.
    pub(crate) fn install(&mut self) {
        // The packages of Debian are unpacked, which dpkg does not know.
        self.shell("dpkg --force-depends --install /root/hydrant.deb");
        self.shell("systemctl enable --now hydrant-board");
    }

    /// Waits until its system is up, with the server.
    pub(crate) fn await_server(&mut self) {
        self.shell("systemctl is-system-running --wait; systemctl is-active hydrant-board");
    }

    /// Time since it got power.
    pub(crate) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Time that its processors have given the server, in seconds.
    pub(crate) fn processor_seconds(&mut self) -> f64 {
        let ns = self.shell("systemctl show --property CPUUsageNSec --value hydrant-board");
        ns.parse::<f64>().expect("a number of nanoseconds") / 1e9
    }

    /// Memory of the server.
    pub(crate) fn memory_kib(&mut self) -> u64 {
        let status = "/proc/$(systemctl show --property MainPID --value hydrant-board)/status";
        let line = self.shell(&format!("grep VmRSS {status}"));
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number of KiB")
    }

    /// Restarts its system, and waits for its shell.
    pub(crate) fn reboot(&mut self) {
        let shells = self.qemu().stdout().matches("# ").count();
        self.qemu().send(b"systemctl reboot\n").expect("the console reads");
        self.await_shell(shells + 1);
    }

    /// Takes its power away.
    pub(crate) fn power_off(&mut self) {
        let qemu = self.qemu.take().expect("the board has power");
        qemu.signal(Signal::KILL);
        qemu.wait().signaled(Signal::KILL);
    }

    /// Ends it.
    pub(crate) fn end(mut self) {
        self.power_off();
    }
}
