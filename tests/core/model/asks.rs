//! Effects of each command on the model, and the expected replies.

use hydrant_core::limits::{Limit, PENDING_MAX, SPAWN_BYTES_MIN};
use hydrant_core::trace::{Cause, Closing};
use hydrant_core::wire::Op;
use hydrant_core::{JobId, Malformed, Output, Rank, Refusal};

use super::commands::{Ask, key, name, pset, text};
use super::says::{Records, Say};
use super::state::{Kind, Model, Name, Phase, Request, Set, Spawn, Stage, Wait};

/// Longest thread id that is echoed.
const THRID_MAX: usize = 23;

/// Who asks: connection, job, rank.
type Asker = (u32, u32, u32);

impl Ask {
    pub(crate) fn op(&self) -> Op {
        match self {
            Ask::Init { .. } => Op::Init,
            Ask::InitAck { .. } => Op::InitAck,
            Ask::FullInit { .. } => Op::FullInit,
            Ask::GetMaxes => Op::GetMaxes,
            Ask::GetUniverseSize => Op::GetUniverseSize,
            Ask::GetAppnum => Op::GetAppnum,
            Ask::GetJobId => Op::GetJobId,
            Ask::Put { .. } => Op::Put,
            Ask::Get { .. } => Op::Get,
            Ask::Fence | Ask::Group { .. } => Op::Fence,
            Ask::PutNodeAttr { .. } => Op::PutNodeAttr,
            Ask::GetNodeAttr { .. } => Op::GetNodeAttr,
            Ask::GetJobAttr { .. } => Op::GetJobAttr,
            Ask::Publish { .. } => Op::Publish,
            Ask::Unpublish { .. } => Op::Unpublish,
            Ask::Lookup { .. } => Op::Lookup,
            Ask::Spawn { .. } => Op::Spawn,
            Ask::Connect { .. } => Op::Connect,
            Ask::Disconnect { .. } => Op::Disconnect,
            Ask::Ring { .. } => Op::Ring,
            Ask::PsetCount => Op::PsetCount,
            Ask::PsetName { .. } => Op::PsetName,
            Ask::PsetInfo { .. } => Op::PsetInfo,
            Ask::PsetMembers { .. } => Op::PsetMembers,
            Ask::PsetDefine { .. } => Op::PsetDefine,
            Ask::PsetCombine { .. } => Op::PsetCombine,
            Ask::PsetNext { .. } => Op::PsetNext,
            Ask::PsetRetire { .. } => Op::PsetRetire,
            Ask::PsetPrune => Op::PsetPrune,
            Ask::Abort { .. } => Op::Abort,
            Ask::Finalize => Op::Finalize,
            Ask::Unknown => Op::Unknown,
        }
    }
}

impl Model {
    /// Carries out what a client has sent, as far as its replies have room. How many bytes that were.
    pub(crate) fn serve(&mut self, conn: u32) -> usize {
        let mut done = 0;
        loop {
            let state = self.conn(conn);
            if state.closing.is_some() {
                state.pending.clear();
            }
            let Some(request) = state.pending.front().cloned() else { break };
            let aborts = matches!(request.ask, Ask::Abort { .. });
            if state.owed.len() >= PENDING_MAX && !aborts {
                break;
            }
            state.pending.pop_front();
            done += request.bytes.len();
            self.request(conn, &request);
        }
        done
    }

