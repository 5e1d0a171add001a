//! Use of processors, memory, disks and networks by processes and hosts, for PMIx clients: `PMIX_QUERY_MEMORY_USAGE`, and
//! monitors.
//!
//! Nodes read the system's counters when the head asks, those nodes and counters that a request needs. Elsewhere than on Linux
//! there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use hydrant_control::protocol::{Order, Report, UsageParts, encode};
use hydrant_core::JobId;
use hydrant_core::wire::pmix::{HostQuery, Info, Reader, Writer, keys, kind};
use hydrant_overlay::Destination;
use hydrant_reactor::process::stat;
use serde::{Deserialize, Serialize};

use super::Engine;

const PROCESS: &[u8] = b"pmix.proc.res";
const NODE: &[u8] = b"pmix.node.res";
/// Use of memory by a process, with shared pages by their share.
const SHARE: &[u8] = b"pmix.proc.pss";
/// Bytes of the unit of PMIx.
pub(super) const MEGABYTE: f32 = 1_048_576.0;
/// Clock ticks per second in `/proc`: `USER_HZ` of Linux on every processor that hydrant runs on.
const TICKS: u64 = 100;

/// Answers of nodes, by node.
pub(super) type Usages = BTreeMap<u32, NodeUsage>;

/// What a host and the ranks there use. Memory is in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct NodeUsage {
    /// Seconds since 1970.
    pub(super) time: u64,
    /// Resident memory of the daemon.
    pub(super) daemon: u64,
    /// Load averages of 1, 5 and 15 minutes.
    load: [f32; 3],
    /// Memory of the host, in the order of [`MEMINFO`].
    memory: [u64; MEMINFO.len()],
    pub(super) disks: Vec<Device>,
    pub(super) nets: Vec<Device>,
    pub(super) ranks: Vec<RankUsage>,
}

/// Disk or network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Device {
    pub(super) name: String,
    /// Whether a monitor of all devices tells of it: it is not a part of another one, and no memory or file.
    pub(super) is_whole: bool,
    /// Counters in the order of their keys.
    counts: Vec<u64>,
}

/// Keys of PMIx for devices of a kind.
pub(super) struct DeviceKeys {
    /// Key of the answer about one.
    answer: &'static [u8],
    /// Name of a device.
    pub(super) name: &'static [u8],
    /// Devices that an option of a monitor lists.
    pub(super) targets: &'static [u8],
    time: &'static [u8],
    /// Keys of counters, and their places in a line of the system.
    counts: &'static [(&'static [u8], usize)],
}

pub(super) const DISK: DeviceKeys = DeviceKeys {
    answer: b"pmix.disk.res",
    name: b"pmix.disk.id",
    targets: keys::MONITOR_TARGET_DISKS,
    time: b"pmix.disk.samptime",
    counts: &[
        (b"pmix.disk.rdscomp", 0),
        (b"pmix.disk.rdsmrgd", 1),
        (b"pmix.disk.rdsct", 2),
        (b"pmix.disk.rdms", 3),
        (b"pmix.disk.wtscomp", 4),
        (b"pmix.disk.wtsmrgd", 5),
        (b"pmix.disk.wtsct", 6),
        (b"pmix.disk.wtms", 7),
        (b"pmix.disk.ios", 8),
        (b"pmix.disk.ioms", 9),
        (b"pmix.disk.iowght", 10),
    ],
};

pub(super) const NET: DeviceKeys = DeviceKeys {
    answer: b"pmix.net.res",
    name: b"pmix.net.id",
    targets: keys::MONITOR_TARGET_NETS,
    time: b"pmix.net.samptime",
    counts: &[
        (b"pmix.net.rcb", 0),
        (b"pmix.net.rcp", 1),
        (b"pmix.net.rcerr", 2),
        (b"pmix.net.sntb", 8),
        (b"pmix.net.sntp", 9),
        (b"pmix.net.snterr", 10),
    ],
};

/// What a process uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankUsage {
    pub(super) job: u32,
    pub(super) rank: u32,
    pub(super) pid: u32,
    /// State in one letter.
    state: u8,
    /// Time on processors in microseconds.
    busy: u64,
    /// The same in percent of the time since its start.
    percent: f32,
    priority: i32,
    threads: u16,
    /// Resident memory, with shared pages by their share.
    pub(super) pss: u64,
    vsize: u64,
    rss: u64,
    peak: u64,
    /// Processor.
    cpu: u16,
}

/// Keys of PMIx and the names in `/proc/meminfo`.
const MEMINFO: [(&[u8], &str); 8] = [
    (b"pmix.node.mtot", "MemTotal"),
    (b"pmix.node.mfree", "MemFree"),
    (b"pmix.node.mbuf", "Buffers"),
    (b"pmix.node.mcache", "Cached"),
    (b"pmix.node.mswpc", "SwapCached"),
    (b"pmix.node.mswpt", "SwapTotal"),
    (b"pmix.node.mswpfree", "SwapFree"),
    (b"pmix.node.mmap", "Mapped"),
];

