//! Specification that a daemon reads from its standard input.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use hydrant_core::peer::tree::{Place, Tree};
use hydrant_noise::KeyExchange;
use hydrant_placement::{Bootstrap, Host};
use hydrant_reactor::process::can_fork;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::guide::StepSecret;
use super::host_runs;
use crate::error::SpecError;
use crate::link::{LinkIdentity, OverlayId, Secret};
use crate::version::VERSION;

/// First bytes in all versions.
const MAGIC: &[u8; 8] = b"hydrant\n";
/// Maximum size of a specification in bytes. It has room for the largest number of hosts without a common form.
const SPEC_MAX: u32 = 64 << 20;

/// Settings of all daemons of an overlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonSettings {
    /// Method that starts daemons.
    pub bootstrap: Bootstrap,
    /// Program that replaces the `ssh` or `srun` in the `PATH`.
    pub bootstrap_exec: Option<OsString>,
    /// Arguments of that program behind its options.
    pub bootstrap_args: Vec<OsString>,
    /// Path of `hydrant` on the hosts; see [`daemon_program`](crate::daemon_program).
    pub program: OsString,
    /// Name or address of the interface to listen on. By default it is the one that leads to the children.
    pub iface: Option<String>,
    /// Milliseconds without a message after which a link counts as closed.
    pub heartbeat_timeout: u64,
    /// Milliseconds for a daemon from its start until it has joined.
    pub join_timeout: u64,
}

/// Everything that a daemon needs to join. Holds the secret of the link to its parent, or the link.
#[derive(Debug, Serialize, Deserialize)]
pub struct DaemonSpec {
    pub(crate) overlay: OverlayId,
    pub(crate) secret: Secret,
    /// Number of the daemon's node.
    pub(crate) node: u32,
    /// Number of its parent.
    pub(crate) parent: u32,
    /// Addresses at which the parent listens.
    pub(crate) addrs: Vec<SocketAddr>,
    /// The parent's host, for messages.
    pub(crate) parent_host: String,
    pub(crate) tree: Tree,
    /// The hosts of the subtree, the daemon's own first.
    #[serde(with = "host_runs")]
    pub(crate) hosts: Vec<Host>,
    pub(crate) settings: DaemonSettings,
    /// Set in a daemon that no parent has started: of a step, or of a host that has joined by itself. `addrs` are those of the head
    /// then.
    pub(crate) step: Option<StepMember>,
    /// Set in a forked daemon: its end of the socket pair to its parent. There are no `addrs` then.
    #[serde(skip)]
    pub(crate) inherited: Option<OwnedFd>,
}

/// Runs a daemon in a process that its parent has forked, and returns its exit code.
pub type DaemonMain = Rc<dyn Fn(DaemonSpec) -> u8>;

impl DaemonSettings {
    /// Whether this process forks the daemons of its children: on this machine, unless an interface is to be used, and while
    /// it has no other thread.
    pub fn forks_daemons(&self) -> bool {
        self.bootstrap == Bootstrap::Local && self.iface.is_none() && can_fork()
    }

    /// What makes the keys of links. A link has a secret of its own, which is in the memory of its two ends. Where the secret has
    /// reached the child over an encrypted connection, or has not left the machine, nobody else has seen it. Commands of users,
    /// srun and qrsh may send it in clear.
    pub(crate) fn key_exchange(&self) -> KeyExchange {
        match self.bootstrap {
            Bootstrap::Ssh if self.bootstrap_exec.is_none() => KeyExchange::Psk,
            Bootstrap::Local | Bootstrap::Join => KeyExchange::Psk,
            Bootstrap::Ssh | Bootstrap::Srun | Bootstrap::Qrsh | Bootstrap::Exec(_) => KeyExchange::PskDhe,
        }
    }
}

/// What a daemon that no parent has started has beside the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StepMember {
    /// Secret of its question for its parent's addresses.
    pub(crate) question: Secret,
    /// Secrets of the links to its children.
    pub(crate) children: Vec<Secret>,
    /// The head's host, for messages.
    pub(crate) head: String,
    /// Addresses at which this daemon listens.
    #[serde(skip)]
    pub(crate) own: Vec<SocketAddr>,
}

