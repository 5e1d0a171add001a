//! Secret of the daemons that one command starts (Slurm: a step), and their question for the addresses of their parent.
//!
//! The secrets of all links and questions follow from one. All daemons of a step get it, so each could speak as any other. Hosts
//! that join by themselves get their own secrets alone.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use blake2::Blake2sMac256;
use blake2::digest::{FixedOutput, KeyInit, Mac, Update};
use hydrant_core::peer::tree::Tree;
use serde::{Deserialize, Serialize};

use crate::link::Secret;

/// Most addresses at which a daemon says that it listens.
pub(crate) const ADDRS_MAX: usize = 4;
/// Bytes of an address: IPv6, or IPv4 as IPv6, and the port.
const ADDR_LEN: usize = 16 + 2;
const ADDRS_LEN: usize = 1 + ADDRS_MAX * ADDR_LEN;
const MAC_LEN: usize = 32;
/// Random bytes that the answer to a question depends on.
const NONCE_LEN: usize = 16;

/// First bytes of a question. The last byte differs from that of a link's handshake.
pub(crate) const QUESTION_MAGIC: [u8; 8] = *b"hydrant\x02";
const QUESTION_MAC: usize = QUESTION_MAGIC.len() + 4 + NONCE_LEN + ADDRS_LEN;
/// Bytes of a question: magic, node, nonce, own addresses, and a MAC of all of them.
pub(crate) const QUESTION_LEN: usize = QUESTION_MAC + MAC_LEN;
/// Bytes of an answer: addresses of the parent, and a MAC of the nonce and them.
pub(crate) const ANSWER_LEN: usize = ADDRS_LEN + MAC_LEN;

/// Secret of all daemons of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StepSecret(Secret);

impl StepSecret {
    /// A new random secret.
    pub(crate) fn random() -> Result<StepSecret, hydrant_reactor::Error> {
        Secret::random().map(StepSecret)
    }

    /// The secret of the link between a node and its parent.
    pub(crate) fn of_link(&self, child: u32) -> Secret {
        Secret::of(mac(&self.0, b"link", &[&child.to_be_bytes()]))
    }

    /// The secret of a node's question.
    pub(crate) fn of_question(&self, node: u32) -> Secret {
        Secret::of(mac(&self.0, b"node", &[&node.to_be_bytes()]))
    }
}

/// BLAKE2s with a secret as its key. The purpose keeps values apart.
fn mac(secret: &Secret, purpose: &[u8; 4], parts: &[&[u8]]) -> [u8; MAC_LEN] {
    hashed(secret, purpose, parts).finalize_fixed().into()
}

fn is_mac(secret: &Secret, mac: &[u8], purpose: &[u8; 4], parts: &[&[u8]]) -> bool {
    // Compares in constant time.
    hashed(secret, purpose, parts).verify_slice(mac).is_ok()
}

fn hashed(secret: &Secret, purpose: &[u8; 4], parts: &[&[u8]]) -> Blake2sMac256 {
    let mut mac =
        <Blake2sMac256 as KeyInit>::new_from_slice(secret.as_bytes()).expect("a key of 32 bytes is allowed");
    Update::update(&mut mac, purpose);
    parts.iter().for_each(|part| Update::update(&mut mac, part));
    mac
}

/// A daemon's question for the addresses of its parent. All daemons of a step start at once, so none knows them.
#[derive(Debug)]
pub(crate) struct Question {
    secret: Secret,
    nonce: [u8; NONCE_LEN],
}

impl Question {
    /// Asks for the parent of `node`, which has this secret for its question and listens at `own`. Returns the bytes to send to
    /// the head.
    pub(crate) fn new(
        secret: &Secret,
        node: u32,
        own: &[SocketAddr],
    ) -> Result<(Question, [u8; QUESTION_LEN]), hydrant_reactor::Error> {
        let mut nonce = [0; NONCE_LEN];
        hydrant_reactor::fill_random(&mut nonce).map_err(hydrant_reactor::Error::during("getrandom"))?;
        let text = [&QUESTION_MAGIC[..], &node.to_be_bytes(), &nonce, &encode_addrs(own)].concat();
        let mac = mac(secret, b"ask ", &[&text]);
        let mut bytes = [0; QUESTION_LEN];
        bytes[..QUESTION_MAC].copy_from_slice(&text);
        bytes[QUESTION_MAC..].copy_from_slice(&mac);
        Ok((Question { secret: secret.clone(), nonce }, bytes))
    }

    /// Checks an answer. Returns the addresses of the parent, none if the head does not know them yet, or `None` if it is
    /// not the head's answer to this question.
    pub(crate) fn answered(&self, answer: &[u8; ANSWER_LEN]) -> Option<Vec<SocketAddr>> {
        let (addrs, mac) = answer.split_at(ADDRS_LEN);
        is_mac(&self.secret, mac, b"tell", &[&self.nonce, addrs]).then(|| decode_addrs(addrs))?
    }
}

/// The head's knowledge of where the daemons of a step listen.
#[derive(Debug)]
pub(crate) struct Guide {
    secret: StepSecret,
    tree: Tree,
    /// Addresses of each node that has said so.
    listening: Vec<Vec<SocketAddr>>,
}

