//! Data of PMIx ranks on other nodes: requests to the node of a rank, and answers.

use heapless::Vec;

use super::super::Server;
use super::super::peers::REMOTE;
use super::data::{PARENT, key_of};
use crate::fault::Fault;
use crate::ids::{JobId, Rank};
use crate::limits::{HOST_FACTS, HOSTS_ATTR_PREFIX, HOSTS_EACH, KEY_MAX, TEXT_ATTR_PREFIX};
use crate::peer::links::Link;
use crate::peer::message::{Head, Item, RecordKind, Writer};
use crate::state::{Job, RankSlot};
use crate::tables::kvs::Kind;
use crate::tables::modex::Set;
use crate::wire::{decimal, number};

/// First bytes of the name of the job attribute that holds a program's command line. The number of the program follows.
const ARGV: &[u8] = b"pmix.argv.";
/// Names of the job attributes that hold a program's working directory, without the number of the program.
const WDIR: &[u8] = b"pmix.wdir.";

impl Server<'_> {
    /// Returns the number of a node for clients, which count hosts from 0. The head has no ranks.
    pub(super) fn host_number(&self, node: u32) -> u32 {
        if self.links.are_any() { node.saturating_sub(1) } else { node }
    }

    /// Returns the name of the host of a node, if the job has an attribute with it.
    pub(super) fn host_name(&self, job: &Job, node: u32) -> Option<&[u8]> {
        let mut number = [0; 10];
        let key = [HOSTS_ATTR_PREFIX.as_bytes(), decimal(node / HOSTS_EACH, &mut number)];
        let parts = (0..).map_while(|part| self.part(job, key, part));
        let mut names = parts.flat_map(|names| names.split(|&byte| byte == b','));
        names.nth((node % HOSTS_EACH) as usize).filter(|name| !name.is_empty())
    }

    /// Returns a part of an attribute that may be longer than a value. The first has its name, the others a dot and their number
    /// behind it.
    fn part(&self, job: &Job, [prefix, name]: [&[u8]; 2], part: u32) -> Option<&[u8]> {
        let mut number = [0; 10];
        let pieces = [prefix, name, b".", decimal(part, &mut number)];
        self.numbered_attr(job, if part == 0 { &pieces[..2] } else { &pieces })
    }

    /// Returns the parts of the command line of a program, as far as the job has attributes with them.
    pub(super) fn argv<'a>(&'a self, job: &'a Job, appnum: u32) -> impl Iterator<Item = &'a [u8]> {
        (0..).map_while(move |part| self.part(job, [ARGV, decimal(appnum, &mut [0; 10])], part))
    }

    /// Returns the parts of a text of a job.
    pub(super) fn text_parts<'a>(&'a self, job: &'a Job, key: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        (0..).map_while(move |part| self.part(job, [TEXT_ATTR_PREFIX.as_bytes(), key], part))
    }

    /// Returns the working directory of a program, if the job has an attribute with it.
    pub(super) fn wdir(&self, job: &Job, appnum: u32) -> Option<&[u8]> {
        self.numbered_attr(job, &[WDIR, decimal(appnum, &mut [0; 10])])
    }

    /// Returns the record of an attribute that is a text for clients, of a job or of one of its ranks. A client's key is no name of
    /// a part of a text, or of a text of a rank.
    pub(super) fn text(&self, job: &Job, key: &[u8], rank: Option<Rank>) -> Option<u32> {
        let prefix = TEXT_ATTR_PREFIX.as_bytes();
        let mark = key.iter().rposition(|byte| b".@".contains(byte));
        match rank {
            _ if !HOST_FACTS => None,
            _ if mark.is_some_and(|mark| number(&key[mark + 1..]).is_some()) => None,
            None => self.numbered(job, &[prefix, key]),
            Some(Rank(rank)) => self.numbered(job, &[prefix, key, b"@", decimal(rank, &mut [0; 10])]),
        }
    }

    /// Returns the text of such an attribute.
    pub(super) fn text_of(&self, job: &Job, key: &[u8], rank: Option<Rank>) -> Option<&[u8]> {
        self.kvs.value(self.text(job, key, rank)?)
    }

    /// Returns the value of an attribute that the host has set for a job.
    pub(super) fn job_attr(&self, job: &Job, key: &str) -> Option<&[u8]> {
        self.kvs.value(self.host_attr(job, key.as_bytes())?)
    }

    fn numbered_attr(&self, job: &Job, name: &[&[u8]]) -> Option<&[u8]> {
        self.kvs.value(self.numbered(job, name)?)
    }

    fn numbered(&self, job: &Job, name: &[&[u8]]) -> Option<u32> {
        // There is no attribute with a longer name.
        let mut key: Vec<u8, { KEY_MAX as usize }, u8> = Vec::new();
        name.iter().try_for_each(|part| key.extend_from_slice(part)).ok()?;
        self.host_attr(job, &key)
    }

    /// Returns the rank that spawned a job, if the job has an attribute with it.
    pub(super) fn parent(&self, job: &Job) -> Option<Rank> {
        self.numbered_attr(job, &[PARENT]).and_then(number).map(Rank)
    }

    /// Returns the record of an attribute that the host has set for a job.
    #[inline(never)]
    pub(super) fn host_attr(&self, job: &Job, key: &[u8]) -> Option<u32> {
        self.kvs.find((job.spaces, Kind::Job), key).ok()?
    }

    /// Asks the node of a rank for its data. Does nothing if it has been asked, or if the rank is on this node.
    pub(super) fn ask_for(&mut self, slot: usize) {
        let Some(link) = self.links.towards(self.ranks[slot].node) else { return };
        if self.modex.ask(link, slot as u32) {
            self.modex.push(link, slot as u32);
            self.links.wake(link);
        }
    }

    /// A neighbour asks for the data of a rank.
    pub(in super::super) fn receive_get(&mut self, at: usize, job: JobId, rank: Rank) -> Result<(), Fault> {
        let slot = self.job(job)?.slot(rank).ok_or(Fault::BadPeer)?;
        let link = self.links.get(at).ok_or(Fault::BadNode)?;
        if !link.carries(self.ranks[slot].node) {
            return Err(Fault::BadPeer);
        }
        self.modex.ask(at, slot as u32);
        // Data that came with a fence may be older than those at the rank's node.
        self.ask_for(slot);
        if self
            .kvs
            .find((self.jobs[job.index()].spaces, Kind::Commit), &key_of(rank, REMOTE))
            .is_ok_and(|it| it.is_some())
        {
            self.modex.push(at, slot as u32);
            self.links.wake(at);
        }
        Ok(())
    }

    /// Asks the node of a rank for its newest data. Returns false if the rank is on this node or has exited.
    pub(super) fn ask_for_newest(&mut self, slot: usize) -> bool {
        let RankSlot { node, exit, .. } = self.ranks[slot];
        let Some(link) = self.links.towards(node).filter(|_| exit.is_none()) else { return false };
        self.modex.insert(link, Set::RenewedPending, slot as u32);
        self.links.wake(link);
        true
    }

    /// A neighbour asks for the newest data of a rank.
    pub(in super::super) fn receive_renew(&mut self, at: usize, job: JobId, rank: Rank) -> Result<(), Fault> {
        let slot = self.job(job)?.slot(rank).ok_or(Fault::BadPeer)?;
        let link = self.links.get(at).ok_or(Fault::BadNode)?;
        if !link.carries(self.ranks[slot].node) {
            return Err(Fault::BadPeer);
        }
        let towards = self.links.towards(self.ranks[slot].node);
        let set = if towards.is_some() { Set::Renewed } else { Set::RenewedPending };
        self.modex.insert(at, set, slot as u32);
        let next = towards.unwrap_or(at);
        self.modex.insert(next, Set::RenewedPending, slot as u32);
        self.links.wake(next);
        Ok(())
    }

    /// Marks the newest data of a rank as pending for the neighbours that wait for them.
    pub(super) fn pass_newest(&mut self, slot: usize) {
        for at in 0..self.limits.links as usize {
            if self.modex.contains(at, Set::Renewed, slot as u32) {
                self.modex.remove(at, Set::Renewed, slot as u32);
                self.modex.insert(at, Set::RenewedPending, slot as u32);
                self.links.wake(at);
            }
        }
    }

    /// Marks new data of a rank as pending for the neighbours that have asked for them.
    pub(super) fn offer(&mut self, slot: usize) {
        let node = self.ranks[slot].node;
        for at in 0..self.limits.links as usize {
            let carries = self.links.get(at).is_some_and(|link| link.carries(node));
            if carries && self.modex.is_asked(at, slot as u32) {
                self.modex.push(at, slot as u32);
                self.links.wake(at);
            }
        }
    }

    /// Writes the next request for data of a rank, or data that the neighbour has asked for: the newest data first.
    pub(in super::super) fn write_modex(&mut self, at: usize, buf: &mut [u8]) -> Option<usize> {
        let newest = self.write_data(at, Set::RenewedPending, buf);
        newest.or_else(|| self.write_data(at, Set::CommitPending, buf))
    }

    /// Writes a message about the next rank of a set, [`Set::CommitPending`] or [`Set::RenewedPending`].
    fn write_data(&mut self, at: usize, pending: Set, buf: &mut [u8]) -> Option<usize> {
        let is_renewed = pending == Set::RenewedPending;
        while let Some(slot) = self.modex.pop(at, pending) {
            let link: &Link = self.links.get(at)?;
            let carries = link.carries(self.ranks.get(slot as usize)?.node);
            let Some(id) = self.job_of_slot(slot as usize) else { continue };
            let job = &self.jobs[id.index()];
            let (whose, rank) = (job.reference(id), slot - job.first);
            if !carries {
                let request = match is_renewed {
                    true => Head::Renew { job: whose, rank: Rank(rank) },
                    false => Head::Get { job: whose, rank: Rank(rank) },
                };
                return Some(Writer::new(buf, request)?.finish().len());
            }
            let key = key_of(Rank(rank), REMOTE);
            let record = self.kvs.find((job.spaces, Kind::Commit), &key).ok().flatten();
            let value = record.and_then(|record| self.kvs.value(record));
            // A request for the newest data is answered also if there are none.
            let Some(value) = value.or(is_renewed.then_some(&[])) else { continue };
            let of = if is_renewed { RecordKind::Newest } else { RecordKind::Commit };
            let mut writer = Writer::new(buf, Head::Records { job: whose, of })?;
            // A buffer of `Limits::output_max` bytes holds any record.
            if writer.push(&Item { rank, key: &key, value }) {
                return Some(writer.finish().len());
            }
        }
        None
    }
}
