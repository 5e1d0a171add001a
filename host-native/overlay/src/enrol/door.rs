//! Checks of hosts that want to join: of their hello, and of their application.

use std::fmt;

use hydrant_noise::Transport;
use hydrant_placement::{Host, Hosts};

use super::hello::{HELLO_LEN, MAGIC, VERDICT_LEN, VERSION_LEN, Verdict, version_field, version_text};
use super::{Application, NO_INDEX, SLOTS_MAX, identity};
use crate::link::{INITIATION_LEN, RESPONSE_LEN, Secret, claimed_node, respond};

/// Most bytes of an application: a command line.
const APPLICATION_MAX: usize = 2 << 20;

/// Secrets of hosts.
pub enum Secrets {
    /// All hosts have the same.
    One([u8; 32]),
    /// Each index has a secret of its own, or a reason why it has none.
    PerHost(Box<dyn Fn(u32) -> Result<[u8; 32], String>>),
}

/// Without the secrets.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Secrets::One(_) => "One(..)",
            Secrets::PerHost(_) => "PerHost(..)",
        })
    }
}

/// A hello that has been read.
pub(crate) struct Greeted {
    /// What the host is told.
    pub(crate) verdict: [u8; VERDICT_LEN],
    /// The encryption of its link and the index that it has said, or the reason why it is turned away.
    pub(crate) host: Result<(Transport, Option<u32>), String>,
}

impl Secrets {
    /// Judges a hello. None if it is malformed.
    pub(crate) fn greet(&self, hello: &[u8; HELLO_LEN]) -> Option<Greeted> {
        let (version, initiation) = hello[MAGIC.len()..].split_at(VERSION_LEN);
        let initiation = initiation.first_chunk().expect("the initiation is the rest of a hello");
        let index = Some(claimed_node(initiation)?).filter(|&index| index != NO_INDEX);
        let mut verdict = [0; VERDICT_LEN];
        verdict[1..=VERSION_LEN].copy_from_slice(&version_field());
        let host = match self.judge(version, initiation, index) {
            Ok((transport, response)) => {
                verdict[1 + VERSION_LEN..].copy_from_slice(&response);
                Ok((transport, index))
            }
            Err((refused, why)) => {
                verdict[0] = refused as u8;
                Err(why)
            }
        };
        Some(Greeted { verdict, host })
    }

    fn judge(
        &self,
        version: &[u8],
        initiation: &[u8; INITIATION_LEN],
        index: Option<u32>,
    ) -> Result<(Transport, [u8; RESPONSE_LEN]), (Verdict, String)> {
        if *version != version_field() {
            return Err((Verdict::Version, format!("its hydrant is {}", version_text(version))));
        }
        let secret = self.of(index)?;
        let whose = index.map_or_else(String::new, |index| format!(" (index {index})"));
        respond(&identity(index), &secret, initiation)
            .map_err(|_| (Verdict::Secret, format!("it has another secret{whose}")))
    }

    /// The secret of a host.
    fn of(&self, index: Option<u32>) -> Result<Secret, (Verdict, String)> {
        match (self, index) {
            (Secrets::One(secret), _) => Ok(Secret::of(*secret)),
            (Secrets::PerHost(_), None) => Err((
                Verdict::NoIndex,
                "it has not said its --index, and each host has its own secret".to_owned(),
            )),
            (Secrets::PerHost(find), Some(index)) => find(index)
                .map(Secret::of)
                .map_err(|why| (Verdict::NoSecret, format!("index {index}: {why}"))),
        }
    }
}

impl Application {
    /// Reads the message of a host that has been greeted.
    pub(crate) fn decode(message: &[u8]) -> Option<Application> {
        if message.len() > APPLICATION_MAX {
            return None;
        }
        postcard::from_bytes(message).ok()
    }

    /// Checks what a host offers by itself.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Application { name, slots, .. } = self;
        let named = Hosts::default().add(Host::with_slots(name, (*slots).max(1)));
        named.map_err(|error| format!("{error}; join with --name"))?;
        if !(1..=SLOTS_MAX).contains(slots) {
            return Err(format!("{slots} slots (-n), and a host has 1 to {SLOTS_MAX}"));
        }
        Ok(())
    }
}
