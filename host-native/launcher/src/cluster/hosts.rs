//! Hosts with their slots, however they were named.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use super::hostlist::{self, HostlistError};

/// Most hosts that a job may have.
pub const HOSTS_MAX: usize = 65_536;
/// Longest name of a host in bytes, as in DNS.
pub const HOST_NAME_MAX: usize = 253;

/// A machine that ranks may run on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// As it was named: what the bootstrap is told.
    pub name: String,
    /// Who logs in there, where that is said; only `ssh` can be told.
    pub user: Option<String>,
    /// Ranks that it takes before the next host gets some; 1 where nothing is said.
    pub slots: Option<u32>,
    /// Ranks that it takes at most; any number where nothing is said.
    pub max_slots: Option<u32>,
}

impl Host {
    /// A host of which nothing but its name is known.
    pub fn new(name: &str) -> Host {
        Host { name: name.to_owned(), user: None, slots: None, max_slots: None }
    }

    /// A host with slots.
    pub fn with_slots(name: &str, slots: u32) -> Host {
        Host { slots: Some(slots), ..Host::new(name) }
    }

    /// Ranks that it takes in one turn.
    pub fn turn(&self) -> u32 {
        self.slots.unwrap_or(1)
    }
}

/// Why hosts cannot be taken as they were named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// A name that no machine has.
    #[error(
        "'{0}' is no name of a host: letters, digits, '.', '-' and '_', no '-' in front, at most {HOST_NAME_MAX}"
    )]
    Name(String),
    /// A number of slots that is none.
    #[error("'{0}' is no number of slots: give a whole number from 1 up")]
    Slots(String),
    /// A host that appears twice has more slots than a count holds.
    #[error("host {0} has more slots than can be counted")]
    ManySlots(String),
    /// Fewer ranks at most than slots.
    #[error("host {host} has {slots} slots, but takes {max_slots} ranks at most")]
    MaxBelowSlots {
        /// The host.
        host: String,
        /// Its slots in all.
        slots: u32,
        /// Ranks that it takes at most, in all.
        max_slots: u32,
    },
    /// A host that appears twice, with different users.
    #[error("host {0} is named before with another user")]
    Users(String),
    /// The names are no list.
    #[error(transparent)]
    List(#[from] HostlistError),
}

/// Hosts in the order in which they were first named. A host that is named again has the slots of both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    all: Vec<Host>,
    index: HashMap<String, usize>,
}

impl Hosts {
    /// Adds a host, or its slots to those that it has.
    pub fn add(&mut self, host: Host) -> Result<(), HostError> {
        check_name(&host.name)?;
        let known = self.index.get(&host.name).map(|&at| &mut self.all[at]);
        let sum = match known {
            None => host,
            Some(known) => {
                if known.user != host.user {
                    return Err(HostError::Users(host.name));
                }
                let many = || HostError::ManySlots(host.name.clone());
                let slots = known.turn().checked_add(host.turn()).ok_or_else(many)?;
                let max_slots = match (known.max_slots, host.max_slots) {
                    (Some(a), Some(b)) => Some(a.checked_add(b).ok_or_else(many)?),
                    (a, b) => a.or(b),
                };
                Host { slots: Some(slots), max_slots, ..host }
            }
        };
        if let (slots, Some(max_slots)) = (sum.turn(), sum.max_slots)
            && max_slots < slots
        {
            return Err(HostError::MaxBelowSlots { host: sum.name, slots, max_slots });
        }
        match self.index.get(&sum.name) {
            Some(&at) => self.all[at] = sum,
            None if self.all.len() == HOSTS_MAX => return Err(HostlistError::TooMany.into()),
            None => {
                self.index.insert(sum.name.clone(), self.all.len());
                self.all.push(sum);
            }
        }
        Ok(())
    }

    /// One host, without a number of slots.
    pub(super) fn of_one(name: &str) -> Hosts {
        Hosts { all: vec![Host::new(name)], index: HashMap::from([(name.to_owned(), 0)]) }
    }

    /// Reads what stands behind `-hosts`: names or short forms of many, `n[01-03]`, with `:SLOTS` behind each.
    pub fn parse(list: &str) -> Result<Hosts, HostError> {
        let mut hosts = Hosts::default();
        for entry in hostlist::entries(list) {
            for host in entry_hosts(entry.trim())? {
                hosts.add(host)?;
            }
        }
        Ok(hosts)
    }