    fn request(&mut self, conn: u32, request: &Request) {
        let op = request.ask.op();
        if let Ask::Abort { code, world, message } = request.ask {
            self.abort(conn, code.map(i32::from), world, &text(message));
            return;
        }
        if self.conn(conn).stage == Stage::Opened && !matches!(op, Op::Init | Op::InitAck) {
            self.closing(conn, Closing::Malformed(Malformed::Handshake));
            return;
        }
        let too_long = request.thrid.as_ref().is_some_and(|thrid| thrid.len() > THRID_MAX);
        let introduced = matches!(self.conn(conn).stage, Stage::Ready | Stage::Finalized);
        let result = match request.ask {
            _ if too_long => Err(Refusal::BadField),
            Ask::Unknown => Err(Refusal::Unsupported),
            Ask::Init { .. } | Ask::InitAck { .. } | Ask::FullInit { .. } => self.handshake(conn, request),
            _ => self.command(conn, request),
        };
        if result.is_err() && !introduced && matches!(op, Op::Init | Op::InitAck | Op::FullInit) {
            self.closing(conn, Closing::Refused);
        }
        let wait = result.unwrap_or_else(|why| Wait::Say(Say::Refused(op, why)));
        let thrid = request.thrid.clone().filter(|_| !too_long);
        let gathers = matches!(wait, Wait::Fence | Wait::Group(..) | Wait::Ring);
        self.conn(conn).owed.push((thrid, wait));
        if gathers {
            let job = self.conn(conn).job;
            self.gathered(job);
            self.check_absent(job);
        }
    }

    fn abort(&mut self, conn: u32, code: Option<i32>, world: bool, message: &[u8]) {
        let state = self.conn(conn);
        let job = state.job;
        let Some(rank) = state.rank else {
            self.closing(conn, Closing::Malformed(Malformed::Handshake));
            return;
        };
        let state = &self.jobs[&job];
        let process = &state.ranks[rank as usize];
        if state.ending || process.aborted || (process.exit.is_some() && !world) {
            return;
        }
        let message = &printed(message, self.limits.abort_text_max());
        let rank_ = Rank(rank);
        if world {
            self.end(job, Cause::Abort { rank: rank_, code }, message);
        } else {
            self.job(job).ranks[rank as usize].aborted = true;
            let kill = Output::KillRank { job: JobId(job), rank: rank_, code, message };
            self.events.push(format!("{kill:?}"));
        }
    }

    fn handshake(&mut self, conn: u32, request: &Request) -> Result<Wait, Refusal> {
        let state = self.conn(conn);
        let job = state.job;
        let say = match request.ask {
            Ask::Init { version } => {
                let spoken = if state.v2 { 2 } else { 1 };
                if state.stage != Stage::Opened && version != spoken {
                    return Err(Refusal::Initialized);
                }
                match version {
                    1 if state.rank.is_none() => {
                        self.closing(conn, Closing::Refused);
                        return Err(Refusal::Rank);
                    }
                    1 => {
                        state.v2 = false;
                        self.join(conn);
                        Say::Init { version: 1, subversion: self.jobs[&job].subversion }
                    }
                    2 => {
                        (state.v2, state.stage) = (true, Stage::Greeted);
                        Say::Init { version: 2, subversion: 0 }
                    }
                    _ => return Err(Refusal::Version),
                }
            }
            Ask::InitAck { rank } => {
                if state.stage != Stage::Opened {
                    return Err(Refusal::Initialized);
                }
                self.claim(conn, u32::from(rank))?;
                let (size, appnum) = self.place_of(job, u32::from(rank));
                Say::InitAck { rank: u32::from(rank), size, appnum }
            }
            Ask::FullInit { rank, .. } => self.full_init(conn, rank, request.job.as_deref())?,
            _ => unreachable!("only handshakes come here"),
        };
        Ok(Wait::Say(say))
    }

    fn full_init(&mut self, conn: u32, rank: Option<u8>, named: Option<&str>) -> Result<Say, Refusal> {
        let state = self.conn(conn);
        let job = state.job;
        match state.stage {
            Stage::Greeted | Stage::Ready => {}
            Stage::Opened | Stage::Finalized => return Err(Refusal::NotInitialized),
        }
        if state.rank.is_none() {
            if named.is_some_and(|named| named != self.jobs[&job].name) {
                self.closing(conn, Closing::Refused);
                return Err(Refusal::NoKvs);
            }
            self.claim(conn, u32::from(rank.ok_or(Refusal::MissingField)?))?;
        }
        self.join(conn);
        let rank = self.conn(conn).rank.expect("it has joined");
        let (size, appnum) = self.place_of(job, rank);
        Ok(Say::FullInit { rank, size, appnum, spawner: self.jobs[&job].spawner.clone() })
    }