impl Guide {
    /// Knows of the head, which listens at `addrs`.
    pub(crate) fn new(secret: StepSecret, tree: Tree, addrs: Vec<SocketAddr>) -> Guide {
        let mut listening = vec![Vec::new(); tree.nodes() as usize];
        listening[0] = addrs;
        Guide { secret, tree, listening }
    }

    /// Answers a question, and remembers where the daemon that asks listens. Returns `None` if it is not of a daemon of the step.
    pub(crate) fn answer(&mut self, question: &[u8; QUESTION_LEN]) -> Option<[u8; ANSWER_LEN]> {
        let (text, tag) = question.split_at(QUESTION_MAC);
        let (node, rest) = text[QUESTION_MAGIC.len()..].split_first_chunk()?;
        let (nonce, own) = rest.split_at(NONCE_LEN);
        let node = u32::from_be_bytes(*node);
        let parent = self.tree.parent(node)?;
        let secret = self.secret.of_question(node);
        if !is_mac(&secret, tag, b"ask ", &[text]) {
            return None;
        }
        self.listening[node as usize] = decode_addrs(own)?;
        let addrs = encode_addrs(&self.listening[parent as usize]);
        let mut answer = [0; ANSWER_LEN];
        answer[..ADDRS_LEN].copy_from_slice(&addrs);
        answer[ADDRS_LEN..].copy_from_slice(&mac(&secret, b"tell", &[nonce, &addrs]));
        Some(answer)
    }
}

/// The first addresses of a list.
fn encode_addrs(addrs: &[SocketAddr]) -> [u8; ADDRS_LEN] {
    let mut bytes = [0; ADDRS_LEN];
    let (count, places) = bytes.split_at_mut(1);
    count[0] = addrs.len().min(ADDRS_MAX) as u8;
    for (place, addr) in places.chunks_exact_mut(ADDR_LEN).zip(addrs) {
        let ip = match addr.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        place[..16].copy_from_slice(&ip.octets());
        place[16..].copy_from_slice(&addr.port().to_be_bytes());
    }
    bytes
}

fn decode_addrs(bytes: &[u8]) -> Option<Vec<SocketAddr>> {
    let (&count, places) = bytes.split_first()?;
    let addr = |place: &[u8]| {
        let (ip, port) = place.split_first_chunk::<16>()?;
        let port = u16::from_be_bytes(*port.first_chunk()?);
        Some(SocketAddr::new(Ipv6Addr::from(*ip).to_canonical(), port))
    };
    (usize::from(count) <= ADDRS_MAX)
        .then(|| places.chunks_exact(ADDR_LEN).take(count.into()).map(addr).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addrs() -> Vec<SocketAddr> {
        ["10.0.0.1:99", "[fd00::1]:7"].map(|addr| addr.parse().unwrap()).into()
    }

    #[test]
    fn a_daemon_learns_where_its_parent_listens() {
        let secret = StepSecret::random().unwrap();
        let head = vec!["10.0.0.9:1".parse().unwrap()];
        let mut guide = Guide::new(secret.clone(), Tree::new(8, 2), head.clone());
        let mut ask = |node, own: &[SocketAddr]| {
            let (question, bytes) = Question::new(&secret.of_question(node), node, own).unwrap();
            question.answered(&guide.answer(&bytes).unwrap())
        };
        // Node 2 is below node 1, which is below the head.
        assert_eq!(ask(2, &[]), Some(vec![]));
        assert_eq!(ask(1, &addrs()), Some(head));
        assert_eq!(ask(2, &[]), Some(addrs()));
        let many = [addrs(), addrs(), addrs()].concat();
        assert!(ask(1, &many).is_some());
        assert_eq!(ask(2, &[]).as_deref(), Some(&many[..ADDRS_MAX]));
    }

    #[test]
    fn others_neither_ask_nor_answer() {
        let secret = StepSecret::random().unwrap();
        let mut guide = Guide::new(secret.clone(), Tree::new(8, 2), addrs());
        let own = secret.of_question(1);
        let (question, bytes) = Question::new(&own, 1, &addrs()).unwrap();
        let answer = guide.answer(&bytes).unwrap();
        let (other, _) = Question::new(&own, 1, &addrs()).unwrap();
        assert!(question.answered(&answer).is_some() && other.answered(&answer).is_none(), "an old answer");
        for at in 0..QUESTION_LEN {
            let mut forged = bytes;
            forged[at] ^= 1;
            assert!(guide.answer(&forged).is_none(), "{at}");
        }
        for at in 0..ANSWER_LEN {
            let mut forged = answer;
            forged[at] ^= 1;
            assert!(question.answered(&forged).is_none(), "{at}");
        }
        for (node, secret) in [(8, secret.of_question(8)), (2, own)] {
            let (_, other) = Question::new(&secret, node, &[]).unwrap();
            assert!(guide.answer(&other).is_none(), "{node}");
        }
    }

    #[test]
    fn links_have_different_secrets() {
        let secret = StepSecret::random().unwrap();
        assert_ne!(secret.of_link(1).as_bytes(), secret.of_link(2).as_bytes());
        assert_eq!(secret.of_link(1).as_bytes(), secret.clone().of_link(1).as_bytes());
    }
}
