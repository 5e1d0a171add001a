//! Hosts with their slots, and lists of hosts as in `-hosts`.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use crate::error::{HostError, HostlistError, PlacementError};
use crate::excerpt::excerpt;
use crate::hostlist;
use crate::limits::{HOST_NAME_MAX, HOSTS_MAX};

/// A host that ranks may run on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name or address, as the bootstrap gets it.
    pub name: String,
    /// User to log in as. Only the ssh bootstrap supports one.
    pub user: Option<String>,
    /// Ranks that it gets before the next host gets some. Without a number it is 1.
    pub slots: Option<u32>,
    /// Maximum number of ranks. Without a number there is no limit.
    pub max_slots: Option<u32>,
}

impl Host {
    /// A host with a name only.
    pub fn new(name: &str) -> Host {
        Host { name: name.to_owned(), user: None, slots: None, max_slots: None }
    }

    /// A host with slots.
    pub fn with_slots(name: &str, slots: u32) -> Host {
        Host { slots: Some(slots), ..Host::new(name) }
    }

    /// Ranks that it gets in one turn.
    pub fn ranks_per_turn(&self) -> u32 {
        self.slots.unwrap_or(1)
    }
}

/// Hosts in the order in which they were first named. Slots of a host that is named several times add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    all: Vec<Host>,
    index: HashMap<String, usize>,
}

impl Hosts {
    /// Adds a host. If the host is in the list, its slots and its `max_slots` add up.
    ///
    /// # Errors
    /// The name is invalid, the host is in the list with another user, the sum of its slots exceeds 32 bits or
    /// `max_slots`, or the list has [`HOSTS_MAX`] hosts.
    pub fn add(&mut self, host: Host) -> Result<(), HostError> {
        check_name(&host.name)?;
        let existing = self.index.get(&host.name).map(|&at| &self.all[at]);
        let sum = match existing {
            None => host,
            Some(existing) => {
                if existing.user != host.user {
                    return Err(HostError::Users(host.name));
                }
                let many = || HostError::ManySlots(host.name.clone());
                let slots = existing.ranks_per_turn().checked_add(host.ranks_per_turn()).ok_or_else(many)?;
                let max_slots = match (existing.max_slots, host.max_slots) {
                    (Some(a), Some(b)) => Some(a.checked_add(b).ok_or_else(many)?),
                    (a, b) => a.or(b),
                };
                Host { slots: Some(slots), max_slots, ..host }
            }
        };
        if let (slots, Some(max_slots)) = (sum.ranks_per_turn(), sum.max_slots)
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

    /// Adds the hosts of a program (`-host`, `add-host`). A host that another program names too has the larger number of slots.
    ///
    /// # Errors
    /// As [`Hosts::add`].
    pub fn add_of_program(&mut self, hosts: &Hosts) -> Result<(), HostError> {
        for host in hosts.iter() {
            match self.index.get(&host.name) {
                Some(&at) if self.all[at].user == host.user => {
                    self.all[at].slots = self.all[at].slots.max(host.slots);
                }
                _ => self.add(host.clone())?,
            }
        }
        Ok(())
    }

    /// This machine alone, without a number of slots.
    pub(crate) fn of_this_machine(name: &str) -> Hosts {
        Hosts { all: vec![Host::new(name)], index: HashMap::from([(name.to_owned(), 0)]) }
    }

    /// Parses the value of `-hosts`: names or short forms such as `n[01-03]`, each with an optional `:SLOTS`.
    ///
    /// # Errors
    /// A name, a range or a number of slots is invalid; see also [`Hosts::add`].
    pub fn parse(list: &str) -> Result<Hosts, HostError> {
        let mut hosts = Hosts::default();
        for entry in hostlist::split_entries(list) {
            for host in parse_entry(entry.trim())? {
                hosts.add(host)?;
            }
        }
        Ok(hosts)
    }

    /// All hosts, each once, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Host> {
        self.all.iter()
    }

    /// All hosts, each once, in order.
    pub fn as_slice(&self) -> &[Host] {
        &self.all
    }

    /// The first so many hosts.
    ///
    /// # Errors
    /// [`FewHosts`](PlacementError::FewHosts) if there are fewer.
    pub(crate) fn first(mut self, nodes: u32) -> Result<Hosts, PlacementError> {
        let there = self.all.len();
        if there < nodes as usize {
            return Err(PlacementError::FewHosts { wanted: nodes, there });
        }
        self.all.truncate(nodes as usize);
        self.index.retain(|_, &mut at| at < nodes as usize);
        Ok(self)
    }

    /// Removes the first host.
    pub(crate) fn without_first(mut self) -> Hosts {
        let first = self.all.remove(0);
        self.index.remove(&first.name);
        self.index.values_mut().for_each(|at| *at -= 1);
        self
    }