    fn place_of(&self, job: u32, rank: u32) -> (u32, u32) {
        (self.jobs[&job].size(), self.jobs[&job].ranks[rank as usize].appnum)
    }

    fn claim(&mut self, conn: u32, rank: u32) -> Result<(), Refusal> {
        let state = self.conn(conn);
        let (job, known) = (state.job, state.rank);
        if known == Some(rank) {
            return Ok(());
        }
        let verified = state.verified && known.is_none();
        let old =
            self.job(job).ranks.get(rank as usize).filter(|it| it.exit.is_none()).and_then(|it| it.conn);
        if let Some(old) = old.filter(|old| verified && self.conns[old].is_idle()) {
            self.job(job).ranks[rank as usize].conn = None;
            self.closing(old, Closing::Replaced);
        }
        match self.job(job).ranks.get_mut(rank as usize) {
            Some(process) if known.is_none() && process.may_connect() => {
                process.conn = Some(conn);
                let state = self.conn(conn);
                (state.rank, state.joined, state.joined_unsaid) = (Some(rank), true, true);
                Ok(())
            }
            _ => {
                self.closing(conn, Closing::Refused);
                Err(Refusal::Rank)
            }
        }
    }

    fn join(&mut self, conn: u32) {
        let state = self.conn(conn);
        state.stage = Stage::Ready;
        state.joined_unsaid |= !state.joined;
        state.joined = true;
        let (job, rank) = (state.job, state.rank.expect("a client that joins is a rank"));
        let now = self.now;
        let state = self.job(job);
        if std::mem::replace(&mut state.ranks[rank as usize].phase, Phase::Initialized) == Phase::New {
            state.init.get_or_insert((now, false));
        }
        self.check_absent(job);
    }

    fn command(&mut self, conn: u32, request: &Request) -> Result<Wait, Refusal> {
        let state = self.conn(conn);
        let (Some(rank), Stage::Ready) = (state.rank, state.stage) else {
            return Err(Refusal::NotInitialized);
        };
        let job = state.job;
        let asker = (conn, job, rank);
        let state = &self.jobs[&job];
        let named = request.job.as_deref();
        Ok(Wait::Say(match request.ask {
            Ask::GetMaxes => Say::Maxes,
            Ask::GetUniverseSize => Say::Number(Op::GetUniverseSize, state.universe),
            Ask::GetAppnum => Say::Number(Op::GetAppnum, state.ranks[rank as usize].appnum),
            Ask::GetJobId => Say::Text(Op::GetJobId, state.name.clone().into_bytes(), Records::default()),
            Ask::Put { key: k, value, .. } => self.put(asker, named, key(k), text(value))?,
            Ask::Get { key: k, .. } => self.get(asker, named, &key(k))?,
            Ask::Fence => return self.fence(job, rank),
            Ask::Group { ref members, tag } => return self.group(job, rank, members, u32::from(tag)),
            Ask::Ring { count, left, right } => {
                return self.ring(job, rank, u32::from(count), text(left), text(right));
            }
            Ask::PutNodeAttr { key: k, value } => self.put_node_attr(asker, key(k), text(value))?,
            Ask::GetNodeAttr { key: k, wait } => return self.get_node_attr(asker, key(k), wait),
            Ask::GetJobAttr { key: k } => self.job_attr(job, Op::GetJobAttr, &key(k))?,
            Ask::Publish { name: n, port } => self.publish(asker, name(n), text(port))?,
            Ask::Unpublish { name: n } => {
                let name = name(n);
                let at = self.names.iter().position(|it| it.name == name).ok_or(Refusal::NoName)?;
                self.names.remove(at);
                Say::Done(Op::Unpublish)
            }
            Ask::Lookup { name: n } => return self.lookup(asker, name(n)),
            Ask::Spawn { ref sizes, preput } => return self.spawn(asker, request, sizes, preput),
            Ask::Connect { .. } => self.connect(asker, named)?,
            Ask::Disconnect { .. } => self.disconnect(asker, named)?,
            Ask::PsetCount => Say::Number(Op::PsetCount, self.psets(job, rank).len() as u32),
            Ask::PsetName { index } => {
                let sets = self.psets(job, rank);
                let set = sets.get(usize::from(index)).ok_or(Refusal::NoPset)?;
                Say::SetName(set.name.clone())
            }
            Ask::PsetNext { after } => {
                let later = |set: &Set| set.serial > u32::from(after);
                let set = self.psets(job, rank).into_iter().find(later).ok_or(Refusal::NoPset)?;
                Say::NextSet(set.name, set.serial)
            }
            Ask::PsetInfo { name } => {
                Say::Number(Op::PsetInfo, self.pset(asker, pset(name))?.members.len() as u32)
            }
            Ask::PsetMembers { name, from } => {
                let set = self.pset(asker, pset(name))?;
                let members = self.members(job, &set, u32::from(from));
                Say::Members(set.name, members)
            }
            Ask::PsetDefine { name, ref members } => {
                let members = members.iter().map(|&rank| (job, u32::from(rank))).collect();
                self.define(pset(name), members)?;
                Say::Done(Op::PsetDefine)
            }
            Ask::PsetCombine { name, operation, of: [one, other] } => {
                self.combine(asker, pset(name), operation, [pset(one), pset(other)])?;
                Say::Done(Op::PsetCombine)
            }
            Ask::PsetRetire { name } => {
                self.retire(asker, pset(name))?;
                Say::Done(Op::PsetRetire)
            }
            Ask::PsetPrune => {
                self.prune(asker);
                Say::Done(Op::PsetPrune)
            }
            Ask::Finalize => {
                self.conn(conn).stage = Stage::Finalized;
                self.job(job).ranks[rank as usize].phase = Phase::Finalized;
                Say::Done(Op::Finalize)
            }
            Ask::Init { .. }
            | Ask::InitAck { .. }
            | Ask::FullInit { .. }
            | Ask::Abort { .. }
            | Ask::Unknown => {
                unreachable!("handled before")
            }
        }))
    }

