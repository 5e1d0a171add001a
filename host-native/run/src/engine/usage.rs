//! Use of processors and memory by processes and hosts, for PMIx clients: `PMIX_QUERY_MEMORY_USAGE`, and monitors of processes
//! and nodes.
//!
//! Each node reads the system's counters when the head asks. Elsewhere than on Linux there are none.

use std::collections::BTreeMap;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use hydrant_control::protocol::{Order, Report, encode};
use hydrant_core::JobId;
use hydrant_core::wire::pmix::{HostQuery, Info, Reader, Writer, kind};
use hydrant_overlay::Destination;
use serde::{Deserialize, Serialize};

use super::{Engine, Head};

/// Monitor of processes, and key of the answer about one.
pub(super) const PROCESSES: &[u8] = b"pmix.monitor.presuse";
const PROCESS: &[u8] = b"pmix.proc.res";
/// Monitor of hosts, and key of the answer about one.
pub(super) const NODES: &[u8] = b"pmix.monitor.ndresuse";
const NODE: &[u8] = b"pmix.node.res";
/// Query of the memory that processes use.
pub(super) const MEMORY: &str = "pmix.qry.mem";
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
    pub(super) ranks: Vec<RankUsage>,
}

/// What a process uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankUsage {
    pub(super) job: u32,
    pub(super) rank: u32,
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

impl RankUsage {
    /// Reads the text of `/proc/PID/stat`. `up` is the time since the start of the system in ticks.
    fn parse(stat: &str, up: u64) -> Option<RankUsage> {
        // The name of the program in front may contain anything.
        let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<i64>().ok());
        let natural = |at: usize| number(at).and_then(|number| u64::try_from(number).ok());
        let busy = natural(11)?.saturating_add(natural(12)?);
        let age = up.saturating_sub(natural(19)?).max(1);
        Some(RankUsage {
            state: *fields.first()?.as_bytes().first()?,
            busy: busy.saturating_mul(1_000_000 / TICKS),
            percent: busy as f32 * 100.0 / age as f32,
            priority: number(15)?.try_into().ok()?,
            threads: number(17)?.try_into().unwrap_or(u16::MAX),
            cpu: number(36)?.try_into().unwrap_or(0),
            ..RankUsage::default()
        })
    }

    /// Reads what a process uses.
    fn of(job: JobId, rank: u32, pid: u32, up: u64) -> Option<RankUsage> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
        let usage = RankUsage::parse(&read("stat").ok()?, up)?;
        let pss = read("smaps_rollup").map_or(0, |text| kilobytes(&text, "Pss"));
        let status = read("status").ok()?;
        let [peak, vsize, rss] = ["VmPeak", "VmSize", "VmRSS"].map(|name| kilobytes(&status, name));
        // The kernel may not tell shares.
        let pss = if pss == 0 { rss } else { pss };
        Some(RankUsage { job: job.0, rank, pss, peak, vsize, rss, ..usage })
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
            list.float(b"pmix.proc.pss", memory(self.pss));
            list.float(b"pmix.proc.vsize", memory(self.vsize));
            list.float(b"pmix.proc.rss", memory(self.rss));
            list.float(b"pmix.proc.pkvsize", memory(self.peak));
            list.item(b"pmix.proc.cpu", kind::UINT16, |writer| writer.uint16(self.cpu));
        });
    }
}

