//! Tasks of a step on this node: sockets, processes and signals.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use hydrant_host::Exit;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Both ends of a task's connection.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) server: OwnedFd,
    /// End that the task inherits. Closed in this process when all tasks have been forked.
    pub(crate) task: OwnedFd,
}

impl Pair {
    /// Makes a connection whose ends are closed on exec.
    pub(crate) fn new() -> Result<Pair, Errno> {
        let (server, task) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok(Pair { server, task })
    }
}

/// Lets programs that are executed from now on inherit a descriptor.
pub(crate) fn keep_on_exec(fd: impl AsFd) -> Result<(), Errno> {
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())
}

/// A running task.
#[derive(Debug)]
pub(crate) struct Task {
    /// Its rank.
    pub(crate) rank: u32,
    /// The process, without the danger that its number has become another's.
    process: OwnedFd,
    ended: bool,
}

impl Task {
    /// A task that has just been forked.
    pub(crate) fn new(rank: u32, pid: i32) -> Result<Task, Errno> {
        let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
        Ok(Task { rank, process: pidfd_open(pid, PidfdFlags::empty())?, ended: false })
    }
}

/// All tasks of the node, by Slurm's local number.
#[derive(Debug)]
pub(crate) struct Tasks(pub(crate) Vec<Task>);

impl Tasks {
    /// Notes the end of a task. Returns its rank the first time.
    pub(crate) fn ended(&mut self, task: u32) -> Option<u32> {
        let task = self.0.get_mut(task as usize).filter(|task| !task.ended)?;
        task.ended = true;
        Some(task.rank)
    }

    /// Returns whether a task runs.
    pub(crate) fn any_running(&self) -> bool {
        self.0.iter().any(|task| !task.ended)
    }

    /// Sends a signal to the task of a rank, or to all.
    pub(crate) fn signal(&self, rank: Option<u32>, signal: Signal) {
        for task in self.0.iter().filter(|task| !task.ended && rank.is_none_or(|rank| rank == task.rank)) {
            // A process that has ended meanwhile needs none.
            let _ = pidfd_send_signal(&task.process, signal);
        }
    }
}

/// User of the tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

impl User {
    /// Removes files with the rights of the user, which are not those of this process. `paths` are separated by commas, and the
    /// files may be gone.
    pub(crate) fn remove(self, paths: &[u8]) {
        let paths = paths.split(|&byte| byte == b',').map(|path| Path::new(OsStr::from_bytes(path)));
        let mut command = Command::new("/bin/rm");
        command.args(["-f", "--"]).args(paths.filter(|path| path.is_absolute()));
        // Supplementary groups are given up with the user.
        command.env_clear().current_dir("/").uid(self.user).gid(self.group);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // What stays is the user's. Slurm may have waited for the process.
        drop(command.status());
    }
}

/// Converts the status of `waitpid`.
pub(crate) fn exit_of(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status) as u8)
    } else {
        Exit::Code(libc::WEXITSTATUS(status) as u8)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn signals_go_to_tasks_that_run() {
        let mut children = [(); 2].map(|()| Command::new("sleep").arg("1000").spawn().unwrap());
        let of = |rank: u32, child: &std::process::Child| Task::new(rank, child.id() as i32).unwrap();
        let mut tasks = Tasks(vec![of(4, &children[0]), of(7, &children[1])]);
        tasks.signal(Some(7), Signal::TERM);
        let status = children[1].wait().unwrap();
        assert_eq!(exit_of(status.into_raw()), Exit::Signal(15));
        assert_eq!((tasks.ended(1), tasks.ended(1), tasks.ended(2)), (Some(7), None, None));
        assert!(tasks.any_running());
        tasks.signal(None, Signal::KILL);
        assert_eq!(exit_of(children[0].wait().unwrap().into_raw()), Exit::Signal(9));
        assert_eq!((tasks.ended(0), tasks.any_running()), (Some(4), false));
    }

    #[test]
    fn one_end_of_a_pair_is_inherited() {
        let pair = Pair::new().unwrap();
        keep_on_exec(&pair.task).unwrap();
        let flags = |fd| rustix::io::fcntl_getfd(fd).unwrap();
        assert!(flags(&pair.task).is_empty() && !flags(&pair.server).is_empty());
    }
}