/// Returns the bytes of a line such as `Rss:  12 kB`.
fn kilobytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0).saturating_mul(1024)
}

impl Device {
    fn new(keys: &DeviceKeys, name: &str, is_whole: bool, line: &str) -> Device {
        let fields: Vec<u64> = line.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
        let counts = keys.counts.iter().map(|(_, at)| fields.get(*at).copied().unwrap_or(0)).collect();
        Device { name: name.to_owned(), is_whole, counts }
    }

    /// Reads the text of `/proc/diskstats`: two numbers of the device, its name, and counters.
    fn disks(text: &str, is_part: impl Fn(&str) -> bool) -> Vec<Device> {
        let read = |line: &str| {
            let name = line.split_whitespace().nth(2)?;
            let counters = &line[line.find(name)? + name.len()..];
            let is_memory = ["loop", "ram", "zram"].iter().any(|prefix| name.starts_with(prefix));
            Some(Device::new(&DISK, name, !is_memory && !is_part(name), counters))
        };
        text.lines().filter_map(read).collect()
    }

    /// Reads the text of `/proc/net/dev`: two lines with titles, then names with colons, and counters.
    fn nets(text: &str) -> Vec<Device> {
        let read = |line: &str| {
            let (name, counters) = line.split_once(':')?;
            Some(Device::new(&NET, name.trim(), true, counters))
        };
        text.lines().filter_map(read).collect()
    }

    pub(super) fn write(
        &self,
        keys: &DeviceKeys,
        (host, time): (&str, u64),
        filter: &Filter<'_>,
        writer: &mut Writer<'_>,
    ) {
        filter.array(keys.answer, writer, |list| {
            list.always(keys.name, kind::STRING, |writer| writer.string(self.name.as_bytes()));
            list.always(b"pmix.hname", kind::STRING, |writer| writer.string(host.as_bytes()));
            list.always(keys.time, kind::TIME, |writer| writer.uint64(time));
            for (&(key, _), &count) in keys.counts.iter().zip(&self.counts) {
                list.item(key, kind::UINT64, |writer| writer.uint64(count));
            }
        });
    }
}

impl RankUsage {
    /// Reads what a process uses. `up` is the time since the start of the system in ticks.
    fn of(job: JobId, rank: u32, pid: u32, up: u64, shares: bool) -> Option<RankUsage> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
        let stat = stat(pid.try_into().ok()?)?;
        let age = up.saturating_sub(stat.start).max(1);
        let pss = if shares { read("smaps_rollup").map_or(0, |text| kilobytes(&text, "Pss")) } else { 0 };
        let status = read("status").ok()?;
        let [peak, vsize, rss] = ["VmPeak", "VmSize", "VmRSS"].map(|name| kilobytes(&status, name));
        Some(RankUsage {
            job: job.0,
            rank,
            pid,
            state: stat.state,
            busy: stat.busy.saturating_mul(1_000_000 / TICKS),
            percent: stat.busy as f32 * 100.0 / age as f32,
            priority: stat.priority,
            threads: stat.threads.try_into().unwrap_or(u16::MAX),
            // The kernel may not tell shares.
            pss: if pss == 0 { rss } else { pss },
            vsize,
            rss,
            peak,
            cpu: stat.processor.try_into().unwrap_or(0),
        })
    }

    pub(super) fn write(&self, name: &[u8], time: u64, filter: &Filter<'_>, writer: &mut Writer<'_>) {
        let memory = |bytes: u64| bytes as f32 / MEGABYTE;
        filter.array(PROCESS, writer, |list| {
            list.always(b"pmix.procid", kind::PROC, |writer| writer.proc(name, self.rank));
            list.always(b"pmix.proc.samptime", kind::TIME, |writer| writer.uint64(time));
            list.item(b"pmix.proc.osstate", kind::STRING, |writer| writer.string(&[self.state]));
            list.item(b"pmix.proc.time", kind::TIMEVAL, |writer| {
                writer.int64((self.busy / 1_000_000) as i64);
                writer.int64((self.busy % 1_000_000) as i64);
            });
            list.float(b"pmix.proc.pcpu", self.percent);
            list.item(b"pmix.proc.pri", kind::INT32, |writer| writer.int32(self.priority));
            list.item(b"pmix.proc.nthr", kind::UINT16, |writer| writer.uint16(self.threads));
            list.float(SHARE, memory(self.pss));
            list.float(b"pmix.proc.vsize", memory(self.vsize));
            list.float(b"pmix.proc.rss", memory(self.rss));
            list.float(b"pmix.proc.pkvsize", memory(self.peak));
            list.item(b"pmix.proc.cpu", kind::UINT16, |writer| writer.uint16(self.cpu));
        });
    }
}