    fn put(
        &mut self,
        (_, job, rank): Asker,
        named: Option<&str>,
        key: Vec<u8>,
        value: Vec<u8>,
    ) -> Result<Say, Refusal> {
        if named.is_some_and(|named| named != self.jobs[&job].name) {
            return Err(Refusal::NoKvs);
        }
        self.store(job, rank, Kind::Kvs, &key, Some(value.len()))?;
        self.job(job).kvs.insert(key, value);
        Ok(Say::Done(Op::Put))
    }

    fn store(
        &mut self,
        job: u32,
        rank: u32,
        kind: Kind,
        key: &[u8],
        value: Option<usize>,
    ) -> Result<(), Refusal> {
        checked(key)?;
        let value = value.unwrap_or(0);
        if value > 1024 {
            return Err(Refusal::ValueLength);
        }
        let pairs = [(key, value)];
        self.make_room((job, rank), self.cost(job, kind, &pairs))?;
        self.take(job, Some(rank), kind, &pairs);
        Ok(())
    }

    fn get(&self, (conn, job, _): Asker, named: Option<&str>, key: &[u8]) -> Result<Say, Refusal> {
        let from = match named {
            Some(named) => self.named(named).ok_or(Refusal::NoKvs)?,
            None => job,
        };
        let (mine, other) = (self.jobs[&job].serial, self.jobs[&from].serial);
        if mine != other && !self.links.contains(&(mine, other)) {
            return Err(Refusal::NoKvs);
        }
        checked(key)?;
        match self.jobs[&from].kvs.get(key) {
            Some(value) => Ok(Say::Text(Op::Get, value.clone(), self.newest(from, Kind::Kvs, key))),
            None if from == job && !self.conns[&conn].v2 => self.job_attr(job, Op::Get, key),
            None => Ok(Say::Missing(Op::Get)),
        }
    }

    fn job_attr(&self, job: u32, op: Op, key: &[u8]) -> Result<Say, Refusal> {
        checked(key)?;
        let state = &self.jobs[&job];
        Ok(match (state.attrs.get(key), key) {
            (Some(value), _) => Say::Text(op, value.clone(), self.newest(job, Kind::Job, key)),
            (None, b"universeSize") if state.universe == 0 => Say::Missing(op),
            (None, b"universeSize") => {
                Say::Text(op, state.universe.to_string().into_bytes(), Records::default())
            }
            (None, b"physTopology") => Say::Text(op, b"complete".to_vec(), Records::default()),
            (None, b"PMI_dead_processes") => Say::Dead(op),
            _ => Say::Missing(op),
        })
    }

