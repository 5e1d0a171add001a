//! State of the model: maps and lists, without a slot or an offset.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use hydrant_core::limits::Limit;
use hydrant_core::trace::{Closing, Exit};
use hydrant_core::{Fault, Limits, Refusal};

use super::commands::Ask;
use super::says::{Records, Say};

/// A message that a client has sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) ask: Ask,
    /// The job that it names, where it names one.
    pub(crate) job: Option<String>,
    pub(crate) thrid: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

/// Bytes of log and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Amount {
    pub(crate) bytes: u32,
    pub(crate) keys: u32,
}

impl Amount {
    pub(crate) fn plus(self, other: Amount) -> Amount {
        Amount { bytes: self.bytes + other.bytes, keys: self.keys + other.keys }
    }

    pub(crate) fn minus(self, other: Amount) -> Amount {
        Amount { bytes: self.bytes.saturating_sub(other.bytes), keys: self.keys.saturating_sub(other.keys) }
    }

    pub(crate) fn each(self, of: u32) -> Amount {
        Amount { bytes: self.bytes / of, keys: self.keys / of }
    }

    pub(crate) fn smaller(self, other: Amount) -> Amount {
        Amount { bytes: self.bytes.min(other.bytes), keys: self.keys.min(other.keys) }
    }
}

/// Which of a job's spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Kvs,
    Node,
    Job,
    Ring,
}

/// What a record of that key and value takes.
pub(crate) fn record(key: usize, value: usize) -> u32 {
    ((16 + key + value) as u32).next_multiple_of(4)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Phase {
    New,
    Initialized,
    Finalized,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) conn: Option<u32>,
    pub(crate) phase: Phase,
    pub(crate) exit: Option<Exit>,
    /// It failed in a job that goes on.
    pub(crate) dead: bool,
    /// No collective waits for it.
    pub(crate) buried: bool,
    /// It asked to be ended alone.
    pub(crate) aborted: bool,
    pub(crate) in_fence: bool,
    pub(crate) ring: Option<RingPart>,
    pub(crate) appnum: u32,
    pub(crate) used: Amount,
}

impl Process {
    /// Its connection was closed between init and finalize.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.phase == Phase::Initialized && self.conn.is_none() && self.exit.is_none()
    }

    /// Whether a connection may become its own.
    pub(crate) fn may_connect(&self) -> bool {
        self.conn.is_none() && self.exit.is_none() && !self.buried
    }
}

/// A barrier in the making: of a job, or of some of its ranks.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) members: BTreeSet<u32>,
    pub(crate) tag: u32,
    pub(crate) arrived: BTreeSet<u32>,
    pub(crate) since: u64,
    pub(crate) late: bool,
}

/// A process set.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) name: String,
    /// Ranks with their jobs.
    pub(crate) members: BTreeSet<(u32, u32)>,
    pub(crate) serial: u32,
    pub(crate) retired: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// No other job has had it.
    pub(crate) serial: u64,
    pub(crate) name: String,
    /// Where in the row of all ranks it sits.
    pub(crate) first: u32,
    pub(crate) ranks: Vec<Process>,
    /// 0 if it is not known.
    pub(crate) universe: u32,
    pub(crate) cleanup: bool,
    pub(crate) subversion: u32,
    pub(crate) spawner: Option<String>,
    pub(crate) lookup_wait: u64,
    pub(crate) fence_warning: u64,
    pub(crate) share: Amount,
    pub(crate) begun: bool,
    pub(crate) ending: bool,
    /// When the first of its ranks initialized, and whether those that had not were reported.
    pub(crate) init: Option<(u64, bool)>,
    /// When ranks whose connection was closed between init and finalize count as lost.
    pub(crate) cut_off: Option<u64>,
    pub(crate) fence: Option<(u64, bool)>,
    pub(crate) groups: Vec<Group>,
    pub(crate) kvs: HashMap<Vec<u8>, Vec<u8>>,
    /// Without a value: a rank waits for it.
    pub(crate) node: HashMap<Vec<u8>, Option<Vec<u8>>>,
    pub(crate) attrs: HashMap<Vec<u8>, Vec<u8>>,
}

impl Job {
    pub(crate) fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// How a rank was lost, if nothing is to be expected of it in a job that ends with it.
    pub(crate) fn lost(&self, rank: u32, now: u64) -> Option<Exit> {
        let process = &self.ranks[rank as usize];
        let cut_off = process.is_cut_off() && self.cut_off.is_some_and(|due| due <= now);
        process.exit.or(cut_off.then_some(Exit::Lost)).filter(|_| !process.buried)
    }