impl NodeUsage {
    pub(super) fn write(&self, (host, number): (&str, u32), filter: &Filter<'_>, writer: &mut Writer<'_>) {
        filter.array(NODE, writer, |list| {
            list.always(b"pmix.hname", kind::STRING, |writer| writer.string(host.as_bytes()));
            list.always(b"pmix.nodeid", kind::UINT32, |writer| writer.uint32(number));
            list.always(b"pmix.node.samptime", kind::TIME, |writer| writer.uint64(self.time));
            for (key, load) in
                [b"pmix.node.la".as_slice(), b"pmix.node.la5", b"pmix.node.la15"].into_iter().zip(self.load)
            {
                list.float(key, load);
            }
            for ((key, _), bytes) in MEMINFO.iter().zip(self.memory) {
                list.float(key, bytes as f32 / MEGABYTE);
            }
        });
    }
}

/// What a monitor asks for.
pub(super) struct Filter<'a> {
    /// Keys, or all if there are none.
    keys: Vec<&'a [u8]>,
    /// Devices, or all if there are none.
    devices: Vec<&'a [u8]>,
}

impl<'a> Filter<'a> {
    /// Reads the monitor itself, an array of keys, of which names of devices have values.
    pub(super) fn of(monitor: Option<Info<'a>>) -> Filter<'a> {
        let infos = monitor.and_then(|info| info.array(kind::INFO, Reader::info));
        let (devices, keys): (Vec<Info<'a>>, Vec<Info<'a>>) =
            infos.into_iter().flatten().partition(|info| [DISK.name, NET.name].contains(&info.key));
        Filter {
            keys: keys.iter().map(|info| info.key).collect(),
            devices: devices.iter().filter_map(Info::as_string).collect(),
        }
    }

    /// Adds devices that an option names.
    pub(super) fn add_devices(&mut self, devices: impl Iterator<Item = &'a [u8]>) {
        self.devices.extend(devices);
    }

    /// Returns whether a device is asked for.
    pub(super) fn wants_device(&self, device: &Device) -> bool {
        if self.devices.is_empty() { device.is_whole } else { self.devices.contains(&device.name.as_bytes()) }
    }

    fn wants(&self, key: &[u8]) -> bool {
        self.keys.is_empty() || self.keys.contains(&key)
    }

    /// Writes an INFO with an array of those INFOs that are asked for.
    fn array(&self, key: &[u8], writer: &mut Writer<'_>, items: impl Fn(&mut List<'_, '_, '_>)) {
        let mut none = Writer::new(writer.integers(), &mut []);
        let mut measured = List { filter: self, count: 0, writer: &mut none };
        items(&mut measured);
        let count = measured.count as u64;
        writer.info(key, kind::DATA_ARRAY);
        writer.data_type(kind::INFO);
        writer.size(count);
        items(&mut List { filter: self, count: 0, writer });
    }
}

/// Array that is written.
struct List<'l, 'k, 'b> {
    filter: &'l Filter<'k>,
    count: usize,
    writer: &'l mut Writer<'b>,
}

