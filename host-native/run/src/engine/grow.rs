//! Hosts that join and leave the run, at the request of a client of the status socket, of a PMIx client or of a spawn.

use std::net::SocketAddr;

use hydrant_control::{Event, HostRefusal, HostRefusalKind};
use hydrant_core::wire::pmix::{Infos, Integers, allocation, keys, kind, status};
use hydrant_overlay::Application;
use hydrant_placement::{Bootstrap, Host, Hosts};
use hydrant_status::{ClientId, Reply};

use super::host_call::reply_body;
use super::status::Asker;
use super::{Engine, Head};
use crate::error::RunError;

/// Keys that say what holds anyway: the client is answered when all hosts are there.
const IMPLIED: [&[u8]; 2] = [b"pmix.alloc.waitall", b"pmix.alloc.noshell"];
/// Beginning of all keys about hosts.
const ABOUT_HOSTS: &[u8] = b"pmix.alloc.";
/// Beginning of the name of what a request has allocated.
const ID_PREFIX: &str = "hydrant.";
/// Longest name that a client may give to its request, in bytes: it is part of an event.
const REQUEST_ID_MAX: usize = 255;

/// Requests under way, and what they have left.
#[derive(Default)]
pub(super) struct Growths {
    pending: Vec<Growth>,
    /// Number of the latest request.
    latest: u64,
    /// Hosts that have left, and may join again without being named.
    left: Vec<Host>,
    /// Hosts that PMIx clients have allocated, each with the number of the request.
    allocated: Vec<(u64, String)>,
}

/// Hosts of one request.
struct Growth {
    number: u64,
    of: Requester,
    /// Number of hosts without an answer.
    awaited: usize,
    /// Hosts that have joined or left.
    changed: Vec<String>,
    /// Hosts that have not joined or left.
    refused: Vec<Refused>,
}

/// A host that has not joined or left.
pub(super) struct Refused {
    pub(super) host: String,
    kind: HostRefusalKind,
    /// The reason with the name of the host.
    pub(super) why: String,
}

/// Who has asked.
enum Requester {
    /// A client of the status socket.
    Client(ClientId),
    /// A PMIx client.
    Pmix(Allocation),
    /// A spawn, which goes on when the hosts are there.
    Spawn(Spawn),
    /// The host itself, by its number among those that ask to join, and by its name.
    Applicant(u32, String),
}