    pub(crate) fn living(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.size()).filter(|&rank| !self.ranks[rank as usize].buried)
    }

    /// What is set aside for its ranks and not used yet.
    fn reserved(&self) -> Amount {
        let rest = |rank: &Process| self.share.minus(rank.used);
        self.ranks.iter().filter(|rank| rank.exit.is_none()).map(rest).fold(Amount::default(), Amount::plus)
    }
}

/// What a reply waits for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wait {
    Fence,
    Group(BTreeSet<u32>, u32),
    Node(Vec<u8>),
    Lookup(Vec<u8>, u64),
    Ring,
    Spawn(u64),
    /// Nothing: it can be said.
    Say(Say),
}

/// Progress of a connection's handshake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stage {
    Opened,
    Greeted,
    Ready,
    Finalized,
}

#[derive(Clone, Debug)]
pub(crate) struct Conn {
    pub(crate) job: u32,
    pub(crate) rank: Option<u32>,
    /// The host has verified its user.
    pub(crate) verified: bool,
    pub(crate) stage: Stage,
    pub(crate) v2: bool,
    pub(crate) blocked: bool,
    pub(crate) joined: bool,
    pub(crate) joined_unsaid: bool,
    pub(crate) closing: Option<Closing>,
    pub(crate) closing_unsaid: bool,
    pub(crate) owed: Vec<(Option<String>, Wait)>,
    /// Messages in the host's buffer.
    pub(crate) pending: VecDeque<Request>,
}

impl Conn {
    pub(crate) fn counted(&self) -> bool {
        self.v2 && matches!(self.stage, Stage::Greeted | Stage::Ready)
    }

    /// Whether another connection of its rank may take its place.
    pub(crate) fn is_idle(&self) -> bool {
        self.owed.is_empty() && !self.blocked && self.closing.is_none()
    }

    pub(crate) fn has_say(&self) -> bool {
        self.joined_unsaid
            || self.closing_unsaid
            || self.owed.iter().any(|(_, wait)| matches!(wait, Wait::Say(_)))
    }
}

/// What a rank gives to a ring. The texts have the records with these numbers.
#[derive(Clone, Debug)]
pub(crate) struct RingPart {
    pub(crate) count: u32,
    pub(crate) left: Vec<u8>,
    pub(crate) right: Vec<u8>,
    pub(crate) records: [u64; 2],
}

/// Record of the log.
#[derive(Clone, Debug)]
struct Record {
    number: u64,
    /// The job's serial.
    job: u64,
    kind: Kind,
    key: Vec<u8>,
    /// None for the host.
    rank: Option<u32>,
    bytes: u32,
    /// Whether its key has a newer one.
    is_replaced: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) name: Vec<u8>,
    pub(crate) port: Vec<u8>,
    pub(crate) serial: u64,
    /// The job's serial.
    pub(crate) owner: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Spawn {
    pub(crate) serial: u64,
    pub(crate) parent: (u32, u32),
    pub(crate) parent_name: String,
    /// Whether a connection waits for the reply.
    pub(crate) wanted: bool,
    /// The server's number, once it has said it.
    pub(crate) id: Option<u32>,
    pub(crate) request: Vec<u8>,
    pub(crate) sizes: Vec<u32>,
    pub(crate) preput: Vec<(Vec<u8>, Vec<u8>)>,
    /// The reply, once the host is done.
    pub(crate) result: Option<Say>,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) limits: Limits,
    pub(crate) now: u64,
    pub(crate) jobs: BTreeMap<u32, Job>,
    pub(crate) conns: BTreeMap<u32, Conn>,
    pub(crate) names: Vec<Name>,
    pub(crate) spawns: Vec<Spawn>,
    /// Connected jobs by their serials, both ways.
    pub(crate) links: BTreeSet<(u64, u64)>,
    /// Jobs that have disconnected from the one that spawned them, by their serial numbers.
    pub(crate) parted: BTreeSet<u64>,
    /// Process sets in the order of their definition.
    pub(crate) psets: Vec<Set>,
    /// How often a process set was defined or retired, or ended for one of its jobs.
    pub(crate) psets_changed: u32,
    /// What the host must still be told, as it is shown.
    pub(crate) events: Vec<String>,
    /// Used part of the log, of each job by its serial.
    pub(crate) log: BTreeMap<u64, Amount>,
    /// Records in the order of their puts.
    records: Vec<Record>,
    /// How often records have left the log.
    pub(crate) compactions: u32,
    serial: u64,
}

impl Model {
    pub(crate) fn new(limits: Limits) -> Model {
        Model {
            limits,
            now: 0,
            jobs: BTreeMap::new(),
            conns: BTreeMap::new(),
            names: Vec::new(),
            spawns: Vec::new(),
            links: BTreeSet::new(),
            parted: BTreeSet::new(),
            psets: Vec::new(),
            psets_changed: 0,
            events: Vec::new(),
            log: BTreeMap::new(),
            records: Vec::new(),
            compactions: 0,
            serial: 0,
        }
    }

    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(crate) fn conn(&mut self, conn: u32) -> &mut Conn {
        self.conns.get_mut(&conn).expect("the step chose an open connection")
    }