impl NodeUsage {
    pub(super) fn write(&self, host: &str, filter: &Filter<'_>, writer: &mut Writer<'_>) {
        filter.array(NODE, writer, |list| {
            list.always(b"pmix.hname", kind::STRING, |writer| writer.string(host.as_bytes()));
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

/// Keys that a monitor asks for, or all.
pub(super) struct Filter<'a>(Vec<&'a [u8]>);

impl<'a> Filter<'a> {
    pub(super) fn of(monitor: Option<Info<'a>>) -> Filter<'a> {
        let keys = monitor.and_then(|info| info.array(kind::INFO, Reader::info));
        Filter(keys.into_iter().flatten().map(|info| info.key).collect())
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
        if self.filter.0.is_empty() || self.filter.0.contains(&key) {
            self.always(key, of, write);
        }
    }

    /// Numbers with a fraction travel as text.
    fn float(&mut self, key: &[u8], number: f32) {
        self.item(key, kind::FLOAT, |writer| writer.string(format!("{number:.6}").as_bytes()));
    }
}

/// Returns what this host and these ranks use: job, rank and process of each.
fn sample(ranks: impl Iterator<Item = (JobId, u32, u32)>) -> NodeUsage {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let up = read("/proc/uptime");
    let up = up.split_whitespace().next().and_then(|seconds| seconds.parse::<f64>().ok()).unwrap_or(0.0);
    let up = (up * TICKS as f64) as u64;
    let mut load = [0.0; 3];
    let (averages, memory) = (read("/proc/loadavg"), read("/proc/meminfo"));
    for (place, number) in load.iter_mut().zip(averages.split_whitespace()) {
        *place = number.parse().unwrap_or(0.0);
    }
    NodeUsage {
        time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        daemon: kilobytes(&read("/proc/self/status"), "VmRSS"),
        load,
        memory: MEMINFO.map(|(_, name)| kilobytes(&memory, name)),
        ranks: ranks.filter_map(|(job, rank, pid)| RankUsage::of(job, rank, pid, up)).collect(),
    }
}

/// Returns whether a query needs to know what processes and hosts use.
pub(super) fn is_wanted(query: &HostQuery<'_>) -> bool {
    query.queries.asked().any(|(key, _)| key == MEMORY.as_bytes() || is_monitor(key))
}

/// Returns whether a key is that of a monitor.
pub(super) fn is_monitor(key: &[u8]) -> bool {
    [PROCESSES, NODES].contains(&key)
}

impl Head<'_> {
    /// Asks all nodes what their host and their ranks use. Returns their number.
    pub(super) fn query_usage(&self, engine: &mut Engine<'_>, query: u64) -> usize {
        let hosts = self.control.hosts().len() as u32;
        for node in 1..=hosts {
            engine.send_order(Destination::Node(node), Order::QueryUsage { query });
        }
        hosts as usize
    }
}

impl Engine<'_> {
    /// Reports what this host and its ranks use.
    pub(super) fn report_usage(&mut self, query: u64) {
        let of_job = |job: &super::jobs::Job| {
            let ranks = (0..job.size()).filter(|&rank| job.is_running(rank));
            ranks.filter_map(|rank| Some((job.id, rank, job.pid(rank)?))).collect::<Vec<_>>()
        };
        let usage = sample(self.jobs.iter().flat_map(of_job));
        self.send_report(&Report::Usage { query, body: encode(&usage) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_process_are_read() {
        let stat = "17 (a ) b) S 1 17 17 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 1000 8192000 25 1844 1 1 0 0 0 0 0 0 0 0 \
                    0 0 17 2 0 0 0 0 0 0";
        let usage = RankUsage::parse(stat, 2000).unwrap();
        assert_eq!((usage.state, usage.busy, usage.percent), (b'S', 2_000_000, 20.0));
        assert_eq!((usage.priority, usage.threads, usage.cpu), (20, 3, 2));
        assert_eq!(RankUsage::parse("17 (a) S 1", 2000), None);
        assert_eq!(RankUsage::parse("", 2000), None);
        assert_eq!(kilobytes("A: 1 kB\nPss:  12 kB\n", "Pss"), 12 * 1024);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_and_this_host_use_memory() {
        let usage = sample([(JobId(1), 2, std::process::id())].into_iter());
        let [rank] = &usage.ranks[..] else { panic!("the process is found") };
        assert_eq!((rank.job, rank.rank), (1, 2));
        assert!(rank.rss > 0 && rank.pss > 0 && rank.peak >= rank.vsize && rank.threads > 0);
        assert!(usage.daemon > 0 && usage.memory[0] > usage.memory[1]);
    }
}