/// Starts the programs of a spawn, unless hosts have been refused.
type Spawn = Box<dyn FnOnce(&mut Head, &mut Engine<'_>, &[Refused]) -> Result<(), RunError>>;

/// Request of a PMIx client.
struct Allocation {
    asker: Asker,
    integers: Integers,
    directive: u8,
    /// The name that the client has given to it.
    request_id: Option<Vec<u8>>,
}

/// Reason why a request of a PMIx client is refused before any host is asked: the status that it gets, and the line for the user.
type Unwanted = (i32, String);

impl Growths {
    /// Notes a request about so many hosts. Returns its number.
    fn begin(&mut self, of: Requester, awaited: usize) -> u64 {
        self.latest += 1;
        let (changed, refused) = (Vec::new(), Vec::new());
        self.pending.push(Growth { number: self.latest, of, awaited, changed, refused });
        self.latest
    }
}

impl Head {
    /// Starts the daemons of hosts. The client is answered when all have joined or have failed.
    pub(super) fn grow(
        &mut self,
        engine: &mut Engine<'_>,
        client: ClientId,
        list: &str,
    ) -> Result<(), RunError> {
        match Hosts::parse(list) {
            Ok(hosts) => self.name_hosts(engine, Requester::Client(client), hosts.as_slice()),
            Err(why) => {
                self.reply(engine, client, &Reply::Refused(why.to_string()));
                Ok(())
            }
        }
    }

    /// Has hosts leave. The client is answered when the daemons of all have ended or hosts are refused.
    pub(super) fn shrink(
        &mut self,
        engine: &mut Engine<'_>,
        client: ClientId,
        list: &str,
        force: bool,
    ) -> Result<(), RunError> {
        match Hosts::parse(list) {
            Ok(hosts) => {
                let names = hosts.iter().map(|host| host.name.clone()).collect();
                self.part_with_hosts(engine, Requester::Client(client), names, force)
            }
            Err(why) => {
                self.reply(engine, client, &Reply::Refused(why.to_string()));
                Ok(())
            }
        }
    }

    /// Has hosts join that are not there, and then starts a spawn.
    pub(super) fn spawn_with_hosts(
        &mut self,
        engine: &mut Engine<'_>,
        hosts: &[Host],
        spawn: impl FnOnce(&mut Head, &mut Engine<'_>, &[Refused]) -> Result<(), RunError> + 'static,
    ) -> Result<(), RunError> {
        match hosts {
            [] => spawn(self, engine, &[]),
            hosts => self.name_hosts(engine, Requester::Spawn(Box::new(spawn)), hosts),
        }
    }

    fn name_hosts(&mut self, engine: &mut Engine<'_>, of: Requester, hosts: &[Host]) -> Result<(), RunError> {
        let may_be_there = matches!(of, Requester::Spawn(_));
        let request = self.growths.begin(of, hosts.len());
        for host in hosts.iter().cloned() {
            self.handle(engine, Event::HostNamed { request, host, may_be_there })?;
        }
        Ok(())
    }

    fn part_with_hosts(
        &mut self,
        engine: &mut Engine<'_>,
        of: Requester,
        hosts: Vec<String>,
        force: bool,
    ) -> Result<(), RunError> {
        let request = self.growths.begin(of, hosts.len());
        for host in hosts {
            self.handle(engine, Event::HostLeaves { request, host, force })?;
        }
        Ok(())
    }

    /// A host asks to join by itself.
    pub(super) fn host_applied(
        &mut self,
        engine: &mut Engine<'_>,
        applicant: u32,
        application: &Application,
        addr: SocketAddr,
    ) -> Result<(), RunError> {
        let Application { name, slots, .. } = application;
        if engine.plan.settings.verbose {
            engine.sinks.print(&format!("host {name} asks to join from {}", addr.ip().to_canonical()));
        }
        let of = Requester::Applicant(applicant, name.clone());
        self.name_hosts(engine, of, &[Host::with_slots(name, *slots)])
    }

    /// Carries out a request of a PMIx client (`PMIx_Allocation_request`). It is answered when all hosts have joined or left.
    pub(super) fn allocate(
        &mut self,
        engine: &mut Engine<'_>,
        asker: Asker,
        integers: Integers,
        (directive, infos): (u8, &Infos<'_>),
    ) -> Result<(), RunError> {
        let request_id = infos.find(keys::ALLOC_REQ_ID).and_then(|info| info.as_string()).map(<[u8]>::to_vec);
        let wanted = self.wanted_hosts(engine, directive, infos);
        let of = Allocation { asker, integers, directive, request_id };
        match wanted {
            Ok(hosts) if directive == allocation::RELEASE => {
                let names = hosts.into_iter().map(|host| host.name).collect();
                self.part_with_hosts(engine, Requester::Pmix(of), names, false)
            }
            Ok(hosts) => self.name_hosts(engine, Requester::Pmix(of), &hosts),
            Err((code, why)) => {
                name_refused(engine, &why);
                let body = of.body(code, None, &[]);
                self.answer_asker(engine, asker, 0, body)
            }
        }
    }

    /// The hosts that a PMIx client asks for or gives back.
    fn wanted_hosts(
        &self,
        engine: &Engine<'_>,
        directive: u8,
        infos: &Infos<'_>,
    ) -> Result<Vec<Host>, Unwanted> {
        let refuse = |code: i32, why: &str| Err((code, why.to_owned()));
        if engine.plan.options.cluster.elastic.is_none() {
            return refuse(status::NOT_SUPPORTED, "start the run with --elastic HOSTS");
        }
        if !(allocation::NEW..=allocation::RELEASE).contains(&directive) {
            let why = format!("directive {directive} is none of new (1), extend (2) and release (3)");
            return Err((status::NOT_SUPPORTED, why));
        }
        let is_known = |key: &[u8]| {
            [keys::ALLOC_NUM_NODES, keys::ALLOC_NODE_LIST, keys::ALLOC_ID, keys::ALLOC_REQ_ID].contains(&key)
                || IMPLIED.contains(&key)
        };
        if let Some(other) =
            infos.iter().find(|info| info.key.starts_with(ABOUT_HOSTS) && !is_known(info.key))
        {
            let why = format!("attribute {} is not supported", other.key.escape_ascii());
            return Err((status::NOT_SUPPORTED, why));
        }
        if infos
            .find(keys::ALLOC_REQ_ID)
            .is_some_and(|info| info.as_string().is_none_or(|id| id.len() > REQUEST_ID_MAX))
        {
            let why = format!("pmix.alloc.reqid is no text of at most {REQUEST_ID_MAX} bytes");
            return Err((status::BAD_PARAM, why));
        }
        let releases = directive == allocation::RELEASE;
        let text = |key: &[u8]| infos.find(key).map(|info| std::str::from_utf8(info.as_string()?).ok());
        let count = match infos.find(keys::ALLOC_NUM_NODES).map(|info| info.as_u32()) {
            Some(None | Some(0)) => {
                return refuse(status::BAD_PARAM, "pmix.alloc.nnodes is no number of hosts");
            }
            count => count.flatten().map(|count| count as usize),
        };
        let hosts = if let Some(list) = text(keys::ALLOC_NODE_LIST) {
            let hosts =
                Hosts::parse(list.unwrap_or_default()).map_err(|why| (status::BAD_PARAM, why.to_string()))?;
            hosts.as_slice().to_vec()
        } else if let Some(id) = text(keys::ALLOC_ID).filter(|_| releases) {
            let number = id.and_then(|id| id.strip_prefix(ID_PREFIX)?.parse::<u64>().ok());
            let all = self.growths.allocated.iter().filter(|(of, _)| Some(*of) == number);
            all.map(|(_, name)| Host::new(name)).collect()
        } else {
            let Some(count) = count else {
                return refuse(
                    status::BAD_PARAM,
                    "name hosts (pmix.alloc.nlist), or their number (pmix.alloc.nnodes)",
                );
            };
            let hosts: Vec<Host> = match releases {
                true => self.control.idle_hosts().map(Host::new).take(count).collect(),
                false => {
                    let known = self.control.unused_hosts().chain(&self.growths.left);
                    known.take(count).cloned().collect()
                }
            };
            if hosts.len() < count {
                let which =
                    if releases { "have no ranks" } else { "are known and not in the run: name others" };
                return Err((status::OUT_OF_RESOURCE, format!("{} of {count} hosts {which}", hosts.len())));
            }
            hosts
        };
        match count {
            _ if hosts.is_empty() => refuse(status::NOT_FOUND, "no host of this allocation is in the run"),
            Some(count) if count != hosts.len() => {
                let why = format!("it names {} hosts, and pmix.alloc.nnodes is {count}", hosts.len());
                Err((status::BAD_PARAM, why))
            }
            _ => Ok(hosts),
        }
    }

    /// Starts the daemon of a host that is to join.
    pub(super) fn start_daemon(
        &mut self,
        engine: &mut Engine<'_>,
        node: u32,
        host: &Host,
    ) -> Result<(), RunError> {
        if engine.nodes.is_none() {
            return Ok(());
        }
        let applicant = self.growths.pending.iter().find_map(|growth| match &growth.of {
            Requester::Applicant(applicant, name) if *name == host.name => Some(*applicant),
            _ => None,
        });
        let started = match (applicant, &self.bootstrap, self.bootstrap.check_user(host)) {
            (None, Bootstrap::Join, _) => Err(RunError::HostsJoin),
            (Some(_), ..) | (None, _, Ok(())) => engine.start_daemon(node, host, applicant),
            (None, _, Err(why)) => Err(RunError::from(why)),
        };
        match started {
            Ok(()) => Ok(()),
            Err(why) => {
                let reason = why.with_hint();
                self.answer(engine, Event::NodesLost { nodes: node..node + 1, reason })
            }
        }
    }

    /// A host of the request with this number has joined or left, or has not.
    pub(super) fn host_changed(
        &mut self,
        engine: &mut Engine<'_>,
        number: u64,
        host: &str,
        result: Result<u32, HostRefusal>,
    ) -> Result<(), RunError> {
        let Growths { pending, left, allocated, .. } = &mut self.growths;
        let Some(at) = pending.iter().position(|growth| growth.number == number) else { return Ok(()) };
        let growth = &mut pending[at];
        growth.awaited -= 1;
        // The failure of a daemon names its host.
        let is_named = |why: &str| why.starts_with(&format!("host {host} "));
        match result {
            Ok(node) => {
                growth.changed.push(host.to_owned());
                left.retain(|left| left.name != host);
                // A host that was there before a spawn named it stays with who has allocated it.
                allocated
                    .retain(|(_, allocated)| allocated != host || matches!(growth.of, Requester::Spawn(_)));
                let is_member = self.control.members().any(|member| member == node);
                match &growth.of {
                    Requester::Pmix(_) if is_member => allocated.push((number, host.to_owned())),
                    _ if is_member => {}
                    _ => left.extend(self.control.hosts().get(node as usize - 1).cloned()),
                }
            }
            Err(HostRefusal { kind, text }) => {
                let why = if is_named(&text) { text } else { format!("host {host}: {text}") };
                growth.refused.push(Refused { host: host.to_owned(), kind, why });
            }
        }
        if growth.awaited > 0 {
            return Ok(());
        }
        let Growth { of, changed, refused, .. } = pending.swap_remove(at);
        match of {
            Requester::Client(client) => {
                let why: Vec<&str> = refused.iter().map(|refused| &*refused.why).collect();
                let reply = if why.is_empty() { Reply::Done } else { Reply::Refused(why.join("; ")) };
                self.reply(engine, client, &reply);
                Ok(())
            }
            Requester::Spawn(spawn) => spawn(self, engine, &refused),
            Requester::Applicant(applicant, _) => {
                if let (Some(refused), Some(nodes)) = (refused.first(), &mut engine.nodes) {
                    nodes.refuse(applicant, &refused.why, engine.clock.now());
                    engine.sinks.print(&format!("a host that asks to join is refused: {}", refused.why));
                }
                Ok(())
            }
            Requester::Pmix(of) => {
                refused.iter().for_each(|refused| name_refused(engine, &refused.why));
                let code = match refused.first() {
                    None => status::SUCCESS,
                    Some(_) if !changed.is_empty() => status::PARTIAL_SUCCESS,
                    Some(first) => first.status(),
                };
                let grows = of.directive != allocation::RELEASE && !changed.is_empty();
                let body = of.body(code, grows.then(|| format!("{ID_PREFIX}{number}")), &changed);
                self.answer_asker(engine, of.asker, 0, body)
            }
        }
    }
}

/// Names a request of a PMIx client that is refused, with `-v`.
fn name_refused(engine: &mut Engine<'_>, why: &str) {
    if engine.plan.settings.verbose {
        engine.sinks.print(&format!("a request of a PMIx client for hosts is refused: {why}"));
    }
}

impl Refused {
    /// The status of a request that fails because of it.
    pub(super) fn status(&self) -> i32 {
        match self.kind {
            HostRefusalKind::Unavailable => status::NOT_AVAILABLE,
            HostRefusalKind::Limit => status::OUT_OF_RESOURCE,
            HostRefusalKind::Present => status::EXISTS,
            HostRefusalKind::Absent => status::NOT_FOUND,
            HostRefusalKind::Busy => status::RESOURCE_BUSY,
            HostRefusalKind::Kept => status::NO_PERMISSIONS,
            HostRefusalKind::Failed => status::UNREACHABLE,
        }
    }
}

impl Allocation {
    /// The body of the reply: a status, and what has been done.
    fn body(&self, code: i32, id: Option<String>, hosts: &[String]) -> Vec<u8> {
        let (list, request_id) = (hosts.join(","), self.request_id.as_deref().unwrap_or_default());
        let id = id.unwrap_or_default();
        let texts = [
            (keys::ALLOC_ID, id.as_bytes()),
            (keys::ALLOC_NODE_LIST, list.as_bytes()),
            (keys::ALLOC_REQ_ID, request_id),
        ];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        reply_body(self.integers, |writer| {
            writer.status(code);
            writer.array(texts.clone().count() as u32);
            for (key, text) in texts.clone() {
                writer.info(key, kind::STRING);
                writer.string(text);
            }
        })
    }
}