/// Record on the standard input of a daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum StartRecord {
    /// For this daemon.
    One(DaemonSpec),
    /// For all daemons of a step.
    Step(StepSpec),
}

impl StartRecord {
    /// The bytes to write to the standard input.
    pub(crate) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let body = postcard::to_stdvec(self).map(Zeroizing::new);
        let body = body.expect("postcard encodes every field of a specification");
        // The vector never grows, so no copy of the secret is left in memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAGIC.len() + 1 + VERSION.len() + 4 + body.len()));
        bytes.extend_from_slice(MAGIC);
        bytes.push(VERSION.len() as u8);
        bytes.extend_from_slice(VERSION.as_bytes());
        bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }
}

impl DaemonSpec {
    /// The bytes to write to the standard input of the daemon.
    pub(crate) fn encode(self) -> Zeroizing<Vec<u8>> {
        StartRecord::One(self).encode()
    }

    /// Reads the specification from standard input. Blocks until it is complete.
    ///
    /// # Errors
    /// Standard input holds no specification, or that of another version.
    pub fn read() -> Result<DaemonSpec, SpecError> {
        DaemonSpec::decode(&mut |buffer| rustix::io::read(rustix::stdio::stdin(), buffer), names_here)
    }

    /// Decodes the record that the head of a run sends to a host that has joined by itself.
    pub(crate) fn of_record(mut bytes: &[u8]) -> Result<DaemonSpec, SpecError> {
        let mut read = |buffer: &mut [u8]| {
            let (read, rest) = bytes.split_at(bytes.len().min(buffer.len()));
            buffer[..read.len()].copy_from_slice(read);
            bytes = rest;
            Ok(read.len())
        };
        DaemonSpec::decode(&mut read, names_here)
    }

    /// The daemon reaches the head at this address, whatever the head calls it.
    pub(crate) fn with_head_at(self, addr: SocketAddr) -> DaemonSpec {
        DaemonSpec { addrs: vec![addr], ..self }
    }

    /// Decodes a specification.
    #[cfg(test)]
    pub(crate) fn from_bytes(mut bytes: &[u8], host: &str) -> Result<DaemonSpec, SpecError> {
        use std::io::Read;
        let host = host.to_owned();
        DaemonSpec::decode(&mut |buffer| Ok(bytes.read(buffer).expect("memory can be read")), || vec![host])
    }