    fn put_node_attr(&mut self, (_, job, rank): Asker, key: Vec<u8>, value: Vec<u8>) -> Result<Say, Refusal> {
        self.store(job, rank, Kind::Node, &key, Some(value.len()))?;
        let ranks = (0..self.jobs[&job].size()).collect();
        let say = Say::Text(Op::GetNodeAttr, value.clone(), self.newest(job, Kind::Node, &key));
        self.release(job, &ranks, &Wait::Node(key.clone()), &say);
        self.job(job).node.insert(key, Some(value));
        Ok(Say::Done(Op::PutNodeAttr))
    }

    fn get_node_attr(&mut self, (_, job, rank): Asker, key: Vec<u8>, wait: bool) -> Result<Wait, Refusal> {
        checked(&key)?;
        let known = match self.jobs[&job].node.get(&key) {
            Some(Some(value)) => Some(value.clone()),
            None if key == b"localRanks" => {
                let all: Vec<_> = (0..self.jobs[&job].size()).map(|rank| rank.to_string()).collect();
                Some(all.join(",").into_bytes())
            }
            _ => None,
        };
        match known {
            Some(value) => {
                let from = self.newest(job, Kind::Node, &key);
                return Ok(Wait::Say(Say::Text(Op::GetNodeAttr, value, from)));
            }
            None if !wait => return Ok(Wait::Say(Say::Missing(Op::GetNodeAttr))),
            None => {}
        }
        if !self.jobs[&job].node.contains_key(&key) {
            self.store(job, rank, Kind::Node, &key, None)?;
            self.job(job).node.insert(key.clone(), None);
        }
        Ok(Wait::Node(key))
    }

    /// A place for a name that is neither published nor waited for.
    fn name_room(&self, name: &[u8]) -> Result<(), Refusal> {
        if name.is_empty() || name.len() > 127 {
            return Err(Refusal::NameLength);
        }
        let awaited = self.conns.values().flat_map(|conn| &conn.owed).filter_map(|(_, wait)| match wait {
            Wait::Lookup(name, _) => Some(name),
            _ => None,
        });
        let names: std::collections::BTreeSet<_> =
            self.names.iter().map(|it| &it.name).chain(awaited).collect();
        if names.len() >= self.limits.names as usize && !names.iter().any(|known| *known == name) {
            return Err(Refusal::Full(Limit::Names, self.limits.names));
        }
        Ok(())
    }

    fn publish(&mut self, (_, job, _): Asker, name: Vec<u8>, port: Vec<u8>) -> Result<Say, Refusal> {
        if port.len() > 1023 {
            return Err(Refusal::NameLength);
        }
        self.name_room(&name)?;
        if self.names.iter().any(|it| it.name == name) {
            return Err(Refusal::NameTaken);
        }
        let (serial, owner) = (self.next_serial(), self.jobs[&job].serial);
        for (_, wait) in self.conns.values_mut().flat_map(|conn| &mut conn.owed) {
            if matches!(wait, Wait::Lookup(wanted, _) if *wanted == name) {
                *wait = Wait::Say(Say::Port(serial));
            }
        }
        self.names.push(Name { name, port, serial, owner });
        Ok(Say::Done(Op::Publish))
    }

    fn lookup(&self, (_, job, _): Asker, name: Vec<u8>) -> Result<Wait, Refusal> {
        if let Some(published) = self.names.iter().find(|it| it.name == name) {
            return Ok(Wait::Say(Say::Port(published.serial)));
        }
        let wait = self.jobs[&job].lookup_wait;
        if wait == 0 {
            return Err(Refusal::NoName);
        }
        self.name_room(&name)?;
        Ok(Wait::Lookup(name, self.now + wait))
    }