    /// Each host once.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Host> {
        self.all.iter()
    }

    /// All but the first.
    pub(super) fn without_first(mut self) -> Hosts {
        let first = self.all.remove(0);
        self.index.remove(&first.name);
        self.index.values_mut().for_each(|at| *at -= 1);
        self
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// `NAME`, `NAME:SLOTS`, both with brackets, or an IPv6 address, which has brackets of its own before `:SLOTS`.
pub(super) fn entry_hosts(entry: &str) -> Result<Vec<Host>, HostError> {
    let address = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    if address(entry) {
        return Ok(vec![Host::new(entry)]);
    }
    let bracketed = entry.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    if let Some((name, behind)) = bracketed.filter(|(name, _)| address(name)) {
        let slots = match behind.strip_prefix(':') {
            Some(slots) => Some(self::slots(slots)?),
            None if behind.is_empty() => None,
            None => return Err(HostError::Name(entry.to_owned())),
        };
        return Ok(vec![Host { slots, ..Host::new(name) }]);
    }
    let (names, slots) = match entry.split_once(':') {
        Some((names, slots)) => (names, Some(self::slots(slots)?)),
        None => (entry, None),
    };
    let names = hostlist::expand_entry(names)?;
    Ok(names.iter().map(|name| Host { slots, ..Host::new(name) }).collect())
}

/// A number of slots.
pub(super) fn slots(text: &str) -> Result<u32, HostError> {
    match text.parse() {
        Ok(0) | Err(_) => Err(HostError::Slots(text.to_owned())),
        Ok(slots) => Ok(slots),
    }
}

/// Names go into command lines: none of them may look like an option there, or like more than one word.
fn check_name(name: &str) -> Result<(), HostError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    let named = !name.is_empty() && !name.starts_with('-') && name.bytes().all(plain);
    if name.len() <= HOST_NAME_MAX && (named || name.parse::<Ipv6Addr>().is_ok()) {
        Ok(())
    } else {
        Err(HostError::Name(name.escape_debug().to_string()))
    }
}

/// Whether `name` is a name of this machine, which calls itself `here`.
pub(crate) fn is_here(name: &[u8], here: &str) -> bool {
    let short = here.split('.').next().unwrap_or(here);
    [here, short, "localhost", "127.0.0.1", "::1"].iter().any(|known| known.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(list: &str) -> String {
        let host = |host: &Host| match host.slots {
            Some(slots) => format!("{}:{slots}", host.name),
            None => host.name.clone(),
        };
        match Hosts::parse(list) {
            Ok(hosts) => hosts.iter().map(host).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn hosts_are_named_in_many_ways() {
        assert_eq!(shown("a:4,b:4"), "a:4 b:4");
        assert_eq!(shown("a, b"), "a b");
        assert_eq!(shown("n[01-03]:2,m5"), "n01:2 n02:2 n03:2 m5");
        assert_eq!(shown("10.0.0.1:2,fe80::1,[::1]:3,[::2]"), "10.0.0.1:2 fe80::1 ::1:3 ::2");
    }

    #[test]
    fn a_host_that_appears_twice_has_the_slots_of_both_and_its_first_place() {
        assert_eq!(shown("a:2,b:1,a:3"), "a:5 b:1");
        assert_eq!(shown("a,b,a"), "a:2 b");
        assert_eq!(shown("a:2,a"), "a:3");
        assert!(shown("a:4294967295,a").contains("more slots than can be counted"));
    }

    #[test]
    fn a_limit_adds_up_too_and_never_lies_below_the_slots() {
        let host = |slots, max_slots| Host { slots: Some(slots), max_slots, ..Host::new("a") };
        let mut hosts = Hosts::default();
        hosts.add(host(2, Some(3))).unwrap();
        hosts.add(host(2, Some(2))).unwrap();
        assert_eq!(hosts.iter().collect::<Vec<_>>(), [&host(4, Some(5))]);
        let error = hosts.add(host(2, None)).unwrap_err();
        assert_eq!(error, HostError::MaxBelowSlots { host: "a".to_owned(), slots: 6, max_slots: 5 });
        let other = Host { user: Some("u".to_owned()), ..host(1, None) };
        assert_eq!(hosts.add(other), Err(HostError::Users("a".to_owned())));
    }

    #[test]
    fn no_name_becomes_an_option_of_ssh() {
        for wrong in ["-oProxyCommand=x", "a b", "a;b", "", "a/b", "ä", "a\nb", "a@b", "[::1]x"] {
            assert!(Hosts::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(Hosts::parse(&"a".repeat(HOST_NAME_MAX)).is_ok());
        assert!(Hosts::parse(&"a".repeat(HOST_NAME_MAX + 1)).is_err());
        for wrong in ["a:0", "a:x", "a:", "a:-1", "a:4294967296", "a:1:2"] {
            assert!(matches!(Hosts::parse(wrong), Err(HostError::Slots(_))), "{wrong}");
        }
    }
}