    fn decode(
        read: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>,
        names_here: impl FnOnce() -> Vec<String>,
    ) -> Result<DaemonSpec, SpecError> {
        let mut exact = |len: usize| -> Result<Zeroizing<Vec<u8>>, SpecError> {
            let mut bytes = Zeroizing::new(vec![0; len]);
            let mut filled = 0;
            while filled < len {
                match read(&mut bytes[filled..]) {
                    Ok(0) => return Err(SpecError::Missing),
                    Ok(count) => filled += count,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            Ok(bytes)
        };
        if exact(MAGIC.len())?[..] != MAGIC[..] {
            return Err(SpecError::Missing);
        }
        let len = exact(1)?[0];
        let version = exact(usize::from(len))?;
        if version[..] != *VERSION.as_bytes() {
            return Err(SpecError::Version(String::from_utf8_lossy(&version).escape_debug().to_string()));
        }
        let len = exact(4)?;
        let len = u32::from_be_bytes([len[0], len[1], len[2], len[3]]);
        if len > SPEC_MAX {
            return Err(SpecError::Malformed);
        }
        let body = exact(len as usize)?;
        let spec = match postcard::from_bytes(&body).map_err(|_| SpecError::Malformed)? {
            StartRecord::One(spec) => spec,
            StartRecord::Step(spec) => spec.of_host(&names_here())?,
        };
        if spec.is_valid() { Ok(spec) } else { Err(SpecError::Malformed) }
    }

    fn is_valid(&self) -> bool {
        let place = self.tree.place(self.node);
        place.parent == Some(self.parent)
            && self.hosts.len() == place.subtree.len()
            && !self.addrs.is_empty()
            && self.step.as_ref().is_none_or(|step| step.children.len() == place.children.clone().len())
            && self.settings.heartbeat_timeout > 0
    }

    /// Radix of the tree, the maximum number of children of a node.
    pub fn radix(&self) -> u32 {
        self.tree.radix()
    }

    /// Whether the daemon goes on in the memory of its parent.
    pub fn is_forked(&self) -> bool {
        self.inherited.is_some()
    }

    /// Name of the daemon's host, as the head knows it.
    pub fn host(&self) -> &str {
        self.hosts.first().map_or("", |host| &host.name)
    }

    /// Identity of the link to the parent.
    pub(crate) fn link_identity(&self) -> LinkIdentity {
        let exchange = self.settings.key_exchange();
        LinkIdentity { overlay: self.overlay, parent: self.parent, child: self.node, exchange }
    }
}

/// Everything that the daemons of a step need to join.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StepSpec {
    pub(crate) overlay: OverlayId,
    pub(crate) secret: StepSecret,
    /// Addresses at which the head listens.
    pub(crate) addrs: Vec<SocketAddr>,
    pub(crate) tree: Tree,
    /// The head's host, and the host of each daemon.
    #[serde(with = "host_runs")]
    pub(crate) hosts: Vec<Host>,
    pub(crate) settings: DaemonSettings,
}

impl StepSpec {
    /// What the daemon on the host of one of these names needs.
    pub(crate) fn of_host(self, names: &[String]) -> Result<DaemonSpec, SpecError> {
        if self.hosts.len() != self.tree.first_late() as usize || self.addrs.is_empty() {
            return Err(SpecError::Malformed);
        }
        let is_here = |host: &&Host| names.contains(&host.name);
        let found = self.hosts.iter().skip(1).find(is_here).map(|host| &host.name);
        let found = found.ok_or_else(|| SpecError::NoPlace(names.join(" or ")))?;
        let node =
            self.hosts.iter().skip(1).position(|host| host.name == *found).map_or(0, |at| at as u32 + 1);
        self.of_node(node).ok_or(SpecError::Malformed)
    }