    pub(crate) fn job(&mut self, job: u32) -> &mut Job {
        self.jobs.get_mut(&job).expect("the step chose a job that there is")
    }

    pub(crate) fn named(&self, name: &str) -> Option<u32> {
        self.jobs.iter().find(|(_, job)| job.name == name).map(|(&id, _)| id)
    }

    pub(crate) fn free(&self) -> Amount {
        let reserved = self.jobs.values().map(Job::reserved).fold(Amount::default(), Amount::plus);
        self.left().minus(reserved)
    }

    /// What the log has not used.
    fn left(&self) -> Amount {
        let all = Amount { bytes: self.limits.kvs_bytes, keys: self.limits.keys };
        self.log.values().fold(all, |all, used| all.minus(*used))
    }

    /// What jobs that are over have of the log.
    fn dead(&self) -> Amount {
        let living: BTreeSet<u64> = self.jobs.values().map(|job| job.serial).collect();
        let dead = self.log.iter().filter(|(serial, _)| !living.contains(serial));
        dead.fold(Amount::default(), |all, (_, used)| all.plus(*used))
    }

    /// Records of jobs that there are whose key has a newer one, and that no reply has.
    fn replaced(&self) -> Vec<&Record> {
        let said = self.conns.values().flat_map(|conn| &conn.owed).flat_map(|(_, wait)| match wait {
            Wait::Say(Say::Text(_, _, from) | Say::Ring { from, .. }) => from.0.clone(),
            _ => Vec::new(),
        });
        let said: BTreeSet<u64> = said.collect();
        let living: BTreeSet<u64> = self.jobs.values().map(|job| job.serial).collect();
        let replaced =
            || self.records.iter().filter(|record| record.is_replaced && living.contains(&record.job));
        let kept = replaced().filter(|record| said.contains(&record.number)).count();
        assert!(kept <= 16, "the server keeps more then, and the model does not");
        replaced().filter(|record| !said.contains(&record.number)).collect()
    }

    /// Drops the records of jobs that are over, if there is no other job or they have more than is left.
    pub(crate) fn reclaim(&mut self) {
        let (left, dead) = (self.left(), self.dead());
        if self.jobs.is_empty() || dead.bytes > left.bytes || dead.keys > left.keys {
            self.compact();
        }
    }

    /// Drops the records of jobs that are over, and those that are replaced and that no reply has.
    fn compact(&mut self) {
        let gone: BTreeSet<u64> = self.replaced().iter().map(|record| record.number).collect();
        let living: BTreeMap<u64, u32> = self.jobs.iter().map(|(&id, job)| (job.serial, id)).collect();
        for record in std::mem::take(&mut self.records) {
            let Some(&id) = living.get(&record.job) else { continue };
            if !gone.contains(&record.number) {
                self.records.push(record);
                continue;
            }
            let gone = Amount { bytes: record.bytes, keys: 0 };
            let used = self.log.entry(record.job).or_default();
            *used = used.minus(gone);
            if let Some(rank) = record.rank {
                let rank = &mut self.job(id).ranks[rank as usize];
                rank.used = rank.used.minus(gone);
            }
        }
        self.log.retain(|serial, _| living.contains_key(serial));
        self.compactions += 1;
    }

    /// Whether there is room for a job and the host's pairs of this cost, without jobs that are over: those leave the log then.
    pub(crate) fn make_room_for_job(&mut self, size: u32, pairs: Amount) -> Result<(), Fault> {
        let part = self.part();
        let cost = Amount { bytes: part.bytes * size, keys: part.keys * size }.plus(pairs);
        let (free, dead) = (self.free(), self.dead());
        let lack = cost.minus(free.plus(dead));
        if pairs.bytes > 0 && lack.bytes > 0 {
            return Err(Fault::Full(Limit::KvsBytes, self.limits.kvs_bytes));
        }
        if pairs.keys > 0 && lack.keys > 0 {
            return Err(Fault::Full(Limit::Keys, self.limits.keys));
        }
        if cost.minus(free) != Amount::default() && dead != Amount::default() {
            self.compact();
        }
        Ok(())
    }

    fn part(&self) -> Amount {
        let all = Amount { bytes: self.limits.kvs_bytes / 2, keys: self.limits.keys / 2 };
        all.each(self.limits.ranks.max(1))
    }

    /// What a new job's ranks have each: their part of the half that is divided, as far as it is free.
    pub(crate) fn share(&self, size: u32) -> Amount {
        self.part().smaller(self.free().each(size))
    }