    fn spawn(
        &mut self,
        (conn, job, rank): Asker,
        request: &Request,
        sizes: &[u8],
        preput: Option<(u8, u8)>,
    ) -> Result<Wait, Refusal> {
        let (limit, room) = (self.limits.spawns, self.limits.spawn_bytes);
        if limit == 0 || room < SPAWN_BYTES_MIN {
            return Err(Refusal::NoSpawn);
        }
        if self.spawns.len() >= limit as usize {
            return Err(Refusal::Full(Limit::Spawns, limit));
        }
        let start = if self.conns[&conn].v2 { 6 } else { 0 };
        let body = request.bytes[start..].to_vec();
        if body.len() > room as usize {
            return Err(Refusal::Full(Limit::SpawnBytes, room));
        }
        let serial = self.next_serial();
        self.spawns.push(Spawn {
            serial,
            parent: (job, rank),
            parent_name: self.jobs[&job].name.clone(),
            wanted: true,
            id: None,
            request: body,
            sizes: sizes.iter().map(|&size| u32::from(size)).collect(),
            preput: preput.iter().map(|&(k, value)| (key(k), text(value))).collect(),
            result: None,
        });
        Ok(Wait::Spawn(serial))
    }

    fn connect(&mut self, (_, job, _): Asker, named: Option<&str>) -> Result<Say, Refusal> {
        let other = named.and_then(|named| self.named(named)).ok_or(Refusal::NoJob)?;
        let (mine, other) = (self.jobs[&job].serial, self.jobs[&other].serial);
        let side = |of: u64| {
            let all = self.jobs.values().map(|job| job.serial);
            all.filter(|&it| it == of || self.links.contains(&(of, it))).collect::<Vec<_>>()
        };
        for (a, b) in
            side(mine).iter().flat_map(|&a| side(other).into_iter().map(move |b| (a, b))).collect::<Vec<_>>()
        {
            if a != b {
                self.links.extend([(a, b), (b, a)]);
            }
        }
        Ok(Say::Done(Op::Connect))
    }

    fn disconnect(&mut self, (_, job, _): Asker, named: Option<&str>) -> Result<Say, Refusal> {
        let other = named.and_then(|named| self.named(named)).ok_or(Refusal::NoJob)?;
        let serial = |job| self.jobs[&job].serial;
        let (mine, theirs) = (serial(job), serial(other));
        let spawned = |&(job, by): &(u32, u32)| {
            let spawner = self.jobs[&job].spawner.as_ref();
            spawner == Some(&self.jobs[&by].name) && !self.parted.contains(&serial(job))
        };
        let child = [(job, other), (other, job)].into_iter().find(spawned).map(|(child, _)| serial(child));
        self.parted.extend(child);
        if !self.links.remove(&(mine, theirs)) && child.is_none() {
            return Err(Refusal::NotConnected);
        }
        self.links.remove(&(theirs, mine));
        Ok(Say::Done(Op::Disconnect))
    }
}

fn checked(key: &[u8]) -> Result<(), Refusal> {
    match key.len() {
        0 => Err(Refusal::EmptyKey),
        1..=64 => Ok(()),
        _ => Err(Refusal::KeyLength),
    }
}

/// What the host prints of an abort message: as many whole characters and escapes as fit.
fn printed(message: &[u8], room: usize) -> String {
    let mut pieces = Vec::new();
    for chunk in message.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' | '\t' => pieces.push(c.to_string()),
                c if c.is_control() => {
                    let mut bytes = [0; 4];
                    let bytes = c.encode_utf8(&mut bytes).bytes();
                    pieces.extend(bytes.map(|byte| std::ascii::escape_default(byte).to_string()));
                }
                c => pieces.push(c.to_string()),
            }
        }
        pieces.extend(chunk.invalid().iter().map(|&byte| std::ascii::escape_default(byte).to_string()));
    }
    let mut text = String::new();
    for (at, piece) in pieces.iter().enumerate() {
        let next = pieces.get(at + 1).map(String::as_str);
        if piece == r"\r" && next == Some("\n") {
            continue;
        }
        if text.len() + piece.len() > room {
            break;
        }
        text += piece;
    }
    text
}