    /// What the daemon of a node needs. The head is none.
    pub(crate) fn of_node(&self, node: u32) -> Option<DaemonSpec> {
        let Place { parent, subtree, children, .. } = self.tree.place(node);
        let parent = parent?;
        let member = StepMember {
            question: self.secret.of_question(node),
            children: children.map(|child| self.secret.of_link(child.start)).collect(),
            head: self.hosts[0].name.clone(),
            own: Vec::new(),
        };
        Some(DaemonSpec {
            overlay: self.overlay,
            secret: self.secret.of_link(node),
            node,
            parent,
            parent_host: self.hosts[parent as usize].name.clone(),
            tree: self.tree,
            hosts: self.hosts[subtree.start as usize..subtree.end as usize].to_vec(),
            settings: self.settings.clone(),
            step: Some(member),
            addrs: self.addrs.clone(),
            inherited: None,
        })
    }
}

/// Names that a step may have for this host: Slurm's, that of the system, and the latter without its domain.
fn names_here() -> Vec<String> {
    let of_slurm = std::env::var("SLURMD_NODENAME").ok();
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = own.split('.').next().unwrap_or_default().to_owned();
    match of_slurm {
        Some(name) => vec![name],
        None if short == own => vec![own],
        None => vec![own, short],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> DaemonSpec {
        DaemonSpec {
            overlay: OverlayId::random().unwrap(),
            secret: Secret::random().unwrap(),
            node: 1,
            parent: 0,
            addrs: vec!["127.0.0.1:99".parse().unwrap(), "[::1]:7".parse().unwrap()],
            parent_host: "head".to_owned(),
            tree: Tree::new(4, 2),
            hosts: vec![Host::new("a"), Host::with_slots("b", 4)],
            settings: DaemonSettings {
                bootstrap: Bootstrap::Exec(vec!["{host}".into(), "{args}".into()]),
                bootstrap_exec: None,
                bootstrap_args: Vec::new(),
                program: "hydrant".into(),
                iface: Some("lo".to_owned()),
                heartbeat_timeout: 30_000,
                join_timeout: 60_000,
            },
            step: None,
            inherited: None,
        }
    }

    fn decode(mut bytes: &[u8]) -> Result<DaemonSpec, SpecError> {
        // In small pieces, as a pipe may deliver them.
        let mut read = |buffer: &mut [u8]| {
            let len = bytes.len().min(buffer.len()).min(7);
            buffer[..len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            Ok(len)
        };
        DaemonSpec::decode(&mut read, || vec!["here".to_owned()])
    }

    #[test]
    fn a_specification_is_decoded_as_it_was_encoded() {
        let (overlay, spec) = (OverlayId::random().unwrap(), spec());
        let read = decode(&DaemonSpec { overlay, ..self::spec() }.encode()).unwrap();
        assert_eq!((read.node, read.tree, &read.hosts), (1, spec.tree, &spec.hosts));
        assert_eq!((read.addrs, read.settings, read.overlay), (spec.addrs, spec.settings, overlay));
        assert!(!format!("{:?}", read.secret).contains(|c: char| c.is_ascii_digit()));
    }

    #[test]
    fn a_specification_hardly_grows_with_the_hosts() {
        let of = |nodes: u32| {
            let tree = Tree::new(nodes + 1, 16);
            let hosts = tree.subtree(1).map(|node| Host::with_slots(&format!("n{node:05}"), 16)).collect();
            DaemonSpec { tree, hosts, ..spec() }
        };
        let (small, large) = (of(16), of(10_000));
        assert_eq!((small.hosts.len(), large.hosts.len()), (1, 1708));
        let (hosts, encoded) = (large.hosts.clone(), large.encode());
        assert!(encoded.len() < small.encode().len() + 16);
        assert_eq!(decode(&encoded).unwrap().hosts, hosts);
    }

    #[test]
    fn curves_are_left_out_where_nobody_can_have_seen_the_secret_of_a_link() {
        let with = |bootstrap, program: Option<&str>| {
            let bootstrap_exec = program.map(OsString::from);
            DaemonSettings { bootstrap, bootstrap_exec, ..spec().settings }.key_exchange()
        };
        for bootstrap in [Bootstrap::Ssh, Bootstrap::Local, Bootstrap::Join] {
            assert_eq!(with(bootstrap, None), KeyExchange::Psk);
        }
        assert_eq!(with(Bootstrap::Ssh, Some("rsh")), KeyExchange::PskDhe);
        for bootstrap in [Bootstrap::Srun, Bootstrap::Qrsh, spec().settings.bootstrap] {
            assert_eq!(with(bootstrap, None), KeyExchange::PskDhe);
        }
    }

    /// `isHeterogeneous` of pmi2.h is 0 for this reason.
    #[test]
    fn a_launcher_of_another_data_model_is_refused() {
        let own = spec().encode();
        let model = " (64-bit, big-endian)";
        assert!(!VERSION.contains(model) || cfg!(target_endian = "big"));
        let (start, rest) = own.split_at(MAGIC.len() + 1 + VERSION.len());
        let mut bytes = [start, model.as_bytes(), rest].concat();
        bytes[MAGIC.len()] += model.len() as u8;
        let error = decode(&bytes).unwrap_err().to_string();
        assert!(error.contains(&format!("{VERSION}{model}")), "{error}");
    }

    #[test]
    fn other_versions_and_other_bytes_are_refused() {
        let mut bytes = spec().encode().to_vec();
        for len in 0..bytes.len() {
            assert!(matches!(decode(&bytes[..len]), Err(SpecError::Missing)), "{len}");
        }
        assert!(matches!(decode(b"GET / HTTP/1.0\r\n\r\n"), Err(SpecError::Missing)));
        bytes[MAGIC.len() + 1] = b'9';
        let error = decode(&bytes).unwrap_err().to_string();
        let theirs = format!("the launcher's is 9{}", &VERSION[1..]);
        assert!(error.contains(VERSION) && error.contains(&theirs) && error.contains("--remote-hydrant"));
        for invalid in [
            DaemonSpec { node: 0, ..spec() },
            DaemonSpec { hosts: Vec::new(), ..spec() },
            DaemonSpec { addrs: Vec::new(), ..spec() },
            DaemonSpec { tree: Tree::new(1, 2), ..spec() },
        ] {
            assert!(matches!(decode(&invalid.encode()), Err(SpecError::Malformed)));
        }
    }
}
