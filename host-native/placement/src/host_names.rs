//! Attributes of a job with the names of its hosts.

use std::collections::BTreeMap;

use hydrant_core::limits::{HOSTS_ATTR_PREFIX, HOSTS_EACH};

/// The [attributes](HOSTS_ATTR_PREFIX) of a job whose nodes have these numbers and names of hosts. The first name of a node counts.
///
/// ```
/// let attributes = hydrant_placement::host_attributes([(1, "a"), (2, "b"), (6, "f")]);
/// let expected = [("pmix.hname.0", ",a,b"), ("pmix.hname.1", ",,f")];
/// assert!(attributes.eq(expected.map(|(name, value)| (name.to_owned(), value.to_owned()))));
/// ```
pub fn host_attributes<'h>(
    hosts: impl IntoIterator<Item = (u32, &'h str)>,
) -> impl Iterator<Item = (String, String)> {
    let mut attributes: BTreeMap<u32, [&str; HOSTS_EACH as usize]> = BTreeMap::new();
    for (node, host) in hosts {
        let name = &mut attributes.entry(node / HOSTS_EACH).or_default()[(node % HOSTS_EACH) as usize];
        if name.is_empty() {
            *name = host;
        }
    }
    let attributes = attributes.into_iter().filter(|(_, names)| names.iter().any(|name| !name.is_empty()));
    attributes.map(|(number, names)| {
        let value = names.join(",");
        (format!("{HOSTS_ATTR_PREFIX}{number}"), value.trim_end_matches(',').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use hydrant_core::limits::VALUE_MAX;

    use super::*;
    use crate::limits::HOST_NAME_MAX;

    #[test]
    fn the_longest_names_fit_in_a_value() {
        let name = "n".repeat(HOST_NAME_MAX);
        let lengths = host_attributes((0..9).map(|node| (node, &*name))).map(|(_, value)| value.len());
        assert_eq!(
            lengths.collect::<Vec<_>>(),
            [4 * HOST_NAME_MAX + 3, 4 * HOST_NAME_MAX + 3, HOST_NAME_MAX]
        );
        assert!(4 * HOST_NAME_MAX + 3 <= VALUE_MAX as usize);
    }

    #[test]
    fn nodes_without_names_have_no_attribute() {
        assert_eq!(host_attributes([(0, ""), (5, "")]).count(), 0);
        let first: Vec<_> = host_attributes([(3, ""), (3, "a"), (3, "b")]).collect();
        assert_eq!(first, [("pmix.hname.0".to_owned(), ",,,a".to_owned())]);
    }
}