    /// Number of hosts.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// Parses one entry of a list: `NAME` or `NAME:SLOTS`, optionally with `USER@` in front. The name may be a short form with
/// brackets. An IPv6 address stands in brackets if `:SLOTS` follows.
pub(crate) fn parse_entry(entry: &str) -> Result<Vec<Host>, HostError> {
    let Some((user, entry)) = entry.rsplit_once('@') else { return parse_hosts(entry) };
    let user = parse_user(user)?;
    let hosts = parse_hosts(entry)?.into_iter();
    Ok(hosts.map(|host| Host { user: Some(user.clone()), ..host }).collect())
}

fn parse_hosts(entry: &str) -> Result<Vec<Host>, HostError> {
    let is_address = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    if is_address(entry) {
        return Ok(vec![Host::new(entry)]);
    }
    let bracketed = entry.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    if let Some((name, behind)) = bracketed.filter(|(name, _)| is_address(name)) {
        let slots = match behind.strip_prefix(':') {
            Some(slots) => Some(parse_slots(slots)?),
            None if behind.is_empty() => None,
            None => return Err(HostError::Name(entry.to_owned())),
        };
        return Ok(vec![Host { slots, ..Host::new(name) }]);
    }
    let (names, slots) = match entry.split_once(':') {
        Some((names, slots)) => (names, Some(parse_slots(slots)?)),
        None => (entry, None),
    };
    let names = hostlist::expand_entry(names)?;
    Ok(names.iter().map(|name| Host { slots, ..Host::new(name) }).collect())
}

/// Parses a user name, which cannot be an option or split into several words.
pub(crate) fn parse_user(user: &str) -> Result<String, HostError> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'@');
    if user.is_empty() || user.starts_with('-') || !user.bytes().all(is_plain) {
        return Err(HostError::User(excerpt(user)));
    }
    Ok(user.to_owned())
}

/// Parses a number of slots.
pub(crate) fn parse_slots(text: &str) -> Result<u32, HostError> {
    match text.parse() {
        Ok(0) | Err(_) => Err(HostError::Slots(excerpt(text))),
        Ok(slots) => Ok(slots),
    }
}

/// Checks that a name is safe in a command line: it cannot be an option or split into several words.
fn check_name(name: &str) -> Result<(), HostError> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    let is_name = !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain);
    if name.len() <= HOST_NAME_MAX && (is_name || name.parse::<Ipv6Addr>().is_ok()) {
        Ok(())
    } else {
        Err(HostError::Name(excerpt(name)))
    }
}

/// The position of the host that `name` names: the one of this very name, otherwise the first one of this short name. Names of
/// this machine name no other host.
pub fn position(hosts: &[Host], name: &[u8]) -> Option<usize> {
    let is_loopback = [&b"localhost"[..], b"127.0.0.1", b"::1"].contains(&name);
    let is_meant = |host: &Host| is_name_of(name, &host.name) && !is_loopback;
    let exact = hosts.iter().position(|host| host.name.as_bytes() == name);
    exact.or_else(|| hosts.iter().position(is_meant))
}

/// Whether `name` is a name of the machine with this host name: the host name, its first label, or a loopback name.
pub fn is_name_of(name: &[u8], hostname: &str) -> bool {
    let short = hostname.split('.').next().unwrap_or(hostname);
    [hostname, short, "localhost", "127.0.0.1", "::1"].iter().any(|alias| alias.as_bytes() == name)
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
    fn lists_hold_names_short_forms_and_addresses() {
        assert_eq!(shown("a:4,b:4"), "a:4 b:4");
        assert_eq!(shown("a, b"), "a b");
        assert_eq!(shown("n[01-03]:2,m5"), "n01:2 n02:2 n03:2 m5");
        assert_eq!(shown("10.0.0.1:2,fe80::1,[::1]:3,[::2]"), "10.0.0.1:2 fe80::1 ::1:3 ::2");
    }

    #[test]
    fn a_user_stands_before_the_host() {
        let users = |list: &str| -> Vec<(String, Option<String>, Option<u32>)> {
            let hosts = Hosts::parse(list).unwrap();
            hosts.iter().map(|host| (host.name.clone(), host.user.clone(), host.slots)).collect()
        };
        let user = |name: &str, user: &str, slots| (name.to_owned(), Some(user.to_owned()), slots);
        assert_eq!(users("joe@n[1-2]:2"), [user("n1", "joe", Some(2)), user("n2", "joe", Some(2))]);
        assert_eq!(
            users("j.d@corp.org@a,x@[::1]:3"),
            [user("a", "j.d@corp.org", None), user("::1", "x", Some(3))]
        );
        assert!(shown("joe@a,a").contains("different users"));
        assert_eq!(shown("-l@a"), "invalid user name '-l'");
    }

    #[test]
    fn a_host_is_found_by_its_short_name() {
        let hosts = Hosts::parse("a.example,b,a").unwrap();
        let at = |name: &str| position(hosts.as_slice(), name.as_bytes());
        assert_eq!(
            ["a", "a.example", "b", "b.example", "localhost"].map(at),
            [Some(2), Some(0), Some(1), None, None]
        );
        assert_eq!(position(&hosts.as_slice()[..2], b"a"), Some(0));
    }

    #[test]
    fn slots_of_a_repeated_host_add_up() {
        assert_eq!(shown("a:2,b:1,a:3"), "a:5 b:1");
        assert_eq!(shown("a,b,a"), "a:2 b");
        assert_eq!(shown("a:2,a"), "a:3");
        assert!(shown("a:4294967295,a").contains("more than 4294967295 slots in all"));
    }

    #[test]
    fn max_slots_add_up_and_are_at_least_the_slots() {
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
    fn names_cannot_be_options_of_ssh() {
        for invalid in
            ["-oProxyCommand=x", "a b", "a;b", "", "a/b", "ä", "a\nb", "a@", "@b", "-l@b", "a b@c", "a:1@b:2"]
        {
            assert!(Hosts::parse(invalid).is_err(), "{invalid:?}");
        }
        assert!(Hosts::parse(&"a".repeat(HOST_NAME_MAX)).is_ok());
        assert!(Hosts::parse(&"a".repeat(HOST_NAME_MAX + 1)).is_err());
        for invalid in ["a:0", "a:x", "a:", "a:-1", "a:4294967296", "a:1:2"] {
            assert!(matches!(Hosts::parse(invalid), Err(HostError::Slots(_))), "{invalid}");
        }
    }
}