impl<'b> List<'_, '_, 'b> {
    fn always(&mut self, key: &[u8], of: u16, write: impl FnOnce(&mut Writer<'b>)) {
        self.count += 1;
        self.writer.info(key, of);
        write(self.writer);
    }

    fn item(&mut self, key: &[u8], of: u16, write: impl FnOnce(&mut Writer<'b>)) {
        if self.filter.wants(key) {
            self.always(key, of, write);
        }
    }

    /// Numbers with a fraction travel as text.
    fn float(&mut self, key: &[u8], number: f32) {
        self.item(key, kind::FLOAT, |writer| writer.string(format!("{number:.6}").as_bytes()));
    }
}

/// Returns what this host and these ranks use: job, rank and process of each.
fn sample(parts: UsageParts, ranks: impl Iterator<Item = (JobId, u32, u32)>) -> NodeUsage {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut usage = NodeUsage {
        time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        ..NodeUsage::default()
    };
    if parts.host {
        usage.daemon = kilobytes(&read("/proc/self/status"), "VmRSS");
        let (averages, memory) = (read("/proc/loadavg"), read("/proc/meminfo"));
        for (place, number) in usage.load.iter_mut().zip(averages.split_whitespace()) {
            *place = number.parse().unwrap_or(0.0);
        }
        usage.memory = MEMINFO.map(|(_, name)| kilobytes(&memory, name));
    }
    if parts.devices {
        let is_part = |name: &str| Path::new("/sys/class/block").join(name).join("partition").exists();
        usage.disks = Device::disks(&read("/proc/diskstats"), is_part);
        usage.nets = Device::nets(&read("/proc/net/dev"));
    }
    if parts.ranks {
        let up = read("/proc/uptime");
        let up = up.split_whitespace().next().and_then(|seconds| seconds.parse::<f64>().ok()).unwrap_or(0.0);
        let up = (up * TICKS as f64) as u64;
        let of = |(job, rank, pid)| RankUsage::of(job, rank, pid, up, parts.shares);
        usage.ranks = ranks.filter_map(of).collect();
    }
    usage
}

/// Returns what a query needs to know of hosts and processes, or `None` if it needs nothing.
pub(super) fn parts_of(query: &HostQuery<'_>) -> Option<UsageParts> {
    let mut parts = UsageParts::default();
    for (key, infos) in query.queries.asked() {
        match key {
            keys::MONITOR_PROC_RESOURCE_USAGE => {
                parts.ranks = true;
                parts.shares |= Filter::of(infos.find(key)).wants(SHARE);
            }
            keys::MONITOR_NODE_RESOURCE_USAGE => parts.host = true,
            keys::MONITOR_DISK_RESOURCE_USAGE | keys::MONITOR_NET_RESOURCE_USAGE => parts.devices = true,
            keys::QUERY_MEMORY_USAGE => (parts.ranks, parts.shares, parts.host) = (true, true, true),
            _ => {}
        }
    }
    (parts != UsageParts::default()).then_some(parts)
}

/// Returns whether a key asks what hosts or processes use.
pub(super) fn is_about_hosts(key: &[u8]) -> bool {
    key == keys::QUERY_MEMORY_USAGE || is_monitor(key)
}

/// Returns whether a key is that of a monitor.
pub(super) fn is_monitor(key: &[u8]) -> bool {
    keys::RESOURCE_USAGE.contains(&key)
}

impl Engine<'_> {
    /// Asks these nodes what their host and their ranks use.
    pub(super) fn query_usage(&mut self, query: u64, parts: UsageParts, nodes: &BTreeSet<u32>) {
        for &node in nodes {
            self.send_order(Destination::Node(node), Order::QueryUsage { query, parts });
        }
    }

    /// Reports what this host and its ranks use.
    pub(super) fn report_usage(&mut self, query: u64, parts: UsageParts) {
        let of_job = |job: &super::jobs::Job| {
            let ranks = (0..job.size()).filter(|&rank| job.is_running(rank));
            ranks.filter_map(|rank| Some((job.id, rank, job.pid(rank)?))).collect::<Vec<_>>()
        };
        let usage = sample(parts, self.jobs.iter().flat_map(of_job));
        self.send_report(&Report::Usage { query, body: encode(&usage) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_devices_are_read() {
        let text = "   8       0 sda 1 2 3 4 5 6 7 8 9 10 11 12\n   8  1 sda1 1\n 7 0 loop0 1\nshort\n";
        let disks = Device::disks(text, |name| name == "sda1");
        let whole: Vec<(&str, bool)> = disks.iter().map(|disk| (&*disk.name, disk.is_whole)).collect();
        assert_eq!(whole, [("sda", true), ("sda1", false), ("loop0", false)]);
        assert_eq!(disks[0].counts, (1..12).collect::<Vec<u64>>());
        let text = "Inter-|  Receive |  Transmit\n face |bytes |bytes\n    lo: 10 11 12 0 0 0 0 0 18 19 20 0 0 0 0 0\n";
        let [net] = &Device::nets(text)[..] else { panic!("there is one") };
        assert_eq!((&*net.name, &net.counts[..]), ("lo", &[10, 11, 12, 18, 19, 20][..]));
        assert_eq!(kilobytes("A: 1 kB\nPss:  12 kB\n", "Pss"), 12 * 1024);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_and_this_host_use_memory() {
        let ranks = || [(JobId(1), 2, std::process::id())].into_iter();
        let parts = UsageParts { ranks: true, shares: true, host: true, devices: true };
        let usage = sample(parts, ranks());
        let [rank] = &usage.ranks[..] else { panic!("the process is found") };
        assert_eq!((rank.job, rank.rank, rank.pid), (1, 2, std::process::id()));
        assert!(rank.rss > 0 && rank.pss > 0 && rank.peak >= rank.vsize && rank.threads > 0);
        assert!(usage.daemon > 0 && usage.memory[0] > usage.memory[1]);
        assert!(usage.nets.iter().any(|net| net.name == "lo"));
        let nothing = sample(UsageParts::default(), ranks());
        assert_eq!(nothing, NodeUsage { time: nothing.time, ..NodeUsage::default() });
    }
}
