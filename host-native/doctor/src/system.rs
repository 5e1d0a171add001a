//! Checks of shared memory, processors, hwloc and access between processes.

use std::path::Path;

use crate::finding::Finding;
use crate::machine::Machine;

/// Size of `/dev/shm` below which a job of several ranks may fail, and size that each processor should have.
const SHARED_MIN: u64 = 16 << 20;
const SHARED_PER_PROCESSOR: u64 = 32 << 20;
/// Directories of libraries. Those of an architecture are below them.
const LIBRARY_DIRS: [&str; 5] = ["usr/lib", "usr/lib64", "usr/local/lib", "lib", "lib64"];
/// Maximum number of entries of a directory that are read.
const ENTRIES_MAX: usize = 100_000;

pub(crate) fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![shared_memory(machine), processors(machine), hwloc(machine)];
    findings.extend(ptrace(machine));
    findings
}

fn shared_memory(machine: &Machine) -> Finding {
    const TOPIC: &str = "/dev/shm";
    let Some((size, free)) = machine.shared_memory else {
        return Finding::problem(
            TOPIC,
            "is missing or cannot be written; MPI libraries keep memory there that ranks share",
            "mount it: mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        );
    };
    let text = format!("{} MiB, {} MiB free", size >> 20, free >> 20);
    if free < SHARED_MIN {
        let hint = "remove files that killed jobs have left in /dev/shm, or enlarge it";
        return Finding::problem(TOPIC, format!("{text}: too little for the memory that ranks share"), hint);
    }
    let processors = machine.processors.unwrap_or(1) as u64;
    if free < SHARED_PER_PROCESSOR.saturating_mul(processors) {
        let hint = "enlarge it if ranks die by SIGBUS; containers: --shm-size=1g, Kubernetes: an emptyDir with medium Memory";
        return Finding::note(TOPIC, text, Some(hint));
    }
    Finding::ok(TOPIC, text)
}

fn processors(machine: &Machine) -> Finding {
    const TOPIC: &str = "processors";
    let online = machine.read("/sys/devices/system/cpu/online").map(|text| text.trim().to_owned());
    let Some(usable) = machine.processors else {
        return Finding::note(TOPIC, "their number is unknown", None);
    };
    let text = match online {
        Some(online) => format!("{usable} usable; online: {online}"),
        None => format!("{usable} usable"),
    };
    match machine.path("/sys/devices/system/cpu/cpu0/topology").is_dir() {
        true => Finding::ok(TOPIC, text),
        false => {
            let text = format!("{text}; the kernel does not describe cores");
            Finding::note(TOPIC, text, Some("-bind-to needs /sys/devices/system/cpu/*/topology"))
        }
    }
}

fn hwloc(machine: &Machine) -> Finding {
    const TOPIC: &str = "hwloc";
    let is_hwloc = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("libhwloc.so.");
    let entries = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().take(ENTRIES_MAX).flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    for dir in LIBRARY_DIRS.map(|dir| machine.path(dir)) {
        for entry in entries(&dir) {
            let is_triplet = entry.file_name().is_some_and(|name| name.to_string_lossy().contains("-linux-"));
            let below = if is_triplet { entries(&entry) } else { Vec::new() };
            let mut files = std::iter::once(entry).chain(below);
            if let Some(file) = files.find(|file| file.file_name().is_some_and(is_hwloc)) {
                return Finding::ok(TOPIC, file.display().to_string());
            }
        }
    }
    Finding::note(
        TOPIC,
        "not installed; MPI libraries that are linked with the system's hwloc do not start",
        None,
    )
}

fn ptrace(machine: &Machine) -> Option<Finding> {
    const TOPIC: &str = "ptrace scope";
    let scope = machine.read("/proc/sys/kernel/yama/ptrace_scope")?;
    Some(match scope.trim() {
        "0" => Finding::ok(TOPIC, "0: ranks may copy from each other's memory"),
        scope => {
            let text = format!(
                "{scope}: ranks cannot copy from each other's memory (CMA), and debuggers cannot attach to them; \
                 MPI libraries use a slower path"
            );
            Finding::note(TOPIC, text, Some("as root: sysctl kernel.yama.ptrace_scope=0"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;
    use crate::machine::tests::Root;

    #[test]
    fn shared_memory_has_a_size() {
        let root = Root::new("shm");
        let mut machine = root.machine();
        let mut level = |memory| {
            machine.shared_memory = memory;
            shared_memory(&machine).level
        };
        assert_eq!(level(None), Level::Problem);
        assert_eq!(level(Some((64 << 20, 1 << 20))), Level::Problem);
        assert_eq!(level(Some((64 << 20, 64 << 20))), Level::Note);
        assert_eq!(level(Some((1 << 30, 1 << 30))), Level::Ok);
    }

    #[test]
    fn processors_hwloc_and_scope_come_from_files() {
        let root = Root::new("system");
        let machine = root.machine();
        assert_eq!(processors(&machine).level, Level::Note);
        assert_eq!(hwloc(&machine).level, Level::Note);
        assert_eq!(ptrace(&machine), None);
        root.write("sys/devices/system/cpu/online", "0-3\n");
        root.write("sys/devices/system/cpu/cpu0/topology/core_id", "0\n");
        root.write("usr/lib/x86_64-linux-gnu/libhwloc.so.15", "");
        root.write("proc/sys/kernel/yama/ptrace_scope", "1\n");
        assert_eq!(processors(&machine), Finding::ok("processors", "4 usable; online: 0-3"));
        assert!(hwloc(&machine).text.ends_with("usr/lib/x86_64-linux-gnu/libhwloc.so.15"));
        assert_eq!(ptrace(&machine).map(|finding| finding.level), Some(Level::Note));
        root.write("proc/sys/kernel/yama/ptrace_scope", "0\n");
        assert_eq!(ptrace(&machine).map(|finding| finding.level), Some(Level::Ok));
    }
}