    /// Whether there is room for a cost: a rank's own quota first, then the part without a quota.
    pub(crate) fn room(&self, owner: Option<(u32, u32)>, cost: Amount) -> Result<(), Refusal> {
        let (share, used) = match owner {
            Some((job, rank)) => (self.jobs[&job].share, self.jobs[&job].ranks[rank as usize].used),
            None => (Amount::default(), Amount::default()),
        };
        let exited = owner.is_some_and(|(job, rank)| self.jobs[&job].ranks[rank as usize].exit.is_some());
        let mine = if exited { Amount::default() } else { share.minus(used) };
        let all = Amount { bytes: self.limits.kvs_bytes, keys: self.limits.keys };
        let (left, over, free) = (self.left(), cost.minus(mine), self.free());
        // No rank is refused its own quota.
        assert!(mine.minus(left) == Amount::default(), "{mine:?} is set aside, and {left:?} left");
        for (limit, cost, left, over, free, share, size) in [
            (Limit::KvsBytes, cost.bytes, left.bytes, over.bytes, free.bytes, share.bytes, all.bytes),
            (Limit::Keys, cost.keys, left.keys, over.keys, free.keys, share.keys, all.keys),
        ] {
            if cost > left {
                return Err(Refusal::Full(limit, size));
            }
            if over > free {
                return Err(Refusal::Quota(limit, share));
            }
        }
        Ok(())
    }

    /// Whether there is room for what a rank puts, perhaps without what it replaces and what is of jobs that are over, if that is
    /// much.
    pub(crate) fn make_room(&mut self, owner: (u32, u32), cost: Amount) -> Result<(), Refusal> {
        let result = self.room(Some(owner), cost);
        let all = Amount { bytes: self.limits.kvs_bytes, keys: self.limits.keys };
        let (used, dead) = (all.minus(self.left()), self.dead());
        let (gone, used) = match result {
            Err(Refusal::Full(Limit::KvsBytes, _) | Refusal::Quota(Limit::KvsBytes, _)) => {
                (dead.bytes + self.replaced().iter().map(|record| record.bytes).sum::<u32>(), used.bytes)
            }
            Err(Refusal::Full(Limit::Keys, _) | Refusal::Quota(Limit::Keys, _)) => (dead.keys, used.keys),
            result => return result,
        };
        if gone > 0 && gone >= used / 16 {
            self.compact();
            return self.room(Some(owner), cost);
        }
        result
    }

    /// Whether there is room for a pair of the host, perhaps without what the host replaces and what is of jobs that are over.
    pub(crate) fn make_room_for_host(&mut self, cost: Amount) -> Result<(), Refusal> {
        let result = self.room(None, cost);
        let lack = cost.minus(self.free());
        let hosts =
            self.replaced().iter().filter(|record| record.rank.is_none()).map(|record| record.bytes).sum();
        let gone = self.dead().plus(Amount { bytes: hosts, keys: 0 });
        if result.is_err() && lack.minus(gone) == Amount::default() {
            self.compact();
            return self.room(None, cost);
        }
        result
    }

    /// The newest record of a key.
    pub(crate) fn newest(&self, job: u32, kind: Kind, key: &[u8]) -> Records {
        let serial = self.jobs[&job].serial;
        let is_of = |record: &&Record| record.job == serial && record.kind == kind && record.key == key;
        Records(self.records.iter().rfind(is_of).map(|record| record.number).into_iter().collect())
    }

    /// What storing these pairs would take.
    pub(crate) fn cost(&self, job: u32, kind: Kind, pairs: &[(&[u8], usize)]) -> Amount {
        let mut cost = Amount::default();
        for &(key, value) in pairs {
            cost.bytes += record(key.len(), value);
            cost.keys += u32::from(self.newest(job, kind, key).0.is_empty());
        }
        cost
    }

    /// Takes that room.
    pub(crate) fn take(&mut self, job: u32, rank: Option<u32>, kind: Kind, pairs: &[(&[u8], usize)]) {
        let cost = self.cost(job, kind, pairs);
        let serial = self.jobs[&job].serial;
        for &(key, value) in pairs {
            let before = self.newest(job, kind, key).0;
            if let Some(before) = self.records.iter_mut().find(|record| before.contains(&record.number)) {
                before.is_replaced = true;
            }
            let (number, bytes) = (self.next_serial(), record(key.len(), value));
            let key = key.to_vec();
            self.records.push(Record { number, job: serial, kind, key, rank, bytes, is_replaced: false });
        }
        let used = self.log.entry(serial).or_default();
        *used = used.plus(cost);
        if let Some(rank) = rank {
            let rank = &mut self.job(job).ranks[rank as usize];
            rank.used = rank.used.plus(cost);
        }
    }
}
